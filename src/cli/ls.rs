//! `ls`: the jobs, when they are due, how their last run ended.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::json;

use super::context::{Context, now};
use super::last_good::LastGood;
use super::output::{self, Done, first_line, local, note};
use super::paint;
use super::relative::{relative, relative_to};
use super::running;
use super::times::zone_of;
use super::tree;
use crate::clock::rfc3339;
use crate::config::Config;
use crate::job::{JobSpec, Problem};
use crate::schedule::Schedule;
use crate::store::JobSummary;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show which job comes after which
    #[arg(long, conflicts_with = "json")]
    tree: bool,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn ls(context: &Context, args: &Args) -> Done {
    let (config, jobs) = context.jobs()?;
    if args.tree {
        return output::say(&tree::tree(&jobs));
    }
    let running = running::status(&config.state_dir).ok().flatten();
    let kept = running.as_ref().map(|it| it.last_good.clone()).unwrap_or_default();
    if let Some(words) = running.and_then(|it| running::stale(&it, &jobs, config.scheduler.reload))
    {
        note(&words);
    }
    let history = Context::history(&config)?;
    let mut last_good = HashMap::new();
    for name in kept.iter().filter(|name| jobs.invalid.contains_key(*name)) {
        last_good
            .extend(LastGood::read(name, &config, history.as_ref())?.map(|it| (name.clone(), it)));
    }
    let known: HashMap<String, JobSummary> = match &history {
        Some(reader) => reader.jobs()?.into_iter().map(|it| (it.job.clone(), it)).collect(),
        None => HashMap::new(),
    };
    if args.json {
        let valid = jobs.jobs.values().map(|spec| as_json(spec, known.get(spec.id.as_str())));
        let invalid = jobs.invalid.iter().map(|(name, problems)| {
            json!({
                "job": name, "state": "invalid", "invalid_reason": words(problems),
                "last_good_in_force": kept.contains(name),
                "next_due_at": last_good.get(name).and_then(|it| it.next_due).map(rfc3339),
            })
        });
        return output::json(&valid.chain(invalid).collect::<Vec<_>>());
    }
    let mut rows: Vec<_> =
        jobs.jobs.values().map(|spec| row(spec, known.get(spec.id.as_str()), &config)).collect();
    rows.extend(jobs.invalid.iter().map(|(name, problems)| {
        let state = if kept.contains(name) { "invalid, last good in force" } else { "invalid" };
        vec![
            name.clone(),
            state.into(),
            last_good.get(name).and_then(|it| it.local(&config)).unwrap_or_default(),
            last_good.get(name).and_then(|it| it.next_due).map_or_else(String::new, away),
            String::new(),
            first_line(&words(problems), 60),
        ]
    }));
    rows.sort();
    let head = ["job", "state", "next due", "that is", "last run", "schedule"];
    paint::say_table(&head, rows, &["state", "last run"])
}

/// Where that lies from now.
fn away(at: Timestamp) -> String {
    relative(at, now())
}

fn row(spec: &JobSpec, known: Option<&JobSummary>, config: &Config) -> Vec<String> {
    let next = schedule(spec, known).filter(|_| spec.enabled).and_then(|it| it.next_after(now()));
    let zone = zone_of(spec.schedule.as_ref(), config);
    vec![
        spec.id.to_string(),
        state_words(spec, known),
        next.as_ref().map(|due| local(due.at, zone.rules())).unwrap_or_default(),
        next.map_or_else(String::new, |due| away(due.at)),
        known.and_then(last_run).unwrap_or_default(),
        when_words(spec),
    ]
}

fn last_run(known: &JobSummary) -> Option<String> {
    let (state, at) = known.last_state.as_ref().zip(known.last_queued_at.as_ref())?;
    Some(format!("{state} {}", relative_to(at, now())))
}

fn as_json(spec: &JobSpec, known: Option<&JobSummary>) -> serde_json::Value {
    let next = schedule(spec, known).filter(|_| spec.enabled).and_then(|it| it.next_after(now()));
    json!({
        "job": spec.id, "state": state(spec, known),
        "description": spec.description, "owner": spec.owner, "labels": spec.labels,
        "schedule": spec.schedule.as_ref().map(|it| &it.text),
        "after": spec.after.as_ref().map(|after| json!({ "jobs": after.jobs, "when": after.when.as_str() })),
        "timezone": spec.schedule.as_ref().map(|it| it.zone.name()),
        "next_due_at": next.map(|due| rfc3339(due.at)),
        "last_state": known.and_then(|it| it.last_state.as_ref()),
        "consecutive_failures": known.map_or(0, |it| it.consecutive_failures),
        "paused_reason": known.and_then(|it| it.paused_reason.as_ref()),
        "paused_until": known.and_then(|it| it.paused_until.as_ref()),
        "definition_hash": spec.definition_hash, "invalid_reason": null,
    })
}

/// What the files and the ledger together say of a job that can run.
fn state(spec: &JobSpec, known: Option<&JobSummary>) -> &'static str {
    match known.map(|it| it.state.as_str()) {
        _ if !spec.enabled => "disabled",
        Some("paused") => "paused",
        Some("done") => "done",
        _ => "enabled",
    }
}

/// The same for people: that it is held is not hidden by its being disabled.
fn state_words(spec: &JobSpec, known: Option<&JobSummary>) -> String {
    match known.and_then(|it| it.paused_reason.as_ref()) {
        Some(_) if !spec.enabled => "disabled, paused".into(),
        _ => state(spec, known).into(),
    }
}

/// When it is due, in words.
pub(super) fn when_words(spec: &JobSpec) -> String {
    match (&spec.schedule, &spec.after) {
        (Some(schedule), _) => schedule.text.clone(),
        (None, Some(after)) => after.to_string(),
        (None, None) => "by hand".into(),
    }
}

/// The job's schedule with the grid of its `every`, as the ledger keeps it; a job that was never
/// served begins its grid now.
pub(super) fn schedule(spec: &JobSpec, known: Option<&JobSummary>) -> Option<Schedule> {
    let anchor = known
        .and_then(|it| it.every_anchor.as_ref())
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(now);
    spec.schedule.as_ref().map(|it| it.schedule.anchored(anchor))
}

/// Why a file defines no job.
pub(super) fn words(problems: &[Problem]) -> String {
    problems.iter().map(|it| it.message.clone()).collect::<Vec<_>>().join("; ")
}
