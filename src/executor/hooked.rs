//! Where a run asks hooks: before its model, before its prompt, before its reply, and at its end.
//!
//! What is asked before the execution shares one allowance, so that hooks that hang are passed over
//! before the run counts as stalled. What is told at the end is told once the result is stored, and
//! below a household of its own: that of the run is closed by then.

use std::sync::Arc;
use std::time::Duration;

use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::{Stop, invalid};
use super::watchdog::Watchdog;
use crate::cassette::Plays;
use crate::clock::{Deadline, rfc3339};
use crate::config::HookPoint;
use crate::hooks::{
    self, AgentBootstrap, AgentEnd, BeforeAgentReply, BeforeAgentStart, BeforeModelResolve,
    BeforePromptBuild, Claim, HookSite, Hooks, ModelChoice, Place, PromptParts, RunFacts,
    SessionEnd, SessionStart, newest,
};
use crate::job::{AgentSpec, JobSpec, Masker, ModelRef};
use crate::process::Household;
use crate::run::{ErrorKind, Outcome, Phase};
use crate::session::Remembered;
use crate::turn::{BootstrapFile, Overrides, Turn};

/// What the observers of a run's end have at least, however little is left of the run's time.
const AT_THE_END_MIN: Duration = Duration::from_secs(5);

/// What they have when the daemon leaves.
const AT_SHUTDOWN: Duration = Duration::from_secs(1);

/// From TERM to KILL, of what hooks of the end have left.
const STOP_GRACE: Duration = Duration::from_secs(1);

impl Executor {
    /// Where hooks are asked for no run: below this household.
    pub fn hook_site(&self, household: Household, masker: Arc<Masker>) -> HookSite {
        let place = Place {
            household,
            inbox: self.config.state_dir.join("hooks"),
            masker,
            clock: Arc::clone(&self.clock),
        };
        HookSite::new(self.hooks_in_force(), place, Arc::new(self.store.clone()))
    }

    /// A run that is played again asks nobody: it is to have no effect.
    fn hooks_in_force(&self) -> Arc<Hooks> {
        match self.plays() {
            Plays::World => Arc::clone(&self.hooks),
            Plays::Cassette => Arc::default(),
        }
    }

    /// Where the hooks of this run are asked, as far as the run has come.
    pub(super) fn hooks_of(&self, ticket: &Ticket, holdings: &Holdings) -> HookSite {
        let site = self.hook_site(holdings.household.clone(), Arc::clone(&holdings.masker));
        site.of_run(facts(ticket), holdings.workdir.clone()).going_on_from(&holdings.hooks)
    }

    /// Hooks that are asked before the execution begins have half of the time for that, together.
    pub(super) fn allow_hooks(&self, ticket: &Ticket, holdings: &mut Holdings) {
        let whole = self.run_limits(ticket).pre_execution.unwrap_or(Duration::MAX);
        let until = Deadline::after(self.clock.monotonic(), whole / 2);
        holdings.hooks = HookSite::without_hooks().until(until);
    }

    /// The model that is asked first, and what older hooks add to the prompt.
    pub(super) async fn choose_model(
        &self,
        ticket: &Ticket,
        agent: &AgentSpec,
        holdings: &Holdings,
    ) -> Result<(ModelRef, PromptParts), Stop> {
        let hooks = self.hooks_of(ticket, holdings);
        let ModelRef { provider, model } = agent.model.clone();
        let choice = hooks
            .ask(BeforeModelResolve { provider: provider.clone(), model: model.clone() })
            .await;
        let (older, parts) = hooks.ask(BeforeAgentStart { provider, model }).await;
        let choice = choice.or(older);
        if choice.is_empty() {
            return Ok((agent.model.clone(), parts));
        }
        let chosen = self.chosen(&ticket.spec, agent, choice)?;
        if chosen != agent.model {
            tracing::info!(model = %chosen, "a hook has chosen the model");
        }
        Ok((chosen, parts))
    }

    /// What a hook has chosen. What does not resolve fails the run: it is never passed over.
    fn chosen(
        &self,
        spec: &JobSpec,
        agent: &AgentSpec,
        choice: ModelChoice,
    ) -> Result<ModelRef, Stop> {
        let own = agent.model.clone();
        let text = match (choice.provider, choice.model) {
            (Some(provider), model) => {
                format!("{provider}/{}", model.unwrap_or_else(|| own.model.clone()))
            }
            (None, Some(model)) => match self.config.resolve_model(&model) {
                Ok(_) => model,
                Err(_) if model.contains('/') => model,
                Err(_) => format!("{}/{model}", own.provider),
            },
            (None, None) => return Ok(own),
        };
        let chosen = self
            .config
            .resolve_model(&text)
            .map_err(|why| invalid(format!("a hook has chosen a model: {}", why.message)))?;
        let costs = [spec.limits.max_usd, spec.limits.max_usd_per_day, self.config.max_usd_per_day];
        if costs.iter().any(Option::is_some) && self.config.price_of(&chosen).is_none() {
            let words =
                format!("a hook has chosen {chosen}, which has no price, and money is limited");
            return Err(invalid(words).into());
        }
        Ok(chosen)
    }

    /// What hooks add to the prompt of a session that is open.
    pub(super) async fn overrides(
        &self,
        ticket: &Ticket,
        prompt: &str,
        history: &[Remembered],
        older: PromptParts,
        holdings: &Holdings,
    ) -> Overrides {
        let hooks = self.hooks_of(ticket, holdings);
        if hooks.has(HookPoint::SessionStart) {
            hooks
                .tell(SessionStart {
                    session_key: session_key(ticket),
                    session_id: ticket.session_id.to_string(),
                })
                .await;
        }
        if !hooks.has(HookPoint::BeforePromptBuild) {
            return overrides_of(older);
        }
        let (messages, messages_omitted) = newest(history.iter().map(|it| &it.message));
        let prompt = prompt.to_owned();
        let parts = hooks.ask(BeforePromptBuild { prompt, messages, messages_omitted }).await;
        overrides_of(parts.and(older))
    }

    /// The bootstrap files of a workspace, as hooks leave them.
    pub(super) async fn bootstrap_of_hooks(
        &self,
        ticket: &Ticket,
        files: Vec<BootstrapFile>,
        holdings: &Holdings,
    ) -> Vec<BootstrapFile> {
        let hooks = self.hooks_of(ticket, holdings);
        let given = |file: &BootstrapFile| hooks::BootstrapFile {
            name: file.name.clone(),
            content: file.text.clone(),
        };
        let asked = AgentBootstrap { files: files.iter().map(given).collect() };
        let Some(left) = hooks.ask(asked).await else { return files };
        let back = |hooks::BootstrapFile { name, content: text }| {
            let same = files.iter().find(|file| file.name == name && file.text == text);
            same.cloned().unwrap_or(BootstrapFile { name, text, note: None })
        };
        left.into_iter().map(back).collect()
    }

    /// The reply of a hook, in the place of a model's.
    pub(super) async fn claimed(
        &self,
        ticket: &Ticket,
        model: &ModelRef,
        watchdog: &Watchdog,
        holdings: &mut Holdings,
    ) -> Option<String> {
        let hooks = self.hooks_of(ticket, holdings);
        let turn = holdings.turn.as_mut().filter(|_| hooks.has(HookPoint::BeforeAgentReply))?;
        watchdog.entered(Phase::BeforeReplyHook);
        let asked = BeforeAgentReply { prompt: turn.asked().to_owned(), model: model.to_string() };
        match hooks.ask(asked).await {
            Claim::Model => None,
            Claim::Reply { by, text } => {
                tracing::info!(by, "a hook has answered");
                turn.is_answered(text.clone()).await;
                Some(holdings.masker.mask(&text).into_owned())
            }
            Claim::Silence { by } => {
                tracing::info!(by, "a hook has silenced the turn");
                turn.note_hooks().await;
                Some(ticket.spec.silent_token.clone())
            }
        }
    }

    /// Tells that the turn is over, and its session with it. Nothing of this is left afterwards.
    pub(super) async fn tell_end(
        &self,
        ticket: &Ticket,
        outcome: &Outcome,
        holdings: &Holdings,
        limit: Duration,
    ) {
        let Some(turn) = &holdings.turn else { return };
        let household = Household::new(self.supervisor.clone(), ticket.run_id.as_str());
        let until = Deadline::after(self.clock.monotonic(), limit);
        let hooks = self.hooks_of(ticket, holdings).in_household(household.clone()).until(until);
        if hooks.has(HookPoint::AgentEnd) {
            hooks.tell(agent_end(outcome, turn)).await;
        }
        if hooks.has(HookPoint::SessionEnd) {
            let (session_key, session_id) = (session_key(ticket), ticket.session_id.to_string());
            hooks.tell(SessionEnd { session_key, session_id, reason: "run_ended" }).await;
        }
        household.end_all(STOP_GRACE).await;
    }
}

/// How long the observers of the end may take: what is left of the run's time, and a little in any
/// case.
pub(super) fn end_limit(
    watchdog: &Watchdog,
    outcome: &Outcome,
    now: tokio::time::Instant,
) -> Duration {
    if outcome.failure().is_some_and(|failure| failure.kind == ErrorKind::Shutdown) {
        return AT_SHUTDOWN;
    }
    watchdog.deadline().remaining(now).unwrap_or(Duration::MAX).max(AT_THE_END_MIN)
}

fn overrides_of(parts: PromptParts) -> Overrides {
    let PromptParts {
        prepend_context,
        system_prompt,
        prepend_system_context,
        append_system_context,
    } = parts;
    Overrides {
        prepend: prepend_system_context.into_iter().collect(),
        replace: system_prompt,
        append: append_system_context.into_iter().collect(),
        context: prepend_context.into_iter().collect(),
    }
}

fn agent_end(outcome: &Outcome, turn: &Turn) -> AgentEnd {
    let (messages, messages_omitted) = newest(turn.messages());
    let tally = turn.tally();
    let reply = match outcome {
        Outcome::Succeeded { reply } => Some(reply.clone()),
        Outcome::Ended { .. } => None,
    };
    AgentEnd {
        state: outcome.state().as_str(),
        reply,
        error_kind: outcome.failure().map(|failure| failure.kind.as_str()),
        messages,
        messages_omitted,
        input_tokens: tally.usage.input_tokens,
        output_tokens: tally.usage.output_tokens,
        tool_calls: tally.tool_calls,
    }
}

fn facts(ticket: &Ticket) -> RunFacts {
    RunFacts {
        run_id: ticket.run_id.to_string(),
        job: ticket.spec.id.to_string(),
        session_id: ticket.session_id.to_string(),
        trigger: ticket.trigger.to_string(),
        due_at: ticket.due_at.map(rfc3339),
    }
}

fn session_key(ticket: &Ticket) -> String {
    let key = ticket.session_key.as_ref();
    key.map_or_else(|| format!("cron:{}", ticket.spec.id), ToString::to_string)
}
