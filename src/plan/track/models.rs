//! What waits for a model: slots that are held, and further attempts (semantics §4).
//!
//! A slot that would start while no server of its job is known to be there is held, and the servers
//! are asked; the answer starts it, or its time passes and it is missed. So are further attempts,
//! but that these begin all the same when their time is over: the slot has been started, and its
//! last attempt says what was wrong. Past slots that somebody asked for are not asked about.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Common, Retrying, Track, Waiting, given_up};
use crate::plan::Reason;
use crate::plan::act::Act;
use crate::plan::due::{SlotStart, catchup_window};
use crate::plan::join::STARTS_WITHIN;
use crate::plan::reach::{ANSWERED_WITHIN, Asks, Server};
use crate::plan::retry::Chain;
use crate::run::Trigger;

impl Track {
    /// Which servers are asked from now on.
    pub(in crate::plan) fn use_servers(&mut self, servers: Arc<[Server]>) {
        if self.servers != servers {
            (self.servers, self.asks) = (servers, None);
        }
    }

    /// Whether it waits for an answer of this server.
    pub(in crate::plan) fn waits_for(&self, server: &Server) -> bool {
        self.asks.is_some() && self.servers.contains(server)
    }

    /// Since when it waits for a model, and when that is asked for next.
    pub(in crate::plan) fn waits_for_model(&self) -> Option<(Timestamp, Timestamp)> {
        self.asks.map(|asks| (asks.since, asks.next))
    }

    /// The slot is held from now on, and its servers are asked at once.
    pub(super) fn wait_for_model(&mut self, due_at: Timestamp, start: SlotStart, now: Timestamp) {
        self.asks = None;
        let until = self.model_limit(due_at, self.start_of(due_at), due_at.max(now));
        self.waiting.push_back(Waiting::Slot { due_at, start, held_until: Some(until) });
    }

    /// Its rules have changed: how long a slot is held follows them.
    pub(super) fn hold_anew(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        for waiting in &mut waiting {
            if let Waiting::Slot { due_at, held_until: Some(until), .. } = waiting {
                let since = self.asks.map_or(*due_at, |asks| asks.since.max(*due_at));
                *until = self.model_limit(*due_at, self.start_of(*due_at), since);
            }
        }
        self.waiting = waiting;
    }

    /// Nothing is held for a model any more, and that is `because`.
    pub(super) fn give_up_held(&mut self, because: Reason) -> Vec<Act> {
        self.give_up(|_, waiting| match waiting {
            Waiting::Slot { held_until: Some(_), .. } => Some(because),
            Waiting::Slot { held_until: None, .. } | Waiting::ByHand(_) => None,
        })
    }

    /// Until when a slot waits for a model that it has waited for since `since`: its window, which
    /// begins at `start`, or the next due instant, whichever is first; but for the first answer in
    /// any case.
    pub(super) fn model_limit(
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

    /// When to look after what waits for a model; `at`, if nothing does.
    pub(super) fn asks_next(&self, at: Timestamp) -> Timestamp {
        let Some(asks) = &self.asks else { return at };
        let begins = |it: &Retrying| it.at.max(self.retry_limit(it.chain, asks));
        let retries = self.retrying.iter().map(begins);
        let slots = self.waiting.iter().filter_map(|waiting| self.limit_of(waiting));
        slots.chain(retries).fold(asks.next, Timestamp::min)
    }

    /// When the first slot that is held is given up.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        let until = |waiting: &Waiting| match waiting {
            Waiting::Slot { held_until, .. } => *held_until,
            Waiting::ByHand(_) => None,
        };
        self.waiting.iter().filter_map(until).min()
    }

    fn limit_of(&self, waiting: &Waiting) -> Option<Timestamp> {
        match *waiting {
            Waiting::Slot { held_until: Some(until), .. } => Some(until),
            // It has waited for something else before, and gets the same time from then on.
            Waiting::Slot { due_at, .. } => self.asks.map(|Asks { since, .. }| {
                self.model_limit(due_at, self.start_of(due_at).max(since), since)
            }),
            Waiting::ByHand(_) => None,
        }
    }

    fn retry_limit(&self, chain: Chain, asks: &Asks) -> Timestamp {
        self.model_limit(chain.due_at, self.start_of(chain.due_at), asks.since)
    }

    /// What has waited for a model until its time was over.
    pub(super) fn give_up_unreached(&mut self, now: Timestamp) -> Vec<Act> {
        self.give_up(|track, waiting| {
            let is_over = track.limit_of(waiting).is_some_and(|limit| limit <= now);
            is_over.then_some(Reason::ModelUnreachable)
        })
    }

    fn give_up(&mut self, why: impl Fn(&Self, &Waiting) -> Option<Reason>) -> Vec<Act> {
        let mut record = self.record();
        for waiting in std::mem::take(&mut self.waiting) {
            match (why(self, &waiting), waiting) {
                (Some(reason), Waiting::Slot { due_at, held_until, .. }) => {
                    record.turned.push(given_up(due_at, held_until, reason));
                }
                (_, waiting) => self.waiting.push_back(waiting),
            }
        }
        if record.turned.is_empty() { Vec::new() } else { vec![record.into()] }
    }

    /// Whether a model can be reached, as far as is known; if not, its servers are asked when it
    /// is time.
    pub(super) fn reaches_model(
        &mut self,
        common: &mut Common,
        now: Timestamp,
        acts: &mut Vec<Act>,
    ) -> bool {
        if common.reach.reaches(&self.servers, now) {
            self.asks = None;
            return true;
        }
        let asks = self.asks.get_or_insert(Asks::from(now));
        if asks.next <= now {
            asks.asked(now);
            let silent = common.reach.ask(&self.servers, now);
            if !silent.is_empty() {
                acts.push(Act::Probe(silent));
            }
        }
        false
    }

    /// Takes the next one out of the line. A slot that waits for a model lets people go first.
    pub(super) fn turn_that_comes(
        &mut self,
        common: &mut Common,
        now: Timestamp,
        acts: &mut Vec<Act>,
    ) -> Option<Waiting> {
        let by_hand = |waiting: &Waiting| matches!(waiting, Waiting::ByHand(_));
        match self.waiting.iter().position(by_hand) {
            Some(0) => self.waiting.pop_front(),
            _ if self.reaches_model(common, now, acts) => self.waiting.pop_front(),
            Some(index) => self.waiting.remove(index),
            None => None,
        }
    }

    /// Which of the further attempts whose time has come begins: any when a model can be reached,
    /// else one that waits for none or whose time is over.
    pub(super) fn retry_that_begins(
        &mut self,
        common: &mut Common,
        now: Timestamp,
        acts: &mut Vec<Act>,
    ) -> Option<usize> {
        let reaches = self.reaches_model(common, now, acts);
        let asks = self.asks;
        self.retrying.iter().position(|it| {
            let is_past = it.chain.origin == Trigger::Backfill;
            let is_over = asks.is_some_and(|asks| self.retry_limit(it.chain, &asks) <= now);
            it.at <= now && (reaches || is_past || is_over)
        })
    }
}

impl Waiting {
    /// Whether it waits for a model and is due after `now`.
    pub(super) fn is_held_after(&self, now: Timestamp) -> bool {
        matches!(self, Self::Slot { due_at, held_until: Some(_), .. } if *due_at > now)
    }
}
