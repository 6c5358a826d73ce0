//! `status`: how things are now.

use serde_json::json;

use super::context::{Context, no_model_hint};
use super::output::{self, Done, counted, local, table};
use super::running;
use super::validate::unheard;
use crate::config::{Config, JobSet};
use crate::daemon::Status;

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
            lines.push(format!("serving, pid {}, version {}", status.pid, status.version));
            lines.extend(running::stale(status, jobs));
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
        let places = status
            .lanes
            .iter()
            .map(|lane| vec![lane.lane.clone(), lane.width.to_string(), lane.held.to_string()]);
        lines.push(table(&["lane", "width", "held"], places.collect()));
        let runs = status.runs.iter().map(|run| {
            let state = if run.waiting { "queued" } else { "running" };
            let since = local(run.since, config.timezone.rules());
            vec![run.run_id.clone(), run.job.clone(), state.into(), run.trigger.to_string(), since]
        });
        if !status.runs.is_empty() {
            lines.push(table(&["run", "job", "state", "trigger", "since"], runs.collect()));
        }
    }
    lines.join("\n")
}
