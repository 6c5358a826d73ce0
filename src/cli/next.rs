//! `next JOB`: when a job is due.

use jiff::Timestamp;
use serde_json::json;

use super::context::{Context, now};
use super::dues::Dues;
use super::ls;
use super::output::{self, Done, Failed};
use super::times::zone_of;
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
    if let Some(problems) = jobs.invalid.get(&args.job) {
        return Err(Failed::usage(super::context::report(problems)));
    }
    let history = Context::history(&config)?;
    let known = match &history {
        Some(reader) => reader.jobs()?.into_iter().find(|it| it.job == args.job),
        None => None,
    };
    let Some(spec) = jobs.jobs.values().find(|spec| spec.id.as_str() == args.job) else {
        Context::named(&args.job, &jobs, None)?;
        return Err(Failed::usage(format!("there is no job `{}`", args.job)));
    };
    let schedule = ls::schedule(spec, known.as_ref());
    let zone = zone_of(spec.schedule.as_ref(), &config).clone();
    let from = match args.from.as_deref() {
        Some(text) => instant("--from", text, &zone)?,
        None => now(),
    };
    let many = usize::from(args.n);
    let dues = schedule.as_ref().map(|schedule| Dues::new(schedule, &zone, from, many));
    if args.json {
        let next = dues.map(|dues| dues.json()).unwrap_or_default();
        return output::json(&json!({ "job": args.job, "timezone": zone.name(), "next": next }));
    }
    let lines = dues.map(|dues| dues.lines()).unwrap_or_default();
    if lines.is_empty() {
        output::note(&format!("`{}` is not due any more, or never by the clock", args.job));
    }
    if !spec.enabled {
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
