//! Where a turn asks hooks.

use crate::hooks::{AfterToolCall, BeforeToolCall, Blocked, MessageSending, ToolResultPersist};
use crate::provider::{AssistantTurn, Message, ToolCall};
use crate::tools::{ToolOutcome, Verdict};

use super::drive::{Model, Turn};
use super::observe::Observer;
use crate::config::HookPoint;

/// The tool that sends messages: each of its calls is one that goes out.
const MESSAGE: &str = "message";

impl Turn {
    /// What it was asked last.
    pub fn asked(&self) -> &str {
        let asked = self.messages().rev().find_map(|message| match message {
            Message::User { text } => Some(text.as_str()),
            Message::Assistant(_) | Message::ToolResult { .. } => None,
        });
        asked.unwrap_or_default()
    }

    /// What was said, oldest first.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.talk.messages().iter()
    }

    /// Somebody has answered in place of a model.
    pub async fn is_answered(&mut self, text: String) {
        let message = Message::Assistant(AssistantTurn { text, ..AssistantTurn::default() });
        self.note_hooks().await;
        self.add(message, None).await;
    }

    /// Writes down what hooks have changed since the last time.
    pub async fn note_hooks(&mut self) {
        for note in self.hooks.take_notes() {
            self.transcript.note("hook", note).await;
        }
    }

    /// Makes a call, unless a hook refuses it.
    pub(super) async fn call_if_allowed(
        &mut self,
        call: &ToolCall,
        n: u32,
        model: &Model,
        observer: &dyn Observer,
    ) -> (ToolOutcome, Option<Blocked>) {
        let gate = self
            .hooks
            .ask(BeforeToolCall {
                call_id: call.id.clone(),
                tool: call.name.clone(),
                arguments: call.arguments.clone(),
            })
            .await;
        let made = match gate.arguments {
            Some(arguments) => ToolCall { arguments, ..call.clone() },
            None => call.clone(),
        };
        let blocked = match gate.blocked {
            Some(blocked) => Some(blocked),
            None => self.message_refused(&made).await,
        };
        let start = self.clock.monotonic();
        let (outcome, blocked) = match blocked {
            Some(blocked) => {
                let words = format!("`{}` was not called: {blocked}", call.name);
                let outcome = ToolOutcome::new(Verdict::Denied, words);
                self.tools.note(call, &outcome);
                (outcome, Some(blocked))
            }
            None if self.opens_part(&made) => self.nest(call, &made, n, model, observer).await,
            None => (self.tools.call_in_place_of(call, &made, &self.context).await, None),
        };
        let took = self.clock.monotonic() - start;
        self.tell_of_call(&made, &outcome, took).await;
        (outcome, blocked)
    }

    /// Whether a hook cancels the message that this call would send.
    async fn message_refused(&self, call: &ToolCall) -> Option<Blocked> {
        if call.name != MESSAGE || !self.hooks.has(HookPoint::MessageSending) {
            return None;
        }
        let argument = |name: &str| {
            call.arguments.get(name).and_then(|it| it.as_str()).unwrap_or_default().to_owned()
        };
        let sending = MessageSending {
            target: argument("target"),
            text: argument("text"),
            subject: None,
            via: MESSAGE,
            delivery_id: None,
        };
        self.hooks.ask(sending).await.blocked
    }

    async fn tell_of_call(
        &self,
        call: &ToolCall,
        outcome: &ToolOutcome,
        took: std::time::Duration,
    ) {
        if self.hooks.has(HookPoint::AfterToolCall) {
            self.hooks
                .tell(AfterToolCall {
                    call_id: call.id.clone(),
                    tool: call.name.clone(),
                    arguments: call.arguments.clone(),
                    outcome: outcome.verdict.as_str(),
                    exit_code: outcome.exit_code,
                    content: outcome.content.clone(),
                    duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                })
                .await;
        }
    }

    /// What is kept of a result in its place, if a hook changes it.
    pub(super) async fn persisted(
        &self,
        call: &ToolCall,
        content: &str,
        verdict: Verdict,
    ) -> Option<String> {
        if !self.hooks.has(HookPoint::ToolResultPersist) {
            return None;
        }
        let result = ToolResultPersist {
            call_id: call.id.clone(),
            tool: call.name.clone(),
            content: content.to_owned(),
            is_error: verdict != Verdict::Ok,
        };
        self.hooks.ask(result).await.content
    }
}
