//! The calls of one answer, one after the other: each is told, made unless a hook refuses it, counted,
//! and its result is cut to size before anybody keeps it.

use std::sync::Arc;

use super::{Model, Turn, TurnEnd};
use crate::hooks::{Blocked, Ends};
use crate::provider::{AssistantTurn, Message, ToolCall};
use crate::run::Phase;
use crate::tools::{ToolOutcome, Verdict, without_images};
use crate::turn::compaction::fitting;
use crate::turn::cut::cut;
use crate::turn::observe::{Observer, TurnEvent};
use crate::turn::window::Window;

/// The same call with the same result, so many times in a row, is a loop.
const REPEATS_MAX: u32 = 5;

impl Turn {
    pub(super) async fn call_tools(
        &mut self,
        said: AssistantTurn,
        model: &Model,
        observer: &dyn Observer,
    ) -> Result<(), TurnEnd> {
        let window = self.window(model);
        observer.entered(Phase::Tool);
        for call in said.tool_calls {
            let (outcome, blocked) = self.call_one(&call, model, observer).await;
            let content = bounded(&self.masker.mask(&without_images(&outcome.content)), window);
            let content = match self.persisted(&call, &content, outcome.verdict).await {
                Some(changed) => bounded(&self.masker.mask(&changed), window),
                None => content,
            };
            let result = Message::ToolResult {
                call_id: call.id.clone(),
                name: call.name.clone(),
                content: content.clone(),
                is_error: outcome.verdict != Verdict::Ok,
            };
            self.add(result, None).await;
            self.note_hooks().await;
            if let Some(blocked) = blocked.filter(|it| it.ends == Ends::Run) {
                return Err(TurnEnd::HookBlocked(blocked));
            }
            self.refuse_loops(call, content)?;
        }
        Ok(())
    }

    async fn call_one(
        &mut self,
        call: &ToolCall,
        model: &Model,
        observer: &dyn Observer,
    ) -> (ToolOutcome, Option<Blocked>) {
        self.tally.tool_calls += 1;
        // A model may call anything anything: what is stored and shown of it is masked.
        let masker = Arc::clone(&self.masker);
        let (n, tool) = (self.tally.tool_calls, &*masker.mask(&call.name));
        observer.tell(TurnEvent::ToolStart { n, tool, arguments: &call.arguments });
        let (started_at, start) = (self.clock.wall(), self.clock.monotonic());
        let (outcome, blocked) = self.call_and_tell(call, n, model, observer).await;
        match outcome.verdict {
            Verdict::Ok => {}
            Verdict::Denied => self.tally.denied_calls += 1,
            Verdict::Error | Verdict::TimedOut => self.tally.tool_errors += 1,
        }
        self.shown.called(call, &outcome);
        let duration = self.clock.monotonic() - start;
        observer.tell(TurnEvent::ToolEnd { n, tool, outcome: &outcome, started_at, duration });
        (outcome, blocked)
    }

    /// Calls a tool and tells how far it has come.
    async fn call_and_tell(
        &mut self,
        call: &ToolCall,
        n: u32,
        model: &Model,
        observer: &dyn Observer,
    ) -> (ToolOutcome, Option<Blocked>) {
        let (mut updates, masker) = (self.context.updates.listen(), Arc::clone(&self.masker));
        let work = self.call_if_allowed(call, n, model, observer);
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => return outcome,
                Ok(()) = updates.changed() => {
                    let (tool, update) = (masker.mask(&call.name), updates.borrow_and_update().clone());
                    observer.tell(TurnEvent::ToolUpdate { n, tool: &tool, update: &update });
                }
            }
        }
    }

    fn refuse_loops(&mut self, call: ToolCall, result: String) -> Result<(), TurnEnd> {
        let same = self.last_call.as_ref().is_some_and(|(last, last_result)| {
            last.name == call.name && last.arguments == call.arguments && *last_result == result
        });
        self.repeats = if same { self.repeats + 1 } else { 1 };
        if self.repeats >= REPEATS_MAX {
            return Err(TurnEnd::ToolLoop { tool: call.name, times: self.repeats });
        }
        self.last_call = Some((call, result));
        Ok(())
    }
}

/// What of a tool's result enters the context: what is dense is cut to the same part of the window.
fn bounded(text: &str, window: Window) -> String {
    fitting(&cut(text, window.tool_result_chars()), window.tool_result_tokens())
}
