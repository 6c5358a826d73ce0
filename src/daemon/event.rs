//! What the dispatcher hears, and what it says.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::protocol::{Reply, Target};
use crate::executor::{Ticket, Watchdog};
use crate::job::JobId;
use crate::run::{CancelReason, RunId};
use crate::store::{NewRun, SlotRow};

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// Time has passed.
    Woke,
    /// A run is over, or could not be recorded.
    RunEnded(RunId),
    /// Somebody asks for a run.
    RunWanted {
        /// Of which job.
        job: String,
        /// Whose slot's variables it gets.
        slot: Option<Timestamp>,
        /// Lifts `enabled = false`.
        force: bool,
        /// Where the answer goes.
        answer: oneshot::Sender<Reply>,
    },
    /// Somebody asks for the end of runs.
    CancelWanted {
        /// Which.
        target: Target,
        /// Where the answer goes.
        answer: oneshot::Sender<Reply>,
    },
    /// Somebody asks how things are.
    StatusWanted(oneshot::Sender<Reply>),
    /// The first signal: start nothing more, let what runs come to its end.
    Stop,
    /// The grace is over: end what still runs.
    GraceOver,
}

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    /// Record decisions about slots of a job and, when that is on the disk, start the run.
    Record {
        /// The job.
        job: JobId,
        /// The decisions.
        slots: Vec<SlotRow>,
        /// The run, if one starts.
        launch: Option<Box<Launch>>,
        /// When the job is due next.
        next_due: Option<Timestamp>,
    },
    /// Answer somebody.
    Answer(oneshot::Sender<Reply>, Box<Reply>),
    /// Ask a run to end.
    Cancel(Arc<Watchdog>, CancelReason),
    /// Nothing is left to do.
    Exit,
}

/// A run to be started.
#[derive(Debug)]
pub struct Launch {
    /// Its row.
    pub run: NewRun,
    /// What it needs.
    pub ticket: Ticket,
    /// Its limits.
    pub watchdog: Arc<Watchdog>,
    /// Who wants to hear that it is accepted.
    pub answer: Option<oneshot::Sender<Reply>>,
}
