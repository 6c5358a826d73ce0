//! From a configuration to a daemon that is ready: folders, lock, ledger, jobs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::broadcast;

use super::dispatcher::{Dispatcher, JobEntry, Scheduling};
use super::lock::{Kind, LockError, StateLock};
use crate::clock::{Clock, to_millis};
use crate::config::{Config, JobSet, load_jobs};
use crate::executor::{Bus, Executor, Lanes, Models};
use crate::job::{JobSpec, Problem};
use crate::process::{ProcessId, SupervisorPath, boot_id};
use crate::run::{ErrorKind, RunEvent};
use crate::store::{JobRow, Owner, Recovered, Store, StoreError};

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
        let store = Store::open(&config.state_dir, owner()?)?;
        let now = to_millis(clock.wall());
        let recovered = store.close_open_runs(ErrorKind::Interrupted, now).await?;
        if recovered != Recovered::default() {
            tracing::warn!(
                interrupted = recovered.interrupted,
                finished = recovered.finished,
                "closed runs that a dead process had left open"
            );
        }
        sweep_workspaces(&config.state_dir);

        let memories = store.adopt_jobs(job_rows(&jobs), now).await?;
        let problems = jobs.problems();
        let invalid =
            jobs.invalid.iter().map(|(name, why)| (name.clone(), all_words(why))).collect();
        let entries: BTreeMap<_, _> = jobs
            .jobs
            .into_iter()
            .map(|(id, spec)| {
                let entry = JobEntry::new(Arc::new(spec), &memories[id.as_str()]);
                (id, entry)
            })
            .collect();
        let scheduling = match kind {
            Kind::Serve => Scheduling::On,
            Kind::Run => Scheduling::Off,
        };
        let dispatcher = Dispatcher::new(Arc::clone(&clock), entries, invalid, scheduling);
        if scheduling == Scheduling::On {
            let next =
                dispatcher.upcoming().map(|(due, spec)| (spec.id.clone(), Some(due))).collect();
            store.note_next_due(next).await?;
        }
        let executor = Executor {
            models: Models::new(&config),
            lanes: Lanes::new(config.scheduler.max_concurrent_runs, &config.lanes),
            bus: Bus::new(Arc::clone(&clock)),
            config: Arc::new(config),
            clock,
            store,
            supervisor,
        };
        Ok(Self { executor: Arc::new(executor), dispatcher, _lock: lock, problems, recovered })
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
fn make_folders(state_dir: &Path) -> Result<(), OpenError> {
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

fn owner() -> Result<Owner, OpenError> {
    let this = ProcessId::own().ok_or(OpenError::Identity)?;
    let host = nix::unistd::gethostname().unwrap_or_default();
    Ok(Owner {
        boot_id: boot_id(),
        pid: this.pid,
        started: i64::try_from(this.start_time).unwrap_or(i64::MAX),
        host: host.to_string_lossy().into_owned(),
    })
}

/// Workspaces of runs that a dead process could not tidy. Under the lock no run is alive.
fn sweep_workspaces(state_dir: &Path) {
    let Ok(folder) = std::fs::read_dir(state_dir.join("workspaces")) else { return };
    for entry in folder.flatten() {
        if let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::warn!(path = %entry.path().display(), %error, "could not remove a workspace");
        }
    }
}

fn job_rows(set: &JobSet) -> Vec<JobRow> {
    let valid = set.jobs.values().map(|spec| JobRow {
        job: spec.id.to_string(),
        file: spec.file.display().to_string(),
        description: spec.description.clone(),
        owner: spec.owner.clone(),
        labels: serde_json::to_string(&spec.labels).unwrap_or_default(),
        enabled: spec.enabled,
        invalid_reason: None,
        schedule: spec.schedule.as_ref().map(|schedule| schedule.text.clone()),
        timezone: spec.schedule.as_ref().and_then(|it| Some(it.schedule.zone()?.name().to_owned())),
        definition: Some((spec.definition_hash.clone(), spec.effective.to_string())),
    });
    let invalid = set.invalid.iter().map(|(name, problems)| JobRow {
        job: name.clone(),
        file: problems
            .first()
            .map(|problem| problem.file.display().to_string())
            .unwrap_or_default(),
        description: None,
        owner: None,
        labels: "{}".into(),
        enabled: true,
        invalid_reason: Some(all_words(problems)),
        schedule: None,
        timezone: None,
        definition: None,
    });
    valid.chain(invalid).collect()
}

/// Everything that is wrong with a file, each with its place.
fn all_words(problems: &[Problem]) -> String {
    if problems.is_empty() {
        return "its file cannot be used".into();
    }
    let words = |it: &Problem| format!("line {}, column {}: {}", it.line, it.column, it.message);
    problems.iter().map(words).collect::<Vec<_>>().join("; ")
}
