//! `status`: how things are now.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::json;

use super::caps::{self, CapToday};
use super::context::{Context, Place, no_model_hint, now};
use super::output::{self, Done, Failed, counted, length, local, table};
use super::running;
use super::sandbox;
use super::validate::unheard;
use crate::config::JobSet;
use crate::daemon::{Attention, Kind, RecoveryResult, Status, StatusRun};
use crate::job::Problem;

/// So many holders of a lane are named.
const SHOWN_MAX: usize = 3;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn status(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let config = place.config.as_ref();
    let jobs = place.jobs();
    let running = running::status(&place.state_dir)?;
    let stale = config
        .zip(jobs.as_ref())
        .zip(running.as_ref())
        .map(|((config, jobs), running)| running::stale(running, jobs, config.scheduler.reload));
    if args.json {
        return output::json(&json!({
            "running": running,
            "files_changed_since": stale.map(|it| it.is_some()),
            "jobs": jobs.as_ref().map(|it| it.jobs.len()),
            "invalid": jobs.as_ref().map(|it| it.invalid.keys().collect::<Vec<_>>()),
            "state_dir": place.state_dir, "timezone": place.zone.name(),
            "timezone_database": config.map(|config| json!({
                "version": config.zones.version(), "origin": config.zones.origin().to_string(),
            })),
            "no_model": config.and_then(no_model_hint), "version": env!("CARGO_PKG_VERSION"),
        }));
    }
    let mut said = words(&place, jobs.as_ref(), stale.flatten(), running.as_deref());
    said.extend(used_up(&place, jobs.as_ref())?);
    output::say(&said.join("\n"))
}

fn words(
    place: &Place,
    jobs: Option<&JobSet>,
    changed: Option<String>,
    running: Option<&Status>,
) -> Vec<String> {
    let zone = place.zone.rules();
    let mut lines = Vec::new();
    match running {
        Some(status) => {
            let what = match (status.holder, status.stopping) {
                (_, true) => "stopping",
                (Kind::Serve, false) => "serving",
                (Kind::Run, false) => {
                    "running what was asked for, and starting nothing by the clock"
                }
            };
            lines.push(format!("{what}, pid {}, version {}", status.pid, status.version));
            lines.extend(changed);
            if let Some(problem) = &status.config_problem {
                lines.push(format!("changed files are not in force: {problem}"));
            }
            if let Some(next) = &status.next {
                lines.push(format!("next: {} at {}", next.job, local(next.due_at, zone)));
            }
        }
        None => lines.push("not serving: `punctual serve` starts it".into()),
    }
    lines.extend(job_lines(jobs, running));
    if let Some(status) = running {
        lines.extend(not_running(status, zone));
    }
    lines.extend(jobs.map(unheard));
    lines.extend(jobs.and_then(sandbox::cannot_run));
    let config = place.config.as_ref();
    lines.extend(config.and_then(no_model_hint));
    if let Some(config) = config.filter(|it| !it.hooks.is_empty()) {
        let points: std::collections::BTreeSet<_> =
            config.hooks.iter().map(|it| it.on.to_string()).collect();
        let points = points.into_iter().collect::<Vec<_>>().join(", ");
        lines.push(format!("{} at {points}", counted(config.hooks.len(), "hook")));
    }
    let zones = config
        .map(|it| format!(", time zones {} ({})", it.zones.version(), it.zones.origin()))
        .unwrap_or_default();
    let state_dir = place.state_dir.display();
    lines.push(format!("times in {}{zones}, state in {state_dir}", place.zone.name()));
    if let Some(status) = running {
        let places = status.lanes.iter().map(|lane| {
            let counts = [lane.width, lane.held, lane.waiting].map(|count| count.to_string());
            let by = jobs_of(&lane.holders, lane.held, status);
            [lane.lane.clone()].into_iter().chain(counts).chain([by]).collect()
        });
        lines.push(table(&["lane", "width", "held", "waiting", "held by"], places.collect()));
        let runs = status.runs.iter().map(|run| {
            let state = if run.waiting { "queued" } else { "running" };
            let state = match &run.attention {
                Some(Attention { liveness, silent_ms }) => {
                    let silent = length(Duration::from_millis(*silent_ms));
                    format!("{state}, {liveness}, silent for {silent}")
                }
                None => state.to_owned(),
            };
            let since = local(run.since, zone);
            vec![run.run_id.clone(), whose(run), state, run.trigger.to_string(), since]
        });
        if !status.runs.is_empty() {
            lines.push(table(&["run", "job", "state", "trigger", "since"], runs.collect()));
        }
    }
    lines
}

/// Its job, and the session that it shares with other runs.
fn whose(run: &StatusRun) -> String {
    match run.session.as_deref().filter(|key| !key.starts_with("cron:")) {
        Some(key) => format!("{} in {key}", run.job),
        None => run.job.clone(),
    }
}

/// Caps of the day of which nothing is left.
fn used_up(place: &Place, jobs: Option<&JobSet>) -> Result<Vec<String>, Failed> {
    let (Some(config), Some(jobs)) = (&place.config, jobs) else { return Ok(Vec::new()) };
    let caps = caps::today(jobs, config, place.history()?.as_ref(), now())?;
    let words = |it: &CapToday| {
        let whose = it.job.as_ref().map(|job| format!(" of `{job}`")).unwrap_or_default();
        let until = local(it.until, place.zone.rules());
        format!("{}{whose} is used up until {until}: what is due is held", it.cap)
    };
    Ok(caps.iter().filter(|it| it.is_used_up()).map(words).collect())
}

/// The jobs of so many runs, as far as they are named.
fn jobs_of(runs: &[String], count: usize, status: &Status) -> String {
    let job = |run_id: &String| status.runs.iter().find(|run| run.run_id == *run_id);
    let mut jobs: Vec<_> =
        runs.iter().filter_map(job).map(|run| run.job.as_str()).take(SHOWN_MAX).collect();
    if count > SHOWN_MAX {
        jobs.push("…");
    }
    jobs.join(", ")
}

/// The jobs of the files; where those cannot be read, the running process's.
fn job_lines(jobs: Option<&JobSet>, running: Option<&Status>) -> Vec<String> {
    let (many, invalid) = match (jobs, running) {
        (Some(jobs), _) => {
            let words = |(name, problems): (&String, &Vec<Problem>)| {
                (name.clone(), super::ls::words(problems))
            };
            (jobs.jobs.len(), jobs.invalid.iter().map(words).collect())
        }
        (None, Some(running)) => (running.jobs, running.invalid.clone()),
        (None, None) => return Vec::new(),
    };
    let head = format!("{}, {} invalid", counted(many, "job"), invalid.len());
    let broken = invalid.into_iter().map(|(name, why)| format!("  {name}: {why}"));
    std::iter::once(head).chain(broken).collect()
}

/// Jobs that are held, wait to be tried again or for a model, run as their file last was, or had a
/// run that did not move.
fn not_running(status: &Status, zone: &TimeZone) -> Vec<String> {
    let paused = status.paused.iter().map(|it| {
        let until = it.until.map(|at| format!(" until {}", local(at, zone))).unwrap_or_default();
        format!("  {}: paused{until} ({}: {})", it.job, it.cause, it.reason)
    });
    let retrying = status
        .retrying
        .iter()
        .map(|it| format!("  {}: attempt {} at {}", it.job, it.attempt, local(it.at, zone)));
    let unreachable = status.unreachable.iter().map(|it| {
        let (since, again) = (local(it.since, zone), local(it.asked_again_at, zone));
        format!("  {}: no model can be reached since {since}, asked again at {again}", it.job)
    });
    let last_good = status
        .last_good
        .iter()
        .map(|job| format!("  {job}: its file is invalid, its last good version is in force"));
    let recoveries = status.recoveries.iter().map(|it| {
        let (at, act) = (local(it.requested_at, zone), it.act);
        let result = it.result.map_or("not over yet", RecoveryResult::as_str);
        format!("  {}: run {} did not move: {act} requested at {at}, {result}", it.job, it.run_id)
    });
    paused.chain(retrying).chain(unreachable).chain(last_good).chain(recoveries).collect()
}
