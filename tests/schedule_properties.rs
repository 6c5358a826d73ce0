//! Schedules against a slow reader of the same rules.
//!
//! The reader stands in `support/wall.rs`; here it judges single expressions.

#[path = "support/wall.rs"]
mod wall;

use std::str::FromStr as _;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use punctual::schedule::{CronExpr, Fold, Gap, Schedule, Zone, ZoneChoice, Zones};
use wall::{Set, Sets, Walk, at, changing_zones, sets};

/// Compares the answers to all questions about a window with the walk.
fn check(sets: &Sets, walk: &Walk) {
    let expr = CronExpr::parse(&sets.text()).expect("every generated expression is possible");
    let Walk { zone, after, up_to, .. } = walk;
    for gap in Gap::ALL {
        for fold in Fold::ALL {
            let what = || format!("`{}` {} {gap} {fold} {after}", sets.text(), zone.name());
            let schedule = Schedule::cron(expr.clone(), zone.clone(), *gap, *fold);
            let expected = walk.due(sets, *gap, *fold);
            let found = schedule.upcoming(*after).map(|due| due.at);
            let found: Vec<_> = found.take_while(|at| at <= up_to).collect();
            assert_eq!(found, expected, "{}", what());
            assert!(found.is_sorted_by(|left, right| left < right), "{}", what());
            let counted = schedule.count_between(*after, *up_to);
            assert_eq!(counted, expected.len() as u64, "{}", what());
            let backwards = std::iter::successors(schedule.prev_at_or_before(*up_to), |at| {
                schedule.prev_at_or_before(*at - SignedDuration::from_nanos(1))
            });
            let mut backwards: Vec<_> = backwards.take_while(|at| at > after).collect();
            backwards.reverse();
            assert_eq!(backwards, expected, "{}: backwards", what());
        }
    }
}

#[test]
fn every_change_of_every_zone_is_as_walked() {
    let (any_day, any_month) = (Set::stepped(1, 31, 1), Set::stepped(1, 12, 1));
    let any_weekday = Set::stepped(0, 6, 1);
    let expressions = [
        (Set::listed(&[0]), Set::listed(&[2])),
        (Set::listed(&[30]), Set::listed(&[1])),
        (Set::listed(&[0]), Set::listed(&[0])),
        (Set::listed(&[15, 45]), Set::listed(&[0, 1, 2, 3, 23])),
        (Set::listed(&[59]), Set::listed(&[1, 3, 5, 21, 23])),
        (Set::stepped(0, 59, 30), Set::stepped(0, 23, 1)),
        (Set::listed(&[5]), Set::stepped(0, 23, 2)),
        (Set::stepped(0, 59, 1), Set::listed(&[1, 2])),
    ];
    let zones = changing_zones();
    let changes: usize = zones.iter().map(|(_, changes)| changes.len()).sum();
    assert!(changes > 100, "only {changes} changes to look at");
    let around = SignedDuration::from_hours(4);
    for (zone, changes) in &zones {
        for change in changes {
            let walk = Walk::new(zone, *change - around, *change + around);
            for (minute, hour) in &expressions {
                let sets = Sets([
                    minute.clone(),
                    hour.clone(),
                    any_day.clone(),
                    any_month.clone(),
                    any_weekday.clone(),
                ]);
                check(&sets, &walk);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn random_expressions_are_as_walked(
        sets in sets(),
        name in select(&["UTC", "America/New_York", "Australia/Lord_Howe", "America/Santiago",
            "Europe/Dublin", "Africa/Casablanca", "Asia/Kathmandu", "Antarctica/Troll"][..]),
        start_minutes in 0_i64..2 * 365 * 24 * 60,
    ) {
        let zone = Zones::open(ZoneChoice::Bundled).unwrap().get(name).unwrap();
        // Two days from before the next change, where there is one.
        let start = at("2025-01-01T00:00:00Z") + SignedDuration::from_mins(start_minutes);
        let change = zone.rules().following(start).next().map(|change| change.timestamp());
        let after = change.map_or(start, |change| change - SignedDuration::from_hours(20));
        check(&sets, &Walk::new(&zone, after, after + SignedDuration::from_hours(48)));
    }

    /// Over the years, with days that some months lack, against a walk over days.
    #[test]
    fn rare_dates_are_found_in_every_century(
        days in subsequence((1_i8..=31).collect::<Vec<_>>(), 1..3),
        months in subsequence((1_i8..=12).collect::<Vec<_>>(), 1..3),
        weekday in select(&["*", "*/2", "1", "5-7"][..]),
        year in 1900_i16..2300,
    ) {
        let day_set = Set::listed(&days);
        let text = format!("0 12 {} {} {weekday}", day_set.text, Set::listed(&months).text);
        let Ok(expr) = CronExpr::parse(&text) else {
            let longest = |month| jiff::civil::date(2000, month, 1).days_in_month();
            assert!(weekday.starts_with('*'));
            assert!(months.iter().all(|month| days[0] > longest(*month)), "{text}");
            return Ok(());
        };
        let weekdays: &[i8] = match weekday {
            "*" => &[0, 1, 2, 3, 4, 5, 6],
            "*/2" => &[0, 2, 4, 6],
            "1" => &[1],
            _ => &[5, 6, 0],
        };
        let fires = |date: &jiff::civil::Date| {
            let of_month = days.contains(&date.day());
            let of_week = weekdays.contains(&date.weekday().to_sunday_zero_offset());
            let day = if weekday.starts_with('*') { of_month && of_week } else { of_month || of_week };
            day && months.contains(&date.month())
        };
        let schedule = Schedule::cron(expr, Zone::utc(), Gap::Shift, Fold::Once);
        let from = jiff::civil::date(year, 6, 15);
        let instant = |date: jiff::civil::Date| {
            jiff::tz::Offset::UTC.to_timestamp(date.at(12, 0, 0, 0)).unwrap()
        };
        let later = from.series(jiff::ToSpan::day(1)).skip(1).filter(fires).take(3);
        let expected: Vec<_> = later.map(instant).collect();
        let found: Vec<_> = schedule.upcoming(instant(from)).take(3).map(|due| due.at).collect();
        prop_assert_eq!(&found, &expected, "{}", text);
        prop_assert_eq!(schedule.count_between(instant(from), expected[2]), 3);
        let earlier = from.series(-jiff::ToSpan::day(1)).find(fires).map(instant);
        prop_assert_eq!(schedule.prev_at_or_before(instant(from)), earlier, "{}", text);
    }

    /// The dialect itself, against another reader of it.
    #[test]
    fn texts_mean_what_another_reader_reads(
        second in select(&["", "0 ", "*/20 ", "1,59 "][..]),
        minute in select(&["*", "0", "*/7", "10-40/10", "59", "1,2,30", "5-59/15"][..]),
        hour in select(&["*", "0", "*/5", "9-17", "23", "8,11,2"][..]),
        day in select(&["*", "1", "15,31", "10-12", "29", "L", "15W", "1W", "1,L"][..]),
        month in select(&["*", "feb", "APR-JUN", "1,12", "*/3"][..]),
        weekday in select(&["*", "0", "7", "MON-FRI", "5-7", "sat,3", "5L", "FRI#2", "5#5"][..]),
        start in 0_i64..4_000_000_000,
    ) {
        let text = format!("{second}{minute} {hour} {day} {month} {weekday}");
        let theirs = croner::parser::CronParser::builder()
            .seconds(croner::parser::Seconds::Optional)
            .build()
            .parse(&text)
            .unwrap();
        let expr = CronExpr::from_str(&text).unwrap();
        let ours = Schedule::cron(expr, Zone::utc(), Gap::Shift, Fold::Once);
        let mut after = Timestamp::from_second(start).unwrap();
        for _ in 0..3 {
            let from = chrono::DateTime::from_timestamp(after.as_second(), 0).unwrap();
            let expected = theirs.find_next_occurrence(&from, false).unwrap().timestamp();
            let found = ours.next_after(after).unwrap().at;
            prop_assert_eq!(found.as_second(), expected, "{} after {}", text, after);
            after = found;
        }
    }

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in "[-*/,0-9A-Za-z@#?L \\t\u{a0}é=]{0,40}") {
        if let Err(error) = CronExpr::parse(&text) {
            prop_assert!(error.column >= 1 && error.column <= text.chars().count() + 1);
        }
    }
}
