//! `runs`: what ran, newest first.

use std::time::Duration;

use super::context::Context;
use super::list::{List, shown};
use super::output::{self, Done, first_line, length, table};
use crate::run::State;
use crate::schedule::Zone;
use crate::store::{RunFilter, RunRecord};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// In this state only: queued, running, succeeded, failed, `timed_out`, cancelled, interrupted
    #[arg(long)]
    state: Option<State>,
    #[command(flatten)]
    list: List,
}

pub(super) fn runs(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let history = place.history()?;
    place.refuse_unknown(args.list.job.as_deref(), history.as_ref())?;
    let filter = RunFilter {
        job: args.list.job.clone(),
        state: args.state,
        since: args.list.since()?,
        limit: args.list.limit,
    };
    let runs = match history {
        Some(reader) => reader.runs(&filter)?,
        None => Vec::new(),
    };
    if args.list.json {
        return output::json(&runs);
    }
    if runs.is_empty() {
        output::note("no run matches");
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let rows = runs.iter().map(|run| row(run, &place.zone)).collect();
    let head = ["run", "job", "trigger", "state", "queued", "late", "took", "said"];
    output::say(&table(&head, rows))
}

fn row(run: &RunRecord, zone: &Zone) -> Vec<String> {
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
        shown(&run.queued_at, zone),
        millis(run.late_ms).unwrap_or_default(),
        millis(run.duration_ms).unwrap_or_default(),
        first_line(&said, 60),
    ]
}
