//! From a deck that a run has passed to a cassette that may be kept.
//!
//! No secret may be in it. Each text is masked by itself; but a model may have said a secret in
//! pieces, and each piece alone is none. Then the whole is withheld: nothing is kept.

use futures_util::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::deck::{Deck, Seen};
use super::file::{Cassette, End, TakenCheck, VERSION};
use super::wording::TakenRequest;
use crate::job::{JobId, Masker};
use crate::provider::{Exchange, Held, StreamEvent, Traffic};
use crate::turn::Variables;

/// Why a run cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unkept {
    /// Somebody stopped listening before the answer was over.
    #[error("the answer to request {0} was cut by a limit: only whole answers can be played again")]
    Cut(usize),
    /// An answer is too long.
    #[error("the answer to request {0} is too long to be kept")]
    TooLong(usize),
    /// A secret is in pieces.
    #[error(
        "the answer to request {0} spells out a secret in pieces, which cannot be masked: a file \
         that others read must not hold it"
    )]
    Secret(usize),
}

impl Deck {
    /// What the run `job` said and did, as a cassette; `checks` and `end` are what became of it.
    pub async fn take(
        &self,
        job: &JobId,
        variables: Variables,
        checks: Vec<TakenCheck>,
        end: End,
        now: Timestamp,
    ) -> Result<Cassette, Unkept> {
        let Seen { known, material, files, commands, masker } = self.seen().clone();
        let exchanges = self.models().exchanges();
        for (n, exchange) in (1..).zip(&exchanges) {
            keepable(n, exchange, &masker).await?;
        }
        let mut cassette = Cassette {
            version: VERSION,
            job: job.to_string(),
            recorded_at: now,
            variables,
            known,
            material,
            requests: TakenRequest::of(&exchanges),
            calls: self.taken_calls(),
            files,
            commands,
            checks,
            end,
        };
        cassette.end.requests = cassette.requests.len();
        cassette.end.calls = cassette.calls.len();
        cassette.end.checks = cassette.checks.len();
        cassette.hide(&masker);
        Ok(cassette)
    }
}

async fn keepable(n: usize, exchange: &Exchange, masker: &Masker) -> Result<(), Unkept> {
    match exchange.held {
        Held::Whole => {}
        Held::Cut => return Err(Unkept::Cut(n)),
        Held::TooLong => return Err(Unkept::TooLong(n)),
    }
    let Some(answer) = &exchange.answer else { return Ok(()) };
    let said = understood(&hidden(answer, masker)).await;
    // Once as it is and once without the seams between its parts.
    let spells = [said.join("\n"), said.concat()].iter().any(|it| masker.mask(it) != *it);
    if spells { Err(Unkept::Secret(n)) } else { Ok(()) }
}

/// The words of an answer, put together as whoever reads the file could.
async fn understood(answer: &Traffic) -> Vec<String> {
    let mut said = Vec::new();
    let mut stream = match answer.play().await {
        Ok(stream) => stream,
        Err(fault) => return vec![fault.message],
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(StreamEvent::Done(completion)) => {
                let turn = completion.turn;
                // As they come.
                said.push(turn.reasoning);
                said.extend(turn.thinking.iter().flat_map(texts));
                said.push(turn.text);
                for call in turn.tool_calls {
                    said.push(call.name);
                    said.extend(texts(&Value::Object(call.arguments)));
                }
            }
            Err(fault) => said.extend([fault.partial_text, fault.message]),
            Ok(_) => {}
        }
    }
    said
}

/// Every text in a JSON value.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, it)| [vec![key.clone()], texts(it)].concat()).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn hidden(answer: &Traffic, masker: &Masker) -> Traffic {
    let mut answer = answer.clone();
    hide(masker, &mut answer.body);
    if let Some(broke) = &mut answer.broke {
        hide(masker, &mut broke.message);
    }
    answer
}

fn hide(masker: &Masker, text: &mut String) {
    if let std::borrow::Cow::Owned(masked) = masker.mask(text) {
        *text = masked;
    }
}

fn hide_in(masker: &Masker, value: &mut Value) {
    match value {
        Value::String(text) => hide(masker, text),
        Value::Array(items) => items.iter_mut().for_each(|it| hide_in(masker, it)),
        Value::Object(fields) => fields.iter_mut().for_each(|(_, it)| hide_in(masker, it)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Cassette {
    /// Masks every text that came from outside.
    fn hide(&mut self, masker: &Masker) {
        let hide = |text: &mut String| hide(masker, text);
        self.known.gate_output.iter_mut().for_each(hide);
        hide(&mut self.known.previous_reply);
        self.known.replies.values_mut().for_each(hide);
        self.material.bootstrap.iter_mut().for_each(|it| hide(&mut it.text));
        self.material.skills.offered.iter_mut().for_each(|it| hide(&mut it.description));
        for request in &mut self.requests {
            request.system.iter_mut().chain(&mut request.tools).for_each(hide);
            for message in &mut request.messages {
                hide(&mut message.text);
                message.tool.iter_mut().chain(&mut message.beside).for_each(hide);
            }
            request.answer = request.answer.take().map(|answer| hidden(&answer, masker));
        }
        for call in &mut self.calls {
            hide(&mut call.tool);
            hide(&mut call.content);
            call.arguments.iter_mut().for_each(|(_, value)| hide_in(masker, value));
        }
        self.files.iter_mut().for_each(|it| hide(&mut it.path));
        for command in &mut self.commands {
            command.argv.iter_mut().chain(&mut command.complaint).for_each(hide);
        }
        self.checks.iter_mut().filter_map(|it| it.detail.as_mut()).for_each(hide);
        self.end.reply.iter_mut().chain(&mut self.end.error_message).for_each(hide);
    }
}
