//! `config.toml` → checked [`Config`], and the jobs that stand in it.
//!
//! Problems are collected, not thrown: one report names every problem of every file. A broken
//! job file never stops another job; a broken configuration stops everything, because nothing
//! that it says can be trusted to be meant.

mod ad_hoc;
mod auth;
mod calendars;
mod diagnostics;
mod heartbeat;
mod hooks;
mod jobs;
mod load;
mod mcp;
mod others;
mod providers;
mod queue;
mod skills;
mod sources;
mod table;
mod targets;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::job::{
    Ceilings, Defaults, Does, Environment, JobId, JobSpec, Manner, ModelRef, Problem, ScheduleSpec,
    Surroundings, Unresolved, Usd,
};
use crate::schedule::{DateRange, Schedule, Zone, Zones};
use mcp::JobServers;
use providers::{Directory, JobModels};
use skills::JobSkills;
use targets::JobTargets;

pub use auth::{ApiKey, Auth, AuthProfile};
pub use diagnostics::{Diagnostics, Thresholds};
pub use heartbeat::Heartbeat;
pub use hooks::{HookKind, HookOn, HookPoint, HookSpec, UnknownHook};
pub use jobs::{JobSet, load_jobs};
pub use load::{load, state_dir};
pub use mcp::{McpServer, McpWay};
pub use providers::{Api, ModelConfig, Price, ProviderConfig};
pub use queue::{QueueMode, QueueRules};
pub use skills::{InstallPolicy, Skills};
pub use sources::Sources;
pub use targets::{Email, Target, TargetKind, Tls, Webhook};

/// A configuration in which every name resolves and every value is in range.
#[derive(Debug, Clone)]
pub struct Config {
    /// The files it came from, in the order in which later ones win; none: built-in defaults.
    pub files: Vec<PathBuf>,
    /// The folder of the job files.
    pub jobs_dir: PathBuf,
    /// The folder of the database and the sessions.
    pub state_dir: PathBuf,
    /// The zone database in use.
    pub zones: Zones,
    /// The zone of jobs that name none.
    pub timezone: Zone,
    /// How runs are started and ended.
    pub scheduler: Scheduler,
    /// The named lanes and their widths.
    pub lanes: BTreeMap<String, NonZeroUsize>,
    /// The named calendars and their dates.
    pub calendars: BTreeMap<String, Vec<DateRange>>,
    /// What holds for every turn.
    pub agent: AgentDefaults,
    /// What becomes of messages whose session is busy.
    pub queue: QueueRules,
    /// How long a writer waits for a session's lock.
    pub session_lock_timeout: Duration,
    /// The look-out for stuck sessions.
    pub diagnostics: Diagnostics,
    /// What no job may exceed.
    pub ceilings: Ceilings,
    /// What all jobs together may cost in a day of this zone.
    pub max_usd_per_day: Option<Usd>,
    /// How much of the history is kept of jobs that do not say.
    pub retention: Retention,
    /// Where replies and alerts can be sent, by name.
    pub targets: BTreeMap<String, Target>,
    /// The MCP servers, by name.
    pub mcp: BTreeMap<String, McpServer>,
    /// Whom `serve` tells that it lives.
    pub heartbeat: Option<Heartbeat>,
    /// Commands that look in or step in, in the order of the file.
    pub hooks: Vec<HookSpec>,
    /// Private hosts that may be reached all the same: `host` or `host:port`.
    pub allow_hosts: Vec<String>,
    /// Where skills are, and what is set for them.
    pub skills: Skills,
    /// Where secrets are looked up.
    pub environment: Environment,
    calendar_files: Vec<PathBuf>,
    directory: Directory,
    defaults: Defaults,
    sources: Sources,
}

words!(
    /// How changed files are noticed.
    Reload {
        /// By watching them.
        Watch = "watch",
        /// Only when somebody says so.
        Manual = "manual",
    }
);

/// How runs are started and ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduler {
    /// Width of the global lane; `None`: there is none.
    pub max_concurrent_runs: Option<NonZeroUsize>,
    /// How long runs may go on after a stop signal.
    pub shutdown_grace: Duration,
    /// The clean-up after the end of a run, in all.
    pub cleanup_timeout: Duration,
    /// From a run's lanes to its turn, at most.
    pub setup_timeout: Duration,
    /// How changed files are noticed.
    pub reload: Reload,
}

impl Default for Scheduler {
    /// The contract's defaults.
    fn default() -> Self {
        Self {
            max_concurrent_runs: NonZeroUsize::new(8),
            shutdown_grace: Duration::from_secs(30),
            cleanup_timeout: Duration::from_secs(20),
            setup_timeout: Duration::from_mins(1),
            reload: Reload::Watch,
        }
    }
}

/// `[retention]`: whichever of the two is reached first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest runs of each job that are kept; `None`: all.
    pub runs: Option<u32>,
    /// For how many days runs and slots are kept; `None`: for ever.
    pub days: Option<u32>,
}

/// `[agents.defaults]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDefaults {
    /// The model of jobs that name none.
    pub model: Option<ModelRef>,
    /// What jobs that name no fallbacks go on with when a model fails.
    pub fallbacks: Vec<ModelRef>,
    /// A of semantics §2.
    pub timeout: AgentTimeout,
    /// How turns think and what of them is shown, of jobs that do not say.
    pub manner: Manner,
}

/// The limit of a whole agent run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentTimeout {
    /// Not written: 48h, and no rule counts it as configured.
    Default48h,
    /// Written.
    Configured(Duration),
    /// `"0s"`.
    Unlimited,
}

/// The limit of a job's run that writes none, unless the whole agent run's is shorter.
const RUN_CEILING: Duration = Duration::from_hours(1);

/// The same of a command.
const COMMAND_CEILING: Duration = Duration::from_mins(10);

impl Config {
    /// The providers by their ids.
    pub fn providers(&self) -> &BTreeMap<String, ProviderConfig> {
        &self.directory.providers
    }

    /// The aliases and what they stand for.
    pub fn aliases(&self) -> &BTreeMap<String, ModelRef> {
        &self.directory.aliases
    }

    /// What `provider/model` or an alias stands for.
    pub fn resolve_model(&self, text: &str) -> Result<ModelRef, Unresolved> {
        self.directory.resolve(text)
    }

    /// The files beside the jobs' that a change of meaning can come from: a configuration that is
    /// not there yet is one of them.
    pub fn watched_files(&self) -> Vec<PathBuf> {
        let mut files = self.files.clone();
        if files.is_empty() {
            files.push(self.sources.absolute(std::path::Path::new("config.toml")));
        }
        files.extend(self.calendar_files.iter().cloned());
        files.extend(Zones::host_files());
        files
    }

    /// Every secret of the targets that can be read, by the name that stands for it.
    pub fn target_secrets(&self) -> Vec<(String, SecretString)> {
        let of_target =
            |(name, target): (&String, &Target)| target.secrets(name, &self.environment);
        self.targets.iter().flat_map(of_target).collect()
    }

    /// Reads the same files again.
    pub fn read_again(&self) -> Result<(Self, Vec<Problem>), Vec<Problem>> {
        load(&self.sources)
    }

    /// The schedule of a definition that was stored, if it can still be understood.
    pub fn stored_schedule(&self, id: &JobId, definition: &str) -> Option<Schedule> {
        self.stored_spec(id, definition).map(|spec| spec.schedule)
    }

    /// The same with the zone in which its times are shown.
    pub fn stored_spec(&self, id: &JobId, definition: &str) -> Option<ScheduleSpec> {
        self.with_surroundings(|around| crate::job::stored_schedule(id, definition, around))
    }

    /// The limit of a job's run that writes none: min(60m, A when configured), and never above
    /// `[ceilings] timeout`.
    pub fn run_ceiling(&self) -> Duration {
        let usual = match self.agent.timeout {
            AgentTimeout::Configured(limit) => limit.min(RUN_CEILING),
            AgentTimeout::Default48h | AgentTimeout::Unlimited => RUN_CEILING,
        };
        self.ceilings.timeout.map_or(usual, |ceiling| usual.min(ceiling))
    }

    /// What a model costs; `None` is unknown.
    pub fn price_of(&self, model: &ModelRef) -> Option<Price> {
        self.directory.price_of(model)
    }

    /// The limit of a run of this job, if it writes none.
    pub fn run_ceiling_of(&self, spec: &JobSpec) -> Duration {
        match spec.does {
            Does::Agent(_) => self.run_ceiling(),
            Does::Command(_) => self
                .ceilings
                .timeout
                .map_or(COMMAND_CEILING, |ceiling| COMMAND_CEILING.min(ceiling)),
        }
    }

    /// Lends what a job's words refer to.
    pub fn with_surroundings<T>(&self, then: impl FnOnce(&Surroundings<'_>) -> T) -> T {
        let models = JobModels::new(&self.directory, &self.agent, &self.environment);
        let targets = JobTargets::new(&self.targets, &self.environment);
        let skills = JobSkills::new(&self.skills, &self.environment);
        let servers = JobServers::new(&self.mcp, &self.environment);
        then(&Surroundings {
            zones: &self.zones,
            timezone: &self.timezone,
            lanes: &self.lanes,
            models: &models,
            targets: &targets,
            skills: &skills,
            mcp: &servers,
            environment: &self.environment,
            calendars: &self.calendars,
            defaults: &self.defaults,
            run_ceiling: self.run_ceiling(),
            ceilings: &self.ceilings,
            max_usd_per_day: self.max_usd_per_day,
            manner: self.agent.manner,
            setup_timeout: self.scheduler.setup_timeout,
        })
    }
}

/// The JSON Schema of `config.toml`, with every default.
pub fn schema() -> serde_json::Value {
    crate::job::schema::document("Punctual configuration", table::CONFIG)
}
