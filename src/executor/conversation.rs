//! The conversation that a run goes on: what it is told first, and what was said before.

use std::sync::Arc;

use serde_json::json;

use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::Stop;
use crate::clock::to_millis;
use crate::run::{ErrorKind, Failure, MessageId};
use crate::session::{Clearings, Conversation, Remembered, Transcript};
use crate::store::LetterEnd;

/// The name of the entry that says where a run begins in a transcript that has several.
pub const RUN_BEGINS: &str = "run";

impl Executor {
    /// What people have said for the run to begin with. From here on it listens.
    pub(super) async fn hear_first(&self, ticket: &Ticket) -> Option<String> {
        let told = ticket.conversation.inbox()?.begin()?;
        self.heard(told.ids).await;
        Some(told.text)
    }

    /// Says in the ledger that a model has been told.
    async fn heard(&self, ids: Vec<MessageId>) {
        let now = to_millis(self.clock.wall());
        if let Err(error) = self.store.settle_letters(ids, LetterEnd::Heard, now).await {
            tracing::error!(%error, "could not store that a message was heard");
        }
    }

    /// Opens the transcript of the run's session, whose lock it holds.
    pub(super) async fn open_transcript(
        &self,
        ticket: &Ticket,
        holdings: &Holdings,
    ) -> Result<(Transcript, Vec<Remembered>), Stop> {
        let clearings = match &ticket.conversation {
            Conversation::Own => Clearings::default(),
            Conversation::Kept { clearings, .. } => *clearings,
        };
        let opened = Transcript::open(
            &self.config.state_dir,
            &ticket.session_id,
            json!({
                "runId": ticket.run_id, "job": ticket.spec.id,
                "sessionKey": ticket.session_key.as_ref().map(ToString::to_string),
            }),
            clearings,
            Arc::clone(&holdings.masker),
            Arc::clone(&self.clock),
        );
        let (mut transcript, history) = opened
            .await
            .map_err(|error| Failure::new(ErrorKind::Internal, error.to_string()).retryable())?;
        if matches!(ticket.conversation, Conversation::Kept { .. }) {
            transcript.note(RUN_BEGINS, json!({ "runId": ticket.run_id })).await;
        }
        Ok((transcript, history))
    }
}
