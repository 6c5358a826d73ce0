//! What a turn tells, passed on: to the watchdog, to whoever listens, to the ledger.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::events::RunEvents;
use super::part::Inside;
use super::watchdog::Watchdog;
use crate::job::{BlockStreaming, JobSpec, Masker, Reasoning, StreamMasker};
use crate::run::{EventPhase, MessageId, Payload, PayloadKind, Phase, RunId, Stream};
use crate::store::{Actor, AuditKind, AuditRow, LetterEnd, Store, ToolCallRow};
use crate::tools::{Verdict, without_images};
use crate::turn::{Model, Observer, PartEnd, Turn, TurnEvent, cut};

/// Characters of a call's arguments that are shown.
const ARGUMENT_CHARS_MAX: usize = 4_000;

/// Characters of what a tool prints that are shown while it goes on: a screen.
const OUTPUT_CHARS_MAX: usize = 2_000;

/// Watches one turn on behalf of its run.
pub(super) struct Progress<'a> {
    pub(super) run_id: &'a RunId,
    pub(super) watchdog: &'a Watchdog,
    pub(super) events: &'a RunEvents,
    pub(super) masker: &'a Masker,
    pub(super) store: &'a Store,
    pub(super) spec: &'a JobSpec,
    /// Where it goes on, if it is a part of the work inside of a call.
    pub(super) inside: Option<Inside<'a>>,
    said: Mutex<Said>,
}

/// What the model is saying. A secret may come in pieces, so the last ones are held back.
#[derive(Debug)]
struct Said {
    text: StreamMasker,
    reasoning: StreamMasker,
    /// What has been told of the text that is not a block yet.
    block: String,
}

impl Said {
    fn begin(masker: &Masker) -> Self {
        Self { text: masker.stream(), reasoning: masker.stream(), block: String::new() }
    }
}

impl Observer for Progress<'_> {
    fn entered(&self, phase: Phase) {
        self.watchdog.entered(phase);
        self.pulse_around();
    }

    fn opened(&self) {
        self.watchdog.opened();
    }

    fn pulse(&self) {
        self.watchdog.pulse();
        self.pulse_around();
    }

    fn tell(&self, event: TurnEvent<'_>) {
        if matches!(
            event,
            TurnEvent::ToolStart { .. } | TurnEvent::ToolUpdate { .. } | TurnEvent::ToolEnd { .. }
        ) {
            self.pulse();
        }
        if let TurnEvent::ToolStart { tool, .. } = &event {
            self.store.offer_audit(AuditRow {
                at: self.events.now(),
                actor: Actor::Model,
                kind: AuditKind::ToolStart,
                run_id: self.run_id.clone(),
                name: Some((*tool).to_owned()),
                result: None,
            });
        }
        if let TurnEvent::ToolEnd { n, tool, outcome, started_at, duration } = &event {
            self.note_call(ToolCallRow {
                n: *n,
                tool: (*tool).to_owned(),
                outcome: outcome.verdict.as_str(),
                exit_code: outcome.exit_code,
                started_at: *started_at,
                duration: *duration,
                output_bytes: outcome.output_bytes,
                inside: self.inside.map(|inside| inside.n),
            });
        }
        if let Some(inside) = self.inside {
            return self.tell_of_part(inside, &event);
        }
        match event {
            TurnEvent::Text(piece) => {
                let decided = self.said().text.push(piece);
                self.tell_text(&decided);
            }
            TurnEvent::Reasoning(_) if self.spec.manner().reasoning != Reasoning::Stream => {}
            TurnEvent::Reasoning(piece) => {
                let decided = self.said().reasoning.push(piece);
                self.tell_piece("reasoning", &decided);
            }
            TurnEvent::TextEnd => {
                if self.spec.manner().block_streaming == BlockStreaming::TextEnd {
                    let fresh = self.masker.stream();
                    let text = std::mem::replace(&mut self.said().text, fresh);
                    self.tell_text(&text.finish());
                    self.tell_block();
                }
            }
            TurnEvent::AssistantEnd { .. } => {
                let fresh = self.masker.stream();
                let reasoning = std::mem::replace(&mut self.said().reasoning, fresh);
                self.tell_piece("reasoning", &reasoning.finish());
                let fresh = self.masker.stream();
                let text = std::mem::replace(&mut self.said().text, fresh);
                self.tell_text(&text.finish());
                if self.spec.manner().block_streaming != BlockStreaming::Off {
                    self.tell_block();
                }
                *self.said() = Said::begin(self.masker);
                self.tell_shown(&event);
            }
            TurnEvent::AssistantStart { .. } | TurnEvent::CompactionStart { .. } => {
                // What was held back of a request that failed belongs to no answer.
                *self.said() = Said::begin(self.masker);
                self.tell_shown(&event);
            }
            TurnEvent::Heard { ids } => {
                self.note_heard(ids.to_vec());
                self.tell_shown(&event);
            }
            TurnEvent::ToolStart { .. }
            | TurnEvent::ToolUpdate { .. }
            | TurnEvent::ToolEnd { .. }
            | TurnEvent::CompactionEnd { .. }
            | TurnEvent::CompactionError { .. } => self.tell_shown(&event),
        }
    }

    fn drive_part<'a>(
        &'a self,
        n: u32,
        turn: &'a mut Turn,
        model: &'a Model,
        within: Duration,
    ) -> BoxFuture<'a, Result<String, PartEnd>> {
        self.watch_part(n, turn, model, within)
    }
}

impl<'a> Progress<'a> {
    pub(super) fn new(
        run_id: &'a RunId,
        watchdog: &'a Watchdog,
        events: &'a RunEvents,
        masker: &'a Masker,
        store: &'a Store,
        spec: &'a JobSpec,
    ) -> Self {
        let said = Mutex::new(Said::begin(masker));
        Self { run_id, watchdog, events, masker, store, spec, inside: None, said }
    }

    /// The same for a part that has a watchdog of its own.
    pub(super) fn inside<'b>(&'b self, inside: Inside<'b>, watchdog: &'b Watchdog) -> Progress<'b> {
        let part =
            Progress::new(self.run_id, watchdog, self.events, self.masker, self.store, self.spec);
        Progress { inside: Some(inside), ..part }
    }

    fn pulse_around(&self) {
        if let Some(inside) = self.inside {
            inside.around.pulse();
        }
    }

    /// What a part says is no answer of its run: its texts are told as the progress of its call,
    /// each when it is complete. Its calls are calls, which say in which one they were made.
    fn tell_of_part(&self, inside: Inside<'_>, event: &TurnEvent<'_>) {
        match event {
            TurnEvent::AssistantStart { .. }
            | TurnEvent::Text(_)
            | TurnEvent::TextEnd
            | TurnEvent::Heard { .. }
            | TurnEvent::Reasoning(_) => {}
            TurnEvent::AssistantEnd { text, .. } => {
                let data = Map::from_iter([
                    ("n".to_owned(), inside.n.into()),
                    ("tool".to_owned(), "subturn".into()),
                    ("text".to_owned(), self.masker.mask(text).into()),
                ]);
                self.events.tell(Stream::Tool, EventPhase::Update, data);
            }
            TurnEvent::ToolStart { .. }
            | TurnEvent::ToolUpdate { .. }
            | TurnEvent::ToolEnd { .. }
            | TurnEvent::CompactionStart { .. }
            | TurnEvent::CompactionEnd { .. }
            | TurnEvent::CompactionError { .. } => {
                let (stream, phase, mut data) = self.shown(event);
                data.insert("inside".to_owned(), inside.n.into());
                self.events.tell(stream, phase, data);
            }
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().expect("no holder of this lock can panic")
    }

    fn tell_text(&self, piece: &str) {
        self.said().block.push_str(piece);
        self.tell_piece("text", piece);
    }

    /// A partial reply. Silence is none.
    fn tell_block(&self) {
        let block = Payload::new(PayloadKind::Text, std::mem::take(&mut self.said().block));
        if !block.text.trim().is_empty() && !block.is_silence(&self.spec.silent_token) {
            self.tell_piece("block", &block.text);
        }
    }

    fn tell_piece(&self, key: &str, piece: &str) {
        if !piece.is_empty() {
            let data = Map::from_iter([(key.to_owned(), piece.into())]);
            self.events.tell(Stream::Assistant, EventPhase::Update, data);
        }
    }

    fn tell_shown(&self, event: &TurnEvent<'_>) {
        let (stream, phase, data) = self.shown(event);
        self.events.tell(stream, phase, data);
    }

    /// `text` without secrets and pictures, and not too much of it.
    fn bounded(&self, text: &str, chars_max: usize) -> String {
        cut(&self.masker.mask(&without_images(text)), chars_max)
    }

    /// The end of what a tool has printed so far. Masked before it is cut, so that no half of a
    /// secret is left at the cut.
    fn tail(&self, output: &str) -> String {
        let shown = self.masker.mask(&without_images(output)).into_owned();
        let from = shown.char_indices().rev().nth(OUTPUT_CHARS_MAX - 1).map_or(0, |(at, _)| at);
        shown[from..].to_owned()
    }

    /// The row of a call is written beside the run: the turn does not wait for the disk. The rows
    /// that end the run come after it in the writer's queue.
    fn note_call(&self, row: ToolCallRow) {
        let (store, run_id) = (self.store.clone(), self.run_id.clone());
        tokio::spawn(async move {
            if let Err(error) = store.note_tool_call(&run_id, row).await {
                tracing::error!(%run_id, %error, "could not store a tool call");
            }
        });
    }

    fn note_heard(&self, ids: Vec<MessageId>) {
        let (store, now) = (self.store.clone(), self.events.now());
        tokio::spawn(async move {
            if let Err(error) = store.settle_letters(ids, LetterEnd::Heard, now).await {
                tracing::error!(%error, "could not store that a message was heard");
            }
        });
    }

    fn shown(&self, event: &TurnEvent<'_>) -> (Stream, EventPhase, Map<String, Value>) {
        let (stream, phase, data) = match event {
            TurnEvent::AssistantStart { request } => {
                (Stream::Assistant, EventPhase::Start, json!({ "request": request }))
            }
            TurnEvent::Text(_) | TurnEvent::Reasoning(_) | TurnEvent::TextEnd => {
                unreachable!("pieces are told as soon as they are decided")
            }
            TurnEvent::AssistantEnd { text, input_tokens, output_tokens } => (
                Stream::Assistant,
                EventPhase::End,
                json!({
                    "text": self.masker.mask(text),
                    "input_tokens": input_tokens, "output_tokens": output_tokens,
                }),
            ),
            TurnEvent::CompactionStart { cause, tokens } => {
                (Stream::Compaction, EventPhase::Start, json!({ "cause": cause, "tokens": tokens }))
            }
            TurnEvent::CompactionEnd { cause, tokens_before, tokens_after } => (
                Stream::Compaction,
                EventPhase::End,
                json!({
                    "cause": cause, "tokens_before": tokens_before, "tokens_after": tokens_after,
                }),
            ),
            TurnEvent::CompactionError { cause, why } => (
                Stream::Compaction,
                EventPhase::Error,
                json!({ "cause": cause, "error": self.masker.mask(why) }),
            ),
            TurnEvent::Heard { ids } => {
                (Stream::Lifecycle, EventPhase::Update, json!({ "heard": ids }))
            }
            TurnEvent::ToolStart { n, tool, arguments } => {
                let text = serde_json::to_string(arguments).unwrap_or_default();
                let shown = self.bounded(&text, ARGUMENT_CHARS_MAX);
                (
                    Stream::Tool,
                    EventPhase::Start,
                    json!({ "n": n, "tool": tool, "arguments": shown }),
                )
            }
            TurnEvent::ToolUpdate { n, tool, update } => (
                Stream::Tool,
                EventPhase::Update,
                json!({
                    "n": n, "tool": tool, "output_bytes": update.bytes,
                    "output": self.tail(&update.output),
                }),
            ),
            TurnEvent::ToolEnd { n, tool, outcome, duration, .. } => (
                Stream::Tool,
                if outcome.verdict == Verdict::Ok { EventPhase::End } else { EventPhase::Error },
                json!({
                    "n": n, "tool": tool, "outcome": outcome.verdict.as_str(),
                    "exit_code": outcome.exit_code, "output_bytes": outcome.output_bytes,
                    "duration_ms": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
                }),
            ),
        };
        match data {
            Value::Object(data) => (stream, phase, data),
            _ => unreachable!("every event above is an object"),
        }
    }
}
