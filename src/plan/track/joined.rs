//! A slot that comes after others.

use jiff::Timestamp;

use super::{Common, Track};
use crate::job::Overlap;
use crate::plan::act::Act;
use crate::plan::due::{BUFFERED_MAX, PlannedSlot, SlotStart};
use crate::plan::join::{Joined, REMEMBERED, SlotEnd, So};
use crate::plan::rules::{Availability, Pause};
use crate::plan::{Reason, SlotDecision};
use crate::run::Trigger;

impl Track {
    /// The jobs before it have all ended, or one of them has not as it wants.
    pub(in crate::plan) fn join(
        &mut self,
        common: &mut Common,
        joined: Joined,
        now: Timestamp,
    ) -> Vec<Act> {
        let Joined { first, last, slots, so } = joined;
        // Nothing of a job that is gone is decided.
        let Some((decision, reason)) = self.decision_on(common, so, now) else { return Vec::new() };
        let waits = match decision {
            SlotDecision::Started | SlotDecision::Buffered => true,
            SlotDecision::Held => {
                matches!(reason, Some(Reason::ModelUnreachable | Reason::Budget))
            }
            SlotDecision::Skipped | SlotDecision::Missed => false,
        };
        if waits {
            self.ready.insert(first, now);
        }
        self.remember(first, last);
        let slot = PlannedSlot {
            due_at: first,
            due_until: last,
            slots,
            start_at: if waits { now } else { first },
            decision,
            reason,
            start: waits.then(|| SlotStart::alone(Trigger::After, first)),
        };
        self.apply(common, vec![slot], now)
    }

    fn decision_on(
        &mut self,
        common: &Common,
        so: So,
        now: Timestamp,
    ) -> Option<(SlotDecision, Option<Reason>)> {
        use SlotDecision::{Buffered, Held, Missed, Skipped, Started};
        let account = self.sane_account(now);
        self.memory.account = account;
        let pause = self.memory.pause.as_ref();
        let pause = pause.filter(|it| it.until.is_none_or(|until| now <= until));
        let living = self.live.len() + self.retrying.len() + self.waiting.len();
        let decided = match (so, self.rules.availability, pause.map(Pause::reason)) {
            (_, Availability::Retired, _) => return None,
            (So::Not(reason), ..) => {
                let decision = if reason == Reason::Upstream { Skipped } else { Missed };
                (decision, Some(reason))
            }
            (So::Starts, Availability::Invalid, _) => (Skipped, Some(Reason::Invalid)),
            (So::Starts, _, Some(reason)) => (Held, Some(reason)),
            (So::Starts, Availability::Disabled, None) => (Skipped, Some(Reason::Disabled)),
            (So::Starts, Availability::Ready, None) => {
                if account.backoff_until.is_some_and(|until| now < until) {
                    (Skipped, Some(Reason::Backoff))
                } else if living > 0 && self.rules.overlap != Overlap::AllowAll {
                    let may_wait = self.waiting.len() < BUFFERED_MAX;
                    (if may_wait { Buffered } else { Skipped }, Some(Reason::Overlap))
                } else if let Some(why) = self.obstacle(common, now) {
                    (Held, Some(why))
                } else {
                    (Started, None)
                }
            }
        };
        Some(decided)
    }

    /// These instants are decided.
    fn remember(&mut self, first: Timestamp, last: Timestamp) {
        let memory = &mut self.memory;
        memory.decided_until = memory.decided_until.max(first - REMEMBERED);
        memory.ahead.push((first, last));
        memory.ahead.retain(|(_, last)| *last > memory.decided_until);
        memory.ahead.sort_unstable();
    }

    /// The slot that has just come to its end.
    pub(in crate::plan) fn take_ended(&mut self) -> Option<SlotEnd> {
        self.ended.take()
    }
}
