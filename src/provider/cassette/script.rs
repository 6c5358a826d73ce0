//! The answers of a scripted model, written as chat completions: it has no wire of its own.

use serde_json::{Value, json};

use super::super::{Completion, Fault, Finish, ToolCall};
use super::tape::{Dialect, Traffic, break_of};

/// A whole answer.
pub(super) fn answer(completion: &Completion) -> Traffic {
    let mut body = said(&completion.turn.text, &completion.turn.reasoning);
    for (index, call) in completion.turn.tool_calls.iter().enumerate() {
        body += &event(&delta(&json!({"tool_calls": [tool_call(index, call)]}), None));
    }
    body += &event(&delta(&json!({}), Some(word(completion.finish))));
    let usage = completion.usage;
    let usage = json!({
        "prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens,
    });
    body += &event(&json!({"choices": [], "usage": usage}));
    body += "data: [DONE]\n\n";
    stream(body)
}

/// An answer that broke off.
pub(super) fn broken(fault: &Fault) -> Traffic {
    Traffic { broke: Some(break_of(fault)), ..stream(said(&fault.partial_text, "")) }
}

/// A refusal with a status.
pub(super) fn refusal(status: u16, fault: &Fault) -> Traffic {
    let body = json!({"error": {"message": fault.message, "type": fault.code}}).to_string();
    Traffic {
        status: Some(status),
        content_type: "application/json".to_owned(),
        retry_after: fault.retry_after.map(|wait| wait.as_secs_f64()),
        ..stream(body)
    }
}

fn stream(body: String) -> Traffic {
    Traffic {
        api: Dialect::Script,
        status: Some(200),
        content_type: "text/event-stream".to_owned(),
        retry_after: None,
        body,
        broke: None,
    }
}

fn said(text: &str, reasoning: &str) -> String {
    let piece = |key: &str, words: &str| match words {
        "" => String::new(),
        words => event(&delta(&json!({ key: words }), None)),
    };
    piece("reasoning_content", reasoning) + &piece("content", text)
}

fn tool_call(index: usize, call: &ToolCall) -> Value {
    let arguments = Value::Object(call.arguments.clone()).to_string();
    let function = json!({"name": call.name, "arguments": arguments});
    json!({"index": index, "id": call.id, "type": "function", "function": function})
}

fn delta(delta: &Value, finish: Option<&str>) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

const fn word(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
    }
}
