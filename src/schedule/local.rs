//! Local times of a zone as instants: what happens to a cron expression where the clock changes.
//!
//! A fixed time of day that is jumped over is due once, at the first instant after the gap, or
//! not at all; one that is repeated is due at its first pass, or at both. An expression whose
//! minute or hour starts with `*` follows elapsed time: due whenever the local clock shows a
//! member, nothing moved. Every answer is worked out stretch by stretch (`stretch.rs`), so that
//! results increase strictly whatever the clock does.

use jiff::civil::DateTime;
use jiff::tz::AmbiguousOffset;
use jiff::{SignedDuration, Timestamp};

use super::due::{DstNote, Due};
use super::expr::{CronExpr, Pace};
use super::stretch::{Start, Stretch};
use super::zone::Zone;

/// Enough for 44 years of any zone's changes; a search that needs more has found nothing.
const STRETCHES_MAX: usize = 400;

const SECOND: SignedDuration = SignedDuration::from_secs(1);

words! {
    /// `dst_gap`: what becomes of a local time that a clock change jumps over.
    Gap {
        /// Due once, at the first instant after the gap.
        Shift = "shift",
        /// Not due that day.
        Skip = "skip",
    }
}

words! {
    /// `dst_overlap`: what becomes of a local time that comes twice.
    Fold {
        /// Due at its first pass.
        Once = "once",
        /// Due at both.
        Twice = "twice",
    }
}

/// One expression in a zone.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalCron<'a> {
    pub expr: &'a CronExpr,
    pub zone: &'a Zone,
    pub gap: Gap,
    pub fold: Fold,
}

impl LocalCron<'_> {
    pub(super) fn next_after(&self, after: Timestamp) -> Option<Due> {
        let mut stretch = Stretch::at(self.zone, after);
        let mut from = stretch.local(after).checked_add(SECOND).ok()?;
        for _ in 0..STRETCHES_MAX {
            from = from.max(self.first_local(&stretch).unwrap_or(from));
            let local = self.expr.calendar().first_from(from)?;
            if stretch.local_end().is_none_or(|end| local < end) {
                return self.due(&stretch, local);
            }
            stretch = Stretch::at(self.zone, stretch.until?);
            let start = stretch.start?;
            if let Some(local) = self.jumped_over(&start) {
                let note = Some(DstNote::ShiftedFromGap { local });
                return Some(Due { at: start.at, note });
            }
            from = start.local;
        }
        None
    }

    pub(super) fn prev_at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        let mut stretch = Stretch::at(self.zone, at);
        let mut until = stretch.local(at);
        for _ in 0..STRETCHES_MAX {
            let first = self.first_local(&stretch);
            let local = self.expr.calendar().last_until(until);
            if let Some(local) = local.filter(|local| first.is_none_or(|first| *local >= first)) {
                return stretch.instant(local);
            }
            let start = stretch.start?;
            if self.jumped_over(&start).is_some() {
                return Some(start.at);
            }
            stretch = Stretch::at(self.zone, start.at.checked_sub(SECOND).ok()?);
            until = stretch.local_end()?.checked_sub(SECOND).ok()?;
        }
        None
    }

    /// Due instants in `(after, up_to]`, without visiting them.
    pub(super) fn count_between(&self, after: Timestamp, up_to: Timestamp) -> u64 {
        if up_to <= after {
            return 0;
        }
        let mut count = 0;
        let mut stretch = Stretch::at(self.zone, after);
        let mut from = following_second(stretch.local(after));
        loop {
            from = from.max(self.first_local(&stretch).unwrap_or(from));
            let end = stretch.local_end().filter(|_| stretch.until <= Some(up_to));
            let until = end.unwrap_or_else(|| following_second(stretch.local(up_to)));
            count += self.expr.calendar().count(from, until);
            let Some(next) = stretch.until.filter(|until| *until <= up_to) else { return count };
            stretch = Stretch::at(self.zone, next);
            let Some(start) = stretch.start else { return count };
            count += u64::from(self.shifted_alone(&start));
            from = start.local;
        }
    }

    /// Whether local times that the clock shows again count again.
    pub(super) fn counts_again(&self) -> bool {
        match (self.expr.pace(), self.fold) {
            (Pace::TimeOfDay, Fold::Once) => false,
            (Pace::Elapsed, _) | (_, Fold::Twice) => true,
        }
    }

    /// The first local time of a stretch that counts, if repeated ones do not.
    fn first_local(&self, stretch: &Stretch) -> Option<DateTime> {
        let start = stretch.start.as_ref()?;
        Some(if self.counts_again() { start.local } else { start.unseen.max(start.local) })
    }

    /// The first member that the change jumped over, if that makes the change itself due.
    pub(super) fn jumped_over(&self, start: &Start) -> Option<DateTime> {
        match (self.expr.pace(), self.gap) {
            (Pace::TimeOfDay, Gap::Shift) => {}
            (Pace::Elapsed, _) | (_, Gap::Skip) => return None,
        }
        let gap = start.gap();
        if gap.is_empty() {
            return None;
        }
        self.expr.calendar().first_from(gap.start).filter(|local| *local < gap.end)
    }

    /// Whether the change is due by a shift and is not a member of its own.
    fn shifted_alone(&self, start: &Start) -> bool {
        self.jumped_over(start).is_some() && !self.expr.calendar().contains(start.local)
    }

    fn due(&self, stretch: &Stretch, local: DateTime) -> Option<Due> {
        let at = stretch.instant(local)?;
        let note = match self.expr.pace() {
            Pace::Elapsed => None,
            Pace::TimeOfDay => match self.zone.rules().to_ambiguous_timestamp(local).offset() {
                AmbiguousOffset::Fold { before, .. } if before == stretch.offset => {
                    Some(DstNote::FirstOfFold)
                }
                AmbiguousOffset::Fold { .. } => Some(DstNote::SecondOfFold),
                AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => None,
            },
        };
        Some(Due { at, note })
    }
}

/// At the end of all time there is nothing more to count: the last second counts for itself.
pub(super) fn following_second(local: DateTime) -> DateTime {
    local.checked_add(SECOND).unwrap_or(DateTime::MAX)
}
