//! The planner under a clock that jumps from one event to the next: what would be decided.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use super::act::{Act, LiveId, Start};
use super::due::PlannedSlot;
use super::planner::Planner;
use super::retry::{Chain, RunEnd};
use super::{Reason, SlotDecision};
use crate::clock::Now;
use crate::job::JobId;
use crate::run::{ErrorKind, State, Trigger};

/// Where the runs of a simulation wait.
#[derive(Debug, Clone, Default)]
pub struct SimulatedLanes {
    /// The widths of lanes by name; the global one is `*`.
    pub widths: BTreeMap<String, usize>,
    /// The named lane of each job that has one.
    pub of_job: HashMap<JobId, String>,
}

/// How a simulated attempt goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// How long it takes once it has begun.
    pub takes: Duration,
    /// How it ends.
    pub state: State,
    /// Why, if it does not succeed.
    pub kind: Option<ErrorKind>,
}

impl Behaviour {
    /// It succeeds after so long.
    pub const fn succeeds_after(takes: Duration) -> Self {
        Self { takes, state: State::Succeeded, kind: None }
    }
}

/// What was decided, in the order of deciding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simulated {
    /// The job.
    pub job: JobId,
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: What,
}

/// One decision, or what comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A row of slots.
    Slot(PlannedSlot),
    /// A buffered slot's turn.
    Turned {
        /// Which.
        due_at: Timestamp,
        /// Started or skipped.
        decision: SlotDecision,
        /// Why it is skipped.
        reason: Option<Reason>,
    },
    /// A run began: it has its lanes.
    Began {
        /// Its slot and attempt.
        chain: Chain,
        /// What started it.
        trigger: Trigger,
        /// How long it waited for its lanes.
        waited: Duration,
        /// When it will have ended.
        ends_at: Timestamp,
    },
    /// The job is held.
    Held(String),
}

/// Lets `planner` decide from `from` (whose moments before are decided) until `until`, with runs
/// that go as `behave` says. Stops early after `rows_max` results, which bounds memory.
pub fn simulate(
    planner: &mut Planner,
    from: Timestamp,
    until: Timestamp,
    lanes: &SimulatedLanes,
    behave: impl FnMut(&JobId, &Start) -> Behaviour,
    rows_max: usize,
) -> Vec<Simulated> {
    let mut world = World {
        planner,
        lanes,
        behave,
        begun: from,
        now: from,
        held: HashMap::new(),
        waiting: BTreeMap::new(),
        ends: BTreeSet::new(),
        runs: HashMap::new(),
        asked: 0,
        results: Vec::new(),
    };
    while world.results.len() < rows_max
        && let Some(next) = world.next().filter(|&next| next <= until)
    {
        world.now = world.now.max(next);
        world.step();
    }
    world.results
}

struct World<'a, B> {
    planner: &'a mut Planner,
    lanes: &'a SimulatedLanes,
    behave: B,
    begun: Timestamp,
    now: Timestamp,
    held: HashMap<&'a str, usize>,
    /// Who waits for lanes, the first first.
    waiting: BTreeMap<(u8, u64), (JobId, Start, Timestamp)>,
    ends: BTreeSet<(Timestamp, LiveId)>,
    runs: HashMap<LiveId, (JobId, Behaviour)>,
    asked: u64,
    results: Vec<Simulated>,
}

impl<B: FnMut(&JobId, &Start) -> Behaviour> World<'_, B> {
    fn next(&self) -> Option<Timestamp> {
        let ends = self.ends.first().map(|(at, _)| *at);
        [ends, self.planner.wake()].into_iter().flatten().min()
    }

    fn step(&mut self) {
        while let Some(&(at, id)) = self.ends.first().filter(|(at, _)| *at <= self.now) {
            self.ends.remove(&(at, id));
            self.end(id);
        }
        let passed = self.now.duration_since(self.begun).unsigned_abs();
        let acts = self.planner.look(Now { wall: self.now, since_boot: passed });
        self.act(acts);
        self.let_in();
    }

    /// A run that holds its lanes is over.
    fn end(&mut self, id: LiveId) {
        let Some((job, Behaviour { state, kind, .. })) = self.runs.remove(&id) else { return };
        for lane in self.lanes_of(&job) {
            *self.held.entry(lane).or_default() -= 1;
        }
        self.tell_end(&job, id, state, kind);
    }

    fn tell_end(&mut self, job: &JobId, id: LiveId, state: State, kind: Option<ErrorKind>) {
        let end = RunEnd { state, kind, tool_calls: 0, at: self.now };
        let acts = self.planner.ended(job, id, Some(&end), self.now);
        self.act(acts);
    }

    fn act(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Record(record) => {
                    let job = &record.job;
                    let (at, mut results) = (self.now, Vec::new());
                    results.extend(record.rows.into_iter().map(What::Slot));
                    results.extend(record.turned.into_iter().map(|it| What::Turned {
                        due_at: it.due_at,
                        decision: it.decision,
                        reason: it.reason,
                    }));
                    if let Some(super::PauseChange::Held(pause)) = record.pause {
                        results.push(What::Held(pause.words));
                    }
                    let told = |what| Simulated { job: job.clone(), at, what };
                    self.results.extend(results.into_iter().map(told));
                    if let Some(start) = record.start {
                        let rank =
                            u8::from(matches!(start.trigger, Trigger::Catchup | Trigger::Backfill));
                        self.waiting.insert((rank, self.asked), (job.clone(), start, self.now));
                        self.asked += 1;
                    }
                }
                Act::Replace(job) => self.cut(&job),
                Act::Release(_) | Act::Rewind => {}
            }
        }
    }

    /// A newer slot takes the place of what runs, or waits for its lanes.
    fn cut(&mut self, job: &JobId) {
        let replaced = (State::Cancelled, Some(ErrorKind::Replaced));
        let waits = self.waiting.iter().filter(|(_, it)| it.0 == *job);
        for place in waits.map(|(place, _)| *place).collect::<Vec<_>>() {
            if let Some((_, start, _)) = self.waiting.remove(&place) {
                self.tell_end(job, start.id, replaced.0, replaced.1);
            }
        }
        let runs = self.runs.iter().filter(|(_, run)| run.0 == *job);
        for id in runs.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.ends.retain(|(_, ending)| *ending != id);
            if let Some((_, behaviour)) = self.runs.get_mut(&id) {
                (behaviour.state, behaviour.kind) = replaced;
            }
            self.end(id);
        }
    }

    fn let_in(&mut self) {
        let places: Vec<_> = self.waiting.keys().copied().collect();
        for place in places {
            let job = &self.waiting[&place].0;
            let lanes = self.lanes_of(job);
            let is_free =
                |lane: &&str| self.held.get(lane).copied().unwrap_or(0) < self.lanes.widths[*lane];
            if !lanes.iter().all(is_free) {
                continue;
            }
            for lane in lanes {
                *self.held.entry(lane).or_default() += 1;
            }
            let (job, start, asked_at) = self.waiting.remove(&place).expect("it was just seen");
            self.begin(job, &start, asked_at);
        }
    }

    fn begin(&mut self, job: JobId, start: &Start, asked_at: Timestamp) {
        let behaviour = (self.behave)(&job, start);
        let ends_at = self.now + behaviour.takes;
        let waited = self.now.duration_since(asked_at).unsigned_abs();
        let (chain, trigger) = (start.chain, start.trigger);
        let what = What::Began { chain, trigger, waited, ends_at };
        self.results.push(Simulated { job: job.clone(), at: self.now, what });
        self.ends.insert((ends_at, start.id));
        self.runs.insert(start.id, (job, behaviour));
    }
}

impl<'a, B> World<'a, B> {
    fn lanes_of(&self, job: &JobId) -> Vec<&'a str> {
        let lanes = self.lanes;
        let named = lanes.of_job.get(job).map(String::as_str);
        named.into_iter().chain(["*"]).filter(|lane| lanes.widths.contains_key(*lane)).collect()
    }
}
