//! One run of one job in a house that is torn down afterwards.
//!
//! The executor, its lanes and its limits are those of every run. The ledger is a fresh one in a
//! folder of its own: no schedule moves, nothing is decided about a slot, and nothing that follows
//! a run (retries, deliveries, alerts, pings) does, since those follow from the ledger of the state
//! folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::dispatcher::job_rows;
use super::open::{OpenError, make_folders, owner};
use crate::cassette::{Cassette, Deck, End, TakenCheck, Unkept};
use crate::clock::{Clock, to_millis};
use crate::config::{Config, JobSet};
use crate::executor::{Bus, Embedding, Executor, Lanes, Models, Purse, Ticket, Watchdog};
use crate::hooks::Hooks;
use crate::job::JobSpec;
use crate::plan::Record;
use crate::process::SupervisorPath;
use crate::run::{RunId, SessionId, Trigger};
use crate::schedule::Schedule;
use crate::session::Conversation;
use crate::store::{NewRun, RunRecord, Sending, Store, StoreError};
use crate::turn::Variables;

/// A run that is over, and its house with it.
#[derive(Debug)]
pub struct Rehearsed {
    /// What the ledger had of it.
    pub record: RunRecord,
    /// What was taken down of it, if that can be kept.
    pub cassette: Result<Cassette, Unkept>,
}

/// A rehearsal that could not be.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// Its house cannot be set up.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its ledger does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its run is not in its ledger.
    #[error("the run has left nothing in its ledger")]
    Lost,
}

/// A run that is about to be.
#[derive(Debug)]
pub struct Rehearsal {
    executor: Executor,
    ticket: Ticket,
    watchdog: Arc<Watchdog>,
    deck: Deck,
    /// Gone with it.
    _house: House,
}

impl Rehearsal {
    /// Sets the house up and records the run in its ledger.
    pub async fn of(
        config: &Config,
        spec: Arc<JobSpec>,
        variables: Variables,
        deck: Deck,
        clock: Arc<dyn Clock>,
        supervisor: SupervisorPath,
    ) -> Result<Self, RehearsalError> {
        let now = to_millis(clock.wall());
        let run_id = RunId::new(now);
        let house = House::make(&run_id)?;
        let config = Arc::new(moved(config, &house.0));
        let store = Store::open(&config.state_dir, owner()?)?;
        let run = NewRun {
            run_id: run_id.clone(),
            trigger: Trigger::Manual,
            slot: None,
            attempt: 1,
            session_id: SessionId::new(now),
            definition_hash: spec.definition_hash.clone(),
            // A rehearsal is nobody's news.
            sending: Sending::Suppressed,
            session: None,
            letters: Vec::new(),
            ad_hoc: None,
        };
        let ticket = Ticket {
            run_id,
            session_id: run.session_id.clone(),
            // Nor does it remember anything, or leave anything to be remembered.
            session_key: None,
            conversation: Conversation::Own,
            spec: Arc::clone(&spec),
            trigger: run.trigger,
            due_at: None,
            turn: None,
            variables,
        };
        enter(&store, &spec, run, now).await?;
        let executor = Executor {
            models: Models::new(&config),
            lanes: Lanes::new(config.scheduler.max_concurrent_runs, &config.lanes),
            bus: Bus::new(Arc::clone(&clock)),
            // What others have spent today is no part of it.
            purse: Purse::default(),
            hooks: Arc::new(Hooks::of_config(&config.hooks)),
            embedding: Embedding::default(),
            deck: Some(deck.clone()),
            // Nobody who watches the job learns of a rehearsal.
            milestones: None,
            config,
            clock: Arc::clone(&clock),
            store,
            supervisor,
        };
        let watchdog = Arc::new(Watchdog::new(clock, spec.limits.lane_timeout));
        Ok(Self { executor, ticket, watchdog, deck, _house: house })
    }

    /// What cuts the run, for whoever may want to.
    pub fn watchdog(&self) -> Arc<Watchdog> {
        Arc::clone(&self.watchdog)
    }

    /// What the run tells, from now on.
    pub fn bus(&self) -> &Bus {
        &self.executor.bus
    }

    /// Drives the run to its end.
    pub async fn run(self) -> Result<Rehearsed, RehearsalError> {
        let run_id = self.ticket.run_id.clone();
        self.executor.drive(&self.ticket, &self.watchdog).await;
        let record = self.executor.store.reader()?.run(run_id.as_str())?;
        let record = record.ok_or(RehearsalError::Lost)?;
        let (checks, end) = (checks_of(&record), end_of(&record).ok_or(RehearsalError::Lost)?);
        let Ticket { spec, variables, .. } = self.ticket;
        let now = to_millis(self.executor.clock.wall());
        let cassette = self.deck.take(&spec.id, variables, checks, end, now).await;
        Ok(Rehearsed { record, cassette })
    }
}

/// The job and its run, in a ledger that knows no other.
async fn enter(
    store: &Store,
    spec: &Arc<JobSpec>,
    run: NewRun,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut jobs = JobSet::default();
    jobs.jobs.insert(spec.id.clone(), JobSpec::clone(spec));
    store.adopt_jobs(job_rows(&jobs, |_| true), Vec::new(), now).await?;
    let record = Record::new(&spec.id, None);
    store.record(record, Some(run), now).await?.recorded().await?;
    Ok(())
}

/// `config` for a house at `state_dir`. What its tools may never write stays so.
fn moved(config: &Config, state_dir: &Path) -> Config {
    let mut config = config.clone();
    let real = std::mem::replace(&mut config.state_dir, state_dir.to_owned());
    config.files.push(real);
    config
}

fn checks_of(record: &RunRecord) -> Vec<TakenCheck> {
    let checks = record.checks.iter().map(|check| TakenCheck {
        name: check.name.clone(),
        passed: check.passed,
        detail: check.detail.clone(),
    });
    checks.collect()
}

fn end_of(record: &RunRecord) -> Option<End> {
    let error = record.error.as_ref();
    Some(End {
        state: record.state.parse().ok()?,
        reply: record.reply.clone().or_else(|| record.partial_text.clone()),
        error_kind: error.map(|error| error.kind),
        error_message: error.map(|error| error.message.clone()),
        limit: error.and_then(|error| error.limit),
        input_tokens: record.usage.input_tokens,
        output_tokens: record.usage.output_tokens,
        usd: record.usage.usd,
        tool_errors: record.tools.errors,
        denied_calls: record.tools.denied,
        // Counted once all is there.
        checks: 0,
        calls: 0,
        requests: 0,
    })
}

/// A state folder that goes with whoever holds it.
#[derive(Debug)]
struct House(PathBuf);

impl House {
    fn make(run_id: &RunId) -> Result<Self, OpenError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = std::env::temp_dir().join(format!("punctual-test-{run_id}"));
        // Not one that somebody else has put there.
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|source| OpenError::Folder { path: path.clone(), source })?;
        let house = Self(path);
        make_folders(&house.0)?;
        Ok(house)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "could not remove a folder");
        }
    }
}

/// The variables of a run for `slot`, or of one by hand: until `now`.
pub fn variables_of(
    spec: &JobSpec,
    schedule: Option<&Schedule>,
    slot: Option<Timestamp>,
    now: Timestamp,
) -> Variables {
    let before = |at: Timestamp| schedule?.prev_at_or_before(at);
    let (start, end) = match slot {
        Some(slot) => (before(slot - std::time::Duration::from_millis(1)).unwrap_or(slot), slot),
        None => (before(now).unwrap_or(now), now),
    };
    Variables { due_at: end, slot_start: start, slot_end: end, ..own_words(spec) }
}

/// The variables that `cassette` was recorded with, and what the job itself says now.
pub fn variables_again(spec: &JobSpec, cassette: &Cassette) -> Variables {
    let Variables { due_at, slot_start, slot_end, vars: _, matrix: _ } = cassette.variables;
    Variables { due_at, slot_start, slot_end, ..own_words(spec) }
}

/// What the job says itself.
fn own_words(spec: &JobSpec) -> Variables {
    let vars = spec.agent().map(|agent| agent.vars.clone()).unwrap_or_default();
    let never = Timestamp::MIN;
    let matrix = spec.matrix.clone();
    Variables { due_at: never, slot_start: never, slot_end: never, vars, matrix }
}
