//! The instants that a rule names, before bounds and exclusions.

use jiff::Timestamp;

use super::due::Due;
use super::every::Grid;
use super::union::{Union, Want};

/// Cron texts, an interval, or one instant.
#[derive(Debug, Clone)]
pub(super) enum Times {
    Cron(Union),
    Every(Grid),
    At(Timestamp),
}

impl Times {
    pub(super) fn next_after(&self, after: Timestamp, want: Want) -> Option<Due> {
        let due = match self {
            Self::Cron(union) => union.next_after(after, want),
            Self::Every(grid) => grid.next_after(after).map(Due::plain),
            Self::At(at) => (*at > after).then_some(Due::plain(*at)),
        };
        debug_assert!(due.is_none_or(|due| due.at > after), "{self:?} after {after}: {due:?}");
        // A scheduler that is given a past instant spins; better that one job stops.
        due.filter(|due| due.at > after)
    }

    pub(super) fn prev_at_or_before(&self, at: Timestamp, want: Want) -> Option<Timestamp> {
        match self {
            Self::Cron(union) => union.prev_at_or_before(at, want),
            Self::Every(grid) => grid.prev_at_or_before(at),
            Self::At(due) => (*due <= at).then_some(*due),
        }
    }

    pub(super) fn count_between(&self, after: Timestamp, up_to: Timestamp, want: Want) -> u64 {
        match self {
            Self::Cron(union) => union.count_between(after, up_to, want),
            Self::Every(grid) => grid.count_between(after, up_to),
            Self::At(at) => u64::from(after < *at && *at <= up_to),
        }
    }

    /// The named instants in `(after, up_to]` that are not due because of a gap.
    pub(super) fn gaps(&self, after: Timestamp, up_to: Timestamp) -> Vec<Timestamp> {
        match self {
            Self::Cron(union) => union.gaps(after, up_to),
            Self::Every(_) | Self::At(_) => Vec::new(),
        }
    }
}
