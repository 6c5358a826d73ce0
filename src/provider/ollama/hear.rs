//! Ollama's lines: one JSON object each, the last one with `done`.

use serde_json::Value;

use super::super::answer::{Answer, Fragment};
use super::super::parser::{Ear, Flow};
use super::super::{Fault, Finish};

/// Hears lines. All that it remembers is in the answer.
pub(in crate::provider) struct OllamaEar;

impl Ear for OllamaEar {
    fn hear(&mut self, _event: &str, line: &Value, answer: &mut Answer) -> Result<Flow, Fault> {
        if let Some(error) = line.get("error").filter(|error| !error.is_null()) {
            return Err(answer.provider_fault(error));
        }
        let message = line.get("message").unwrap_or(&Value::Null);
        answer.reason(message["thinking"].as_str().unwrap_or_default())?;
        answer.say(message["content"].as_str().unwrap_or_default())?;
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            answer.fragment(&Fragment {
                // Calls come whole. An index inside `function` starts anew with each line.
                index: None,
                id: call["id"].as_str().unwrap_or_default(),
                name: function["name"].as_str().unwrap_or_default(),
                arguments: function.get("arguments"),
            })?;
        }
        let count = |key: &str| line.get(key).and_then(Value::as_u64);
        answer.usage.input_tokens = count("prompt_eval_count").or(answer.usage.input_tokens);
        answer.usage.output_tokens = count("eval_count").or(answer.usage.output_tokens);
        if line["done"] != true {
            return Ok(Flow::GoesOn);
        }
        let reason = line["done_reason"].as_str();
        answer.finish = Some(if reason == Some("length") { Finish::Length } else { Finish::Stop });
        Ok(Flow::Over)
    }
}
