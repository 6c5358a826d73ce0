//! The points whose hooks only look: what they print is not read, but for a compaction's note.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::HookPoint;
use crate::hooks::point::{Annotation, Observed, Point};
use crate::provider::Message;

/// Whatever an observer says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Ignored;

macro_rules! observed {
    ($($name:ident),+ $(,)?) => {$(
        impl Point for $name {
            const POINT: HookPoint = HookPoint::$name;
            type Answer = Ignored;

            fn read(_printed: &str) -> Result<Ignored, String> {
                Ok(Ignored)
            }
        }

        impl Observed for $name {}
    )+};
}

observed!(
    AgentEnd,
    AfterToolCall,
    MessageReceived,
    MessageSent,
    SessionStart,
    SessionEnd,
    GatewayStart,
    GatewayStop,
    GatewayStartup,
    GatewayShutdown,
);

/// A turn is over, however it ended; its result is stored already.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentEnd {
    /// How the work ended, before any check of it.
    pub state: &'static str,
    /// The answer.
    pub reply: Option<String>,
    /// Why there is none.
    pub error_kind: Option<&'static str>,
    /// All that was said, oldest first.
    pub messages: Vec<Message>,
    /// How many older messages are left out.
    pub messages_omitted: usize,
    /// Prompt tokens of all requests.
    pub input_tokens: Option<u64>,
    /// Answer tokens of all requests.
    pub output_tokens: Option<u64>,
    /// Tool calls.
    pub tool_calls: u32,
}

/// A tool call is over.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AfterToolCall {
    /// The call's id.
    pub call_id: String,
    /// Which tool.
    pub tool: String,
    /// With what.
    pub arguments: Map<String, Value>,
    /// `ok`, `error`, `denied` or `timed_out`.
    pub outcome: &'static str,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
    /// What it gave.
    pub content: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// Old messages are about to be summed up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BeforeCompaction {
    /// `threshold` or `overflow`.
    pub reason: &'static str,
    /// Tokens of the context.
    pub tokens: u64,
    /// What there is to sum up, oldest first.
    pub messages: Vec<Message>,
    /// How many older messages are left out.
    pub messages_omitted: usize,
}

/// Old messages have been summed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AfterCompaction {
    /// `threshold` or `overflow`.
    pub reason: &'static str,
    /// Tokens of the context before.
    pub tokens_before: u64,
    /// And after.
    pub tokens_after: u64,
    /// What stands in the place of the old messages.
    pub summary: String,
}

macro_rules! annotated {
    ($($name:ident),+) => {$(
        impl Point for $name {
            const POINT: HookPoint = HookPoint::$name;
            type Answer = Annotation;
        }

        impl Observed for $name {
            fn note(answer: Annotation) -> Option<String> {
                answer.note
            }
        }
    )+};
}

annotated!(BeforeCompaction, AfterCompaction);

/// A message has come in for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageReceived {
    /// Which session.
    pub session_key: String,
    /// What it says.
    pub text: String,
    /// `agent` or `sessions.send`.
    pub via: &'static str,
}

/// A message has gone out, or could not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageSent {
    /// To which target.
    pub target: String,
    /// `sent`, `failed` or `unknown`.
    pub state: &'static str,
    /// What went wrong.
    pub error: Option<String>,
    /// `message` or `delivery`.
    pub via: &'static str,
    /// The delivery, where it is one.
    pub delivery_id: Option<String>,
}

/// A session begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionStart {
    /// Its key.
    pub session_key: String,
    /// Its id.
    pub session_id: String,
}

/// A session ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionEnd {
    /// Its key.
    pub session_key: String,
    /// Its id.
    pub session_id: String,
    /// `run_ended`, `new` or `reset`.
    pub reason: &'static str,
}

/// `serve` has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GatewayStart {
    /// How many jobs there are.
    pub jobs: usize,
}

/// `serve` stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GatewayStop {}

/// `serve` has started: the internal event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GatewayStartup {
    /// How many jobs there are.
    pub jobs: usize,
}

/// `serve` stops: the internal event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GatewayShutdown {}

/// A message was a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandGiven {
    /// Which one, without the slash: `new`, `reset`, `stop` or another.
    pub command: String,
    /// In which session.
    pub session_key: String,
    /// What came after it.
    pub arguments: String,
}

impl Point for CommandGiven {
    const POINT: HookPoint = HookPoint::Command;
    type Answer = Ignored;

    fn read(_printed: &str) -> Result<Ignored, String> {
        Ok(Ignored)
    }

    fn event(&self) -> Option<&str> {
        Some(&self.command)
    }
}

impl Observed for CommandGiven {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_change_nothing_whatever_they_say() {
        // semantics §8, rows agent_end, after_tool_call, message_*, session_*, gateway_*
        for said in ["{\"block\": true}", "garbage", "{}"] {
            assert_eq!(AgentEnd::read(said), Ok(Ignored));
            assert_eq!(AfterToolCall::read(said), Ok(Ignored));
            assert_eq!(MessageReceived::read(said), Ok(Ignored));
            assert_eq!(MessageSent::read(said), Ok(Ignored));
            assert_eq!(SessionStart::read(said), Ok(Ignored));
            assert_eq!(SessionEnd::read(said), Ok(Ignored));
            assert_eq!(GatewayStart::read(said), Ok(Ignored));
            assert_eq!(GatewayStop::read(said), Ok(Ignored));
            assert_eq!(CommandGiven::read(said), Ok(Ignored));
        }
        assert_eq!(AgentEnd::note(Ignored), None);
    }

    #[test]
    fn before_and_after_compaction_may_annotate_and_nothing_more() {
        // semantics §8, row before_compaction, after_compaction
        let annotation = BeforeCompaction::read("{\"note\": \"long talk\"}").unwrap();
        assert_eq!(BeforeCompaction::note(annotation), Some("long talk".into()));
        assert_eq!(AfterCompaction::note(Annotation::default()), None);
        assert!(AfterCompaction::read("{\"summary\": \"mine\"}").is_err());
    }
}
