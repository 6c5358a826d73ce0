//! A model attempt: its rows, its window, its limits.

use std::time::Duration;

use super::holdings::{Attempt, Holdings};
use super::idle_window::{IdleInput, IdleWindow, idle_window};
use super::models::Resolved;
use super::run::{Executor, Ticket};
use super::stop::Stop;
use super::watchdog::{RunLimits, Watchdog};
use crate::clock::to_millis;
use crate::config::AgentTimeout;
use crate::job::RunTimeout;
use crate::run::Outcome;
use crate::store::{AttemptEnd, AttemptStart};
use crate::turn::Turn;

impl Executor {
    /// Records the attempt and arms the watchdog for its requests.
    pub(super) async fn begin_attempt(
        &self,
        ticket: &Ticket,
        watchdog: &Watchdog,
        resolved: &Resolved,
        holdings: &mut Holdings,
    ) -> Result<IdleWindow, Stop> {
        let window = idle_window(IdleInput {
            provider: resolved.timeout,
            run: ticket.spec.limits.timeout,
            agent: match self.config.agent.timeout {
                AgentTimeout::Default48h => None,
                AgentTimeout::Configured(limit) => Some(limit),
                AgentTimeout::Unlimited => Some(Duration::MAX),
            },
            trigger: ticket.trigger,
            locality: resolved.locality,
        });
        holdings.attempts += 1;
        let n = holdings.attempts;
        let attempt = AttemptStart {
            n,
            model: resolved.name.to_string(),
            auth_profile: resolved.profile.clone(),
            idle_window: window.window,
            idle_rule: window.rule.as_str(),
        };
        let now = to_millis(self.clock.wall());
        // The queue of the ledger may be full: that stops no limit.
        watchdog.guard(self.store.start_attempt(&ticket.run_id, attempt, now)).await??;
        holdings.attempt =
            Some(Attempt { n, started: self.clock.monotonic(), price: resolved.model.price });
        if let Some(turn) = &mut holdings.turn {
            turn.begin_attempt();
        }
        watchdog.set_request_limits(RunLimits {
            idle: window.window,
            first_token: resolved.first_token_timeout,
            provider: resolved.timeout,
            ..RunLimits::default()
        });
        Ok(window)
    }

    /// How the attempt that goes on has ended, if one does: from here on none does.
    pub(super) fn attempt_end(
        &self,
        outcome: &Outcome,
        holdings: &mut Holdings,
    ) -> Option<AttemptEnd> {
        let attempt = holdings.attempt.take()?;
        let spent = holdings.turn.as_ref().map(Turn::spent).unwrap_or_default();
        Some(AttemptEnd {
            n: attempt.n,
            state: outcome.state(),
            error_kind: outcome.failure().map(|failure| failure.kind),
            duration: self.clock.monotonic() - attempt.started,
            usage: spent.usage,
            usd: spent.usd(attempt.price),
        })
    }

    /// The limits that a run has from its start (semantics §2).
    pub(super) fn run_limits(&self, ticket: &Ticket) -> RunLimits {
        let deadline = match ticket.spec.limits.timeout {
            RunTimeout::After(limit) => Some(limit),
            RunTimeout::Unlimited => None,
            RunTimeout::Unset => Some(self.config.run_ceiling_of(&ticket.spec)),
        };
        let (least, most) = (Duration::from_secs(1), Duration::from_mins(1));
        let pre_execution = deadline.map_or(most, |limit| (limit / 2).clamp(least, most));
        RunLimits { deadline, pre_execution: Some(pre_execution), ..RunLimits::default() }
    }
}
