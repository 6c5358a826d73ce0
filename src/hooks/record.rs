//! What is kept of each time that a hook was asked.

use std::time::Duration;

use jiff::Timestamp;

use crate::config::HookPoint;

words!(
    /// How a hook went.
    HookOutcome {
        /// It ran, and changed nothing.
        Ok = "ok",
        /// It changed something.
        Changed = "changed",
        /// It answered in our place.
        Claimed = "claimed",
        /// It refused what was asked.
        Blocked = "blocked",
        /// It gave no answer.
        Failed = "failed",
        /// It took too long.
        TimedOut = "timed_out",
    }
);

/// One time that a hook was asked: what it is about by name, never what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRecord {
    /// For which run, if for one.
    pub run_id: Option<String>,
    /// Where.
    pub hook: HookPoint,
    /// Which hook.
    pub name: String,
    /// How it went.
    pub outcome: HookOutcome,
    /// What it changed, by name.
    pub changed: Vec<&'static str>,
    /// What went wrong.
    pub error: Option<String>,
    /// When it was asked.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
}

/// Who keeps the records. Must not block.
pub trait HookRecorder: Send + Sync + std::fmt::Debug {
    /// A hook was asked.
    fn note(&self, record: HookRecord);
}

/// Keeps nothing.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl HookRecorder for Nobody {
    fn note(&self, _record: HookRecord) {}
}
