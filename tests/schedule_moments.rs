//! Moments, due or not, against the slow reader: lists, bounds, exclusions, gaps, folds, jitter.

#[path = "support/wall.rs"]
mod wall;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use punctual::schedule::{
    CronExpr, DateRange, Fold, Gap, Moment, Schedule, Span, Standing, Zone, ZoneChoice, Zones,
};
use wall::{Set, Sets, Walk, at, changing_zones, sets};

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

/// What a job file can say about when.
#[derive(Debug, Clone)]
struct Said {
    lists: Vec<Sets>,
    gap: Gap,
    fold: Fold,
    excluded: Vec<(Date, Date)>,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

impl Said {
    fn schedule(&self, zone: &Zone) -> Schedule {
        let exprs = self.lists.iter().map(|sets| CronExpr::parse(&sets.text()).unwrap());
        let dates = self
            .excluded
            .iter()
            .map(|(first, last)| format!("{first}..{last}").parse::<DateRange>().unwrap());
        let schedule = Schedule::crons(exprs, zone.clone(), self.gap, self.fold)
            .excluding(zone.clone(), dates);
        let schedule = self.start.map_or(schedule.clone(), |start| schedule.starting(start));
        self.end.map_or(schedule.clone(), |end| schedule.ending(end))
    }

    /// What the walk says of it, minute by minute.
    fn walked(&self, walk: &Walk) -> Vec<Moment> {
        let standing = |minute: &wall::Shown| {
            let fires = |gap| self.lists.iter().any(|sets| minute.fires(sets, gap, self.fold));
            let is_before = self.start.is_some_and(|start| minute.at < start);
            let is_after = self.end.is_some_and(|end| minute.at > end);
            if is_before || is_after || !fires(Gap::Shift) {
                return None;
            }
            let date = minute.local.date();
            let excluded =
                self.excluded.iter().any(|(first, last)| *first <= date && date <= *last);
            Some(match (excluded, fires(self.gap)) {
                (true, _) => Standing::Excluded,
                (false, true) => Standing::Due,
                (false, false) => Standing::DstGap,
            })
        };
        let minutes = walk.minutes.iter();
        minutes.filter_map(|it| Some(Moment { at: it.at, standing: standing(it)? })).collect()
    }
}

/// Moments in a row with one standing, as one.
fn grouped(moments: &[Moment]) -> Vec<Span> {
    let groups = moments.chunk_by(|left, right| left.standing == right.standing);
    let span = |group: &[Moment]| Span {
        first: group[0].at,
        last: group[group.len() - 1].at,
        slots: group.len() as u64,
        standing: group[0].standing,
    };
    groups.map(span).collect()
}

fn moments(schedule: &Schedule, after: Timestamp, up_to: Timestamp) -> Vec<Moment> {
    let next = |moment: &Moment| schedule.next_moment(moment.at);
    std::iter::successors(schedule.next_moment(after), next)
        .take_while(|moment| moment.at <= up_to)
        .collect()
}

fn moments_backwards(schedule: &Schedule, after: Timestamp, up_to: Timestamp) -> Vec<Moment> {
    let prev = |moment: &Moment| schedule.prev_moment(moment.at - NANOSECOND);
    let moments = std::iter::successors(schedule.prev_moment(up_to), prev);
    let mut moments: Vec<_> = moments.take_while(|moment| moment.at > after).collect();
    moments.reverse();
    moments
}

/// Every question about a window has the answers that follow from its moments.
fn check(schedule: &Schedule, (after, up_to): (Timestamp, Timestamp), expected: &[Moment]) {
    assert_eq!(moments(schedule, after, up_to), expected, "forwards");
    assert_eq!(moments_backwards(schedule, after, up_to), expected, "backwards");
    assert_eq!(schedule.spans(after, up_to), grouped(expected), "spans");
    let due = expected.iter().filter(|moment| moment.standing == Standing::Due);
    let due: Vec<_> = due.map(|moment| moment.at).collect();
    let found = schedule.upcoming(after).map(|due| due.at).take_while(|at| *at <= up_to);
    assert_eq!(found.collect::<Vec<_>>(), due, "due");
    assert_eq!(schedule.count_between(after, up_to), due.len() as u64, "counted");
    let prev = |at: &Timestamp| schedule.prev_at_or_before(*at - NANOSECOND);
    let found = std::iter::successors(schedule.prev_at_or_before(up_to), prev);
    let mut found: Vec<_> = found.take_while(|at| *at > after).collect();
    found.reverse();
    assert_eq!(found, due, "due backwards");
}

/// Starts lie at their moments or later, and before the next moment.
fn check_starts(schedule: &Schedule, moments: &[Moment], max: Duration) {
    for pair in moments.windows(2) {
        let start = schedule.start_of(pair[0].at);
        assert!(pair[0].at <= start && start < pair[1].at, "{start} for {pair:?}");
        assert!(start - max < pair[0].at, "{start} for {pair:?}");
    }
}

/// Every day at times that clock changes jump over, end on, or repeat.
fn around_changes() -> impl Strategy<Value = Sets> {
    let minute = subsequence(vec![0_i8, 15, 30, 45], 1..3);
    let hour = subsequence(vec![0_i8, 1, 2, 3, 22, 23], 1..4);
    (minute, hour).prop_map(|(minute, hour)| {
        let all = |from, to| Set::stepped(from, to, 1);
        Sets([Set::listed(&minute), Set::listed(&hour), all(1, 31), all(1, 12), all(0, 6)])
    })
}

fn standing_words() -> impl Strategy<Value = (Gap, Fold)> {
    (select(Gap::ALL), select(Fold::ALL))
}

/// Offsets from a window's first day, and lengths, of excluded ranges.
fn day_ranges(within_days: i32, many: usize) -> impl Strategy<Value = Vec<(i32, i32)>> {
    prop::collection::vec((-1..within_days, 0..3), 0..=many)
}

fn ranges(first: Date, days: &[(i32, i32)]) -> Vec<(Date, Date)> {
    let range = |&(from, length): &(i32, i32)| {
        let from = first + from.days();
        (from, from + length.days())
    };
    days.iter().map(range).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(192) })]

    #[test]
    fn moments_around_a_change_are_as_walked(
        lists in prop::collection::vec(prop_oneof![sets(), around_changes()], 1..=3),
        (gap, fold) in standing_words(),
        name in select(&["UTC", "America/New_York", "Australia/Lord_Howe", "America/Santiago",
            "Europe/Dublin", "Africa/Casablanca", "America/Scoresbysund", "Antarctica/Troll"][..]),
        start_minutes in 0_i64..2 * 365 * 24 * 60,
        excluded in day_ranges(3, 3),
        bounds in (prop::option::of(0_i64..1600), prop::option::of(1200_i64..2880)),
        jitter_seconds in 1_u64..3600,
    ) {
        let zone = Zones::open(ZoneChoice::Bundled).unwrap().get(name).unwrap();
        let start = at("2025-01-01T00:00:00Z") + SignedDuration::from_mins(start_minutes);
        let change = zone.rules().following(start).next().map(|change| change.timestamp());
        let after = change.map_or(start, |change| change - SignedDuration::from_hours(20));
        let walk = Walk::new(&zone, after, after + SignedDuration::from_hours(48));
        let bound = |minutes| after + SignedDuration::from_mins(minutes);
        let first = zone.rules().to_datetime(after).date();
        let said = Said {
            lists, gap, fold,
            excluded: ranges(first, &excluded),
            start: bounds.0.map(bound),
            end: bounds.1.map(bound),
        };
        let schedule = said.schedule(&walk.zone);
        let expected = said.walked(&walk);
        check(&schedule, (walk.after, walk.up_to), &expected);
        let max = Duration::from_secs(jitter_seconds);
        if let Ok(delayed) = schedule.with_jitter(max, "a-job") {
            check_starts(&delayed, &expected, max);
        }
    }

    /// Over most of a year: spans and counts against moments found one by one.
    #[test]
    fn spans_of_a_long_window_are_its_moments(
        hours in prop::collection::vec(subsequence((0_i8..24).collect::<Vec<_>>(), 1..3), 1..=3),
        weekday in select(&["*", "1-5", "0,6", "5L", "2#2"][..]),
        (gap, fold) in standing_words(),
        name in select(&["Europe/Berlin", "America/Santiago", "America/Scoresbysund"][..]),
        excluded in day_ranges(300, 20),
        days in 1_i64..300,
    ) {
        let zone = Zones::open(ZoneChoice::Bundled).unwrap().get(name).unwrap();
        let text = |hours: &Vec<i8>| {
            let hours: Vec<_> = hours.iter().map(ToString::to_string).collect();
            CronExpr::parse(&format!("0,30 {} * * {weekday}", hours.join(","))).unwrap()
        };
        let (after, first) = (at("2026-02-01T12:34:56Z"), jiff::civil::date(2026, 2, 1));
        let up_to = after + SignedDuration::from_hours(24 * days);
        let ranges = ranges(first, &excluded);
        let dates = ranges.iter().map(|(first, last)| format!("{first}..{last}").parse().unwrap());
        let schedule = Schedule::crons(hours.iter().map(text), zone.clone(), gap, fold)
            .excluding(zone, dates);
        check(&schedule, (after, up_to), &moments(&schedule, after, up_to));
    }

    /// An interval has moments too: each grid instant, judged by its date in a zone.
    #[test]
    fn an_interval_is_cut_like_a_cron_text(
        interval_minutes in 1_i64..4000,
        anchor_minutes in -5000_i64..5000,
        excluded in day_ranges(20, 4),
        bounds in (prop::option::of(0_i64..9000), prop::option::of(5000_i64..20_000)),
    ) {
        let minutes = SignedDuration::from_mins;
        let (after, anchor) = (at("2026-03-20T00:00:00Z"), at("2026-03-25T10:11:12.345Z"));
        let (anchor, up_to) = (anchor + minutes(anchor_minutes), after + minutes(25_000));
        let zone = Zones::open(ZoneChoice::Bundled).unwrap().get("Europe/Berlin").unwrap();
        let ranges = ranges(jiff::civil::date(2026, 3, 20), &excluded);
        let (start, end) = (bounds.0.map(|it| after + minutes(it)), bounds.1.map(|it| after + minutes(it)));
        let interval = Duration::try_from(minutes(interval_minutes)).unwrap();
        let dates = ranges.iter().map(|(first, last)| format!("{first}..{last}").parse().unwrap());
        let schedule = Schedule::every(interval, None).unwrap().anchored(anchor)
            .excluding(zone.clone(), dates);
        let schedule = start.map_or(schedule.clone(), |start| schedule.starting(start));
        let schedule = end.map_or(schedule.clone(), |end| schedule.ending(end));
        let standing = |at: Timestamp| {
            let date = zone.rules().to_datetime(at).date();
            let excluded = ranges.iter().any(|(first, last)| *first <= date && date <= *last);
            if excluded { Standing::Excluded } else { Standing::Due }
        };
        let expected: Vec<_> = (-40_000..40_000)
            .map(|step| anchor + minutes(interval_minutes * step))
            .filter(|at| after < *at && *at <= up_to)
            .filter(|at| start.is_none_or(|start| start <= *at) && end.is_none_or(|end| *at <= end))
            .map(|at| Moment { at, standing: standing(at) })
            .collect();
        check(&schedule, (after, up_to), &expected);
    }
}

/// Lists that meet at the changes, with and without the date of the change.
#[test]
fn moments_at_every_change_of_every_zone_are_as_walked() {
    let daily = |minute: Set, hours: &[i8]| {
        let all = |from, to| Set::stepped(from, to, 1);
        Sets([minute, Set::listed(hours), all(1, 31), all(1, 12), all(0, 6)])
    };
    let half_hours = || Set::listed(&[0, 30]);
    let lists = [
        vec![daily(half_hours(), &[0, 1, 2, 3, 23])],
        vec![daily(Set::listed(&[15, 30]), &[0, 2, 23]), daily(Set::listed(&[0]), &[0, 1, 3])],
        vec![daily(half_hours(), &[1, 2]), daily(Set::stepped(0, 59, 20), &[1, 2, 3])],
    ];
    let around = SignedDuration::from_mins(150);
    for (zone, changes) in changing_zones() {
        // The rules of later years are those of the first.
        for change in changes.into_iter().take(3) {
            let walk = Walk::new(&zone, change - around, change + around);
            let date = zone.rules().to_datetime(change).date();
            for (lists, excluded) in
                lists.iter().flat_map(|it| [(it, vec![]), (it, vec![(date, date)])])
            {
                for (gap, fold) in [(Gap::Skip, Fold::Once), (Gap::Shift, Fold::Twice)] {
                    let lists = lists.clone();
                    let excluded = excluded.clone();
                    let said = Said { lists, gap, fold, excluded, start: None, end: None };
                    let schedule = said.schedule(&zone);
                    check(&schedule, (walk.after, walk.up_to), &said.walked(&walk));
                }
            }
        }
    }
}

/// Case B07: no zone and no change of 2025 to 2027 makes a schedule stop, repeat or go astray.
#[test]
fn every_change_of_every_zone_keeps_every_schedule_going() {
    let zones = Zones::open(ZoneChoice::Bundled).unwrap();
    let all = |from, to| Set::stepped(from, to, 1);
    let expressions = [
        (Set::listed(&[0]), Set::listed(&[2])),
        (Set::listed(&[30]), Set::listed(&[1])),
        (all(0, 59), all(0, 23)),
    ]
    .map(|(minute, hour)| Sets([minute, hour, all(1, 31), all(1, 12), all(0, 6)]));
    let (from, until) = (at("2025-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z"));
    let around = SignedDuration::from_hours(2);
    // Zones with the same clock at the same change are walked once and asked each.
    let mut walks: BTreeMap<_, Walk> = BTreeMap::new();
    let mut asked = 0;
    for name in zones.names() {
        let zone = zones.get(name).unwrap();
        let rules = zone.rules();
        for change in rules.following(from).map(|change| change.timestamp()) {
            if change >= until {
                break;
            }
            let offsets = [change - NANOSECOND, change].map(|at| rules.to_offset(at).seconds());
            let walk = walks
                .entry((change, offsets))
                .or_insert_with(|| Walk::new(&zone, change - around, change + around));
            for sets in &expressions {
                let expr = CronExpr::parse(&sets.text()).unwrap();
                let schedule = Schedule::cron(expr, zone.clone(), Gap::Shift, Fold::Once);
                let due = schedule.upcoming(walk.after).take_while(|due| due.at <= walk.up_to);
                let due: Vec<_> = due.map(|due| due.at).collect();
                assert!(due.is_sorted_by(|left, right| left < right), "`{schedule}` {name}");
                assert_eq!(due, walk.due(sets, Gap::Shift, Fold::Once), "`{schedule}` {name}");
                let stray =
                    due.iter().find(|at| **at != change && !sets.has(rules.to_datetime(**at)));
                assert_eq!(stray, None, "`{schedule}` {name}");
                asked += 1;
            }
        }
    }
    assert!(walks.len() > changing_zones().len() && asked > 1000, "{asked} questions");
}
