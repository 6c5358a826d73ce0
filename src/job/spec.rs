//! A job, valid by construction.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::id::JobId;
use super::manner::Manner;
use super::money::Usd;
use super::read_alert::{AlertSpec, Cause};
use super::read_checks::{ArtifactPattern, CheckSpec, ReplySchema};
use super::read_deliver::{DeliverSpec, DeliverWhen};
use super::read_sandbox::SandboxSpec;
use super::read_secret::SecretText;
use super::secret::SecretSource;
use super::session::SessionChoice;
use crate::schedule::{Schedule, Zone};

/// A job that can be run: every name in it resolves, every value is in range.
#[derive(Debug, Clone)]
pub struct JobSpec {
    /// The file's stem.
    pub id: JobId,
    /// The file it came from.
    pub file: PathBuf,
    /// One line for people.
    pub description: Option<String>,
    /// Who answers for it.
    pub owner: Option<String>,
    /// Free words for queries.
    pub labels: BTreeMap<String, String>,
    /// Whether its slots start runs.
    pub enabled: bool,
    /// The named lane it waits in, besides the global one.
    pub lane: Option<String>,
    /// When it is due; `None` means only by hand, or after others.
    pub schedule: Option<ScheduleSpec>,
    /// The jobs whose end starts it.
    pub after: Option<AfterSpec>,
    /// Its combination, if it is one job of a matrix.
    pub matrix: BTreeMap<String, String>,
    /// What decides beforehand whether it does anything.
    pub gate: Option<GateSpec>,
    /// What it does.
    pub does: Does,
    /// Where it does it.
    pub workdir: Workdir,
    /// What its commands see of the environment.
    pub env: EnvSpec,
    /// Its bounds.
    pub limits: Limits,
    /// What follows a run that did not succeed.
    pub retry: RetrySpec,
    /// What the host checks before it calls a run a success.
    pub checks: Vec<CheckSpec>,
    /// What the reply must meet.
    pub reply_schema: Option<ReplySchema>,
    /// The reply that means silence.
    pub silent_token: String,
    /// Where its runs' results are sent.
    pub delivers: Vec<DeliverSpec>,
    /// Files that it has to make, and that are kept.
    pub artifacts: Vec<ArtifactPattern>,
    /// Who is told when it is not well.
    pub alert: Option<AlertSpec>,
    /// Whom its runs ring, so that their absence is noticed.
    pub ping: Option<SecretText>,
    /// The definition with its defaults applied, secrets by name: what `show --effective` prints
    /// and `v1_definitions` keeps.
    pub effective: serde_json::Value,
    /// SHA-256 of the id and of `effective`, in hex.
    pub definition_hash: String,
}

impl JobSpec {
    /// Its model turn, unless it is a command.
    pub fn agent(&self) -> Option<&AgentSpec> {
        match &self.does {
            Does::Agent(agent) => Some(agent),
            Does::Command(_) => None,
        }
    }

    /// How its turns think, and what of them is shown.
    pub fn manner(&self) -> Manner {
        self.agent().map(|agent| agent.manner).unwrap_or_default()
    }

    /// What of the definition says when the job is due, as JSON: another text is another schedule,
    /// and begins new decisions.
    pub fn timing(&self) -> String {
        super::effective::timing(&self.effective)
    }

    /// Whether somebody hears of it when its runs fail.
    pub fn tells_of_failures(&self) -> bool {
        let is_told =
            |it: &DeliverSpec| matches!(it.when, DeliverWhen::Failed | DeliverWhen::Always);
        self.delivers.iter().any(is_told)
            || self.alert.as_ref().is_some_and(|alert| alert.is_on(Cause::Failed))
    }

    /// What the ledger has to know to send what comes of a run, as JSON; `None` if nothing is sent
    /// and silence has its usual word.
    pub fn sends(&self) -> Option<String> {
        super::read_deliver::sends(&self.delivers, &self.silent_token)
    }
}

/// When a job is due and what happens to slots that could not start in time.
#[derive(Debug, Clone)]
pub struct ScheduleSpec {
    /// The compiled schedule.
    pub schedule: Schedule,
    /// The zone in which its times are written and shown, also those of `every` and `at`.
    pub zone: Zone,
    /// As it was written: the cron text, `every 6h`, `at …`.
    pub text: String,
    /// What to do with misfires.
    pub catchup: Catchup,
    /// How late a misfire may still start; `None` is the default rule (half the distance to the
    /// next due instant, at least 2m, at most 2h; 2h for `at`).
    pub catchup_window: Option<Duration>,
    /// What to do when it is due while its last run lives.
    pub overlap: Overlap,
}

/// The jobs whose end starts this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AfterSpec {
    /// Which; all of them, per slot. Never empty.
    pub jobs: Vec<JobId>,
    /// Which end counts.
    pub when: When,
}

impl AfterSpec {
    /// Of a definition that was stored as JSON.
    pub fn stored(definition: &str) -> Option<Self> {
        let definition: serde_json::Value = serde_json::from_str(definition).ok()?;
        let after = definition.get("after")?;
        let jobs = after.get("jobs")?.as_array()?.iter();
        let jobs = jobs.map(|job| job.as_str()?.parse().ok()).collect::<Option<Vec<_>>>()?;
        Some(Self { jobs, when: after.get("when")?.as_str()?.parse().ok()? })
    }
}

impl std::fmt::Display for AfterSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let jobs: Vec<_> = self.jobs.iter().map(JobId::as_str).collect();
        write!(f, "after {}", jobs.join(", "))?;
        match self.when {
            When::Succeeded => Ok(()),
            When::Failed | When::Finished => write!(f, " ({})", self.when),
        }
    }
}

words!(
    /// Which end of a job starts what comes after it.
    When {
        /// It succeeded.
        Succeeded = "succeeded",
        /// It failed, timed out or was interrupted, after its last attempt.
        Failed = "failed",
        /// Either.
        Finished = "finished",
    }
);

words!(
    /// What happens to slots that were missed.
    Catchup {
        /// They are recorded, nothing starts.
        None = "none",
        /// The newest one starts, once.
        Latest = "latest",
        /// Each one starts, in order.
        All = "all",
    }
);

words!(
    /// What happens to a slot that is due while the job still runs.
    Overlap {
        /// It is skipped.
        Skip = "skip",
        /// One waits.
        BufferOne = "buffer_one",
        /// All wait.
        BufferAll = "buffer_all",
        /// The running one is cancelled.
        CancelOther = "cancel_other",
        /// It starts beside the running one.
        AllowAll = "allow_all",
    }
);

/// What a run of a job does.
#[derive(Debug, Clone)]
pub enum Does {
    /// A model turn.
    Agent(Box<AgentSpec>),
    /// A command, without any model.
    Command(CommandSpec),
}

/// A command in place of a model turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Exit codes that are a success. Never empty.
    pub ok_exit: Vec<i32>,
}

/// A command that decides whether a run does anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// What means yes.
    pub run_if: RunIf,
    /// Whether the model is told what it printed.
    pub output: GateOutput,
    /// How long it may take.
    pub timeout: Duration,
}

words!(
    /// What of a gate means yes.
    RunIf {
        /// It exits with zero.
        ExitZero = "exit_zero",
        /// It prints something, too.
        Output = "output",
        /// It prints something else than before the job's last success.
        Changed = "changed",
    }
);

/// What becomes of what a gate prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateOutput {
    /// The model is told.
    Passed,
    /// Only a prompt that names it gets it.
    Kept,
}

/// A model turn: what to say to which model with which tools.
#[derive(Debug, Clone)]
pub struct AgentSpec {
    /// What to say.
    pub prompt: Prompt,
    /// `{{ vars.x }}`.
    pub vars: BTreeMap<String, String>,
    /// Which model answers.
    pub model: ModelRef,
    /// Which models go on, in this order, when one has failed; empty: none. Never `model` itself.
    pub fallbacks: Vec<ModelRef>,
    /// How it thinks, and what of that is shown.
    pub manner: Manner,
    /// Names of the tools on offer.
    pub tools: Vec<String>,
    /// Patterns of commands that `exec` may run; empty: `exec` is denied.
    pub exec_allow: Vec<String>,
    /// Names of the MCP servers whose tools are on offer too.
    pub mcp: Vec<String>,
    /// How its tools are confined.
    pub sandbox: Box<SandboxSpec>,
    /// Which conversation its runs belong to.
    pub session: SessionChoice,
    /// Whether the next model goes on where the host finds a success to be none.
    pub escalate: Escalate,
    /// Names of the skills on offer.
    pub skills: Vec<String>,
    /// Whether the files of the workspace that every turn begins with are told.
    pub context: ContextFiles,
}

/// What becomes of the workspace's bootstrap files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextFiles {
    /// They are told.
    Told,
    /// They are left out (`light_context`).
    LeftOut,
}

impl AgentSpec {
    /// Whether it may call anything.
    pub fn has_tools(&self) -> bool {
        !self.tools.is_empty() || !self.mcp.is_empty()
    }
}

/// What becomes of a reply that does not pass the host's checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escalate {
    /// The run has failed.
    Never,
    /// The next of the fallbacks goes on, if there is one.
    OnCheckFailed,
}

impl JobSpec {
    /// Whether a run that says it has succeeded is looked at before it has.
    pub fn is_checked(&self) -> bool {
        !self.checks.is_empty() || self.reply_schema.is_some() || !self.artifacts.is_empty()
    }
}

/// Where the prompt's text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// In the job file.
    Inline(String),
    /// In a file of its own, read when the run starts.
    File(PathBuf),
}

/// A model as the configuration knows it, aliases resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelRef {
    /// The key under `[models.providers]`.
    pub provider: String,
    /// The model's id as the provider knows it.
    pub model: String,
}

impl std::fmt::Display for ModelRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// The folder in which tools and commands work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workdir {
    /// A fresh one per run, gone afterwards.
    Fresh,
    /// This one.
    Existing(PathBuf),
}

/// The environment of a job's commands, beside the base that every command gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvSpec {
    /// Fixed values.
    pub set: BTreeMap<String, String>,
    /// Names taken over from the daemon's environment.
    pub pass: Vec<String>,
    /// Secrets by source.
    pub secret: BTreeMap<String, SecretSource>,
}

/// The bounds of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `limits.timeout` (R of semantics §2).
    pub timeout: RunTimeout,
    /// How long it may wait for its lanes; `None` waits without limit.
    pub lane_timeout: Option<Duration>,
    /// From TERM to KILL.
    pub stop_grace: Duration,
    /// One tool call.
    pub tool_timeout: Duration,
    /// Model requests per turn.
    pub max_turns: u32,
    /// Input and output tokens of a run together.
    pub max_tokens: u64,
    /// What a run may cost.
    pub max_usd: Option<Usd>,
    /// What the job may cost in a day of its zone.
    pub max_usd_per_day: Option<Usd>,
}

/// The run's own time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunTimeout {
    /// Not written: the ceiling of semantics §2 applies, and no rule counts it as configured.
    Unset,
    /// `"0s"`.
    Unlimited,
    /// A length of time.
    After(Duration),
}

impl Default for Limits {
    /// The contract's defaults.
    fn default() -> Self {
        Self {
            timeout: RunTimeout::Unset,
            lane_timeout: None,
            stop_grace: Duration::from_secs(5),
            tool_timeout: Duration::from_mins(10),
            max_turns: 30,
            max_tokens: 200_000,
            max_usd: None,
            max_usd_per_day: None,
        }
    }
}

/// What follows a scheduled run that did not succeed (semantics §4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySpec {
    /// Attempts per slot, the first counted.
    pub max_attempts: u32,
    /// Waits before the second, third … attempt; the last one repeats. Never empty.
    pub backoff: Vec<Duration>,
    /// Failed slots in a row that pause the job.
    pub pause_after: u32,
    /// What becomes of a run whose process died.
    pub interrupted: AfterInterruption,
    /// Permanent kinds of error that are retried all the same.
    pub on: Vec<String>,
}

/// What becomes of a slot whose run was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterInterruption {
    /// It stays as it is.
    Leave,
    /// It is run once more; if that is interrupted too, the job is held.
    RepeatOnce,
}

impl Default for RetrySpec {
    /// The contract's defaults.
    fn default() -> Self {
        Self {
            max_attempts: 4,
            backoff: [30, 60, 300].map(Duration::from_secs).to_vec(),
            pause_after: 10,
            interrupted: AfterInterruption::Leave,
            on: Vec::new(),
        }
    }
}
