//! What a prompt may name beside the run's own variables: the gate's words, and what the job itself
//! and others have answered before.

use std::sync::Arc;

use jiff::Timestamp;

use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::Stop;
use crate::cassette::Deck;
use crate::job::{AskedFor, GateOutput};
use crate::run::{ErrorKind, Failure};
use crate::store::{Reader, StoreError};
use crate::turn::{Known, cut};

/// As much of a gate's output, or of a reply, enters a prompt: head and tail of it.
const CHARS_MAX: usize = 16_000;

impl Executor {
    /// Looks up what `template` asks for, and nothing else.
    pub(super) async fn known(
        &self,
        ticket: &Ticket,
        template: &str,
        holdings: &Holdings,
    ) -> Result<Known, Stop> {
        if let Some(known) = self.deck.as_ref().and_then(Deck::known) {
            return Ok(known);
        }
        let known = self.look_up(ticket, template, holdings).await?;
        if let Some(deck) = &self.deck {
            deck.knew(known.clone());
        }
        Ok(known)
    }

    async fn look_up(
        &self,
        ticket: &Ticket,
        template: &str,
        holdings: &Holdings,
    ) -> Result<Known, Stop> {
        let asked = AskedFor::of(template);
        let gate = holdings.gate.as_ref();
        let gate_output = gate.map(|answer| cut(answer.output.trim_end(), CHARS_MAX));
        if !asked.previous && asked.jobs.is_empty() {
            return Ok(Known { gate_output, ..Known::default() });
        }
        let (store, job) = (self.store.clone(), ticket.spec.id.clone());
        let history = self.deck.as_ref().and_then(Deck::history);
        // Of a job that this one comes after it is the run of the same slot, at every attempt.
        let (slot, spec) = (ticket.due_at, Arc::clone(&ticket.spec));
        let slot_of = move |other: &str| {
            let mut upstream = spec.after.iter().flat_map(|after| &after.jobs);
            slot.filter(|_| upstream.any(|job| job.as_str() == other))
        };
        let look = move || {
            let reader = match history.as_deref().map(Reader::open) {
                None => Some(store.reader()?),
                Some(Err(StoreError::Missing(_))) => None,
                Some(reader) => Some(reader?),
            };
            read(reader.as_ref(), job.as_str(), &asked, slot_of, gate_output)
        };
        let read = tokio::task::spawn_blocking(look).await;
        let read = read.map_err(|error| Failure::new(ErrorKind::Internal, error.to_string()))?;
        Ok(read?)
    }
}

/// What `asked` asks of the history, if there is one.
pub(super) fn read(
    history: Option<&Reader>,
    job: &str,
    asked: &AskedFor,
    slot_of: impl Fn(&str) -> Option<Timestamp>,
    gate_output: Option<String>,
) -> Result<Known, StoreError> {
    let mut known = Known { gate_output, ..Known::default() };
    let Some(reader) = history else { return Ok(known) };
    if asked.previous {
        let reply = reader.last_reply(job, None)?;
        known.previous_reply = cut(&reply.unwrap_or_default(), CHARS_MAX);
    }
    for other in &asked.jobs {
        if let Some(reply) = reader.last_reply(other, slot_of(other))? {
            known.replies.insert(other.clone(), cut(&reply, CHARS_MAX));
        }
    }
    Ok(known)
}

/// `prompt`, with what the gate has printed where the job wants that told and its prompt does not
/// name it itself.
pub(super) fn with_gate(
    prompt: String,
    template: &str,
    passed: Option<GateOutput>,
    known: &Known,
) -> String {
    let output = known.gate_output.as_deref().unwrap_or_default();
    let is_told = passed == Some(GateOutput::Passed) && !output.trim().is_empty();
    if !is_told || AskedFor::of(template).gate {
        return prompt;
    }
    format!("{prompt}\n\nThe check before this run printed:\n\n{output}")
}
