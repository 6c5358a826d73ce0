//! A response body as events: the part of a provider that knows no socket.
//!
//! Bytes go in as they come, events come out; the last of them is `Done` or a fault. Framing
//! (how payloads are packed) and API (what they say) are apart: a server that answers with one
//! JSON body where a stream was asked for is understood by the same code.

use std::collections::VecDeque;

use serde_json::Value;

use super::answer::{Answer, End};
use super::anthropic::AnthropicEar;
use super::frames::{Frames, Framing, Payload};
use super::ollama::OllamaEar;
use super::openai::OpenAiEar;
use super::{Fault, FaultClass, StreamEvent};

/// Which API's words a body speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `OpenAI` chat completions, and the many that speak like it.
    OpenAi,
    /// Anthropic messages.
    Anthropic,
    /// Ollama's own chat API.
    Ollama,
}

/// Whether the turn is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    GoesOn,
    Over,
}

/// Understands the payloads of one API.
pub(super) trait Ear: Send {
    /// Takes one JSON payload into `answer`. `event` is the name of its event, often empty.
    fn hear(&mut self, event: &str, payload: &Value, answer: &mut Answer) -> Result<Flow, Fault>;
}

/// What goes out: events, then at most one fault.
pub type Heard = VecDeque<Result<StreamEvent, Fault>>;

/// A response body on its way to an answer.
pub struct StreamParser {
    frames: Frames,
    ear: Box<dyn Ear>,
    answer: Answer,
    over: bool,
}

impl StreamParser {
    /// A parser for a body of `api`, packed as `framing`.
    pub fn new(api: Api, framing: Framing) -> Self {
        let ear: Box<dyn Ear> = match api {
            Api::OpenAi => Box::new(OpenAiEar),
            Api::Anthropic => Box::new(AnthropicEar::default()),
            Api::Ollama => Box::new(OllamaEar),
        };
        Self { frames: Frames::new(framing), ear, answer: Answer::default(), over: false }
    }

    /// Takes a piece of the body and puts what it means into `heard`. A piece that says nothing
    /// gives one `KeepAlive`.
    pub fn feed(&mut self, bytes: &[u8], heard: &mut Heard) {
        if self.over {
            return;
        }
        let before = heard.len();
        let known = self.answer.usage;
        let outcome = self.feed_all(bytes);
        heard.extend(self.answer.events.drain(..).map(Ok));
        if self.answer.usage != known {
            heard.push_back(Ok(StreamEvent::Usage(self.answer.usage)));
        }
        match outcome {
            Ok(Flow::Over) => self.conclude(End::Marker, heard),
            Ok(Flow::GoesOn) => {
                if heard.len() == before {
                    heard.push_back(Ok(StreamEvent::KeepAlive));
                }
            }
            Err(fault) => self.give_up(fault, heard),
        }
    }

    /// The server has closed the connection in good order.
    pub fn finish(&mut self, heard: &mut Heard) {
        if self.over {
            return;
        }
        let outcome = self.hear_rest();
        heard.extend(self.answer.events.drain(..).map(Ok));
        match outcome {
            Ok(Flow::Over) => self.conclude(End::Marker, heard),
            Ok(Flow::GoesOn) => self.conclude(End::Closed, heard),
            Err(fault) => self.give_up(fault, heard),
        }
    }

    /// The transport broke. An answer whose finish reason had come is whole all the same.
    pub fn break_off(&mut self, class: FaultClass, message: &str, heard: &mut Heard) {
        if self.over {
            return;
        }
        if self.has_finish() {
            return self.conclude(End::Closed, heard);
        }
        let fault = self.answer.fault(class, message);
        self.give_up(fault, heard);
    }

    /// Whether the last event is out.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the model has said why it stopped: only usage and an end marker can follow.
    pub fn has_finish(&self) -> bool {
        self.answer.finish.is_some()
    }

    fn feed_all(&mut self, mut bytes: &[u8]) -> Result<Flow, Fault> {
        loop {
            let next = self.frames.next(&mut bytes);
            let next = next.map_err(|error| self.not_a_stream(error.to_string()))?;
            let Some(payload) = next else { return Ok(Flow::GoesOn) };
            if self.hear(&payload)? == Flow::Over {
                return Ok(Flow::Over);
            }
        }
    }

    fn hear(&mut self, Payload { event, data }: &Payload) -> Result<Flow, Fault> {
        if data.trim() == "[DONE]" {
            return Ok(Flow::Over);
        }
        let payload: Value = serde_json::from_str(data).map_err(|error| {
            self.not_a_stream(format!("the stream holds what is no JSON ({error}): {}", cut(data)))
        })?;
        if !payload.is_object() {
            let message = format!("the stream holds what is no JSON object: {}", cut(data));
            return Err(self.not_a_stream(message));
        }
        self.ear.hear(event, &payload, &mut self.answer)
    }

    /// What was still in the buffers when the connection closed.
    fn hear_rest(&mut self) -> Result<Flow, Fault> {
        let one_body = self.frames.framing() == Framing::Json;
        let rest = match self.frames.rest() {
            Ok(rest) => rest,
            Err(error) if one_body => return Err(self.not_a_stream(error.to_string())),
            // The connection closed in the middle of a line: as if the line had not begun.
            Err(_) => return Ok(Flow::GoesOn),
        };
        for payload in rest {
            if one_body {
                return self.hear_body(&payload);
            }
            let cut_off =
                serde_json::from_str::<Value>(&payload.data).is_err_and(|error| error.is_eof());
            if !cut_off && self.hear(&payload)? == Flow::Over {
                return Ok(Flow::Over);
            }
        }
        Ok(Flow::GoesOn)
    }

    /// A whole body needs no other end marker than its own end.
    fn hear_body(&mut self, payload: &Payload) -> Result<Flow, Fault> {
        match serde_json::from_str::<Value>(&payload.data) {
            Err(error) if error.is_eof() && !payload.data.trim().is_empty() => {
                return Ok(Flow::GoesOn);
            }
            _ => self.hear(payload)?,
        };
        if self.answer.is_blank() {
            let message = format!("the server sent JSON that is no answer: {}", cut(&payload.data));
            return Err(self.not_a_stream(message));
        }
        Ok(Flow::Over)
    }

    fn not_a_stream(&self, message: String) -> Fault {
        self.answer.fault(FaultClass::NotAStream, message)
    }

    fn conclude(&mut self, end: End, heard: &mut Heard) {
        self.over = true;
        let verdict = self.answer.complete(end);
        heard.push_back(verdict.map(|completion| StreamEvent::Done(Box::new(completion))));
    }

    fn give_up(&mut self, fault: Fault, heard: &mut Heard) {
        self.over = true;
        heard.push_back(Err(fault));
    }
}

/// The start of something long, for a message.
fn cut(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
