//! What the dispatcher hears, and what it says.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::protocol::{Heard, Reply, Target};
use crate::config::{Config, JobSet};
use crate::executor::{Commanded, Ticket, Watchdog};
use crate::job::{JobId, Problem, SessionKey};
use crate::plan::{Ahead, Decided, Pause, Record, RunEnd, Server};
use crate::run::{CancelReason, MessageId, RunId, SessionId};
use crate::session::{Generation, Inbox, Letter};
use crate::store::{
    AuditRow, JobMemory, JobRow, LetterEnd, LetterRow, NewRun, Sending, SessionRow,
};

/// Where an answer goes. Whoever asked may be gone.
pub type Answer = oneshot::Sender<Reply>;

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// Time has passed.
    Woke,
    /// A run is over.
    RunEnded {
        /// Which.
        run_id: RunId,
        /// How; `None` if it never began.
        end: Option<RunEnd>,
    },
    /// Somebody asks for a run.
    RunWanted {
        /// Of which job.
        job: String,
        /// Whose slot's variables it gets.
        slot: Option<Timestamp>,
        /// Lifts disabled, paused and held.
        force: bool,
        /// What is sent when it is over.
        sending: Sending,
        /// Where the answer goes.
        answer: Answer,
    },
    /// Somebody says something into a session.
    MessageWanted {
        /// What.
        text: String,
        /// Into which, by its key or its id; `None`: the usual one.
        session: Option<String>,
        /// Where the answer goes.
        answer: Answer,
    },
    /// The turn that a message was for was over before.
    CameTooLate(Box<Post>),
    /// Somebody asks for runs of past slots.
    PastWanted {
        /// Of which job.
        job: String,
        /// The slots, each with the number of its next free attempt.
        slots: Vec<(Timestamp, u32)>,
        /// Where the answer goes.
        answer: Answer,
    },
    /// Somebody asks for the end of runs.
    CancelWanted {
        /// Which.
        target: Target,
        /// Where the answer goes.
        answer: Answer,
    },
    /// Somebody holds a job, or all of them.
    PauseWanted {
        /// Which; `None`: all.
        job: Option<String>,
        /// Why and for how long.
        pause: Pause,
        /// Where the answer goes.
        answer: Answer,
    },
    /// Somebody frees a job, or all of them.
    ResumeWanted {
        /// Which; `None`: all.
        job: Option<String>,
        /// Where the answer goes.
        answer: Answer,
    },
    /// It is time to look at the sessions.
    Patrol,
    /// A session that nobody drove has been looked after.
    RecoveryEnded {
        /// Of which run.
        run_id: RunId,
        /// Which work of it was meant.
        generation: Generation,
        /// What came of it.
        end: RecoveryEnd,
    },
    /// Somebody knows of an incident.
    AckWanted {
        /// The beginning of its id.
        incident: String,
        /// Where the answer goes.
        answer: Answer,
    },
    /// Somebody asks how things are.
    StatusWanted(Answer),
    /// The files are to be read again.
    ReloadWanted(Option<Answer>),
    /// They have been read.
    FilesRead(Box<Files>),
    /// The ledger has taken over what they say.
    FilesAdopted(Box<Files>, HashMap<String, JobMemory>),
    /// The ledger could not take it over.
    FilesRefused(String),
    /// The ledger's answer to [`Command::Rewind`].
    Rewound(Option<Ahead>),
    /// The ledger did not take a decision: that is where it is.
    OutOfStep {
        /// Whose.
        job: JobId,
        /// Where that is.
        decided: Decided,
    },
    /// A server has been asked whether it can be reached.
    Probed {
        /// Which.
        server: Server,
        /// Whether it can.
        reachable: bool,
    },
    /// The first signal: start nothing more, let what runs come to its end.
    Stop,
    /// The grace is over: end what still runs.
    GraceOver,
}

/// The files as they are now.
#[derive(Debug)]
pub struct Files {
    /// The configuration, or what is wrong with it.
    pub config: Result<Arc<Config>, Vec<Problem>>,
    /// The jobs; empty while the configuration cannot be used.
    pub jobs: JobSet,
    /// Jobs that were there and are not any more.
    pub gone: Vec<String>,
}

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    /// Record a decision and, when that is on the disk, start the run and answer.
    Record {
        /// The decision.
        record: Box<Record>,
        /// The run, if one starts.
        launch: Option<Box<Launch>>,
        /// Who wants to hear that it is recorded, and in which words.
        then: Option<(Answer, Reply)>,
    },
    /// Drive a run that a dead process had queued.
    TakeOver(Box<Launch>),
    /// Close a run that a dead process had queued and that is too late now.
    GiveUp(RunId),
    /// Ask the ledger what is decided ahead of a clock that was set back to this.
    Rewind(Timestamp),
    /// Ask these, all at once, whether they can be reached.
    Probe(Vec<Server>),
    /// Read the files.
    ReadFiles,
    /// Take over what the files say of these jobs, and that those are gone.
    Adopt {
        /// Changed or new.
        rows: Vec<JobRow>,
        /// No longer there.
        gone: Vec<String>,
        /// All of it.
        files: Box<Files>,
        /// From when on they hold: everything before has been decided.
        at: Timestamp,
    },
    /// Start runs under this configuration from now on.
    UseConfig(Arc<Config>),
    /// Answer somebody.
    Answer(Answer, Box<Reply>),
    /// Ask a run to end.
    Cancel(Arc<Watchdog>, CancelReason),
    /// Record a message and, when that is on the disk, tell it to a turn that goes on or waits.
    Post(Box<Post>),
    /// Record what became of messages.
    SettleLetters(Vec<MessageId>, LetterEnd),
    /// Record which session has a key now, and how often it was cleared; then answer.
    KeepSession(SessionRow, Option<(Answer, Reply)>),
    /// Tell that something was commanded in a session.
    Commanded(Commanded),
    /// Tell that somebody has said this into a session.
    Received(SessionKey, String),
    /// Free a session that nobody drives, if nothing of it lives.
    Rescue(Box<Rescue>),
    /// Say in the ledger that an incident is known, and answer.
    Ack(String, Answer),
    /// Write a line into the audit ledger.
    Audit(AuditRow),
    /// Nothing is left to do.
    Exit,
}

impl Command {
    /// Whether a run begins with it.
    pub fn starts_a_run(&self) -> bool {
        match self {
            Self::Record { launch, .. } => launch.is_some(),
            Self::TakeOver(_) => true,
            Self::GiveUp(_)
            | Self::Rewind(_)
            | Self::Probe(_)
            | Self::ReadFiles
            | Self::Adopt { .. }
            | Self::UseConfig(_)
            | Self::Answer(..)
            | Self::Cancel(..)
            | Self::Post(_)
            | Self::SettleLetters(..)
            | Self::KeepSession(..)
            | Self::Commanded(_)
            | Self::Received(..)
            | Self::Rescue(_)
            | Self::Ack(..)
            | Self::Audit(_)
            | Self::Exit => false,
        }
    }
}

/// A session to be freed.
#[derive(Debug)]
pub struct Rescue {
    /// Its run.
    pub ticket: Ticket,
    /// Which work of it is meant.
    pub generation: Generation,
    /// What is to be ended before.
    pub drain: Drain,
    /// The configured silence that led to it.
    pub after: Duration,
}

/// What is to be ended before a session is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// Nothing: if anything lives, it is not freed.
    Nothing,
    /// The processes of the run.
    Processes,
}

/// What came of the attempt to free a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryEnd {
    /// It is free: the run ended so.
    Released(RunEnd),
    /// Something of it lives.
    Alive,
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
    pub answer: Option<Answer>,
    /// What they hear, if it is for a message.
    pub heard: Option<Box<Heard>>,
}

/// A message for a turn that goes on or waits.
#[derive(Debug)]
pub struct Post {
    /// Where the turn looks.
    pub inbox: Inbox,
    /// How many may wait there.
    pub cap: usize,
    /// The turn's run.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// The key of that.
    pub key: SessionKey,
    /// The message.
    pub letter: Letter,
    /// Its row.
    pub row: LetterRow,
    /// Who wants to hear of it.
    pub answer: Option<Answer>,
    /// What they hear.
    pub heard: Heard,
}
