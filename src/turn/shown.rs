//! What a turn gathers to show: thoughts and tools, as far as somebody has asked for them, and the
//! tools that failed.

use super::cut::cut;
use super::shape::{Left, shape};
use crate::job::{Manner, Masker, Reasoning, Verbosity};
use crate::provider::{AssistantTurn, ToolCall};
use crate::run::{Payload, PayloadKind};
use crate::tools::{ToolOutcome, Verdict};

/// Thoughts and tools of a run that are shown: they are a row of the history, not a log.
const NOTES_MAX: usize = 100;

/// Characters of one thought.
const THOUGHT_CHARS_MAX: usize = 8_000;

/// Characters of what a call was about.
const SUBJECT_CHARS_MAX: usize = 80;

/// What a turn has gathered so far.
#[derive(Debug)]
pub(super) struct Shown {
    manner: Manner,
    notes: Vec<Payload>,
    /// Those that are too many.
    left_out: usize,
    /// Tools whose last call failed, with what is said of it; the newest last.
    failed: Vec<(String, String)>,
}

impl Shown {
    pub(super) fn new(manner: Manner) -> Self {
        Self { manner, notes: Vec::new(), left_out: 0, failed: Vec::new() }
    }

    /// The model has said this.
    pub(super) fn answered(&mut self, said: &AssistantTurn) {
        if self.manner.reasoning == Reasoning::Blocks {
            let thought = thought(said);
            if !thought.trim().is_empty() {
                self.note(PayloadKind::Reasoning, cut(&thought, THOUGHT_CHARS_MAX));
            }
        }
    }

    /// A tool has been called. What was refused did nothing, and is not told.
    pub(super) fn called(&mut self, call: &ToolCall, outcome: &ToolOutcome) {
        self.failed.retain(|(tool, _)| *tool != call.name);
        match outcome.verdict {
            Verdict::Denied => return,
            Verdict::Error | Verdict::TimedOut => {
                let words = format!("a tool failed: {}", summary(call, outcome));
                self.failed.push((call.name.clone(), words));
            }
            Verdict::Ok => {}
        }
        if self.manner.verbose == Verbosity::Verbose {
            self.note(PayloadKind::ToolSummary, summary(call, outcome));
        }
    }

    /// Begins anew, so that nothing is said twice (semantics §7).
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.manner);
    }

    /// The payloads of a run that ended so.
    pub(super) fn payloads(&self, end: Left<'_>, masker: &Masker) -> Vec<Payload> {
        let mut notes = self.notes.clone();
        if self.left_out > 0 {
            let words = format!("[… {} more are left out …]", self.left_out);
            notes.push(Payload::new(PayloadKind::ToolSummary, words));
        }
        let failed = self.failed.last().map(|(_, words)| words.as_str());
        let mut payloads = shape(Left { notes: &notes, failed_tool: failed, ..end });
        for payload in &mut payloads {
            payload.text = masker.mask(&payload.text).into_owned();
        }
        payloads
    }

    fn note(&mut self, kind: PayloadKind, text: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(Payload::new(kind, text));
        } else {
            self.left_out += 1;
        }
    }
}

/// What there is to read of a model's thoughts.
fn thought(said: &AssistantTurn) -> String {
    let blocks = said.thinking.iter().filter_map(|block| block["thinking"].as_str());
    let texts = std::iter::once(said.reasoning.as_str()).chain(blocks);
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// One line: `exec git status: ok`.
fn summary(call: &ToolCall, outcome: &ToolOutcome) -> String {
    let subject = call.arguments.values().find_map(|it| it.as_str()).unwrap_or_default();
    let line = subject.lines().next().unwrap_or_default().trim();
    let mut short: String = line.chars().take(SUBJECT_CHARS_MAX).collect();
    if short.len() < subject.trim_end().len() {
        short.push('…');
    }
    let gap = if short.is_empty() { "" } else { " " };
    let exit = match outcome.exit_code {
        Some(code) if code != 0 => format!(", exit code {code}"),
        Some(_) | None => String::new(),
    };
    format!("{}{gap}{short}: {}{exit}", call.name, outcome.verdict)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(tool: &str, arguments: serde_json::Value) -> ToolCall {
        let arguments = match arguments {
            serde_json::Value::Object(arguments) => arguments,
            _ => serde_json::Map::new(),
        };
        ToolCall { id: "c".into(), name: tool.into(), arguments }
    }

    fn outcome(verdict: Verdict, exit_code: Option<i32>) -> ToolOutcome {
        ToolOutcome { exit_code, ..ToolOutcome::new(verdict, "") }
    }

    fn end() -> Left<'static> {
        Left { reply: Some("NO_REPLY"), silent_token: "NO_REPLY", ..Left::default() }
    }

    fn texts(shown: &Shown) -> Vec<String> {
        let payloads = shown.payloads(end(), &Masker::default());
        payloads.into_iter().map(|it| format!("{}: {}", it.kind, it.text)).collect()
    }

    #[test]
    fn a_call_is_one_line() {
        let long = "x".repeat(100);
        let table = [
            (json!({"command": "git status"}), Verdict::Ok, Some(0), "exec git status: ok"),
            (json!({"command": "a\nb"}), Verdict::Error, Some(3), "exec a…: error, exit code 3"),
            (json!({}), Verdict::TimedOut, None, "exec: timed_out"),
            (
                json!({"n": 1, "command": long}),
                Verdict::Ok,
                None,
                &format!("exec {}…: ok", "x".repeat(80)),
            ),
        ];
        for (arguments, verdict, code, expected) in table {
            assert_eq!(summary(&call("exec", arguments), &outcome(verdict, code)), expected);
        }
    }

    // semantics §9: (+ reasoning when asked), (verbose and allowed).
    #[test]
    fn thoughts_and_tools_are_shown_to_those_who_ask() {
        let said = AssistantTurn {
            reasoning: "first".into(),
            thinking: vec![
                json!({"type": "thinking", "thinking": "then"}),
                json!({"type": "redacted_thinking"}),
            ],
            ..AssistantTurn::default()
        };
        let both = Manner {
            verbose: Verbosity::Verbose,
            reasoning: Reasoning::Blocks,
            ..Manner::default()
        };
        for (manner, expected) in [
            (Manner::default(), vec![]),
            (Manner { reasoning: Reasoning::Stream, ..Manner::default() }, vec![]),
            (
                both,
                vec!["reasoning: first\n\nthen".to_owned(), "tool_summary: read a.txt: ok".into()],
            ),
        ] {
            let mut shown = Shown::new(manner);
            shown.answered(&said);
            shown.called(&call("read", json!({"path": "a.txt"})), &outcome(Verdict::Ok, None));
            shown.called(&call("exec", json!({"command": "rm"})), &outcome(Verdict::Denied, None));
            assert_eq!(texts(&shown), expected);
            shown.forget();
            assert_eq!(texts(&shown), Vec::<String>::new());
        }
    }

    #[test]
    fn a_failure_stands_until_the_same_tool_succeeds() {
        let mut shown = Shown::new(Manner::default());
        shown.called(&call("exec", json!({"command": "x"})), &outcome(Verdict::Error, Some(1)));
        shown.called(&call("read", json!({})), &outcome(Verdict::Ok, None));
        assert_eq!(texts(&shown), ["error: a tool failed: exec x: error, exit code 1"]);
        shown.called(&call("exec", json!({"command": "y"})), &outcome(Verdict::Ok, Some(0)));
        assert_eq!(texts(&shown), Vec::<String>::new());
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let mut shown = Shown::new(Manner { verbose: Verbosity::Verbose, ..Manner::default() });
        for _ in 0..NOTES_MAX + 3 {
            shown.called(&call("read", json!({})), &outcome(Verdict::Ok, None));
        }
        let texts = texts(&shown);
        assert_eq!(texts.len(), NOTES_MAX + 1);
        assert_eq!(texts[NOTES_MAX], "tool_summary: [… 3 more are left out …]");
    }
}
