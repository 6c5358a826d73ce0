//! The words of the control socket: how verbs talk to the process that holds the state folder.
//!
//! A line of JSON asks, lines of JSON answer.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::executor::LaneView;
use crate::run::{EventPhase, RunEvent, Stream, Trigger};
use crate::store::RunRecord;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Request {
    /// Start a run and tell how it goes.
    Run {
        /// Of which job.
        job: String,
        /// Whose slot's variables it gets.
        slot: Option<Timestamp>,
        /// Lifts `enabled = false`.
        force: bool,
    },
    /// Tell how a run goes.
    Follow {
        /// Which run.
        run_id: String,
    },
    /// End runs.
    Cancel {
        /// Which.
        target: Target,
    },
    /// Tell how things are.
    Status,
}

/// Which runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// All active ones of a job.
    Job(String),
    /// This one.
    Run(String),
}

/// What is answered, a line each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The run is recorded. Events follow, then `Ended`.
    Accepted {
        /// Its id.
        run_id: String,
    },
    /// It will not be done.
    Refused {
        /// A word for scripts: `unknown`, `invalid`, `disabled`, `overlap`, `stopping`, `internal`;
        /// `gone`: the process was leaving and has not looked at the request.
        reason: String,
        /// The same for people.
        message: String,
    },
    /// Something happened in the run.
    Event(RunEvent),
    /// The listener was too slow for so many events.
    Lost {
        /// How many.
        events: u64,
    },
    /// The run is over.
    Ended(Box<RunRecord>),
    /// These runs were asked to end.
    Cancelled {
        /// Their ids.
        run_ids: Vec<String>,
    },
    /// How things are.
    Status(Box<Status>),
}

/// How things are in the process that holds the state folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Jobs that can run.
    pub jobs: usize,
    /// A digest of all their definitions: other files now mean that they have changed since.
    pub definitions: String,
    /// Files that define none, with the reason.
    pub invalid: BTreeMap<String, String>,
    /// What is due next.
    pub next: Option<StatusNext>,
    /// Runs that wait or run.
    pub runs: Vec<StatusRun>,
    /// The lanes.
    pub lanes: Vec<LaneView>,
}

/// A job and when it is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusNext {
    /// The job.
    pub job: String,
    /// When it is due.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub due_at: Timestamp,
}

/// An active run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRun {
    /// Its id.
    pub run_id: String,
    /// Its job.
    pub job: String,
    /// What made it start.
    pub trigger: Trigger,
    /// When it was accepted.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub since: Timestamp,
    /// Whether it waits for a lane.
    pub waiting: bool,
}

impl Reply {
    /// A refusal.
    pub fn refused(reason: &str, message: String) -> Self {
        Self::Refused { reason: reason.into(), message }
    }
}

/// Whether `event` is the one terminal lifecycle event of its run.
pub(crate) fn is_terminal(event: &RunEvent) -> bool {
    event.stream == Stream::Lifecycle && matches!(event.phase, EventPhase::End | EventPhase::Error)
}
