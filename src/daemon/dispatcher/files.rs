//! What changed files mean: which jobs are new, other, gone or broken.
//!
//! Running work ends under the definition it began with. A file that cannot be used leaves its
//! last good version in force; a configuration that cannot be used leaves everything as it was.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Dispatcher, Phase, Scheduling, answered};
use crate::clock::{Now, to_millis};
use crate::config::{Config, JobSet};
use crate::daemon::event::{Answer, Command, Files};
use crate::daemon::protocol::{Reloaded, Reply};
use crate::executor::{caps_of, probed_servers};
use crate::job::{JobId, JobSpec, Problem};
use crate::plan::{Reason, Rules};
use crate::store::{Definition, JobMemory, JobRow};

/// How far the reading of changed files has come.
#[derive(Debug, Default)]
pub(super) struct Reading {
    stage: Stage,
    /// Who waits for it.
    answers: Vec<Answer>,
    /// Why the files as a whole could not be used the last time.
    problem: Option<String>,
    /// What may not change under a running process.
    state_dir: Option<PathBuf>,
    /// The zone database in force: with another one every schedule is another.
    zones: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    Busy,
    /// They have changed again since.
    BusyAndStale,
}

impl Reading {
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Dispatcher {
    /// Says which configuration is in force.
    pub(in crate::daemon) fn holds(&mut self, config: &Config, now: Timestamp) {
        self.reading.state_dir = Some(config.state_dir.clone());
        self.reading.zones = zones_of(config);
        self.patrol.use_config(config);
        self.sessions.rules = config.queue;
        self.sessions.rest_after = config.retention.days;
        self.ad_hoc = super::messages::AdHoc::of(config);
        for (id, spec) in &self.jobs {
            self.planner.use_servers(id, probed_servers(spec, config), now);
            self.planner.use_caps(id, caps_of(spec, config), now);
        }
    }

    pub(super) fn reload_wanted(&mut self, answer: Option<Answer>) -> Vec<Command> {
        self.reading.answers.extend(answer);
        if self.phase == Phase::Stopping {
            return self.too_late_to_read();
        }
        match self.reading.stage {
            Stage::Idle => {
                self.reading.stage = Stage::Busy;
                vec![Command::ReadFiles]
            }
            Stage::Busy | Stage::BusyAndStale => {
                self.reading.stage = Stage::BusyAndStale;
                Vec::new()
            }
        }
    }

    /// What has changed goes to the ledger first.
    pub(super) fn files_read(&mut self, mut files: Box<Files>, now: Now) -> Vec<Command> {
        if self.phase == Phase::Stopping {
            return self.too_late_to_read();
        }
        if let Some(problem) = self.problem_of(&files) {
            return self.files_refused(&problem);
        }
        // What was due under the old definitions is decided under them.
        let mut commands = self.look(now);
        files.jobs.spread(self.planner.ids().map(JobId::as_str));
        let JobSet { jobs, invalid, .. } = &files.jobs;
        let same_zones = files.config.as_ref().is_ok_and(|it| zones_of(it) == self.reading.zones);
        let is_same = |spec: &JobSpec| {
            same_zones
                && !self.invalid.contains_key(spec.id.as_str())
                && self.jobs.get(&spec.id).is_some_and(|old| {
                    old.definition_hash == spec.definition_hash && old.file == spec.file
                })
        };
        let changed = jobs.values().filter(|spec| !is_same(spec)).map(row_of);
        let broken = invalid.iter().filter(|(name, problems)| {
            self.invalid.get(*name).is_none_or(|words| *words != all_words(problems))
        });
        let rows: Vec<_> =
            changed.chain(broken.map(|(name, problems)| broken_row(name, problems))).collect();
        let is_there = |name: &str| {
            invalid.contains_key(name) || name.parse().is_ok_and(|id: JobId| jobs.contains_key(&id))
        };
        let known = self.planner.ids().map(JobId::as_str);
        let known = known.chain(self.invalid.keys().map(String::as_str));
        let mut gone: Vec<_> = known.filter(|name| !is_there(name)).map(str::to_owned).collect();
        gone.sort_unstable();
        gone.dedup();
        files.gone.clone_from(&gone);
        let at = to_millis(now.wall);
        commands.extend(self.close_what_ends(&files, at));
        commands.push(Command::Adopt { rows, gone, files, at });
        commands
    }

    /// What was due by schedules that hold no more from now on.
    fn close_what_ends(&mut self, files: &Files, at: Timestamp) -> Vec<Command> {
        let is_other = |spec: &&JobSpec| {
            self.jobs.get(&spec.id).is_some_and(|old| is_due_otherwise(old, spec))
        };
        let mut ending: Vec<_> = files.gone.iter().filter_map(|name| name.parse().ok()).collect();
        ending.extend(files.jobs.jobs.values().filter(is_other).map(|spec| spec.id.clone()));
        let because = match self.scheduling {
            Scheduling::On => Reason::Superseded,
            // Nothing that is due is decided here.
            Scheduling::Off => Reason::Down,
        };
        let mut commands = Vec::new();
        for id in ending {
            let acts = self.planner.close(&id, at, because);
            commands.extend(self.commands_of(acts, at));
        }
        commands
    }

    fn problem_of(&self, files: &Files) -> Option<String> {
        match &files.config {
            Err(problems) => {
                let file = problems.first().map(|problem| problem.file.display().to_string());
                Some(format!("{}: {}", file.unwrap_or_default(), all_words(problems)))
            }
            Ok(config)
                if self.reading.state_dir.as_ref().is_some_and(|it| *it != config.state_dir) =>
            {
                Some(format!(
                    "the state folder cannot change under a running process: {}",
                    config.state_dir.display()
                ))
            }
            Ok(_) => files.jobs.folder.as_ref().map(|problem| problem.message.clone()),
        }
    }

    /// The ledger knows them: from now on they hold.
    pub(super) fn files_adopted(
        &mut self,
        files: Files,
        memories: &HashMap<String, JobMemory>,
        now: Now,
    ) -> Vec<Command> {
        let mut commands = self.look(now);
        let wall = to_millis(now.wall);
        let mut told = Reloaded::default();
        let mut acts = Vec::new();
        for (id, spec) in files.jobs.jobs {
            let Some(memory) = memories.get(id.as_str()) else { continue };
            let spec = Arc::new(spec);
            let rules = Rules::of(&spec, memory.anchor);
            let old = self.jobs.insert(id.clone(), Arc::clone(&spec));
            if let Some(old) = old {
                let is_other = is_due_otherwise(&old, &spec);
                let begins = is_other.then_some(memory.memory.decided_until);
                acts.extend(self.planner.replace(&id, rules, begins, wall));
                told.changed.push(id.to_string());
            } else {
                self.planner.adopt(&id, rules, memory.memory.clone(), wall);
                told.added.push(id.to_string());
            }
        }
        let broken = files.jobs.invalid;
        for name in &files.gone {
            self.invalid.remove(name);
            if let Ok(id) = name.parse::<JobId>() {
                self.jobs.remove(&id);
                acts.extend(self.planner.remove(&id, wall));
                told.removed.push(name.clone());
            }
        }
        self.invalid = broken.iter().map(|(name, why)| (name.clone(), all_words(why))).collect();
        for (job, problems) in &self.invalid {
            tracing::warn!(%job, problems, "its file cannot be used");
        }
        told.invalid.clone_from(&self.invalid);
        commands.extend(self.commands_of(acts, wall));
        if let Ok(config) = files.config {
            self.holds(&config, wall);
            commands.push(Command::UseConfig(config));
        }
        self.reading.problem = None;
        tracing::info!(
            changed = told.changed.len(),
            added = told.added.len(),
            removed = told.removed.len(),
            invalid = told.invalid.len(),
            "files read again"
        );
        commands.extend(self.done_reading(&Reply::Reloaded(Box::new(told))));
        commands
    }

    /// They are left as they were.
    pub(super) fn files_refused(&mut self, words: &str) -> Vec<Command> {
        tracing::error!(problem = words, "the changed files cannot be used; all stays as it was");
        self.reading.problem = Some(words.to_owned());
        self.done_reading(&Reply::refused("invalid", words.to_owned()))
    }

    /// While it stops nothing is decided any more, so whatever holds last has to go on holding: the
    /// next start decides what was due under it, and then takes the files over.
    fn too_late_to_read(&mut self) -> Vec<Command> {
        self.reading.stage = Stage::Idle;
        self.done_reading(&Reply::refused("stopping", "the daemon is stopping".into()))
    }

    fn done_reading(&mut self, reply: &Reply) -> Vec<Command> {
        let again = self.reading.stage == Stage::BusyAndStale;
        self.reading.stage = Stage::Idle;
        if again {
            return self.reload_wanted(None);
        }
        let answers = std::mem::take(&mut self.reading.answers);
        answers.into_iter().map(|answer| answered(answer, reply.clone())).collect()
    }
}

/// Whether another version of a job is due at other times. Most are the same version, which is
/// cheap to see.
fn is_due_otherwise(old: &JobSpec, new: &JobSpec) -> bool {
    old.definition_hash != new.definition_hash && old.timing() != new.timing()
}

fn zones_of(config: &Config) -> String {
    format!("{} {}", config.zones.version(), config.zones.origin())
}

/// The jobs of a set of files that are `wanted`, and all that are broken, as the ledger keeps them.
pub(in crate::daemon) fn job_rows(set: &JobSet, wanted: impl Fn(&JobSpec) -> bool) -> Vec<JobRow> {
    let valid = set.jobs.values().filter(|spec| wanted(spec)).map(row_of);
    let broken = set.invalid.iter().map(|(name, problems)| broken_row(name, problems));
    valid.chain(broken).collect()
}

fn row_of(spec: &JobSpec) -> JobRow {
    let when = spec.schedule.as_ref();
    let once = when.filter(|it| it.schedule.is_one_shot());
    let once = once.and_then(|it| it.schedule.next_after(jiff::Timestamp::MIN));
    JobRow {
        job: spec.id.to_string(),
        file: spec.file.display().to_string(),
        description: spec.description.clone(),
        owner: spec.owner.clone(),
        labels: serde_json::to_string(&spec.labels).unwrap_or_default(),
        enabled: spec.enabled,
        invalid_reason: None,
        definition: Some(Definition {
            hash: spec.definition_hash.clone(),
            effective: spec.effective.to_string(),
            timing: spec.timing(),
            schedule: when.map_or_else(
                || spec.after.as_ref().map(ToString::to_string),
                |it| Some(it.text.clone()),
            ),
            timezone: when.map(|it| it.zone.name().to_owned()),
            one_shot: once.map(|due| due.at),
            sends: spec.sends(),
        }),
    }
}

fn broken_row(name: &str, problems: &[Problem]) -> JobRow {
    let file = problems.first().map(|problem| problem.file.display().to_string());
    JobRow {
        job: name.to_owned(),
        file: file.unwrap_or_default(),
        description: None,
        owner: None,
        labels: "{}".into(),
        enabled: true,
        invalid_reason: Some(all_words(problems)),
        definition: None,
    }
}

/// Everything that is wrong with a file, each with its place.
pub(in crate::daemon) fn all_words(problems: &[Problem]) -> String {
    if problems.is_empty() {
        return "its file cannot be used".into();
    }
    let words = |it: &Problem| format!("line {}, column {}: {}", it.line, it.column, it.message);
    problems.iter().map(words).collect::<Vec<_>>().join("; ")
}
