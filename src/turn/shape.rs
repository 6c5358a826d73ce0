//! From what a turn has left to what people are shown of it (semantics §9, "Final payloads").

use crate::run::{Payload, PayloadKind};

/// What a turn has left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Left<'a> {
    /// Thoughts and tools to be shown, in the order in which they came; none that nobody asked for.
    pub notes: &'a [Payload],
    /// What it says in the end.
    pub reply: Option<&'a str>,
    /// Why it does not.
    pub error: Option<&'a str>,
    /// The reply that means silence.
    pub silent_token: &'a str,
    /// What messages have told already wherever it goes.
    pub sent: &'a [String],
    /// How many messages went out.
    pub messages: usize,
    /// What a tool failed at that did not succeed later.
    pub failed_tool: Option<&'a str>,
}

/// The payloads. None is silence: nothing is sent, and the run has succeeded all the same.
pub fn shape(left: Left<'_>) -> Vec<Payload> {
    let Left { notes, reply, error, silent_token, sent, messages, failed_tool } = left;
    let mut payloads = notes.to_vec();
    payloads.extend(Payload::plain(reply, error, silent_token));
    payloads.retain(|it| !it.is_silence(silent_token) && !is_sent(it, sent));
    match failed_tool {
        Some(words) if payloads.is_empty() && messages == 0 => {
            vec![Payload::new(PayloadKind::Error, words)]
        }
        _ => payloads,
    }
}

/// Whether a message has told the same, whatever its spaces.
fn is_sent(payload: &Payload, sent: &[String]) -> bool {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    payload.kind == PayloadKind::Text && {
        let text = words(&payload.text);
        sent.iter().any(|it| words(it) == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT: &str = "NO_REPLY";

    fn left() -> Left<'static> {
        Left { silent_token: SILENT, ..Left::default() }
    }

    // semantics §9, each row of "Final payloads" by its words.
    #[test]
    fn final_payloads() {
        use PayloadKind::{Error, Reasoning, Text, ToolSummary};
        let notes = [Payload::new(Reasoning, "hm"), Payload::new(ToolSummary, "exec `ls`: ok")];
        let silent_notes = [Payload::new(Reasoning, "no_reply"), Payload::new(ToolSummary, "x")];
        let sent = ["The  report\n".to_owned()];
        let table = [
            ("assistant text", Left { reply: Some("fine"), ..left() }, vec![(Text, "fine")]),
            (
                "+ reasoning when asked + inline tool summaries",
                Left { reply: Some("fine"), notes: &notes, ..left() },
                vec![(Reasoning, "hm"), (ToolSummary, "exec `ls`: ok"), (Text, "fine")],
            ),
            (
                "+ the error text when the model failed",
                Left { error: Some("cut"), notes: &notes, ..left() },
                vec![(Reasoning, "hm"), (ToolSummary, "exec `ls`: ok"), (Error, "cut")],
            ),
            (
                "NO_REPLY, trimmed, in any case",
                Left { reply: Some(" no_Reply\n"), ..left() },
                vec![],
            ),
            (
                "as the whole of a payload",
                Left { reply: Some("all well, NO_REPLY"), ..left() },
                vec![(Text, "all well, NO_REPLY")],
            ),
            (
                "removes that payload",
                Left { reply: Some(SILENT), notes: &silent_notes, ..left() },
                vec![(ToolSummary, "x")],
            ),
            ("none left is silence", left(), vec![]),
            (
                "an error is never silence",
                Left { error: Some(SILENT), ..left() },
                vec![(Error, SILENT)],
            ),
            (
                "what a messaging tool already sent is not sent again",
                Left { reply: Some("The report"), sent: &sent, ..left() },
                vec![],
            ),
            (
                "and anything else is",
                Left { reply: Some("The reports"), sent: &sent, ..left() },
                vec![(Text, "The reports")],
            ),
            (
                "nothing left to show and a tool failed: one fallback error reply",
                Left { reply: Some(SILENT), failed_tool: Some("exec failed"), ..left() },
                vec![(Error, "exec failed")],
            ),
            (
                "unless a message already went out",
                Left {
                    reply: Some(SILENT),
                    failed_tool: Some("exec failed"),
                    messages: 1,
                    ..left()
                },
                vec![],
            ),
            (
                "something to show, and a tool failed",
                Left { reply: Some("fine"), failed_tool: Some("exec failed"), ..left() },
                vec![(Text, "fine")],
            ),
        ];
        for (row, left, expected) in table {
            let expected: Vec<_> =
                expected.into_iter().map(|(kind, text)| Payload::new(kind, text)).collect();
            assert_eq!(shape(left), expected, "{row}");
        }
    }
}
