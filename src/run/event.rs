//! What a run tells while it goes on.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ids::RunId;

words!(
    /// Which part of a run an event is about.
    Stream {
        /// The run itself.
        Lifecycle = "lifecycle",
        /// The model's words.
        Assistant = "assistant",
        /// A tool call.
        Tool = "tool",
        /// A shortened history.
        Compaction = "compaction",
    }
);

words!(
    /// Where in its part.
    Phase {
        /// It begins.
        Start = "start",
        /// It goes on.
        Update = "update",
        /// It ended.
        End = "end",
        /// It ended badly.
        Error = "error",
    }
);

/// One event, as `logs -f --json` prints it. Every run has exactly one lifecycle event with
/// phase `end` or `error`, and it is the last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    /// The run.
    pub run_id: RunId,
    /// 1, 2, 3 … within the run.
    pub seq: u64,
    /// When.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub at: Timestamp,
    /// What about.
    pub stream: Stream,
    /// Where in it.
    pub phase: Phase,
    /// What there is to say: text, tool, state, tokens.
    #[serde(flatten)]
    pub data: serde_json::Map<String, serde_json::Value>,
}
