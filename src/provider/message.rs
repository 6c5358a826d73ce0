//! The words of a conversation, apart from any API's way to write them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::job::Thinking;

/// One request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The model's id as the provider knows it.
    pub model: String,
    /// The system prompt; empty means none.
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Arc<Vec<Message>>,
    /// The tools on offer.
    pub tools: Arc<Vec<ToolDefinition>>,
    /// Upper bound of the answer in tokens; `None` leaves it to the provider.
    pub max_output_tokens: Option<u32>,
    /// How much to think.
    pub thinking: Thinking,
    /// The window that the conversation is kept within, in tokens, for those servers that have to be
    /// told; `None` leaves it to them.
    pub context_window: Option<u64>,
}

impl Request {
    /// A request of one prompt, without tools.
    pub fn of_prompt(model: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            system: String::new(),
            messages: Arc::new(vec![Message::User { text: prompt.into() }]),
            tools: Arc::default(),
            max_output_tokens: None,
            thinking: Thinking::Off,
            context_window: None,
        }
    }
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

impl ToolDefinition {
    /// A tool of that name; `parameters` is a JSON Schema of an object.
    pub fn new(name: &str, description: &str, parameters: Value) -> Self {
        Self { name: name.to_owned(), description: description.to_owned(), parameters }
    }
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
    /// Prompt and answer together, as far as they are known.
    pub fn tokens(self) -> u64 {
        self.input_tokens.unwrap_or(0).saturating_add(self.output_tokens.unwrap_or(0))
    }

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

impl Completion {
    /// A whole answer in words, for providers without a wire. Its usage is unknown.
    pub fn saying(text: impl Into<String>) -> Self {
        let turn = AssistantTurn { text: text.into(), ..AssistantTurn::default() };
        Self { turn, finish: Finish::Stop, usage: Usage::default() }
    }

    /// A call of one tool. `id` names it within its turn.
    pub fn calling(id: &str, tool: &str, arguments: Map<String, Value>) -> Self {
        let call = ToolCall { id: id.to_owned(), name: tool.to_owned(), arguments };
        let turn = AssistantTurn { tool_calls: vec![call], ..AssistantTurn::default() };
        Self { turn, finish: Finish::ToolCalls, usage: Usage::default() }
    }

    /// The stream that says this at once.
    pub fn stream(self) -> super::EventStream {
        let text = Some(self.turn.text.clone()).filter(|text| !text.is_empty());
        let said = text.map(|text| Ok(super::StreamEvent::Text(text)));
        let done = Ok(super::StreamEvent::Done(Box::new(self)));
        Box::pin(futures_util::stream::iter(said.into_iter().chain([done])))
    }
}

/// A conversation with all that one can hold, for the tests of each API's words.
#[cfg(test)]
pub(super) fn conversation() -> Request {
    use serde_json::json;

    let call = |id: &str, name: &str, arguments: Value| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
    };
    let result = |id: &str, name: &str, content: &str, is_error| Message::ToolResult {
        call_id: id.to_owned(),
        name: name.to_owned(),
        content: content.to_owned(),
        is_error,
    };
    let user = |text: &str| Message::User { text: text.to_owned() };
    Request {
        system: "be brief".to_owned(),
        messages: Arc::new(vec![
            user("go"),
            Message::Assistant(AssistantTurn {
                reasoning: "hm".to_owned(),
                thinking: vec![
                    json!({"type": "thinking", "thinking": "", "signature": "sig"}),
                    json!({"type": "redacted_thinking", "data": "opaque"}),
                ],
                tool_calls: vec![call("c1", "add", json!({"a": 1})), call("c2", "now", json!({}))],
                ..AssistantTurn::default()
            }),
            result("c1", "add", "2", false),
            result("c2", "now", "no clock", true),
            user("hurry"),
            Message::Assistant(AssistantTurn {
                text: "done".to_owned(),
                ..AssistantTurn::default()
            }),
            user("thanks"),
        ]),
        tools: Arc::new(vec![ToolDefinition {
            name: "add".to_owned(),
            description: "adds".to_owned(),
            parameters: json!({"type": "object"}),
        }]),
        max_output_tokens: Some(99),
        context_window: Some(8192),
        ..Request::of_prompt("m", "")
    }
}
