//! The run object of the contract: what `run --json` and `show --json` print.

use serde::{Deserialize, Serialize};

use super::prompt_parts::PromptPartRecord;
use crate::run::{Failure, Payload};

/// One run with everything that is known of it. Every key is always there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub run_id: String,
    /// Its job.
    pub job: String,
    /// What made it start.
    pub trigger: String,
    /// Its slot.
    pub due_at: Option<String>,
    /// 1 for the first.
    pub attempt: u32,
    /// The due instants that it stands for: 1, or more for a catch-up.
    pub slots: Option<i64>,
    /// Where it is in its life.
    pub state: String,
    /// When it was recorded.
    pub queued_at: String,
    /// When its clock started.
    pub started_at: Option<String>,
    /// When it was over, clean-up included.
    pub finished_at: Option<String>,
    /// From start to finish.
    pub duration_ms: Option<i64>,
    /// From its due time to its start.
    pub late_ms: Option<i64>,
    /// Its session.
    pub session_id: String,
    /// The key of that; none for a command.
    pub session_key: Option<String>,
    /// `provider/model` of the last attempt.
    pub model: Option<String>,
    /// What the model answered.
    pub reply: Option<String>,
    /// What it had said when it was cut.
    pub partial_text: Option<String>,
    /// What would be shown to people.
    pub payloads: Vec<Payload>,
    /// Why it did not succeed.
    pub error: Option<Failure>,
    /// Its model attempts.
    pub attempts: Vec<AttemptRecord>,
    /// Tokens and money.
    pub usage: UsageRecord,
    /// Its tool calls.
    pub tools: ToolsRecord,
    /// How its clean-up went; `null` until it ran.
    pub cleanup: Option<CleanupRecord>,
    /// The host's checks.
    pub checks: Vec<CheckRecord>,
    /// What is sent of it.
    pub deliveries: Vec<DeliveryRecord>,
    /// The files that are kept of it.
    pub artifacts: Vec<ArtifactRecord>,
    /// What its model was told at the beginning, part by part.
    #[serde(default)]
    pub prompt: Vec<PromptPartRecord>,
    /// Exit code of a command job.
    pub exit_code: Option<i32>,
    /// The definition it ran under.
    pub definition_hash: String,
}

/// A file that is kept of a run, in its folder below `artifacts/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRecord {
    /// Relative to the run's working directory.
    pub path: String,
    /// Its size.
    pub bytes: i64,
}

/// One model attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// `provider/model`.
    pub model: String,
    /// Like a run's.
    pub state: String,
    /// Why it did not succeed.
    pub error_kind: Option<String>,
    /// When it began.
    pub started_at: String,
    /// How long it took.
    pub duration_ms: Option<i64>,
    /// The idle window of its requests in milliseconds; `null` is off.
    pub idle_window_ms: Option<i64>,
    /// The rule that gave it.
    pub idle_rule: String,
}

/// One check of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRecord {
    /// What it is called.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// If not: what was expected, and what was found.
    pub detail: Option<String>,
}

/// What is sent of a run to one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryRecord {
    /// The target.
    pub target: String,
    /// `queued`, `sent`, `suppressed`, `failed` or `unknown`.
    pub state: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it has not arrived, or may not have.
    pub error: Option<String>,
    /// The same for every try.
    pub delivery_id: String,
    /// When it was sent, or given up.
    pub settled_at: Option<String>,
}

/// Tokens and money; `null` is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// Prompt tokens.
    pub input_tokens: Option<i64>,
    /// Answer tokens.
    pub output_tokens: Option<i64>,
    /// US dollars.
    pub usd: Option<f64>,
}

/// Tool calls in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolsRecord {
    /// All of them.
    pub calls: i64,
    /// Those that failed.
    pub errors: i64,
    /// Those that were refused.
    pub denied: i64,
}

/// The clean-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanupRecord {
    /// `clean`, `forced`, `incomplete` or `timed_out`.
    pub outcome: String,
    /// How long all of it took.
    pub duration_ms: i64,
    /// Its steps.
    pub steps: Vec<StepRecord>,
    /// Processes that had to be signalled.
    pub killed_processes: i64,
    /// What is left.
    pub leaked: Vec<String>,
}

/// One step of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its name.
    pub step: String,
    /// How it ended.
    pub outcome: String,
    /// How long it took.
    pub duration_ms: i64,
    /// What there is to say.
    pub detail: Option<String>,
}
