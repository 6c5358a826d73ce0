//! A fixed interval from an anchor: a grid that neither restarts nor edits move.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::to_millis;

/// The dispatcher's own beat; what is wanted more often is a loop inside a run.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// A hundred years: what is longer is a slip of the pen.
const INTERVAL_MAX: Duration = Duration::from_hours(100 * 366 * 24);

/// Why a length of time is not an interval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EveryError {
    /// Shorter than the dispatcher can keep.
    #[error("an interval is at least 1s, not {}", humantime::format_duration(*.0))]
    TooShort(Duration),
    /// Longer than any calendar.
    #[error("an interval is at most 100 years")]
    TooLong,
    /// Instants are stored in milliseconds; a finer grid would drift against them.
    #[error("an interval is in whole milliseconds, not {}", humantime::format_duration(*.0))]
    TooFine(Duration),
}

/// `anchor + k × interval`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    interval_ms: i64,
    anchor: Anchor,
}

#[derive(Debug, Clone, Copy)]
enum Anchor {
    /// Not known yet: nothing is due.
    Open,
    /// Written by a person: itself the first due instant.
    Written(Timestamp),
    /// When the job was first seen. The grid goes on to both sides of it: a clock that was wrong
    /// then and is put back finds its instants too.
    FirstSeen(Timestamp),
}

impl Grid {
    pub(super) fn new(interval: Duration, anchor: Option<Timestamp>) -> Result<Self, EveryError> {
        if interval < INTERVAL_MIN {
            return Err(EveryError::TooShort(interval));
        }
        if interval > INTERVAL_MAX {
            return Err(EveryError::TooLong);
        }
        if !interval.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(EveryError::TooFine(interval));
        }
        let interval_ms =
            i64::try_from(interval.as_millis()).expect("a hundred years of milliseconds fit");
        let anchor = anchor.map_or(Anchor::Open, |at| Anchor::Written(to_millis(at)));
        Ok(Self { interval_ms, anchor })
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.unsigned_abs())
    }

    pub(super) fn anchored(self, first_seen: Timestamp) -> Self {
        match self.anchor {
            Anchor::Open => Self { anchor: Anchor::FirstSeen(to_millis(first_seen)), ..self },
            Anchor::Written(_) | Anchor::FirstSeen(_) => self,
        }
    }

    /// The anchor in milliseconds and the number of the first due step.
    fn base(&self) -> Option<(i64, i64)> {
        match self.anchor {
            Anchor::Open => None,
            Anchor::Written(at) => Some((at.as_millisecond(), 0)),
            Anchor::FirstSeen(at) => Some((at.as_millisecond(), i64::MIN)),
        }
    }

    /// The number of the last step at or before `at`, due or not.
    fn step(&self, anchor_ms: i64, at: Timestamp) -> i64 {
        (floor_millis(at) - anchor_ms).div_euclid(self.interval_ms)
    }

    fn instant(&self, anchor_ms: i64, step: i64) -> Option<Timestamp> {
        let ms = step.checked_mul(self.interval_ms)?.checked_add(anchor_ms)?;
        Timestamp::from_millisecond(ms).ok()
    }

    pub(super) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let (anchor_ms, first) = self.base()?;
        self.instant(anchor_ms, (self.step(anchor_ms, after) + 1).max(first))
    }

    pub(super) fn prev_at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        let (anchor_ms, first) = self.base()?;
        let step = self.step(anchor_ms, at);
        if step < first { None } else { self.instant(anchor_ms, step) }
    }

    pub(super) fn count_between(&self, after: Timestamp, up_to: Timestamp) -> u64 {
        let Some((anchor_ms, first)) = self.base() else { return 0 };
        let before_first = first.saturating_sub(1);
        let last = self.step(anchor_ms, up_to).max(before_first);
        let skipped = self.step(anchor_ms, after).max(before_first);
        u64::try_from(last - skipped).unwrap_or(0)
    }
}

/// Towards the past also before 1970, so that "strictly after" stays strict.
fn floor_millis(at: Timestamp) -> i64 {
    let ms = at.as_nanosecond().div_euclid(1_000_000);
    i64::try_from(ms).expect("the milliseconds of any instant fit")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_first_seen_grid_goes_on_to_both_sides() {
        let open = Grid::new(Duration::from_hours(6), None).unwrap();
        assert_eq!(open.next_after(at("2026-01-01T00:00:00Z")), None);
        let grid = open.anchored(at("2026-01-01T00:00:30.5Z"));
        let due = at("2026-01-01T06:00:30.5Z");
        assert_eq!(grid.next_after(at("2026-01-01T00:00:30.5Z")), Some(due));
        assert_eq!(grid.next_after(at("2026-01-01T06:00:30.499Z")), Some(due));
        assert_eq!(grid.next_after(due), Some(at("2026-01-01T12:00:30.5Z")));
        assert_eq!(grid.next_after(at("2025-12-31T23:00:00Z")), Some(at("2026-01-01T00:00:30.5Z")));
        assert_eq!(
            grid.prev_at_or_before(at("2026-01-01T00:00:30.499Z")),
            Some(at("2025-12-31T18:00:30.5Z"))
        );
        assert_eq!(grid.prev_at_or_before(due), Some(due));
        assert_eq!(
            grid.count_between(at("2025-12-31T00:00:30.5Z"), at("2026-01-02T00:00:30.5Z")),
            8
        );
        assert_eq!(grid.count_between(due, due), 0);
        assert_eq!(grid.next_after(Timestamp::MAX), None);
        assert_eq!(grid.count_between(Timestamp::MAX, Timestamp::MIN), 0);
        let moved = grid.anchored(at("2026-05-01T00:00:00Z"));
        assert_eq!(moved.next_after(due), grid.next_after(due), "a grid is anchored once");
    }

    #[test]
    fn a_written_anchor_is_due_itself() {
        let anchor = at("2026-01-01T00:00:00Z");
        let grid = Grid::new(Duration::from_secs(90), Some(anchor)).unwrap();
        assert_eq!(grid.next_after(at("1969-12-31T23:59:59.9999Z")), Some(anchor));
        assert_eq!(grid.count_between(Timestamp::MIN, anchor), 1);
        assert_eq!(grid.next_after(Timestamp::MAX), None);
        assert_eq!(grid.count_between(Timestamp::MAX, Timestamp::MIN), 0);
    }

    #[test]
    fn intervals_are_bounded() {
        let refused = |interval| Grid::new(interval, None).unwrap_err();
        let zero = Duration::ZERO;
        assert_eq!(refused(zero), EveryError::TooShort(zero));
        assert_eq!(refused(Duration::MAX), EveryError::TooLong);
        let fine = Duration::from_micros(1_000_500);
        assert_eq!(refused(fine), EveryError::TooFine(fine));
    }
}
