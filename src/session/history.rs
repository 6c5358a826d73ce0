//! What an earlier turn has left, as the messages that the next one begins with.
//!
//! A transcript may end anywhere: its process died in mid-tool, in mid-line, in mid-write. What is
//! made of it here is always sound: every call has exactly one result, at its place, and there is
//! no result without a call. A summary stands for what it sums up, and nothing goes back behind a
//! point at which the session was cleared.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::transcript::Entry;
use crate::provider::{AssistantTurn, Message};

/// What a call is told whose tool never came to its end.
const NO_RESULT: &str = "no result: the run ended before the tool did";

/// What stands above a summary.
const SUMMARY: &str = "[Summary of the conversation so far]";

/// The name of the entry that says that everything before it is forgotten.
pub const CLEARED: &str = "cleared";

/// A message with its place in the transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct Remembered {
    /// The entry that it stands in.
    pub id: u64,
    /// What was said.
    pub message: Message,
    /// Which model said it, as `provider/model`: its reasoning is only for that one.
    pub by: Option<String>,
}

impl Remembered {
    /// As it is sent to `model` (`provider/model`). Reasoning is signed by the model that made it,
    /// or shaped for it: another one may refuse it.
    pub fn for_model(&self, model: &str) -> Message {
        match &self.message {
            Message::Assistant(said) if self.by.as_deref() != Some(model) => {
                let AssistantTurn { text, tool_calls, .. } = said.clone();
                Message::Assistant(AssistantTurn { text, tool_calls, ..AssistantTurn::default() })
            }
            message => message.clone(),
        }
    }
}

/// What a `compaction` entry says: the messages before `first_kept_id` are summed up by `summary`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// What was said until then, in short.
    pub summary: String,
    /// The first message that is still sent as it was said.
    pub first_kept_id: u64,
    /// How long the conversation was, in tokens.
    pub tokens_before: u64,
}

impl Compaction {
    /// As the model is told: the same in the turn that has made it and in later ones.
    pub fn message(&self) -> Message {
        Message::User { text: self.text() }
    }

    /// Its words.
    pub fn text(&self) -> String {
        format!("{SUMMARY}\n\n{}", self.summary)
    }
}

/// What a transcript leaves.
pub(super) struct History {
    /// The conversation, in which every call has one result.
    pub(super) said: Vec<Remembered>,
    /// So many results at its end stand nowhere yet.
    pub(super) owed: usize,
}

/// The conversation that `entries` leave.
pub(super) fn history(entries: &[Entry]) -> History {
    let cleared = entries.iter().rposition(|entry| cleared(entry).is_some());
    let entries = &entries[cleared.map_or(0, |at| at + 1)..];
    let compaction = entries.iter().rev().find_map(compaction);
    let kept_from = compaction.as_ref().map_or(0, |(_, it)| it.first_kept_id);
    let kept = entries.iter().filter(|entry| entry.id >= kept_from).filter_map(message);
    let mut paired = Pairing::default();
    if let Some((id, compaction)) = compaction {
        paired.said.push(Remembered { id, message: compaction.message(), by: None });
    }
    kept.for_each(|remembered| paired.add(remembered));
    paired.end()
}

/// How often the session had been cleared, if this entry says that it was.
pub(super) fn cleared(entry: &Entry) -> Option<u64> {
    let is_one = entry.kind == "custom" && entry.body.get("name")? == CLEARED;
    entry.body.get("data").filter(|_| is_one)?.get("n")?.as_u64()
}

fn compaction(entry: &Entry) -> Option<(u64, Compaction)> {
    let body = Value::Object(entry.body.clone());
    let compaction = (entry.kind == "compaction").then(|| serde_json::from_value(body).ok());
    Some((entry.id, compaction??))
}

fn message(entry: &Entry) -> Option<Remembered> {
    let body = entry.body.get("message").filter(|_| entry.kind == "message")?;
    let by = entry.body.get("by").and_then(Value::as_str).map(str::to_owned);
    Some(Remembered { id: entry.id, message: Message::deserialize(body).ok()?, by })
}

/// Puts messages together so that every call has its one result.
#[derive(Debug, Default)]
struct Pairing {
    said: Vec<Remembered>,
    /// Calls of the last answer that have no result yet: id and tool.
    open: Vec<(String, String)>,
}

impl Pairing {
    fn add(&mut self, remembered: Remembered) {
        match &remembered.message {
            Message::ToolResult { call_id, .. } => {
                // A result without a call, or a second one.
                let Some(at) = self.open.iter().position(|(id, _)| id == call_id) else { return };
                self.open.remove(at);
            }
            Message::Assistant(AssistantTurn { text, tool_calls, .. }) => {
                self.close();
                if text.is_empty() && tool_calls.is_empty() {
                    return;
                }
                self.open =
                    tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())).collect();
            }
            Message::User { .. } => self.close(),
        }
        self.said.push(remembered);
    }

    /// Results for calls that have none, before anything else is said.
    fn close(&mut self) {
        let id = self.said.last().map_or(0, |last| last.id);
        for (call_id, name) in self.open.drain(..) {
            let content = NO_RESULT.to_owned();
            let message = Message::ToolResult { call_id, name, content, is_error: true };
            self.said.push(Remembered { id, message, by: None });
        }
    }

    fn end(mut self) -> History {
        let owed = self.open.len();
        self.close();
        History { said: self.said, owed }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::transcript::read_entries;
    use super::*;

    fn lines(bodies: &[Value]) -> Vec<Entry> {
        let line = |(body, id): (&Value, u64)| {
            let mut line = json!({
                "id": id, "parentId": null, "at": "2026-11-30T09:00:00.000Z", "type": "message",
            });
            let (line_of, body) = (line.as_object_mut().unwrap(), body.as_object().unwrap());
            line_of.extend(body.clone());
            line.to_string() + "\n"
        };
        read_entries(bodies.iter().zip(1..).map(line).collect::<String>().as_bytes())
    }

    fn user(text: &str) -> Value {
        json!({"message": {"role": "user", "text": text}})
    }

    fn says(text: &str, calls: &[&str]) -> Value {
        let call = |id: &&str| json!({"id": id, "name": "exec", "arguments": {}});
        let calls: Vec<_> = calls.iter().map(call).collect();
        json!({"by": "p/m", "message": {"role": "assistant", "text": text, "tool_calls": calls}})
    }

    fn result(call: &str) -> Value {
        json!({"message": {
            "role": "tool_result", "call_id": call, "name": "exec", "content": "fine", "is_error": false,
        }})
    }

    /// Each message in a few letters.
    fn seen(bodies: &[Value]) -> Vec<String> {
        let words = |remembered: &Remembered| match &remembered.message {
            Message::User { text } => format!("user {text}"),
            Message::Assistant(turn) => format!("says {} {}", turn.text, turn.tool_calls.len()),
            Message::ToolResult { call_id, is_error: false, .. } => format!("result {call_id}"),
            Message::ToolResult { call_id, .. } => format!("none {call_id}"),
        };
        history(&lines(bodies)).said.iter().map(words).collect()
    }

    // B111, semantics §6: every tool call has exactly one result, real or synthetic.
    #[test]
    fn every_call_has_one_result_and_no_result_is_without_a_call() {
        let cut =
            json!({"message": {"role": "assistant", "text": "half", "tool_calls": [{"id": "a"}]}});
        let table: &[(&str, Vec<Value>, &[&str])] = &[
            (
                "sound",
                vec![user("1"), says("", &["a"]), result("a"), says("2", &[])],
                &["user 1", "says  1", "result a", "says 2 0"],
            ),
            (
                "cut in mid-tool",
                vec![user("1"), says("", &["a", "b"]), result("b")],
                &["user 1", "says  2", "result b", "none a"],
            ),
            (
                "went on without it",
                vec![user("1"), says("", &["a"]), user("2")],
                &["user 1", "says  1", "none a", "user 2"],
            ),
            (
                "result too late",
                vec![says("", &["a"]), user("2"), result("a")],
                &["says  1", "none a", "user 2"],
            ),
            (
                "two results",
                vec![says("", &["a"]), result("a"), result("a")],
                &["says  1", "result a"],
            ),
            ("result without a call", vec![user("1"), result("x")], &["user 1"]),
            ("half a call", vec![user("1"), cut, result("a")], &["user 1"]),
            ("an empty answer", vec![user("1"), says("", &[]), user("2")], &["user 1", "user 2"]),
            (
                "an id that is used again",
                vec![says("", &["a"]), says("", &["a"]), result("a")],
                &["says  1", "none a", "says  1", "result a"],
            ),
        ];
        for (name, bodies, expected) in table {
            assert_eq!(seen(bodies), *expected, "{name}");
        }
    }

    // Semantics §6, §7: entries of type `compaction`; a call and its result are never split.
    #[test]
    fn a_summary_stands_for_what_it_sums_up() {
        let compaction = |first: u64| {
            json!({
                "type": "compaction", "summary": "so far", "firstKeptId": first, "tokensBefore": 9,
            })
        };
        let bodies = [
            user("1"),
            says("2", &[]),
            user("3"),
            says("", &["a"]),
            compaction(3),
            result("a"),
            user("4"),
        ];
        let summary = format!("user {SUMMARY}\n\nso far");
        assert_eq!(seen(&bodies), [&*summary, "user 3", "says  1", "result a", "user 4"]);
        // The last one counts; a result whose call is summed up is gone with it.
        let again = [&bodies[..], &[compaction(6)]].concat();
        assert_eq!(seen(&again), [&*summary, "user 4"]);
    }

    #[test]
    fn nothing_goes_back_behind_where_the_session_was_cleared() {
        let cleared = json!({"type": "custom", "name": CLEARED, "data": {"n": 1}});
        let other = json!({"type": "custom", "name": "note", "data": {"n": 7}});
        let bodies = [user("1"), cleared, other, user("2")];
        assert_eq!(seen(&bodies), ["user 2"]);
        assert_eq!(lines(&bodies).iter().find_map(super::cleared), Some(1));
    }

    #[test]
    fn who_said_it_is_remembered() {
        let history = history(&lines(&[user("1"), says("2", &[])]));
        let by: Vec<_> = history.said.iter().map(|it| (it.id, it.by.as_deref())).collect();
        assert_eq!(by, [(1, None), (2, Some("p/m"))]);
    }
}
