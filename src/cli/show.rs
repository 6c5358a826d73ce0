//! `show JOB|RUN`: everything about one.

use std::time::Duration;

use serde_json::json;

use super::context::{Context, Named, now};
use super::dues::{self, Dues};
use super::last_good::LastGood;
use super::list::shown;
use super::ls;
use super::output::{self, Done, Failed, counted, length};
use super::times::zone_of;
use crate::clock::rfc3339;
use crate::config::{Config, JobSet};
use crate::job::JobSpec;
use crate::schedule::Zone;
use crate::store::{ArtifactRecord, DeliveryRecord, JobSummary, Reader, RunFilter, RunRecord};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A job's id, or the beginning of a run's
    what: String,
    /// The job's definition with all defaults applied
    #[arg(long)]
    effective: bool,
    /// What the job's model would see, without asking it: system prompt, messages, tools
    #[arg(long, conflicts_with = "effective")]
    prompt: bool,
    /// With --prompt: as for this due time, in the job's zone, or RFC 3339
    #[arg(long, value_name = "TIME", requires = "prompt")]
    pub(super) slot: Option<String>,
    /// Print for programs
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn show(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let history = place.history()?;
    let jobs = place.jobs().unwrap_or_default();
    match Context::named(&args.what, &jobs, history.as_ref())? {
        Named::Run(run_id) if args.prompt => Err(Failed::usage(format!(
            "`--prompt` is of a job; `punctual logs {run_id}` has what a run was told, and \
             v1_prompt_parts its parts"
        ))),
        Named::Run(run_id) => {
            let run = match &history {
                Some(reader) => reader.run(&run_id)?,
                None => None,
            };
            let run = run.ok_or_else(|| Failed::usage(format!("run {run_id} is gone")))?;
            show_run(&run, &place.zone, args)
        }
        Named::Job(job) => match &place.config {
            Some(config) => show_job(&job, config, &jobs, history.as_ref(), args),
            None => Err(Failed::usage(format!(
                "without a configuration that can be used `{job}` cannot be shown; `punctual runs \
                 --job {job}` has its history"
            ))),
        },
    }
}

fn show_job(
    job: &str,
    config: &Config,
    jobs: &JobSet,
    history: Option<&Reader>,
    args: &Args,
) -> Done {
    if let Some(problems) = jobs.invalid.get(job) {
        if let Some(kept) = LastGood::in_force(job, config, history)? {
            output::note(&kept.words(job, config));
        }
        return Err(Failed::usage(super::context::report(problems)));
    }
    let spec = jobs.jobs.values().find(|spec| spec.id.as_str() == job);
    let spec = spec.ok_or_else(|| {
        Failed::usage(format!(
            "the file of `{job}` is gone; `punctual why {job}` and `punctual runs --job {job}` have \
             its history"
        ))
    })?;
    if args.effective {
        return output::json(&spec.effective);
    }
    if args.prompt {
        return super::show_prompt::show_prompt(job, config, jobs, history, args);
    }
    let (known, last) = match history {
        Some(reader) => {
            let filter = RunFilter { job: Some(job.into()), limit: 1, ..RunFilter::default() };
            let known = reader.jobs()?.into_iter().find(|it| it.job == job);
            (known, reader.runs(&filter)?.into_iter().next())
        }
        None => (None, None),
    };
    let schedule = ls::schedule(spec, known.as_ref());
    let zone = zone_of(spec.schedule.as_ref(), config);
    let next = schedule.as_ref().map(|it| Dues::new(it, zone, now(), dues::USUAL));
    if args.json {
        return output::json(&json!({
            "job": job, "file": spec.file, "description": spec.description, "owner": spec.owner,
            "enabled": spec.enabled,
            "paused_reason": known.as_ref().and_then(|it| it.paused_reason.as_ref()),
            "paused_until": known.as_ref().and_then(|it| it.paused_until.as_ref()),
            "backoff_until": known.as_ref().and_then(|it| it.backoff_until.as_ref()),
            "next": next.map(|it| it.json()).unwrap_or_default(),
            "last_run": last, "definition_hash": spec.definition_hash, "effective": spec.effective,
        }));
    }
    let next = next.map(|it| it.lines()).unwrap_or_default();
    output::say(&job_words(spec, config, zone, known.as_ref(), &next, last.as_ref()))
}

fn job_words(
    spec: &JobSpec,
    config: &Config,
    zone: &Zone,
    known: Option<&JobSummary>,
    next: &[String],
    last: Option<&RunRecord>,
) -> String {
    let mut lines = vec![format!("{} ({})", spec.id, spec.file.display())];
    lines.extend(spec.description.as_ref().map(|it| format!("  {it}")));
    lines.extend(spec.owner.as_ref().map(|it| format!("  owner     {it}")));
    lines.push(format!("  enabled   {}", spec.enabled));
    if let Some(reason) = known.and_then(|it| it.paused_reason.as_ref()) {
        let until = known.and_then(|it| it.paused_until.as_ref());
        let until = until.map(|at| format!(" until {}", shown(at, zone))).unwrap_or_default();
        lines.push(format!("  paused    {reason}{until}"));
    }
    let waits = known.and_then(|it| it.backoff_until.as_ref());
    let waits = waits.filter(|until| **until > rfc3339(now()));
    lines.extend(waits.map(|at| {
        format!("  backoff   nothing starts before {}, after failures", shown(at, zone))
    }));
    lines.extend(super::show_rules::lines(spec, config));
    lines.extend(next.iter().map(|due| format!("  due       {due}")));
    if let Some(run) = last {
        let at = shown(&run.queued_at, zone);
        lines.push(format!("  last run  {} {} at {at}", run.run_id, run.state));
    }
    lines.join("\n")
}

fn show_run(run: &RunRecord, zone: &Zone, args: &Args) -> Done {
    if args.json {
        return output::json(run);
    }
    let mut lines = vec![
        format!("run {} of {}", run.run_id, run.job),
        format!("  state     {}", run.state),
        format!("  trigger   {}", run.trigger),
    ];
    let mut line = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("  {name:<9} {value}")));
    };
    line(
        "due",
        run.due_at.as_ref().map(|at| format!("{}, attempt {}", shown(at, zone), run.attempt)),
    );
    let stands_for = run.slots.filter(|slots| *slots > 1);
    line("slots", stands_for.map(|slots| format!("{slots}: it stands for those missed before it")));
    let shared = run.session_key.as_ref().filter(|key| !key.starts_with("cron:"));
    line("session", shared.map(|key| format!("{key}, {}", run.session_id)));
    line("queued", Some(shown(&run.queued_at, zone)));
    let late = run.late_ms.map(|ms| format!(", late by {}", span(ms))).unwrap_or_default();
    line("started", run.started_at.as_ref().map(|at| format!("{}{late}", shown(at, zone))));
    let took = run.duration_ms.map(|ms| format!(", took {}", span(ms))).unwrap_or_default();
    line("finished", run.finished_at.as_ref().map(|at| format!("{}{took}", shown(at, zone))));
    if !run.prompt.is_empty() {
        line("prompt", Some(super::show_prompt::summary_of(&run.prompt)));
    }
    let tools = &run.tools;
    let calls = counted(usize::try_from(tools.calls).unwrap_or(0), "call");
    line("tools", Some(format!("{calls}, {} failed, {} denied", tools.errors, tools.denied)));
    for attempt in &run.attempts {
        let window = attempt.idle_window_ms.map_or("off".to_owned(), |ms| format!("{ms} ms"));
        let kind = attempt.error_kind.as_ref().map(|kind| format!(" ({kind})")).unwrap_or_default();
        lines.push(format!(
            "  attempt   {} {}{kind}, idle window {window} by rule `{}`",
            attempt.model, attempt.state, attempt.idle_rule
        ));
    }
    for check in &run.checks {
        let (passed, detail) = (if check.passed { "passed" } else { "failed" }, &check.detail);
        let detail = detail.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
        lines.push(format!("  check     {} {passed}{detail}", check.name));
    }
    for artifact in &run.artifacts {
        let ArtifactRecord { path, bytes } = artifact;
        lines.push(format!("  kept      artifacts/{}/{path}, {bytes} bytes", run.run_id));
    }
    for delivery in &run.deliveries {
        lines.push(format!("  delivery  {}", delivered(delivery)));
    }
    if let Some(cleanup) = &run.cleanup {
        lines.push(format!("  clean-up  {} in {} ms", cleanup.outcome, cleanup.duration_ms));
        for step in &cleanup.steps {
            let detail = step.detail.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            lines.push(format!("              {} {}{detail}", step.step, step.outcome));
        }
    }
    if let Some(error) = &run.error {
        let limit = error.limit.map(|limit| {
            let value = error.limit_ms.map(|ms| format!(" of {ms} ms")).unwrap_or_default();
            format!(" (limit {limit}{value})")
        });
        let phase = error.phase.map(|phase| format!(" in {phase}")).unwrap_or_default();
        lines.push(format!(
            "  error     {}{}{phase}: {}",
            error.kind,
            limit.unwrap_or_default(),
            error.message
        ));
    }
    if let Some(text) = run.reply.as_ref().or(run.partial_text.as_ref()) {
        lines.push(String::new());
        lines.push(text.clone());
    }
    output::say(&lines.join("\n"))
}

/// Where something was to be sent, and what has become of it.
pub(super) fn delivered(delivery: &DeliveryRecord) -> String {
    let DeliveryRecord { target, state, attempts, error, .. } = delivery;
    let tries = match attempts {
        0 | 1 => String::new(),
        _ => format!(" after {attempts} tries"),
    };
    let why = error.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("to {target} {state}{tries}{why}")
}

fn span(millis: i64) -> String {
    length(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}
