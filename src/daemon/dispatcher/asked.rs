//! What people ask for: runs, past slots, their end, pauses, how things are.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::{Dispatcher, Phase, Scheduling, answered};
use crate::daemon::event::{Answer, Command};
use crate::daemon::lock::Kind;
use crate::daemon::protocol::{
    PausedJob, Reply, RetryingJob, Status, StatusNext, StatusRun, Target, UnreachableJob,
};
use crate::job::{JobId, digest};
use crate::plan::{Act, Availability, ByHand, Pause, Record, Standing, UsedUp};
use crate::run::{CancelReason, RunId, Trigger};
use crate::store::{NewRun, Sending};

impl Dispatcher {
    pub(super) fn run_wanted(
        &mut self,
        job: &str,
        slot: Option<Timestamp>,
        force: bool,
        sending: Sending,
        answer: Answer,
        now: Timestamp,
    ) -> Vec<Command> {
        self.is_asked();
        let id = match self.may_run(job, force, now) {
            Ok(id) => id,
            Err(refusal) => return vec![answered(answer, refusal)],
        };
        let (by_hand, acts) = self.planner.by_hand(&id, now);
        let mut commands = self.commands_of(acts, now);
        let (living, turn) = match by_hand {
            ByHand::Starts(living) => (living, None),
            ByHand::Waits(living) => (living, Some(Arc::new(Notify::new()))),
            ByHand::Overlaps => {
                let refusal = Reply::refused("overlap", format!("`{job}` is already running"));
                commands.push(answered(answer, refusal));
                return commands;
            }
        };
        let period = match slot {
            Some(slot) => self.period_of_slot(&id, slot),
            None => (self.due_until(&id, now).unwrap_or(now), now),
        };
        let spec = Arc::clone(&self.jobs[&id]);
        let seated = self.seat(&spec, now);
        let run = NewRun {
            run_id: RunId::new(now),
            trigger: Trigger::Manual,
            slot: None,
            attempt: 1,
            session_id: seated.session_id,
            definition_hash: spec.definition_hash.clone(),
            sending,
            session: seated.seat,
            letters: Vec::new(),
            ad_hoc: None,
        };
        let talk = seated.conversation;
        let mut launch = self.launch(spec, run, talk, Some(living), period, turn, now);
        launch.answer = Some(answer);
        let record = Box::new(Record::new(&id, self.planner.next_due_of(&id)));
        commands.push(Command::Record { record, launch: Some(launch), then: None });
        commands
    }

    /// Without a schedule, the first request is what the process is there for.
    pub(super) fn is_asked(&mut self) {
        if self.scheduling == Scheduling::Off && self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
    }

    /// The same policy as a scheduled run's; `force` lifts what was decided about the job as such.
    fn may_run(&self, job: &str, force: bool, now: Timestamp) -> Result<JobId, Reply> {
        let id = self.named(job)?;
        // Nothing lifts this one.
        if let Some(UsedUp { standing, .. }) = self.planner.used_up(&id, now) {
            let Standing { cap, spent, allowed } = standing;
            let words =
                format!("{spent} of {allowed} are spent today ({cap}): `{job}` may not run");
            return Err(Reply::refused("budget", words));
        }
        if force {
            return Ok(id);
        }
        let hint = "--force runs it all the same";
        if !self.jobs[&id].enabled {
            let words = format!("`{job}` is disabled; {hint}");
            return Err(Reply::refused("disabled", words));
        }
        // A pause that has run out while nobody looked holds nothing.
        let holds = |pause: &&Pause| pause.until.is_none_or(|until| until > now);
        if let Some(pause) = self.planner.pause_of(&id).filter(holds) {
            let words = format!("`{job}` is paused ({}); {hint}", pause.words);
            return Err(Reply::refused("paused", words));
        }
        Ok(id)
    }

    /// A job that can run.
    fn named(&self, job: &str) -> Result<JobId, Reply> {
        if let Some(why) = self.invalid.get(job) {
            return Err(Reply::refused("invalid", format!("`{job}` cannot run: {why}")));
        }
        let id = self.known(job)?;
        if !self.jobs.contains_key(&id) {
            return Err(Reply::refused("unknown", self.unknown_job(job)));
        }
        if self.phase == Phase::Stopping {
            return Err(Reply::refused("stopping", "the daemon is stopping".into()));
        }
        Ok(id)
    }

    /// A job that there is, usable or not.
    fn known(&self, job: &str) -> Result<JobId, Reply> {
        let id = job
            .parse::<JobId>()
            .ok()
            .filter(|id| self.jobs.contains_key(id) || self.planner.knows(id));
        id.ok_or_else(|| Reply::refused("unknown", self.unknown_job(job)))
    }

    fn unknown_job(&self, job: &str) -> String {
        let names = self.jobs.keys().map(JobId::as_str);
        match crate::job::nearest(job, names) {
            Some(near) => format!("there is no job `{job}`; did you mean `{near}`?"),
            None => format!("there is no job `{job}`"),
        }
    }

    pub(super) fn past_wanted(
        &mut self,
        job: &str,
        slots: Vec<(Timestamp, u32)>,
        answer: Answer,
        now: Timestamp,
    ) -> Vec<Command> {
        self.is_asked();
        let id = match self.may_run(job, false, now) {
            Ok(id) => id,
            Err(refusal) => return vec![answered(answer, refusal)],
        };
        let (slots, acts) = self.planner.run_past(&id, slots, now);
        let reply = match slots {
            0 => Reply::refused("overlap", "those slots wait already, or run".into()),
            slots => Reply::Backfilling { slots },
        };
        let mut commands = vec![answered(answer, reply)];
        commands.extend(self.commands_of(acts, now));
        commands
    }

    pub(super) fn cancel_wanted(&self, target: &Target, answer: Answer) -> Vec<Command> {
        let hit = |(run_id, run): &(&RunId, &super::ActiveRun)| match target {
            Target::Job(job) => run.job.as_str() == job,
            Target::Run(wanted) => run_id.as_str() == wanted,
            Target::Session(wanted) => {
                let key = run.ticket.session_key.as_ref();
                run.ticket.session_id.as_str() == wanted
                    || key.is_some_and(|key| key.as_str() == wanted)
            }
        };
        let mut runs: Vec<_> = self.active.iter().filter(hit).collect();
        // What waits goes first, so that nothing of it begins when the others end.
        runs.sort_by_key(|(run_id, run)| (!run.watchdog.is_waiting(), *run_id));
        let run_ids = runs.iter().map(|(run_id, _)| run_id.to_string()).collect();
        let mut commands: Vec<_> = runs
            .iter()
            .map(|(_, run)| Command::Cancel(Arc::clone(&run.watchdog), CancelReason::Person))
            .collect();
        commands.push(answered(answer, Reply::Cancelled { run_ids }));
        commands
    }

    pub(super) fn pause_wanted(
        &mut self,
        job: Option<&str>,
        pause: &Pause,
        answer: Answer,
        now: Timestamp,
    ) -> Vec<Command> {
        self.is_asked();
        let ids = match self.targets(job) {
            Ok(ids) => ids,
            Err(refusal) => return vec![answered(answer, refusal)],
        };
        let reply = Reply::Paused { jobs: ids.iter().map(JobId::to_string).collect() };
        let acts = ids.iter().flat_map(|id| self.planner.pause(id, pause.clone(), now));
        let acts: Vec<_> = acts.collect();
        self.answer_when_recorded(acts, answer, reply, now)
    }

    pub(super) fn resume_wanted(
        &mut self,
        job: Option<&str>,
        answer: Answer,
        now: Timestamp,
    ) -> Vec<Command> {
        self.is_asked();
        let ids = match self.targets(job) {
            Ok(ids) => ids,
            Err(refusal) => return vec![answered(answer, refusal)],
        };
        let is_paused = |id: &&JobId| self.planner.pause_of(id).is_some();
        let ids: Vec<_> = ids.iter().filter(is_paused).cloned().collect();
        let reply = Reply::Resumed { jobs: ids.iter().map(JobId::to_string).collect() };
        let acts = ids.iter().flat_map(|id| self.planner.resume(id, now));
        let acts: Vec<_> = acts.collect();
        self.answer_when_recorded(acts, answer, reply, now)
    }

    fn targets(&self, job: Option<&str>) -> Result<Vec<JobId>, Reply> {
        match job {
            Some(job) => Ok(vec![self.known(job)?]),
            None => Ok(self.planner.ids().cloned().collect()),
        }
    }

    /// Answers when the last of the records is on the disk: they are written in their order.
    fn answer_when_recorded(
        &mut self,
        acts: Vec<Act>,
        answer: Answer,
        reply: Reply,
        now: Timestamp,
    ) -> Vec<Command> {
        let mut commands = self.commands_of(acts, now);
        let last = commands.iter_mut().rev().find_map(|command| match command {
            Command::Record { then, .. } => Some(then),
            _ => None,
        });
        match last {
            Some(then) => *then = Some((answer, reply)),
            None => commands.push(answered(answer, reply)),
        }
        commands
    }

    pub(super) fn status(&self) -> Status {
        let queues = self.queues();
        let mut runs: Vec<_> = self
            .active
            .iter()
            .map(|(run_id, run)| StatusRun {
                run_id: run_id.to_string(),
                job: run.job.to_string(),
                trigger: run.trigger,
                since: run.since,
                waiting: run.watchdog.is_waiting(),
                session: run.ticket.session_key.as_ref().map(ToString::to_string),
                attention: self.attention_of(run, &queues),
            })
            .collect();
        runs.sort_by(|a, b| a.run_id.cmp(&b.run_id));
        let enabled = |id: &JobId| {
            self.planner.rules_of(id).is_some_and(|rules| rules.availability == Availability::Ready)
        };
        let next = self
            .planner
            .upcoming()
            .into_iter()
            .find(|(_, id)| enabled(id) && self.planner.pause_of(id).is_none());
        let kept = self
            .invalid
            .keys()
            .filter(|name| name.parse::<JobId>().is_ok_and(|id| self.jobs.contains_key(&id)));
        Status {
            pid: std::process::id(),
            holder: match self.scheduling {
                Scheduling::On => Kind::Serve,
                Scheduling::Off => Kind::Run,
            },
            stopping: self.phase == Phase::Stopping,
            version: env!("CARGO_PKG_VERSION").into(),
            jobs: self.jobs.len(),
            definitions: digest(
                self.jobs
                    .values()
                    .map(|spec| &**spec)
                    .filter(|spec| !self.invalid.contains_key(spec.id.as_str())),
            ),
            invalid: self.invalid.clone(),
            last_good: kept.cloned().collect(),
            config_problem: self.reading.problem().map(str::to_owned),
            next: next.map(|(due, job)| StatusNext { job: job.to_string(), due_at: due }),
            paused: self.paused_jobs(),
            retrying: self.retrying_jobs(),
            unreachable: self.unreachable_jobs(),
            runs,
            lanes: Vec::new(),
            recoveries: self.patrol.recoveries(),
        }
    }

    fn paused_jobs(&self) -> Vec<PausedJob> {
        let paused = self.planner.ids().filter_map(|id| {
            let pause = self.planner.pause_of(id)?;
            let (cause, reason) = (pause.cause, pause.words.clone());
            Some(PausedJob { job: id.to_string(), cause, reason, until: pause.until })
        });
        paused.collect()
    }

    fn unreachable_jobs(&self) -> Vec<UnreachableJob> {
        let unreachable = self.planner.ids().filter_map(|id| {
            let (since, asked_again_at) = self.planner.waits_for_model(id)?;
            Some(UnreachableJob { job: id.to_string(), since, asked_again_at })
        });
        unreachable.collect()
    }

    fn retrying_jobs(&self) -> Vec<RetryingJob> {
        let retrying = self.planner.ids().filter_map(|id| {
            let (at, attempt) = self.planner.next_retry_of(id)?;
            Some(RetryingJob { job: id.to_string(), attempt, at })
        });
        retrying.collect()
    }
}
