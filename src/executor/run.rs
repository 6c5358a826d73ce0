//! One run, from its ticket to its terminal state.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc};
use tracing::Instrument as _;

use super::checks::verdict;
use super::cleanup::Tidying;
use super::converse::next_attempt_begins;
use super::course::Course;
use super::embedding::Embedding;
use super::escalate::{Reply, announcement};
use super::events::{Bus, RunEvents};
use super::holdings::Holdings;
use super::hooked::end_limit;
use super::lanes::{Lanes, Rank};
use super::milestone::{Ended, Failing, Milestone, Watched};
use super::models::Models;
use super::purse::Purse;
use super::stop::{Stop, ended, internal};
use super::watchdog::Watchdog;
use crate::cassette::{Deck, Plays};
use crate::clock::{Clock, to_millis};
use crate::config::Config;
use crate::hooks::Hooks;
use crate::job::{Does, JobSpec, SessionKey};
use crate::plan::RunEnd;
use crate::process::{Household, SupervisorPath};
use crate::run::{
    CheckResult, Cleanup, ErrorKind, EventPhase, Failure, Findings, Outcome, Payload, Phase, RunId,
    SessionId, Stream, Trigger, Work,
};
use crate::session::Conversation;
use crate::store::{AttemptEnd, Days, Store};
use crate::turn::{Left, Tally, Turn, Variables};

/// The most that a process gets from TERM to KILL when the daemon stops; the daemon waits longer
/// than that after its grace.
const SHUTDOWN_STOP_GRACE: Duration = Duration::from_secs(1);

/// How long the tidying waits for the end of the work to be on the disk.
const RECORDED_FIRST: Duration = Duration::from_millis(250);

/// A run that is recorded as `queued`, with everything it needs.
#[derive(Debug, Clone)]
pub struct Ticket {
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// The key of that; none for a command, which says nothing to anybody.
    pub session_key: Option<SessionKey>,
    /// Whose conversation that is.
    pub conversation: Conversation,
    /// The definition it runs under, to its end.
    pub spec: Arc<JobSpec>,
    /// What made it start.
    pub trigger: Trigger,
    /// Its slot.
    pub due_at: Option<Timestamp>,
    /// What it waits for before its lanes: another run of its job.
    pub turn: Option<Arc<Notify>>,
    /// What its prompt may name.
    pub variables: Variables,
}

/// What there is to record of a run once all of it is over.
struct Tidied {
    cleanup: Cleanup,
    findings: Findings,
    /// How its command ended, if it is one and ended by itself.
    exit_code: Option<i32>,
    /// When that was.
    at: Timestamp,
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
    /// What the runs of this process spend.
    pub purse: Purse,
    /// The program that supervises processes.
    pub supervisor: SupervisorPath,
    /// Who looks in and steps in.
    pub hooks: Arc<Hooks>,
    /// What the program brings along that embeds this.
    pub embedding: Embedding,
    /// What stands between the run and the world, if it is recorded or replayed.
    pub deck: Option<Deck>,
    /// Who is told of runs that have a switch to ring; without, nobody is.
    pub milestones: Option<mpsc::UnboundedSender<Milestone>>,
}

impl Executor {
    /// Drives the run of `ticket` to its terminal state. Never fails and never panics: whatever
    /// happens to the work becomes the run's outcome.
    pub async fn drive(&self, ticket: &Ticket, watchdog: &Watchdog) -> RunEnd {
        let span = tracing::info_span!(
            "run", run_id = %ticket.run_id, job = %ticket.spec.id,
            lane = ticket.spec.lane.as_deref().unwrap_or("*")
        );
        self.drive_in_span(ticket, watchdog).instrument(span).await
    }

    async fn drive_in_span(&self, ticket: &Ticket, watchdog: &Watchdog) -> RunEnd {
        let events = self.bus.of_run(ticket.run_id.clone());
        let household = Household::new(self.supervisor.clone(), ticket.run_id.as_str());
        let mut holdings = Holdings::new(household);
        // On the heap: whoever waits for a run carries no conversation about.
        let work = Box::pin(self.work(ticket, watchdog, &events, &mut holdings));
        let work = AssertUnwindSafe(work);
        let outcome = match work.catch_unwind().await {
            Ok(Ok(reply)) => {
                match ticket.spec.agent().and_then(|agent| announcement(agent, &reply)) {
                    None => Outcome::Succeeded { reply },
                    Some(failure) => Outcome::ended(failure, Some(reply)),
                }
            }
            Ok(Err(stop)) => ended(&stop, watchdog, &mut holdings),
            Err(panic) => Outcome::ended(internal(&panic), None),
        };
        let tally = holdings.turn.as_ref().map(Turn::tally).unwrap_or_default();
        watchdog.ends();
        let work = work_of(ticket, &outcome, &holdings);
        let last_attempt = self.attempt_end(&outcome, &mut holdings);
        // The first fact, on the disk before any tidying; but where the disk takes its time, no
        // process of the run lives on for that.
        let recorded = self.record_work(ticket, work, last_attempt);
        tokio::pin!(recorded);
        let is_there = tokio::time::timeout(RECORDED_FIRST, &mut recorded).await.is_ok();
        let recorded = async {
            if !is_there {
                recorded.await;
            }
        };
        let for_hooks = end_limit(watchdog, &outcome, self.clock.monotonic());
        let tidied = self.tidy(ticket, &outcome, holdings, for_hooks);
        let (tidied, ()) = tokio::join!(tidied, recorded);
        let outcome = judged(outcome, &tidied.findings.checks);
        let at = tidied.at;
        self.finish(ticket, &outcome, tidied, &events).await;
        end_of(&outcome, &tally, at)
    }

    /// The work itself: lanes, start, preparation, conversation.
    async fn work(
        &self,
        ticket: &Ticket,
        watchdog: &Watchdog,
        events: &RunEvents,
        holdings: &mut Holdings,
    ) -> Result<String, Stop> {
        if let Some(turn) = &ticket.turn {
            watchdog.guard(turn.notified()).await?;
        }
        let rank = Rank::of(ticket.trigger);
        let places = async {
            // Its session first: whoever waits for that holds no other place.
            let session = match ticket.conversation.inbox() {
                None => None,
                Some(inbox) => {
                    let place = self.lanes.enter(&ticket.session_id, &ticket.run_id).await;
                    inbox.quiet(&self.clock).await;
                    Some(place)
                }
            };
            let lane = self.lanes.acquire(ticket.spec.lane.as_deref(), rank, &ticket.run_id);
            lane.await.within(session)
        };
        holdings.permits = Some(watchdog.guard(places).await?);

        watchdog.set_up(self.config.scheduler.setup_timeout);
        // What it said when a run was recorded is on the cassette.
        let gate = ticket.spec.gate.as_ref().filter(|_| self.plays() == Plays::World);
        if let Some(gate) = gate {
            watchdog.entered(Phase::Gate);
            watchdog.guard(self.ask(ticket, gate, holdings)).await??;
        }
        let now = to_millis(self.clock.wall());
        watchdog.guard(self.store.start_run(&ticket.run_id, now)).await??;
        holdings.started = Some(now);
        watchdog.start(self.run_limits(ticket));
        self.allow_hooks(ticket, holdings);
        watchdog.entered(Phase::RunnerEntered);
        tracing::info!(trigger = %ticket.trigger, "run started");
        self.tell(ticket, Milestone::Started);
        events.tell(Stream::Lifecycle, EventPhase::Start, lifecycle_start(ticket));

        match &ticket.spec.does {
            Does::Agent(agent) => {
                let prepared = self.prepare(ticket, agent, watchdog, holdings);
                let resolved = watchdog.guard(prepared).await??;
                let claimed = self.claimed(ticket, &resolved.name, watchdog, holdings);
                if let Some(reply) = watchdog.guard(claimed).await? {
                    return Ok(reply);
                }
                let mut course = Course::begin(resolved, &agent.fallbacks);
                loop {
                    let reply =
                        self.converse(ticket, watchdog, events, &mut course, holdings).await?;
                    let accept =
                        self.accept(ticket, agent, &reply, watchdog, &mut course, holdings);
                    match accept.await? {
                        Reply::Stands => return Ok(reply),
                        Reply::GoesOn(after) => {
                            let n = holdings.attempts + 1;
                            let told = next_attempt_begins(n, &course.present, after);
                            events.tell(Stream::Lifecycle, EventPhase::Update, told);
                        }
                    }
                }
            }
            Does::Command(command) => self.command(ticket, command, watchdog, holdings).await,
        }
    }

    /// Closes the row of a run whose driving itself panicked: a fault of ours, but no run stays
    /// open for it and no job is blocked.
    pub async fn abandon(&self, ticket: &Ticket) -> RunEnd {
        let failure = Failure::new(ErrorKind::Internal, "a fault in punctual itself");
        self.close(ticket, failure).await
    }

    /// Closes the row of a run that nobody drives.
    pub(super) async fn close(&self, ticket: &Ticket, failure: Failure) -> RunEnd {
        let outcome = Outcome::ended(failure.clone(), None);
        let work = Work {
            outcome: outcome.clone(),
            payloads: Payload::plain(None, Some(&failure.message), &ticket.spec.silent_token),
            tool_calls: 0,
            tool_errors: 0,
            denied_calls: 0,
            unchecked: false,
            exit_code: None,
            gate_digest: None,
        };
        self.record_work(ticket, work, None).await;
        let cleanup = Tidying::begin(Arc::clone(&self.clock), Duration::ZERO).end();
        let events = self.bus.of_run(ticket.run_id.clone());
        let at = to_millis(self.clock.wall());
        self.finish(
            ticket,
            &outcome,
            Tidied { cleanup, findings: Findings::default(), exit_code: None, at },
            &events,
        )
        .await;
        end_of(&outcome, &Tally::default(), at)
    }

    async fn record_work(&self, ticket: &Ticket, work: Work, last_attempt: Option<AttemptEnd>) {
        let run_id = &ticket.run_id;
        let recorded = match self.store.record_work(run_id, work, last_attempt).await {
            Ok(written) => written.wait().await,
            Err(error) => Err(error),
        };
        if let Err(error) = recorded {
            tracing::error!(%run_id, %error, "could not store how the work ended");
        }
    }

    /// Also looks whether a success is one, at the moment for that.
    async fn tidy(
        &self,
        ticket: &Ticket,
        outcome: &Outcome,
        mut holdings: Holdings,
        for_hooks: Duration,
    ) -> Tidied {
        let exit_code = holdings.exit_code;
        let mut tidying =
            Tidying::begin(Arc::clone(&self.clock), self.config.scheduler.cleanup_timeout);
        tidying.model_stream(holdings.stream).await;
        let grace = stop_grace(&ticket.spec, outcome);
        tidying.mcp(&holdings.mcp, outcome, grace).await;
        for household in holdings.households_before.iter().chain([&holdings.household]) {
            tidying.processes(household, grace).await;
        }
        let why = match outcome.failure() {
            Some(failure) => format!("not finished: {}", failure.message),
            None => "not finished".to_owned(),
        };
        tidying.transcript(holdings.turn.as_mut(), &why).await;
        tidying.meanwhile(self.tell_end(ticket, outcome, &holdings, for_hooks)).await;
        let denied_calls = holdings.turn.as_ref().map_or(0, |turn| turn.tally().denied_calls);
        // The tools hold the workspace open.
        drop(holdings.turn.take());
        let mut findings = holdings.findings.take();
        if let (Outcome::Succeeded { reply }, Some(site)) = (outcome, &holdings.site(ticket)) {
            let look = async {
                let mut found = match findings.take() {
                    Some(found) => found,
                    None => self.check(ticket, reply, denied_calls, site, &holdings.masker).await,
                };
                self.keep(ticket, site, &mut found).await;
                found
            };
            findings = Some(tidying.meanwhile(look).await);
        }
        tidying.session_lock(holdings.session_lock.take()).await;
        let made = [&holdings.made_workspace, &holdings.made_temporary];
        let made: Vec<_> = made.into_iter().filter_map(|path| path.as_deref()).collect();
        tidying.workspace(&made).await;
        tidying.lane(holdings.permits.take()).await;
        let findings = findings.unwrap_or_default();
        Tidied { cleanup: tidying.end(), findings, exit_code, at: to_millis(self.clock.wall()) }
    }

    /// The last facts. The ledger may take them later than they were.
    async fn finish(&self, ticket: &Ticket, outcome: &Outcome, tidied: Tidied, events: &RunEvents) {
        let Tidied { cleanup, findings, exit_code, at } = tidied;
        let failed = verdict(&findings.checks);
        let state = outcome.state();
        let tidied = cleanup.outcome();
        if let Err(error) =
            self.store.finish_run(&ticket.run_id, cleanup, findings, failed, at).await
        {
            tracing::error!(%error, "could not store the end of the run");
        }
        let kind = outcome.failure().map(|failure| failure.kind);
        self.tell(ticket, |of| Milestone::Ended(of, Ended { state, kind, exit_code }));
        let mut data = Map::new();
        data.insert("state".into(), state.as_str().into());
        data.insert("cleanup".into(), tidied.as_str().into());
        match outcome.failure() {
            None => {
                tracing::info!(state = %state, cleanup = %tidied, "run ended");
                events.tell(Stream::Lifecycle, EventPhase::End, data);
            }
            Some(failure) => {
                let (kind, error) = (failure.kind, &failure.message);
                if kind == ErrorKind::Gate {
                    tracing::info!(state = %state, cleanup = %tidied, why = error, "run skipped");
                } else {
                    tracing::warn!(state = %state, cleanup = %tidied, %kind, error, "run ended");
                }
                data.insert("error".into(), serde_json::to_value(failure).unwrap_or(Value::Null));
                events.tell(Stream::Lifecycle, EventPhase::Error, data);
            }
        }
    }

    /// Tells whoever rings for the job, if somebody does. Never waits.
    fn tell(&self, ticket: &Ticket, milestone: impl FnOnce(Watched) -> Milestone) {
        if let (Some(heard), Some(url)) = (&self.milestones, &ticket.spec.ping) {
            let of = Watched {
                job: ticket.spec.id.clone(),
                run_id: ticket.run_id.to_string(),
                url: url.clone(),
                failure: match (ticket.trigger, ticket.due_at) {
                    (Trigger::Manual | Trigger::Rpc, _) | (_, None) => Failing::AtOnce,
                    (_, Some(_)) => Failing::Later,
                },
            };
            drop(heard.send(milestone(of)));
        }
    }

    /// Where answers come from.
    pub(super) fn plays(&self) -> Plays {
        self.deck.as_ref().map_or(Plays::World, Deck::plays)
    }

    /// Takes what the program brings along that embeds this.
    pub fn embed(&mut self, embedding: Embedding) {
        self.models = Models::new(&self.config).with(&embedding);
        self.hooks = Arc::new(embedding.own_hooks().with_config(&self.config.hooks));
        self.embedding = embedding;
    }

    /// The same ledger, lanes and listeners under another configuration, for runs to come.
    #[must_use]
    pub fn under(&self, config: Arc<Config>) -> Self {
        self.lanes.resize(config.scheduler.max_concurrent_runs, &config.lanes);
        Self {
            clock: Arc::clone(&self.clock),
            models: Models::new(&config).with(&self.embedding),
            embedding: self.embedding.clone(),
            store: self.store.counting_in(Days::new(&config.zones, &config.timezone)),
            purse: self.purse.clone(),
            lanes: self.lanes.clone(),
            bus: self.bus.clone(),
            supervisor: self.supervisor.clone(),
            deck: self.deck.clone(),
            milestones: self.milestones.clone(),
            hooks: Arc::new(self.hooks.with_config(&config.hooks)),
            config,
        }
    }
}

fn work_of(ticket: &Ticket, outcome: &Outcome, holdings: &Holdings) -> Work {
    let tally = holdings.turn.as_ref().map(Turn::tally).unwrap_or_default();
    let Tally { tool_calls, tool_errors, denied_calls, .. } = tally;
    let unchecked = ticket.spec.is_checked() && outcome.failure().is_none();
    Work {
        outcome: outcome.clone(),
        payloads: payloads(ticket, outcome, holdings),
        tool_calls,
        tool_errors,
        denied_calls,
        unchecked,
        exit_code: holdings.exit_code,
        gate_digest: holdings.gate.as_ref().and_then(|gate| gate.digest.clone()),
    }
}

/// What people are shown of it.
fn payloads(ticket: &Ticket, outcome: &Outcome, holdings: &Holdings) -> Vec<Payload> {
    let (reply, error) = match outcome {
        Outcome::Succeeded { reply } => (Some(reply.as_str()), None),
        Outcome::Ended { failure, .. } => (None, Some(failure.message.as_str())),
    };
    let silent_token = &ticket.spec.silent_token;
    match &holdings.turn {
        Some(turn) => {
            let left = Left { reply, error, silent_token, ..Left::default() };
            let targets: Vec<_> = ticket.spec.delivers.iter().map(|it| it.to.as_str()).collect();
            turn.payloads(left, &targets)
        }
        None => Payload::plain(reply, error, silent_token),
    }
}

/// A success that the host does not find to be one is none.
fn judged(outcome: Outcome, checks: &[CheckResult]) -> Outcome {
    match (outcome, verdict(checks)) {
        (Outcome::Succeeded { reply }, Some(failure)) => Outcome::ended(failure, Some(reply)),
        (outcome, _) => outcome,
    }
}

fn end_of(outcome: &Outcome, tally: &Tally, at: Timestamp) -> RunEnd {
    let Tally { tool_calls, usd, .. } = *tally;
    let kind = outcome.failure().map(|failure| failure.kind);
    RunEnd { state: outcome.state(), kind, tool_calls, usd, at }
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

fn lifecycle_start(ticket: &Ticket) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("job".into(), ticket.spec.id.as_str().into());
    data.insert("trigger".into(), ticket.trigger.as_str().into());
    let model = ticket.spec.agent().map(|agent| agent.model.to_string());
    data.insert("model".into(), model.into());
    data
}
