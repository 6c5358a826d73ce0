//! From a configuration to a daemon that is ready: folders, lock, ledger, jobs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{broadcast, mpsc};

use super::dispatcher::{Dispatcher, Scheduling, all_words, job_rows};
use super::lock::{Kind, LockError, StateLock};
use crate::clock::{Clock, to_millis};
use crate::config::{Config, JobSet, load_jobs};
use crate::executor::{
    Bus, Embedding, Executor, Lanes, Milestone, Models, Purse, TEMPORARY_SUFFIX,
};
use crate::hooks::Hooks;
use crate::job::{AfterSpec, JobId, JobSpec, Problem};
use crate::plan::{self, Availability, JobView, Living, Planner, Reason, Record, Rules, SlotEnd};
use crate::process::{ProcessId, SupervisorPath, boot_id, end_orphans, living_runs};
use crate::run::{RunEvent, RunId};
use crate::schedule::Schedule;
use crate::session::sweep_locks;
use crate::store::{Days, JobMemory, Owner, Queued, Recovered, Store, StoreError};

/// A daemon that holds its state folder and has not begun to serve.
#[derive(Debug)]
pub struct Daemon {
    pub(super) executor: Arc<Executor>,
    pub(super) dispatcher: Dispatcher,
    /// Held as long as the daemon lives.
    pub(super) _lock: StateLock,
    /// What is wrong or doubtful about the files, for those who print it.
    pub problems: Vec<Problem>,
    /// What a dead process had left open.
    pub recovered: Recovered,
    /// What its runs tell of themselves, until somebody rings for it.
    pub(super) milestones: mpsc::UnboundedReceiver<Milestone>,
}

/// A daemon that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A folder cannot be made.
    #[error("failed to make the folder {path}")]
    Folder {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The state folder cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The jobs folder cannot be read: that does not mean that there are no jobs.
    #[error("{}: {}", .0.file.display(), .0.message)]
    Jobs(Box<Problem>),
    /// The process cannot find out who it is.
    #[error("failed to read this process's own start time from /proc")]
    Identity,
}

impl Daemon {
    /// Makes the state folder, takes its lock, closes what a dead process left open and loads the
    /// jobs. Nothing starts yet.
    pub async fn open(
        config: Config,
        kind: Kind,
        clock: Arc<dyn Clock>,
        supervisor: SupervisorPath,
    ) -> Result<Self, OpenError> {
        let jobs = load_jobs(&config);
        if let Some(problem) = &jobs.folder {
            return Err(OpenError::Jobs(Box::new(problem.clone())));
        }
        make_folders(&config.state_dir)?;
        let lock = StateLock::acquire(&config.state_dir, kind)?;
        let days = Days::new(&config.zones, &config.timezone);
        let store = Store::open(&config.state_dir, owner()?)?.counting_in(days);
        let now = to_millis(clock.wall());
        let queued = match kind {
            Kind::Serve => Queued::TakenOver,
            Kind::Run => Queued::Left,
        };
        let mut recovered = store.recover(is_alive, queued, now).await?;
        if recovered.interrupted + recovered.finished > 0 {
            tracing::warn!(
                interrupted = recovered.interrupted,
                finished = recovered.finished,
                "closed runs that a dead process had left open"
            );
        }
        end_orphans_of(&store).await?;
        sweep_workspaces(&config.state_dir, &recovered.alive);
        if recovered.interrupted + recovered.finished > 0 {
            sweep_locks(&config.state_dir.join("sessions"));
        }
        let rewound = store.rewind(now).await?;
        if !rewound.is_empty() {
            tracing::warn!(
                jobs = rewound.len(), %now,
                "the clock is behind what the ledger has decided: decisions go on from here, and \
                 no slot that has a run gets another one"
            );
        }

        let problems = jobs.problems();
        let TakenIn { mut planner, specs, invalid, was_due } =
            take_in(&store, &config, jobs, now).await?;
        recovered.upstream = unheard(&store, &planner)?;
        let spent = store.reader()?.spent(now)?;
        planner.knows_spent(spent.clone());
        let scheduling = match kind {
            Kind::Serve => Scheduling::On,
            Kind::Run => Scheduling::Off,
        };
        let mut dispatcher =
            Dispatcher::new(Arc::clone(&clock), planner, specs, invalid, scheduling);
        dispatcher.knows_sessions(store.reader()?.kept_sessions()?);
        dispatcher.holds(&config, now);
        store.note_start(dispatcher.next_dues_other_than(&was_due), now).await?;
        let (milestones, heard) = mpsc::unbounded_channel();
        let executor = Executor {
            models: Models::new(&config),
            lanes: Lanes::new(config.scheduler.max_concurrent_runs, &config.lanes),
            bus: Bus::new(Arc::clone(&clock)),
            purse: Purse::new(spent),
            hooks: Arc::new(Hooks::of_config(&config.hooks)),
            embedding: Embedding::default(),
            config: Arc::new(config),
            clock,
            store,
            supervisor,
            deck: None,
            milestones: Some(milestones),
        };
        Ok(Self {
            executor: Arc::new(executor),
            dispatcher,
            _lock: lock,
            problems,
            recovered,
            milestones: heard,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.executor.config
    }

    /// The ledger, for whoever has to leave before the daemon does.
    pub fn store(&self) -> Store {
        self.executor.store.clone()
    }

    /// What the runs tell, from now on.
    pub fn events(&self) -> broadcast::Receiver<Arc<RunEvent>> {
        self.executor.bus.listen()
    }

    /// When each job is due next, soonest first.
    pub fn upcoming(&self) -> impl Iterator<Item = (Timestamp, &JobSpec)> {
        self.dispatcher.upcoming()
    }

    /// How many jobs can run.
    pub fn jobs(&self) -> usize {
        self.dispatcher.jobs()
    }

    /// How many files define no job.
    pub fn invalid(&self) -> usize {
        self.dispatcher.invalid()
    }
}

/// State folders can hold what a model read: only their owner may look.
pub(super) fn make_folders(state_dir: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::DirBuilderExt as _;
    for path in [state_dir.to_owned(), state_dir.join("sessions"), state_dir.join("workspaces")] {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|source| OpenError::Folder { path, source })?;
    }
    Ok(())
}

pub(super) fn owner() -> Result<Owner, OpenError> {
    let this = ProcessId::own().ok_or(OpenError::Identity)?;
    let host = nix::unistd::gethostname().unwrap_or_default();
    Ok(Owner {
        boot_id: boot_id(),
        pid: this.pid,
        started: i64::try_from(this.start_time).unwrap_or(i64::MAX),
        host: host.to_string_lossy().into_owned(),
    })
}

/// Whether the process that drives a run lives: pid and start time together name it.
fn is_alive(owner: &Owner) -> bool {
    let Ok(start_time) = u64::try_from(owner.started) else { return false };
    owner.boot_id == boot_id() && ProcessId { pid: owner.pid, start_time }.is_alive()
}

/// Ends what lives of runs of this ledger whose daemon is dead, before anything starts beside it.
async fn end_orphans_of(store: &Store) -> Result<(), StoreError> {
    for run_id in living_runs() {
        let owner = store.reader()?.owner_of(&run_id)?;
        if owner.is_none_or(|owner| is_alive(&owner)) {
            continue;
        }
        let end = end_orphans(&run_id).await;
        if end.left.is_empty() {
            tracing::warn!(run_id, "ended what a dead process had left running");
        } else {
            tracing::error!(run_id, left = ?end.left, "could not end what a dead process had left");
        }
    }
    Ok(())
}

/// Workspaces of runs that a dead process could not tidy.
fn sweep_workspaces(state_dir: &Path, alive: &[RunId]) {
    let Ok(folder) = std::fs::read_dir(state_dir.join("workspaces")) else { return };
    let lives = |name: &str| alive.iter().any(|run_id| name == run_id.as_str());
    let lives = |name: String| lives(name.strip_suffix(TEMPORARY_SUFFIX).unwrap_or(&name));
    let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    for entry in folder.flatten().filter(|entry| !lives(name(entry))) {
        if let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::warn!(path = %entry.path().display(), %error, "could not remove a workspace");
        }
    }
}

/// When jobs were due next, as the ledger has it.
type NextDues = HashMap<JobId, Option<Timestamp>>;

/// What the files and the ledger together say of the jobs.
struct TakenIn {
    planner: Planner,
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    invalid: BTreeMap<String, String>,
    was_due: NextDues,
}

/// What had come to its end when nobody was there to say what follows for the jobs after it.
fn unheard(store: &Store, planner: &Planner) -> Result<Vec<SlotEnd>, StoreError> {
    let reader = store.reader()?;
    let mut ends = Vec::new();
    for (id, upstream, since) in planner.joined() {
        for job in upstream {
            ends.extend(reader.slot_ends(job, id, since)?);
        }
    }
    // Two jobs may come after the same one.
    ends.sort_by(|a, b| (a.first, &a.job).cmp(&(b.first, &b.job)));
    ends.dedup();
    Ok(ends)
}

/// The jobs with what the ledger remembers of them. Only what has changed is written: most starts
/// change nothing.
async fn take_in(
    store: &Store,
    config: &Config,
    mut jobs: JobSet,
    now: Timestamp,
) -> Result<TakenIn, OpenError> {
    let mut memories = store.reader()?.known_jobs()?;
    jobs.spread(memories.iter().filter(|(_, it)| it.was_there).map(|(name, _)| name.as_str()));
    close_books(store, config, &jobs, &memories, now).await?;
    let is_there =
        |name: &String| jobs.invalid.contains_key(name) || spec_of(&jobs, name).is_some();
    let gone = memories.iter().filter(|(name, memory)| memory.was_there && !is_there(name));
    let gone: Vec<_> = gone.map(|(name, _)| name.clone()).collect();
    let is_known = |spec: &JobSpec| {
        let known = memories.get(spec.id.as_str());
        known.filter(|it| it.was_there && !it.was_invalid && it.timing.is_some()).is_some_and(
            |it| {
                it.definition_hash.as_ref() == Some(&spec.definition_hash)
                    && Path::new(&it.file) == spec.file
            },
        )
    };
    let rows = job_rows(&jobs, |spec| !is_known(spec));
    memories.extend(store.adopt_jobs(rows, gone, now).await?);

    let (mut planner, mut specs) = (Planner::default(), BTreeMap::new());
    let mut was_due = NextDues::new();
    for (id, spec) in jobs.jobs {
        let JobMemory { anchor, memory, next_due, .. } = &memories[id.as_str()];
        planner.adopt(&id, Rules::of(&spec, *anchor), memory.clone(), now);
        was_due.insert(id.clone(), *next_due);
        specs.insert(id, Arc::new(spec));
    }
    // A job whose file is broken goes on being due as it last was, and each slot says why it does
    // not start.
    for name in jobs.invalid.keys() {
        let (Some(memory), Ok(id)) = (memories.get(name), name.parse::<JobId>()) else { continue };
        let schedule = last_schedule(store, config, &id, memory)?;
        let after = last_definition(store, memory)?.and_then(|it| AfterSpec::stored(&it));
        if schedule.is_some() || after.is_some() {
            let rules = Rules { after, ..Rules::idle(schedule, Availability::Invalid) };
            planner.adopt(&id, rules, memory.memory.clone(), now);
        }
    }
    let invalid = jobs.invalid.iter().map(|(name, why)| (name.clone(), all_words(why))).collect();
    Ok(TakenIn { planner, specs, invalid, was_due })
}

/// What was due while nobody looked, under schedules that hold no more.
async fn close_books(
    store: &Store,
    config: &Config,
    jobs: &JobSet,
    known: &HashMap<String, JobMemory>,
    now: Timestamp,
) -> Result<(), OpenError> {
    let holds = |name: &String, memory: &JobMemory| match spec_of(jobs, name) {
        Some(spec) => memory.timing.as_ref().is_none_or(|timing| *timing == spec.timing()),
        None => jobs.invalid.contains_key(name),
    };
    let mut receipts = Vec::new();
    for (name, memory) in known {
        if !memory.was_there || holds(name, memory) {
            continue;
        }
        let Ok(id) = name.parse::<JobId>() else { continue };
        let Some(schedule) = last_schedule(store, config, &id, memory)? else { continue };
        let view = JobView {
            schedule: &schedule,
            rules: &Rules::idle(None, Availability::Retired),
            memory: &memory.memory,
            living: Living::default(),
            unseen_because: Reason::Down,
            obstacle: None,
        };
        let rows = plan::decide(view, now).slots;
        if !rows.is_empty() {
            let record = Record { rows, ..Record::new(&id, None) };
            receipts.push(store.record(record, None, now).await?);
        }
    }
    for receipt in receipts {
        receipt.recorded().await?;
    }
    Ok(())
}

fn spec_of<'a>(jobs: &'a JobSet, name: &str) -> Option<&'a JobSpec> {
    jobs.jobs.get(&name.parse::<JobId>().ok()?)
}

/// The last definition that could be used, as JSON.
fn last_definition(store: &Store, memory: &JobMemory) -> Result<Option<String>, StoreError> {
    match &memory.definition_hash {
        Some(hash) => store.reader()?.definition(hash),
        None => Ok(None),
    }
}

/// The schedule of the last definition that could be used.
fn last_schedule(
    store: &Store,
    config: &Config,
    id: &JobId,
    memory: &JobMemory,
) -> Result<Option<Schedule>, OpenError> {
    let definition = last_definition(store, memory)?;
    let schedule = definition.and_then(|definition| config.stored_schedule(id, &definition));
    Ok(schedule.map(|schedule| schedule.anchored(memory.anchor)))
}
