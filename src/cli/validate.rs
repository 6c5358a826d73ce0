//! `validate`: every problem of every file, in one report, and when the jobs are due.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::context::{Context, now, report};
use super::dues::{self, Dues};
use super::ls;
use super::output::{self, Done, code, counted, note};
use super::running;
use super::sandbox;
use super::times::zone_of;
use crate::config::{self, Config, JobSet};
use crate::job::{JobSpec, Problem, Severity};
use crate::schedule::Schedule;
use crate::store::JobSummary;

/// With more jobs than this their due times are not printed: `next JOB` has them.
const JOBS_WITH_TIMES_MAX: usize = 5;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn validate(context: &Context, args: &Args) -> Done {
    let (mut problems, loaded) = match context.load() {
        Ok((config, mut problems)) => {
            let set = config::load_jobs(&config);
            running::warn_if_stale(&config, &set);
            problems.extend(set.problems());
            (problems, Some((config, set)))
        }
        Err(problems) => (problems, None),
    };
    problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    let errors = problems.iter().filter(|it| it.severity == Severity::Error).count();
    // Without the configuration or the folder nothing is known about any job.
    let set = loaded.as_ref().map(|(_, set)| set).filter(|set| set.folder.is_none());
    let counts = set.map(|set| (set.jobs.len(), set.invalid.len()));
    let next = loaded.as_ref().map(|(config, set)| Next::new(config, set));
    if args.json {
        let next = next.map(|it| it.json()).unwrap_or_default();
        output::json(&json!({
            "jobs": counts.map(|it| it.0), "invalid": counts.map(|it| it.1), "errors": errors,
            "problems": problems, "next": next,
        }))?;
    } else {
        print(&problems, set, &next.map(|it| it.lines()).unwrap_or_default())?;
    }
    Ok(if errors == 0 { std::process::ExitCode::SUCCESS } else { code::USAGE.into() })
}

fn print(problems: &[Problem], set: Option<&JobSet>, next: &[String]) -> Done {
    if !problems.is_empty() {
        note(&report(problems));
    }
    for line in next {
        output::say(line)?;
    }
    let Some(set) = set else {
        return output::say(
            "no job was looked at: the configuration or its jobs folder cannot be used",
        );
    };
    let (jobs, invalid) = (counted(set.jobs.len(), "job"), counted(set.invalid.len(), "file"));
    output::say(&format!("{jobs} valid, {invalid} invalid"))?;
    if let Some(words) = sandbox::cannot_run(set) {
        output::say(&words)?;
    }
    output::say(&unheard(set))
}

/// When the jobs are due next, if they are few.
struct Next<'a> {
    config: &'a Config,
    jobs: Vec<(&'a JobSpec, Schedule)>,
}

impl<'a> Next<'a> {
    fn new(config: &'a Config, set: &'a JobSet) -> Self {
        let few = set.jobs.len() <= JOBS_WITH_TIMES_MAX;
        let specs = set.jobs.values().filter(|_| few).collect::<Vec<_>>();
        // The history only tells where the grids of intervals are: without it they begin now.
        let history = if specs.is_empty() { None } else { Context::history(config).ok().flatten() };
        let known = history.and_then(|reader| reader.jobs().ok()).unwrap_or_default();
        let known: BTreeMap<String, JobSummary> =
            known.into_iter().map(|it| (it.job.clone(), it)).collect();
        let scheduled =
            |spec: &'a JobSpec| Some((spec, ls::schedule(spec, known.get(spec.id.as_str()))?));
        Self { config, jobs: specs.into_iter().filter_map(scheduled).collect() }
    }

    fn dues<'b>(&'b self, spec: &'b JobSpec, schedule: &'b Schedule) -> Dues<'b> {
        let zone = zone_of(spec.schedule.as_ref(), self.config);
        Dues::new(schedule, zone, now(), dues::USUAL)
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (spec, schedule) in &self.jobs {
            let written = spec.schedule.as_ref().map_or("", |it| &it.text);
            lines.push(format!("{}: {written}", spec.id));
            lines.extend(self.dues(spec, schedule).lines().iter().map(|line| format!("  {line}")));
        }
        lines
    }

    fn json(&self) -> serde_json::Map<String, Value> {
        let one = |(spec, schedule): &(&JobSpec, Schedule)| {
            (spec.id.to_string(), Value::from(self.dues(spec, schedule).json()))
        };
        self.jobs.iter().map(one).collect()
    }
}

/// Jobs whose failures reach nobody that are named.
const UNHEARD_MAX: usize = 3;

/// How many jobs' failures reach nobody.
pub(super) fn unheard(jobs: &JobSet) -> String {
    let all = jobs.jobs.len();
    let unheard: Vec<_> = jobs.jobs.values().filter(|spec| !spec.tells_of_failures()).collect();
    if all == 0 || unheard.is_empty() {
        return format!("failures of all {} reach somebody", counted(all, "job"));
    }
    let names: Vec<_> = unheard.iter().take(UNHEARD_MAX).map(|spec| spec.id.as_str()).collect();
    let more = if unheard.len() > UNHEARD_MAX { ", …" } else { "" };
    format!(
        "failures of {} of {} reach nobody: {}{more}",
        unheard.len(),
        counted(all, "job"),
        names.join(", ")
    )
}
