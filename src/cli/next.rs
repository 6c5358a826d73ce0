//! `next JOB`: when a job is due.

use jiff::Timestamp;
use serde_json::json;

use super::context::{Context, now};
use super::dues::Dues;
use super::output::{self, Done, Failed};
use super::scheduled::Scheduled;
use crate::schedule::{Zone, parse_start};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job's id
    job: String,
    /// How many due times
    #[arg(short, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    n: u16,
    /// After this time instead of now: a date or a time in the job's zone, or RFC 3339
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn next(context: &Context, args: &Args) -> Done {
    let (config, jobs) = context.jobs()?;
    let job = Scheduled::find(&args.job, &config, &jobs)?;
    let (schedule, zone) = (job.schedule.as_ref(), &job.zone);
    let from = match args.from.as_deref() {
        Some(text) => instant("--from", text, zone)?,
        None => now(),
    };
    let many = usize::from(args.n);
    let dues = schedule.map(|schedule| Dues::new(schedule, zone, from, many));
    if args.json {
        let next = dues.map(|dues| dues.json()).unwrap_or_default();
        return output::json(&json!({ "job": args.job, "timezone": zone.name(), "next": next }));
    }
    let lines = dues.map(|dues| dues.lines()).unwrap_or_default();
    if lines.is_empty() {
        output::note(&format!("`{}` is not due any more, or never by the clock", args.job));
    }
    if let Some(pause) = job.pause() {
        let words = "what is due meanwhile is recorded as held";
        output::note(&format!("`{}` is paused ({pause}): {words}", args.job));
    }
    if !job.spec.enabled {
        output::note(&format!("`{}` is disabled: its due times are recorded as skipped", args.job));
    }
    for line in lines {
        output::say(&line)?;
    }
    Ok(std::process::ExitCode::SUCCESS)
}

/// What a person wrote for an instant: a date is its first one.
pub(super) fn instant(flag: &str, text: &str, zone: &Zone) -> Result<Timestamp, Failed> {
    parse_start(text, zone).map_err(|error| Failed::usage(format!("{flag} `{text}`: {error}")))
}
