//! The deciding half of the daemon: one event in, commands out, nothing awaited.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::control::{Reply, Status, StatusNext, StatusRun, Target};
use crate::clock::{Clock, to_millis};
use crate::executor::{Ticket, Watchdog};
use crate::job::{JobId, JobSpec};
use crate::plan::{self, JobView, PlannedSlot, Reason};
use crate::run::{CancelReason, RunId, SessionId, Trigger};
use crate::schedule::Schedule;
use crate::store::{JobMemory, NewRun, SlotRow};
use crate::turn::Variables;

/// The wall clock is looked at this often, whatever is due: clock steps and suspends are noticed
/// at once (design §4).
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A ledger that is ahead of the clock by more than this is worth a word: an adjustment of the
/// clock is smaller.
const CLOCK_BEHIND_MAX: Duration = Duration::from_secs(60);

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// Time has passed.
    Woke,
    /// A run is over, or could not be recorded.
    RunEnded(RunId),
    /// Somebody asks for a run.
    RunWanted {
        /// Of which job.
        job: String,
        /// Whose slot's variables it gets.
        slot: Option<Timestamp>,
        /// Lifts `enabled = false`.
        force: bool,
        /// Where the answer goes.
        answer: oneshot::Sender<Reply>,
    },
    /// Somebody asks for the end of runs.
    CancelWanted {
        /// Which.
        target: Target,
        /// Where the answer goes.
        answer: oneshot::Sender<Reply>,
    },
    /// Somebody asks how things are.
    StatusWanted(oneshot::Sender<Reply>),
    /// The first signal: start nothing more, let what runs come to its end.
    Stop,
    /// The grace is over: end what still runs.
    GraceOver,
}

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    /// Record decisions about slots of a job and, when that is on the disk, start the run.
    Record {
        /// The job.
        job: JobId,
        /// The decisions.
        slots: Vec<SlotRow>,
        /// The run, if one starts.
        launch: Option<Box<Launch>>,
        /// When the job is due next.
        next_due: Option<Timestamp>,
    },
    /// Answer somebody.
    Answer(oneshot::Sender<Reply>, Box<Reply>),
    /// Ask a run to end.
    Cancel(Arc<Watchdog>, CancelReason),
    /// Nothing is left to do.
    Exit,
}

/// A run to be started.
#[derive(Debug)]
pub struct Launch {
    /// Its row.
    pub run: NewRun,
    /// What it needs.
    pub ticket: Ticket,
    /// Its limits.
    pub watchdog: Arc<Watchdog>,
    /// Who wants to hear that it is accepted.
    pub answer: Option<oneshot::Sender<Reply>>,
}

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

    /// How many jobs can run.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// How many files define no job.
    pub fn invalid(&self) -> usize {
        self.invalid.len()
    }

    /// How long to wait for the next event at most.
    pub fn wait_at_most(&self, now: Timestamp) -> Duration {
        self.queue.first().map_or(LOOK_EVERY, |(due, _)| {
            Duration::try_from(due.duration_since(now)).unwrap_or(Duration::ZERO).min(LOOK_EVERY)
        })
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
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::config::{Sources, load, load_jobs};
    use crate::job::Environment;

    const EVERY_MINUTE: &str = "[schedule]\ncron = \"* * * * *\"\n";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// A dispatcher over jobs with these ids and schedule tables, first seen at 08:00.
    fn dispatcher(jobs: &[(&str, &str)], scheduling: Scheduling) -> Dispatcher {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("jobs")).unwrap();
        std::fs::write(
            dir.path().join("config.toml"),
            "[agents.defaults]\nmodel = \"m/m\"\n[models.providers.m]\napi = \"openai\"\n",
        )
        .unwrap();
        for (id, text) in jobs {
            let text = format!("{text}\n[agent]\nprompt = \"x\"\n");
            std::fs::write(dir.path().join(format!("jobs/{id}.toml")), text).unwrap();
        }
        let sources = Sources {
            config_paths: vec![dir.path().join("config.toml")],
            state_dir: None,
            environment: Environment::fixed([]),
            current_dir: dir.path().to_owned(),
        };
        let set = load_jobs(&load(&sources).unwrap().0);
        assert!(set.invalid.is_empty(), "{:?}", set.invalid);
        let memory = JobMemory {
            first_seen_at: at("2026-11-30T08:00:00Z"),
            decided_until: at("2026-11-30T08:00:00Z"),
            every_anchor: Some(at("2026-11-30T08:00:00Z")),
            was_invalid: false,
        };
        let entries = set
            .jobs
            .into_iter()
            .map(|(id, spec)| (id, JobEntry::new(Arc::new(spec), &memory)))
            .collect();
        let clock = Arc::new(ManualClock::new(at("2026-11-30T08:00:00Z")));
        Dispatcher::new(clock, entries, BTreeMap::new(), scheduling)
    }

    /// What a step commands, in short.
    fn short(commands: &[Command]) -> Vec<String> {
        commands
            .iter()
            .map(|command| match command {
                Command::Record { job, slots, launch, .. } => {
                    let decisions: Vec<_> = slots.iter().map(|it| it.decision.as_str()).collect();
                    let starts = launch.as_ref().map_or("nothing", |it| it.run.trigger.as_str());
                    format!("{job}: {} starts {starts}", decisions.join("+"))
                }
                Command::Answer(_, reply) => match &**reply {
                    Reply::Refused { reason, .. } => format!("refused {reason}"),
                    Reply::Cancelled { run_ids } => format!("cancelled {}", run_ids.len()),
                    other => format!("{other:?}"),
                },
                Command::Cancel(_, reason) => format!("cancel {reason:?}"),
                Command::Exit => "exit".into(),
            })
            .collect()
    }

    fn run_of(commands: &[Command]) -> RunId {
        let launch = commands.iter().find_map(|command| match command {
            Command::Record { launch: Some(launch), .. } => Some(launch),
            _ => None,
        });
        launch.expect("a run starts").ticket.run_id.clone()
    }

    fn wanted(job: &str, force: bool) -> Event {
        Event::RunWanted { job: job.into(), slot: None, force, answer: oneshot::channel().0 }
    }

    #[test]
    fn all_that_is_due_is_taken_at_one_wake_up_and_never_before() {
        let mut dispatcher =
            dispatcher(&[("a", EVERY_MINUTE), ("b", EVERY_MINUTE)], Scheduling::On);
        let early = at("2026-11-30T08:00:59.999Z");
        assert_eq!(short(&dispatcher.step(Event::Woke, early)), Vec::<String>::new());
        assert_eq!(dispatcher.wait_at_most(early), Duration::from_millis(1));
        assert_eq!(dispatcher.wait_at_most(at("2026-11-30T08:00:01Z")), LOOK_EVERY);
        assert_eq!(
            short(&dispatcher.step(Event::Woke, at("2026-11-30T08:01:00Z"))),
            ["a: started starts schedule", "b: started starts schedule"]
        );
    }

    #[test]
    fn overlap_holds_by_the_clock_and_by_hand_until_the_run_has_ended() {
        let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
        let run = run_of(&dispatcher.step(Event::Woke, at("2026-11-30T08:01:00Z")));
        let second = at("2026-11-30T08:02:00Z");
        assert_eq!(short(&dispatcher.step(Event::Woke, second)), ["a: skipped starts nothing"]);
        assert_eq!(short(&dispatcher.step(wanted("a", true), second)), ["refused overlap"]);
        dispatcher.step(Event::RunEnded(run), second);
        assert_eq!(short(&dispatcher.step(wanted("a", false), second)), ["a:  starts manual"]);
    }

    #[test]
    fn a_run_by_hand_does_not_move_the_schedule_and_gets_the_period_since_the_last_slot() {
        let mut dispatcher =
            dispatcher(&[("a", "[schedule]\ncron = \"0 * * * *\"\n")], Scheduling::On);
        let commands = dispatcher.step(wanted("a", false), at("2026-11-30T08:20:00Z"));
        match &commands[0] {
            Command::Record { launch: Some(launch), next_due, .. } => {
                let variables = &launch.ticket.variables;
                assert_eq!(variables.slot_start, at("2026-11-30T08:00:00Z"));
                assert_eq!(variables.slot_end, at("2026-11-30T08:20:00Z"));
                assert_eq!(launch.run.due_at, None);
                assert_eq!(*next_due, Some(at("2026-11-30T09:00:00Z")));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_disabled_job_is_recorded_and_runs_only_by_force() {
        let text = format!("enabled = false\n{EVERY_MINUTE}");
        let mut dispatcher = dispatcher(&[("a", &text)], Scheduling::On);
        let now = at("2026-11-30T08:01:00Z");
        assert_eq!(
            short(&dispatcher.step(wanted("a", false), now)),
            ["refused disabled", "a: skipped starts nothing"]
        );
        assert_eq!(short(&dispatcher.step(wanted("a", true), now)), ["a:  starts manual"]);
        assert_eq!(short(&dispatcher.step(wanted("b", true), now)), ["refused unknown"]);
    }

    #[test]
    fn the_first_signal_ends_what_waits_and_the_grace_ends_the_rest() {
        let mut dispatcher =
            dispatcher(&[("a", EVERY_MINUTE), ("b", EVERY_MINUTE)], Scheduling::On);
        let now = at("2026-11-30T08:01:00Z");
        let started = dispatcher.step(Event::Woke, now);
        let Command::Record { launch: Some(launch), .. } = &started[0] else { panic!() };
        launch.watchdog.start(crate::executor::RunLimits::default());
        assert_eq!(short(&dispatcher.step(Event::Stop, now)), ["cancel Shutdown"]);
        let later = at("2026-11-30T08:05:00Z");
        assert_eq!(short(&dispatcher.step(Event::Woke, later)), Vec::<String>::new());
        assert_eq!(
            short(&dispatcher.step(Event::GraceOver, later)),
            ["cancel Shutdown", "cancel Shutdown"]
        );
        let ids: Vec<_> = dispatcher.active.keys().cloned().collect();
        assert_eq!(short(&dispatcher.step(Event::RunEnded(ids[0].clone()), later)).len(), 0);
        assert_eq!(short(&dispatcher.step(Event::RunEnded(ids[1].clone()), later)), ["exit"]);
    }

    #[test]
    fn without_a_schedule_the_daemon_goes_when_its_run_has_ended() {
        let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::Off);
        let now = at("2026-11-30T09:00:00Z");
        assert_eq!(short(&dispatcher.step(Event::Woke, now)), Vec::<String>::new());
        let commands = dispatcher.step(wanted("a", false), now);
        assert_eq!(short(&commands), ["a:  starts manual"]);
        let run = run_of(&commands);
        assert_eq!(short(&dispatcher.step(Event::RunEnded(run), now)), ["exit"]);
    }

    #[test]
    fn cancel_names_what_it_hit() {
        let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
        let now = at("2026-11-30T08:01:00Z");
        let run = run_of(&dispatcher.step(Event::Woke, now));
        let cancel = |target| Event::CancelWanted { target, answer: oneshot::channel().0 };
        let by_run = dispatcher.step(cancel(Target::Run(run.to_string())), now);
        assert_eq!(short(&by_run), ["cancel Person", "cancelled 1"]);
        let by_job = dispatcher.step(cancel(Target::Job("a".into())), now);
        assert_eq!(short(&by_job), ["cancel Person", "cancelled 1"]);
        assert_eq!(short(&dispatcher.step(cancel(Target::Job("b".into())), now)), ["cancelled 0"]);
    }
}
