//! `plan`: what the job files would change, and what is to be expected of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::context::{Context, now, report, warn};
use super::dst::{self, Hit};
use super::forecast::{Decision, Forecast, LaneLoad, MinuteLoad, Premises, jobs_in, minute_of};
use super::next::instant;
use super::output::{self, Done, Failed, code, counted, length, local, note, table};
use super::plan_jobs::{Change, Comparison, JobPlan, Known};
use super::running;
use super::simulate::minute;
use crate::clock::{serialize_rfc3339, to_millis};
use crate::config::{Config, JobSet};
use crate::job::JobSpec;
use crate::plan::{GLOBAL, Rules};
use crate::store::Reader;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job files of this folder, as if they were put in the place of the present ones
    #[arg(long, value_name = "DIR")]
    jobs_dir: Option<PathBuf>,
    /// As if they were taken over at this time instead of now: a date or a time in the
    /// configuration's zone, or RFC 3339
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Exit with 1 if something would change (invalid files are always 2)
    #[arg(long)]
    exit_code: bool,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

/// How far the simulation looks.
const DAYS: Duration = Duration::from_hours(7 * 24);

/// How far ahead clock changes are looked for.
const YEAR: Duration = Duration::from_hours(365 * 24);

/// So many collisions are named.
const COLLISIONS: usize = 10;

/// Everything that `plan` says.
#[derive(Debug, Serialize)]
struct Plan {
    #[serde(serialize_with = "serialize_rfc3339")]
    from: Timestamp,
    jobs: Vec<JobPlan>,
    clock_changes: Vec<Hit>,
    collisions: Vec<Collision>,
    lanes: Vec<LaneUse>,
    /// Whether there is more in seven days than was looked at.
    truncated: bool,
}

/// A minute in which more runs start than a lane is wide.
#[derive(Debug, Serialize)]
struct Collision {
    #[serde(serialize_with = "serialize_rfc3339")]
    minute: Timestamp,
    lane: String,
    width: usize,
    starts: u64,
    jobs: BTreeSet<String>,
}

/// A lane, who belongs into it and who waits for it.
#[derive(Debug, Serialize)]
struct LaneUse {
    lane: String,
    width: usize,
    peak: usize,
    jobs: BTreeSet<String>,
    waits: BTreeMap<String, Waits>,
}

/// How a job waits for its lane.
#[derive(Debug, Default, Serialize)]
struct Waits {
    runs: u64,
    longest_ms: u64,
}

pub(super) fn plan(context: &Context, args: &Args) -> Done {
    let usual = context.config()?;
    let (config, set) = jobs_in(context, args.jobs_dir.as_deref())?;
    let from = match &args.from {
        Some(text) => instant("--from", text, &config.timezone)?,
        None => to_millis(now()),
    };
    let history = Context::history(&config)?;
    let comparison = Comparison {
        config: &config,
        history: history.as_ref(),
        known: Known::read(history.as_ref())?,
        usual_folder: &usual.jobs_dir,
        served: served(&config, history.as_ref())?,
        from,
    };
    let jobs = comparison.jobs(&set)?;
    let specs = set.jobs.values().collect();
    let takes = Duration::from_mins(1);
    let span = (from, from + DAYS);
    let premises = Premises::new(&config, specs, history.as_ref(), span, takes)?;
    let forecast = premises.forecast();
    let plan = Plan {
        from,
        jobs,
        clock_changes: clock_changes(&set, from),
        collisions: collisions(&forecast),
        lanes: lanes(&forecast, &premises.jobs),
        truncated: forecast.truncated,
    };
    say(&plan, &set, &config, args)?;
    let changes = plan.jobs.iter().any(|it| it.change != Change::Unchanged);
    Ok(match (set.invalid.is_empty(), args.exit_code && changes) {
        (false, _) => code::USAGE.into(),
        (true, true) => code::FAILED.into(),
        (true, false) => ExitCode::SUCCESS,
    })
}

/// Jobs that a running `serve` has in force: those go on as they are when their files break.
fn served(config: &Config, history: Option<&Reader>) -> Result<BTreeSet<String>, Failed> {
    let running = running::status(&config.state_dir).ok().flatten();
    let (Some(running), Some(reader)) = (running, history) else { return Ok(BTreeSet::new()) };
    let known = reader.known_jobs()?.into_iter().filter(|(_, memory)| memory.was_there);
    let in_force =
        |name: &String| !running.invalid.contains_key(name) || running.last_good.contains(name);
    Ok(known.map(|(name, _)| name).filter(in_force).collect())
}

fn clock_changes(set: &JobSet, from: Timestamp) -> Vec<Hit> {
    let hits = |spec: &JobSpec| {
        let schedule = Rules::of(spec, from).schedule.filter(|_| spec.enabled);
        schedule.map(|it| dst::hits(&spec.id, &it, from, from + YEAR)).unwrap_or_default()
    };
    let mut all: Vec<_> = set.jobs.values().flat_map(hits).collect();
    all.sort_by_key(|hit| hit.at);
    all
}

fn collisions(forecast: &Forecast) -> Vec<Collision> {
    let mut all = Vec::new();
    for load in &forecast.minutes {
        for lane in &forecast.lanes {
            let starts = load.by_lane.get(&lane.lane).copied().unwrap_or(0);
            let over = starts.saturating_sub(u64::try_from(lane.width).unwrap_or(u64::MAX));
            if over > 0 {
                all.push((over, load, lane));
            }
        }
    }
    all.sort_by_key(|(over, load, lane)| (std::cmp::Reverse(*over), load.minute, &lane.lane));
    let collision = |(over, load, lane): &(u64, &MinuteLoad, &LaneLoad)| {
        let starts = over + u64::try_from(lane.width).unwrap_or(u64::MAX);
        let of_it = |it: &&Decision| {
            let in_lane = lane.lane == GLOBAL || it.lane.as_ref() == Some(&lane.lane);
            it.starts_a_run() && in_lane && minute_of(it.at) == load.minute
        };
        let jobs = forecast.decisions.iter().filter(of_it).map(|it| it.job.to_string()).collect();
        Collision { minute: load.minute, lane: lane.lane.clone(), width: lane.width, starts, jobs }
    };
    all.iter().take(COLLISIONS).map(collision).collect()
}

fn lanes(forecast: &Forecast, specs: &[&JobSpec]) -> Vec<LaneUse> {
    let lane_use = |load: &LaneLoad| {
        let is_global = load.lane == GLOBAL;
        let belongs = |spec: &&&JobSpec| is_global || spec.lane.as_ref() == Some(&load.lane);
        let mut waits: BTreeMap<String, Waits> = BTreeMap::new();
        for it in &forecast.decisions {
            // Who has a lane of its own and waits, waits there.
            let lane = it.lane.as_deref().unwrap_or(GLOBAL);
            if let Some(waited) = it.waited_ms.filter(|&ms| ms > 0 && lane == load.lane) {
                let waits = waits.entry(it.job.to_string()).or_default();
                waits.runs += 1;
                waits.longest_ms = waits.longest_ms.max(waited);
            }
        }
        LaneUse {
            lane: load.lane.clone(),
            width: load.width,
            peak: load.peak,
            jobs: specs.iter().filter(belongs).map(|spec| spec.id.to_string()).collect(),
            waits,
        }
    };
    forecast.lanes.iter().map(lane_use).collect()
}

fn say(plan: &Plan, set: &JobSet, config: &Config, args: &Args) -> Result<(), Failed> {
    if args.json {
        output::json(plan)?;
    } else {
        output::say(&plan.words(config))?;
    }
    warn(&set.warnings);
    let invalid: Vec<_> = set.invalid.values().flatten().cloned().collect();
    if !invalid.is_empty() {
        note(&report(&invalid));
    }
    if plan.truncated {
        note("too much happens within seven days: collisions and waits are those of its beginning");
    }
    Ok(())
}

impl Plan {
    fn words(&self, config: &Config) -> String {
        let (same, other): (Vec<_>, Vec<_>) =
            self.jobs.iter().partition(|it| it.change == Change::Unchanged);
        let mut parts: Vec<_> = other.iter().map(|job| job.words()).collect();
        if parts.is_empty() {
            parts.push("nothing would change".into());
        }
        if !same.is_empty() {
            let names: Vec<_> = same.iter().map(|it| it.job.as_str()).collect();
            let many = counted(names.len(), "job");
            parts.push(format!("{many} unchanged: {}", names.join(", ")));
        }
        parts.extend(self.clock_change_words());
        parts.extend(self.collision_words(config));
        parts.extend(self.lane_words());
        parts.join("\n\n")
    }

    fn clock_change_words(&self) -> Option<String> {
        let row = |hit: &Hit| vec![hit.local.clone(), hit.job.to_string(), hit.note.clone()];
        let rows: Vec<_> = self.clock_changes.iter().map(row).collect();
        let title = "clock changes within 12 months";
        (!rows.is_empty()).then(|| format!("{title}\n{}", table(&["at", "job", "note"], rows)))
    }

    fn collision_words(&self, config: &Config) -> Option<String> {
        let row = |it: &Collision| {
            let jobs: Vec<_> = it.jobs.iter().map(String::as_str).collect();
            vec![
                minute(it.minute, config),
                it.lane.clone(),
                it.width.to_string(),
                it.starts.to_string(),
                output::first_line(&jobs.join(", "), JOBS_CHARS),
            ]
        };
        let rows: Vec<_> = self.collisions.iter().map(row).collect();
        let until = local(self.from + DAYS, config.timezone.rules());
        let title = format!("more starts in a minute than a lane is wide, until {until}");
        let head = ["minute", "lane", "width", "starts", "jobs"];
        (!rows.is_empty()).then(|| format!("{title}\n{}", table(&head, rows)))
    }

    fn lane_words(&self) -> Option<String> {
        let wait = |(job, waits): (&String, &Waits)| {
            let longest = length(Duration::from_millis(waits.longest_ms));
            format!("{job} {}×, up to {longest}", waits.runs)
        };
        let row = |it: &LaneUse| {
            let jobs: Vec<_> = it.jobs.iter().map(String::as_str).collect();
            let jobs = if it.lane == GLOBAL { "all".to_owned() } else { jobs.join(", ") };
            let waits: Vec<_> = it.waits.iter().map(wait).collect();
            vec![
                it.lane.clone(),
                it.width.to_string(),
                output::first_line(&jobs, JOBS_CHARS),
                it.peak.to_string(),
                output::first_line(&waits.join("; "), JOBS_CHARS),
            ]
        };
        let rows: Vec<_> = self.lanes.iter().map(row).collect();
        let head = ["lane", "width", "jobs", "most at once", "waits within 7 days"];
        (!rows.is_empty()).then(|| table(&head, rows))
    }
}

/// Characters for the names of jobs in a column.
const JOBS_CHARS: usize = 80;
