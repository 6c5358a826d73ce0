//! `pause` and `resume`: hold a job, or all of them, and free them again.
//!
//! What is due in between is recorded as held and never made up for.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::json;

use super::context::{Context, Place, block_on, now};
use super::holder;
use super::next::instant;
use super::output::{self, Done, Failed, local, note};
use crate::clock::rfc3339;
use crate::daemon::{Reply, Request};

/// Longer than anybody reads.
const REASON_CHARS_MAX: usize = 500;

/// Which jobs.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Which {
    /// The job's id
    job: Option<String>,
    /// Every job that there is now
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    which: Which,
    /// Until then: a date (its first instant), a time such as 2027-01-31T09:00, both in the
    /// configuration's zone, or RFC 3339 with an offset; without it, until `resume`
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Why, for whoever looks at the history
    #[arg(long)]
    reason: Option<String>,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    which: Which,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn pause(context: &Context, args: &PauseArgs) -> Done {
    let place = context.place()?;
    let until = args.until.as_deref().map(|text| until(text, &place)).transpose()?;
    let reason = args.reason.clone();
    if reason.as_ref().is_some_and(|it| it.chars().count() > REASON_CHARS_MAX) {
        return Err(Failed::usage(format!("--reason has more than {REASON_CHARS_MAX} characters")));
    }
    let request = Request::Pause { job: args.which.job.clone(), until, reason };
    match block_on(holder::ask(&place, &request))?? {
        Reply::Paused { jobs } if args.json => {
            output::json(&json!({ "paused": jobs, "until": until.map(rfc3339) }))
        }
        Reply::Paused { jobs } => {
            let end = until.map(|at| format!(" until {}", local(at, place.zone.rules())));
            say_each("paused", &jobs, &end.unwrap_or_default())
        }
        _ => Err(Failed::refused("the running punctual process gave another answer")),
    }
}

pub(super) fn resume(context: &Context, args: &ResumeArgs) -> Done {
    let place = context.place()?;
    let request = Request::Resume { job: args.which.job.clone() };
    match block_on(holder::ask(&place, &request))?? {
        Reply::Resumed { jobs } if args.json => output::json(&json!({ "resumed": jobs })),
        Reply::Resumed { jobs } => say_each("resumed", &jobs, ""),
        _ => Err(Failed::refused("the running punctual process gave another answer")),
    }
}

fn say_each(what: &str, jobs: &[String], end: &str) -> Done {
    for job in jobs {
        output::say(&format!("{what} {job}{end}"))?;
    }
    if jobs.is_empty() {
        note("no job is held, so there is nothing to do");
    }
    Ok(ExitCode::SUCCESS)
}

fn until(text: &str, place: &Place) -> Result<Timestamp, Failed> {
    let at = instant("--until", text, &place.zone)?;
    if at <= now() {
        return Err(Failed::usage(format!("--until `{text}` has passed")));
    }
    Ok(at)
}
