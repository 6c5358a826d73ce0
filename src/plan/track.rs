//! One job as time goes by: what is decided, what lives, what waits.
//!
//! A slot lives from its first attempt to the end of its last one. Between two attempts it is
//! *retrying*, which counts as living for `overlap`. What must not start beside it waits.
//!
//! What follows the end of a run is in `ends.rs`, what comes after other jobs in `joined.rs`, what is
//! held for a model or a cap in `held.rs`, what people ask for in `asked.rs`, and what a changed file
//! or clock means in `changed.rs`.

mod asked;
mod changed;
mod ends;
mod held;
mod joined;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use super::act::{Act, Claim, LiveId, PauseChange, Record, Settled, Start, Then, Turned};
use super::due::{JobView, Living, PlannedSlot, SlotStart, decide};
use super::join::SlotEnd;
use super::reach::{Reach, Server};
use super::retry::{BACKOFF_MAX, Chain};
use super::rules::{Account, Availability, Memory, Rules};
use super::spend::{Caps, Spent};
use super::{Reason, SlotDecision};
use crate::job::{JobId, Overlap};
use crate::run::Trigger;
use crate::schedule::{Moment, Standing};
use held::{Blocked, Held};

/// One job's part of the planner.
#[derive(Debug, Clone)]
pub(super) struct Track {
    id: JobId,
    pub(super) rules: Rules,
    pub(super) memory: Memory,
    live: BTreeMap<LiveId, Option<Chain>>,
    waiting: VecDeque<Waiting>,
    retrying: Vec<Retrying>,
    backfill: VecDeque<Chain>,
    /// One of these must be reachable before a slot starts.
    pub(super) servers: Arc<[Server]>,
    /// What its days may cost.
    pub(super) caps: Caps,
    /// Nothing of it starts, as far as is known.
    blocked: Option<Blocked>,
    /// The first moment after the watermark, and the first of those that are due and undecided.
    /// Kept, since finding them is most of the work of a look.
    next_moment: Option<Timestamp>,
    next_due: Option<Timestamp>,
    /// Where the ledger is once all records of this have reached it.
    recorded_until: Timestamp,
    /// The slot that has come to its end with what happened last.
    ended: Option<SlotEnd>,
    /// Since when a slot could start that came after others.
    ready: BTreeMap<Timestamp, Timestamp>,
}

/// What all jobs share.
#[derive(Debug, Clone, Default)]
pub(super) struct Common {
    /// The number of the newest run.
    newest: u64,
    pub(super) reach: Reach,
    pub(super) spent: Spent,
}

/// What may not start beside what lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Slot {
        due_at: Timestamp,
        start: SlotStart,
        /// Of a slot that is held: until when, and why.
        held: Option<Held>,
    },
    ByHand(LiveId),
}

/// What a slot waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// The job's own run: it is buffered.
    ForRun,
    /// A model: it is held.
    ForModel,
    /// The next day, a cap of this one being used up: it is held.
    ForBudget,
}

/// A slot that waited in a process that has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingSlot {
    /// Which.
    pub due_at: Timestamp,
    /// For what.
    pub waits: Waits,
    /// How it starts, and what it stands for.
    pub start: SlotStart,
}

/// A slot between two attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retrying {
    /// The attempt to come.
    chain: Chain,
    at: Timestamp,
}

/// What becomes of a run that somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByHand {
    /// It starts.
    Starts(LiveId),
    /// It starts when what lives has ended.
    Waits(LiveId),
    /// The job still runs and its policy lets nothing wait.
    Overlaps,
}

impl Common {
    fn next_id(&mut self) -> LiveId {
        self.newest += 1;
        LiveId(self.newest)
    }
}

impl Track {
    pub(super) fn new(id: JobId, rules: Rules, memory: Memory) -> Self {
        let mut track = Self {
            id,
            rules,
            memory,
            live: BTreeMap::new(),
            waiting: VecDeque::new(),
            retrying: Vec::new(),
            backfill: VecDeque::new(),
            servers: Arc::default(),
            caps: Caps::default(),
            blocked: None,
            next_moment: None,
            next_due: None,
            recorded_until: Timestamp::MIN,
            ended: None,
            ready: BTreeMap::new(),
        };
        track.look_ahead();
        track
    }

    /// Finds what comes next, after the watermark or the schedule has changed.
    fn look_ahead(&mut self) {
        let schedule = self.rules.schedule.as_ref();
        let next = schedule.and_then(|it| it.next_moment(self.memory.decided_until));
        self.expect(next);
    }

    /// `next` is the first moment after the watermark.
    fn expect(&mut self, next: Option<Moment>) {
        self.next_moment = next.map(|moment| moment.at);
        self.next_due = match next {
            Some(Moment { at, standing: Standing::Due }) if self.memory.ahead.is_empty() => {
                Some(at)
            }
            Some(_) => self.find_next_due(),
            None => None,
        };
    }

    /// When it is due next, by its nominal time.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        match self.rules.availability {
            Availability::Ready | Availability::Disabled | Availability::Invalid => {}
            Availability::Retired => return None,
        }
        self.next_due
    }

    fn find_next_due(&self) -> Option<Timestamp> {
        let schedule = self.rules.schedule.as_ref()?;
        let mut after = self.memory.decided_until;
        // What is decided ahead is not due again.
        for &(first, last) in &self.memory.ahead {
            match schedule.next_after(after) {
                Some(due) if due.at < first => return Some(due.at),
                _ => after = after.max(last),
            }
        }
        schedule.next_after(after).map(|due| due.at)
    }

    /// When it wants to be looked at, given that it was looked at `now`.
    pub(super) fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let moment = self.next_moment.map(|at| self.start_of(at));
        // While something runs, what follows waits for its end, not for time.
        let beside = self.rules.overlap == Overlap::AllowAll;
        let is_free = beside || self.live.is_empty();
        let retry = self.retrying.iter().map(|it| it.at).filter(|_| is_free).min();
        let waits = !self.waiting.is_empty() && is_free && (beside || self.retrying.is_empty());
        let goes_on = [retry, waits.then_some(now)].into_iter().flatten().min();
        let goes_on = goes_on.map(|at| at.max(self.blocked_until(at)));
        let pause = self.memory.pause.as_ref().and_then(|pause| pause.until);
        [moment, goes_on, self.past_held_until(), self.held_until(), pause]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether nothing of it is left to follow.
    pub(super) fn is_over(&self) -> bool {
        self.rules.availability == Availability::Retired && self.live.is_empty()
    }

    /// Whether past slots still wait to be run, or to be tried again.
    pub(super) fn has_backfill(&self) -> bool {
        !self.backfill.is_empty() || self.backfill_retry().is_some()
    }

    /// When a past slot is tried again, or begins at last.
    pub(super) fn backfill_retry(&self) -> Option<Timestamp> {
        let past = self.retrying.iter().filter(|it| it.chain.origin == Trigger::Backfill);
        past.map(|it| it.at).chain(self.past_held_until()).min()
    }

    /// How many of its slots and runs wait for what lives.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Its next further attempt, if one is to come.
    pub(super) fn next_retry(&self) -> Option<(Timestamp, u32)> {
        self.retrying.iter().map(|it| (it.at, it.chain.attempt)).min()
    }

    fn record(&self) -> Record {
        let claim = match self.rules.after {
            None => Claim::After(self.recorded_until),
            Some(_) => Claim::Beside(self.memory.decided_until),
        };
        Record { claim, ..Record::new(&self.id, self.next_due()) }
    }

    /// Decides all that is due, and starts what may start.
    pub(super) fn look(
        &mut self,
        common: &mut Common,
        now: Timestamp,
        because: Reason,
    ) -> Vec<Act> {
        let mut acts = self.give_up_overdue(now);
        acts.extend(self.decide(common, now, because));
        if self.memory.pause.as_ref().is_some_and(|it| it.until.is_some_and(|at| at <= now)) {
            self.memory.pause = None;
            let pause = Some(PauseChange::Lifted);
            acts.push(Record { pause, ..self.record() }.into());
        }
        acts.extend(self.go_on(common, now));
        acts
    }

    fn decide(&mut self, common: &mut Common, now: Timestamp, because: Reason) -> Vec<Act> {
        let Some(schedule) = &self.rules.schedule else { return Vec::new() };
        let account = self.sane_account(now);
        self.memory.account = account;
        let view = JobView {
            schedule,
            rules: &self.rules,
            memory: &self.memory,
            living: self.living(),
            unseen_because: because,
            obstacle: self.obstacle(common, now),
        };
        let plan = decide(view, now);
        self.memory.decided_until = plan.decided_until;
        self.memory.ahead.retain(|(_, last)| *last > plan.decided_until);
        self.expect(plan.next);
        self.apply(common, plan.slots, now)
    }

    /// A clock that was set back can leave a wait that no rule makes so long.
    fn sane_account(&self, now: Timestamp) -> Account {
        let account = self.memory.account;
        let backoff_until = account.backoff_until.filter(|&until| until <= now + BACKOFF_MAX);
        Account { backoff_until, ..account }
    }

    fn living(&self) -> Living {
        let backfills =
            |chain: &&Option<Chain>| chain.is_some_and(|chain| chain.origin == Trigger::Backfill);
        let backfilling = self.live.values().filter(backfills).count();
        Living {
            running: self.live.len() - backfilling,
            backfilling,
            retrying: self.retrying.len(),
            waiting: self.waiting.len(),
        }
    }

    /// One record per run that starts, so that a slot and its run are one transaction; decisions
    /// that start nothing go with the next one.
    fn apply(&mut self, common: &mut Common, slots: Vec<PlannedSlot>, now: Timestamp) -> Vec<Act> {
        let mut acts = Vec::new();
        let mut open = self.record();
        for slot in slots {
            let (decision, start) = (slot.decision, slot.start);
            let (due_at, reason) = (slot.due_at, slot.reason);
            self.recorded_until = slot.due_until;
            open.rows.push(slot);
            match (decision, start) {
                (SlotDecision::Started, Some(start)) => {
                    open.start = Some(self.start_slot(common, due_at, start));
                    acts.push(std::mem::replace(&mut open, self.record()).into());
                }
                (SlotDecision::Buffered, Some(start)) => {
                    let running = self.living().running + self.retrying.len() + self.waiting.len();
                    if self.rules.overlap == Overlap::CancelOther && running > 0 {
                        self.give_way(&mut open);
                        acts.push(std::mem::replace(&mut open, self.record()).into());
                        acts.push(Act::Replace(self.id.clone()));
                    }
                    self.waiting.push_back(Waiting::Slot { due_at, start, held: None });
                }
                (SlotDecision::Held, Some(start)) => {
                    let reason = reason.unwrap_or(Reason::ModelUnreachable);
                    self.hold_slot(due_at, start, reason, now);
                }
                _ => {}
            }
        }
        if !open.rows.is_empty() {
            acts.push(open.into());
        }
        acts
    }

    /// A newer slot takes the place of whatever waits or is to be retried.
    fn give_way(&mut self, record: &mut Record) {
        self.skip_waiting(record, Reason::Superseded);
        self.drop_retries(record);
    }

    fn skip_waiting(&mut self, record: &mut Record, reason: Reason) {
        self.waiting.retain(|waiting| match waiting {
            Waiting::ByHand(_) => true,
            Waiting::Slot { due_at, held, .. } => {
                record.turned.push(given_up(*due_at, *held, reason));
                false
            }
        });
    }

    fn drop_retries(&mut self, record: &mut Record) {
        record
            .settled
            .extend(self.retrying.drain(..).map(|it| ended_attempt(it.chain, Then::Nothing)));
    }

    fn start(&mut self, common: &mut Common, trigger: Trigger, chain: Chain) -> Start {
        let id = common.next_id();
        self.live.insert(id, Some(chain));
        Start { id, trigger, chain, start_at: self.start_of(chain.due_at) }
    }

    fn start_slot(&mut self, common: &mut Common, due_at: Timestamp, start: SlotStart) -> Start {
        let SlotStart { trigger, stands_for, first_due } = start;
        let chain = Chain::new(trigger, due_at, 1).standing_for(stands_for, first_due);
        self.start(common, trigger, chain)
    }

    /// Starts what has waited, as far as it may: further attempts first, then what came due, then
    /// past slots. Nothing starts while a cap of the day is used up, and nothing of the first two
    /// before a model can be reached.
    pub(super) fn go_on(&mut self, common: &mut Common, now: Timestamp) -> Vec<Act> {
        let mut acts = self.give_up_overdue(now);
        let beside = self.rules.overlap == Overlap::AllowAll;
        while beside || self.live.is_empty() {
            if self.retrying.iter().any(|it| it.at <= now) {
                let Some(index) = self.retry_that_begins(common, now, &mut acts) else { break };
                acts.push(self.retry(common, index));
            } else if !beside && !self.retrying.is_empty() {
                break;
            } else if !self.waiting.is_empty() {
                let Some(next) = self.turn_that_comes(common, now, &mut acts) else { break };
                acts.push(self.take_turn(common, next));
            } else if self.live.is_empty()
                && !self.backfill.is_empty()
                && !self.is_broke(common, now)
                && let Some(chain) = self.backfill.pop_front()
            {
                let mut record = self.record();
                record.start = Some(self.start(common, Trigger::Backfill, chain));
                acts.push(record.into());
            } else {
                break;
            }
        }
        acts
    }

    fn retry(&mut self, common: &mut Common, index: usize) -> Act {
        let chain = self.retrying.remove(index).chain;
        let mut record = self.record();
        record.settled.push(ended_attempt(chain, Then::Attempt));
        record.start = Some(self.start(common, Trigger::Retry, chain));
        record.into()
    }

    fn take_turn(&mut self, common: &mut Common, waiting: Waiting) -> Act {
        match waiting {
            Waiting::ByHand(id) => {
                self.live.insert(id, None);
                Act::Release(id)
            }
            Waiting::Slot { due_at, start, .. } => {
                let mut record = self.record();
                let decision = SlotDecision::Started;
                record.turned.push(Turned { due_at, decision, reason: None });
                record.start = Some(self.start_slot(common, due_at, start));
                record.into()
            }
        }
    }

    fn start_of(&self, due_at: Timestamp) -> Timestamp {
        match &self.rules.schedule {
            Some(schedule) => schedule.start_of(due_at),
            None => self.ready.get(&due_at).copied().unwrap_or(due_at),
        }
    }
}

/// A slot that waited and does not start.
fn given_up(due_at: Timestamp, held: Option<Held>, reason: Reason) -> Turned {
    let decision = if held.is_some() { SlotDecision::Missed } else { SlotDecision::Skipped };
    Turned { due_at, decision, reason: Some(reason) }
}

/// The attempt before the one to come.
fn ended_attempt(next: Chain, then: Then) -> Settled {
    Settled { due_at: next.due_at, attempt: next.attempt - 1, then }
}
