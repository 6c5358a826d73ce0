//! A job file's text → [`JobSpec`], or every problem in it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use super::ceilings::{self, Ceilings};
use super::effective;
use super::id::JobId;
use super::keys;
use super::manner::Manner;
use super::money::Usd;
use super::problem::{Problem, sort_problems};
use super::prompt::Mention;
use super::read_after;
use super::read_agent;
use super::read_alert;
use super::read_checks;
use super::read_command;
use super::read_deliver;
use super::read_env;
use super::read_matrix;
use super::read_ping;
use super::read_retry;
use super::read_schedule;
use super::read_secret::SecretText;
use super::read_skills::{self, Skills};
use super::secret::{Environment, SecretSource};
use super::source::Source;
use super::spec::{
    AfterSpec, Does, EnvSpec, GateSpec, JobSpec, Limits, ModelRef, RetrySpec, RunTimeout,
    ScheduleSpec, Workdir,
};
use super::table::JOB;
use super::tree::{self, Item, Node};
use crate::schedule::{DateRange, Zone, Zones};

/// What a job's words refer to: the configuration, as far as a job has to know it.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The zone database.
    pub zones: &'a Zones,
    /// The zone of jobs that name none.
    pub timezone: &'a Zone,
    /// The named lanes and their widths.
    pub lanes: &'a BTreeMap<String, NonZeroUsize>,
    /// The models.
    pub models: &'a dyn Models,
    /// Where things can be sent.
    pub targets: &'a dyn Targets,
    /// The skills.
    pub skills: &'a dyn Skills,
    /// The MCP servers.
    pub mcp: &'a dyn McpServers,
    /// Where secrets are looked up.
    pub environment: &'a Environment,
    /// The named calendars and their dates.
    pub calendars: &'a BTreeMap<String, Vec<DateRange>>,
    /// What jobs need not repeat.
    pub defaults: &'a Defaults,
    /// The limit of a run that writes none (semantics §2).
    pub run_ceiling: Duration,
    /// What no job may exceed.
    pub ceilings: &'a Ceilings,
    /// What all jobs together may cost in a day.
    pub max_usd_per_day: Option<Usd>,
    /// How turns think and what of them is shown, of jobs that do not say.
    pub manner: Manner,
    /// How long a run may be set up.
    pub setup_timeout: Duration,
}

/// The models that a job can name.
pub trait Models: Sync {
    /// The model of jobs that name none.
    fn default_model(&self) -> Option<ModelRef>;

    /// The fallbacks of jobs that name none.
    fn default_fallbacks(&self) -> &[ModelRef];

    /// What `provider/model` or an alias stands for.
    fn resolve(&self, text: &str) -> Result<ModelRef, Unresolved>;

    /// Whether it is known what this model costs.
    fn has_price(&self, model: &ModelRef) -> bool;

    /// What a run on this model needs of its provider.
    fn needs(&self, model: &ModelRef) -> ModelNeeds;
}

/// The places that a job can send to.
pub trait Targets: Sync {
    /// Whether there is a target of this name that can be used.
    fn resolve(&self, name: &str) -> Result<(), Unresolved>;
}

/// The MCP servers that a job can name.
pub trait McpServers: Sync {
    /// Whether there is a server of this name that can be used.
    fn resolve(&self, name: &str) -> Result<(), Unresolved>;
}

/// Why a name stands for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// What is wrong.
    pub message: String,
    /// The nearest known name, or the known names.
    pub help: Option<String>,
}

/// What a model's provider asks of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelNeeds {
    /// The provider's own limits on a request, by their keys.
    pub timeouts: Vec<(&'static str, Duration)>,
    /// Why its key cannot be read, without the key.
    pub key_problem: Option<String>,
}

/// The `[defaults]` of the configuration: job tables that every job starts from.
#[derive(Debug, Clone, Default)]
pub struct Defaults(Option<Node>);

impl Defaults {
    /// Takes a table whose keys have been checked against the job's keys.
    pub(crate) fn new(node: Node) -> Self {
        Self(Some(node))
    }

    /// What is wrong with the values in it, whichever job they come to stand in.
    pub(crate) fn problems(&self, around: &Surroundings<'_>) -> Vec<Problem> {
        let Some(node) = &self.0 else { return Vec::new() };
        let (part, seed, matrix) = (Part::Defaults, "", &BTreeMap::new());
        let (problems, mentions) = (Vec::new(), Vec::new());
        let mut reader = Reader { node, around, part, seed, matrix, problems, mentions };
        reader.everything();
        reader.problems
    }

    fn under(&self, job: Node) -> Node {
        let Some(defaults) = &self.0 else { return job };
        let mut defaults = defaults.clone();
        for alternatives in ALTERNATIVES {
            if alternatives.iter().any(|path| job.get(path).is_some()) {
                alternatives.iter().for_each(|path| defaults.remove(path));
            }
        }
        defaults.merged(job)
    }
}

/// Keys that exclude each other: a job that writes one means it in place of a default's other.
const ALTERNATIVES: &[&[&str]] = &[
    &["schedule.cron", "schedule.every", "schedule.at"],
    &["agent.prompt", "agent.prompt_file", "command"],
];

/// A job that can be run, and what its writer should know.
#[derive(Debug)]
pub struct Parsed {
    /// The job.
    pub job: JobSpec,
    /// Warnings.
    pub warnings: Vec<Problem>,
    /// The other jobs that it names: each has to be there.
    pub mentions: Vec<Mention>,
}

/// Reads the text of a job file: one job, or one per combination of its matrix. Either everything
/// in it is right, or all problems come back.
///
/// Looks at the disk only for the files and folders that the job names.
pub fn parse(
    id: &JobId,
    file: &Path,
    text: &str,
    around: &Surroundings<'_>,
) -> Result<Vec<Parsed>, Vec<Problem>> {
    let source = Source::new(file, text);
    let mut problems = Vec::new();
    let mut own = tree::parse(&source, &mut problems);
    let unreadable = !problems.is_empty();
    check_keys(&mut own, &mut problems);
    let merged = around.defaults.under(own);
    let mut parsed = Vec::new();
    let combinations = read_matrix::combinations(id, &merged, &mut problems);
    let sample = [(id.clone(), read_matrix::sample(&merged))];
    let all = if combinations.is_empty() { &sample[..] } else { &combinations };
    for (id, matrix) in all {
        // What is wrong with the file is wrong with each of its jobs, and is said once.
        let found = std::mem::take(&mut problems);
        match one(id, matrix, &merged, (file, around), (found, unreadable)) {
            Ok(job) => parsed.push(job),
            Err(found) => {
                problems = found;
                break;
            }
        }
    }
    if !combinations.is_empty() && parsed.len() == combinations.len() {
        return Ok(parsed);
    }
    sort_problems(&mut problems);
    Err(problems)
}

/// One job of a file, with what is wrong with the file already.
fn one(
    id: &JobId,
    matrix: &BTreeMap<String, String>,
    merged: &Node,
    (file, around): (&Path, &Surroundings<'_>),
    (problems, unreadable): (Vec<Problem>, bool),
) -> Result<Parsed, Vec<Problem>> {
    let (part, seed, mentions) = (Part::Job, id.as_str(), Vec::new());
    let mut reader = Reader { node: merged, around, part, seed, matrix, problems, mentions };
    // A file with a syntax error lacks what stands behind it; what is missing is not its fault.
    let read = if unreadable { None } else { reader.everything() };
    let Reader { mut problems, mentions, .. } = reader;
    sort_problems(&mut problems);
    let Some(read) = read.filter(|_| !problems.iter().any(Problem::is_error)) else {
        return Err(problems);
    };
    let job = job_spec(id, file, merged, matrix, read);
    Ok(Parsed { job, warnings: problems, mentions })
}

/// The schedule of a definition that was stored as JSON; `None` if there is none or it can no
/// longer be understood.
pub fn stored_schedule(
    id: &JobId,
    definition: &str,
    around: &Surroundings<'_>,
) -> Option<ScheduleSpec> {
    let definition: serde_json::Value = serde_json::from_str(definition).ok()?;
    let table = serde_json::json!({ "schedule": definition.get("schedule")? });
    let text = toml::to_string(&table).ok()?;
    let source = Source::new(Path::new("definition"), &text);
    let mut problems = Vec::new();
    let node = tree::parse(&source, &mut problems);
    let (part, seed, matrix, mentions) = (Part::Job, id.as_str(), &BTreeMap::new(), Vec::new());
    let mut reader = Reader { node: &node, around, part, seed, matrix, problems, mentions };
    let spec = read_schedule::schedule(&mut reader)?;
    (!reader.problems.iter().any(Problem::is_error)).then_some(spec)
}

/// Checks keys and types. What a syntax error left on its own line is not judged twice.
fn check_keys(own: &mut Node, problems: &mut Vec<Problem>) {
    let broken_lines: Vec<_> = problems.iter().map(|problem| problem.line).collect();
    let mut found = Vec::new();
    keys::check(own, JOB, &mut found);
    found.retain(|problem| !broken_lines.contains(&problem.line));
    problems.extend(found);
}

fn job_spec(
    id: &JobId,
    file: &Path,
    merged: &Node,
    matrix: &BTreeMap<String, String>,
    read: Read,
) -> JobSpec {
    let effective = effective::definition(merged, matrix, &read);
    JobSpec {
        id: id.clone(),
        file: file.to_owned(),
        description: merged.text("description").map(str::to_owned),
        owner: merged.text("owner").map(str::to_owned),
        labels: merged.text_map("labels"),
        enabled: merged.bool("enabled").unwrap_or(true),
        lane: merged.text("lane").map(str::to_owned),
        schedule: read.schedule,
        after: read.after,
        matrix: matrix.clone(),
        gate: read.gate,
        does: read.does,
        workdir: read.workdir,
        env: read.env,
        limits: read.limits,
        retry: read.retry,
        checks: read.checks,
        reply_schema: read.reply_schema,
        silent_token: read_deliver::silent_token(merged),
        delivers: read.delivers,
        artifacts: read.artifacts,
        alert: read.alert,
        ping: read.ping,
        definition_hash: effective::hash(id, &effective),
        effective,
    }
}

/// The parts that need more than a look at one value.
pub(super) struct Read {
    pub(super) schedule: Option<ScheduleSpec>,
    pub(super) after: Option<AfterSpec>,
    pub(super) gate: Option<GateSpec>,
    pub(super) does: Does,
    pub(super) workdir: Workdir,
    pub(super) env: EnvSpec,
    pub(super) limits: Limits,
    pub(super) retry: RetrySpec,
    pub(super) checks: Vec<read_checks::CheckSpec>,
    pub(super) reply_schema: Option<read_checks::ReplySchema>,
    pub(super) delivers: Vec<read_deliver::DeliverSpec>,
    pub(super) artifacts: Vec<read_checks::ArtifactPattern>,
    pub(super) alert: Option<read_alert::AlertSpec>,
    pub(super) ping: Option<SecretText>,
}

/// What is being read: a whole job, or defaults in which anything may be missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Job,
    Defaults,
}

pub(super) struct Reader<'a> {
    pub(super) node: &'a Node,
    pub(super) around: &'a Surroundings<'a>,
    pub(super) part: Part,
    /// What spreads this job's starts: its id.
    pub(super) seed: &'a str,
    /// Its combination, if it is of a matrix.
    pub(super) matrix: &'a BTreeMap<String, String>,
    pub(super) problems: Vec<Problem>,
    /// The other jobs that it names.
    pub(super) mentions: Vec<Mention>,
}

impl Reader<'_> {
    fn everything(&mut self) -> Option<Read> {
        self.lane();
        let mut limits = limits(self.node);
        ceilings::bound_limits(self, &mut limits);
        let schedule = read_schedule::schedule(self);
        let after = read_after::after(self);
        let gate = read_command::gate(self);
        let does = self.does(&limits);
        let workdir = self.workdir();
        let env = self.env();
        let retry = read_retry::retry(self);
        let checks = read_checks::checks(self);
        let reply_schema = read_checks::reply_schema(self);
        let delivers = read_deliver::delivers(self);
        let artifacts = read_checks::artifacts(self);
        let alert = read_alert::alert(self);
        let ping = read_ping::ping(self);
        let (does, workdir) = (does?, workdir?);
        if let Does::Agent(agent) = &does {
            read_skills::check(self, agent, &workdir, &env);
        }
        Some(Read {
            schedule,
            after,
            gate,
            does,
            workdir,
            env,
            limits,
            retry,
            checks,
            reply_schema,
            delivers,
            artifacts,
            alert,
            ping,
        })
    }

    fn does(&mut self, limits: &Limits) -> Option<Does> {
        match self.node.get("command") {
            Some(_) => read_command::command(self).map(Does::Command),
            None => read_agent::agent(self, limits).map(|agent| Does::Agent(Box::new(agent))),
        }
    }

    fn workdir(&mut self) -> Option<Workdir> {
        let of_command = self.node.get("command").is_some();
        read_command::workdir(self, if of_command { "command.workdir" } else { "agent.workdir" })
    }

    /// Reports a problem with the value at `path`, or at the nearest table above it.
    pub(super) fn refuse(
        &mut self,
        path: &str,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        let problem = self.problem(path, message).with_help(help);
        self.problems.push(problem);
    }

    pub(super) fn warn(&mut self, path: &str, message: impl Into<String>) {
        let problem = self.problem(path, message).as_warning();
        self.problems.push(problem);
    }

    fn problem(&self, path: &str, message: impl Into<String>) -> Problem {
        if let Some(node) = self.node.get(path) {
            return node.error(path, message);
        }
        let mut above = path;
        while let Some((shorter, _)) = above.rsplit_once('.') {
            above = shorter;
            if let Some(entry) = self.node.entry(above) {
                let span = entry.key_span.clone();
                return entry.key_source.error(span, path.to_owned(), message);
            }
        }
        self.node.source.error(0..0, path.to_owned(), message)
    }

    fn lane(&mut self) {
        let Some(lane) = self.node.text("lane") else { return };
        if !self.around.lanes.contains_key(lane) {
            let known = self.around.lanes.keys().map(String::as_str);
            let help = keys::did_you_mean(lane, known)
                .unwrap_or_else(|| "name it under [lanes] in config.toml".to_owned());
            self.refuse("lane", format!("there is no lane `{lane}`"), help);
        }
    }

    pub(super) fn env(&mut self) -> EnvSpec {
        let env = read_env::env(self.node, "", &mut self.problems);
        // What is missing is each job's own affair, not the configuration's.
        if self.part == Part::Job {
            for (name, source) in &env.secret {
                self.secret_value(&format!("env.secret.{name}"), source);
            }
        }
        env
    }

    fn secret_value(&mut self, path: &str, source: &SecretSource) {
        use secrecy::ExposeSecret;
        match source.read(self.around.environment) {
            Err(error) => self.refuse(path, with_sources(&error), None),
            Ok(value) if value.expose_secret().chars().count() < super::mask::SECRET_CHARS_MIN => {
                let least = super::mask::SECRET_CHARS_MIN;
                self.warn(path, format!("a secret of fewer than {least} characters is not masked"));
            }
            Ok(_) => {}
        }
    }
}

/// Whether something in it has been reported already: what is missing then may be what was meant.
pub(super) fn has_refused(table: &tree::Table) -> bool {
    table.values().any(|entry| matches!(entry.node.item, Item::Refused))
}

/// An error and everything under it, in one line.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

fn limits(node: &Node) -> Limits {
    let usual = Limits::default();
    Limits {
        timeout: match node.duration("limits.timeout") {
            None => RunTimeout::Unset,
            Some(Duration::ZERO) => RunTimeout::Unlimited,
            Some(limit) => RunTimeout::After(limit),
        },
        lane_timeout: node.duration("limits.lane_timeout"),
        stop_grace: node.duration("limits.stop_grace").unwrap_or(usual.stop_grace),
        tool_timeout: node.duration("limits.tool_timeout").unwrap_or(usual.tool_timeout),
        max_turns: node.integer("limits.max_turns").unwrap_or(usual.max_turns),
        max_tokens: node.integer("limits.max_tokens").unwrap_or(usual.max_tokens),
        max_usd: node.float("limits.max_usd").map(Usd::from_dollars),
        max_usd_per_day: node.float("limits.max_usd_per_day").map(Usd::from_dollars),
    }
}
