//! What we and a supervisor say to each other: one JSON value per line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::confine::{Closing, Confinement};
use super::identity::ProcessId;
use super::tree::Leftover;

/// The first line to the supervisor: what to run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    pub env: Vec<(String, String)>,
    /// What it reads.
    pub input: Input,
    #[serde(default)]
    pub confinement: Confinement,
}

/// What a command reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Input {
    /// Nothing.
    Nothing,
    /// This file.
    File(PathBuf),
    /// The socket that it also writes to.
    Talk,
}

/// What a process that becomes a command is told: the order, and how to close what is closed.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Becoming<O> {
    pub order: O,
    pub closing: Closing,
}

/// A later line to the supervisor. The end of the stream means `End` with the orphans' grace.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    End { grace_ms: u64 },
}

/// A line from the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fact {
    /// The command runs.
    Started(ProcessId),
    /// It could not be started; nothing runs.
    Failed { what: Failure, message: String },
    /// The command itself ended; what it started may live on.
    ExitedWith(i32),
    /// The same, by a signal.
    KilledBy(i32),
    /// Nothing is left below the supervisor, or only `left`, and it exits now.
    Gone { signalled: u32, left: Vec<Leftover> },
}

/// What could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Failure {
    /// The working folder is not there.
    Folder,
    /// No such command.
    NotFound,
    /// The command could not be run.
    Command,
    /// It could not be confined as demanded.
    Confinement,
    /// There are no mounts to confine it with.
    Mounts,
    /// The supervisor could not set itself up.
    Supervisor,
}
