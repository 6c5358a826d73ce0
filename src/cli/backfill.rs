//! `backfill`: run past slots again, or for the first time.
//!
//! Without `--run` it only says what it would do. The slots run one after the other, behind
//! everything else that the job has to do; the decisions of the past stay as they are.

use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::json;

use super::context::{Context, Place, block_on, now};
use super::holder;
use super::next::instant;
use super::output::{self, Done, Failed, counted, local, note, table};
use super::scheduled::Scheduled;
use crate::clock::rfc3339;
use crate::daemon::{Reply, Request};
use crate::schedule::{Schedule, Zone, parse_end};
use crate::store::{PastSlot, Reader};

/// Slots of one call: a day of minutes, and more than anybody wants to pay for by mistake.
const SLOTS_MAX: usize = 1500;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job's id
    job: String,
    /// The first instant: a date, a time in the job's zone, or RFC 3339
    #[arg(long, value_name = "TIME")]
    from: String,
    /// The last one, itself included; of a date, its whole day
    #[arg(long, value_name = "TIME")]
    to: String,
    /// Do it; without this it is only shown
    #[arg(long)]
    run: bool,
    /// Also slots that have a run which succeeded
    #[arg(long)]
    again: bool,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

/// One slot of the period.
struct Slot {
    due_at: Timestamp,
    known: PastSlot,
    wanted: bool,
}

pub(super) fn backfill(context: &Context, args: &Args) -> Done {
    let (config, jobs) = context.jobs()?;
    let job = Scheduled::find(&args.job, &config, &jobs)?;
    let Some(schedule) = &job.schedule else {
        return Err(Failed::usage(format!("`{}` has no schedule, so it has no slots", args.job)));
    };
    let refusal = refusal(&job);
    if let Some(words) = refusal.as_ref().filter(|_| args.run) {
        return Err(Failed::refused(words.clone()));
    }
    let zone = &job.zone;
    let slots = slots(schedule, zone, job.history.as_ref(), args)?;
    let wanted: Vec<_> = slots.iter().filter(|it| it.wanted).map(|it| it.due_at).collect();
    if args.run && !wanted.is_empty() {
        let request = Request::Backfill { job: args.job.clone(), slots: wanted.clone() };
        run(&config.clone().into(), &request)?;
    }
    if args.json {
        let slots = slots.iter().map(as_json).collect::<Vec<_>>();
        return output::json(&json!({ "job": args.job, "run": args.run, "slots": slots }));
    }
    let rows = slots.iter().map(|slot| row(slot, zone)).collect();
    output::say(&table(&["due", "decision", "runs", "last state", ""], rows))?;
    let count = counted(wanted.len(), "slot");
    note(&match (args.run, wanted.len()) {
        (_, 0) => "nothing to run".to_owned(),
        (true, _) => format!("{count} handed over; `punctual runs --job {}` shows them", args.job),
        (false, _) => format!("{count} would run; add --run to do it"),
    });
    if let Some(words) = refusal {
        note(&words);
    }
    Ok(ExitCode::SUCCESS)
}

/// Why none of its slots would be run now.
fn refusal(job: &Scheduled<'_>) -> Option<String> {
    let id = &job.spec.id;
    if !job.spec.enabled {
        let words = "past slots are run only once its file says `enabled = true`";
        return Some(format!(
            "`{id}` is disabled: {words}; `punctual run {id} --force --slot TIME` runs one"
        ));
    }
    let pause = job.pause()?;
    Some(format!(
        "`{id}` is paused ({pause}): past slots are run only after `punctual resume {id}`"
    ))
}

fn slots(
    schedule: &Schedule,
    zone: &Zone,
    history: Option<&Reader>,
    args: &Args,
) -> Result<Vec<Slot>, Failed> {
    let from = instant("--from", &args.from, zone)?;
    let to = last(&args.to, zone)?;
    if to < from {
        return Err(Failed::usage("--to lies before --from"));
    }
    if to > now() {
        return Err(Failed::usage("--to lies in the future: those slots start by themselves"));
    }
    let before = from.checked_sub(jiff::SignedDuration::from_millis(1)).unwrap_or(from);
    let count = schedule.count_between(before, to);
    if count > SLOTS_MAX as u64 {
        let words = format!("{count} slots lie in that period; at most {SLOTS_MAX} at once");
        return Err(Failed::usage(words));
    }
    let mut slots = Vec::new();
    for due in schedule.upcoming(before).take_while(|due| due.at <= to) {
        let known = match history {
            Some(reader) => reader.past_slot(&args.job, due.at)?,
            None => PastSlot::default(),
        };
        let wanted = known.open_runs == 0 && (args.again || !known.has_succeeded());
        slots.push(Slot { due_at: due.at, known, wanted });
    }
    Ok(slots)
}

/// The last instant that `--to` names; of today's date as much as has passed.
fn last(text: &str, zone: &Zone) -> Result<Timestamp, Failed> {
    let last =
        parse_end(text, zone).map_err(|error| Failed::usage(format!("--to `{text}`: {error}")))?;
    let is_going_on = instant("--to", text, zone)? <= now() && now() < last;
    Ok(if is_going_on { now() } else { last })
}

/// Hands the slots over; without a running `serve` they run here, to their end.
fn run(place: &Place, request: &Request) -> Result<(), Failed> {
    match block_on(holder::ask(place, request))?? {
        Reply::Backfilling { .. } => Ok(()),
        _ => Err(Failed::refused("the running punctual process gave another answer")),
    }
}

fn row(slot: &Slot, zone: &Zone) -> Vec<String> {
    let known = &slot.known;
    vec![
        local(slot.due_at, zone.rules()),
        match (&known.decision, &known.reason) {
            (Some(decision), Some(reason)) => format!("{decision} ({reason})"),
            (Some(decision), None) => decision.clone(),
            (None, _) => "no row: before it was first seen".into(),
        },
        known.runs.to_string(),
        known.last_state.clone().unwrap_or_default(),
        if slot.wanted { "runs" } else { "left out" }.into(),
    ]
}

fn as_json(slot: &Slot) -> serde_json::Value {
    let known = &slot.known;
    json!({
        "due_at": rfc3339(slot.due_at), "decision": known.decision, "reason": known.reason,
        "runs": known.runs, "last_state": known.last_state, "selected": slot.wanted,
    })
}
