//! What a job's file says, with its defaults, as `show JOB` tells people.

use super::output::length;
use crate::config::Config;
use crate::job::{Catchup, Does, GateSpec, JobSpec, RunTimeout, ScheduleSpec};

/// Dates of `exclude` that are named.
const EXCLUDED_MAX: usize = 5;

/// One line for each rule.
pub(super) fn lines(spec: &JobSpec, config: &Config) -> Vec<String> {
    let mut lines = match &spec.does {
        Does::Agent(agent) => {
            vec![("model", agent.model.to_string()), ("tools", agent.tools.join(", "))]
        }
        Does::Command(command) => vec![("command", command.argv.join(" "))],
    };
    lines.extend(spec.gate.as_ref().map(|gate| ("gate", gate_words(gate))));
    lines.extend([
        ("lane", spec.lane.clone().unwrap_or_else(|| "the global one".into())),
        ("timeout", timeout(spec, config)),
        ("retry", retry(spec)),
    ]);
    for deliver in &spec.delivers {
        lines.push(("deliver", format!("to {} when {}", deliver.to, deliver.when)));
    }
    match &spec.schedule {
        Some(schedule) => lines.extend(of_schedule(spec, schedule)),
        None => lines.push(("schedule", super::ls::when_words(spec))),
    }
    lines.into_iter().map(|(name, value)| format!("  {name:<9} {value}")).collect()
}

fn of_schedule(spec: &JobSpec, schedule: &ScheduleSpec) -> Vec<(&'static str, String)> {
    let written = |key: &str| Some(spec.effective["schedule"].get(key)?.as_str()?.to_owned());
    let bounds = match (written("start_at"), written("end_at")) {
        (None, None) => None,
        (Some(start), None) => Some(format!("from {start} on")),
        (None, Some(end)) => Some(format!("until {end}")),
        (Some(start), Some(end)) => Some(format!("from {start} until {end}")),
    };
    let window = match schedule.catchup_window {
        Some(window) => format!("no later than {} after it was due", length(window)),
        None if schedule.schedule.is_one_shot() => "no later than 2h after it was due".to_owned(),
        None => "no later than half the distance to the next due time (2m to 2h)".to_owned(),
    };
    let catchup = match schedule.catchup {
        Catchup::None => schedule.catchup.to_string(),
        Catchup::Latest | Catchup::All => format!("{}, {window}", schedule.catchup),
    };
    let jitter = written("jitter").filter(|_| schedule.schedule.has_jitter());
    let optional = [
        ("jitter", jitter.map(|max| format!("starts up to {max} later"))),
        ("bounds", bounds),
        ("exclude", excluded(schedule)),
    ];
    let mut lines = vec![("schedule", format!("{} in {}", schedule.text, schedule.zone.name()))];
    lines.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    lines.push(("overlap", schedule.overlap.to_string()));
    lines.push(("catchup", catchup));
    lines
}

fn gate_words(gate: &GateSpec) -> String {
    format!("{} ({}), within {}", gate.argv.join(" "), gate.run_if, length(gate.timeout))
}

fn excluded(schedule: &ScheduleSpec) -> Option<String> {
    let all: Vec<_> = schedule.schedule.excluded().map(|range| range.to_string()).collect();
    let shown = all.iter().take(EXCLUDED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = match all.len().saturating_sub(EXCLUDED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!all.is_empty()).then(|| format!("{shown}{more}"))
}

fn timeout(spec: &JobSpec, config: &Config) -> String {
    match spec.limits.timeout {
        RunTimeout::After(limit) => length(limit),
        RunTimeout::Unlimited => "none".into(),
        RunTimeout::Unset => format!("{} (the usual one)", length(config.run_ceiling_of(spec))),
    }
}

fn retry(spec: &JobSpec) -> String {
    let retry = &spec.retry;
    if retry.max_attempts == 1 {
        return format!("never; {} failures in a row pause it", retry.pause_after);
    }
    let waits: Vec<_> = retry.backoff.iter().copied().map(length).collect();
    format!(
        "up to {} attempts, after {}; {} failures in a row pause it",
        retry.max_attempts,
        waits.join(", "),
        retry.pause_after,
    )
}
