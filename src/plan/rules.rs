//! What the planner knows of a job, and what the ledger remembers of it.

use std::time::Duration;

use jiff::Timestamp;

use super::Reason;
use crate::job::{AfterSpec, Catchup, JobSpec, Overlap, RetrySpec};
use crate::schedule::Schedule;

/// When a job is due and what to do about it.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Its schedule, with the grid of `every` fixed; `None`: only by hand, or after others.
    pub schedule: Option<Schedule>,
    /// The jobs whose slots are its own.
    pub after: Option<AfterSpec>,
    /// What to do with misfires.
    pub catchup: Catchup,
    /// How late a misfire may start; `None` is the default rule.
    pub catchup_window: Option<Duration>,
    /// What to do when it still runs.
    pub overlap: Overlap,
    /// What follows a failure.
    pub retry: RetrySpec,
    /// Whether its slots start runs.
    pub availability: Availability,
}

/// Whether a job's slots start runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// They do.
    Ready,
    /// `enabled = false`.
    Disabled,
    /// Its file cannot be used; the schedule is the last one that could.
    Invalid,
    /// This schedule holds no more: what it named before that is closed, nothing starts.
    Retired,
}

impl Rules {
    /// The rules of a job that can run; the grid of its `every` begins at `anchor`.
    pub fn of(spec: &JobSpec, anchor: Timestamp) -> Self {
        let availability = if spec.enabled { Availability::Ready } else { Availability::Disabled };
        let when = spec.schedule.as_ref();
        Self {
            schedule: when.map(|it| it.schedule.anchored(anchor)),
            after: spec.after.clone(),
            catchup: when.map_or(Catchup::Latest, |it| it.catchup),
            catchup_window: when.and_then(|it| it.catchup_window),
            overlap: when.map_or(usual_overlap(spec), |it| it.overlap),
            retry: spec.retry.clone(),
            availability,
        }
    }

    /// The rules of a schedule that starts nothing, for `why`.
    pub fn idle(schedule: Option<Schedule>, why: Availability) -> Self {
        Self {
            schedule,
            after: None,
            catchup: Catchup::None,
            catchup_window: None,
            overlap: Overlap::Skip,
            retry: RetrySpec::default(),
            availability: why,
        }
    }
}

/// What comes after others has to say something to each of their slots.
fn usual_overlap(spec: &JobSpec) -> Overlap {
    if spec.after.is_some() { Overlap::BufferAll } else { Overlap::Skip }
}

/// What the ledger remembers of a job, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Every moment up to here has its row.
    pub decided_until: Timestamp,
    /// Stretches after that whose moments have rows too: the clock was set back behind them. In
    /// order, first and last included.
    pub ahead: Vec<(Timestamp, Timestamp)>,
    /// Nothing starts, and why.
    pub pause: Option<Pause>,
    /// What failed in a row.
    pub account: Account,
}

impl Memory {
    /// Of a job that is seen for the first time.
    pub fn since(now: Timestamp) -> Self {
        Self { decided_until: now, ahead: Vec::new(), pause: None, account: Account::default() }
    }
}

/// A job's failures in a row; a success clears it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Slots that failed after their last attempt, one after the other.
    pub failed_slots: u32,
    /// Those among them that count towards `pause_after`.
    pub counted_failures: u32,
    /// Nothing starts before this.
    pub backoff_until: Option<Timestamp>,
}

/// A job that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Who or what holds it.
    pub cause: PauseCause,
    /// The same for people.
    pub words: String,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
}

words!(
    /// Who or what holds a job.
    PauseCause {
        /// Somebody who said so.
        Person = "person",
        /// `retry.pause_after` failed slots in a row.
        Failures = "failures",
        /// A run and its repetition were both interrupted.
        InterruptedTwice = "interrupted_twice",
        /// Its only slot has failed.
        OneShotFailed = "one_shot_failed",
        /// Its next due time could not be computed.
        Schedule = "schedule",
    }
);

impl Pause {
    /// Why a slot is held by it.
    pub(super) fn reason(&self) -> Reason {
        match self.cause {
            PauseCause::InterruptedTwice => Reason::InterruptedTwice,
            PauseCause::Person
            | PauseCause::Failures
            | PauseCause::OneShotFailed
            | PauseCause::Schedule => Reason::Paused,
        }
    }
}
