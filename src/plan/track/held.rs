//! What is held: slots and further attempts that wait for a model (semantics §4), or for the next
//! day because a cap of this one is used up.
//!
//! A slot that would start while something keeps its job from starting is held, and begins when
//! nothing does any more, or its time passes and it is missed. Where no server of the job is known
//! to be there, the servers are asked; a cap needs no asking, its day turns. Further attempts wait,
//! too: for a model until their time is over, when they begin all the same (the slot has been
//! started, and its last attempt says what was wrong); for a cap never beyond that, and then no
//! further attempt comes. Past slots that somebody asked for do not ask for models, and wait for
//! money as long as it takes.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Common, Retrying, Track, Waiting, ended_attempt, given_up};
use crate::plan::Reason;
use crate::plan::act::{Act, Then};
use crate::plan::due::{SlotStart, catchup_window};
use crate::plan::join::{How, STARTS_WITHIN, SlotEnd};
use crate::plan::reach::{ANSWERED_WITHIN, Asks, Server};
use crate::plan::retry::Chain;
use crate::plan::spend::Caps;
use crate::run::{State, Trigger};

/// What keeps everything of a job from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    /// None of its models can be reached.
    NoModel(Asks),
    /// A cap of the day is used up.
    NoMoney {
        /// Since when.
        since: Timestamp,
        /// When the day is over.
        until: Timestamp,
    },
}

impl Blocked {
    fn since(self) -> Timestamp {
        match self {
            Self::NoModel(asks) => asks.since,
            Self::NoMoney { since, .. } => since,
        }
    }

    /// When to look again.
    fn next(self) -> Timestamp {
        match self {
            Self::NoModel(asks) => asks.next,
            Self::NoMoney { until, .. } => until,
        }
    }

    fn reason(self) -> Reason {
        match self {
            Self::NoModel(_) => Reason::ModelUnreachable,
            Self::NoMoney { .. } => Reason::Budget,
        }
    }
}

/// How a slot is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) until: Timestamp,
    /// Why, when that began.
    pub(super) reason: Reason,
}

impl Track {
    /// Which servers are asked from now on.
    pub(in crate::plan) fn use_servers(&mut self, servers: Arc<[Server]>) {
        if self.servers != servers {
            self.servers = servers;
            self.blocked = self.blocked.filter(|it| matches!(it, Blocked::NoMoney { .. }));
        }
    }

    /// What its days may cost from now on.
    pub(in crate::plan) fn use_caps(&mut self, caps: Caps) {
        if self.caps != caps {
            self.caps = caps;
            self.blocked = self.blocked.filter(|it| matches!(it, Blocked::NoModel(_)));
        }
    }

    /// Whether it waits for an answer of this server.
    pub(in crate::plan) fn waits_for(&self, server: &Server) -> bool {
        matches!(self.blocked, Some(Blocked::NoModel(_))) && self.servers.contains(server)
    }

    /// Since when it waits for a model, and when that is asked for next.
    pub(in crate::plan) fn waits_for_model(&self) -> Option<(Timestamp, Timestamp)> {
        match self.blocked? {
            Blocked::NoModel(asks) => Some((asks.since, asks.next)),
            Blocked::NoMoney { .. } => None,
        }
    }

    /// What would hold a slot now.
    pub(super) fn obstacle(&self, common: &Common, now: Timestamp) -> Option<Reason> {
        if common.spent.used_up(&self.id, &self.caps, now).is_some() {
            Some(Reason::Budget)
        } else if common.reach.reaches(&self.servers, now) {
            None
        } else {
            Some(Reason::ModelUnreachable)
        }
    }

    /// The slot is held from now on; servers are asked at once.
    pub(super) fn hold_slot(
        &mut self,
        due_at: Timestamp,
        start: SlotStart,
        reason: Reason,
        now: Timestamp,
    ) {
        self.blocked = None;
        let until = self.hold_limit(due_at, self.start_of(due_at), due_at.max(now));
        let held = Some(Held { until, reason });
        self.waiting.push_back(Waiting::Slot { due_at, start, held });
    }

    /// Its rules have changed: how long a slot is held follows them.
    pub(super) fn hold_anew(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        for waiting in &mut waiting {
            if let Waiting::Slot { due_at, held: Some(held), .. } = waiting {
                let since = self.blocked.map_or(*due_at, |it| it.since().max(*due_at));
                held.until = self.hold_limit(*due_at, self.start_of(*due_at), since);
            }
        }
        self.waiting = waiting;
    }

    /// Nothing is held any more, and that is `because`.
    pub(super) fn give_up_held(&mut self, because: Reason) -> Vec<Act> {
        self.give_up(|_, waiting| match waiting {
            Waiting::Slot { held: Some(_), .. } => Some(because),
            Waiting::Slot { held: None, .. } | Waiting::ByHand(_) => None,
        })
    }

    /// Until when a slot is held that has been so since `since`: its window, which begins at
    /// `start`, or the next due instant, whichever is first; but for the first answer of a server
    /// in any case.
    pub(super) fn hold_limit(
        &self,
        due_at: Timestamp,
        start: Timestamp,
        since: Timestamp,
    ) -> Timestamp {
        let Some(schedule) = &self.rules.schedule else {
            let window = if self.rules.after.is_some() { STARTS_WITHIN } else { ANSWERED_WITHIN };
            return since + window;
        };
        let window = catchup_window(schedule, self.rules.catchup_window, due_at);
        let limit = (start + window).max(since + ANSWERED_WITHIN);
        let next = schedule.next_after(due_at.max(since));
        next.map_or(limit, |next| limit.min(schedule.start_of(next.at)))
    }

    /// When to look after what is held; `at`, if nothing is.
    pub(super) fn blocked_until(&self, at: Timestamp) -> Timestamp {
        let Some(blocked) = self.blocked else { return at };
        let over = |it: &Retrying| Some(it.at.max(self.retry_limit(it.chain, blocked)?));
        let retries = self.retrying.iter().filter_map(over);
        let slots = self.waiting.iter().filter_map(|waiting| self.limit_of(waiting));
        slots.chain(retries).fold(blocked.next(), Timestamp::min)
    }

    /// When the first slot that is held is given up.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        let until = |waiting: &Waiting| match waiting {
            Waiting::Slot { held, .. } => held.map(|held| held.until),
            Waiting::ByHand(_) => None,
        };
        self.waiting.iter().filter_map(until).min()
    }

    /// When past slots go on that only a cap keeps from it.
    pub(super) fn past_held_until(&self) -> Option<Timestamp> {
        let is_next = self.live.is_empty() && self.retrying.is_empty() && self.waiting.is_empty();
        match self.blocked? {
            Blocked::NoMoney { until, .. } if is_next && !self.backfill.is_empty() => Some(until),
            Blocked::NoMoney { .. } | Blocked::NoModel(_) => None,
        }
    }

    fn limit_of(&self, waiting: &Waiting) -> Option<Timestamp> {
        match *waiting {
            Waiting::Slot { held: Some(held), .. } => Some(held.until),
            // It has waited for something else before, and gets the same time from then on.
            Waiting::Slot { due_at, .. } => self.blocked.map(|blocked| {
                let since = blocked.since();
                self.hold_limit(due_at, self.start_of(due_at).max(since), since)
            }),
            Waiting::ByHand(_) => None,
        }
    }

    /// Until when a further attempt waits; a past slot's waits for money without limit.
    fn retry_limit(&self, chain: Chain, blocked: Blocked) -> Option<Timestamp> {
        match blocked {
            Blocked::NoMoney { .. } if chain.origin == Trigger::Backfill => None,
            Blocked::NoMoney { .. } | Blocked::NoModel(_) => {
                Some(self.hold_limit(chain.due_at, self.start_of(chain.due_at), blocked.since()))
            }
        }
    }

    /// What has been held until its time was over.
    pub(super) fn give_up_overdue(&mut self, now: Timestamp) -> Vec<Act> {
        let blocked = self.blocked.map(Blocked::reason);
        let mut acts = self.give_up(|track, waiting| {
            let is_over = track.limit_of(waiting).is_some_and(|limit| limit <= now);
            let reason = match waiting {
                Waiting::Slot { held: Some(held), .. } => Some(blocked.unwrap_or(held.reason)),
                Waiting::Slot { held: None, .. } | Waiting::ByHand(_) => blocked,
            };
            reason.filter(|_| is_over)
        });
        acts.extend(self.give_up_retries(now));
        acts
    }

    /// Further attempts that would have begun before now, had there been money for them.
    fn give_up_retries(&mut self, now: Timestamp) -> Option<Act> {
        let blocked = self.blocked.filter(|it| matches!(it, Blocked::NoMoney { .. }))?;
        let is_over = |it: &Retrying| {
            it.at <= now && self.retry_limit(it.chain, blocked).is_some_and(|limit| limit <= now)
        };
        let (over, left): (Vec<_>, Vec<_>) = self.retrying.iter().partition(|it| is_over(it));
        if over.is_empty() {
            return None;
        }
        self.retrying = left;
        let mut record = self.record();
        for Retrying { chain, .. } in over {
            tracing::warn!(
                job = %self.id, due_at = %chain.due_at, attempt = chain.attempt, reason = "budget",
                "no further attempt: a cap of the day is used up"
            );
            record.settled.push(ended_attempt(chain, Then::Nothing));
            self.ready.remove(&chain.due_at);
            let (job, how) = (self.id.clone(), How::of(State::Failed));
            let (first, last) = (chain.due_at, chain.due_at);
            self.ended = Some(SlotEnd { job, first, last, how, at: now });
        }
        Some(record.into())
    }

    fn give_up(&mut self, why: impl Fn(&Self, &Waiting) -> Option<Reason>) -> Vec<Act> {
        let mut record = self.record();
        for waiting in std::mem::take(&mut self.waiting) {
            match (why(self, &waiting), waiting) {
                (Some(reason), Waiting::Slot { due_at, held, .. }) => {
                    record.turned.push(given_up(due_at, held, reason));
                }
                (_, waiting) => self.waiting.push_back(waiting),
            }
        }
        if record.turned.is_empty() { Vec::new() } else { vec![record.into()] }
    }

    /// Whether a cap of the day is used up.
    pub(super) fn is_broke(&mut self, common: &Common, now: Timestamp) -> bool {
        let Some(used_up) = common.spent.used_up(&self.id, &self.caps, now) else {
            self.blocked = self.blocked.filter(|it| matches!(it, Blocked::NoModel(_)));
            return false;
        };
        let since = match self.blocked {
            Some(Blocked::NoMoney { since, .. }) => since,
            Some(Blocked::NoModel(_)) | None => now,
        };
        self.blocked = Some(Blocked::NoMoney { since, until: used_up.until });
        true
    }

    /// Whether anything may start: there is money left, and a model can be reached, as far as is
    /// known; if not, its servers are asked when it is time.
    fn may_start(&mut self, common: &mut Common, now: Timestamp, acts: &mut Vec<Act>) -> bool {
        if self.is_broke(common, now) {
            return false;
        }
        if common.reach.reaches(&self.servers, now) {
            self.blocked = None;
            return true;
        }
        let mut asks = match self.blocked {
            Some(Blocked::NoModel(asks)) => asks,
            Some(Blocked::NoMoney { .. }) | None => Asks::from(now),
        };
        if asks.next <= now {
            asks.asked(now);
            let silent = common.reach.ask(&self.servers, now);
            if !silent.is_empty() {
                acts.push(Act::Probe(silent));
            }
        }
        self.blocked = Some(Blocked::NoModel(asks));
        false
    }

    /// Takes the next one out of the line. A slot that is held lets people go first.
    pub(super) fn turn_that_comes(
        &mut self,
        common: &mut Common,
        now: Timestamp,
        acts: &mut Vec<Act>,
    ) -> Option<Waiting> {
        let by_hand = |waiting: &Waiting| matches!(waiting, Waiting::ByHand(_));
        match self.waiting.iter().position(by_hand) {
            Some(0) => self.waiting.pop_front(),
            _ if self.may_start(common, now, acts) => self.waiting.pop_front(),
            Some(index) => self.waiting.remove(index),
            None => None,
        }
    }

    /// Which of the further attempts whose time has come begins: any when nothing keeps it from
    /// that; without a model one that needs not ask or whose time is over.
    pub(super) fn retry_that_begins(
        &mut self,
        common: &mut Common,
        now: Timestamp,
        acts: &mut Vec<Act>,
    ) -> Option<usize> {
        let may_start = self.may_start(common, now, acts);
        let blocked = self.blocked;
        self.retrying.iter().position(|it| {
            let begins = match blocked {
                None => may_start,
                Some(Blocked::NoMoney { .. }) => false,
                Some(blocked @ Blocked::NoModel(_)) => {
                    let is_past = it.chain.origin == Trigger::Backfill;
                    let limit = self.retry_limit(it.chain, blocked);
                    is_past || limit.is_some_and(|limit| limit <= now)
                }
            };
            it.at <= now && begins
        })
    }
}

impl Waiting {
    /// Whether it is held and is due after `now`.
    pub(super) fn is_held_after(&self, now: Timestamp) -> bool {
        matches!(self, Self::Slot { due_at, held: Some(_), .. } if *due_at > now)
    }
}
