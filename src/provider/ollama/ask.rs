//! A request in the words of Ollama's chat API.

use serde_json::{Value, json};

use super::super::openai::tool;
use super::super::thinking;
use super::super::{AssistantTurn, Message, Request};

/// The request's body. What is empty is left out.
pub(super) fn body(request: &Request) -> Value {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    messages.extend(request.messages.iter().map(message));
    let think = thinking::think(&request.model, request.thinking);
    let mut body =
        json!({"model": request.model, "messages": messages, "stream": true, "think": think});
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(limit) = request.max_output_tokens {
        body["options"]["num_predict"] = limit.into();
    }
    if let Some(window) = request.context_window {
        body["options"]["num_ctx"] = window.into();
        // Otherwise what is too long loses its beginning, and nobody is told.
        body["truncate"] = false.into();
        body["shift"] = false.into();
    }
    body
}

fn message(message: &Message) -> Value {
    match message {
        Message::User { text } => json!({"role": "user", "content": text}),
        Message::Assistant(turn) => assistant(turn),
        Message::ToolResult { name, content, .. } => {
            json!({"role": "tool", "tool_name": name, "content": content})
        }
    }
}

fn assistant(turn: &AssistantTurn) -> Value {
    let mut message = json!({"role": "assistant", "content": turn.text});
    if turn.tool_calls.is_empty() {
        return message;
    }
    if !turn.reasoning.is_empty() {
        message["thinking"] = turn.reasoning.clone().into();
    }
    message["tool_calls"] = turn
        .tool_calls
        .iter()
        .map(|call| json!({"function": {"name": call.name, "arguments": call.arguments}}))
        .collect();
    message
}

#[cfg(test)]
mod tests {
    use super::super::super::message::conversation;
    use super::*;

    #[test]
    fn a_small_request_is_small() {
        let expected = json!({
            "model": "m",
            "messages": [{"role": "user", "content": "Say hello."}],
            "stream": true,
            "think": false,
        });
        assert_eq!(body(&Request::of_prompt("m", "Say hello.")), expected);
    }

    #[test]
    fn calls_and_results_go_back() {
        let expected = json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
                    {"function": {"name": "add", "arguments": {"a": 1}}},
                    {"function": {"name": "now", "arguments": {}}},
                ]},
                {"role": "tool", "tool_name": "add", "content": "2"},
                {"role": "tool", "tool_name": "now", "content": "no clock"},
                {"role": "user", "content": "hurry"},
                {"role": "assistant", "content": "done"},
                {"role": "user", "content": "thanks"},
            ],
            "stream": true,
            "think": false,
            "tools": [{"type": "function", "function": {
                "name": "add", "description": "adds", "parameters": {"type": "object"},
            }}],
            "options": {"num_predict": 99, "num_ctx": 8192},
            "truncate": false,
            "shift": false,
        });
        assert_eq!(body(&conversation()), expected);
    }
}
