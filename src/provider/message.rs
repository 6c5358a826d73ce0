//! The words of a conversation, apart from any API's way to write them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The model's id as the provider knows it.
    pub model: String,
    /// The system prompt; empty means none.
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// The tools on offer.
    pub tools: Vec<ToolDefinition>,
    /// Upper bound of the answer in tokens; `None` leaves it to the provider.
    pub max_output_tokens: Option<u32>,
}

/// One entry of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// From the person or the job.
    User {
        /// The text.
        text: String,
    },
    /// From the model.
    Assistant(AssistantTurn),
    /// What a tool returned.
    ToolResult {
        /// The call's id.
        call_id: String,
        /// The tool's name.
        name: String,
        /// What it returned.
        content: String,
        /// Whether it failed or was refused.
        is_error: bool,
    },
}

/// What a model said in one response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantTurn {
    /// The answer text.
    pub text: String,
    /// Reasoning text (`reasoning_content`); sent back with tool results where the API wants it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// Thinking blocks with their signatures, verbatim: they go back unchanged and in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinking: Vec<Value>,
    /// The calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

/// One tool call, complete and parsed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id, or one made here; unique in the turn.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

/// A tool as it is offered to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It was done.
    Stop,
    /// It wants tools.
    ToolCalls,
    /// The output limit cut it.
    Length,
    /// The provider refused.
    ContentFilter,
}

/// Tokens of one request, as the provider reports them. The last value wins; never summed within
/// a stream. `None` is unknown, not zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens, cache included.
    pub input_tokens: Option<u64>,
    /// Answer tokens.
    pub output_tokens: Option<u64>,
    /// Prompt tokens read from a cache.
    pub cache_read_tokens: Option<u64>,
    /// Prompt tokens written to a cache.
    pub cache_write_tokens: Option<u64>,
}

impl Usage {
    /// The sum over two requests: known plus unknown is what is known.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        Self {
            input_tokens: sum(self.input_tokens, other.input_tokens),
            output_tokens: sum(self.output_tokens, other.output_tokens),
            cache_read_tokens: sum(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens: sum(self.cache_write_tokens, other.cache_write_tokens),
        }
    }
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// What was said.
    pub turn: AssistantTurn,
    /// Why it stopped.
    pub finish: Finish,
    /// What it cost in tokens.
    pub usage: Usage,
}
