//! The tool calls of a run, taken down or answered from what was taken down.
//!
//! An answer from a tape costs nothing and changes nothing: no command runs, no file is opened.
//! What the host decides without doing anything is decided anew all the same: whether a tool is
//! offered, and whether a command is allowed.

use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use super::tool::{Arguments, ToolOutcome, Verdict};
use crate::provider::ToolCall;

/// One call and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakenCall {
    /// Which tool.
    pub tool: String,
    /// With what.
    #[serde(with = "as_text")]
    pub arguments: Arguments,
    /// How it ended.
    pub verdict: Verdict,
    /// The exit code of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How much it gave before it was cut to size.
    pub output_bytes: u64,
    /// What the model was given.
    pub content: String,
}

impl TakenCall {
    fn new(call: &ToolCall, outcome: &ToolOutcome) -> Self {
        Self {
            tool: call.name.clone(),
            arguments: call.arguments.clone(),
            verdict: outcome.verdict,
            exit_code: outcome.exit_code,
            output_bytes: outcome.output_bytes,
            content: outcome.content.clone(),
        }
    }

    fn outcome(&self) -> ToolOutcome {
        ToolOutcome {
            content: self.content.clone(),
            verdict: self.verdict,
            exit_code: self.exit_code,
            output_bytes: self.output_bytes,
        }
    }
}

/// Where the outcomes of calls come from.
#[derive(Debug)]
enum Source {
    /// The tools themselves.
    Tools,
    /// These, in their order.
    Taken(Vec<TakenCall>),
}

/// Takes down the calls of one run.
#[derive(Debug)]
pub struct CallTape {
    source: Source,
    made: Mutex<Vec<TakenCall>>,
}

/// What a tool can say of a call before it does anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// It depends on what is found.
    Unknown,
    /// It may.
    Granted,
    /// It may not.
    Refused(ToolOutcome),
}

impl CallTape {
    /// Takes down what the tools do.
    pub fn recording() -> Arc<Self> {
        Arc::new(Self { source: Source::Tools, made: Mutex::default() })
    }

    /// Answers from `taken`, and takes down what is asked.
    pub fn replaying(taken: Vec<TakenCall>) -> Arc<Self> {
        Arc::new(Self { source: Source::Taken(taken), made: Mutex::default() })
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<TakenCall> {
        self.made().clone()
    }

    pub(super) fn note(&self, call: &ToolCall, outcome: &ToolOutcome) {
        self.made().push(TakenCall::new(call, outcome));
    }

    /// What is on the tape for the next call; `None`: the tools themselves are asked.
    pub(super) fn answer(&self, call: &ToolCall, may: Permission) -> Option<ToolOutcome> {
        let Source::Taken(taken) = &self.source else { return None };
        let n = self.made().len();
        let same =
            |taken: &&TakenCall| taken.tool == call.name && taken.arguments == call.arguments;
        let unanswered = |words: &str| {
            Some(ToolOutcome::new(Verdict::Error, format!("[the cassette has no answer: {words}]")))
        };
        match (may, taken.get(n).filter(same)) {
            (Permission::Refused(outcome), _) => Some(outcome),
            (_, None) => unanswered("this call is not on it"),
            (Permission::Granted, Some(taken)) if taken.verdict == Verdict::Denied => {
                unanswered("the call was refused when it was recorded")
            }
            (Permission::Granted | Permission::Unknown, Some(taken)) => Some(taken.outcome()),
        }
    }

    fn made(&self) -> MutexGuard<'_, Vec<TakenCall>> {
        self.made.lock().expect("nobody panics while holding it")
    }
}

/// JSON as text: what holds it may have no word for null.
mod as_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _, ser::Error as _};

    use super::Arguments;

    pub(super) fn serialize<S: Serializer>(it: &Arguments, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&serde_json::to_string(it).map_err(S::Error::custom)?)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arguments, D::Error> {
        let text = String::deserialize(from)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}
