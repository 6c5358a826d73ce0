//! `runs`: what ran, newest first.

use std::time::Duration;

use jiff::Timestamp;

use super::context::{Context, now};
use super::format::{self, Format};
use super::list::List;
use super::next::instant;
use super::output::{self, Done, first_line, length};
use super::paint;
use super::relative::relative_to;
use super::timeline;
use crate::run::State;
use crate::store::{RunFilter, RunRecord};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// In this state only: queued, running, succeeded, failed, `timed_out`, cancelled, interrupted
    #[arg(long)]
    state: Option<State>,
    /// Not later than this: a date or a time in the configuration's zone, or RFC 3339; --since
    /// counts back from it
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Draw when each job ran, by default in the last 24h
    #[arg(long, conflicts_with_all = ["state", "limit", "format", "json"])]
    timeline: bool,
    #[command(flatten)]
    list: List,
}

/// The columns of `--format csv`, and where they are in the run object. Only ever added to.
const CSV: &[(&str, &str)] = &[
    ("run_id", "run_id"),
    ("job", "job"),
    ("trigger", "trigger"),
    ("due_at", "due_at"),
    ("attempt", "attempt"),
    ("state", "state"),
    ("error_kind", "error.kind"),
    ("error_message", "error.message"),
    ("limit_name", "error.limit"),
    ("model", "model"),
    ("queued_at", "queued_at"),
    ("started_at", "started_at"),
    ("finished_at", "finished_at"),
    ("duration_ms", "duration_ms"),
    ("late_ms", "late_ms"),
    ("input_tokens", "usage.input_tokens"),
    ("output_tokens", "usage.output_tokens"),
    ("usd", "usage.usd"),
    ("tool_calls", "tools.calls"),
    ("tool_errors", "tools.errors"),
    ("denied_calls", "tools.denied"),
    ("cleanup_outcome", "cleanup.outcome"),
    ("session_id", "session_id"),
    ("exit_code", "exit_code"),
    ("definition_hash", "definition_hash"),
    ("reply", "reply"),
    ("partial_text", "partial_text"),
];

pub(super) fn runs(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let history = place.history()?;
    place.refuse_unknown(args.list.job.as_deref(), history.as_ref())?;
    let now = now();
    let until =
        args.until.as_ref().map(|text| instant("--until", text, &place.zone)).transpose()?;
    let since = args.list.since(until.unwrap_or(now))?;
    let job = args.list.job.clone();
    if args.timeline {
        return timeline::draw(&place, history.as_ref(), job.as_deref(), since, until, now);
    }
    let filter = RunFilter { job, state: args.state, since, until, limit: args.list.limit };
    let runs = match history {
        Some(reader) => reader.runs(&filter)?,
        None => Vec::new(),
    };
    match args.list.format() {
        Format::Json => output::json(&runs),
        Format::Csv => output::say_exactly(&format::csv(&format::columns(&runs, CSV)?)?),
        Format::Table if runs.is_empty() => {
            output::note("no run matches");
            Ok(std::process::ExitCode::SUCCESS)
        }
        Format::Table => {
            let rows = runs.iter().map(|run| row(run, now)).collect();
            let head = ["run", "job", "trigger", "state", "queued", "late", "took", "said"];
            paint::say_table(&head, rows, &["state"])
        }
    }
}

fn row(run: &RunRecord, now: Timestamp) -> Vec<String> {
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
        relative_to(&run.queued_at, now),
        millis(run.late_ms).unwrap_or_default(),
        millis(run.duration_ms).unwrap_or_default(),
        first_line(&said, 60),
    ]
}
