//! A schedule: which instants are due.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use super::due::Due;
use super::every::{EveryError, Grid};
use super::expr::CronExpr;
use super::local::{Fold, Gap, LocalCron};
use super::zone::Zone;
use crate::clock::rfc3339;

/// A compiled schedule. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schedule(Rule);

#[derive(Debug, Clone)]
enum Rule {
    Cron(LocalCron),
    Every(Grid),
    At(Timestamp),
}

impl Schedule {
    /// Due at the local times of an expression in a zone.
    pub fn cron(expr: CronExpr, zone: Zone, gap: Gap, fold: Fold) -> Self {
        Self(Rule::Cron(LocalCron { expr, zone, gap, fold }))
    }

    /// Due at `anchor + k × interval`, from the anchor on. Without an anchor nothing is due until
    /// [`Schedule::anchored`] fixes one.
    pub fn every(interval: Duration, anchor: Option<Timestamp>) -> Result<Self, EveryError> {
        Grid::new(interval, anchor).map(|grid| Self(Rule::Every(grid)))
    }

    /// Due once.
    pub fn at(at: Timestamp) -> Self {
        Self(Rule::At(at))
    }

    /// The same schedule; an interval without an anchor is now due at `first_seen + k × interval`
    /// from k = 1.
    #[must_use]
    pub fn anchored(&self, first_seen: Timestamp) -> Self {
        match &self.0 {
            Rule::Every(grid) => Self(Rule::Every(grid.anchored(first_seen))),
            Rule::Cron(_) | Rule::At(_) => self.clone(),
        }
    }

    /// The first due instant strictly after `after`; `None` if there is none (within 44 years).
    pub fn next_after(&self, after: Timestamp) -> Option<Due> {
        let due = match &self.0 {
            Rule::Cron(cron) => cron.next_after(after),
            Rule::Every(grid) => grid.next_after(after).map(Due::plain),
            Rule::At(at) => (*at > after).then_some(Due::plain(*at)),
        };
        debug_assert!(due.is_none_or(|due| due.at > after), "{self} after {after}: {due:?}");
        // A scheduler that is given a past instant spins; better that one job stops.
        due.filter(|due| due.at > after)
    }

    /// The last due instant at or before `at`; `None` if there is none (within 44 years).
    pub fn prev_at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Rule::Cron(cron) => cron.prev_at_or_before(at),
            Rule::Every(grid) => grid.prev_at_or_before(at),
            Rule::At(due) => (*due <= at).then_some(*due),
        }
    }

    /// The number of due instants in `(after, up_to]`. Computed, not enumerated.
    pub fn count_between(&self, after: Timestamp, up_to: Timestamp) -> u64 {
        match &self.0 {
            Rule::Cron(cron) => cron.count_between(after, up_to),
            Rule::Every(grid) => grid.count_between(after, up_to),
            Rule::At(at) => u64::from(after < *at && *at <= up_to),
        }
    }

    /// The first moment strictly after `after`.
    pub fn next_moment(&self, after: Timestamp) -> Option<Moment> {
        self.next_after(after).map(|due| Moment { at: due.at, standing: Standing::Due })
    }

    /// The last moment at or before `at`.
    pub fn prev_moment(&self, at: Timestamp) -> Option<Moment> {
        self.prev_at_or_before(at).map(|at| Moment { at, standing: Standing::Due })
    }

    /// All moments in `(after, up_to]`, in order and disjoint.
    pub fn spans(&self, after: Timestamp, up_to: Timestamp) -> Vec<Span> {
        let first = self.next_after(after).map(|due| due.at);
        let last = self.prev_at_or_before(up_to);
        match (first, last) {
            (Some(first), Some(last)) if first <= last => vec![Span {
                first,
                last,
                slots: self.count_between(after, last),
                standing: Standing::Due,
            }],
            _ => Vec::new(),
        }
    }

    /// `due_at` and the jitter of that slot.
    pub fn start_of(&self, due_at: Timestamp) -> Timestamp {
        due_at
    }

    /// The due instants after `after`, in their order.
    pub fn upcoming(&self, after: Timestamp) -> impl Iterator<Item = Due> + '_ {
        std::iter::successors(self.next_after(after), |due| self.next_after(due.at))
    }

    /// The zone whose local times it names, if it names local times.
    pub fn zone(&self) -> Option<&Zone> {
        match &self.0 {
            Rule::Cron(cron) => Some(&cron.zone),
            Rule::Every(_) | Rule::At(_) => None,
        }
    }

    /// Whether it is due once in all.
    pub fn is_one_shot(&self) -> bool {
        matches!(self.0, Rule::At(_))
    }

    /// What is legal and yet perhaps not meant.
    pub fn warnings(&self) -> Vec<String> {
        match &self.0 {
            Rule::Cron(cron) => cron.expr.warnings().to_vec(),
            Rule::Every(_) | Rule::At(_) => Vec::new(),
        }
    }
}

/// As a person would write it: `0 9 * * MON-FRI`, `every 6h`, `at 2027-01-01T08:00:00.000Z`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Rule::Cron(cron) => write!(f, "{}", cron.expr),
            Rule::Every(grid) => {
                write!(f, "every {}", humantime::format_duration(grid.interval()))
            }
            Rule::At(at) => write!(f, "at {}", rfc3339(*at)),
        }
    }
}

words! {
    /// What a named instant is.
    Standing {
        /// Due.
        Due = "due",
        /// Left out by `exclude`.
        Excluded = "excluded",
        /// Left out by `dst_gap`.
        DstGap = "dst_gap",
    }
}

/// A due instant, or one that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Timestamp,
    /// What it is.
    pub standing: Standing,
}

/// Consecutive moments of one standing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub first: Timestamp,
    /// The last.
    pub last: Timestamp,
    /// How many.
    pub slots: u64,
    /// What they are.
    pub standing: Standing,
}
