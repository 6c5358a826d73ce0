//! `slots`: what was decided about due times, newest first.

use super::context::{Context, now};
use super::format::{self, Format};
use super::list::{List, shown};
use super::output::{self, Done};
use super::paint;
use super::relative::relative_to;
use crate::store::{SlotFilter, SlotSummary};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    list: List,
}

/// The columns of `--format csv`: those of `v1_slots`. Only ever added to.
const CSV: &[(&str, &str)] = &[
    ("job", "job"),
    ("due_at", "due_at"),
    ("due_until", "due_until"),
    ("slots", "slots"),
    ("decision", "decision"),
    ("reason", "reason"),
    ("run_id", "run_id"),
    ("decided_at", "decided_at"),
    ("late_ms", "late_ms"),
];

pub(super) fn slots(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let history = place.history()?;
    place.refuse_unknown(args.list.job.as_deref(), history.as_ref())?;
    let now = now();
    let (job, since) = (args.list.job.clone(), args.list.since(now)?);
    let slots = match history {
        Some(reader) => reader.slots(&SlotFilter { job, since, limit: args.list.limit })?,
        None => Vec::new(),
    };
    match args.list.format() {
        Format::Json => return output::json(&slots),
        Format::Csv => {
            return output::say_exactly(&format::csv(&format::columns(&slots, CSV)?)?);
        }
        Format::Table => {}
    }
    if slots.is_empty() {
        output::note("no slot matches");
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let row = |slot: &SlotSummary| {
        let due = shown(&slot.due_at, &place.zone);
        vec![
            slot.job.clone(),
            if slot.slots == 1 {
                due
            } else {
                format!("{due} to {}", shown(&slot.due_until, &place.zone))
            },
            relative_to(&slot.due_until, now),
            slot.slots.to_string(),
            slot.decision.clone(),
            slot.reason.clone().unwrap_or_default(),
            slot.run_id.clone().unwrap_or_default(),
        ]
    };
    let rows = slots.iter().map(row).collect();
    let head = ["job", "due", "that is", "slots", "decision", "reason", "run"];
    paint::say_table(&head, rows, &["decision"])
}
