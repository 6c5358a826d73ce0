//! A rule being played.
//!
//! The steps go through the same accumulator and the same classifier as what comes from a socket,
//! so that a scripted answer obeys the same rules.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use serde_json::{Value, json};

use super::super::answer::{Answer, End, Fragment};
use super::super::classify::classify;
use super::super::{Fault, FaultClass, Finish, StreamEvent, Usage};
use super::rules::{EndStep, ErrorStep, Script, Step, ToolStep, UsageStep};
use super::template::{self, Scene};
use crate::clock::{Clock as _, SystemClock};

/// One answer on its way.
pub(super) struct Play {
    script: Arc<Script>,
    rule: usize,
    scene: Scene,
    answer: Answer,
    at: Place,
    queue: VecDeque<Result<StreamEvent, Fault>>,
    output_chars: u64,
}

/// What comes next.
enum Place {
    Head,
    Step(usize),
    /// The rest of a text, in pieces.
    Text {
        pieces: VecDeque<String>,
        pace: Duration,
        then: usize,
    },
    /// The pause after a piece. It comes after the piece was seen.
    Pause {
        pieces: VecDeque<String>,
        pace: Duration,
        then: usize,
    },
    Over,
}

impl Play {
    pub fn new(script: Arc<Script>, rule: usize, scene: Scene) -> Self {
        Self {
            script,
            rule,
            scene,
            answer: Answer::default(),
            at: Place::Head,
            queue: VecDeque::new(),
            output_chars: 0,
        }
    }

    pub async fn next(mut self) -> Option<(Result<StreamEvent, Fault>, Self)> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some((event, self));
            }
            if matches!(self.at, Place::Over) {
                return None;
            }
            if let Err(fault) = self.go_on().await {
                self.queue.push_back(Err(fault));
                self.at = Place::Over;
            }
        }
    }

    async fn go_on(&mut self) -> Result<(), Fault> {
        match std::mem::replace(&mut self.at, Place::Over) {
            Place::Head => {
                let first = self.script.rules[self.rule].steps.first();
                if !matches!(first, Some(Step::Error(_))) {
                    self.queue.push_back(Ok(StreamEvent::Opened));
                }
                self.at = Place::Step(0);
            }
            Place::Step(at) => match self.script.rules[self.rule].steps.get(at).cloned() {
                Some(step) => self.play(step, at + 1).await?,
                None => self.end(Some(Finish::Stop))?,
            },
            Place::Text { mut pieces, pace, then } => match pieces.pop_front() {
                Some(piece) => {
                    self.answer.say(&piece)?;
                    self.queue.extend(self.answer.events.drain(..).map(Ok));
                    self.at = Place::Pause { pieces, pace, then };
                }
                None => self.at = Place::Step(then),
            },
            Place::Pause { pieces, pace, then } => {
                // Even an empty sleep would last until the timer's next tick.
                if !pace.is_zero() {
                    tokio::time::sleep(pace).await;
                }
                self.at = Place::Text { pieces, pace, then };
            }
            Place::Over => {}
        }
        Ok(())
    }

    async fn play(&mut self, step: Step, then: usize) -> Result<(), Fault> {
        self.at = Place::Step(then);
        match step {
            Step::Text { template, chunk_chars, pace } => {
                let text = self.fill(&template)?;
                self.at = Place::Text { pieces: cut(&text, chunk_chars), pace, then };
            }
            Step::Reasoning(template) => {
                let text = self.fill(&template)?;
                self.answer.reason(&text)?;
            }
            Step::Tool(tool) => self.call(&tool)?,
            Step::Delay(delay) => tokio::time::sleep(delay).await,
            Step::Error(error) => return Err(self.refuse(&error)),
            Step::Hang => std::future::pending().await,
            Step::Usage(UsageStep { input, output }) => {
                self.answer.usage.input_tokens = Some(input);
                self.answer.usage.output_tokens = Some(output);
                self.queue.push_back(Ok(StreamEvent::Usage(self.answer.usage)));
            }
            Step::End(EndStep::Length) => self.end(Some(Finish::Length))?,
            Step::End(EndStep::ContentFilter) => self.end(Some(Finish::ContentFilter))?,
            Step::End(EndStep::Incomplete) => self.end(None)?,
        }
        self.queue.extend(self.answer.events.drain(..).map(Ok));
        Ok(())
    }

    fn call(&mut self, tool: &ToolStep) -> Result<(), Fault> {
        let arguments = template::render_arguments(&tool.arguments, &self.scene);
        let arguments = Value::Object(arguments.map_err(|error| self.broken_template(&error))?);
        self.output_chars += arguments.to_string().chars().count() as u64;
        let name = &tool.name;
        self.answer.fragment(&Fragment { name, arguments: Some(&arguments), ..Fragment::default() })
    }

    fn fill(&mut self, source: &str) -> Result<String, Fault> {
        let text = template::render(source, &self.scene);
        let text = text.map_err(|error| self.broken_template(&error))?;
        self.output_chars += text.chars().count() as u64;
        Ok(text)
    }

    fn broken_template(&self, error: &minijinja::Error) -> Fault {
        let message = format!("a text of the script cannot be filled in: {error:#}");
        self.answer.fault(FaultClass::BadRequest, message)
    }

    fn refuse(&self, error: &ErrorStep) -> Fault {
        let words = match &error.kind {
            Some(kind) => json!({"message": error.message, "type": kind}),
            None => json!({"message": error.message}),
        };
        if error.status == 200 {
            return self.answer.provider_fault(&words);
        }
        let wait = error.retry_after.map(|delay| delay.as_secs_f64().to_string());
        let wait = wait.and_then(|wait| HeaderValue::try_from(wait).ok());
        let headers: HeaderMap = wait.into_iter().map(|wait| (RETRY_AFTER, wait)).collect();
        let body = json!({"error": words}).to_string();
        let fault = classify(error.status, &headers, body.as_bytes(), SystemClock.wall());
        let received = self.answer.fault(fault.class, "");
        Fault { partial_text: received.partial_text, usage: received.usage, ..fault }
    }

    fn end(&mut self, finish: Option<Finish>) -> Result<(), Fault> {
        self.at = Place::Over;
        self.answer.finish = finish;
        if self.answer.usage == Usage::default() {
            // About four characters are a token.
            self.answer.usage.input_tokens = Some(self.scene.input_chars.div_ceil(4));
            self.answer.usage.output_tokens = Some(self.output_chars.div_ceil(4));
        }
        let completion = self.answer.complete(End::Closed)?;
        self.queue.push_back(Ok(StreamEvent::Done(Box::new(completion))));
        Ok(())
    }
}

fn cut(text: &str, chunk_chars: usize) -> VecDeque<String> {
    let mut pieces = VecDeque::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(chunk_chars).map_or(rest.len(), |(end, _)| end);
        pieces.push_back(rest[..end].to_owned());
        rest = &rest[end..];
    }
    pieces
}
