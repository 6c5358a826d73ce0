//! All jobs: whose time has come, and what that means.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::act::{Act, LiveId, Record, Settled, Then, Turned};
use super::due::{MISFIRE_AFTER, distance};
use super::join::{Joins, STARTS_WITHIN, SlotEnd, So};
use super::reach::Server;
use super::retry::{Chain, RunEnd};
use super::rules::{Availability, Memory, Pause, PauseCause, Rules};
use super::spend::{Caps, Spent, UsedUp};
use super::track::{ByHand, Common, Track, WaitingSlot, Waits};
use super::{Reason, SlotDecision};
use crate::clock::Now;
use crate::job::JobId;
use crate::schedule::Schedule;

/// A clock that goes back by less is being adjusted, not set.
const SET_BACK_MIN: SignedDuration = SignedDuration::from_secs(1);

/// A clock that was set back is noticed within this, by whoever looks each second; what came due
/// in between has come due.
const NOTICED_WITHIN: SignedDuration = SignedDuration::from_secs(2);

/// A clock that was set by more than this is worth a word in the log.
const STEP_WORTH_A_WORD: SignedDuration = SignedDuration::from_hours(3);

/// After so many failures in a row to compute a job's next due time, it is paused.
const SCHEDULE_ERRORS_MAX: u8 = 3;

/// How soon a computation that failed is tried again.
const COMPUTE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Where the decisions of a job are: every moment up to the instant has its row, and so have those
/// in the stretches after it.
pub type Decided = (Timestamp, Vec<(Timestamp, Timestamp)>);

/// The same for each job whose decisions begin again after the clock was set back.
pub type Ahead = HashMap<JobId, Decided>;

/// Decides what each job does as time goes by. Nothing in it waits, writes or reads a clock.
#[derive(Debug, Clone, Default)]
pub struct Planner {
    jobs: BTreeMap<JobId, Track>,
    queue: BTreeSet<(Timestamp, JobId)>,
    /// Where each job is in the queue.
    places: HashMap<JobId, Timestamp>,
    failures: HashMap<JobId, u8>,
    common: Common,
    joins: Joins,
    looked: Option<Now>,
    /// While the ledger is asked what lies ahead of a clock that was set back.
    rewinding: bool,
}

impl Planner {
    /// Takes in a job.
    pub fn adopt(&mut self, id: &JobId, rules: Rules, memory: Memory, now: Timestamp) {
        match self.jobs.get_mut(id) {
            // It was gone or invalid, and a run of it may still live.
            Some(track) => track.adopt_again(rules, memory),
            None => drop(self.jobs.insert(id.clone(), Track::new(id.clone(), rules, memory))),
        }
        self.joins.take_in(id, &self.jobs[id]);
        self.requeue(id, now);
    }

    /// A new definition of a job that is there. `decided_until` is where a schedule of another
    /// timing begins; `None`: the timing is the same.
    pub fn replace(
        &mut self,
        id: &JobId,
        rules: Rules,
        decided_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Vec<Act> {
        let acts = self.with(id, now, |track, _| track.replace(rules, decided_until));
        if let Some(track) = self.jobs.get(id) {
            self.joins.take_in(id, track);
        }
        acts
    }

    /// The job's schedule is about to be replaced or to go: what was due by it and has not been
    /// decided is missed, and that is `because`.
    pub fn close(&mut self, id: &JobId, now: Timestamp, because: Reason) -> Vec<Act> {
        self.with(id, now, |track, common| track.close(common, now, because))
    }

    /// The job's file is gone: nothing of it starts any more.
    pub fn remove(&mut self, id: &JobId, now: Timestamp) -> Vec<Act> {
        let gone = Rules::idle(None, Availability::Retired);
        self.with(id, now, |track, _| track.replace(gone, None))
    }

    /// From now on one of these has to be reachable before a slot of the job starts.
    pub fn use_servers(&mut self, id: &JobId, servers: Arc<[Server]>, now: Timestamp) {
        drop(self.with(id, now, |track, _| {
            track.use_servers(servers);
            Vec::new()
        }));
    }

    /// What the days of the job may cost from now on.
    pub fn use_caps(&mut self, id: &JobId, caps: Caps, now: Timestamp) {
        drop(self.with(id, now, |track, _| {
            track.use_caps(caps);
            Vec::new()
        }));
    }

    /// What has been spent so far, as the ledger has it.
    pub fn knows_spent(&mut self, spent: Spent) {
        self.common.spent = spent;
    }

    /// The cap that keeps the job from starting, if one does.
    pub fn used_up(&self, id: &JobId, now: Timestamp) -> Option<UsedUp> {
        self.common.spent.used_up(id, &self.jobs.get(id)?.caps, now)
    }

    /// The cap that keeps a turn of no job from starting, if one does.
    pub fn outside_used_up(&self, id: &JobId, caps: &Caps, now: Timestamp) -> Option<UsedUp> {
        self.common.spent.used_up(id, caps, now)
    }

    /// What a turn of no job has spent counts for all.
    pub fn outside_ended(&mut self, id: &JobId, caps: &Caps, end: &RunEnd) {
        self.common.spent.add(id, caps, end.at, end.usd);
    }

    /// The answer of a server that was asked by [`Act::Probe`].
    pub fn probed(&mut self, server: &Server, reachable: bool, now: Timestamp) -> Vec<Act> {
        self.common.reach.answered(server, reachable, now);
        if !reachable {
            return Vec::new();
        }
        let waits = self.jobs.iter().filter(|(_, track)| track.waits_for(server));
        let waits: Vec<_> = waits.map(|(id, _)| id.clone()).collect();
        let go_on = |id: &JobId| self.with(id, now, |track, common| track.go_on(common, now));
        waits.iter().flat_map(go_on).collect()
    }

    /// Since when the job waits for a model, and when its servers are asked next.
    pub fn waits_for_model(&self, id: &JobId) -> Option<(Timestamp, Timestamp)> {
        self.jobs.get(id)?.waits_for_model()
    }

    /// Whether it knows the job.
    pub fn knows(&self, id: &JobId) -> bool {
        self.jobs.contains_key(id)
    }

    /// The jobs it knows.
    pub fn ids(&self) -> impl Iterator<Item = &JobId> {
        self.jobs.keys()
    }

    /// Whether the clock shows an earlier time than at the last look.
    pub fn was_set_back(&self, now: Now) -> bool {
        let back = |last: Now| now.wall.duration_since(last.wall) <= -SET_BACK_MIN;
        !self.rewinding && self.looked.is_some_and(back)
    }

    /// What holds the job, if something does.
    pub fn pause_of(&self, id: &JobId) -> Option<&Pause> {
        self.jobs.get(id)?.memory.pause.as_ref()
    }

    /// The job's rules.
    pub fn rules_of(&self, id: &JobId) -> Option<&Rules> {
        self.jobs.get(id).map(|track| &track.rules)
    }

    /// When the job is due next.
    pub fn next_due_of(&self, id: &JobId) -> Option<Timestamp> {
        self.jobs.get(id)?.next_due()
    }

    /// When a slot of the job is tried again, and the number of that attempt.
    pub fn next_retry_of(&self, id: &JobId) -> Option<(Timestamp, u32)> {
        self.jobs.get(id)?.next_retry()
    }

    /// How much of the job waits for what lives of it.
    pub fn waiting_of(&self, id: &JobId) -> usize {
        self.jobs.get(id).map_or(0, Track::waiting)
    }

    /// Whether past slots still wait to be run.
    pub fn has_backfill(&self) -> bool {
        self.jobs.values().any(Track::has_backfill)
    }

    /// When a past slot is tried again.
    pub fn backfill_wake(&self) -> Option<Timestamp> {
        self.jobs.values().filter_map(Track::backfill_retry).min()
    }

    /// Goes on with past slots, and decides nothing that is due.
    pub fn go_on_with_backfill(&mut self, now: Timestamp) -> Vec<Act> {
        let common = &mut self.common;
        let past = self.jobs.values_mut().filter(|track| track.has_backfill());
        past.flat_map(|track| track.go_on(common, now)).collect()
    }

    /// When each job is due next, soonest first.
    pub fn upcoming(&self) -> Vec<(Timestamp, &JobId)> {
        let next = |(id, track): (_, &Track)| Some((track.next_due()?, id));
        let mut upcoming: Vec<_> = self.jobs.iter().filter_map(next).collect();
        upcoming.sort_unstable();
        upcoming
    }

    /// The instant at which it wants to look again.
    pub fn wake(&self) -> Option<Timestamp> {
        if self.rewinding {
            return None;
        }
        self.queue.first().map(|(at, _)| *at)
    }

    /// Time has passed: everything that is due is decided.
    pub fn look(&mut self, now: Now) -> Vec<Act> {
        let because = match self.observe(now) {
            Sight::SetBack => {
                self.rewinding = true;
                return vec![Act::Rewind(now.wall - NOTICED_WITHIN)];
            }
            Sight::SetForward => Reason::ClockStep,
            Sight::Usual => Reason::Down,
        };
        if self.rewinding {
            return Vec::new();
        }
        // All that is due is taken before any of it is decided.
        let mut due = Vec::new();
        while self.queue.first().is_some_and(|(at, _)| *at <= now.wall) {
            due.extend(self.queue.pop_first().map(|(_, id)| id));
        }
        let look = |id: &JobId| self.look_at(id, now.wall, because);
        let acts = due.iter().flat_map(look).collect();
        self.and_after(acts, &due, now.wall)
    }

    fn look_at(&mut self, id: &JobId, now: Timestamp, because: Reason) -> Vec<Act> {
        self.places.remove(id);
        let Some(track) = self.jobs.get_mut(id) else { return Vec::new() };
        let common = &mut self.common;
        // A fault in the arithmetic of one schedule stops that job, never the others.
        let looked = catch_unwind(AssertUnwindSafe(|| track.look(common, now, because)));
        if let Ok(acts) = looked {
            self.failures.remove(id);
            self.requeue(id, now);
            return acts;
        }
        let failures = self.failures.entry(id.clone()).or_default();
        *failures += 1;
        tracing::error!(job = %id, failures, "could not compute when the job is due");
        if *failures < SCHEDULE_ERRORS_MAX {
            self.put(id, now + COMPUTE_AGAIN_AFTER);
            return Vec::new();
        }
        let words = format!("its due time could not be computed {failures} times in a row");
        let acts = track.pause(Pause { cause: PauseCause::Schedule, words, until: None });
        // It stays out of the queue: looking again would only fail again.
        acts
    }

    /// Whether the clock was set since the last look.
    fn observe(&mut self, now: Now) -> Sight {
        let Some(last) = self.looked.replace(now) else { return Sight::Usual };
        let shown = now.wall.duration_since(last.wall);
        let passed = now.since_boot.saturating_sub(last.since_boot);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        let step = shown - passed;
        if step.abs() > STEP_WORTH_A_WORD {
            let (from, to) = (last.wall + passed, now.wall);
            tracing::warn!(%from, %to, "the clock was set");
        }
        let late = SignedDuration::try_from(MISFIRE_AFTER).unwrap_or(SignedDuration::MAX);
        if shown <= -SET_BACK_MIN {
            Sight::SetBack
        } else if step > late {
            Sight::SetForward
        } else {
            Sight::Usual
        }
    }

    /// The ledger's answer to [`Act::Rewind`]. `None`: it could not say, and nothing is decided
    /// twice.
    pub fn rewound(&mut self, ahead: Option<Ahead>, now: Timestamp) {
        self.rewinding = false;
        for (id, (decided_until, ahead)) in ahead.into_iter().flatten() {
            if let Some(track) = self.jobs.get_mut(&id) {
                track.rewind(decided_until, ahead, now);
            }
        }
        let ids: Vec<_> = self.jobs.keys().cloned().collect();
        for id in ids {
            self.requeue(&id, now);
        }
    }

    /// The ledger did not take what was decided about a job: its decisions begin again where the
    /// ledger is.
    pub fn out_of_step(&mut self, id: &JobId, (decided_until, ahead): Decided, now: Timestamp) {
        if let Some(track) = self.jobs.get_mut(id) {
            track.rewind(decided_until, ahead, now);
        }
        self.requeue(id, now);
    }

    /// A run is over; `end` is `None` if it never began. `living` says whose it is.
    pub fn ended(
        &mut self,
        id: &JobId,
        living: LiveId,
        end: Option<&RunEnd>,
        now: Timestamp,
    ) -> Vec<Act> {
        self.with(id, now, |track, common| track.ended(common, living, end, now))
    }

    /// An attempt that ended before this process began.
    pub fn ended_before(
        &mut self,
        id: &JobId,
        chain: Chain,
        end: &RunEnd,
        now: Timestamp,
    ) -> Vec<Act> {
        if !self.knows(id) {
            let Chain { due_at, attempt, .. } = chain;
            let settled = vec![Settled { due_at, attempt, then: Then::Nothing }];
            return vec![Record { settled, ..Record::new(id, None) }.into()];
        }
        self.with(id, now, |track, _| track.conclude(chain, end))
    }

    /// A run that a dead process had queued: `Some` if it goes on.
    pub fn requeued(&mut self, id: &JobId, chain: Chain, now: Timestamp) -> Option<LiveId> {
        self.jobs.get_mut(id)?.requeued(&mut self.common, chain, now)
    }

    /// A slot that had waited in a dead process.
    pub fn waits_again(&mut self, id: &JobId, slot: WaitingSlot, now: Timestamp) -> Vec<Act> {
        if !self.knows(id) {
            let due_at = slot.due_at;
            let decision = match slot.waits {
                Waits::ForRun => SlotDecision::Skipped,
                Waits::ForModel | Waits::ForBudget => SlotDecision::Missed,
            };
            let turned = vec![Turned { due_at, decision, reason: Some(Reason::Disabled) }];
            return vec![Record { turned, ..Record::new(id, None) }.into()];
        }
        self.with(id, now, |track, _| track.waits_again(slot, now))
    }

    /// Somebody asks for a run of a job that may run.
    pub fn by_hand(&mut self, id: &JobId, now: Timestamp) -> (ByHand, Vec<Act>) {
        let Some(track) = self.jobs.get_mut(id) else { return (ByHand::Overlaps, Vec::new()) };
        let answer = track.by_hand(&mut self.common);
        self.requeue(id, now);
        answer
    }

    /// Holds a job.
    pub fn pause(&mut self, id: &JobId, pause: Pause, now: Timestamp) -> Vec<Act> {
        self.with(id, now, |track, _| track.pause(pause))
    }

    /// Frees a job.
    pub fn resume(&mut self, id: &JobId, now: Timestamp) -> Vec<Act> {
        self.failures.remove(id);
        self.with(id, now, |track, common| track.resume(common, now))
    }

    /// Runs past slots, each with the number of its next free attempt. Returns how many of them
    /// did not wait already.
    pub fn run_past(
        &mut self,
        id: &JobId,
        slots: Vec<(Timestamp, u32)>,
        now: Timestamp,
    ) -> (usize, Vec<Act>) {
        let Some(track) = self.jobs.get_mut(id) else { return (0, Vec::new()) };
        let answer = track.run_past(&mut self.common, slots, now);
        self.requeue(id, now);
        answer
    }

    fn with(
        &mut self,
        id: &JobId,
        now: Timestamp,
        change: impl FnOnce(&mut Track, &mut Common) -> Vec<Act>,
    ) -> Vec<Act> {
        let Some(track) = self.jobs.get_mut(id) else { return Vec::new() };
        let acts = change(track, &mut self.common);
        self.requeue(id, now);
        self.and_after(acts, std::slice::from_ref(id), now)
    }

    /// `acts` of these jobs, and what follows from them for the jobs that come after.
    fn and_after(&mut self, mut acts: Vec<Act>, of: &[JobId], now: Timestamp) -> Vec<Act> {
        if self.joins.is_empty() {
            return acts;
        }
        let mut ends = self.joins.ends_in(&acts, now);
        ends.extend(of.iter().filter_map(|id| self.jobs.get_mut(id)?.take_ended()));
        acts.extend(self.hear(ends, now));
        acts
    }

    /// Slots that have come to their end, as the ledger has it or as has just happened: what comes
    /// after them is decided, and what comes after that.
    pub fn hear(&mut self, ends: Vec<SlotEnd>, now: Timestamp) -> Vec<Act> {
        let mut acts = Vec::new();
        let mut ends: VecDeque<_> = ends.into();
        while let Some(end) = ends.pop_front() {
            for (id, mut joined) in self.joins.hear(&end, &self.jobs) {
                let is_late = distance(end.at, now) > STARTS_WITHIN;
                if joined.so == So::Starts && is_late {
                    joined.so = So::Not(Reason::TooLate);
                }
                let Some(track) = self.jobs.get_mut(&id) else { continue };
                let joined = track.join(&mut self.common, joined, now);
                self.requeue(&id, now);
                ends.extend(self.joins.ends_in(&joined, now));
                acts.extend(joined);
            }
        }
        acts
    }

    /// The jobs that come after others, with those, and the instants up to which everything is
    /// decided about them.
    pub fn joined(&self) -> impl Iterator<Item = (&JobId, &[JobId], Timestamp)> {
        self.jobs.iter().filter_map(|(id, track)| {
            let after = track.rules.after.as_ref()?;
            Some((id, after.jobs.as_slice(), track.memory.decided_until))
        })
    }

    /// The schedule by which a job is due: its own, or that of the job that it comes after.
    pub fn schedule_of(&self, id: &JobId) -> Option<&Schedule> {
        let rules = &self.jobs.get(id)?.rules;
        match (&rules.schedule, &rules.after) {
            (Some(schedule), _) => Some(schedule),
            (None, Some(after)) => self.schedule_of(after.jobs.first()?),
            (None, None) => None,
        }
    }

    /// Puts the job where it wants to be looked at next.
    fn requeue(&mut self, id: &JobId, now: Timestamp) {
        let Some(track) = self.jobs.get(id) else { return };
        if track.is_over() {
            self.take_out(id);
            self.jobs.remove(id);
            return;
        }
        match track.wake(now) {
            Some(at) => self.put(id, at),
            None => self.take_out(id),
        }
    }

    fn put(&mut self, id: &JobId, at: Timestamp) {
        self.take_out(id);
        self.places.insert(id.clone(), at);
        self.queue.insert((at, id.clone()));
    }

    fn take_out(&mut self, id: &JobId) {
        if let Some(at) = self.places.remove(id) {
            self.queue.remove(&(at, id.clone()));
        }
    }
}

/// What a look at the clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// It goes as time goes.
    Usual,
    /// It was set forward by more than a misfire.
    SetForward,
    /// It shows an earlier time than before.
    SetBack,
}

#[cfg(test)]
#[path = "tests/planner.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/anything.rs"]
mod anything;

#[cfg(test)]
#[path = "tests/budgets.rs"]
mod budgets;

#[cfg(test)]
#[path = "tests/models.rs"]
mod models;

#[cfg(test)]
#[path = "tests/join.rs"]
mod join_tests;
