//! Faults that were seen in other schedulers, each with its exact input and the right answer.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual::clock::{Clock as _, SystemClock};
use punctual::schedule::{
    CronExpr, DateRange, Fold, Gap, Moment, Schedule, Span, Standing, Zone, ZoneChoice, Zones,
};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn zone(name: &str) -> Zone {
    Zones::open(ZoneChoice::Bundled).unwrap().get(name).unwrap()
}

fn crons(texts: &[&str], zone_name: &str) -> Schedule {
    let exprs = texts.iter().map(|text| CronExpr::parse(text).expect(text));
    Schedule::crons(exprs, zone(zone_name), Gap::Shift, Fold::Once)
}

fn dates(texts: &[&str]) -> Vec<DateRange> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The due instants as a case lists them: whole times, or only dates for midnights.
fn assert_due(text: &str, zone_name: &str, after: &str, expected: &str) {
    let schedule = crons(&[text], zone_name);
    let expected: Vec<_> = expected.split_whitespace().map(at).collect();
    let due = schedule.upcoming(at(after)).map(|due| due.at).take(expected.len());
    assert_eq!(due.collect::<Vec<_>>(), expected, "`{text}` {zone_name} after {after}");
}

#[test]
fn b06_no_offset_is_captured_before_a_change() {
    assert_due(
        "0 5 2 * * *",
        "Europe/Dublin",
        "2025-10-24T12:00:00Z",
        "2025-10-25T01:05:00Z 2025-10-26T02:05:00Z 2025-10-27T02:05:00Z 2025-10-28T02:05:00Z
         2025-10-29T02:05:00Z",
    );
    assert_due(
        "5 2 * * *",
        "Europe/Dublin",
        "2026-03-27T12:00:00Z",
        "2026-03-28T02:05:00Z 2026-03-29T01:05:00Z 2026-03-30T01:05:00Z 2026-03-31T01:05:00Z
         2026-04-01T01:05:00Z",
    );
}

#[test]
fn b08_the_next_instant_is_always_later() {
    assert_due(
        "30 * * * *",
        "Europe/Helsinki",
        "2017-10-29T00:15:00Z",
        "2017-10-29T00:30:00Z 2017-10-29T01:30:00Z 2017-10-29T02:30:00Z 2017-10-29T03:30:00Z
         2017-10-29T04:30:00Z",
    );
    // `1-23/2` begins with no star: each hour of the day is due once, at its first pass.
    assert_due(
        "0 1-23/2 * * *",
        "Europe/London",
        "2024-10-26T23:30:00Z",
        "2024-10-27T00:00:00Z 2024-10-27T03:00:00Z 2024-10-27T05:00:00Z 2024-10-27T07:00:00Z
         2024-10-27T09:00:00Z",
    );
    assert_due(
        "0 */2 * * *",
        "Europe/London",
        "2024-10-26T22:30:00Z",
        "2024-10-26T23:00:00Z 2024-10-27T02:00:00Z 2024-10-27T04:00:00Z 2024-10-27T06:00:00Z
         2024-10-27T08:00:00Z",
    );
}

#[test]
fn b13_the_coming_instant_is_neither_past_nor_passed_over() {
    let shanghai = "Asia/Shanghai";
    assert_due(
        "0 8 * * *",
        shanghai,
        "2026-03-01T00:00:00Z",
        "2026-03-02T00:00:00Z 2026-03-03T00:00:00Z 2026-03-04T00:00:00Z 2026-03-05T00:00:00Z
         2026-03-06T00:00:00Z",
    );
    assert_due(
        "0 10 * * *",
        shanghai,
        "2026-02-05T13:53:45Z",
        "2026-02-06T02:00:00Z 2026-02-07T02:00:00Z 2026-02-08T02:00:00Z 2026-02-09T02:00:00Z
         2026-02-10T02:00:00Z",
    );
    assert_due(
        "0 0 21 * * *",
        shanghai,
        "2026-05-05T04:00:00Z",
        "2026-05-05T13:00:00Z 2026-05-06T13:00:00Z 2026-05-07T13:00:00Z 2026-05-08T13:00:00Z
         2026-05-09T13:00:00Z",
    );
}

#[test]
fn b16_a_date_that_never_occurs_is_refused_at_once() {
    for text in ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6 *"] {
        let start = SystemClock.monotonic();
        let error = CronExpr::parse(text).unwrap_err();
        // A search through the years would take seconds; the limit is wide for a busy machine.
        assert!(start.elapsed() < Duration::from_millis(500), "{text}");
        assert!(error.message.contains("can never fire"), "{}", error.message);
    }
    assert_due(
        "0 0 31 4,5 *",
        "UTC",
        "2029-03-26T09:22:30Z",
        "2029-05-31T00:00:00Z 2030-05-31T00:00:00Z",
    );
    assert_due(
        "0 0 31 4 1",
        "UTC",
        "2026-03-31T00:00:00Z",
        "2026-04-06T00:00:00Z 2026-04-13T00:00:00Z 2026-04-20T00:00:00Z 2026-04-27T00:00:00Z
         2027-04-05T00:00:00Z",
    );
}

#[test]
fn b18_steps_and_lists_are_what_they_look_like_or_refused() {
    assert_due(
        "5/15 * * * *",
        "UTC",
        "2026-05-01T00:00:00Z",
        "2026-05-01T00:05:00Z 2026-05-01T00:20:00Z 2026-05-01T00:35:00Z 2026-05-01T00:50:00Z
         2026-05-01T01:05:00Z 2026-05-01T01:20:00Z",
    );
    assert_due(
        "*/7 * * * *",
        "UTC",
        "2026-05-01T00:40:00Z",
        "2026-05-01T00:42:00Z 2026-05-01T00:49:00Z 2026-05-01T00:56:00Z 2026-05-01T01:00:00Z
         2026-05-01T01:07:00Z",
    );
    assert_eq!(crons(&["*/7 * * * *"], "UTC").warnings().len(), 1);
    for (text, field) in [
        ("*/90 * * * *", "minute"),
        ("*/0 * * * *", "minute"),
        ("0 0 1-31/40 * *", "day of month"),
        ("0 0 * * 1,", "day of week"),
        ("50-10 * * * *", "minute"),
        ("61 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("0 0 0 1 *", "day of month"),
        ("0 0 * * 8", "day of week"),
    ] {
        assert_eq!(CronExpr::parse(text).expect_err(text).field, Some(field), "{text}");
    }
}

#[test]
fn b19_days_that_depend_on_their_month() {
    for (text, expected) in [
        ("0 0 * * 5L", "2026-02-27T00:00:00Z 2026-03-27T00:00:00Z"),
        ("0 0 * * FRIL", "2026-02-27T00:00:00Z 2026-03-27T00:00:00Z"),
        ("0 0 * * 5#5", "2026-05-29T00:00:00Z 2026-07-31T00:00:00Z"),
        ("0 0 * * 6#4", "2026-02-28T00:00:00Z 2026-03-28T00:00:00Z"),
        ("0 0 L * *", "2026-02-28T00:00:00Z 2026-03-31T00:00:00Z"),
        ("0 0 L-3 * *", "2026-02-25T00:00:00Z 2026-03-28T00:00:00Z"),
        ("0 0 1W * *", "2026-02-02T00:00:00Z 2026-03-02T00:00:00Z"),
        ("0 0 LW * *", "2026-02-27T00:00:00Z 2026-03-31T00:00:00Z"),
        ("0 0 15,L * *", "2026-02-15T00:00:00Z 2026-02-28T00:00:00Z"),
        ("0 0 * * 1#1,5L", "2026-02-02T00:00:00Z 2026-02-27T00:00:00Z"),
        // With both day fields set, either one makes it due; a star joins them.
        ("0 0 L * 1#1", "2026-02-02T00:00:00Z 2026-02-28T00:00:00Z"),
        ("0 0 L * */6", "2026-02-28T00:00:00Z 2026-05-31T00:00:00Z"),
        ("0 0 29W 2 *", "2028-02-29T00:00:00Z 2032-02-27T00:00:00Z"),
        ("0 0 * 2 5#5", "2036-02-29T00:00:00Z 2064-02-29T00:00:00Z"),
    ] {
        assert_due(text, "UTC", "2026-01-31T00:00:00Z", expected);
        let schedule = crons(&[text], "UTC");
        let last = at(expected.split(' ').next_back().unwrap());
        assert_eq!(schedule.count_between(at("2026-01-31T00:00:00Z"), last), 2, "{text}");
        assert_eq!(schedule.prev_at_or_before(last + SignedDuration::from_hours(1)), Some(last));
    }
}

#[test]
fn b20_five_fields_are_five_and_six_are_six() {
    assert_due("30 6 * * *", "UTC", "2026-05-01T06:30:00Z", "2026-05-02T06:30:00Z");
    assert_due("0 30 9 * * 1-5", "UTC", "2026-05-01T09:30:00Z", "2026-05-04T09:30:00Z");
    assert_due("@daily", "UTC", "2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z");
    for (text, name) in [
        ("0 0 * * * * 2099", "a year"),
        ("@every 5m", "`@every`"),
        ("@reboot", "`@reboot`"),
        ("TZ=UTC 0 0 * * *", "`TZ=`"),
        ("", "is empty"),
        ("0 0\u{a0}* * *", "no-break space"),
    ] {
        let error = CronExpr::parse(text).expect_err(text);
        assert!(error.message.contains(name), "{text:?}: {}", error.message);
    }
}

/// The host's zone plays no part: nothing in here is ever asked for it.
#[test]
fn b22_a_zone_without_changes_is_never_disturbed() {
    let texts = ["0 1 * * *", "1 1 * * *", "30 1 * * *", "59 1 * * *", "0 2 * * *"];
    let (after, up_to) = (at("2022-10-29T23:50:00Z"), at("2022-10-30T02:10:00Z"));
    let due = crons(&texts, "UTC").upcoming(after).map(|due| due.at).take(5).collect::<Vec<_>>();
    let expected = ["01:00:00", "01:01:00", "01:30:00", "01:59:00", "02:00:00"];
    assert_eq!(due, expected.map(|time| at(&format!("2022-10-30T{time}Z"))));
    assert_eq!(crons(&texts, "UTC").count_between(after, up_to), 5);
    for text in texts {
        assert_eq!(crons(&[text], "UTC").count_between(after, up_to), 1, "{text}");
    }
}

#[test]
fn b25_the_zone_data_is_of_this_year_and_says_its_version() {
    for (name, expected) in [
        ("America/Mexico_City", "2026-07-01T15:00:00Z"),
        ("America/Asuncion", "2026-07-01T12:00:00Z"),
        ("Asia/Almaty", "2026-07-01T04:00:00Z"),
    ] {
        assert_due("0 9 * * *", name, "2026-07-01T00:00:00Z", expected);
    }
    let zones = Zones::open(ZoneChoice::Bundled).unwrap();
    assert!(zones.version().starts_with("20") && zones.origin() == "bundled");
}

#[test]
fn b39_far_instants_are_as_far_as_they_are() {
    assert_due(
        "0 4 1 * *",
        "UTC",
        "2026-02-01T04:00:00Z",
        "2026-03-01T04:00:00Z 2026-04-01T04:00:00Z 2026-05-01T04:00:00Z 2026-06-01T04:00:00Z
         2026-07-01T04:00:00Z",
    );
    let (after, leap_day) = (at("2028-03-01T00:00:00Z"), at("2032-02-29T00:00:00Z"));
    let next = crons(&["0 0 29 2 *"], "UTC").next_after(after).unwrap();
    assert_eq!(next.at, leap_day);
    assert_eq!(leap_day.duration_since(after).as_millis(), 126_144_000_000);
}

#[test]
fn b130_jobs_of_the_same_hour_are_spread_and_stay_where_they_are() {
    let max = Duration::from_mins(5);
    let due_at = at("2026-12-01T09:00:00Z");
    let starts = || {
        (0..50).map(|job| {
            let hourly = crons(&["0 * * * *"], "UTC");
            let spread = hourly.with_jitter(max, &format!("job-{job}")).unwrap();
            assert_eq!(spread.next_after(due_at - max).map(|due| due.at), Some(due_at));
            spread.start_of(due_at).duration_since(due_at)
        })
    };
    let delays: Vec<_> = starts().collect();
    assert_eq!(delays, starts().collect::<Vec<_>>(), "another start of the program");
    assert!(
        delays.iter().all(|delay| !delay.is_negative() && *delay < SignedDuration::from_mins(5))
    );
    let seconds: BTreeSet<_> = delays.iter().map(SignedDuration::as_secs).collect();
    assert!(seconds.len() >= 30, "only {} different seconds", seconds.len());
    assert_eq!(crons(&["0 * * * *"], "UTC").start_of(due_at), due_at, "without jitter");
}

#[test]
fn a_jitter_is_shorter_than_any_distance_and_keeps_the_order() {
    let jitter = |texts: &[&str], max| crons(texts, "UTC").with_jitter(max, "x");
    let minute = Duration::from_mins(1);
    assert!(jitter(&["*/5 * * * *"], 5 * minute).is_err());
    assert!(jitter(&["*/5 * * * *"], Duration::from_millis(299_999)).is_ok());
    let error = jitter(&["0 9 * * *", "20 9 * * 1"], 30 * minute).unwrap_err();
    let words = "a jitter of 30m is not less than the shortest distance between two due times, 20m";
    assert_eq!(error.to_string(), words);
    let once = Schedule::at(at("2027-01-01T00:00:00Z")).with_jitter(60 * minute, "x").unwrap();
    let due_at = once.next_after(Timestamp::UNIX_EPOCH).unwrap().at;
    assert!(once.start_of(due_at) > due_at && once.start_of(due_at) < due_at + 60 * minute);
}

#[test]
fn an_instant_that_two_texts_name_is_one() {
    let both = crons(&["0 9 * * 1-5", "0 9,12 * * 6,1"], "Europe/Berlin");
    let (after, up_to) = (at("2026-11-29T12:00:00Z"), at("2026-12-06T12:00:00Z"));
    let due: Vec<_> =
        both.upcoming(after).map(|due| due.at).take_while(|at| *at <= up_to).collect();
    // Monday at 9 and 12, Tuesday to Friday at 9, Saturday at 9 and 12.
    assert_eq!((due.len(), both.count_between(after, up_to)), (8, 8));
    assert_eq!(both.to_string(), "0 9 * * 1-5 | 0 9,12 * * 6,1");
}

#[test]
fn what_is_left_out_is_named_with_its_reason() {
    let expr = CronExpr::parse("30 2 * * *").unwrap();
    let new_york = zone("America/New_York");
    let schedule = Schedule::cron(expr, new_york.clone(), Gap::Skip, Fold::Once)
        .excluding(new_york, dates(&["2026-03-10..2026-03-11"]))
        .ending(at("2026-03-13T00:00:00Z"));
    let span =
        |first, last, slots, standing| Span { first: at(first), last: at(last), slots, standing };
    let (after, later) = (at("2026-03-06T00:00:00Z"), at("2026-04-01T00:00:00Z"));
    let expected = [
        span("2026-03-06T07:30:00Z", "2026-03-07T07:30:00Z", 2, Standing::Due),
        span("2026-03-08T07:00:00Z", "2026-03-08T07:00:00Z", 1, Standing::DstGap),
        span("2026-03-09T06:30:00Z", "2026-03-09T06:30:00Z", 1, Standing::Due),
        span("2026-03-10T06:30:00Z", "2026-03-11T06:30:00Z", 2, Standing::Excluded),
        span("2026-03-12T06:30:00Z", "2026-03-12T06:30:00Z", 1, Standing::Due),
    ];
    assert_eq!(schedule.spans(after, later), expected);
    assert_eq!(schedule.count_between(after, later), 4);
    let gap = Moment { at: at("2026-03-08T07:00:00Z"), standing: Standing::DstGap };
    assert_eq!(schedule.next_moment(at("2026-03-07T07:30:00Z")), Some(gap));
    assert_eq!(schedule.prev_moment(at("2026-03-09T00:00:00Z")), Some(gap));
    assert_eq!(schedule.next_moment(at("2026-03-12T06:30:00Z")), None);
}

#[test]
fn a_gap_on_an_excluded_date_is_excluded_and_a_real_instant_takes_its_place() {
    let new_york = zone("America/New_York");
    let standing = |texts: &[&str], excluded: &[&str]| {
        let exprs = texts.iter().map(|text| CronExpr::parse(text).unwrap());
        let schedule = Schedule::crons(exprs, new_york.clone(), Gap::Skip, Fold::Once)
            .excluding(new_york.clone(), dates(excluded));
        schedule.next_moment(at("2026-03-08T06:00:00Z")).unwrap()
    };
    let change = |standing| Moment { at: at("2026-03-08T07:00:00Z"), standing };
    let half_past_two = "30 2 * * *";
    assert_eq!(standing(&[half_past_two], &[]), change(Standing::DstGap));
    assert_eq!(standing(&[half_past_two], &["2026-03-08"]), change(Standing::Excluded));
    assert_eq!(standing(&[half_past_two, "0 3 * * *"], &[]), change(Standing::Due));
    assert_eq!(standing(&[half_past_two, "0 * * * *"], &[]), change(Standing::Due));
}

#[test]
fn bounds_and_exclusions_that_leave_nothing_are_noticed() {
    let leap_day = || crons(&["0 0 29 2 *"], "UTC");
    assert!(leap_day().is_ever_due());
    let in_2028 =
        leap_day().starting(at("2026-01-01T00:00:00Z")).ending(at("2029-01-01T00:00:00Z"));
    assert!(in_2028.is_ever_due());
    assert!(!in_2028.excluding(Zone::utc(), dates(&["2028-02-29"])).is_ever_due());
    let everything = dates(&["0001-01-01..9999-12-31"]);
    assert!(!leap_day().excluding(Zone::utc(), everything.clone()).is_ever_due());
    let every = Schedule::every(Duration::from_hours(6), None).unwrap();
    assert!(every.is_ever_due());
    assert!(!every.excluding(Zone::utc(), everything).is_ever_due());
}

/// A hundred years of excluded dates between two due instants cost nothing.
#[test]
fn far_behind_exclusions_and_at_the_ends_of_time_everything_is_quiet() {
    let century = dates(&["2030-01-01..2130-12-31"]);
    let daily = crons(&["0 9 * * *"], "Europe/Berlin").excluding(zone("Europe/Berlin"), century);
    let next = daily.next_after(at("2029-12-31T12:00:00Z")).unwrap();
    assert_eq!(next.at, at("2131-01-01T08:00:00Z"));
    let before = daily.prev_at_or_before(at("2131-01-01T00:00:00Z"));
    assert_eq!(before, Some(at("2029-12-31T08:00:00Z")));
    let spans = daily.spans(at("2029-12-31T00:00:00Z"), at("2131-01-01T12:00:00Z"));
    let slots: Vec<_> = spans.iter().map(|span| (span.slots, span.standing)).collect();
    let days = 101 * 365 + 24;
    assert_eq!(
        slots,
        [(1, Standing::Due), (days, Standing::Excluded), (1, Standing::Due)],
        "2100 is no leap year"
    );
    assert_eq!(daily.next_moment(Timestamp::MAX), None);
    assert_eq!(daily.spans(Timestamp::MAX, Timestamp::MIN), []);
    assert!(daily.prev_moment(Timestamp::MIN).is_none_or(|moment| moment.at == Timestamp::MIN));
}
