//! Due instants that were worked out elsewhere, and faults seen in other schedulers.

use std::time::Duration;

use jiff::Timestamp;
use punctual::clock::{Clock as _, SystemClock};
use punctual::schedule::{
    CronExpr, DstNote, Due, Fold, Gap, Schedule, Zone, ZoneChoice, ZoneError, Zones,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    cron: String,
    timezone: String,
    after: Timestamp,
    gap_shift: Vec<Timestamp>,
    gap_skip: Vec<Timestamp>,
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn zone(name: &str) -> Zone {
    Zones::open(ZoneChoice::Bundled).unwrap().get(name).unwrap()
}

fn cron(text: &str, zone_name: &str, gap: Gap, fold: Fold) -> Schedule {
    Schedule::cron(CronExpr::parse(text).expect(text), zone(zone_name), gap, fold)
}

fn default_cron(text: &str, zone_name: &str) -> Schedule {
    cron(text, zone_name, Gap::Shift, Fold::Once)
}

fn first(schedule: &Schedule, after: Timestamp, many: usize) -> Vec<Timestamp> {
    schedule.upcoming(after).take(many).map(|due| due.at).collect()
}

/// One comma-separated line, so that a table stays readable.
fn firsts(text: &str, zone_name: &str, after: &str, many: usize) -> String {
    let schedule = default_cron(text, zone_name);
    let due = first(&schedule, at(after), many);
    due.iter().map(Timestamp::to_string).collect::<Vec<_>>().join(", ")
}

#[test]
fn every_case_holds_in_both_modes_forwards_backwards_and_counted() {
    let cases: Cases = serde_json::from_str(include_str!("cases/schedule.json")).unwrap();
    assert!(cases.cases.len() >= 36, "the case file is whole");
    for case in cases.cases {
        for (gap, expected) in [(Gap::Shift, &case.gap_shift), (Gap::Skip, &case.gap_skip)] {
            let Some(last) = expected.last() else {
                let error = CronExpr::parse(&case.cron).unwrap_err();
                assert!(error.message.contains("can never fire"), "{}: {error}", case.id);
                continue;
            };
            let schedule = cron(&case.cron, &case.timezone, gap, Fold::Once);
            let due = first(&schedule, case.after, expected.len());
            assert_eq!(&due, expected, "{} {gap}", case.id);
            let counted = schedule.count_between(case.after, *last);
            assert_eq!(counted, expected.len() as u64, "{} {gap}: counted", case.id);
            let mut backwards = vec![*last];
            while backwards.len() < expected.len() {
                let before = backwards[backwards.len() - 1] - Duration::from_nanos(1);
                backwards.push(schedule.prev_at_or_before(before).unwrap());
            }
            backwards.reverse();
            assert_eq!(&backwards, expected, "{} {gap}: backwards", case.id);
        }
    }
}

#[test]
fn local_times_follow_the_zone_and_never_an_offset_taken_once() {
    let table = [
        (
            "5 2 * * *",
            "Europe/Dublin",
            "2026-03-27T12:00:00Z",
            "2026-03-28T02:05:00Z, 2026-03-29T01:05:00Z, 2026-03-30T01:05:00Z",
        ),
        (
            "0 */2 * * *",
            "Europe/London",
            "2024-10-26T22:30:00Z",
            "2024-10-26T23:00:00Z, 2024-10-27T02:00:00Z, 2024-10-27T04:00:00Z",
        ),
        (
            "0 8 * * *",
            "Asia/Shanghai",
            "2026-03-01T00:00:00Z",
            "2026-03-02T00:00:00Z, 2026-03-03T00:00:00Z, 2026-03-04T00:00:00Z",
        ),
        (
            "0 13 * * *",
            "Pacific/Auckland",
            "2026-02-04T01:00:00Z",
            "2026-02-05T00:00:00Z, 2026-02-06T00:00:00Z, 2026-02-07T00:00:00Z",
        ),
        (
            "0,1,30,59 1 * * *",
            "UTC",
            "2022-10-29T23:50:00Z",
            "2022-10-30T01:00:00Z, 2022-10-30T01:01:00Z, 2022-10-30T01:30:00Z",
        ),
        (
            "0 30 9 * * 1-5",
            "UTC",
            "2026-05-01T09:30:00Z",
            "2026-05-04T09:30:00Z, 2026-05-05T09:30:00Z, 2026-05-06T09:30:00Z",
        ),
        (
            "0 0 31 4 1",
            "UTC",
            "2026-04-19T00:00:00Z",
            "2026-04-20T00:00:00Z, 2026-04-27T00:00:00Z, 2027-04-05T00:00:00Z",
        ),
    ];
    for (text, zone_name, after, expected) in table {
        assert_eq!(firsts(text, zone_name, after, 3), expected, "{text} {zone_name}");
    }
}

#[test]
fn the_zone_data_is_of_this_year() {
    let summer = [
        ("America/Mexico_City", "2026-07-01T15:00:00Z"),
        ("America/Asuncion", "2026-07-01T12:00:00Z"),
        ("Asia/Almaty", "2026-07-01T04:00:00Z"),
    ];
    for (name, expected) in summer {
        assert_eq!(firsts("0 9 1 7 *", name, "2026-06-30T00:00:00Z", 1), expected, "{name}");
    }
    let winter = [
        ("America/Vancouver", "2026-12-14T16:00:00Z"),
        ("America/Winnipeg", "2026-12-14T14:00:00Z"),
        ("America/Edmonton", "2026-12-14T15:00:00Z"),
        ("Africa/Casablanca", "2026-12-14T09:00:00Z"),
        ("America/Havana", "2026-12-14T13:00:00Z"),
    ];
    for (name, expected) in winter {
        assert_eq!(firsts("0 9 14 12 *", name, "2026-12-13T00:00:00Z", 1), expected, "{name}");
    }
}

#[test]
fn a_fold_fires_once_or_twice_and_says_which_pass() {
    let dues = |fold, text| {
        let schedule = cron(text, "America/New_York", Gap::Shift, fold);
        schedule.upcoming(at("2026-11-01T05:00:00Z")).take(3).collect::<Vec<_>>()
    };
    let due = |text, note| Due { at: at(text), note };
    let second = || due("2026-11-01T06:30:00Z", Some(DstNote::SecondOfFold));
    let first = || due("2026-11-01T05:30:00Z", Some(DstNote::FirstOfFold));
    let next_day = || due("2026-11-02T06:30:00Z", None);
    assert_eq!(dues(Fold::Once, "30 1 * * *")[..2], [first(), next_day()]);
    assert_eq!(dues(Fold::Twice, "30 1 * * *"), [first(), second(), next_day()]);
    let star = dues(Fold::Once, "30 * * * *");
    assert!(star.iter().all(|due| due.note.is_none()));
    assert_eq!(star[1].at, at("2026-11-01T06:30:00Z"));
}

#[test]
fn several_times_in_one_gap_fire_once_with_a_note() {
    let schedule = default_cron("15,30,45 2 * * *", "America/New_York");
    let (after, day_later) = (at("2026-03-08T05:00:00Z"), at("2026-03-09T05:00:00Z"));
    let local = "2026-03-08T02:15:00".parse().unwrap();
    let note = DstNote::ShiftedFromGap { local };
    assert_eq!(
        schedule.next_after(after),
        Some(Due { at: at("2026-03-08T07:00:00Z"), note: Some(note) })
    );
    assert_eq!(schedule.count_between(after, day_later), 1);
    assert_eq!(
        note.to_string(),
        "02:15:00 does not exist on 2026-03-08; first instant after the gap"
    );
    let both = default_cron("0 2,3 * * *", "America/New_York");
    assert_eq!(both.count_between(after, day_later), 1, "the shifted and the regular one are one");
    assert_eq!(first(&both, after, 2)[1], at("2026-03-09T06:00:00Z"));
}

#[test]
fn impossible_dates_are_refused_at_once_and_rare_ones_are_found() {
    for text in ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6 *"] {
        let refusal = fastest(|| drop(CronExpr::parse(text).expect_err(text)));
        assert!(refusal < Duration::from_millis(50), "{text} took {refusal:?}");
    }
    let leap_days = firsts("0 0 29 2 *", "UTC", "2092-03-01T00:00:00Z", 3);
    assert_eq!(leap_days, "2096-02-29T00:00:00Z, 2104-02-29T00:00:00Z, 2108-02-29T00:00:00Z");
    let new_year = firsts("0 0 1 1 *", "Europe/Berlin", "2099-12-31T00:00:00Z", 2);
    assert_eq!(new_year, "2099-12-31T23:00:00Z, 2100-12-31T23:00:00Z");
    let weekends = firsts("0 0 29 2 */6", "UTC", "2088-02-29T00:00:00Z", 1);
    assert_eq!(weekends, "2116-02-29T00:00:00Z", "a star joins the days with AND");
    let old = default_cron("0 0 29 2 *", "UTC");
    assert_eq!(old.prev_at_or_before(at("1904-01-01T00:00:00Z")), Some(at("1896-02-29T00:00:00Z")));
}

#[test]
fn the_ends_of_time_are_quiet() {
    for zone_name in ["UTC", "America/New_York", "Pacific/Apia", "Africa/Monrovia"] {
        for text in ["* * * * * *", "30 2 * * *", "0 0 29 2 *"] {
            for (gap, fold) in [(Gap::Shift, Fold::Once), (Gap::Skip, Fold::Twice)] {
                let schedule = cron(text, zone_name, gap, fold);
                assert_eq!(schedule.next_after(Timestamp::MAX), None);
                assert_eq!(schedule.count_between(Timestamp::MAX, Timestamp::MIN), 0);
                schedule.prev_at_or_before(Timestamp::MIN);
                schedule.next_after(Timestamp::MIN).unwrap();
                schedule.prev_at_or_before(Timestamp::MAX).unwrap();
            }
        }
    }
}

#[test]
fn four_hundred_days_of_seconds_are_counted_and_not_visited() {
    let (after, up_to) = (at("2026-01-01T00:00:00Z"), at("2027-02-05T00:00:00Z"));
    for (text, zone_name, expected) in [
        ("* * * * * *", "UTC", 400 * 86_400),
        ("* * * * * *", "America/New_York", 400 * 86_400),
        // The minute that a clock change jumps over is one instant.
        ("* 30 2 * * *", "America/New_York", 399 * 60 + 1),
    ] {
        let schedule = default_cron(text, zone_name);
        let count = || assert_eq!(schedule.count_between(after, up_to), expected, "{text}");
        let counting = fastest(count);
        assert!(counting < Duration::from_millis(100), "{text} took {counting:?}");
    }
}

/// The best of a few tries: a busy machine makes some of them slow.
fn fastest(work: impl Fn()) -> Duration {
    let tries = (0..5).map(|_| {
        let start = SystemClock.monotonic();
        work();
        start.elapsed()
    });
    tries.min().expect("there are five")
}

#[test]
fn a_misspelt_zone_is_an_error_with_the_nearest_name() {
    let zones = Zones::open(ZoneChoice::Newest).unwrap();
    let error = zones.get("America/New_Yrok").unwrap_err();
    assert_eq!(error.help().as_deref(), Some("did you mean `America/New_York`?"));
    assert!(matches!(zones.get("GMT+2"), Err(ZoneError::NotAName { .. })));
    assert!(["bundled", "system"].contains(&zones.origin()));
}

#[test]
fn one_shots_and_intervals_answer_the_same_questions() {
    let once = Schedule::at(at("2027-01-01T08:00:00Z"));
    assert_eq!(first(&once, at("2026-01-01T00:00:00Z"), 9), [at("2027-01-01T08:00:00Z")]);
    assert_eq!(once.next_after(at("2027-01-01T08:00:00Z")), None);
    assert_eq!(once.count_between(at("2026-01-01T00:00:00Z"), at("2027-01-01T08:00:00Z")), 1);
    assert_eq!(once.to_string(), "at 2027-01-01T08:00:00.000Z");
    assert!(once.is_one_shot());

    let every = Schedule::every(Duration::from_hours(6), None).unwrap();
    assert_eq!(every.next_after(at("2026-01-01T00:00:00Z")), None);
    let every = every.anchored(at("2026-01-01T00:00:00Z"));
    let expected = [at("2026-01-01T06:00:00Z"), at("2026-01-01T12:00:00Z")];
    assert_eq!(first(&every, at("2026-01-01T00:00:00Z"), 2), expected);
    assert_eq!(every.to_string(), "every 6h");
    assert!(every.zone().is_none() && !every.is_one_shot());

    let cron = default_cron("0 9 * * MON-FRI", "Europe/Berlin");
    assert_eq!(cron.to_string(), "0 9 * * MON-FRI");
    assert_eq!(cron.zone().map(Zone::name), Some("Europe/Berlin"));
}
