//! The planner under a clock that jumps from one event to the next: what would be decided.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use super::act::{Act, LiveId, PauseChange, Record, Start, Turned};
use super::due::PlannedSlot;
use super::planner::Planner;
use super::retry::{Chain, RunEnd};
use super::{Reason, SlotDecision};
use crate::clock::Now;
use crate::job::{JobId, Usd};
use crate::run::{ErrorKind, State, Trigger};

/// The name of the lane that every run waits in, if there is one.
pub const GLOBAL: &str = "*";

/// Where the runs of a simulation wait.
#[derive(Debug, Clone, Default)]
pub struct SimulatedLanes {
    /// The widths of lanes by name; the global one is [`GLOBAL`].
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
    /// What it costs.
    pub usd: Usd,
}

impl Behaviour {
    /// It succeeds after so long.
    pub const fn succeeds_after(takes: Duration) -> Self {
        Self { takes, state: State::Succeeded, kind: None, usd: Usd::ZERO }
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
    /// A newer slot took the place of a run.
    Replaced {
        /// The run's slot and attempt.
        chain: Chain,
    },
    /// The job is held.
    Held(String),
}

impl What {
    fn is_decision(&self) -> bool {
        match self {
            Self::Slot(_) | Self::Turned { .. } => true,
            Self::Began { .. } | Self::Replaced { .. } | Self::Held(_) => false,
        }
    }
}

/// What a simulation came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simulation {
    /// In the order of deciding.
    pub results: Vec<Simulated>,
    /// The most runs that held each lane at once; a lane that nobody held is not in it.
    pub peaks: BTreeMap<String, usize>,
    /// The time of the first decision that is left out, if there were more than were wanted.
    pub stopped_at: Option<Timestamp>,
}

/// Lets `planner` decide from `from` (whose moments before are decided) until `until`, with runs
/// that go as `behave` says. Stops after `decisions_max` decisions, which bounds memory.
pub fn simulate(
    planner: &mut Planner,
    from: Timestamp,
    until: Timestamp,
    lanes: &SimulatedLanes,
    behave: impl FnMut(&JobId, &Start) -> Behaviour,
    decisions_max: usize,
) -> Simulation {
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
        decisions_left: decisions_max,
        told: Simulation::default(),
    };
    while world.told.stopped_at.is_none()
        && let Some(next) = world.next().filter(|&next| next <= until)
    {
        world.now = world.now.max(next);
        world.step();
    }
    world.told
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
    runs: HashMap<LiveId, (JobId, Chain, Behaviour)>,
    asked: u64,
    decisions_left: usize,
    told: Simulation,
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
        let Some((job, _, behaviour)) = self.runs.remove(&id) else { return };
        for lane in self.lanes_of(&job) {
            *self.held.entry(lane).or_default() -= 1;
        }
        self.tell_end(&job, id, behaviour);
    }

    fn tell_end(&mut self, job: &JobId, id: LiveId, behaviour: Behaviour) {
        let Behaviour { state, kind, usd, .. } = behaviour;
        let end = RunEnd { state, kind, tool_calls: 0, usd, at: self.now };
        let acts = self.planner.ended(job, id, Some(&end), self.now);
        self.act(acts);
    }

    fn act(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Record(record) => self.record(*record),
                Act::Replace(job) => self.cut(&job),
                // All models are there.
                Act::Release(_) | Act::Rewind(_) | Act::Probe(_) => {}
            }
        }
    }

    fn record(&mut self, record: Record) {
        let job = &record.job;
        for row in record.rows {
            self.tell(job, What::Slot(row));
        }
        for Turned { due_at, decision, reason } in record.turned {
            self.tell(job, What::Turned { due_at, decision, reason });
        }
        if let Some(PauseChange::Held(pause)) = record.pause {
            self.tell(job, What::Held(pause.words));
        }
        if let Some(start) = record.start {
            let rank = u8::from(matches!(start.trigger, Trigger::Catchup | Trigger::Backfill));
            self.waiting.insert((rank, self.asked), (job.clone(), start, self.now));
            self.asked += 1;
        }
    }

    fn tell(&mut self, job: &JobId, what: What) {
        if what.is_decision() {
            let Some(left) = self.decisions_left.checked_sub(1) else {
                self.told.stopped_at.get_or_insert(self.now);
                return;
            };
            self.decisions_left = left;
        }
        self.told.results.push(Simulated { job: job.clone(), at: self.now, what });
    }

    /// A newer slot takes the place of what runs, or waits for its lanes.
    fn cut(&mut self, job: &JobId) {
        // What it had cost until then is anybody's guess.
        let replaced = Behaviour {
            takes: Duration::ZERO,
            state: State::Cancelled,
            kind: Some(ErrorKind::Replaced),
            usd: Usd::ZERO,
        };
        let waits = self.waiting.iter().filter(|(_, it)| it.0 == *job);
        for place in waits.map(|(place, _)| *place).collect::<Vec<_>>() {
            if let Some((_, start, _)) = self.waiting.remove(&place) {
                self.tell(job, What::Replaced { chain: start.chain });
                self.tell_end(job, start.id, replaced);
            }
        }
        let runs = self.runs.iter().filter(|(_, run)| run.0 == *job);
        for id in runs.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.ends.retain(|(_, ending)| *ending != id);
            if let Some((_, chain, behaviour)) = self.runs.get_mut(&id) {
                *behaviour = replaced;
                let chain = *chain;
                self.tell(job, What::Replaced { chain });
            }
            self.end(id);
        }
    }

    fn let_in(&mut self) {
        let places: Vec<_> = self.waiting.keys().copied().collect();
        for place in places {
            // Every run needs the global lane: when it is full, nobody behind has a chance.
            if !self.is_free(GLOBAL) {
                break;
            }
            let job = &self.waiting[&place].0;
            let lanes = self.lanes_of(job);
            if !lanes.iter().all(|lane| self.is_free(lane)) {
                continue;
            }
            for lane in lanes {
                let held = self.held.entry(lane).or_default();
                *held += 1;
                let peak = self.told.peaks.entry(lane.to_owned()).or_default();
                *peak = (*peak).max(*held);
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
        self.tell(&job, What::Began { chain, trigger, waited, ends_at });
        self.ends.insert((ends_at, start.id));
        self.runs.insert(start.id, (job, chain, behaviour));
    }
}

impl<'a, B> World<'a, B> {
    fn lanes_of(&self, job: &JobId) -> Vec<&'a str> {
        let lanes = self.lanes;
        let named = lanes.of_job.get(job).map(String::as_str);
        named.into_iter().chain([GLOBAL]).filter(|lane| lanes.widths.contains_key(*lane)).collect()
    }

    fn is_free(&self, lane: &str) -> bool {
        let held = self.held.get(lane).copied().unwrap_or(0);
        self.lanes.widths.get(lane).is_none_or(|&width| held < width)
    }
}

#[cfg(test)]
#[path = "tests/simulate.rs"]
mod tests;
