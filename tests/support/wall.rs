//! A slow reader of schedules.
//!
//! It walks minute by minute and knows only what the local clock shows at each: it shares no code
//! and no method with what it checks.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use punctual::schedule::{Fold, Gap, Zone, ZoneChoice, Zones};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// What a field accepts, and how it was written.
#[derive(Debug, Clone)]
pub struct Set {
    pub text: String,
    values: BTreeSet<i8>,
}

impl Set {
    pub fn listed(values: &[i8]) -> Self {
        let words: Vec<_> = values.iter().map(ToString::to_string).collect();
        Self { text: words.join(","), values: values.iter().copied().collect() }
    }

    pub fn stepped(from: i8, to: i8, step: i8) -> Self {
        let step_by = usize::try_from(step).unwrap();
        let text = if step == 1 { "*".to_owned() } else { format!("*/{step}") };
        Self { text, values: (from..=to).step_by(step_by).collect() }
    }

    fn starred(&self) -> bool {
        self.text.starts_with('*')
    }

    pub fn has(&self, value: i8) -> bool {
        self.values.contains(&value)
    }
}

/// An expression as five sets: minute, hour, day of month, month, day of week.
#[derive(Debug, Clone)]
pub struct Sets(pub [Set; 5]);

impl Sets {
    pub fn text(&self) -> String {
        self.0.each_ref().map(|set| set.text.as_str()).join(" ")
    }

    pub fn has(&self, local: DateTime) -> bool {
        let [minute, hour, day, month, weekday] = &self.0;
        let of_month = day.has(local.day());
        let of_week = weekday.has(local.weekday().to_sunday_zero_offset());
        let of_day = if day.starred() || weekday.starred() {
            of_month && of_week
        } else {
            of_month || of_week
        };
        minute.has(local.minute()) && hour.has(local.hour()) && month.has(local.month()) && of_day
    }

    fn follows_elapsed_time(&self) -> bool {
        self.0[0].starred() || self.0[1].starred()
    }
}

/// A window of a zone, as a clock on the wall shows it.
pub struct Walk {
    pub zone: Zone,
    pub after: Timestamp,
    pub up_to: Timestamp,
    pub minutes: Vec<Shown>,
}

/// One minute on the wall.
pub struct Shown {
    pub at: Timestamp,
    pub local: DateTime,
    /// It has been shown before.
    again: bool,
    /// What was left out just before it and has never been shown.
    jumped: Vec<DateTime>,
}

impl Walk {
    /// `(after, up_to]`, begun more than a day early so that what was shown before is known.
    pub fn new(zone: &Zone, after: Timestamp, up_to: Timestamp) -> Self {
        let mut minutes: Vec<Shown> = Vec::new();
        let mut shown = HashSet::new();
        let mut at = after - SignedDuration::from_hours(27);
        while at <= up_to {
            let local = zone.rules().to_datetime(at);
            let last = minutes.last().map_or(local, |minute| minute.local);
            let jumped = std::iter::successors(Some(last.saturating_add(MINUTE)), |local| {
                Some(local.saturating_add(MINUTE))
            });
            let jumped = jumped.take_while(|jumped| *jumped < local);
            let jumped = jumped.filter(|jumped| !shown.contains(jumped)).collect();
            let again = !shown.insert(local);
            minutes.push(Shown { at, local, again, jumped });
            at += MINUTE;
        }
        minutes.retain(|minute| minute.at > after);
        Self { zone: zone.clone(), after, up_to, minutes }
    }

    pub fn due(&self, sets: &Sets, gap: Gap, fold: Fold) -> Vec<Timestamp> {
        let due = self.minutes.iter().filter(|minute| minute.fires(sets, gap, fold));
        due.map(|minute| minute.at).collect()
    }
}

impl Shown {
    pub fn fires(&self, sets: &Sets, gap: Gap, fold: Fold) -> bool {
        if sets.follows_elapsed_time() {
            return sets.has(self.local);
        }
        let shifted = self.jumped.iter().any(|jumped| sets.has(*jumped));
        let counts = fold == Fold::Twice || !self.again;
        counts && sets.has(self.local) || gap == Gap::Shift && shifted
    }
}

/// A zone for each distinct set of changes of 2025 to 2027, with those changes.
pub fn changing_zones() -> Vec<(Zone, Vec<Timestamp>)> {
    let zones = Zones::open(ZoneChoice::Bundled).unwrap();
    let (from, until) = (at("2025-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z"));
    let mut distinct = BTreeMap::new();
    for name in zones.names() {
        let zone = zones.get(name).unwrap();
        let changes = zone.rules().following(from).take_while(|change| change.timestamp() < until);
        let changes: Vec<_> =
            changes.map(|change| (change.timestamp(), change.offset().seconds())).collect();
        let standard = zone.rules().to_offset(from).seconds();
        distinct.entry((standard, changes.clone())).or_insert((zone, changes));
    }
    distinct
        .into_values()
        .map(|(zone, changes)| (zone, changes.into_iter().map(|(at, _)| at).collect()))
        .collect()
}

fn field(from: i8, to: i8, steps: &'static [i8]) -> impl Strategy<Value = Set> {
    let all: Vec<i8> = (from..=to).collect();
    prop_oneof![
        select(steps).prop_map(move |step| Set::stepped(from, to, step)),
        subsequence(all, 1..6).prop_map(|values| Set::listed(&values)),
    ]
}

/// Days up to the 28th only: possible in every month.
pub fn sets() -> impl Strategy<Value = Sets> {
    let days: Vec<i8> = (1..=28).collect();
    let day = prop_oneof![
        select(&[1_i8, 2, 10][..]).prop_map(|step| Set::stepped(1, 31, step)),
        subsequence(days, 1..20).prop_map(|values| Set::listed(&values)),
    ];
    let minute = field(0, 59, &[1, 7, 15]);
    let hour = field(0, 23, &[1, 2, 5]);
    let month = field(1, 12, &[1, 1, 1, 5]);
    let weekday = field(0, 6, &[1, 1, 3]);
    (minute, hour, day, month, weekday)
        .prop_map(|(minute, hour, day, month, weekday)| Sets([minute, hour, day, month, weekday]))
}
