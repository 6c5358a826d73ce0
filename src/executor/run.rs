//! One run, from its ticket to its terminal state.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::Instrument as _;

use super::cleanup::{ModelStream, Tidying};
use super::events::{Bus, RunEvents};
use super::idle_window::{IdleInput, IdleWindow, idle_window};
use super::lanes::{Lanes, Permits};
use super::models::{ModelError, Models, Resolved};
use super::progress::Progress;
use super::watchdog::{RunLimits, Tripped, Watchdog};
use crate::clock::{Clock, to_millis};
use crate::config::{AgentTimeout, Config};
use crate::job::{
    Environment, FILE_BYTES_MAX, JobSpec, Masker, Prompt, RunTimeout, SecretSource, Workdir,
    read_text,
};
use crate::process::{Household, SupervisorPath, base_environment};
use crate::run::{
    Cleanup, ErrorKind, EventPhase, Failure, Limit, Outcome, Phase, RunId, SessionId, State,
    Stream, Trigger, Work,
};
use crate::session::Transcript;
use crate::store::{AttemptEnd, AttemptStart, Store, StoreError};
use crate::tools::{ExecPolicy, ToolContext, ToolSet, Workspace};
use crate::turn::{Bounds, Tally, Tools, Turn, TurnEnd, Variables, render, system_prompt};

/// The most that a process gets from TERM to KILL when the daemon stops; the daemon waits longer
/// than that after its grace.
const SHUTDOWN_STOP_GRACE: Duration = Duration::from_secs(1);

/// A run that is recorded as `queued`, with everything it needs.
#[derive(Debug, Clone)]
pub struct Ticket {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// The definition it runs under, to its end.
    pub spec: Arc<JobSpec>,
    /// What made it start.
    pub trigger: Trigger,
    /// Its slot.
    pub due_at: Option<Timestamp>,
    /// What its prompt may name.
    pub variables: Variables,
}

/// Drives runs. One for all of a process's runs.
#[derive(Debug)]
pub struct Executor {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The configuration.
    pub config: Arc<Config>,
    /// The models it names.
    pub models: Models,
    /// The ledger.
    pub store: Store,
    /// The lanes.
    pub lanes: Lanes,
    /// Where runs tell.
    pub bus: Bus,
    /// The program that supervises processes.
    pub supervisor: SupervisorPath,
}

/// What a run has taken hold of, and must give back however it ends.
struct Holdings {
    household: Household,
    masker: Arc<Masker>,
    permits: Option<Permits>,
    made_workspace: Option<PathBuf>,
    turn: Option<Turn>,
    attempt: Option<Attempt>,
    stream: ModelStream,
}

/// The model attempt that goes on.
struct Attempt {
    n: u32,
    started: tokio::time::Instant,
    price: Option<crate::config::Price>,
}

/// Why the work stopped without an answer.
enum Stop {
    Tripped(Tripped),
    Turn(TurnEnd),
    Failed(Failure),
}

impl From<Tripped> for Stop {
    fn from(tripped: Tripped) -> Self {
        Self::Tripped(tripped)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(Failure::new(ErrorKind::Internal, format!("the ledger: {error}")))
    }
}

impl Executor {
    /// Drives the run of `ticket` to its terminal state. Never fails and never panics: whatever
    /// happens to the work becomes the run's outcome.
    pub async fn drive(&self, ticket: &Ticket, watchdog: &Watchdog) -> State {
        let span = tracing::info_span!(
            "run", run_id = %ticket.run_id, job = %ticket.spec.id,
            lane = ticket.spec.lane.as_deref().unwrap_or("*")
        );
        self.drive_in_span(ticket, watchdog).instrument(span).await
    }

    async fn drive_in_span(&self, ticket: &Ticket, watchdog: &Watchdog) -> State {
        let events = self.bus.of_run(ticket.run_id.clone());
        let mut holdings = Holdings {
            household: Household::new(self.supervisor.clone(), ticket.run_id.as_str()),
            masker: Arc::default(),
            permits: None,
            made_workspace: None,
            turn: None,
            attempt: None,
            stream: ModelStream::Ended,
        };
        let work = AssertUnwindSafe(self.work(ticket, watchdog, &events, &mut holdings));
        let outcome = match work.catch_unwind().await {
            Ok(Ok(reply)) => Outcome::Succeeded { reply },
            Ok(Err(stop)) => ended(stop, watchdog, &mut holdings),
            Err(panic) => Outcome::ended(internal(&panic), None),
        };
        let state = outcome.state();
        self.record_work(ticket, outcome.clone(), &mut holdings).await;
        let cleanup = self.tidy(ticket, &outcome, holdings).await;
        self.finish(ticket, &outcome, cleanup, &events).await;
        state
    }

    /// The work itself: lanes, start, preparation, turn.
    async fn work(
        &self,
        ticket: &Ticket,
        watchdog: &Watchdog,
        events: &RunEvents,
        holdings: &mut Holdings,
    ) -> Result<String, Stop> {
        let lane = self.lanes.acquire(ticket.spec.lane.as_deref());
        holdings.permits = Some(watchdog.guard(lane).await?);

        let now = to_millis(self.clock.wall());
        self.store.start_run(&ticket.run_id, ticket.due_at, now).await?;
        watchdog.start(self.run_limits(ticket));
        watchdog.entered(Phase::RunnerEntered);
        tracing::info!(trigger = %ticket.trigger, "run started");
        events.tell(Stream::Lifecycle, EventPhase::Start, lifecycle_start(ticket));

        let prepared = watchdog.guard(self.prepare(ticket, watchdog, holdings)).await;
        let resolved = prepared??;
        let window = self.begin_attempt(ticket, watchdog, &resolved, holdings).await?;
        tracing::debug!(rule = %window.rule, window = ?window.window, "idle window");

        let masker = Arc::clone(&holdings.masker);
        let progress = Progress::new(&ticket.run_id, watchdog, events, &masker, &self.store);
        let turn = holdings.turn.as_mut().expect("the preparation began it");
        let reply = watchdog.guard(turn.drive(&resolved.model, &progress)).await?;
        reply.map(|text| masker.mask(&text).into_owned()).map_err(Stop::Turn)
    }

    /// Workspace, model, secrets and prompt, phase by phase.
    async fn prepare(
        &self,
        ticket: &Ticket,
        watchdog: &Watchdog,
        holdings: &mut Holdings,
    ) -> Result<Resolved, Stop> {
        let spec = &ticket.spec;
        watchdog.entered(Phase::Workspace);
        let workspace = self.workspace(ticket, holdings).await?;

        watchdog.entered(Phase::ModelResolution);
        let resolved = self.models.resolve(&spec.agent.model).map_err(|error| unusable(&error))?;

        watchdog.entered(Phase::Auth);
        let secrets = read_secrets(spec, &self.config.environment)?;
        let known = self.models.secrets().chain(secrets.iter().cloned());
        holdings.masker = Arc::new(Masker::new(known));

        watchdog.entered(Phase::Context);
        let template = match &spec.agent.prompt {
            Prompt::Inline(text) => text.clone(),
            Prompt::File(path) => read_prompt(path).await?,
        };
        let prompt =
            render(&template, &ticket.variables).map_err(|error| invalid(error.to_string()))?;
        let tools =
            ToolSet::native(&spec.agent.tools).map_err(|error| invalid(error.to_string()))?;
        let has_tools = if spec.agent.tools.is_empty() { Tools::None } else { Tools::Some };
        let context = self.tool_context(spec, &workspace, &secrets, holdings)?;
        let transcript = Transcript::create(
            &self.config.state_dir,
            &ticket.session_id,
            json!({ "runId": ticket.run_id, "job": spec.id, "sessionKey": format!("cron:{}", spec.id) }),
            Arc::clone(&holdings.masker),
            Arc::clone(&self.clock),
        )
        .await
        .map_err(|error| Stop::Turn(error.into()))?;
        let bounds =
            Bounds { max_turns: spec.limits.max_turns, max_tokens: spec.limits.max_tokens };
        let turn = Turn::begin(
            system_prompt(spec.id.as_str(), has_tools),
            prompt,
            tools,
            context,
            bounds,
            transcript,
            Arc::clone(&holdings.masker),
            Arc::clone(&self.clock),
        );
        holdings.turn = Some(turn.await.map_err(Stop::Turn)?);
        Ok(resolved)
    }

    async fn workspace(&self, ticket: &Ticket, holdings: &mut Holdings) -> Result<PathBuf, Stop> {
        match &ticket.spec.agent.workdir {
            Workdir::Existing(path) => Ok(path.clone()),
            Workdir::Fresh => {
                let path = self.config.state_dir.join("workspaces").join(ticket.run_id.as_str());
                // Noted first: a run that is cut here tidies what it may have made.
                holdings.made_workspace = Some(path.clone());
                let mut folder = tokio::fs::DirBuilder::new();
                folder.recursive(true).mode(0o700);
                folder.create(&path).await.map_err(|error| {
                    let words = format!("failed to make the workspace {}: {error}", path.display());
                    Failure::new(ErrorKind::Internal, words)
                })?;
                Ok(path)
            }
        }
    }

    fn tool_context(
        &self,
        spec: &JobSpec,
        folder: &Path,
        secrets: &[(String, secrecy::SecretString)],
        holdings: &Holdings,
    ) -> Result<ToolContext, Stop> {
        // A fresh workspace is inside the state folder, and nothing else of that can be reached
        // from it. A folder that a job names may hold anything.
        let mut protected = Vec::new();
        if holdings.made_workspace.is_none() {
            protected.extend([self.config.jobs_dir.clone(), self.config.state_dir.clone()]);
            protected.extend(self.config.files.iter().cloned());
        }
        let workspace = Workspace::open(folder, &protected).map_err(|error| {
            use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
            let words = format!("the workspace {} cannot be opened: {error}", folder.display());
            match error.kind() {
                NotFound | NotADirectory | PermissionDenied => invalid(words),
                // The machine's fault (no file handles, an input error), not the job's.
                _ => Failure::new(ErrorKind::Internal, words).retryable(),
            }
        })?;
        let exec_policy = ExecPolicy::from_patterns(&spec.agent.exec_allow)
            .map_err(|error| invalid(error.to_string()))?;
        Ok(ToolContext {
            workspace: Arc::new(workspace),
            household: holdings.household.clone(),
            env: command_environment(spec, secrets, &self.config.environment),
            exec_policy,
            tool_timeout: spec.limits.tool_timeout,
            stop_grace: spec.limits.stop_grace,
        })
    }

    /// Records the attempt and arms the watchdog for its requests.
    async fn begin_attempt(
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
        let attempt = AttemptStart {
            n: 1,
            model: ticket.spec.agent.model.to_string(),
            idle_window: window.window,
            idle_rule: window.rule.as_str(),
        };
        let now = to_millis(self.clock.wall());
        self.store.start_attempt(&ticket.run_id, attempt, now).await?;
        holdings.attempt =
            Some(Attempt { n: 1, started: self.clock.monotonic(), price: resolved.price });
        watchdog.set_request_limits(RunLimits {
            idle: window.window,
            first_token: resolved.first_token_timeout,
            provider: resolved.timeout,
            ..RunLimits::default()
        });
        Ok(window)
    }

    /// The limits that a run has from its start (semantics §2).
    fn run_limits(&self, ticket: &Ticket) -> RunLimits {
        let deadline = match ticket.spec.limits.timeout {
            RunTimeout::After(limit) => Some(limit),
            RunTimeout::Unlimited => None,
            RunTimeout::Unset => Some(self.config.run_ceiling()),
        };
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(60));
        let pre_execution = deadline.map_or(most, |limit| (limit / 2).clamp(least, most));
        RunLimits { deadline, pre_execution: Some(pre_execution), ..RunLimits::default() }
    }

    /// Closes the row of a run whose driving itself panicked: a fault of ours, but no run stays
    /// open for it and no job is blocked.
    pub async fn abandon(&self, ticket: &Ticket) {
        let failure = Failure::new(ErrorKind::Internal, "a fault in punctual itself");
        let outcome = Outcome::ended(failure, None);
        let work =
            Work { outcome: outcome.clone(), tool_calls: 0, tool_errors: 0, denied_calls: 0 };
        if let Err(error) = self.store.record_work(&ticket.run_id, work, None).await {
            tracing::error!(run_id = %ticket.run_id, %error, "could not store how the work ended");
        }
        let cleanup = Tidying::begin(Arc::clone(&self.clock), Duration::ZERO).end();
        self.finish(ticket, &outcome, cleanup, &self.bus.of_run(ticket.run_id.clone())).await;
    }

    /// The first fact, on the disk before any tidying.
    async fn record_work(&self, ticket: &Ticket, outcome: Outcome, holdings: &mut Holdings) {
        let tally = holdings.turn.as_ref().map(Turn::tally).unwrap_or_default();
        let last_attempt = holdings.attempt.take().map(|attempt| AttemptEnd {
            n: attempt.n,
            state: outcome.state(),
            error_kind: outcome.failure().map(|failure| failure.kind),
            duration: self.clock.monotonic() - attempt.started,
            usage: tally.usage,
            usd: attempt.price.and_then(|price| price.of(tally.usage)),
        });
        let Tally { tool_calls, tool_errors, denied_calls, .. } = tally;
        let work = Work { outcome, tool_calls, tool_errors, denied_calls };
        if let Err(error) = self.store.record_work(&ticket.run_id, work, last_attempt).await {
            tracing::error!(%error, "could not store how the work ended");
        }
    }

    async fn tidy(&self, ticket: &Ticket, outcome: &Outcome, mut holdings: Holdings) -> Cleanup {
        let mut tidying =
            Tidying::begin(Arc::clone(&self.clock), self.config.scheduler.cleanup_timeout);
        tidying.model_stream(holdings.stream).await;
        tidying.processes(&holdings.household, stop_grace(&ticket.spec, outcome)).await;
        let why = match outcome.failure() {
            Some(failure) => format!("not finished: {}", failure.message),
            None => "not finished".to_owned(),
        };
        tidying.transcript(holdings.turn.as_mut(), &why).await;
        // The tools hold the workspace open.
        drop(holdings.turn.take());
        tidying.workspace(holdings.made_workspace.as_deref()).await;
        tidying.lane(holdings.permits.take()).await;
        tidying.end()
    }

    async fn finish(
        &self,
        ticket: &Ticket,
        outcome: &Outcome,
        cleanup: Cleanup,
        events: &RunEvents,
    ) {
        let state = outcome.state();
        let tidied = cleanup.outcome();
        let now = to_millis(self.clock.wall());
        if let Err(error) = self.store.finish_run(&ticket.run_id, cleanup, now).await {
            tracing::error!(%error, "could not store the end of the run");
        }
        let mut data = Map::new();
        data.insert("state".into(), state.as_str().into());
        data.insert("cleanup".into(), tidied.as_str().into());
        match outcome.failure() {
            None => {
                tracing::info!(state = %state, cleanup = %tidied, "run ended");
                events.tell(Stream::Lifecycle, EventPhase::End, data);
            }
            Some(failure) => {
                tracing::warn!(
                    state = %state, cleanup = %tidied, kind = %failure.kind,
                    error = failure.message, "run ended"
                );
                data.insert("error".into(), serde_json::to_value(failure).unwrap_or(Value::Null));
                events.tell(Stream::Lifecycle, EventPhase::Error, data);
            }
        }
    }
}

/// From TERM to KILL. A daemon that stops leaves soon after its own grace: better all processes
/// ended and the row closed than a longer grace that nobody is left to see.
fn stop_grace(spec: &JobSpec, outcome: &Outcome) -> Duration {
    let configured = spec.limits.stop_grace;
    match outcome.failure() {
        Some(failure) if failure.kind == ErrorKind::Shutdown => configured.min(SHUTDOWN_STOP_GRACE),
        _ => configured,
    }
}

/// The outcome of work that stopped without an answer.
fn ended(stop: Stop, watchdog: &Watchdog, holdings: &mut Holdings) -> Outcome {
    let partial = holdings.turn.as_ref().and_then(Turn::partial_text);
    let masked = |text: &str| holdings.masker.mask(text).into_owned();
    match stop {
        Stop::Tripped(tripped) => {
            let phase = watchdog.phase();
            if phase == Some(Phase::ModelCall) {
                holdings.stream = ModelStream::Cut;
            }
            Outcome::ended(tripped.failure(phase), partial)
        }
        Stop::Turn(end) => {
            let mut failure = turn_failure(&end);
            failure.message = masked(&failure.message);
            failure.phase = failure.phase.or(watchdog.phase());
            let partial = match &end {
                TurnEnd::Fault(fault) => Some(masked(&fault.partial_text)),
                _ => partial,
            };
            Outcome::ended(failure, partial)
        }
        Stop::Failed(mut failure) => {
            failure.message = masked(&failure.message);
            failure.phase = failure.phase.or(watchdog.phase());
            Outcome::ended(failure, partial)
        }
    }
}

fn lifecycle_start(ticket: &Ticket) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("job".into(), ticket.spec.id.as_str().into());
    data.insert("trigger".into(), ticket.trigger.as_str().into());
    data.insert("model".into(), ticket.spec.agent.model.to_string().into());
    data
}

async fn read_prompt(path: &Path) -> Result<String, Failure> {
    let named = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read_text(&named, FILE_BYTES_MAX));
    let text = read.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    text.map_err(|error| invalid(format!("failed to read the prompt {}: {error}", path.display())))
}

fn read_secrets(
    spec: &JobSpec,
    environment: &Environment,
) -> Result<Vec<(String, secrecy::SecretString)>, Failure> {
    let read = |(name, source): (&String, &SecretSource)| {
        let value = source
            .read(environment)
            .map_err(|error| invalid(format!("secret `{name}`: {error}")))?;
        Ok((name.clone(), value))
    };
    spec.env.secret.iter().map(read).collect()
}

/// What the job's commands see: the base, what the job passes on and sets, its secrets.
fn command_environment(
    spec: &JobSpec,
    secrets: &[(String, secrecy::SecretString)],
    ours: &Environment,
) -> Vec<(String, String)> {
    use secrecy::ExposeSecret as _;
    let mut environment = base_environment();
    let passed = spec.env.pass.iter().filter_map(|name| Some((name.clone(), ours.get(name)?)));
    environment.extend(passed);
    environment.extend(spec.env.set.iter().map(|(name, value)| (name.clone(), value.clone())));
    environment.extend(
        secrets.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())),
    );
    environment
}

fn invalid(message: String) -> Failure {
    Failure::new(ErrorKind::Validation, message)
}

fn unusable(error: &ModelError) -> Failure {
    invalid(error.to_string())
}

fn internal(panic: &Box<dyn std::any::Any + Send>) -> Failure {
    let words = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(panic = words, "the run's code panicked");
    Failure::new(ErrorKind::Internal, format!("a fault in punctual itself: {words}"))
}

fn turn_failure(end: &TurnEnd) -> Failure {
    let words = end.to_string();
    match end {
        TurnEnd::Fault(fault) => Failure::from(fault),
        TurnEnd::TruncatedReply => Failure::new(ErrorKind::TruncatedReply, words),
        TurnEnd::ContentFilter => Failure::new(ErrorKind::ContentFilter, words),
        TurnEnd::ToolLoop { .. } => Failure::new(ErrorKind::ToolLoop, words).in_phase(Phase::Tool),
        TurnEnd::TurnLimit(_) => {
            Failure::new(ErrorKind::TurnLimit, words).by_limit(Limit::Turns, None)
        }
        TurnEnd::Tokens { .. } => {
            Failure::new(ErrorKind::Budget, words).by_limit(Limit::Budget, None)
        }
        TurnEnd::Transcript(_) => Failure::new(ErrorKind::Internal, words),
    }
}
