//! Dates on which nothing is due.
//!
//! A date is a matter of the local clock, and a clock that is put back across midnight shows the
//! end of a date twice. So an instant is judged by the date that the clock shows at it, and how far
//! around it the answer holds is found piece by piece: a piece ends where a date or an offset does.

use jiff::civil::Date;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use super::dates::{DateRange, edges, ranges};
use super::stretch::Stretch;
use super::zone::Zone;

/// No local clock is further from UTC than this.
const OFFSET_MAX: SignedDuration = SignedDuration::from_hours(26);

const TICK: SignedDuration = SignedDuration::from_nanos(1);

/// Excluded dates in a zone.
#[derive(Debug)]
pub(super) struct Exclusions {
    zone: Zone,
    /// Alternating: within from an even one on, beyond from an odd one on.
    edges: Vec<Date>,
}

impl Exclusions {
    pub(super) fn new(zone: Zone, dates: impl IntoIterator<Item = DateRange>) -> Self {
        Self { zone, edges: edges(dates) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// In order, without overlap.
    pub(super) fn ranges(&self) -> impl Iterator<Item = DateRange> {
        ranges(&self.edges)
    }

    pub(super) fn has(&self, at: Timestamp) -> bool {
        self.edges_passed(at) % 2 == 1
    }

    /// The first instant after `at` with another answer of [`Exclusions::has`]; `None`: the answer
    /// stays to the end of time.
    pub(super) fn until(&self, at: Timestamp) -> Option<Timestamp> {
        let mut until = self.same_until(at)?;
        while self.has(until) == self.has(at) {
            until = self.same_until(until)?;
        }
        Some(until)
    }

    /// The first instant from which on to `at` the answer of [`Exclusions::has`] is the same;
    /// `None`: it is so from the beginning of time.
    pub(super) fn since(&self, at: Timestamp) -> Option<Timestamp> {
        let mut since = self.same_since(at)?;
        loop {
            let before = since.checked_sub(TICK).ok()?;
            if self.has(before) != self.has(at) {
                return Some(since);
            }
            since = self.same_since(before)?;
        }
    }

    /// Up to right before this instant the answer is that of `at`, for certain.
    fn same_until(&self, at: Timestamp) -> Option<Timestamp> {
        let (lower, upper) = self.edges_around(at);
        // Far from both edges no offset matters.
        if lower.is_none_or(|lower| at >= saturating_add(midnight(lower), OFFSET_MAX)) {
            let safe = saturating_add(midnight(upper?), -OFFSET_MAX);
            if at < safe {
                return Some(safe);
            }
        }
        let stretch = Stretch::at(&self.zone, at);
        let edge = upper.and_then(|upper| stretch.instant(upper.at(0, 0, 0, 0)));
        [edge, stretch.until].into_iter().flatten().min()
    }

    /// From this instant on the answer is that of `at`, for certain.
    fn same_since(&self, at: Timestamp) -> Option<Timestamp> {
        let (lower, upper) = self.edges_around(at);
        if upper.is_none_or(|upper| at < saturating_add(midnight(upper), -OFFSET_MAX)) {
            let safe = saturating_add(midnight(lower?), OFFSET_MAX);
            if at > safe {
                return Some(safe);
            }
        }
        let stretch = Stretch::at(&self.zone, at);
        let edge = lower.and_then(|lower| stretch.instant(lower.at(0, 0, 0, 0)));
        [edge, stretch.start.map(|start| start.at)].into_iter().flatten().max()
    }

    fn edges_passed(&self, at: Timestamp) -> usize {
        let date = self.zone.rules().to_datetime(at).date();
        self.edges.partition_point(|edge| *edge <= date)
    }

    fn edges_around(&self, at: Timestamp) -> (Option<Date>, Option<Date>) {
        let passed = self.edges_passed(at);
        (passed.checked_sub(1).map(|last| self.edges[last]), self.edges.get(passed).copied())
    }
}

/// Where the date begins in UTC.
fn midnight(date: Date) -> Timestamp {
    Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).unwrap_or(Timestamp::MAX)
}

fn saturating_add(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).expect("a signed duration has no calendar units")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ZoneChoice, Zones};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn exclusions(zone: &str, dates: &[&str]) -> Exclusions {
        let zone = Zones::open(ZoneChoice::Bundled).unwrap().get(zone).unwrap();
        Exclusions::new(zone, dates.iter().map(|text| text.parse::<DateRange>().unwrap()))
    }

    #[test]
    fn a_date_is_a_date_of_the_zone() {
        let days = exclusions("Europe/Berlin", &["2026-12-24..2026-12-26"]);
        for (instant, expected) in [
            ("2026-12-23T22:59:59.999Z", false),
            ("2026-12-23T23:00:00Z", true),
            ("2026-12-26T22:59:59.999Z", true),
            ("2026-12-26T23:00:00Z", false),
        ] {
            assert_eq!(days.has(at(instant)), expected, "{instant}");
        }
        assert_eq!(days.until(at("2027-06-01T00:00:00Z")), None);
        assert_eq!(days.since(at("2025-06-01T00:00:00Z")), None);
    }

    /// The clock went back from 00:01 to 23:01 of the day before.
    #[test]
    fn a_date_that_the_clock_shows_twice_is_judged_by_what_it_shows() {
        let day = exclusions("America/St_Johns", &["2006-10-28"]);
        for (instant, expected) in [
            ("2006-10-29T02:29:59Z", true),
            ("2006-10-29T02:30:00Z", false),
            ("2006-10-29T02:30:59Z", false),
            ("2006-10-29T02:31:00Z", true),
            ("2006-10-29T03:29:59Z", true),
            ("2006-10-29T03:30:00Z", false),
        ] {
            assert_eq!(day.has(at(instant)), expected, "{instant}");
        }
    }

    #[test]
    fn an_answer_holds_as_far_as_it_says() {
        for zone in ["America/St_Johns", "Pacific/Apia", "UTC", "America/Scoresbysund"] {
            let days = exclusions(zone, &["2006-10-28..2006-10-29", "2011-12-29", "2026-03-28"]);
            for start in ["2006-10-26T00:00:00Z", "2011-12-27T00:00:00Z", "2026-03-26T00:00:00Z"] {
                let (mut instant, end) =
                    (at(start), at(start) + SignedDuration::from_hours(7 * 24));
                while let Some(until) = days.until(instant).filter(|until| *until < end) {
                    assert!(until > instant, "{zone} {instant}");
                    let mut step = instant;
                    while step < until {
                        assert_eq!(days.has(step), days.has(instant), "{zone} {step}");
                        assert!(days.since(step).is_none_or(|since| since <= instant));
                        step += SignedDuration::from_secs(30);
                    }
                    assert_eq!(days.has(until - TICK), days.has(instant), "{zone} {until}");
                    assert_ne!(days.has(until), days.has(instant), "{zone} {until}");
                    assert_eq!(days.since(until), Some(until), "{zone}");
                    instant = until;
                }
            }
        }
    }
}
