//! The deciding half of the daemon: one event in, commands out, nothing awaited.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::event::{Command, Event, Launch};
use super::protocol::{Reply, Status, StatusNext, StatusRun, Target};
use crate::clock::{Clock, to_millis};
use crate::executor::{Ticket, Watchdog};
use crate::job::{JobId, JobSpec, digest};
use crate::plan::{self, JobView, PlannedSlot, Reason};
use crate::run::{CancelReason, RunId, SessionId, Trigger};
use crate::schedule::Schedule;
use crate::store::{JobMemory, NewRun, SlotRow};
use crate::turn::Variables;

/// A ledger that is ahead of the clock by more than this is worth a word: an adjustment of the
/// clock is smaller.
const CLOCK_BEHIND_MAX: Duration = Duration::from_mins(1);

/// Whether due slots start runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// `serve`: they do.
    On,
    /// `run` without a `serve`: only what is asked for.
    Off,
}

/// A job as the dispatcher knows it.
#[derive(Debug)]
pub struct JobEntry {
    spec: Arc<JobSpec>,
    schedule: Option<Schedule>,
    decided_until: Timestamp,
    unseen_because: Reason,
    next_due: Option<Timestamp>,
    active_runs: usize,
}

#[derive(Debug)]
struct ActiveRun {
    job: JobId,
    trigger: Trigger,
    since: Timestamp,
    watchdog: Arc<Watchdog>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Without a schedule there is nothing to stay for once the runs are over.
    Draining,
    Stopping,
}

/// Decides everything that a daemon does.
#[derive(Debug)]
pub struct Dispatcher {
    clock: Arc<dyn Clock>,
    jobs: BTreeMap<JobId, JobEntry>,
    invalid: BTreeMap<String, String>,
    queue: BTreeSet<(Timestamp, JobId)>,
    active: HashMap<RunId, ActiveRun>,
    scheduling: Scheduling,
    phase: Phase,
}

impl JobEntry {
    /// A job with what the ledger remembers of it.
    pub fn new(spec: Arc<JobSpec>, memory: &JobMemory) -> Self {
        let anchor = memory.every_anchor.unwrap_or(memory.first_seen_at);
        let schedule = spec.schedule.as_ref().map(|it| it.schedule.anchored(anchor));
        Self {
            schedule,
            decided_until: memory.decided_until,
            unseen_because: if memory.was_invalid { Reason::Invalid } else { Reason::Down },
            next_due: None,
            active_runs: 0,
            spec,
        }
    }
}

impl Dispatcher {
    /// A dispatcher over `jobs`; `invalid` are the files that define none, with the reason.
    pub fn new(
        clock: Arc<dyn Clock>,
        jobs: BTreeMap<JobId, JobEntry>,
        invalid: BTreeMap<String, String>,
        scheduling: Scheduling,
    ) -> Self {
        let mut dispatcher = Self {
            clock,
            jobs,
            invalid,
            queue: BTreeSet::new(),
            active: HashMap::new(),
            scheduling,
            phase: Phase::Open,
        };
        if scheduling == Scheduling::On {
            dispatcher.fill_queue();
        }
        dispatcher
    }

    /// Whether due slots start runs.
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling
    }

    /// When each job is due next, soonest first.
    pub fn upcoming(&self) -> impl Iterator<Item = (Timestamp, &JobSpec)> {
        self.queue.iter().filter_map(|(due, job)| Some((*due, &*self.jobs.get(job)?.spec)))
    }

    /// How many runs wait or run.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// How many jobs can run.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// How many files define no job.
    pub fn invalid(&self) -> usize {
        self.invalid.len()
    }

    /// The instant at which it wants to be woken; none when nothing is started by the clock.
    pub fn next_due(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Open => self.queue.first().map(|(due, _)| *due),
            Phase::Draining | Phase::Stopping => None,
        }
    }

    /// Decides what `event` means at `now`.
    pub fn step(&mut self, event: Event, now: Timestamp) -> Vec<Command> {
        let mut commands = match event {
            Event::Woke => Vec::new(),
            Event::RunEnded(run_id) => {
                self.forget(&run_id);
                Vec::new()
            }
            Event::RunWanted { job, slot, force, answer } => {
                self.run_wanted(&job, slot, force, answer, now)
            }
            Event::CancelWanted { target, answer } => self.cancel_wanted(&target, answer),
            Event::StatusWanted(answer) => {
                vec![Command::Answer(answer, Box::new(Reply::Status(Box::new(self.status()))))]
            }
            Event::Stop => self.stop(),
            Event::GraceOver => self.cancel_all(CancelReason::Shutdown),
        };
        // Whatever woke the loop, nothing that is due waits for the next wake-up.
        commands.extend(self.take_due(now));
        if self.phase != Phase::Open && self.active.is_empty() {
            commands.push(Command::Exit);
        }
        commands
    }

    /// Every job's first due instant after what is decided; the past included, so that what was
    /// missed gets its row at the first step.
    fn fill_queue(&mut self) {
        let now = self.clock.wall();
        for (id, entry) in &mut self.jobs {
            if entry.decided_until > now + CLOCK_BEHIND_MAX {
                tracing::warn!(
                    job = %id, decided_until = %entry.decided_until, %now,
                    "the clock is behind what the ledger has decided: nothing of this job starts \
                     before that, so that no slot starts twice"
                );
            }
            let next = entry.schedule.as_ref().and_then(|it| it.next_after(entry.decided_until));
            entry.next_due = next.map(|due| due.at);
            self.queue.extend(entry.next_due.map(|due| (due, id.clone())));
        }
    }

    /// Takes all due entries first, then decides them.
    fn take_due(&mut self, now: Timestamp) -> Vec<Command> {
        if self.phase != Phase::Open {
            return Vec::new();
        }
        let mut due = Vec::new();
        while self.queue.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(self.queue.pop_first().map(|(_, job)| job));
        }
        due.into_iter().flat_map(|job| self.decide(&job, now)).collect()
    }

    fn decide(&mut self, id: &JobId, now: Timestamp) -> Vec<Command> {
        let Some(entry) = self.jobs.get_mut(id) else { return Vec::new() };
        let (Some(schedule), Some(spec)) = (&entry.schedule, &entry.spec.schedule) else {
            return Vec::new();
        };
        let view = JobView {
            schedule,
            catchup: spec.catchup,
            catchup_window: spec.catchup_window,
            overlap: spec.overlap,
            enabled: entry.spec.enabled,
            decided_until: entry.decided_until,
            active_runs: entry.active_runs,
            unseen_because: entry.unseen_because,
        };
        let plan = plan::decide(view, now);
        entry.decided_until = plan.decided_until;
        // What was invalid or down before is decided now; from here on only a late loop can miss.
        entry.unseen_because = Reason::Down;
        entry.next_due = plan.next_due;
        self.queue.extend(plan.next_due.map(|due| (due, id.clone())));
        self.commands_of(id, plan.slots, plan.next_due, now)
    }

    /// One command per run that starts, so that a slot and its run are one transaction; decisions
    /// that start nothing go with the next one.
    fn commands_of(
        &mut self,
        id: &JobId,
        planned: Vec<PlannedSlot>,
        next_due: Option<Timestamp>,
        now: Timestamp,
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        let mut rows = Vec::new();
        for slot in planned {
            let launch = slot.trigger.map(|trigger| {
                let period = self.period_of_slot(id, slot.due_at);
                self.launch(id, trigger, Some(slot.due_at), period, now)
            });
            rows.push(SlotRow {
                due_at: slot.due_at,
                due_until: slot.due_until,
                slots: slot.slots,
                decision: slot.decision,
                reason: slot.reason,
                run_id: launch.as_ref().map(|launch| launch.run.run_id.clone()),
            });
            if launch.is_some() {
                let (job, slots) = (id.clone(), std::mem::take(&mut rows));
                commands.push(Command::Record { job, slots, launch, next_due });
            }
        }
        if !rows.is_empty() {
            commands.push(Command::Record { job: id.clone(), slots: rows, launch: None, next_due });
        }
        commands
    }

    fn launch(
        &mut self,
        id: &JobId,
        trigger: Trigger,
        due_at: Option<Timestamp>,
        (slot_start, slot_end): (Timestamp, Timestamp),
        now: Timestamp,
    ) -> Box<Launch> {
        let entry = self.jobs.get_mut(id).expect("only known jobs are launched");
        entry.active_runs += 1;
        let spec = Arc::clone(&entry.spec);
        let run_id = RunId::new(now);
        let session_id = SessionId::new(now);
        let watchdog = Arc::new(Watchdog::new(Arc::clone(&self.clock), spec.limits.lane_timeout));
        self.active.insert(
            run_id.clone(),
            ActiveRun { job: id.clone(), trigger, since: now, watchdog: Arc::clone(&watchdog) },
        );
        let variables = Variables {
            due_at: due_at.unwrap_or(slot_end),
            slot_start,
            slot_end,
            vars: spec.agent.vars.clone(),
        };
        Box::new(Launch {
            run: NewRun {
                run_id: run_id.clone(),
                trigger,
                due_at,
                attempt: 1,
                session_id: session_id.clone(),
                definition_hash: spec.definition_hash.clone(),
            },
            ticket: Ticket { run_id, session_id, spec, trigger, due_at, variables },
            watchdog,
            answer: None,
        })
    }

    /// The period that a slot reports on: from the due instant before it.
    fn period_of_slot(&self, id: &JobId, due_at: Timestamp) -> (Timestamp, Timestamp) {
        let schedule = self.jobs.get(id).and_then(|entry| entry.schedule.as_ref());
        let just_before = due_at - Duration::from_millis(1);
        let start = schedule.and_then(|it| it.prev_at_or_before(just_before));
        (start.unwrap_or(due_at), due_at)
    }

    /// The period of a run by hand: from the last due instant to now.
    fn period_until(&self, id: &JobId, now: Timestamp) -> (Timestamp, Timestamp) {
        let schedule = self.jobs.get(id).and_then(|entry| entry.schedule.as_ref());
        (schedule.and_then(|it| it.prev_at_or_before(now)).unwrap_or(now), now)
    }

    fn run_wanted(
        &mut self,
        job: &str,
        slot: Option<Timestamp>,
        force: bool,
        answer: oneshot::Sender<Reply>,
        now: Timestamp,
    ) -> Vec<Command> {
        if self.scheduling == Scheduling::Off && self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
        let id = match self.may_run(job, force) {
            Ok(id) => id,
            Err(refusal) => return vec![Command::Answer(answer, Box::new(refusal))],
        };
        let now = to_millis(now);
        let period = match slot {
            Some(slot) => self.period_of_slot(&id, slot),
            None => self.period_until(&id, now),
        };
        let mut launch = self.launch(&id, Trigger::Manual, None, period, now);
        launch.answer = Some(answer);
        let next_due = self.jobs.get(&id).and_then(|entry| entry.next_due);
        vec![Command::Record { job: id, slots: Vec::new(), launch: Some(launch), next_due }]
    }

    /// The same policy as a scheduled run's: overlap holds, `force` lifts only `enabled`.
    fn may_run(&self, job: &str, force: bool) -> Result<JobId, Reply> {
        if let Some(why) = self.invalid.get(job) {
            return Err(Reply::refused("invalid", format!("`{job}` cannot run: {why}")));
        }
        let known = job.parse::<JobId>().ok().filter(|id| self.jobs.contains_key(id));
        let Some(id) = known else {
            return Err(Reply::refused("unknown", self.unknown_job(job)));
        };
        let entry = &self.jobs[&id];
        if self.phase == Phase::Stopping {
            return Err(Reply::refused("stopping", "the daemon is stopping".into()));
        }
        if !entry.spec.enabled && !force {
            let words = format!("`{job}` is disabled; --force runs it all the same");
            return Err(Reply::refused("disabled", words));
        }
        let overlap = entry.spec.schedule.as_ref().map(|schedule| schedule.overlap);
        if entry.active_runs > 0 && overlap != Some(crate::job::Overlap::AllowAll) {
            return Err(Reply::refused("overlap", format!("`{job}` is already running")));
        }
        Ok(id)
    }

    fn unknown_job(&self, job: &str) -> String {
        let names = self.jobs.keys().map(JobId::as_str);
        match crate::job::nearest(job, names) {
            Some(near) => format!("there is no job `{job}`; did you mean `{near}`?"),
            None => format!("there is no job `{job}`"),
        }
    }

    fn cancel_wanted(&self, target: &Target, answer: oneshot::Sender<Reply>) -> Vec<Command> {
        let hit = |(run_id, run): &(&RunId, &ActiveRun)| match target {
            Target::Job(job) => run.job.as_str() == job,
            Target::Run(wanted) => run_id.as_str() == wanted,
        };
        let runs: Vec<_> = self.active.iter().filter(hit).collect();
        let run_ids = runs.iter().map(|(run_id, _)| run_id.to_string()).collect();
        let mut commands: Vec<_> = runs
            .iter()
            .map(|(_, run)| Command::Cancel(Arc::clone(&run.watchdog), CancelReason::Person))
            .collect();
        commands.push(Command::Answer(answer, Box::new(Reply::Cancelled { run_ids })));
        commands
    }

    /// The first signal. What only waits for a lane ends now: it would start under the axe.
    fn stop(&mut self) -> Vec<Command> {
        self.phase = Phase::Stopping;
        self.active
            .values()
            .filter(|run| run.watchdog.is_waiting())
            .map(|run| Command::Cancel(Arc::clone(&run.watchdog), CancelReason::Shutdown))
            .collect()
    }

    fn cancel_all(&self, reason: CancelReason) -> Vec<Command> {
        let cancel = |run: &ActiveRun| Command::Cancel(Arc::clone(&run.watchdog), reason);
        self.active.values().map(cancel).collect()
    }

    fn forget(&mut self, run_id: &RunId) {
        if let Some(run) = self.active.remove(run_id)
            && let Some(entry) = self.jobs.get_mut(&run.job)
        {
            entry.active_runs -= 1;
        }
    }

    fn status(&self) -> Status {
        let mut runs: Vec<_> = self
            .active
            .iter()
            .map(|(run_id, run)| StatusRun {
                run_id: run_id.to_string(),
                job: run.job.to_string(),
                trigger: run.trigger,
                since: run.since,
                waiting: run.watchdog.is_waiting(),
            })
            .collect();
        runs.sort_by(|a, b| a.run_id.cmp(&b.run_id));
        Status {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            jobs: self.jobs.len(),
            definitions: digest(self.jobs.values().map(|entry| &*entry.spec)),
            invalid: self.invalid.clone(),
            next: self
                .queue
                .first()
                .map(|(due, job)| StatusNext { job: job.to_string(), due_at: *due }),
            runs,
            lanes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
