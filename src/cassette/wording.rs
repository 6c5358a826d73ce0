//! A request as people read it: what is new in it since the request before.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::provider::{AssistantTurn, Exchange, Message, Request, ToolDefinition, Traffic};

/// What was asked of a model, and what answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakenRequest {
    /// `provider/model`.
    pub model: String,
    /// The upper bound of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// The window that the conversation was kept within, in tokens. It says how much of it is kept,
    /// and is not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// How many messages of the request before are there again, unchanged.
    pub kept: usize,
    /// The system prompt, where it is not that of the request before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The tools on offer as JSON, where they are not those of the request before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// The messages that are new.
    #[serde(default, rename = "message", skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<TakenMessage>,
    /// What came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Traffic>,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakenMessage {
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// The tool whose result it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The words.
    pub text: String,
    /// Reasoning, thinking blocks and tool calls as JSON, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
}

impl TakenRequest {
    /// The exchanges, each as what is new in it.
    pub(super) fn of(exchanges: &[Exchange]) -> Vec<Self> {
        let before = std::iter::once(None).chain(exchanges.iter().map(|it| Some(&it.request)));
        before.zip(exchanges).map(|(before, it)| Self::one(before, it)).collect()
    }

    fn one(before: Option<&Request>, exchange: &Exchange) -> Self {
        let request = &exchange.request;
        let past = before.map_or(&[][..], |it| &it.messages);
        let kept = past.iter().zip(request.messages.iter()).take_while(|(a, b)| a == b).count();
        let is_other_window = |it: &Request| it.context_window != request.context_window;
        let is_new_system = before.is_none_or(|it| it.system != request.system);
        let has_new_tools = before.is_none_or(|it| it.tools != request.tools);
        Self {
            model: exchange.model.clone(),
            max_output_tokens: request.max_output_tokens,
            context_window: request.context_window.filter(|_| before.is_none_or(is_other_window)),
            kept,
            system: is_new_system.then(|| request.system.clone()),
            tools: has_new_tools.then(|| tools(&request.tools)),
            messages: request.messages[kept..].iter().map(message).collect(),
            answer: exchange.answer.clone(),
        }
    }

    /// The tools on offer, where they are told.
    pub(super) fn offered(&self) -> Vec<ToolDefinition> {
        let all = self.tools.as_deref().map(serde_json::from_str::<Vec<Value>>);
        let one = |it: Value| {
            let text = |key| Some(it.get(key)?.as_str()?.to_owned());
            let parameters = it.get("parameters")?.clone();
            Some(ToolDefinition {
                name: text("name")?,
                description: text("description")?,
                parameters,
            })
        };
        all.and_then(Result::ok).into_iter().flatten().filter_map(one).collect()
    }

    /// The request as text, without what answered it.
    pub(super) fn text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!("model: {}\n", self.model);
        if let Some(limit) = self.max_output_tokens {
            let _ = writeln!(text, "max_output_tokens: {limit}");
        }
        if self.kept > 0 {
            let _ = writeln!(text, "messages as before: {}", self.kept);
        }
        let mut part = |name: &str, words: &str| {
            let _ = writeln!(text, "--- {name}\n{}", words.trim_end_matches('\n'));
        };
        for (name, words) in [("system", &self.system), ("tools", &self.tools)] {
            if let Some(words) = words {
                part(name, words);
            }
        }
        for message in &self.messages {
            match &message.tool {
                Some(tool) => part(&format!("result of {tool}"), &message.text),
                None => part(&message.role, &message.text),
            }
            if let Some(beside) = &message.beside {
                part(&format!("{}, beside it", message.role), beside);
            }
        }
        text
    }
}

fn tools(tools: &[ToolDefinition]) -> String {
    let one = |ToolDefinition { name, description, parameters }: &ToolDefinition| json!({"name": name, "description": description, "parameters": parameters});
    lines(&tools.iter().map(one).collect())
}

fn message(message: &Message) -> TakenMessage {
    let plain = |role: &str, text: &str| TakenMessage {
        role: role.to_owned(),
        tool: None,
        text: text.to_owned(),
        beside: None,
    };
    match message {
        Message::User { text } => plain("user", text),
        Message::Assistant(turn) => {
            TakenMessage { beside: beside(turn), ..plain("assistant", &turn.text) }
        }
        // Results come in the order of their calls.
        Message::ToolResult { call_id: _, name, content, is_error } => TakenMessage {
            tool: Some(name.clone()),
            beside: is_error.then(|| lines(&json!({"is_error": true}))),
            ..plain("tool", content)
        },
    }
}

/// The ids of calls are left out: where a server gives none, every run makes its own.
fn beside(turn: &AssistantTurn) -> Option<String> {
    let mut all = serde_json::to_value(turn).ok()?;
    let fields = all.as_object_mut()?;
    fields.shift_remove("text");
    let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
        call.shift_remove("id");
    }
    (!fields.is_empty()).then(|| lines(&all))
}

/// JSON over several lines, so that a change of it is a change of few.
fn lines(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
