//! How a turn thinks, and what of it is shown: `[agents.defaults]`, and the same keys of a job.

use std::str::FromStr;

use super::tree::Node;

words!(
    /// How much a model thinks before it speaks.
    Thinking {
        /// Not, or as little as it can.
        Off = "off",
        /// Hardly.
        Minimal = "minimal",
        /// A little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
        /// Very much.
        Xhigh = "xhigh",
    }
);

words!(
    /// Whether thoughts are shown.
    Reasoning {
        /// They are not.
        Off = "off",
        /// As events, while they come.
        Stream = "stream",
        /// As payloads of the result.
        Blocks = "blocks",
    }
);

words!(
    /// When a part of an answer is told as a whole.
    BlockStreaming {
        /// Never: an answer is told in pieces, and as a whole at its end.
        Off = "off",
        /// As soon as a text ends: at a call, at a thought, at the end of the answer.
        TextEnd = "text_end",
        /// When the answer has ended.
        MessageEnd = "message_end",
    }
);

/// Whether a result tells of the tools that were called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// It does not.
    #[default]
    Plain,
    /// It does.
    Verbose,
}

/// Whether every request and every answer is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tracing {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On,
}

/// How a turn thinks, and what of it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// How much the model thinks.
    pub thinking: Thinking,
    /// Whether tools are told of in the result.
    pub verbose: Verbosity,
    /// Whether requests and answers are kept.
    pub trace: Tracing,
    /// Whether thoughts are shown.
    pub reasoning: Reasoning,
    /// When a part of an answer is told as a whole.
    pub block_streaming: BlockStreaming,
}

impl Default for Manner {
    /// The contract's defaults.
    fn default() -> Self {
        Self {
            thinking: Thinking::Off,
            verbose: Verbosity::Plain,
            trace: Tracing::Off,
            reasoning: Reasoning::Off,
            block_streaming: BlockStreaming::Off,
        }
    }
}

/// The keys have been checked: what is no word of theirs has been refused.
fn word<T: FromStr>(root: &Node, key: &str) -> Option<T> {
    root.text(key)?.parse().ok()
}

impl Manner {
    /// What is written below `table`; what is not is as it is here.
    #[must_use]
    pub(crate) fn read(self, root: &Node, table: &str) -> Self {
        let key = |name: &str| format!("{table}.{name}");
        let switch = |name: &str| root.bool(&key(name));
        Self {
            thinking: word(root, &key("thinking")).unwrap_or(self.thinking),
            verbose: match switch("verbose") {
                None => self.verbose,
                Some(false) => Verbosity::Plain,
                Some(true) => Verbosity::Verbose,
            },
            trace: match switch("trace") {
                None => self.trace,
                Some(false) => Tracing::Off,
                Some(true) => Tracing::On,
            },
            reasoning: word(root, &key("reasoning")).unwrap_or(self.reasoning),
            block_streaming: word(root, &key("block_streaming")).unwrap_or(self.block_streaming),
        }
    }

    /// The keys and their values, as `show --effective` prints them.
    pub(super) fn entries(self) -> [(&'static str, serde_json::Value); 5] {
        [
            ("thinking", self.thinking.as_str().into()),
            ("verbose", (self.verbose == Verbosity::Verbose).into()),
            ("trace", (self.trace == Tracing::On).into()),
            ("reasoning", self.reasoning.as_str().into()),
            ("block_streaming", self.block_streaming.as_str().into()),
        ]
    }
}
