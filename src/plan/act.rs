//! What the planner wants done.

use jiff::Timestamp;

use super::due::PlannedSlot;
use super::reach::Server;
use super::retry::Chain;
use super::rules::{Account, Pause};
use super::{Reason, SlotDecision};
use crate::job::JobId;
use crate::run::Trigger;

/// A living run, as the planner counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LiveId(pub(super) u64);

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Record this, all of it or nothing; then start the run in it.
    Record(Box<Record>),
    /// End what runs of this job: a newer slot takes its place.
    Replace(JobId),
    /// A run by hand that has waited may begin.
    Release(LiveId),
    /// Ask these, all at once, whether they can be reached, and say each answer by
    /// [`Planner::probed`](super::Planner::probed).
    Probe(Vec<Server>),
    /// The clock was set back, to about this: ask the ledger what is decided after it, and say so
    /// by [`Planner::rewound`](super::Planner::rewound). Until then nothing is decided.
    Rewind(Timestamp),
}

/// What belongs into one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose.
    pub job: JobId,
    /// Where these rows have their place among the others.
    pub claim: Claim,
    /// New rows.
    pub rows: Vec<PlannedSlot>,
    /// Slots that had been buffered or held and are decided for good.
    pub turned: Vec<Turned>,
    /// The run that starts; it belongs to the last row, or to what is turned to started.
    pub start: Option<Start>,
    /// Attempts whose consequences are hereby dealt with.
    pub settled: Vec<Settled>,
    /// What failed in a row, when that changes.
    pub account: Option<Account>,
    /// Whether the job is held, when that changes.
    pub pause: Option<PauseChange>,
    /// When the job is due next.
    pub next_due: Option<Timestamp>,
}

/// Where rows have their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// They come after that row: the ledger takes them only if it has that one.
    After(Timestamp),
    /// Their slots end in any order; what is due before this has been decided.
    Beside(Timestamp),
}

/// What had waited, decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turned {
    /// Which.
    pub due_at: Timestamp,
    /// Started; else skipped if it was buffered, missed if it was held.
    pub decision: SlotDecision,
    /// Why it does not start.
    pub reason: Option<Reason>,
}

/// One attempt of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The slot.
    pub due_at: Timestamp,
    /// The attempt.
    pub attempt: u32,
    /// What comes after it.
    pub then: Then,
}

/// What comes after an attempt of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Another one: how this one ended is nobody's news.
    Attempt,
    /// Nothing: how it ended is how the slot has.
    Nothing,
}

/// A change of a job's pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseChange {
    /// It is held from now on.
    Held(Pause),
    /// It is free again.
    Lifted,
}

/// A run that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// How the planner counts it.
    pub id: LiveId,
    /// What makes it start.
    pub trigger: Trigger,
    /// Its slot, its attempt, and what came before.
    pub chain: Chain,
    /// The slot's nominal time with its jitter, from which lateness counts.
    pub start_at: Timestamp,
}

impl Record {
    /// A record of nothing yet.
    pub fn new(job: &JobId, next_due: Option<Timestamp>) -> Self {
        Self {
            job: job.clone(),
            claim: Claim::After(Timestamp::MIN),
            rows: Vec::new(),
            turned: Vec::new(),
            start: None,
            settled: Vec::new(),
            account: None,
            pause: None,
            next_due,
        }
    }
}

impl From<Record> for Act {
    fn from(record: Record) -> Self {
        Self::Record(Box::new(record))
    }
}
