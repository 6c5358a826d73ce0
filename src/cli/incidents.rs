//! `incidents`: what is wrong, and `incidents ack`: it is known.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::context::{Context, block_on};
use super::holder;
use super::list::shown;
use super::output::{self, Done, Failed, first_line, note, table};
use crate::daemon::{Reply, Request};
use crate::store::{IncidentRecord, Incidents};

/// How much of what is wrong fits into a table.
const DETAIL_CHARS_MAX: usize = 60;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    /// Also those that are over
    #[arg(long)]
    all: bool,
    /// At most so many, newest first
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print for programs
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say that an incident is known: nobody is told of it any more until it is over
    Ack(AckArgs),
}

#[derive(Debug, clap::Args)]
struct AckArgs {
    /// The beginning of its id
    incident: String,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn incidents(context: &Context, args: &Args) -> Done {
    if let Some(What::Ack(args)) = &args.what {
        return ack(context, args);
    }
    let place = context.place()?;
    let which = if args.all { Incidents::All } else { Incidents::NotOver };
    let incidents = match place.history()? {
        Some(reader) => reader.incidents(which, args.limit)?,
        None => Vec::new(),
    };
    if args.json {
        return output::json(&incidents);
    }
    if incidents.is_empty() {
        note(if args.all { "there were no incidents" } else { "nothing is wrong" });
        return Ok(ExitCode::SUCCESS);
    }
    let row = |it: &IncidentRecord| {
        let whose = match &it.provider {
            Some(provider) => format!("provider {provider}: {}", it.jobs.join(", ")),
            None => it.job.clone().unwrap_or_default(),
        };
        vec![
            it.incident.clone(),
            it.state.clone(),
            it.cause.clone(),
            whose,
            shown(&it.opened_at, &place.zone),
            first_line(&it.detail, DETAIL_CHARS_MAX),
        ]
    };
    let rows = incidents.iter().map(row).collect();
    output::say(&table(&["incident", "state", "cause", "of", "since", "detail"], rows))
}

fn ack(context: &Context, args: &AckArgs) -> Done {
    let place = context.place()?;
    let request = Request::Ack { incident: args.incident.clone() };
    match block_on(holder::ask(&place, &request))?? {
        Reply::Acked { incident } if args.json => output::json(&json!({ "acked": incident })),
        Reply::Acked { incident } => output::say(&format!("{incident} is known")),
        other => Err(Failed::refused(format!("no answer to the request: {other:?}"))),
    }
}
