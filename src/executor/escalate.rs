//! A reply that the host does not accept, while there is another model to go on with
//! (`escalate_on`): the same conversation, workspace, budget and deadline.

use std::time::Duration;

use super::checks::verdict;
use super::course::Course;
use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::Stop;
use super::watchdog::Watchdog;
use crate::job::{AgentSpec, Escalate};
use crate::process::Household;
use crate::run::{CheckResult, ErrorKind, Failure, Findings, Outcome};
use crate::turn::only_announces;

/// What becomes of a reply.
pub(super) enum Reply {
    /// It stands, or nothing more can be done about it.
    Stands,
    /// The next model goes on.
    GoesOn(ErrorKind),
}

impl Executor {
    /// Looks at the reply while the run can still go on. What it finds holds for the end of the run,
    /// since nothing of the run is left that could change it.
    pub(super) async fn accept(
        &self,
        ticket: &Ticket,
        agent: &AgentSpec,
        reply: &str,
        watchdog: &Watchdog,
        course: &mut Course,
        holdings: &mut Holdings,
    ) -> Result<Reply, Stop> {
        let may_go_on = agent.escalate == Escalate::OnCheckFailed
            && course.has_more()
            && watchdog.time_left().allows_after(Duration::ZERO);
        let Some(site) = holdings.site(ticket).filter(|_| may_go_on) else {
            return Ok(Reply::Stands);
        };
        let grace = ticket.spec.limits.stop_grace;
        watchdog.guard(holdings.mcp.close(grace)).await?;
        watchdog.guard(holdings.household.end_all(grace)).await?;
        let denied_calls = holdings.turn.as_ref().map_or(0, |turn| turn.tally().denied_calls);
        let look = self.check(ticket, reply, denied_calls, &site, &holdings.masker);
        let findings = watchdog.guard(look).await?;
        let failed = announcement(agent, reply).or_else(|| verdict(&findings.checks));
        let Some(failed) = failed else {
            holdings.findings = Some(findings);
            return Ok(Reply::Stands);
        };
        let model = &course.present.name;
        tracing::warn!(%model, error = failed.message, "the reply is not accepted");
        let (words, kind) = (complaint(&failed, &findings), failed.kind);
        if let Some(end) = self.attempt_end(&Outcome::ended(failed, None), holdings) {
            watchdog.guard(self.store.end_attempt(&ticket.run_id, end)).await??;
        }
        let household = Household::new(self.supervisor.clone(), ticket.run_id.as_str());
        let before = std::mem::replace(&mut holdings.household, household.clone());
        holdings.households_before.push(before);
        course.next_model(&self.models, self.deck.as_ref())?;
        watchdog.guard(self.learn_window(&mut course.present, watchdog)).await?;
        if let Some(turn) = &mut holdings.turn {
            turn.is_told(words, household).await;
        }
        Ok(Reply::GoesOn(kind))
    }
}

/// A model that has tools and only says what it will do has not done it.
pub(super) fn announcement(agent: &AgentSpec, reply: &str) -> Option<Failure> {
    let is_one = agent.has_tools() && only_announces(reply);
    let words = "the reply only announces work";
    is_one.then(|| Failure::new(ErrorKind::CheckFailed, words))
}

/// What the next model is told.
fn complaint(failed: &Failure, findings: &Findings) -> String {
    let line = |CheckResult { name, detail, .. }: &CheckResult| {
        format!("- {name}: {}", detail.as_deref().unwrap_or("failed"))
    };
    let mut lines: Vec<_> = findings.checks.iter().filter(|it| !it.passed).map(line).collect();
    if lines.is_empty() {
        lines.push(format!("- {}", failed.message));
    }
    format!(
        "The result was checked and is not accepted:\n{}\nPut it right. Your last message is the \
         whole report, as asked for at the beginning.",
        lines.join("\n")
    )
}
