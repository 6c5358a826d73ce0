//! A run that nobody drives any more: its processes, its row, its lane.

use std::time::Duration;

use super::run::{Executor, Ticket};
use crate::plan::RunEnd;
use crate::process::{end_orphans, living_runs};
use crate::run::CancelReason;

impl Executor {
    /// Whether any process of the run of `ticket` lives.
    pub async fn has_processes(&self, ticket: &Ticket) -> bool {
        let run_id = ticket.run_id.to_string();
        let look = tokio::task::spawn_blocking(move || living_runs().contains(&run_id));
        // Who cannot look takes nothing away.
        look.await.unwrap_or(true)
    }

    /// Ends what processes of the run of `ticket` live.
    pub async fn drain(&self, ticket: &Ticket) {
        let end = end_orphans(ticket.run_id.as_str()).await;
        tracing::warn!(
            run_id = %ticket.run_id, killed = end.killed, left = end.left.len(),
            "ended what was left of a run that nobody drove"
        );
    }

    /// Closes the row of a run that nobody drives and that has been silent for `after`.
    pub async fn release(&self, ticket: &Ticket, after: Duration) -> RunEnd {
        let mut failure = CancelReason::Stuck(after).failure();
        failure.message = format!("nobody drove the run any more; {}", failure.message);
        self.close(ticket, failure).await
    }
}
