//! What follows the end of a run: another attempt, the next in line, or a job that is held.

use jiff::Timestamp;

use super::{Common, Held, Retrying, Track, Waiting, WaitingSlot, Waits, given_up};
use crate::job::Catchup;
use crate::plan::Reason;
use crate::plan::act::{Act, LiveId, PauseChange, Settled, Then};
use crate::plan::due::{MISFIRE_AFTER, catchup_window, distance};
use crate::plan::join::{How, SlotEnd};
use crate::plan::retry::{Chain, Follow, RunEnd, failed_slot, follow};
use crate::plan::rules::{Account, Availability, Pause, PauseCause};
use crate::run::{ErrorKind, Trigger};
use crate::schedule::Schedule;

impl Track {
    /// A run is over; `end` is `None` if it never began.
    pub(in crate::plan) fn ended(
        &mut self,
        common: &mut Common,
        id: LiveId,
        end: Option<&RunEnd>,
        now: Timestamp,
    ) -> Vec<Act> {
        self.waiting.retain(|waiting| *waiting != Waiting::ByHand(id));
        let chain = self.live.remove(&id).flatten();
        if let Some(end) = end {
            common.spent.add(&self.id, &self.caps, end.at, end.usd);
            if end.kind.is_some_and(is_about_reach) {
                common.reach.forget(&self.servers);
            }
        }
        let mut acts = match (chain, end) {
            (Some(chain), Some(end)) => self.conclude(chain, end),
            _ => Vec::new(),
        };
        acts.extend(self.go_on(common, now));
        acts
    }

    /// What the end of an attempt means for its slot and its job.
    pub(in crate::plan) fn conclude(&mut self, chain: Chain, end: &RunEnd) -> Vec<Act> {
        let mut record = self.record();
        let follow = follow(&self.rules, chain, end);
        let is_last = !matches!(follow, Follow::Again(_)) || !self.may_retry(chain);
        // A past slot that somebody asks for starts nothing after it.
        if is_last && chain.origin != Trigger::Backfill {
            let (job, at, how) = (self.id.clone(), end.at, How::of(end.state));
            self.ready.remove(&chain.due_at);
            self.ended = Some(SlotEnd { job, first: chain.due_at, last: chain.due_at, how, at });
        }
        let this = Settled { due_at: chain.due_at, attempt: chain.attempt, then: Then::Nothing };
        match follow {
            // The ledger clears the account with the run's own end.
            Follow::Succeeded => {
                self.memory.account = Account::default();
                return Vec::new();
            }
            Follow::Again(at) if self.may_retry(chain) => {
                self.retrying.push(Retrying { chain: chain.after(end).next(), at });
                return Vec::new();
            }
            // Nothing of a job that is held or gone is tried again.
            Follow::Over | Follow::Again(_) => {}
            Follow::Failed if chain.origin == Trigger::Backfill => {}
            Follow::Failed => {
                let account = failed_slot(self.memory.account, end);
                self.memory.account = account;
                record.account = Some(account);
                record.pause = self.pause_after_failure(end).map(|pause| self.hold(pause));
            }
            Follow::Hold => {
                let words = "its run was interrupted, and so was the repetition".to_owned();
                let cause = PauseCause::InterruptedTwice;
                record.pause = Some(self.hold(Pause { cause, words, until: None }));
            }
        }
        record.settled.push(this);
        // Whatever holds the job holds what waited for this run, too.
        if let Some(PauseChange::Held(pause)) = &record.pause {
            let reason = pause.reason();
            self.skip_waiting(&mut record, reason);
        }
        vec![record.into()]
    }

    fn may_retry(&self, chain: Chain) -> bool {
        let free = self.memory.pause.is_none() || chain.origin == Trigger::Backfill;
        self.rules.availability == Availability::Ready && free
    }

    pub(super) fn hold(&mut self, pause: Pause) -> PauseChange {
        self.memory.pause = Some(pause.clone());
        PauseChange::Held(pause)
    }

    fn pause_after_failure(&self, end: &RunEnd) -> Option<Pause> {
        if self.memory.pause.is_some() {
            return None;
        }
        let kind = end.kind.map_or("failed", ErrorKind::as_str);
        if self.rules.schedule.as_ref().is_some_and(Schedule::is_one_shot) {
            let words = format!("its only slot has failed: {kind}");
            return Some(Pause { cause: PauseCause::OneShotFailed, words, until: None });
        }
        let failures = self.memory.account.counted_failures;
        (failures >= self.rules.retry.pause_after).then(|| Pause {
            cause: PauseCause::Failures,
            words: match failures {
                1 => format!("its slot has failed: {kind}"),
                _ => format!("{failures} slots in a row have failed, the last one with {kind}"),
            },
            until: None,
        })
    }

    /// A run that a dead process had queued: it goes on if its slot is still in time.
    pub(in crate::plan) fn requeued(
        &mut self,
        common: &mut Common,
        chain: Chain,
        now: Timestamp,
    ) -> Option<LiveId> {
        if !self.may_retry(chain) || !self.is_in_time(chain, now) {
            return None;
        }
        let id = common.next_id();
        self.live.insert(id, Some(chain));
        Some(id)
    }

    fn is_in_time(&self, chain: Chain, now: Timestamp) -> bool {
        let Some(schedule) = &self.rules.schedule else { return self.rules.after.is_some() };
        let first_attempt = matches!(chain.origin, Trigger::Schedule | Trigger::Catchup);
        if !first_attempt || chain.attempt > 1 {
            return true;
        }
        let may_be_late = match self.rules.catchup {
            Catchup::None => MISFIRE_AFTER,
            Catchup::Latest | Catchup::All => {
                catchup_window(schedule, self.rules.catchup_window, chain.due_at).max(MISFIRE_AFTER)
            }
        };
        distance(schedule.start_of(chain.due_at), now) <= may_be_late
    }

    /// A slot that had waited in a dead process: it waits on if it is still in time.
    pub(in crate::plan) fn waits_again(&mut self, slot: WaitingSlot, now: Timestamp) -> Vec<Act> {
        let WaitingSlot { due_at, waits, mut start } = slot;
        if self.rules.after.is_some() {
            start.trigger = Trigger::After;
        }
        let chain = Chain::new(start.trigger, due_at, 1);
        let reason = match waits {
            Waits::ForRun => None,
            Waits::ForModel => Some(Reason::ModelUnreachable),
            Waits::ForBudget => Some(Reason::Budget),
        };
        let held = reason.map(|reason| {
            let until = self.hold_limit(due_at, self.start_of(due_at), due_at);
            Held { until, reason }
        });
        let in_time = held.map_or_else(|| self.is_in_time(chain, now), |held| now < held.until);
        if self.may_retry(chain) && in_time {
            self.waiting.push_back(Waiting::Slot { due_at, start, held });
            return Vec::new();
        }
        let reason = match (&self.memory.pause, self.rules.availability) {
            (Some(pause), _) => pause.reason(),
            (None, Availability::Disabled | Availability::Retired) => Reason::Disabled,
            (None, Availability::Invalid) => Reason::Invalid,
            (None, Availability::Ready) => held.map_or(Reason::TooLate, |held| held.reason),
        };
        let mut record = self.record();
        record.turned.push(given_up(due_at, held, reason));
        vec![record.into()]
    }
}

/// What says that no server of the job was there.
fn is_about_reach(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ModelUnreachable | ErrorKind::Network)
}
