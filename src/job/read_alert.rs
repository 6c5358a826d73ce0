//! `[alert]`: who is told when a job is not well.

use std::time::Duration;

use super::keys;
use super::parse::{Part, Reader};
use super::read_deliver::target;
use super::tree::Item;

words!(
    /// What somebody is told of.
    Cause {
        /// Runs that failed, timed out or were interrupted, after their last attempt.
        Failed = "failed",
        /// Slots that were not started in time.
        Missed = "missed",
        /// Runs that ended over their budget, and slots that a budget held.
        OverBudget = "over_budget",
        /// Results that did not reach their target.
        DeliveryFailed = "delivery_failed",
        /// Nothing has succeeded for `stale_after` periods.
        Stale = "stale",
    }
);

/// Who is told of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertSpec {
    /// Of what.
    pub on: Vec<Cause>,
    /// After so many slots in a row.
    pub after: u32,
    /// Periods without a success.
    pub stale_after: Option<u32>,
    /// The least time between two alerts of one cause.
    pub cooldown: Duration,
    /// The target.
    pub to: String,
}

impl AlertSpec {
    /// Whether somebody is told of this.
    pub fn is_on(&self, cause: Cause) -> bool {
        self.on.contains(&cause)
    }
}

pub(super) fn alert(reader: &mut Reader<'_>) -> Option<AlertSpec> {
    let node = reader.node.get("alert")?;
    if node.table()?.values().any(|entry| matches!(entry.node.item, Item::Refused)) {
        return None;
    }
    let on = causes(reader);
    let stale_after = node.integer("stale_after");
    let is_on = on.contains(&Cause::Stale);
    match (is_on, stale_after.is_some()) {
        (true, false) if reader.part == Part::Job => {
            let help = "such as stale_after = 3".to_owned();
            reader.refuse("alert.on", "\"stale\" needs `stale_after`, a number of periods", help);
        }
        (false, true) => {
            reader.warn("alert.stale_after", "nobody is told of it: `on` has no \"stale\"");
        }
        _ => {}
    }
    if is_on && reader.part == Part::Job && reader.node.get("schedule").is_none() {
        reader.refuse("alert.on", "without a schedule there are no periods to be stale in", None);
    }
    let Some(to) = node.get("to") else {
        if reader.part == Part::Job {
            let help = "name it under [targets.<name>]".to_owned();
            reader.refuse("alert", "an alert needs `to`, a target", help);
        }
        return None;
    };
    target(reader, to, "alert.to");
    Some(AlertSpec {
        on,
        after: node.integer("after").unwrap_or(1),
        stale_after,
        cooldown: node.duration("cooldown").unwrap_or(Duration::ZERO),
        to: to.as_text()?.to_owned(),
    })
}

fn causes(reader: &mut Reader<'_>) -> Vec<Cause> {
    let Some(written) = reader.node.texts("alert.on") else {
        return vec![Cause::Failed, Cause::Missed, Cause::OverBudget, Cause::DeliveryFailed];
    };
    let mut causes = Vec::new();
    for (word, place) in written {
        match word.parse() {
            Ok(cause) => causes.push(cause),
            Err(words) => {
                let known = Cause::ALL.iter().map(|cause| cause.as_str());
                let help = keys::did_you_mean(word, known);
                reader.problems.push(place.error("alert.on", words).with_help(help));
            }
        }
    }
    causes
}
