//! What changed files would mean for each job, against what the ledger knows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;

use super::changes::{KeyChange, differences, moved};
use super::output::{Failed, local};
use super::times::note_at;
use crate::clock::serialize_rfc3339;
use crate::config::{Config, JobSet};
use crate::job::{JobSpec, Problem, ScheduleSpec};
use crate::store::{JobMemory, Reader};

words!(
    /// What would become of a job.
    Change {
        /// The ledger does not know it, or it was gone.
        Added = "added",
        /// Its definition is another one.
        Changed = "changed",
        /// Its file is gone.
        Removed = "removed",
        /// Its file cannot be used: the last good version stays, and starts nothing.
        Invalid = "invalid",
        /// Nothing.
        Unchanged = "unchanged",
    }
);

words!(
    /// What would become of its decisions.
    Grid {
        /// They go on.
        GoesOn = "goes_on",
        /// They begin anew: what was due before is closed, `every` counts from then on.
        BeginsAnew = "begins_anew",
    }
);

/// A job, before and after.
#[derive(Debug, Serialize)]
pub(super) struct JobPlan {
    pub(super) job: String,
    pub(super) change: Change,
    /// `null` for a job that has no schedule before and after, or that is not in both.
    pub(super) schedule: Option<Grid>,
    pub(super) keys: Vec<KeyChange>,
    pub(super) before: Vec<DueTime>,
    pub(super) after: Vec<DueTime>,
    pub(super) problems: Vec<Problem>,
    /// Whether a running `serve` goes on by the version before an invalid one.
    pub(super) last_good_in_force: bool,
}

/// A due time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DueTime {
    #[serde(serialize_with = "serialize_rfc3339")]
    pub(super) due_at: Timestamp,
    pub(super) local: String,
    pub(super) note: Option<String>,
}

/// How many due times are named.
const DUE_TIMES: usize = 3;

/// What the ledger knows.
#[derive(Default)]
pub(super) struct Known {
    jobs: BTreeMap<String, JobMemory>,
    /// Those of them whose files could not be used.
    invalid: BTreeSet<String>,
}

impl Known {
    pub(super) fn read(history: Option<&Reader>) -> Result<Self, Failed> {
        let Some(reader) = history else { return Ok(Self::default()) };
        let mut jobs: BTreeMap<_, _> = reader.known_jobs()?.into_iter().collect();
        jobs.retain(|_, memory| memory.was_there);
        Ok(Self { jobs, invalid: reader.invalid_jobs()?.into_iter().collect() })
    }
}

/// What a comparison needs to know beside the job.
pub(super) struct Comparison<'a> {
    pub(super) config: &'a Config,
    pub(super) history: Option<&'a Reader>,
    pub(super) known: Known,
    /// The configured folder of job files, which `config` may replace.
    pub(super) usual_folder: &'a Path,
    /// Jobs that a running `serve` has in force.
    pub(super) served: BTreeSet<String>,
    /// When the files would be taken over.
    pub(super) from: Timestamp,
}

impl Comparison<'_> {
    /// Every job of the files and of the ledger, in the order of their names.
    pub(super) fn jobs(&self, set: &JobSet) -> Result<Vec<JobPlan>, Failed> {
        let mut plans = BTreeMap::new();
        for (name, memory) in &self.known.jobs {
            plans.insert(name.clone(), self.removed(name, memory)?);
        }
        for (name, problems) in &set.invalid {
            plans.insert(name.clone(), self.invalid(name, problems)?);
        }
        for (id, spec) in &set.jobs {
            plans.insert(id.to_string(), self.valid(spec)?);
        }
        Ok(plans.into_values().collect())
    }

    fn valid(&self, spec: &JobSpec) -> Result<JobPlan, Failed> {
        let name = spec.id.as_str();
        let schedule = spec.schedule.as_ref();
        let known = self.known.jobs.get(name);
        let stored = match known {
            Some(memory) => self.definition(memory)?,
            None => None,
        };
        let (Some(memory), Some(old)) = (known, stored) else {
            let after = self.due_times(schedule, self.from);
            return Ok(JobPlan { after, ..JobPlan::new(name, Change::Added) });
        };
        let new = moved(spec.effective.clone(), &self.config.jobs_dir, self.usual_folder);
        let keys = differences(&old, &new);
        let anew = memory.timing.as_ref().is_some_and(|timing| *timing != spec.timing());
        let grid = if anew { Grid::BeginsAnew } else { Grid::GoesOn };
        let same = keys.is_empty() && !self.known.invalid.contains(name);
        let before = self.stored_schedule(name, &old);
        Ok(JobPlan {
            schedule: (before.is_some() || schedule.is_some()).then_some(grid),
            keys,
            before: self.due_times(before.as_ref(), memory.anchor),
            after: self.due_times(schedule, if anew { self.from } else { memory.anchor }),
            ..JobPlan::new(name, if same { Change::Unchanged } else { Change::Changed })
        })
    }

    fn removed(&self, name: &str, memory: &JobMemory) -> Result<JobPlan, Failed> {
        let before = self.due_before(name, memory)?;
        Ok(JobPlan { before, ..JobPlan::new(name, Change::Removed) })
    }

    fn invalid(&self, name: &str, problems: &[Problem]) -> Result<JobPlan, Failed> {
        let before = match self.known.jobs.get(name) {
            Some(memory) => self.due_before(name, memory)?,
            None => Vec::new(),
        };
        let problems = problems.to_vec();
        let last_good_in_force = self.served.contains(name);
        Ok(JobPlan { before, problems, last_good_in_force, ..JobPlan::new(name, Change::Invalid) })
    }

    fn due_before(&self, name: &str, memory: &JobMemory) -> Result<Vec<DueTime>, Failed> {
        let definition = self.definition(memory)?;
        let schedule = definition.and_then(|definition| self.stored_schedule(name, &definition));
        Ok(self.due_times(schedule.as_ref(), memory.anchor))
    }

    fn definition(&self, memory: &JobMemory) -> Result<Option<serde_json::Value>, Failed> {
        let (Some(reader), Some(hash)) = (self.history, &memory.definition_hash) else {
            return Ok(None);
        };
        let text = reader.definition(hash)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    fn stored_schedule(&self, name: &str, definition: &serde_json::Value) -> Option<ScheduleSpec> {
        self.config.stored_spec(&name.parse().ok()?, &definition.to_string())
    }

    fn due_times(&self, spec: Option<&ScheduleSpec>, anchor: Timestamp) -> Vec<DueTime> {
        let Some(spec) = spec else { return Vec::new() };
        let (schedule, rules) = (spec.schedule.anchored(anchor), spec.zone.rules());
        let due_time = |due_at| DueTime {
            due_at,
            local: local(due_at, rules),
            note: note_at(&schedule, due_at),
        };
        schedule.upcoming(self.from).take(DUE_TIMES).map(|due| due_time(due.at)).collect()
    }
}

impl JobPlan {
    fn new(job: &str, change: Change) -> Self {
        Self {
            job: job.to_owned(),
            change,
            schedule: None,
            keys: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            problems: Vec::new(),
            last_good_in_force: false,
        }
    }

    /// For people: what becomes of it, the keys, the due times.
    pub(super) fn words(&self) -> String {
        let anew = match self.schedule {
            Some(Grid::BeginsAnew) => "; its schedule begins anew",
            Some(Grid::GoesOn) | None => "",
        };
        let repaired = match (self.change, self.keys.is_empty()) {
            (Change::Changed, true) => "; its file can be used again",
            _ => "",
        };
        let mut lines = vec![format!("{}: {}{anew}{repaired}", self.job, self.change)];
        lines.extend(self.keys.iter().map(|key| format!("  {}", key.words())));
        let (before, after) = match self.change {
            Change::Added => (None, Some("due")),
            Change::Removed => (Some("was due"), None),
            // The last good version goes on being due; where no `serve` runs that has read it,
            // nothing of it starts.
            Change::Invalid if self.last_good_in_force => (Some("last good"), None),
            Change::Invalid => (Some("held back"), None),
            Change::Changed | Change::Unchanged if self.before == self.after => (None, Some("due")),
            Change::Changed | Change::Unchanged => (Some("due before"), Some("due after")),
        };
        lines.extend(before.into_iter().flat_map(|name| due_lines(name, &self.before)));
        lines.extend(after.into_iter().flat_map(|name| due_lines(name, &self.after)));
        lines.join("\n")
    }
}

fn due_lines(name: &str, times: &[DueTime]) -> Vec<String> {
    if times.is_empty() {
        return vec![format!("  {name:<11} at no time by the clock")];
    }
    let line = |(index, due): (usize, &DueTime)| {
        let note = due.note.as_ref().map(|note| format!("  ({note})")).unwrap_or_default();
        let name = if index == 0 { name } else { "" };
        format!("  {name:<11} {}{note}", due.local)
    };
    times.iter().enumerate().map(line).collect()
}
