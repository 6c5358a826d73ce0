//! The events of a message: blocks that open, grow and close.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::answer::{Answer, Fragment};
use super::super::parser::{Ear, Flow};
use super::super::{Fault, Finish};

/// An open block that grows. Text needs no memory, and other kinds mean nothing here.
#[derive(Debug, Clone, Copy)]
enum Block {
    /// With the place where the answer keeps it.
    Thinking(usize),
    Tool,
}

/// Hears events, and a whole message where a server does not stream.
#[derive(Debug, Default)]
pub(in crate::provider) struct AnthropicEar {
    blocks: HashMap<u64, Block>,
    counts: Counts,
}

/// Token counts as they are reported: the input apart from what a cache had or took.
#[derive(Debug, Default)]
struct Counts {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
}

impl Ear for AnthropicEar {
    fn hear(&mut self, event: &str, payload: &Value, answer: &mut Answer) -> Result<Flow, Fault> {
        let kind = payload.get("type").and_then(Value::as_str).unwrap_or(event);
        let part = |key: &str| payload.get(key).unwrap_or(&Value::Null);
        match kind {
            "message_start" => self.hear_usage(&part("message")["usage"], answer),
            "content_block_start" => {
                self.open_block(index(payload), part("content_block"), answer)?;
            }
            "content_block_delta" => self.grow_block(index(payload), part("delta"), answer)?,
            "content_block_stop" => {
                self.blocks.remove(&index(payload));
            }
            "message_delta" => {
                self.hear_usage(part("usage"), answer);
                hear_stop(part("delta"), answer);
            }
            "message_stop" => return Ok(Flow::Over),
            "message" => {
                let blocks = part("content").as_array().into_iter().flatten();
                for (index, block) in (0..).zip(blocks) {
                    self.open_block(index, block, answer)?;
                }
                self.hear_usage(part("usage"), answer);
                hear_stop(payload, answer);
            }
            _ => {
                let error = payload.get("error").filter(|error| !error.is_null());
                let error = error.or_else(|| (kind == "error").then_some(payload));
                if let Some(error) = error {
                    return Err(answer.provider_fault(error));
                }
            }
        }
        Ok(Flow::GoesOn)
    }
}

impl AnthropicEar {
    fn open_block(&mut self, index: u64, block: &Value, answer: &mut Answer) -> Result<(), Fault> {
        let opened = match block["type"].as_str() {
            Some("text") => return answer.say(block["text"].as_str().unwrap_or_default()),
            Some("thinking" | "redacted_thinking") => {
                answer.show_thinking(block["thinking"].as_str().unwrap_or_default())?;
                Block::Thinking(answer.add_thinking(block.clone())?)
            }
            Some("tool_use") => {
                answer.fragment(&Fragment {
                    index: Some(index),
                    id: block["id"].as_str().unwrap_or_default(),
                    name: block["name"].as_str().unwrap_or_default(),
                    arguments: block.get("input"),
                })?;
                Block::Tool
            }
            _ => return Ok(()),
        };
        self.blocks.insert(index, opened);
        Ok(())
    }

    fn grow_block(&mut self, index: u64, delta: &Value, answer: &mut Answer) -> Result<(), Fault> {
        match (self.blocks.get(&index), delta["type"].as_str()) {
            (Some(Block::Tool), Some("input_json_delta")) => answer.fragment(&Fragment {
                index: Some(index),
                arguments: delta.get("partial_json"),
                ..Fragment::default()
            }),
            (Some(&Block::Thinking(at)), Some("thinking_delta")) => {
                let text = delta["thinking"].as_str().unwrap_or_default();
                answer.show_thinking(text)?;
                let block = &mut answer.thinking[at];
                match &mut block["thinking"] {
                    Value::String(so_far) => so_far.push_str(text),
                    other => *other = json!(text),
                }
                Ok(())
            }
            (Some(&Block::Thinking(at)), Some("signature_delta")) => {
                answer.thinking[at]["signature"] = delta["signature"].clone();
                Ok(())
            }
            (None, Some("text_delta")) => answer.say(delta["text"].as_str().unwrap_or_default()),
            _ => Ok(()),
        }
    }

    /// The counts are totals so far: the last value of each stands.
    fn hear_usage(&mut self, reported: &Value, answer: &mut Answer) {
        let count = |key: &str| reported.get(key).and_then(Value::as_u64);
        let Counts { input, cache_read, cache_write } = &mut self.counts;
        *input = count("input_tokens").or(*input);
        *cache_read = count("cache_read_input_tokens").or(*cache_read);
        *cache_write = count("cache_creation_input_tokens").or(*cache_write);
        let usage = &mut answer.usage;
        usage.input_tokens = input.map(|input| {
            input.saturating_add(cache_read.unwrap_or(0)).saturating_add(cache_write.unwrap_or(0))
        });
        usage.output_tokens = count("output_tokens").or(usage.output_tokens);
        usage.cache_read_tokens = *cache_read;
        usage.cache_write_tokens = *cache_write;
    }
}

fn hear_stop(said: &Value, answer: &mut Answer) {
    let finish = match said["stop_reason"].as_str() {
        None => return,
        Some("tool_use") => Finish::ToolCalls,
        Some("max_tokens" | "model_context_window_exceeded") => Finish::Length,
        Some("refusal") => Finish::ContentFilter,
        Some(_) => Finish::Stop,
    };
    answer.finish = Some(finish);
}

fn index(payload: &Value) -> u64 {
    payload["index"].as_u64().unwrap_or(0)
}
