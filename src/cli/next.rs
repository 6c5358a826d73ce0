//! `next JOB`: when a job is due.

use jiff::Timestamp;
use serde_json::json;

use super::context::{Context, now};
use super::dues::Dues;
use super::last_good::LastGood;
use super::output::{self, Done, Failed};
use super::scheduled::Scheduled;
use crate::clock::rfc3339;
use crate::config::{Config, JobSet};
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
    if jobs.invalid.contains_key(&args.job) {
        return of_broken_file(&config, &jobs, args);
    }
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
        let after = job.spec.after.as_ref().map(|after| format!("is due {after}"));
        let words = after.unwrap_or_else(|| "is not due any more, or never by the clock".into());
        output::note(&format!("`{}` {words}", args.job));
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

/// What a running `serve` goes by, beside what is wrong with the file.
fn of_broken_file(config: &Config, jobs: &JobSet, args: &Args) -> Done {
    let refusal = Failed::usage(super::context::report(&jobs.invalid[&args.job]));
    let history = Context::history(config)?;
    let Some(kept) = LastGood::in_force(&args.job, config, history.as_ref())? else {
        return Err(refusal);
    };
    if args.json {
        let local = kept.local(config);
        let next =
            kept.next_due.map(|at| json!({ "due_at": rfc3339(at), "local": local, "note": null }));
        output::json(&json!({
            "job": args.job, "timezone": kept.zone(config).name(), "last_good": true,
            "next": next.into_iter().collect::<Vec<_>>(),
        }))?;
    } else {
        output::say(&kept.words(&args.job, config))?;
    }
    Err(refusal)
}

/// What a person wrote for an instant: a date is its first one.
pub(super) fn instant(flag: &str, text: &str, zone: &Zone) -> Result<Timestamp, Failed> {
    parse_start(text, zone).map_err(|error| Failed::usage(format!("{flag} `{text}`: {error}")))
}
