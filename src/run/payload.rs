//! What people are shown of a run, piece by piece.

use serde::{Deserialize, Serialize};

words!(
    /// What a payload is.
    PayloadKind {
        /// What the model, or the command, has to say.
        Text = "text",
        /// What the model thought.
        Reasoning = "reasoning",
        /// A tool that was called.
        ToolSummary = "tool_summary",
        /// Why there is no more.
        Error = "error",
    }
);

/// A piece of what is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// What it is.
    pub kind: PayloadKind,
    /// The words.
    pub text: String,
}

impl Payload {
    /// One of these words.
    pub fn new(kind: PayloadKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Whether it is the word for silence and nothing else.
    pub fn is_silence(&self, token: &str) -> bool {
        self.kind != PayloadKind::Error && is_silence(&self.text, token)
    }

    /// What is left of `payloads` when what they tell is found to be no success: what it says is
    /// no report.
    #[must_use]
    pub fn refused(mut payloads: Vec<Self>, why: &str) -> Vec<Self> {
        payloads.retain(|it| !matches!(it.kind, PayloadKind::Text | PayloadKind::Error));
        payloads.push(Self::new(PayloadKind::Error, why));
        payloads
    }

    /// Those of a run of which nothing is known but its reply and its error.
    pub fn plain(reply: Option<&str>, error: Option<&str>, silent_token: &str) -> Vec<Self> {
        let text = reply.map(|text| Self::new(PayloadKind::Text, text));
        let error = error.map(|text| Self::new(PayloadKind::Error, text));
        text.into_iter().chain(error).filter(|it| !it.is_silence(silent_token)).collect()
    }
}

/// Whether a text is the word for silence and nothing else (semantics §9): one place says so, so
/// that every way out of the house has the same answer.
fn is_silence(text: &str, token: &str) -> bool {
    text.trim().to_lowercase() == token.trim().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    // semantics §9: `NO_REPLY`, trimmed, in any case, as the whole of a payload; B123.
    #[test]
    fn silence_is_the_word_alone() {
        for silence in ["NO_REPLY", "NO_REPLY\n", "no_reply", "  No_Reply \n\n"] {
            assert!(is_silence(silence, "NO_REPLY"), "{silence:?}");
        }
        for speech in [
            "NO_REPLY.",
            "I say NO_REPLY here",
            "report\n\nNO_REPLY",
            "```\nNO_REPLY\n```",
            "`NO_REPLY`",
            "NO REPLY",
            "",
        ] {
            assert!(!is_silence(speech, "NO_REPLY"), "{speech:?}");
        }
    }

    #[test]
    fn what_is_no_success_keeps_what_was_done_and_not_what_was_said() {
        let all = PayloadKind::ALL.iter().map(|&kind| Payload::new(kind, kind.as_str())).collect();
        assert_eq!(
            Payload::refused(all, "too short"),
            [
                Payload::new(PayloadKind::Reasoning, "reasoning"),
                Payload::new(PayloadKind::ToolSummary, "tool_summary"),
                Payload::new(PayloadKind::Error, "too short"),
            ]
        );
    }
}
