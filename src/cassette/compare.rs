//! The judgement: what is different between the run that was expected and the one that was found.

use std::fmt::Write as _;

use serde::Serialize;
use similar::TextDiff;

use super::file::{Cassette, End, TakenCheck};
use super::wording::TakenRequest;
use crate::tools::TakenCall;

/// Lines around a change that are shown with it.
const CONTEXT_LINES: usize = 3;

/// Something that is different.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where: `request 1`, `call 2`, `checks`, `reply`, `end`.
    pub what: String,
    /// In one line.
    pub words: String,
    /// The recorded text; `null` if there is none.
    pub expected: Option<String>,
    /// The text of now; `null` if there is none.
    pub found: Option<String>,
    /// One against the other, as a unified diff.
    pub diff: String,
}

/// What is different between a recorded run and the one that its cassette was played to; empty if
/// nothing is.
pub fn compare(expected: &Cassette, found: &Cassette) -> Vec<Difference> {
    let mut all = Vec::new();
    let requests = (&*expected.requests, &*found.requests);
    all.extend(in_order("request", requests, TakenRequest::text, |both| match both {
        Both::Changed => {
            "the model is asked something else: the recorded answer does not answer it"
        }
        Both::Missing => "the model was asked this, and is not any more",
        Both::New => "the model is asked this, and the cassette has no answer to it",
    }));
    let calls = (&*expected.calls, &*found.calls);
    all.extend(in_order("call", calls, call, |both| match both {
        Both::Changed => "the tool call, or what comes of it, has changed",
        Both::Missing => "this tool was called, and is not any more",
        Both::New => "this tool is called, and was not",
    }));
    let texts = [
        (
            "checks",
            "the checks find something else",
            checks(&expected.checks),
            checks(&found.checks),
        ),
        ("reply", "the reply has changed", reply(&expected.end), reply(&found.end)),
        (
            "end",
            "the run ends otherwise, or uses more or less",
            Some(end(&expected.end)),
            Some(end(&found.end)),
        ),
    ];
    for (what, words, expected, found) in texts {
        all.extend(difference(what.to_owned(), words, expected, found));
    }
    all
}

/// How two entries at one place differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Both {
    Changed,
    Missing,
    New,
}

fn in_order<T>(
    what: &str,
    (expected, found): (&[T], &[T]),
    text: impl Fn(&T) -> String,
    words: impl Fn(Both) -> &'static str,
) -> Vec<Difference> {
    let places = 0..expected.len().max(found.len());
    let one = |at: usize| {
        let (expected, found) = (expected.get(at).map(&text), found.get(at).map(&text));
        let both = match (&expected, &found) {
            (Some(_), None) => Both::Missing,
            (None, Some(_)) => Both::New,
            _ => Both::Changed,
        };
        difference(format!("{what} {}", at + 1), words(both), expected, found)
    };
    places.filter_map(one).collect()
}

fn difference(
    what: String,
    words: &str,
    expected: Option<String>,
    found: Option<String>,
) -> Option<Difference> {
    if expected == found {
        return None;
    }
    let text = |side: &Option<String>| {
        // A last line without an end would be said to lack it.
        let text = side.clone().unwrap_or_default();
        if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
    };
    let (old, new) = (text(&expected), text(&found));
    let lines = TextDiff::from_lines(&old, &new);
    let mut diff = lines.unified_diff();
    diff.context_radius(CONTEXT_LINES).header("expected", "found");
    Some(Difference { what, words: words.to_owned(), diff: diff.to_string(), expected, found })
}

fn call(call: &TakenCall) -> String {
    let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
    let mut text = format!("{} {arguments}\noutcome: {}\n", call.tool, call.verdict);
    if let Some(code) = call.exit_code {
        let _ = writeln!(text, "exit code: {code}");
    }
    text + call.content.trim_end_matches('\n') + "\n"
}

fn checks(checks: &[TakenCheck]) -> Option<String> {
    let line = |check: &TakenCheck| {
        let detail = check.detail.as_ref().map(|words| format!(": {words}")).unwrap_or_default();
        format!("{} {}{detail}\n", check.name, if check.passed { "passed" } else { "failed" })
    };
    (!checks.is_empty()).then(|| checks.iter().map(line).collect())
}

fn reply(end: &End) -> Option<String> {
    end.reply.clone()
}

fn end(end: &End) -> String {
    let End {
        state,
        // It has a place of its own.
        reply: _,
        error_kind,
        error_message,
        limit,
        input_tokens,
        output_tokens,
        usd,
        tool_errors,
        denied_calls,
        checks: _,
        calls,
        requests,
    } = end;
    let known = |count: Option<i64>| count.map_or("unknown".to_owned(), |it| it.to_string());
    let mut text = format!("state: {state}\n");
    if let Some(kind) = error_kind {
        let words = error_message.as_deref().unwrap_or_default();
        let _ = writeln!(text, "error: {kind}: {words}");
    }
    if let Some(limit) = limit {
        let _ = writeln!(text, "limit: {limit}");
    }
    let _ = writeln!(text, "requests: {requests}");
    let _ = writeln!(text, "input tokens: {}", known(*input_tokens));
    let _ = writeln!(text, "output tokens: {}", known(*output_tokens));
    let usd = usd.map_or("unknown".to_owned(), |usd| format!("{usd:.6}"));
    let _ = writeln!(text, "usd: {usd}");
    let _ = writeln!(text, "tool calls: {calls} ({tool_errors} failed, {denied_calls} refused)");
    text
}
