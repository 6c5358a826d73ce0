//! A request in the words of the messages API.

use serde_json::{Value, json};

use super::super::thinking;
use super::super::{AssistantTurn, Fault, Message, Request, ToolDefinition};
use super::cache::mark;

/// The API insists on an output limit.
const OUTPUT_TOKENS_DEFAULT: u32 = 4096;

/// The request's body. What is empty is left out.
pub(super) fn body(request: &Request) -> Result<Value, Fault> {
    let mut body = json!({"model": request.model, "stream": true});
    thinking::tell(&mut body, request, OUTPUT_TOKENS_DEFAULT)?;
    if !request.system.is_empty() {
        body["system"] = request.system.clone().into();
    }
    body["messages"] = messages(&request.messages).into();
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    mark(&mut body);
    Ok(body)
}

fn messages(conversation: &[Message]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::with_capacity(conversation.len());
    for message in conversation {
        match message {
            Message::User { text } => match results(&mut messages) {
                // The results of one turn's calls and what is said next are one message.
                Some(blocks) => blocks.push(text_block(text)),
                None => messages.push(json!({"role": "user", "content": text})),
            },
            Message::Assistant(turn) => messages.extend(assistant(turn)),
            Message::ToolResult { call_id, content, is_error, .. } => {
                let mut block =
                    json!({"type": "tool_result", "tool_use_id": call_id, "content": content});
                if *is_error {
                    block["is_error"] = true.into();
                }
                match results(&mut messages) {
                    Some(blocks) => blocks.push(block),
                    None => messages.push(json!({"role": "user", "content": [block]})),
                }
            }
        }
    }
    messages
}

/// The blocks of the last message, if it is one of tool results.
fn results(messages: &mut [Value]) -> Option<&mut Vec<Value>> {
    let last = messages.last_mut().filter(|message| message["role"] == "user")?;
    last["content"].as_array_mut()
}

/// An empty turn is left out: the API refuses it.
fn assistant(turn: &AssistantTurn) -> Option<Value> {
    let mut blocks = turn.thinking.clone();
    if !turn.text.is_empty() {
        blocks.push(text_block(&turn.text));
    }
    blocks.extend(turn.tool_calls.iter().map(|call| {
        json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments})
    }));
    (!blocks.is_empty()).then(|| json!({"role": "assistant", "content": blocks}))
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn tool(tool: &ToolDefinition) -> Value {
    let mut offer = json!({"name": tool.name});
    if !tool.description.is_empty() {
        offer["description"] = tool.description.clone().into();
    }
    offer["input_schema"] = tool.parameters.clone();
    offer
}

#[cfg(test)]
mod tests {
    use super::super::super::message::conversation;
    use super::*;

    #[test]
    fn a_small_request_is_small() {
        let marked = json!({"type": "ephemeral"});
        let hello = json!([{"type": "text", "text": "Say hello.", "cache_control": marked}]);
        let expected = json!({
            "model": "m",
            "max_tokens": 4096,
            "stream": true,
            "messages": [{"role": "user", "content": hello}],
        });
        assert_eq!(body(&Request::of_prompt("m", "Say hello.")), Ok(expected));
    }

    #[test]
    fn thinking_goes_first_and_unchanged_and_results_are_one_message() {
        let marked = json!({"type": "ephemeral"});
        let text = |text| json!([{"type": "text", "text": text, "cache_control": marked}]);
        let expected = json!({
            "model": "m",
            "max_tokens": 99,
            "stream": true,
            "system": text("be brief"),
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "", "signature": "sig"},
                    {"type": "redacted_thinking", "data": "opaque"},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                    {"type": "tool_use", "id": "c2", "name": "now", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "2"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "no clock",
                     "is_error": true},
                    {"type": "text", "text": "hurry", "cache_control": marked},
                ]},
                {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
                {"role": "user", "content": text("thanks")},
            ],
            "tools": [{"name": "add", "description": "adds", "input_schema": {"type": "object"},
                       "cache_control": marked}],
        });
        assert_eq!(body(&conversation()), Ok(expected));
    }
}
