//! Chat completion chunks, with the habits of those who speak like `OpenAI`.

use serde_json::Value;

use super::super::answer::{Answer, Fragment};
use super::super::parser::{Ear, Flow};
use super::super::{Fault, FaultClass, Finish, Usage};

/// Hears chunks (`delta`) and whole answers (`message`) alike. All that it remembers is in the
/// answer.
pub(in crate::provider) struct OpenAiEar;

impl Ear for OpenAiEar {
    fn hear(&mut self, event: &str, payload: &Value, answer: &mut Answer) -> Result<Flow, Fault> {
        hear_usage(payload.get("usage"), &mut answer.usage);
        if let Some(error) = error_of(event, payload) {
            return Err(answer.provider_fault(error));
        }
        // Missing, empty (usage, content filter preamble) or with more than the one we asked for.
        let choices = payload.get("choices").and_then(Value::as_array);
        let first = choices
            .into_iter()
            .flatten()
            .find(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0);
        if let Some(choice) = first {
            hear_choice(choice, answer)?;
        }
        Ok(Flow::GoesOn)
    }
}

fn error_of<'a>(event: &str, payload: &'a Value) -> Option<&'a Value> {
    match payload.get("error") {
        Some(error) if !error.is_null() => Some(error),
        _ if event == "error" => Some(payload),
        // vLLM puts the error where the chunk would be.
        _ => (payload.get("object").and_then(Value::as_str) == Some("error")).then_some(payload),
    }
}

fn hear_choice(choice: &Value, answer: &mut Answer) -> Result<(), Fault> {
    if let Some(error) = choice.get("error").filter(|error| !error.is_null()) {
        return Err(answer.provider_fault(error));
    }
    let said = ["delta", "message"].iter().find_map(|key| choice.get(key)).unwrap_or(&Value::Null);
    // Some send both spellings, with the same words in them.
    let reasoning = ["reasoning_content", "reasoning"].iter().find_map(|key| text(said, key));
    answer.reason(reasoning.unwrap_or_default())?;
    hear_content(said.get("content"), answer)?;
    if let Some(refusal) = text(said, "refusal") {
        answer.say(refusal)?;
        answer.refused = true;
    }
    for call in said.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        hear_call(call, call.get("function").unwrap_or(&Value::Null), answer)?;
    }
    // The form before there were several calls.
    if let Some(call) = said.get("function_call").filter(|call| call.is_object()) {
        hear_call(&Value::Null, call, answer)?;
    }
    match text(choice, "finish_reason") {
        Some(reason) => hear_finish(reason, answer),
        None => Ok(()),
    }
}

/// Content is text, or a list of parts of which some may be thinking.
fn hear_content(content: Option<&Value>, answer: &mut Answer) -> Result<(), Fault> {
    match content {
        Some(Value::String(text)) => answer.say(text),
        Some(Value::Array(parts)) => {
            for part in parts {
                answer.say(text(part, "text").unwrap_or_default())?;
                for thought in part.get("thinking").and_then(Value::as_array).into_iter().flatten()
                {
                    answer.reason(text(thought, "text").unwrap_or_default())?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn hear_call(call: &Value, function: &Value, answer: &mut Answer) -> Result<(), Fault> {
    answer.fragment(&Fragment {
        index: call.get("index").and_then(Value::as_u64),
        id: text(call, "id").unwrap_or_default(),
        name: text(function, "name").unwrap_or_default(),
        arguments: function.get("arguments"),
    })
}

fn hear_finish(reason: &str, answer: &mut Answer) -> Result<(), Fault> {
    let finish = match reason.to_ascii_lowercase().as_str() {
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" | "refusal" | "safety" => Finish::ContentFilter,
        "tool_calls" | "function_call" | "tool_use" => Finish::ToolCalls,
        "error" => {
            let message = "the server ended the answer with the finish reason `error`";
            let code = Some("server_error".to_owned());
            return Err(Fault { code, ..answer.fault(FaultClass::ServerError, message) });
        }
        "insufficient_system_resource" => {
            let message =
                "the server ended the answer with the finish reason `insufficient_system_resource`";
            let code = Some(reason.to_owned());
            return Err(Fault { code, ..answer.fault(FaultClass::Overloaded, message) });
        }
        "abort" | "aborted" | "cancelled" => {
            let message = format!("the server ended the answer with the finish reason `{reason}`");
            return Err(answer.fault(FaultClass::IncompleteStream, message));
        }
        // Every server has its own words for a good end.
        _ => Finish::Stop,
    };
    answer.finish = Some(finish);
    Ok(())
}

fn hear_usage(reported: Option<&Value>, usage: &mut Usage) {
    let Some(reported) = reported.filter(|reported| reported.is_object()) else { return };
    let count = |path: &str| reported.pointer(path).and_then(Value::as_u64);
    usage.input_tokens = count("/prompt_tokens").or(usage.input_tokens);
    usage.output_tokens = count("/completion_tokens").or(usage.output_tokens);
    usage.cache_read_tokens =
        count("/prompt_tokens_details/cached_tokens").or(usage.cache_read_tokens);
}

/// A text that is there and not empty.
fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}
