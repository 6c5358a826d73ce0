//! `status`: how things are now.

use std::time::Duration;

use serde_json::json;

use super::context::{Context, no_model_hint};
use super::output::{self, Done, counted, length, local, table};
use super::running;
use super::validate::unheard;
use crate::config::{Config, JobSet};
use crate::daemon::{Attention, Kind, RecoveryResult, Status};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn status(context: &Context, args: &Args) -> Done {
    let (config, jobs) = context.jobs()?;
    let running = running::status(&config)?;
    if args.json {
        return output::json(&json!({
            "running": running,
            "files_changed_since": running.as_ref().map(|it| running::stale(it, &jobs).is_some()),
            "jobs": jobs.jobs.len(), "invalid": jobs.invalid.keys().collect::<Vec<_>>(),
            "state_dir": config.state_dir, "timezone": config.timezone.name(),
            "timezone_database": {
                "version": config.zones.version(), "origin": config.zones.origin().to_string(),
            },
            "no_model": no_model_hint(&config), "version": env!("CARGO_PKG_VERSION"),
        }));
    }
    output::say(&words(&config, &jobs, running.as_deref()))
}

fn words(config: &Config, jobs: &JobSet, running: Option<&Status>) -> String {
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
            lines.extend(running::stale(status, jobs));
            if let Some(problem) = &status.config_problem {
                lines.push(format!("changed files are not in force: {problem}"));
            }
            if let Some(next) = &status.next {
                lines.push(format!(
                    "next: {} at {}",
                    next.job,
                    local(next.due_at, config.timezone.rules())
                ));
            }
        }
        None => lines.push("not serving: `punctual serve` starts it".into()),
    }
    lines.push(format!("{}, {} invalid", counted(jobs.jobs.len(), "job"), jobs.invalid.len()));
    for (name, problems) in &jobs.invalid {
        lines.push(format!("  {name}: {}", super::ls::words(problems)));
    }
    if let Some(status) = running {
        lines.extend(not_running(status, config));
    }
    lines.push(unheard(jobs.jobs.len()));
    lines.extend(no_model_hint(config));
    lines.push(format!(
        "times in {}, time zones {} ({}), state in {}",
        config.timezone.name(),
        config.zones.version(),
        config.zones.origin(),
        config.state_dir.display(),
    ));
    if let Some(status) = running {
        let places = status.lanes.iter().map(|lane| {
            let counts = [lane.width, lane.held, lane.waiting].map(|count| count.to_string());
            [lane.lane.clone()].into_iter().chain(counts).collect()
        });
        lines.push(table(&["lane", "width", "held", "waiting"], places.collect()));
        let runs = status.runs.iter().map(|run| {
            let state = if run.waiting { "queued" } else { "running" };
            let state = match &run.attention {
                Some(Attention { liveness, silent_ms }) => {
                    let silent = length(Duration::from_millis(*silent_ms));
                    format!("{state}, {liveness}, silent for {silent}")
                }
                None => state.to_owned(),
            };
            let since = local(run.since, config.timezone.rules());
            vec![run.run_id.clone(), run.job.clone(), state, run.trigger.to_string(), since]
        });
        if !status.runs.is_empty() {
            lines.push(table(&["run", "job", "state", "trigger", "since"], runs.collect()));
        }
    }
    lines.join("\n")
}

/// Jobs that are held, wait to be tried again, run as their file last was, or had a run that did
/// not move.
fn not_running(status: &Status, config: &Config) -> Vec<String> {
    let zone = config.timezone.rules();
    let paused = status.paused.iter().map(|it| {
        let until = it.until.map(|at| format!(" until {}", local(at, zone))).unwrap_or_default();
        format!("  {}: paused{until} ({}: {})", it.job, it.cause, it.reason)
    });
    let retrying = status
        .retrying
        .iter()
        .map(|it| format!("  {}: attempt {} at {}", it.job, it.attempt, local(it.at, zone)));
    let last_good = status
        .last_good
        .iter()
        .map(|job| format!("  {job}: its file is invalid, its last good version is in force"));
    let recoveries = status.recoveries.iter().map(|it| {
        let (at, act) = (local(it.requested_at, zone), it.act);
        let result = it.result.map_or("not over yet", RecoveryResult::as_str);
        format!("  {}: run {} did not move: {act} requested at {at}, {result}", it.job, it.run_id)
    });
    paused.chain(retrying).chain(last_good).chain(recoveries).collect()
}
