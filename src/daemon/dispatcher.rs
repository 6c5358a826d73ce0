//! The deciding half of the daemon: one event in, commands out, nothing awaited.
//!
//! What is due and what follows a run is the [`Planner`]'s to say; here its acts get run ids,
//! watchdogs and answers. What people ask for is in `asked.rs`, what changed files mean in
//! `files.rs`, what becomes of sessions that do not move in `patrol.rs`.

mod asked;
mod files;
mod messages;
mod patrol;
mod sessions;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::event::{Answer, Command, Event, Launch};
use super::protocol::Reply;
use crate::clock::{Clock, Now, to_millis};
use crate::executor::{Ticket, Watchdog};
use crate::job::{BestEffort, JobId, JobSpec, SecretText};
use crate::plan::{Act, Chain, LiveId, Planner, Record, RunEnd, Server, Start};
use crate::run::{CancelReason, RunId, Trigger};
use crate::session::Conversation;
use crate::store::{AlertRule, NewRun, QueuedRun, Recovered, RunSlot, Sending};
use crate::turn::Variables;

pub(super) use files::{all_words, job_rows};

/// Whether due slots start runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// `serve`: they do.
    On,
    /// `run` without a `serve`: only what is asked for.
    Off,
}

#[derive(Debug)]
struct ActiveRun {
    job: JobId,
    /// What the planner calls it; a run of no job is none of its affairs.
    living: Option<LiveId>,
    trigger: Trigger,
    since: Timestamp,
    watchdog: Arc<Watchdog>,
    ticket: Ticket,
    watch: patrol::Watch,
    /// Wakes a run that waits for another one of its job.
    turn: Option<Arc<Notify>>,
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
    planner: Planner,
    /// The jobs that can run. While a file is invalid, its last good version stays here.
    jobs: BTreeMap<JobId, Arc<JobSpec>>,
    /// Files that define no job now, with the reason.
    invalid: BTreeMap<String, String>,
    reading: files::Reading,
    active: HashMap<RunId, ActiveRun>,
    patrol: patrol::Patrol,
    sessions: sessions::Sessions,
    ad_hoc: messages::AdHoc,
    scheduling: Scheduling,
    phase: Phase,
}

impl Dispatcher {
    /// A dispatcher over `jobs`, which `planner` knows; `invalid` are the files that define none,
    /// with the reason.
    pub fn new(
        clock: Arc<dyn Clock>,
        planner: Planner,
        jobs: BTreeMap<JobId, Arc<JobSpec>>,
        invalid: BTreeMap<String, String>,
        scheduling: Scheduling,
    ) -> Self {
        Self {
            clock,
            planner,
            jobs,
            invalid,
            reading: files::Reading::default(),
            active: HashMap::new(),
            patrol: patrol::Patrol::default(),
            sessions: sessions::Sessions::default(),
            ad_hoc: messages::AdHoc::default(),
            scheduling,
            phase: Phase::Open,
        }
    }

    /// Whether due slots start runs.
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling
    }

    /// When each job is due next, soonest first.
    pub fn upcoming(&self) -> impl Iterator<Item = (Timestamp, &JobSpec)> {
        self.planner
            .upcoming()
            .into_iter()
            .filter_map(|(due, job)| Some((due, &**self.jobs.get(job)?)))
    }

    /// When jobs are due next, as far as `known` has it otherwise.
    pub(super) fn next_dues_other_than(
        &self,
        known: &HashMap<JobId, Option<Timestamp>>,
    ) -> Vec<(JobId, Option<Timestamp>)> {
        let next = self.planner.ids().map(|id| (id.clone(), self.planner.next_due_of(id)));
        next.filter(|(id, due)| known.get(id).copied().flatten() != *due).collect()
    }

    /// Whom the jobs ring.
    pub(super) fn ping_urls(&self) -> HashMap<JobId, SecretText> {
        let url = |spec: &Arc<JobSpec>| Some((spec.id.clone(), spec.ping.clone()?));
        self.jobs.values().filter_map(url).collect()
    }

    /// Who is told of what about the jobs.
    pub(super) fn alert_rules(&self) -> Vec<AlertRule> {
        let rule = |spec: &Arc<JobSpec>| {
            let schedule = self.planner.rules_of(&spec.id).and_then(|it| it.schedule.clone());
            let must_arrive = spec.delivers.iter().filter(|it| it.best_effort == BestEffort::No);
            Some(AlertRule {
                job: spec.id.clone(),
                alert: spec.alert.clone()?,
                provider: spec.agent().map(|agent| agent.model.provider.clone()),
                schedule,
                targets: must_arrive.map(|it| it.to.clone()).collect(),
            })
        };
        self.jobs.values().filter_map(rule).collect()
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
    pub fn wake(&self) -> Option<Timestamp> {
        match (self.phase, self.scheduling) {
            (Phase::Open, Scheduling::On) => self.planner.wake(),
            (Phase::Draining, _) => self.planner.backfill_wake(),
            (Phase::Stopping, _) | (Phase::Open, Scheduling::Off) => None,
        }
    }

    /// Decides what `event` means at `now`.
    pub fn step(&mut self, event: Event, now: Now) -> Vec<Command> {
        let wall = to_millis(now.wall);
        let mut commands = match event {
            Event::Woke => Vec::new(),
            Event::RunEnded { run_id, end } => self.run_ended(&run_id, end.as_ref(), wall),
            Event::RunWanted { job, slot, force, sending, answer } => {
                self.run_wanted(&job, slot, force, sending, answer, wall)
            }
            Event::MessageWanted { text, session, answer } => {
                self.message_wanted(&text, session.as_deref(), answer, wall)
            }
            Event::CameTooLate(post) => self.came_too_late(*post, wall),
            Event::PastWanted { job, slots, answer } => self.past_wanted(&job, slots, answer, wall),
            Event::CancelWanted { target, answer } => self.cancel_wanted(&target, answer),
            Event::PauseWanted { job, pause, answer } => {
                self.pause_wanted(job.as_deref(), &pause, answer, wall)
            }
            Event::ResumeWanted { job, answer } => self.resume_wanted(job.as_deref(), answer, wall),
            Event::Patrol => self.look_at_sessions(wall),
            Event::RecoveryEnded { run_id, generation, end } => {
                self.recovery_ended(&run_id, generation, &end, wall)
            }
            Event::AckWanted { incident, answer } => {
                self.is_asked();
                vec![Command::Ack(incident, answer)]
            }
            Event::StatusWanted(answer) => {
                vec![Command::Answer(answer, Box::new(Reply::Status(Box::new(self.status()))))]
            }
            Event::ReloadWanted(answer) => self.reload_wanted(answer),
            Event::FilesRead(files) => self.files_read(files, now),
            Event::FilesAdopted(files, memories) => self.files_adopted(*files, &memories, now),
            Event::FilesRefused(words) => self.files_refused(&words),
            Event::Rewound(ahead) => {
                self.planner.rewound(ahead, wall);
                Vec::new()
            }
            Event::OutOfStep { job, decided } => {
                self.planner.out_of_step(&job, decided, wall);
                Vec::new()
            }
            Event::Probed { server, reachable } => self.probed(&server, reachable, wall),
            Event::Stop => self.stop(),
            Event::GraceOver => self.cancel_all(CancelReason::Shutdown),
        };
        // Whatever woke the loop, nothing that is due waits for the next wake-up.
        commands.extend(self.look(now));
        if self.phase != Phase::Open && self.active.is_empty() && !self.has_past() {
            commands.push(Command::Exit);
        }
        commands
    }

    /// What a dead process had left: what it had queued goes on if it is in time, and what ended
    /// with it has its consequences.
    pub fn recover(&mut self, recovered: Recovered, now: Now) -> Vec<Command> {
        if self.scheduling == Scheduling::Off {
            return Vec::new();
        }
        let wall = to_millis(now.wall);
        let mut commands = Vec::new();
        for (job, ended) in recovered.ended {
            let acts = self.planner.ended_before(&job, ended.chain, &ended.end, wall);
            commands.extend(self.commands_of(acts, wall));
        }
        for queued in recovered.queued {
            commands.push(self.take_over(queued, wall));
        }
        for (job, slot) in recovered.waiting {
            let acts = self.planner.waits_again(&job, slot, wall);
            commands.extend(self.commands_of(acts, wall));
        }
        let acts = self.planner.hear(recovered.upstream, wall);
        commands.extend(self.commands_of(acts, wall));
        commands
    }

    fn take_over(&mut self, queued: QueuedRun, now: Timestamp) -> Command {
        let QueuedRun { run_id, session_id, job, trigger, chain } = queued;
        let Some(spec) = self.jobs.get(&job).cloned() else { return Command::GiveUp(run_id) };
        let Some(living) = self.planner.requeued(&job, chain, now) else {
            return Command::GiveUp(run_id);
        };
        let slot = RunSlot {
            due_at: chain.due_at,
            start_at: chain.due_at,
            stands_for: chain.stands_for,
            first_due: chain.first_due,
        };
        let seated = self.seat_again(&spec, session_id);
        let run = NewRun {
            run_id,
            trigger,
            slot: Some(slot),
            attempt: chain.attempt,
            session_id: seated.session_id,
            definition_hash: spec.definition_hash.clone(),
            sending: Sending::Usual,
            session: seated.seat,
            letters: Vec::new(),
            ad_hoc: None,
        };
        let period = self.period_of_chain(&job, &chain);
        let living = Some(living);
        Command::TakeOver(self.launch(spec, run, seated.conversation, living, period, None, now))
    }

    /// Takes everything that is due.
    fn look(&mut self, now: Now) -> Vec<Command> {
        if self.wake().is_none_or(|wake| wake > now.wall) && !self.looks_back(now) {
            return Vec::new();
        }
        let wall = to_millis(now.wall);
        let acts = match self.scheduling {
            Scheduling::On => self.planner.look(Now { wall, ..now }),
            Scheduling::Off => self.planner.go_on_with_backfill(wall),
        };
        self.commands_of(acts, wall)
    }

    /// Whether the clock was set back, which the planner has to see although nothing is due.
    fn looks_back(&self, now: Now) -> bool {
        self.phase == Phase::Open
            && self.scheduling == Scheduling::On
            && self.planner.was_set_back(now)
    }

    fn commands_of(&mut self, acts: Vec<Act>, now: Timestamp) -> Vec<Command> {
        let mut commands = Vec::new();
        for act in acts {
            match act {
                Act::Record(record) => commands.push(self.record(record, now)),
                Act::Replace(job) => {
                    let replaced = self.active.values().filter(|run| run.job == job);
                    let replaced = replaced.filter(|run| run.turn.is_none());
                    commands.extend(replaced.map(|run| {
                        Command::Cancel(Arc::clone(&run.watchdog), CancelReason::Replaced)
                    }));
                }
                Act::Release(living) => {
                    let waits = self.active.values_mut().find(|run| run.living == Some(living));
                    if let Some(turn) = waits.and_then(|run| run.turn.take()) {
                        turn.notify_one();
                    }
                }
                Act::Probe(servers) => commands.push(Command::Probe(servers)),
                Act::Rewind(to) => commands.push(Command::Rewind(to)),
            }
        }
        commands
    }

    fn record(&mut self, record: Box<Record>, now: Timestamp) -> Command {
        let launch = record.start.and_then(|start| {
            // A slot of a job without a definition starts nothing.
            let spec = self.jobs.get(&record.job).cloned()?;
            Some(self.launch_slot(spec, &start, now))
        });
        Command::Record { record, launch, then: None }
    }

    fn launch_slot(&mut self, spec: Arc<JobSpec>, start: &Start, now: Timestamp) -> Box<Launch> {
        let due_at = start.chain.due_at;
        let slot = RunSlot {
            due_at,
            start_at: start.start_at,
            stands_for: start.chain.stands_for,
            first_due: start.chain.first_due,
        };
        let seated = self.seat(&spec, now);
        let run = NewRun {
            run_id: RunId::new(now),
            trigger: start.trigger,
            slot: Some(slot),
            attempt: start.chain.attempt,
            session_id: seated.session_id,
            definition_hash: spec.definition_hash.clone(),
            sending: Sending::Usual,
            session: seated.seat,
            letters: Vec::new(),
            ad_hoc: None,
        };
        let period = self.period_of_chain(&spec.id, &start.chain);
        self.launch(spec, run, seated.conversation, Some(start.id), period, None, now)
    }

    #[expect(clippy::too_many_arguments, reason = "each is what the callers differ in")]
    fn launch(
        &mut self,
        spec: Arc<JobSpec>,
        run: NewRun,
        conversation: Conversation,
        living: Option<LiveId>,
        (slot_start, slot_end): (Timestamp, Timestamp),
        turn: Option<Arc<Notify>>,
        now: Timestamp,
    ) -> Box<Launch> {
        let watchdog = Arc::new(Watchdog::new(Arc::clone(&self.clock), spec.limits.lane_timeout));
        let due_at = run.slot.map(|slot| slot.due_at);
        let variables = Variables {
            due_at: due_at.unwrap_or(slot_end),
            slot_start,
            slot_end,
            vars: spec.agent().map(|agent| agent.vars.clone()).unwrap_or_default(),
            matrix: spec.matrix.clone(),
        };
        let ticket = Ticket {
            run_id: run.run_id.clone(),
            session_id: run.session_id.clone(),
            session_key: run.session.as_ref().map(|seat| seat.key.clone()),
            conversation,
            trigger: run.trigger,
            spec,
            due_at,
            turn: turn.clone(),
            variables,
        };
        let active = ActiveRun {
            job: ticket.spec.id.clone(),
            living,
            trigger: run.trigger,
            since: now,
            watchdog: Arc::clone(&watchdog),
            ticket: ticket.clone(),
            watch: self.patrol.begin(),
            turn,
        };
        self.active.insert(run.run_id.clone(), active);
        Box::new(Launch { run, ticket, watchdog, answer: None, heard: None })
    }

    /// The period that a run reports on: that of its slot and of those that it stands for.
    fn period_of_chain(&self, id: &JobId, chain: &Chain) -> (Timestamp, Timestamp) {
        (self.period_of_slot(id, chain.first_due).0, chain.due_at)
    }

    /// The period that a slot reports on: from the due instant before it.
    fn period_of_slot(&self, id: &JobId, due_at: Timestamp) -> (Timestamp, Timestamp) {
        let just_before = due_at - Duration::from_millis(1);
        (self.due_until(id, just_before).unwrap_or(due_at), due_at)
    }

    fn due_until(&self, id: &JobId, at: Timestamp) -> Option<Timestamp> {
        self.planner.schedule_of(id)?.prev_at_or_before(at)
    }

    fn run_ended(&mut self, run_id: &RunId, end: Option<&RunEnd>, now: Timestamp) -> Vec<Command> {
        let Some(run) = self.active.remove(run_id) else { return Vec::new() };
        let mut commands = Vec::from_iter(self.recovery_of_ended(run_id, &run, end, now));
        commands.extend(self.left_unheard(&run, end.and_then(|end| end.kind), now));
        let Some(living) = run.living else {
            if let Some(end) = end {
                self.planner.outside_ended(&run.job, &self.ad_hoc.caps, end);
            }
            return commands;
        };
        let acts = self.planner.ended(&run.job, living, end, now);
        if self.phase == Phase::Stopping {
            // What starts now would be cut at once; what is left to decide stays in the ledger.
            return commands;
        }
        commands.extend(self.commands_of(acts, now));
        commands
    }

    fn probed(&mut self, server: &Server, reachable: bool, now: Timestamp) -> Vec<Command> {
        if self.phase == Phase::Stopping {
            // What is held stays so in the ledger, for the next start to decide.
            return Vec::new();
        }
        let acts = self.planner.probed(server, reachable, now);
        self.commands_of(acts, now)
    }

    fn has_past(&self) -> bool {
        self.phase == Phase::Draining && self.planner.has_backfill()
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
}

fn answered(answer: Answer, reply: Reply) -> Command {
    Command::Answer(answer, Box::new(reply))
}

#[cfg(test)]
mod tests;
