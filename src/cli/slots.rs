//! `slots`: what was decided about due times, newest first.

use super::context::Context;
use super::list::{List, shown};
use super::output::{self, Done, table};
use crate::store::{SlotFilter, SlotSummary};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    list: List,
}

pub(super) fn slots(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let history = place.history()?;
    place.refuse_unknown(args.list.job.as_deref(), history.as_ref())?;
    let filter = SlotFilter {
        job: args.list.job.clone(),
        since: args.list.since()?,
        limit: args.list.limit,
    };
    let slots = match history {
        Some(reader) => reader.slots(&filter)?,
        None => Vec::new(),
    };
    if args.list.json {
        return output::json(&slots);
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
                format!("{due} … {}", shown(&slot.due_until, &place.zone))
            },
            slot.slots.to_string(),
            slot.decision.clone(),
            slot.reason.clone().unwrap_or_default(),
            slot.run_id.clone().unwrap_or_default(),
        ]
    };
    let rows = slots.iter().map(row).collect();
    output::say(&table(&["job", "due", "slots", "decision", "reason", "run"], rows))
}
