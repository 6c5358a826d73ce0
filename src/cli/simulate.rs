//! `simulate`: every decision that `serve` would make between two instants.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;

use super::context::{Context, report, warn};
use super::forecast::{Decision, Forecast, MinuteLoad, Premises, jobs_in};
use super::next::instant;
use super::output::{self, Done, Failed, counted, length, local, note, table};
use super::times::zone_of;
use crate::config::{Config, JobSet};
use crate::job::{JobId, JobSpec};
use crate::plan::{Reason, SlotDecision};
use crate::run::Trigger;
use crate::schedule::Zone;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// From this time on: a date or a time in the configuration's zone, or RFC 3339
    #[arg(long, value_name = "TIME")]
    from: String,
    /// Up to this time, which is not included any more
    #[arg(long, value_name = "TIME")]
    to: String,
    /// This job only, as if there were no other; repeatable
    #[arg(long, value_name = "JOB")]
    job: Vec<String>,
    /// How long a run takes of a job that has not succeeded yet; else it is the median of its last
    /// 20 runs [default: 1m]
    #[arg(long, value_name = "LENGTH")]
    takes: Option<String>,
    /// The job files of this folder
    #[arg(long, value_name = "DIR")]
    jobs_dir: Option<PathBuf>,
    /// A line for each decision, also where a job has many that are alike
    #[arg(long)]
    every_line: bool,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn simulate(context: &Context, args: &Args) -> Done {
    let (config, jobs) = jobs_in(context, args.jobs_dir.as_deref())?;
    let from = instant("--from", &args.from, &config.timezone)?;
    let to = instant("--to", &args.to, &config.timezone)?;
    if to <= from {
        return Err(Failed::usage(format!(
            "--to `{}` is not after --from `{}`",
            args.to, args.from
        )));
    }
    let takes = args.takes.as_deref().unwrap_or("1m");
    let takes = humantime::parse_duration(takes).map_err(|error| {
        Failed::usage(format!("--takes `{takes}`: {error}; write `90s` or `5m`"))
    })?;
    let chosen = chosen(&args.job, &jobs)?;
    let history = Context::history(&config)?;
    let premises = Premises::new(&config, chosen, history.as_ref(), (from, to), takes)?;
    let forecast = premises.forecast();
    if args.json {
        output::json(&forecast)?;
    } else {
        print(&forecast, &premises.jobs, &config, args)?;
    }
    let unknown = premises.of_unknown_length(&forecast);
    // Whoever has said how long they take knows.
    if unknown > 0 && args.takes.is_none() && !args.json {
        let (are, each) = if unknown == 1 { ("is", "") } else { ("are", " each") };
        note(&format!(
            "no run yet: {} {are} taken to need {}{each} (--takes)",
            counted(unknown, "job"),
            length(takes),
        ));
    }
    if args.job.is_empty() && !jobs.invalid.is_empty() {
        let names: Vec<_> = jobs.invalid.keys().map(String::as_str).collect();
        note(&format!("left out, since their files are invalid: {}", names.join(", ")));
    }
    if let Some(at) = forecast.stopped_at {
        note(&format!(
            "stopped at {} after {}: what comes later is left out",
            local(at, config.timezone.rules()),
            counted(forecast.decisions.len(), "decision"),
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The jobs that were named, or all.
fn chosen<'a>(names: &[String], jobs: &'a JobSet) -> Result<Vec<&'a JobSpec>, Failed> {
    if names.is_empty() {
        warn(&jobs.warnings);
        return Ok(jobs.jobs.values().collect());
    }
    let mut chosen = BTreeMap::new();
    for name in names {
        if let Some(problems) = jobs.invalid.get(name) {
            return Err(Failed::usage(report(problems)));
        }
        let Some(spec) = jobs.jobs.values().find(|spec| spec.id.as_str() == name) else {
            Context::named(name, jobs, None)?;
            return Err(Failed::usage(format!("there is no job `{name}`")));
        };
        chosen.insert(&spec.id, spec);
    }
    Ok(chosen.into_values().collect())
}

fn print(forecast: &Forecast, jobs: &[&JobSpec], config: &Config, args: &Args) -> Done {
    if forecast.decisions.is_empty() {
        let (from, to) = (forecast.from, forecast.to);
        let shown = |at| local(at, config.timezone.rules());
        note(&format!("nothing is due from {} until {}", shown(from), shown(to)));
        return Ok(ExitCode::SUCCESS);
    }
    let zones = jobs.iter().map(|spec| (&spec.id, zone_of(spec.schedule.as_ref(), config)));
    let foldable = if args.every_line { usize::MAX } else { ALIKE_MAX };
    let lines = lines(&forecast.decisions, &zones.collect(), foldable);
    let parts = [
        decision_table(&lines),
        totals(&forecast.decisions),
        lane_table(forecast, config),
        busiest(&forecast.minutes, config),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    output::say(&parts.join("\n\n"))
}

/// So many decisions of one job on one day that are alike have a line each; more share one.
const ALIKE_MAX: usize = 12;

/// One line of the table: a decision, or the first and the last of many that are alike.
struct Line<'a> {
    /// Where it is among all decisions.
    place: usize,
    first: &'a Decision,
    last: &'a Decision,
    decisions: usize,
    zone: &'a Zone,
}

type Zones<'a> = BTreeMap<&'a JobId, &'a Zone>;

fn lines<'a>(decisions: &'a [Decision], zones: &Zones<'a>, alike_max: usize) -> Vec<Line<'a>> {
    type Alike<'a> = (&'a JobId, Date, SlotDecision, Option<Reason>, Option<Trigger>, bool);
    let mut alike: BTreeMap<usize, Vec<(usize, &Decision)>> = BTreeMap::new();
    let mut places: HashMap<Alike<'_>, usize> = HashMap::new();
    for (index, it) in decisions.iter().enumerate() {
        // What is peculiar about one of them must not be lost among the others.
        let is_plain = it.note.is_none() && it.waited_ms.unwrap_or(0) == 0 && it.slots == 1;
        let zone = zones[&it.job].rules().clone();
        let day = it.at.to_zoned_datetime(zone).date();
        let place = if is_plain {
            let in_time = it.at == it.due_at;
            let alike = (&it.job, day, it.decision, it.reason, it.trigger, in_time);
            *places.entry(alike).or_insert(index)
        } else {
            index
        };
        alike.entry(place).or_default().push((index, it));
    }
    let mut lines = Vec::new();
    for group in alike.into_values() {
        let size = if group.len() > alike_max { group.len() } else { 1 };
        for part in group.chunks(size) {
            let ((place, first), (_, last)) = (part[0], part[part.len() - 1]);
            lines.push(Line { place, first, last, decisions: part.len(), zone: zones[&first.job] });
        }
    }
    lines.sort_by_key(|line| line.place);
    lines
}

fn decision_table(lines: &[Line<'_>]) -> String {
    let row = |line: &Line<'_>| {
        let Line { first: it, last, decisions, zone, .. } = *line;
        let rules = zone.rules();
        let at = local(it.at, rules);
        let until = if decisions > 1 {
            let time = last.at.to_zoned_datetime(rules.clone());
            format!(" … {}", time.strftime("%H:%M:%S%:z"))
        } else {
            String::new()
        };
        let due = if it.due_at == it.at { String::new() } else { local(it.due_at, rules) };
        let slots = it.slots * u64::try_from(decisions).unwrap_or(u64::MAX);
        let waited = Duration::from_millis(it.waited_ms.unwrap_or(0));
        vec![
            format!("{at}{until}"),
            it.job.to_string(),
            it.decision.to_string(),
            why(it),
            if decisions == 1 { due } else { String::new() },
            if slots == 1 { String::new() } else { slots.to_string() },
            if waited.is_zero() { String::new() } else { length(waited) },
            it.note.clone().unwrap_or_default(),
        ]
    };
    let head = ["at", "job", "decision", "why", "due", "slots", "waits", "note"];
    full_columns(&head, lines.iter().map(row).collect())
}

fn why(it: &Decision) -> String {
    let reason = it.reason.map(|reason| reason.to_string());
    reason.or_else(|| it.trigger.map(|trigger| trigger.to_string())).unwrap_or_default()
}

/// A table without the columns in which nothing stands.
fn full_columns(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let is_full = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
    let columns: Vec<_> = (0..head.len()).filter(is_full).collect();
    let head: Vec<_> = columns.iter().map(|&column| head[column]).collect();
    let narrow = |row: Vec<String>| columns.iter().map(|&column| row[column].clone()).collect();
    table(&head, rows.into_iter().map(narrow).collect())
}

fn totals(decisions: &[Decision]) -> String {
    let mut counts: BTreeMap<(&JobId, &str, String), u64> = BTreeMap::new();
    // A slot that waited and had its turn is one slot.
    let waits = |it: &&Decision| match it.decision {
        SlotDecision::Buffered => true,
        // For a model or money; not one that a pause holds.
        SlotDecision::Held => it.trigger.is_some(),
        SlotDecision::Started | SlotDecision::Skipped | SlotDecision::Missed => false,
    };
    let settled: HashSet<_> =
        decisions.iter().filter(|it| !waits(it)).map(|it| (&it.job, it.due_at)).collect();
    for it in decisions.iter().filter(|it| !waits(it) || !settled.contains(&(&it.job, it.due_at))) {
        *counts.entry((&it.job, it.decision.as_str(), why(it))).or_default() += it.slots;
    }
    let row = |((job, decision, why), slots): ((&JobId, &str, String), u64)| {
        vec![job.to_string(), decision.to_owned(), why, slots.to_string()]
    };
    table(&["job", "decision", "why", "slots"], counts.into_iter().map(row).collect())
}

fn lane_table(forecast: &Forecast, config: &Config) -> String {
    if forecast.lanes.is_empty() {
        return String::new();
    }
    let rows = forecast.lanes.iter().map(|load| {
        vec![
            load.lane.clone(),
            load.width.to_string(),
            load.peak.to_string(),
            load.busiest_minute.map(|at| minute(at, config)).unwrap_or_default(),
            load.starts_in_it.to_string(),
        ]
    });
    table(&["lane", "width", "most at once", "busiest minute", "starts in it"], rows.collect())
}

/// So many minutes are shown.
const BUSIEST: usize = 10;

fn busiest(minutes: &[MinuteLoad], config: &Config) -> String {
    let mut busy: Vec<_> = minutes.iter().filter(|it| it.starts > 1).collect();
    busy.sort_by_key(|it| (std::cmp::Reverse(it.starts), it.minute));
    let Some(busiest) = busy.first() else {
        return "no two runs start in the same minute".into();
    };
    let alike = busy.iter().take_while(|it| it.starts == busiest.starts).count();
    if alike > BUSIEST {
        let (starts, first) = (busiest.starts, minute(busiest.minute, config));
        return format!("{starts} starts in each of {alike} minutes, at first in that of {first}");
    }
    let row = |it: &&MinuteLoad| {
        let lanes = it.by_lane.iter().filter(|(lane, _)| *lane != crate::plan::GLOBAL);
        let lanes: Vec<_> = lanes.map(|(lane, starts)| format!("{lane} {starts}")).collect();
        vec![minute(it.minute, config), it.starts.to_string(), lanes.join(", ")]
    };
    let shown = full_columns(
        &["minute", "starts", "by lane"],
        busy.iter().take(BUSIEST).map(row).collect(),
    );
    match busy.len().saturating_sub(BUSIEST) {
        0 => shown,
        more => format!("{shown}\n… and {} with more than one start", counted(more, "minute")),
    }
}

/// A minute in the configuration's zone.
pub(super) fn minute(at: Timestamp, config: &Config) -> String {
    at.to_zoned_datetime(config.timezone.rules().clone()).strftime("%Y-%m-%dT%H:%M%:z").to_string()
}
