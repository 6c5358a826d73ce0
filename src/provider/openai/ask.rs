//! A request in the words of chat completions.

use serde_json::{Value, json};

use super::super::thinking::{Speaker, effort};
use super::super::{AssistantTurn, Message, Request, ToolDefinition};

/// The request's body. What is empty is left out.
pub(super) fn body(request: &Request, speaker: Speaker) -> Value {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    messages.extend(request.messages.iter().map(message));
    let mut body = json!({
        "model": request.model,
        "messages": messages,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(limit) = request.max_output_tokens {
        let key = match speaker {
            // Nearly every server knows this one; `OpenAI`'s newer models refuse it.
            Speaker::Alike | Speaker::OpenRouter => "max_tokens",
            Speaker::OpenAi => "max_completion_tokens",
        };
        body[key] = limit.into();
    }
    if let Some(effort) = effort(speaker, &request.model, request.thinking) {
        body["reasoning_effort"] = effort.into();
    }
    body
}

fn message(message: &Message) -> Value {
    match message {
        Message::User { text } => json!({"role": "user", "content": text}),
        Message::Assistant(turn) => assistant(turn),
        Message::ToolResult { call_id, content, .. } => {
            json!({"role": "tool", "tool_call_id": call_id, "content": content})
        }
    }
}

fn assistant(turn: &AssistantTurn) -> Value {
    if turn.tool_calls.is_empty() {
        return json!({"role": "assistant", "content": turn.text});
    }
    // Servers differ on a missing `content`; all of them take null beside calls.
    let content = if turn.text.is_empty() { Value::Null } else { turn.text.clone().into() };
    let mut message = json!({"role": "assistant", "content": content});
    if !turn.reasoning.is_empty() {
        message["reasoning_content"] = turn.reasoning.clone().into();
    }
    let call = |call: &super::super::ToolCall| {
        let arguments = Value::Object(call.arguments.clone()).to_string();
        let function = json!({"name": call.name, "arguments": arguments});
        json!({"id": call.id, "type": "function", "function": function})
    };
    message["tool_calls"] = turn.tool_calls.iter().map(call).collect();
    message
}

/// A tool on offer; Ollama takes the same form.
pub(in crate::provider) fn tool(tool: &ToolDefinition) -> Value {
    let mut function = json!({"name": tool.name});
    if !tool.description.is_empty() {
        function["description"] = tool.description.clone().into();
    }
    function["parameters"] = tool.parameters.clone();
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests {
    use super::super::super::message::conversation;
    use super::*;

    #[test]
    fn a_small_request_is_small() {
        let request = Request::of_prompt("m", "Say hello.");
        let expected = json!({
            "model": "m",
            "messages": [{"role": "user", "content": "Say hello."}],
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        assert_eq!(body(&request, Speaker::Alike), expected);
    }

    #[test]
    fn a_conversation_with_calls_goes_back_whole() {
        let found = body(&conversation(), Speaker::OpenAi);
        let expected = json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
                    {"id": "c1", "type": "function",
                     "function": {"name": "add", "arguments": "{\"a\":1}"}},
                    {"id": "c2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
                {"role": "tool", "tool_call_id": "c2", "content": "no clock"},
                {"role": "user", "content": "hurry"},
                {"role": "assistant", "content": "done"},
                {"role": "user", "content": "thanks"},
            ],
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {
                "name": "add", "description": "adds", "parameters": {"type": "object"},
            }}],
            "max_completion_tokens": 99,
        });
        assert_eq!(found, expected);
    }
}
