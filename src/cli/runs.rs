//! `runs`: what ran, newest first.

use std::time::Duration;

use jiff::Timestamp;

use super::context::{Context, now};
use super::output::{self, Done, Failed, first_line, length, local, table};
use crate::config::Config;
use crate::run::State;
use crate::store::{RunFilter, RunRecord};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Of this job only
    #[arg(long)]
    job: Option<String>,
    /// In this state only: queued, running, succeeded, failed, `timed_out`, cancelled, interrupted
    #[arg(long)]
    state: Option<State>,
    /// Not older than this (`24h`, `7days`)
    #[arg(long, value_name = "LENGTH")]
    since: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn runs(context: &Context, args: &Args) -> Done {
    let config = context.config()?;
    let filter = RunFilter {
        job: args.job.clone(),
        state: args.state,
        since: args.since.as_deref().map(since).transpose()?,
        limit: args.limit,
    };
    let runs = match Context::history(&config)? {
        Some(reader) => reader.runs(&filter)?,
        None => Vec::new(),
    };
    if args.json {
        return output::json(&runs);
    }
    if runs.is_empty() {
        output::note("no run matches");
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let rows = runs.iter().map(|run| row(run, &config)).collect();
    let head = ["run", "job", "trigger", "state", "queued", "late", "took", "said"];
    output::say(&table(&head, rows))
}

fn row(run: &RunRecord, config: &Config) -> Vec<String> {
    let millis = |ms: Option<i64>| {
        ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis).map(length)
    };
    let said = match (&run.error, &run.reply) {
        (Some(error), _) => format!("{}: {}", error.kind, error.message),
        (None, reply) => reply.clone().unwrap_or_default(),
    };
    vec![
        run.run_id.clone(),
        run.job.clone(),
        run.trigger.clone(),
        run.state.clone(),
        shown(&run.queued_at, config),
        millis(run.late_ms).unwrap_or_default(),
        millis(run.duration_ms).unwrap_or_default(),
        first_line(&said, 60),
    ]
}

/// A stored instant, in the configuration's zone.
pub(super) fn shown(text: &str, config: &Config) -> String {
    text.parse().map_or_else(|_| text.to_owned(), |at| local(at, config.timezone.rules()))
}

/// The instant `length` ago.
pub(super) fn since(length: &str) -> Result<Timestamp, Failed> {
    let parsed = humantime::parse_duration(length).map_err(|error| {
        Failed::usage(format!("--since `{length}`: {error}; write `24h` or `7days`"))
    })?;
    now().checked_sub(parsed).map_err(|_| Failed::usage(format!("--since `{length}` is too long")))
}
