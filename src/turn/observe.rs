//! What a turn tells those who watch it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::drive::{Model, Turn};
use crate::hooks::Blocked;
use crate::run::{MessageId, Phase};
use crate::tools::{ToolOutcome, Update};

/// Watches a turn. Calls must not block: a turn never waits for its watchers.
pub trait Observer: Send + Sync {
    /// The turn has come to `phase`.
    fn entered(&self, phase: Phase);

    /// The head of the model's response is here.
    fn opened(&self);

    /// A sign of progress: a piece of text, of reasoning, of a tool call.
    fn pulse(&self);

    /// Something to show.
    fn tell(&self, event: TurnEvent<'_>);

    /// Drives `turn`, the part of the work that the `n`th call has opened, `within` that time, and
    /// keeps the limits of its requests: the turn around it is a tool at work meanwhile.
    fn drive_part<'a>(
        &'a self,
        n: u32,
        turn: &'a mut Turn,
        model: &'a Model,
        within: Duration,
    ) -> BoxFuture<'a, Result<String, PartEnd>>;
}

/// Why a part ended without an answer, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartEnd {
    /// By a hook that has ended the run.
    Blocked(Blocked),
    /// By itself.
    Failed(String),
    /// By a limit.
    Cut(String),
}

words!(
    /// Why a conversation is shortened.
    CompactionCause {
        /// It would leave too little room for an answer.
        Threshold = "threshold",
        /// The provider has refused it as too long.
        Overflow = "overflow",
    }
);

/// Something to show.
#[derive(Debug)]
pub enum TurnEvent<'a> {
    /// A request is on its way.
    AssistantStart {
        /// 1 for the first request of the turn.
        request: u32,
    },
    /// A piece of the answer.
    Text(&'a str),
    /// A piece of reasoning.
    Reasoning(&'a str),
    /// The text so far stands: a call, a thought or the end of the answer has come.
    TextEnd,
    /// An answer is complete.
    AssistantEnd {
        /// Its text.
        text: &'a str,
        /// Tokens of the turn so far: prompt and answer.
        input_tokens: Option<u64>,
        /// Answer tokens of the turn so far.
        output_tokens: Option<u64>,
    },
    /// The older part of the conversation is about to be summarised. What was shown of an answer
    /// that was refused for its length is void.
    CompactionStart {
        /// Why.
        cause: CompactionCause,
        /// How long the conversation is.
        tokens: u64,
    },
    /// It was.
    CompactionEnd {
        /// Why.
        cause: CompactionCause,
        /// How long the conversation was.
        tokens_before: u64,
        /// How long it is.
        tokens_after: u64,
    },
    /// It could not be.
    CompactionError {
        /// Why it should have been.
        cause: CompactionCause,
        /// Why it was not.
        why: &'a str,
    },
    /// What people have said meanwhile goes to the model with the next request.
    Heard {
        /// Which messages that is.
        ids: &'a [MessageId],
    },
    /// A tool call begins.
    ToolStart {
        /// 1 for the first call of the turn.
        n: u32,
        /// Its name.
        tool: &'a str,
        /// Its arguments.
        arguments: &'a Map<String, Value>,
    },
    /// It goes on.
    ToolUpdate {
        /// Which one.
        n: u32,
        /// Its name.
        tool: &'a str,
        /// How far it has come.
        update: &'a Update,
    },
    /// It ended.
    ToolEnd {
        /// Which one.
        n: u32,
        /// Its name.
        tool: &'a str,
        /// How.
        outcome: &'a ToolOutcome,
        /// When it began.
        started_at: Timestamp,
        /// How long it took.
        duration: Duration,
    },
}
