//! A zone's timeline as stretches with one offset each.
//!
//! Inside a stretch, local and absolute time differ by a constant, so all questions about clock
//! changes are questions about where a stretch begins.

use std::ops::Range;

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use super::zone::Zone;

const TICK: SignedDuration = SignedDuration::from_nanos(1);

/// Instants with one offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub offset: Offset,
    /// Where it begins; `None`: it has no beginning.
    pub start: Option<Start>,
    /// The first instant after it; `None`: it has no end.
    pub until: Option<Timestamp>,
}

/// The first instant of a stretch and how the local clock got there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub at: Timestamp,
    /// What the local clock shows at that instant.
    pub local: DateTime,
    /// The earliest local time that no instant before has shown. Later than `local` after a
    /// clock that was put back, earlier after one that was put forward.
    pub unseen: DateTime,
}

impl Start {
    /// The local times that the change jumped over.
    pub(super) fn gap(&self) -> Range<DateTime> {
        self.unseen..self.local.max(self.unseen)
    }
}

impl Stretch {
    /// The stretch that `at` lies in.
    pub(super) fn at(zone: &Zone, at: Timestamp) -> Self {
        let rules = zone.rules();
        let until = rules.following(at).next().map(|change| change.timestamp());
        let before = at.checked_add(TICK).unwrap_or(at);
        let start = rules.preceding(before).next().map(|change| change.timestamp());
        Self {
            offset: rules.to_offset(at),
            start: start.and_then(|at| Start::new(zone, at)),
            until,
        }
    }

    /// What the local clock shows, in whole seconds.
    pub(super) fn local(&self, at: Timestamp) -> DateTime {
        whole_second(self.offset.to_datetime(at))
    }

    /// The instant at which the local clock shows this.
    pub(super) fn instant(&self, local: DateTime) -> Option<Timestamp> {
        self.offset.to_timestamp(local).ok()
    }

    /// What the local clock would show at the end.
    pub(super) fn local_end(&self) -> Option<DateTime> {
        self.until.map(|until| self.offset.to_datetime(until))
    }
}

impl Start {
    /// `None` at the very first instant there is, before which no clock showed anything.
    fn new(zone: &Zone, at: Timestamp) -> Option<Self> {
        let before = zone.rules().to_offset(at.checked_sub(TICK).ok()?);
        // Days lie between any two changes of a zone, so only the last one matters here.
        let unseen = before.to_datetime(at);
        Some(Self { at, local: zone.rules().to_datetime(at), unseen })
    }
}

/// Cut towards the past, so that a fraction never makes an instant look later.
fn whole_second(local: DateTime) -> DateTime {
    local.with().subsec_nanosecond(0).build().expect("zero is a valid fraction")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ZoneChoice, Zones};

    fn start(zone: &str, at: &str) -> (String, String, String) {
        let zone = Zones::open(ZoneChoice::Bundled).unwrap().get(zone).unwrap();
        let start = Stretch::at(&zone, at.parse().unwrap()).start.unwrap();
        (start.at.to_string(), start.local.to_string(), start.unseen.to_string())
    }

    #[test]
    fn a_stretch_knows_what_its_change_jumped_over_or_repeats() {
        let words = |at: &str, local: &str, unseen: &str| {
            (at.to_owned(), local.to_owned(), unseen.to_owned())
        };
        let gap = words("2026-03-08T07:00:00Z", "2026-03-08T03:00:00", "2026-03-08T02:00:00");
        assert_eq!(start("America/New_York", "2026-03-08T07:00:00Z"), gap);
        assert_eq!(start("America/New_York", "2026-07-01T00:00:00Z"), gap);
        assert_eq!(
            start("America/New_York", "2026-11-01T06:00:00Z"),
            words("2026-11-01T06:00:00Z", "2026-11-01T01:00:00", "2026-11-01T02:00:00")
        );
        assert_eq!(
            start("Pacific/Apia", "2011-12-31T00:00:00Z"),
            words("2011-12-30T10:00:00Z", "2011-12-31T00:00:00", "2011-12-30T00:00:00")
        );
    }

    #[test]
    fn utc_is_one_stretch() {
        let stretch = Stretch::at(&Zone::utc(), Timestamp::UNIX_EPOCH);
        assert!(stretch.start.is_none() && stretch.until.is_none());
    }
}
