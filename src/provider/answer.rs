//! An answer while it arrives, and the verdict on it when it ends.
//!
//! The rules that all APIs share live here: how fragments become calls, what a finish reason is
//! worth, and when an answer is a fault. Calls are parsed only once the answer is over, and never
//! repaired: half a command must not run.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::classify::ServerWords;
use super::{AssistantTurn, Completion, Fault, FaultClass, Finish, StreamEvent, ToolCall, Usage};

/// The most that one answer may hold: text, reasoning and calls together.
pub(super) const ANSWER_BYTES_MAX: usize = 2 << 20;

/// What an entry costs beside its text, so that millions of empty ones are bounded too.
const ENTRY_BYTES: usize = 256;

/// How an answer came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The server said that it is over.
    Marker,
    /// The server closed the connection.
    Closed,
}

/// A piece of a tool call, as an API sends it.
#[derive(Debug, Default)]
pub(super) struct Fragment<'a> {
    pub index: Option<u64>,
    pub id: &'a str,
    pub name: &'a str,
    pub arguments: Option<&'a Value>,
}

/// A call whose arguments may still be growing.
#[derive(Debug, Default)]
struct OpenCall {
    index: Option<u64>,
    id: String,
    name: String,
    /// Arguments that came as text.
    text: String,
    /// Arguments that came as an object; text that comes later counts instead.
    object: Option<Map<String, Value>>,
}

/// What has arrived.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub usage: Usage,
    pub finish: Option<Finish>,
    /// The model said that it refuses; how it finishes then does not matter.
    pub refused: bool,
    /// Thinking blocks, verbatim. The dialect that has such blocks grows them in place.
    pub thinking: Vec<Value>,
    /// Events that nobody has taken yet.
    pub events: Vec<StreamEvent>,
    text: String,
    reasoning: String,
    calls: Vec<OpenCall>,
    bytes: usize,
}

impl Answer {
    /// A piece of answer text.
    pub fn say(&mut self, text: &str) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }
        self.count(text.len())?;
        self.text.push_str(text);
        self.events.push(StreamEvent::Text(text.to_owned()));
        Ok(())
    }

    /// A piece of reasoning text that the turn keeps.
    pub fn reason(&mut self, text: &str) -> Result<(), Fault> {
        self.show_thinking(text)?;
        self.reasoning.push_str(text);
        Ok(())
    }

    /// A piece of thinking that is kept in a block of [`Self::thinking`].
    pub fn show_thinking(&mut self, text: &str) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }
        self.count(text.len())?;
        self.events.push(StreamEvent::Reasoning(text.to_owned()));
        Ok(())
    }

    /// A whole thinking block, or the start of one; returns where it is kept.
    pub fn add_thinking(&mut self, block: Value) -> Result<usize, Fault> {
        self.count(ENTRY_BYTES + block.to_string().len())?;
        self.thinking.push(block);
        Ok(self.thinking.len() - 1)
    }

    /// A piece of a tool call.
    pub fn fragment(&mut self, fragment: &Fragment<'_>) -> Result<(), Fault> {
        let arguments = fragment.arguments.filter(|value| !value.is_null());
        if fragment.id.is_empty() && fragment.name.is_empty() && arguments.is_none() {
            return Ok(());
        }
        let at = self.call_of(fragment)?;
        let mut grown = 0;
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            fragment.id.clone_into(&mut call.id);
            grown += fragment.id.len();
        }
        if call.name.is_empty() {
            fragment.name.clone_into(&mut call.name);
            grown += fragment.name.len();
        }
        match arguments {
            None => {}
            Some(Value::String(text)) => {
                call.text.push_str(text);
                grown += text.len();
            }
            Some(Value::Object(object)) => {
                grown += arguments.map_or(0, |value| value.to_string().len());
                call.object = Some(object.clone());
            }
            // Neither text nor object: kept as text, so that the verdict on it is "malformed".
            Some(other) => {
                let text = other.to_string();
                grown += text.len();
                call.text.push_str(&text);
            }
        }
        self.events.push(StreamEvent::ToolFragment);
        self.count(grown)
    }

    /// Which call a fragment belongs to; a new one when it is none of the known.
    fn call_of(&mut self, fragment: &Fragment<'_>) -> Result<usize, Fault> {
        let known = match fragment.index {
            Some(_) => {
                let same = self.calls.iter().rposition(|call| call.index == fragment.index);
                same.filter(|&at| {
                    let id = &self.calls[at].id;
                    id.is_empty() || fragment.id.is_empty() || id == fragment.id
                })
            }
            None if fragment.name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        if let Some(at) = known {
            return Ok(at);
        }
        self.count(ENTRY_BYTES)?;
        self.calls.push(OpenCall { index: fragment.index, ..OpenCall::default() });
        Ok(self.calls.len() - 1)
    }

    fn count(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes += bytes;
        if self.bytes <= ANSWER_BYTES_MAX {
            return Ok(());
        }
        let message = format!("the server sent an answer of more than {ANSWER_BYTES_MAX} bytes");
        Err(self.fault(FaultClass::NotAStream, message))
    }

    /// Whether nothing of an answer has come.
    pub fn is_blank(&self) -> bool {
        self.finish.is_none()
            && self.text.is_empty()
            && self.reasoning.is_empty()
            && self.calls.is_empty()
            && self.thinking.is_empty()
    }

    /// A fault that carries what had arrived.
    pub fn fault(&self, class: FaultClass, message: impl Into<String>) -> Fault {
        Fault { partial_text: self.text.clone(), usage: self.usage, ..Fault::new(class, message) }
    }

    /// The fault that the server reports inside the stream.
    pub fn provider_fault(&self, error: &Value) -> Fault {
        let words = ServerWords::in_stream(error);
        Fault { code: words.code, ..self.fault(words.class, words.message) }
    }

    /// The verdict, once `end` has come.
    pub fn complete(&mut self, end: End) -> Result<Completion, Fault> {
        let finish = match (self.finish, end) {
            (None, End::Closed) => {
                let message = "the stream ended without a finish reason or an end marker";
                return Err(self.fault(FaultClass::IncompleteStream, message));
            }
            (None, End::Marker) => Finish::Stop,
            (Some(finish), _) => finish,
        };
        let finish = if self.refused { Finish::ContentFilter } else { finish };
        let finish = match (finish, self.calls.is_empty()) {
            (Finish::Length, false) => {
                let message = "output limit reached inside a tool call";
                return Err(self.fault(FaultClass::TruncatedToolCall, message));
            }
            (Finish::Stop | Finish::ToolCalls, false) => Finish::ToolCalls,
            (Finish::Stop | Finish::ToolCalls, true) if self.text.trim().is_empty() => {
                let message = "the model stopped with neither text nor a tool call";
                return Err(self.fault(FaultClass::EmptyResponse, message));
            }
            (Finish::Stop | Finish::ToolCalls, true) => Finish::Stop,
            (Finish::Length, true) => Finish::Length,
            // A refusal is one even when calls came before it: none of them runs.
            (Finish::ContentFilter, _) => {
                self.calls.clear();
                Finish::ContentFilter
            }
        };
        let tool_calls = self.close_calls()?;
        let turn = AssistantTurn {
            text: std::mem::take(&mut self.text),
            reasoning: std::mem::take(&mut self.reasoning),
            thinking: std::mem::take(&mut self.thinking),
            tool_calls,
        };
        Ok(Completion { turn, finish, usage: self.usage })
    }

    fn close_calls(&mut self) -> Result<Vec<ToolCall>, Fault> {
        let mut ids = HashSet::new();
        let mut closed = Vec::with_capacity(self.calls.len());
        for call in std::mem::take(&mut self.calls) {
            let OpenCall { id, name, text, object, .. } = call;
            if name.is_empty() {
                let message = "the model made a tool call without a name";
                return Err(self.fault(FaultClass::MalformedToolCall, message));
            }
            let arguments = parse_arguments(&text, object).map_err(|reason| {
                let message = format!("the arguments of the call of `{name}` {reason}");
                self.fault(FaultClass::MalformedToolCall, message)
            })?;
            let id = if id.is_empty() || ids.contains(&id) { new_call_id() } else { id };
            ids.insert(id.clone());
            closed.push(ToolCall { id, name, arguments });
        }
        Ok(closed)
    }
}

fn parse_arguments(
    text: &str,
    object: Option<Map<String, Value>>,
) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(object.unwrap_or_default());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("are not a JSON object".to_owned()),
        Err(error) => Err(format!("are no JSON: {error}")),
    }
}

fn new_call_id() -> String {
    format!("call_{}", ulid::Ulid::generate().to_string().to_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calls(fragments: &[(Option<u64>, &str, &str, Value)]) -> Vec<(String, Value)> {
        let mut answer = Answer { finish: Some(Finish::Stop), ..Answer::default() };
        for (index, id, name, arguments) in fragments {
            let fragment = Fragment { index: *index, id, name, arguments: Some(arguments) };
            answer.fragment(&fragment).unwrap();
        }
        let calls = answer.complete(End::Marker).unwrap().turn.tool_calls;
        let unique: HashSet<_> = calls.iter().map(|call| call.id.clone()).collect();
        assert_eq!(unique.len(), calls.len(), "ids are unique in a turn");
        assert!(!unique.contains(""));
        calls.into_iter().map(|call| (call.name, Value::Object(call.arguments))).collect()
    }

    #[test]
    fn fragments_become_calls() {
        let table = [
            // One index, pieces of its arguments; the name comes again and is not doubled.
            (
                vec![
                    (Some(0), "c1", "add", json!("{\"a\"")),
                    (Some(0), "c1", "add", json!(":1}")),
                    (Some(0), "", "", json!(null)),
                ],
                vec![("add", json!({"a": 1}))],
            ),
            // A new id at a used index is a new call.
            (
                vec![
                    (Some(0), "c1", "add", json!("{}")),
                    (Some(0), "c2", "sub", json!("{\"b\"")),
                    (Some(0), "", "", json!(":2}")),
                ],
                vec![("add", json!({})), ("sub", json!({"b": 2}))],
            ),
            // No index: a name opens a call, no name goes on with the last.
            (
                vec![
                    (None, "", "add", json!("{\"a\"")),
                    (None, "", "", json!(":1}")),
                    (None, "", "add", json!({"a": 2})),
                ],
                vec![("add", json!({"a": 1})), ("add", json!({"a": 2}))],
            ),
            // The same id twice: both calls stand, with ids of their own.
            (
                vec![(Some(0), "c", "add", json!("")), (Some(1), "c", "sub", json!(" "))],
                vec![("add", json!({})), ("sub", json!({}))],
            ),
            // The id comes after the name.
            (
                vec![(Some(3), "", "add", json!("{}")), (Some(3), "c9", "", json!(""))],
                vec![("add", json!({}))],
            ),
        ];
        for (fragments, expected) in table {
            let expected: Vec<_> =
                expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(calls(&fragments), expected, "{fragments:?}");
        }
    }

    #[test]
    fn what_is_no_object_is_malformed_and_never_repaired() {
        for arguments in [json!("{\"a\":1"), json!("[1]"), json!("null"), json!(7), json!("{} {}")]
        {
            let mut answer = Answer { finish: Some(Finish::ToolCalls), ..Answer::default() };
            answer.say("so far").unwrap();
            let fragment =
                Fragment { name: "add", arguments: Some(&arguments), ..Fragment::default() };
            answer.fragment(&fragment).unwrap();
            let fault = answer.complete(End::Marker).unwrap_err();
            assert_eq!(fault.class, FaultClass::MalformedToolCall, "{arguments}");
            assert_eq!(fault.partial_text, "so far");
        }
    }

    #[test]
    fn the_verdict_on_an_ending() {
        use FaultClass::{EmptyResponse, IncompleteStream, TruncatedToolCall};
        let call = Fragment { name: "add", ..Fragment::default() };
        let table = [
            (Some(Finish::Stop), End::Closed, "hi", false, Ok(Finish::Stop)),
            (None, End::Marker, "hi", false, Ok(Finish::Stop)),
            (None, End::Closed, "hi", false, Err(IncompleteStream)),
            (None, End::Closed, "", true, Err(IncompleteStream)),
            (Some(Finish::Stop), End::Marker, "", false, Err(EmptyResponse)),
            (Some(Finish::Stop), End::Marker, " \n", false, Err(EmptyResponse)),
            (Some(Finish::ToolCalls), End::Marker, "", false, Err(EmptyResponse)),
            (Some(Finish::ToolCalls), End::Marker, "hi", false, Ok(Finish::Stop)),
            (Some(Finish::Stop), End::Marker, "", true, Ok(Finish::ToolCalls)),
            (Some(Finish::Length), End::Marker, "hi", false, Ok(Finish::Length)),
            (Some(Finish::Length), End::Marker, "hi", true, Err(TruncatedToolCall)),
            (Some(Finish::ContentFilter), End::Marker, "", false, Ok(Finish::ContentFilter)),
            (Some(Finish::ContentFilter), End::Marker, "", true, Ok(Finish::ContentFilter)),
        ];
        for (finish, end, text, with_call, expected) in table {
            let mut answer = Answer { finish, ..Answer::default() };
            answer.say(text).unwrap();
            if with_call {
                answer.fragment(&call).unwrap();
            }
            let verdict = answer.complete(end);
            let found = verdict.as_ref().map(|done| done.finish).map_err(|fault| fault.class);
            assert_eq!(found, expected, "{finish:?} {end:?} {text:?} {with_call}");
        }
    }

    #[test]
    fn an_endless_answer_is_given_up_at_the_limit() {
        let piece = "x".repeat(1 << 20);
        let mut answer = Answer::default();
        let fault = (0..=16).find_map(|_| answer.say(&piece).err()).unwrap();
        assert_eq!(fault.class, FaultClass::NotAStream);

        let mut answer = Answer::default();
        let call = Fragment { name: "a", ..Fragment::default() };
        let opened = (0..1 << 20).take_while(|_| answer.fragment(&call).is_ok()).count();
        assert!(opened < ANSWER_BYTES_MAX / ENTRY_BYTES, "{opened} calls");
    }
}
