//! A conversation that becomes too long for its model is shortened: its older part is replaced by a
//! summary that the model itself makes of it (semantics §7).
//!
//! It is one more request of the turn: under the same permit and session lock, in the same attempt,
//! with the same bill, deadline and idle window. A summary that fails is no failure of the turn: it
//! is followed by the next rung of the [`ladder`], and at its end by what the provider said.

mod ladder;
mod plan;
mod summary;

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::timeout;

use super::budget::OverLimit;
use super::cut::cut;
use super::drive::{Model, Turn, TurnEnd};
use super::observe::{CompactionCause, Observer, TurnEvent};
use super::window::Window;
use crate::config::HookPoint;
use crate::hooks::{AfterCompaction, BeforeCompaction};
use crate::provider::{Completion, Fault, FaultClass, Request, StreamEvent};
use crate::run::Phase;
use crate::session::Compaction;

pub(super) use ladder::Ladder;
use ladder::Rung;
pub use plan::{CompactionPlan, Conversation, PromptPlace, plan_compaction};
pub(super) use summary::fitting;

/// The longest that a summary may take.
const TIMEOUT: Duration = Duration::from_mins(3);

/// On the last rung, a result keeps this part of what it could have had at first.
const CUT_RESULT: usize = 8;

/// What came of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shortening {
    Done,
    /// There is nothing to summarise.
    Nothing,
    Failed,
}

/// Why there is no summary.
#[derive(Debug, thiserror::Error)]
enum NoSummary {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Budget(#[from] OverLimit),
    #[error("the model wrote no summary")]
    Empty,
    #[error("the summary took longer than {}", humantime::format_duration(TIMEOUT))]
    Timeout,
}

impl Turn {
    /// The window of `model`, as far as it is known.
    pub(super) fn window(&self, model: &Model) -> Window {
        self.ladder.window(&model.name, Window::of(model.context_window))
    }

    /// Shortens the conversation before a request that would leave too little room for an answer.
    pub(super) async fn make_room(
        &mut self,
        model: &Model,
        observer: &dyn Observer,
    ) -> Result<(), TurnEnd> {
        let window = self.window(model);
        let tokens = self.talk.tokens();
        if !self.ladder.is_due(tokens, window) {
            return Ok(());
        }
        let cause = CompactionCause::Threshold;
        let shortening = self.shorten(model, cause, window.kept(), observer).await?;
        let tokens = self.talk.tokens();
        if shortening != Shortening::Done || tokens > window.full_at() {
            self.ladder.was_in_vain(tokens);
        }
        Ok(())
    }

    /// Makes the conversation shorter after `model` has refused it as too long; an error if nothing
    /// more can be done.
    pub(super) async fn after_overflow(
        &mut self,
        fault: Fault,
        model: &Model,
        observer: &dyn Observer,
    ) -> Result<(), TurnEnd> {
        // What had come of the answer is said again by the one that follows.
        self.streaming.clear();
        self.ladder.refused(&model.name, self.talk.tokens());
        let window = self.window(model);
        let mut rung = self.ladder.next(window);
        loop {
            rung = match rung {
                Rung::Summary { kept } => {
                    let cause = CompactionCause::Overflow;
                    match self.shorten(model, cause, kept, observer).await? {
                        Shortening::Done => return Ok(()),
                        Shortening::Nothing | Shortening::Failed => self.ladder.cut_results(),
                    }
                }
                Rung::CutResults => {
                    let chars_max = window.tool_result_chars() / CUT_RESULT;
                    let count = self.talk.cut_results(chars_max, cut);
                    if count > 0 {
                        tracing::warn!(count, chars_max, "results of tools were cut to fit");
                        return Ok(());
                    }
                    Rung::GiveUp
                }
                Rung::GiveUp => {
                    let message = format!("{} ({})", fault.message, self.ladder.words());
                    return Err(Fault { message, ..fault }.into());
                }
            };
        }
    }

    async fn shorten(
        &mut self,
        model: &Model,
        cause: CompactionCause,
        kept: u64,
        observer: &dyn Observer,
    ) -> Result<Shortening, TurnEnd> {
        let Some(plan) = plan_compaction(self.talk.conversation(), kept) else {
            return Ok(Shortening::Nothing);
        };
        let tokens_before = self.talk.tokens();
        observer.tell(TurnEvent::CompactionStart { cause, tokens: tokens_before });
        self.tell_before(cause, &plan).await;
        let asked = self.ask_for_summary(model, &plan, observer);
        let summary = timeout(TIMEOUT, asked).await.unwrap_or(Err(NoSummary::Timeout));
        let summary = match summary {
            Ok(summary) => summary,
            Err(why) => {
                observer.tell(TurnEvent::CompactionError { cause, why: &why.to_string() });
                return match why {
                    NoSummary::Budget(over) => Err(over.into()),
                    NoSummary::Fault(_) | NoSummary::Empty | NoSummary::Timeout => {
                        tracing::warn!(%why, "the conversation could not be summarised");
                        Ok(Shortening::Failed)
                    }
                };
            }
        };
        let first_kept_id = self.talk.first_kept(&plan);
        let compaction = Compaction { summary, first_kept_id, tokens_before };
        let entry = self.transcript.compacted(&compaction).await;
        self.talk.shorten(&plan, &compaction.text(), entry);
        let tokens_after = self.talk.tokens();
        tracing::info!(%cause, tokens_before, tokens_after, "the conversation was summarised");
        observer.tell(TurnEvent::CompactionEnd { cause, tokens_before, tokens_after });
        self.tell_after(cause, compaction, tokens_after).await;
        Ok(Shortening::Done)
    }

    async fn tell_before(&mut self, cause: CompactionCause, plan: &CompactionPlan) {
        if self.hooks.has(HookPoint::BeforeCompaction) {
            let messages = self.talk.shortened(plan).messages.into_iter().cloned().collect();
            let input = BeforeCompaction {
                reason: cause.as_str(),
                tokens: self.talk.tokens(),
                messages,
                messages_omitted: 0,
            };
            self.hooks.tell(input).await;
            self.note_hooks().await;
        }
    }

    async fn tell_after(&mut self, cause: CompactionCause, of: Compaction, tokens_after: u64) {
        if self.hooks.has(HookPoint::AfterCompaction) {
            let Compaction { summary, tokens_before, .. } = of;
            let reason = cause.as_str();
            let input = AfterCompaction { reason, tokens_before, tokens_after, summary };
            self.hooks.tell(input).await;
            self.note_hooks().await;
        }
    }

    async fn ask_for_summary(
        &mut self,
        model: &Model,
        plan: &CompactionPlan,
        observer: &dyn Observer,
    ) -> Result<String, NoSummary> {
        self.bounds.allow_request(&self.bill, model.price)?;
        let shortened = self.talk.shortened(plan);
        let window = self.window(model);
        let request =
            summary::request(&model.name, model.max_output_tokens, window, plan, &shortened);
        let request =
            Request { context_window: Some(Window::of(model.context_window).tokens()), ..request };
        observer.entered(Phase::ModelCall);
        let Completion { turn, .. } = self.hear_summary(model, &request, observer).await?;
        summary::written(plan, &turn.text).ok_or(NoSummary::Empty)
    }

    /// What it says is no part of the answer and is shown to nobody, but it is progress, and it is
    /// paid for.
    async fn hear_summary(
        &mut self,
        model: &Model,
        request: &Request,
        observer: &dyn Observer,
    ) -> Result<Completion, NoSummary> {
        self.bill.begin_request(model.price);
        let opening = model.provider.stream(request).await;
        let mut stream = opening.inspect_err(|_| self.bill.was_refused())?;
        observer.opened();
        while let Some(event) = stream.next().await {
            let event = event.inspect_err(|fault| self.bill.charge(fault.usage))?;
            if event.is_progress() {
                observer.pulse();
            }
            match event {
                StreamEvent::Opened
                | StreamEvent::KeepAlive
                | StreamEvent::ToolFragment
                | StreamEvent::Text(_)
                | StreamEvent::Reasoning(_) => {}
                StreamEvent::Usage(usage) => {
                    self.bill.charge(usage);
                    self.bounds.allow_spending(&self.bill)?;
                }
                StreamEvent::Done(completion) => {
                    self.bill.charge(completion.usage);
                    self.bounds.allow_spending(&self.bill)?;
                    return Ok(*completion);
                }
            }
        }
        let words = "the stream ended without an answer";
        Err(Fault::new(FaultClass::IncompleteStream, words).into())
    }
}
