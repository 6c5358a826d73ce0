//! The words of the control socket: how verbs talk to the process that holds the state folder.
//!
//! A line of JSON asks, lines of JSON answer.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::lock::Kind;
use crate::executor::{Commanded, LaneView};
use crate::job::SessionKey;
use crate::plan::PauseCause;
use crate::run::{EventPhase, RunEvent, RunId, SessionId, Stream, Trigger};
use crate::session::{Letter, Liveness, Word};
use crate::store::{LetterMode, RunRecord};

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
        /// Lifts disabled, paused and held.
        force: bool,
        /// Nothing is sent when it is over.
        #[serde(default)]
        no_deliver: bool,
    },
    /// Say something into a session, and tell how the turn goes that comes of it.
    Agent {
        /// What.
        message: String,
        /// Into which, by its key or its id; absent: `main`.
        session: Option<String>,
    },
    /// Somebody knows of an incident.
    Ack {
        /// The beginning of its id.
        incident: String,
    },
    /// Start runs of past slots, one after the other.
    Backfill {
        /// Of which job.
        job: String,
        /// The slots.
        slots: Vec<Timestamp>,
    },
    /// Hold a job, or all of them.
    Pause {
        /// Which; absent: all.
        job: Option<String>,
        /// Until when; absent: until somebody frees it.
        until: Option<Timestamp>,
        /// Why.
        reason: Option<String>,
    },
    /// Free a job, or all of them.
    Resume {
        /// Which; absent: all.
        job: Option<String>,
    },
    /// Read the files again.
    Reload,
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
    /// All active ones of a session, by its key or its id.
    Session(String),
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
    /// The message is recorded. Events of its run follow, then `Ended`.
    Heard(Box<Heard>),
    /// It was a command, and was obeyed.
    Obeyed(Box<Obeyed>),
    /// It will not be done.
    Refused {
        /// A word for scripts: `unknown`, `invalid`, `disabled`, `paused`, `overlap`, `stopping`,
        /// `internal`;
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
    /// So many past slots are run, one after the other.
    Backfilling {
        /// How many.
        slots: usize,
    },
    /// This incident is known.
    Acked {
        /// Its id.
        incident: String,
    },
    /// These jobs are held.
    Paused {
        /// Their ids.
        jobs: Vec<String>,
    },
    /// These jobs were held and are free.
    Resumed {
        /// Their ids.
        jobs: Vec<String>,
    },
    /// The files have been read again.
    Reloaded(Box<Reloaded>),
    /// How things are.
    Status(Box<Status>),
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The run that it is for.
    pub run_id: String,
    /// When it was accepted.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub accepted_at: Timestamp,
    /// Its own id, as in `v1_messages`.
    pub message_id: String,
    /// The session's key.
    pub session_key: String,
    /// The session's id.
    pub session_id: String,
    /// How it comes to its run.
    pub mode: LetterMode,
}

impl Heard {
    pub(super) fn new(
        run_id: &RunId,
        letter: &Letter,
        key: &SessionKey,
        session_id: &SessionId,
        mode: LetterMode,
        accepted_at: Timestamp,
    ) -> Self {
        Self {
            run_id: run_id.to_string(),
            accepted_at,
            message_id: letter.id.to_string(),
            session_key: key.to_string(),
            session_id: session_id.to_string(),
            mode,
        }
    }
}

/// What was commanded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obeyed {
    /// `new`, `reset` or `stop`.
    pub command: Word,
    /// The session's key.
    pub session_key: String,
    /// The session's id from now on.
    pub session_id: String,
    /// The runs that were asked to end.
    pub run_ids: Vec<String>,
}

impl Obeyed {
    pub(super) fn of(commanded: &Commanded, run_ids: Vec<String>) -> Self {
        Self {
            command: commanded.word,
            session_key: commanded.key.to_string(),
            session_id: commanded.session_id.to_string(),
            run_ids,
        }
    }
}

/// What reading the files again has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Jobs with another definition.
    pub changed: Vec<String>,
    /// New ones.
    pub added: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Files that define no job now, with the reason.
    pub invalid: BTreeMap<String, String>,
}

/// How things are in the process that holds the state folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// Whether it starts what is due.
    pub holder: Kind,
    /// Whether it is about to leave.
    pub stopping: bool,
    /// Its version.
    pub version: String,
    /// Jobs that can run.
    pub jobs: usize,
    /// A digest of all their definitions: other files now mean that they have changed since.
    pub definitions: String,
    /// Files that define none, with the reason.
    pub invalid: BTreeMap<String, String>,
    /// Those among them whose last good version is in force.
    pub last_good: Vec<String>,
    /// Why the files as a whole could not be taken over when they changed.
    pub config_problem: Option<String>,
    /// What is due next.
    pub next: Option<StatusNext>,
    /// Jobs that are held.
    pub paused: Vec<PausedJob>,
    /// Slots between two attempts.
    pub retrying: Vec<RetryingJob>,
    /// Jobs that wait for a model.
    #[serde(default)]
    pub unreachable: Vec<UnreachableJob>,
    /// Runs that wait or run.
    pub runs: Vec<StatusRun>,
    /// The lanes.
    pub lanes: Vec<LaneView>,
    /// The last recoveries of sessions that did not move, oldest first.
    #[serde(default)]
    pub recoveries: Vec<StatusRecovery>,
}

words!(
    /// What was done about a session that did not move.
    RecoveryAct {
        /// Its run was asked to end.
        Abort = "abort",
        /// Its lane was to be freed, since nobody drove its run.
        Release = "release",
    }
);

words!(
    /// What came of it.
    RecoveryResult {
        /// The run was cut and tidied up after.
        Drained = "drained",
        /// The lane is free.
        Released = "released",
        /// The run came to another end first.
        EndedByItself = "ended_by_itself",
        /// Something of it lives, so that nothing was freed.
        Alive = "alive",
    }
);

/// The recovery of a session that did not move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRecovery {
    /// Its run.
    pub run_id: String,
    /// The run's job.
    pub job: String,
    /// What was asked for.
    pub act: RecoveryAct,
    /// When.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub requested_at: Timestamp,
    /// When it was over.
    pub completed_at: Option<Timestamp>,
    /// What came of it.
    pub result: Option<RecoveryResult>,
}

/// A session that does not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    /// How it is.
    pub liveness: Liveness,
    /// How long it has been silent.
    pub silent_ms: u64,
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

/// A job that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedJob {
    /// The job.
    pub job: String,
    /// Who or what holds it.
    pub cause: PauseCause,
    /// Why.
    pub reason: String,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
}

/// A slot between two attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryingJob {
    /// The job.
    pub job: String,
    /// The attempt to come.
    pub attempt: u32,
    /// When.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub at: Timestamp,
}

/// A job that waits for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachableJob {
    /// The job.
    pub job: String,
    /// Since when.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub since: Timestamp,
    /// When its servers are asked again.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub asked_again_at: Timestamp,
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
    /// The key of its session.
    #[serde(default)]
    pub session: Option<String>,
    /// What there is to say about its session, if it does not move.
    #[serde(default)]
    pub attention: Option<Attention>,
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
