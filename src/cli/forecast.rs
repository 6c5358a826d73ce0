//! What `serve` would decide between two instants, by the real planner: for `simulate` and `plan`.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::context::{Context, now, report};
use super::output::Failed;
use super::times::{before, note_at, serialize_instant, standing_at};
use crate::clock::{rfc3339, serialize_rfc3339};
use crate::config::{self, Config, JobSet};
use crate::executor::caps_of;
use crate::job::{JobId, JobSpec, Usd};
use crate::plan::{
    Behaviour, GLOBAL, Memory, Planner, Reason, Rules, SimulatedLanes, Simulation, SlotDecision,
    Spent, What, simulate,
};
use crate::run::Trigger;
use crate::store::{JobMemory, Reader};

/// More decisions than anybody reads; what is beyond is left out, and that is said.
const DECISIONS_MAX: usize = 100_000;

/// What a forecast begins with.
pub(super) struct Premises<'a> {
    pub(super) config: &'a Config,
    pub(super) jobs: Vec<&'a JobSpec>,
    /// What the ledger remembers of jobs.
    pub(super) known: HashMap<String, JobMemory>,
    /// How long runs of jobs take.
    pub(super) usual: HashMap<String, Duration>,
    /// What runs of jobs cost.
    pub(super) costs: HashMap<String, Usd>,
    /// What was spent before the first instant that counts.
    pub(super) spent: Spent,
    /// How long runs of the other jobs take.
    pub(super) takes: Duration,
    /// The first instant that counts.
    pub(super) from: Timestamp,
    /// The first one that does not count any more.
    pub(super) to: Timestamp,
}

/// What comes of it.
#[derive(Debug, Serialize)]
pub(super) struct Forecast {
    #[serde(serialize_with = "serialize_rfc3339")]
    pub(super) from: Timestamp,
    #[serde(serialize_with = "serialize_rfc3339")]
    pub(super) to: Timestamp,
    pub(super) decisions: Vec<Decision>,
    pub(super) lanes: Vec<LaneLoad>,
    pub(super) minutes: Vec<MinuteLoad>,
    pub(super) truncated: bool,
    /// The time of the first decision that is left out.
    #[serde(serialize_with = "serialize_instant")]
    pub(super) stopped_at: Option<Timestamp>,
}

/// One decision and what comes of it.
#[derive(Debug, Clone, Serialize)]
#[expect(clippy::struct_field_names, reason = "the fields are the keys of the JSON")]
pub(super) struct Decision {
    #[serde(serialize_with = "serialize_rfc3339")]
    pub(super) at: Timestamp,
    #[serde(serialize_with = "serialize_rfc3339")]
    pub(super) due_at: Timestamp,
    #[serde(serialize_with = "serialize_rfc3339")]
    pub(super) due_until: Timestamp,
    pub(super) slots: u64,
    pub(super) job: JobId,
    pub(super) decision: SlotDecision,
    pub(super) reason: Option<Reason>,
    pub(super) trigger: Option<Trigger>,
    /// How long its run waits for its lanes; none: no run, or it still waits at the end.
    pub(super) waited_ms: Option<u64>,
    #[serde(serialize_with = "serialize_instant")]
    pub(super) ends_at: Option<Timestamp>,
    pub(super) lane: Option<String>,
    /// What a clock change does to it.
    pub(super) note: Option<String>,
}

impl Decision {
    pub(super) fn starts_a_run(&self) -> bool {
        self.decision == SlotDecision::Started
    }
}

/// How full a lane is.
#[derive(Debug, Serialize)]
pub(super) struct LaneLoad {
    pub(super) lane: String,
    pub(super) width: usize,
    /// The most runs at once.
    pub(super) peak: usize,
    #[serde(serialize_with = "serialize_instant")]
    pub(super) busiest_minute: Option<Timestamp>,
    pub(super) starts_in_it: u64,
}

/// The runs that the decisions of a minute start, whenever their lanes let them in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct MinuteLoad {
    #[serde(serialize_with = "serialize_rfc3339")]
    pub(super) minute: Timestamp,
    pub(super) starts: u64,
    pub(super) by_lane: BTreeMap<String, u64>,
}

/// The configuration, with the jobs of `folder` in place of its own.
pub(super) fn jobs_in(
    context: &Context,
    folder: Option<&Path>,
) -> Result<(Config, JobSet), Failed> {
    let mut config = context.config()?;
    if let Some(folder) = folder {
        config.jobs_dir = std::path::absolute(folder)?;
    }
    let jobs = config::load_jobs(&config);
    match &jobs.folder {
        Some(problem) => Err(Failed::usage(report(std::slice::from_ref(problem)))),
        None => Ok((config, jobs)),
    }
}

impl<'a> Premises<'a> {
    /// With what the history says of these jobs, if there is one.
    pub(super) fn new(
        config: &'a Config,
        jobs: Vec<&'a JobSpec>,
        history: Option<&Reader>,
        (from, to): (Timestamp, Timestamp),
        takes: Duration,
    ) -> Result<Self, Failed> {
        let (mut known, mut usual, mut costs) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut spent = Spent::default();
        if let Some(reader) = history {
            known = reader.known_jobs()?;
            usual = reader.usual_durations(jobs.iter().map(|spec| spec.id.as_str()))?;
            for job in jobs.iter().map(|spec| spec.id.as_str()) {
                let cost = reader.usual_cost(job)?.map(Usd::from_dollars);
                costs.extend(cost.map(|cost| (job.to_owned(), cost)));
            }
            // Of a time that has passed, it is not known what was spent before it.
            if from >= now() {
                spent = reader.spent(now())?;
            }
        }
        Ok(Self { config, jobs, known, usual, costs, spent, takes, from, to })
    }

    /// The same premises always come to the same.
    pub(super) fn forecast(&self) -> Forecast {
        let mut planner = Planner::default();
        planner.knows_spent(self.spent.clone());
        for spec in &self.jobs {
            let (rules, memory) = self.begin(spec);
            planner.adopt(&spec.id, rules, memory, self.from);
            planner.use_caps(&spec.id, caps_of(spec, self.config), self.from);
        }
        let lanes = self.lanes();
        let behave = |job: &JobId, _: &_| {
            let takes = self.usual.get(job.as_str()).copied().unwrap_or(self.takes);
            let usd = self.costs.get(job.as_str()).copied().unwrap_or_default();
            Behaviour { usd, ..Behaviour::succeeds_after(takes) }
        };
        let (from, until) = (self.from, before(self.to));
        let told = simulate(&mut planner, from, until, &lanes, behave, DECISIONS_MAX);
        let decisions = decisions(&told, &lanes, &planner);
        let minutes = minutes(&decisions, &lanes);
        Forecast {
            from: self.from,
            to: self.to,
            lanes: lane_loads(&told, &lanes, &minutes),
            decisions,
            minutes,
            truncated: told.stopped_at.is_some(),
            stopped_at: told.stopped_at,
        }
    }

    /// A grid that the ledger keeps goes on, unless the files name another one. A new one begins
    /// at the first instant, and is due one interval later.
    fn begin(&self, spec: &JobSpec) -> (Rules, Memory) {
        let known = self.known.get(spec.id.as_str()).filter(|it| it.was_there);
        let same = known.filter(|it| it.timing.as_ref().is_none_or(|it| *it == spec.timing()));
        let of_itself = spec.schedule.as_ref().map(|it| &it.schedule);
        let is_named = of_itself.is_some_and(|it| standing_at(it, self.from).is_some());
        let since = match same {
            Some(it) => self.first_open(spec, it),
            None if is_named => before(self.from),
            None => self.from,
        };
        let anchor = same.map_or(self.from, |it| it.anchor);
        // A pause is the job's, whatever its file says now.
        let pause = known.and_then(|it| it.memory.pause.clone());
        let pause = pause.filter(|it| it.until.is_none_or(|until| until > self.from));
        (Rules::of(spec, anchor), Memory { pause, ..Memory::since(since) })
    }

    /// Where the decisions of a job go on. All is decided anew from the first instant on, but a
    /// one-shot that is done is never due again.
    fn first_open(&self, spec: &JobSpec, known: &JobMemory) -> Timestamp {
        let once = spec.schedule.as_ref().filter(|it| it.schedule.is_one_shot());
        let at = once.and_then(|it| it.schedule.next_after(Timestamp::MIN)).map(|due| due.at);
        let done = at.filter(|&at| at <= known.memory.decided_until);
        before(self.from).max(done.unwrap_or(Timestamp::MIN))
    }

    /// Jobs that start a run here whose length nobody knows yet.
    pub(super) fn of_unknown_length(&self, forecast: &Forecast) -> usize {
        let started = forecast.decisions.iter().filter(|it| it.starts_a_run());
        let unknown = started.filter(|it| !self.usual.contains_key(it.job.as_str()));
        unknown.map(|it| &it.job).collect::<std::collections::BTreeSet<_>>().len()
    }

    fn lanes(&self) -> SimulatedLanes {
        let global = self.config.scheduler.max_concurrent_runs;
        let named = self.config.lanes.iter().map(|(lane, width)| (lane.clone(), width.get()));
        let global = global.map(|width: NonZeroUsize| (GLOBAL.to_owned(), width.get()));
        let named_of = |spec: &&JobSpec| Some((spec.id.clone(), spec.lane.clone()?));
        SimulatedLanes {
            widths: named.chain(global).collect(),
            of_job: self.jobs.iter().filter_map(named_of).collect(),
        }
    }
}

fn decisions(told: &Simulation, lanes: &SimulatedLanes, planner: &Planner) -> Vec<Decision> {
    let mut decisions: Vec<Decision> = Vec::new();
    // Where the latest decision about each slot is: what comes of it belongs there.
    let mut latest: HashMap<(&JobId, Timestamp), usize> = HashMap::new();
    for result in &told.results {
        let job = &result.job;
        let new = |due_at, decision, reason| {
            let schedule = planner.rules_of(job).and_then(|rules| rules.schedule.as_ref());
            Decision {
                at: result.at,
                due_at,
                due_until: due_at,
                slots: 1,
                job: job.clone(),
                decision,
                reason,
                trigger: None,
                waited_ms: None,
                ends_at: None,
                lane: lanes.of_job.get(job).cloned(),
                note: schedule.and_then(|schedule| note_at(schedule, due_at)),
            }
        };
        match &result.what {
            What::Slot(row) => {
                latest.insert((job, row.due_at), decisions.len());
                decisions.push(Decision {
                    due_until: row.due_until,
                    slots: row.slots,
                    trigger: row.start.map(|start| start.trigger),
                    ..new(row.due_at, row.decision, row.reason)
                });
            }
            What::Turned { due_at, decision, reason } => {
                let buffered = latest.insert((job, *due_at), decisions.len());
                let trigger = buffered.and_then(|index| decisions[index].trigger);
                decisions.push(Decision { trigger, ..new(*due_at, *decision, *reason) });
            }
            What::Began { chain, waited, ends_at, .. } => {
                if let Some(&index) = latest.get(&(job, chain.due_at)) {
                    decisions[index].waited_ms = u64::try_from(waited.as_millis()).ok();
                    decisions[index].ends_at = Some(*ends_at);
                }
            }
            What::Replaced { chain } => {
                if let Some(&index) = latest.get(&(job, chain.due_at)) {
                    decisions[index].ends_at = Some(result.at);
                }
            }
            What::Held(words) => {
                super::output::note(&format!("`{job}` is held at {}: {words}", rfc3339(result.at)));
            }
        }
    }
    decisions
}

fn minutes(decisions: &[Decision], lanes: &SimulatedLanes) -> Vec<MinuteLoad> {
    let mut minutes: BTreeMap<Timestamp, MinuteLoad> = BTreeMap::new();
    let starts = decisions.iter().filter(|it| it.starts_a_run());
    for decision in starts {
        let minute = minute_of(decision.at);
        let new = || MinuteLoad { minute, starts: 0, by_lane: BTreeMap::new() };
        let load = minutes.entry(minute).or_insert_with(new);
        load.starts += 1;
        let named = decision.lane.as_deref();
        let of_it = named.into_iter().chain([GLOBAL]).filter(|it| lanes.widths.contains_key(*it));
        for lane in of_it {
            *load.by_lane.entry(lane.to_owned()).or_default() += 1;
        }
    }
    minutes.into_values().collect()
}

/// The minute that an instant lies in.
pub(super) fn minute_of(at: Timestamp) -> Timestamp {
    let seconds = at.as_second();
    Timestamp::from_second(seconds - seconds.rem_euclid(60)).unwrap_or(at)
}

fn lane_loads(told: &Simulation, lanes: &SimulatedLanes, minutes: &[MinuteLoad]) -> Vec<LaneLoad> {
    let load = |(lane, &width): (&String, &usize)| {
        let starts = |it: &MinuteLoad| it.by_lane.get(lane).copied().unwrap_or(0);
        // The first of those that are alike.
        let busiest = minutes.iter().rev().max_by_key(|it| starts(it)).filter(|it| starts(it) > 0);
        LaneLoad {
            lane: lane.clone(),
            width,
            peak: told.peaks.get(lane).copied().unwrap_or(0),
            busiest_minute: busiest.map(|it| it.minute),
            starts_in_it: busiest.map_or(0, starts),
        }
    };
    lanes.widths.iter().map(load).collect()
}
