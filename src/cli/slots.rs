//! `slots`: what was decided about due times, newest first.

use super::context::Context;
use super::output::{self, Done, table};
use super::runs::{shown, since};
use crate::store::{SlotFilter, SlotSummary};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Of this job only
    #[arg(long)]
    job: Option<String>,
    /// Due not longer ago than this (`24h`, `7days`)
    #[arg(long, value_name = "LENGTH")]
    since: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn slots(context: &Context, args: &Args) -> Done {
    let config = context.config()?;
    let filter = SlotFilter {
        job: args.job.clone(),
        since: args.since.as_deref().map(since).transpose()?,
        limit: args.limit,
    };
    let slots = match Context::history(&config)? {
        Some(reader) => reader.slots(&filter)?,
        None => Vec::new(),
    };
    if args.json {
        return output::json(&slots);
    }
    if slots.is_empty() {
        output::note("no slot matches");
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let row = |slot: &SlotSummary| {
        let due = shown(&slot.due_at, &config);
        vec![
            slot.job.clone(),
            if slot.slots == 1 {
                due
            } else {
                format!("{due} … {}", shown(&slot.due_until, &config))
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
