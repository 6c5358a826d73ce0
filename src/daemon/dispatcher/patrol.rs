//! The look at sessions that do not move: snapshots from what this process knows, a verdict on
//! each, and what follows from it.
//!
//! The process is woken for it only while something is active. A session whose run somebody drives
//! is ended through its own watchdog; one that nobody drives is freed by the hands, which look
//! first whether anything of it lives. Either way a recovery is requested and completed, in the
//! log, in `status` and in the audit ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{ActiveRun, Dispatcher};
use crate::config::{Config, Diagnostics, Thresholds};
use crate::daemon::event::{Command, Drain, RecoveryEnd, Rescue};
use crate::daemon::protocol::{Attention, RecoveryAct, RecoveryResult, StatusRecovery};
use crate::executor::{Activity, Asked};
use crate::job::JobId;
use crate::plan::RunEnd;
use crate::run::{ErrorKind, RunId};
use crate::session::{
    Act, Current, Doing, Generation, Liveness, OLD_AFTER, Recovering, Reports, Snapshot, Work,
    classify, pass,
};
use crate::store::{Actor, AuditKind, AuditRow};

/// Sessions are looked at this often, or more often where less silence is reported.
const EVERY_MAX: Duration = Duration::from_secs(30);

/// However short the thresholds are, looking has a price.
const EVERY_MIN: Duration = Duration::from_millis(100);

/// Recoveries that `status` shows; the audit ledger has all of them.
const RECOVERIES_SHOWN_MAX: usize = 20;

/// What is known apart from any run.
#[derive(Debug, Default)]
pub(super) struct Patrol {
    /// None: nobody looks.
    pub(super) thresholds: Option<Thresholds>,
    newest: Generation,
    recoveries: VecDeque<StatusRecovery>,
}

/// What is known of the session of one run.
#[derive(Debug)]
pub(super) struct Watch {
    generation: Generation,
    reports: Reports,
    lock_age: LockAge,
    /// What there is of its work when nobody drives it.
    unowned: Work,
    /// What was asked for and has not come to its end.
    recovery: Option<RecoveryAct>,
}

#[derive(Debug, PartialEq, Eq)]
enum LockAge {
    Untold,
    Told,
}

impl Patrol {
    pub(super) fn use_config(&mut self, config: &Config) {
        self.thresholds = match config.diagnostics {
            Diagnostics::Off => None,
            Diagnostics::On(thresholds) => Some(thresholds),
        };
    }

    /// The watch over a run that begins.
    pub(super) fn begin(&mut self) -> Watch {
        self.newest = self.newest.next();
        Watch {
            generation: self.newest,
            reports: Reports::default(),
            lock_age: LockAge::Untold,
            unowned: Work::Dead,
            recovery: None,
        }
    }

    pub(super) fn recoveries(&self) -> Vec<StatusRecovery> {
        self.recoveries.iter().cloned().collect()
    }

    fn note_request(&mut self, run_id: &RunId, job: &JobId, act: RecoveryAct, at: Timestamp) {
        self.recoveries.push_back(StatusRecovery {
            run_id: run_id.to_string(),
            job: job.to_string(),
            act,
            requested_at: at,
            completed_at: None,
            result: None,
        });
        if self.recoveries.len() > RECOVERIES_SHOWN_MAX {
            self.recoveries.pop_front();
        }
    }

    fn note_result(&mut self, run_id: &RunId, result: RecoveryResult, at: Timestamp) {
        let mut newest_first = self.recoveries.iter_mut().rev();
        if let Some(it) = newest_first.find(|it| it.run_id == run_id.as_str()) {
            it.completed_at = Some(at);
            it.result = Some(result);
        }
    }
}

impl Watch {
    /// Which work of the session it is.
    #[cfg(test)]
    pub(super) fn generation(&self) -> Generation {
        self.generation
    }
}

impl Dispatcher {
    /// How often the sessions want to be looked at; `None` while there is nothing to look at.
    pub fn patrol_every(&self) -> Option<Duration> {
        let thresholds = self.patrol.thresholds.filter(|_| !self.active.is_empty())?;
        Some(thresholds.warn.clamp(EVERY_MIN, EVERY_MAX))
    }

    /// Looks at all sessions.
    pub(super) fn look_at_sessions(&mut self, now: Timestamp) -> Vec<Command> {
        let Some(thresholds) = self.patrol.thresholds else { return Vec::new() };
        let queues = self.queues();
        let mut run_ids: Vec<_> = self.active.keys().cloned().collect();
        run_ids.sort_unstable();
        let look = |run_id: &RunId| self.look_at_session(run_id, &queues, thresholds, now);
        run_ids.iter().flat_map(look).collect()
    }

    fn look_at_session(
        &mut self,
        run_id: &RunId,
        queues: &HashMap<JobId, usize>,
        thresholds: Thresholds,
        now: Timestamp,
    ) -> Vec<Command> {
        let Some(run) = self.active.get_mut(run_id) else { return Vec::new() };
        let activity = run.activity();
        run.tell_lock_age(run_id, &activity);
        let seen = run.snapshot(&activity, queues);
        let verdict = classify(&seen, thresholds);
        if run.watch.reports.is_due(verdict.liveness, &seen, thresholds.warn) {
            report(run_id, run, verdict.liveness, &seen);
        }
        match verdict.act {
            Act::Nothing | Act::Report => Vec::new(),
            act @ (Act::AbortAndDrain | Act::Release) => {
                self.recover_session(run_id, act, &seen, thresholds, now)
            }
        }
    }

    /// The deed, as far as its gates let it pass.
    fn recover_session(
        &mut self,
        run_id: &RunId,
        act: Act,
        seen: &Snapshot,
        thresholds: Thresholds,
        now: Timestamp,
    ) -> Vec<Command> {
        let Some(run) = self.active.get_mut(run_id) else { return Vec::new() };
        if let Err(gate) = pass(act, seen, &run.current()) {
            tracing::debug!(%run_id, job = %run.job, %gate, "session recovery held back");
            return Vec::new();
        }
        let (recovery, rescue) = match seen.work {
            Work::Owned(_) => {
                // The watchdog looks once more: it may have moved since the snapshot.
                if run.watchdog.abort_stuck(seen.beat, thresholds.abort) == Asked::NoMore {
                    return Vec::new();
                }
                (RecoveryAct::Abort, None)
            }
            Work::Nothing | Work::Loose | Work::Dead => {
                let drain = match act {
                    Act::AbortAndDrain => Drain::Processes,
                    Act::Nothing | Act::Report | Act::Release => Drain::Nothing,
                };
                let rescue = Rescue {
                    ticket: run.ticket.clone(),
                    generation: seen.generation,
                    drain,
                    after: thresholds.warn,
                };
                (RecoveryAct::Release, Some(Command::Rescue(Box::new(rescue))))
            }
        };
        run.watch.recovery = Some(recovery);
        tracing::warn!(
            %run_id, job = %run.job, act = %recovery, work = name_of(seen.work),
            silent_ms = millis(seen.silent), queued = seen.queued, "session.recovery requested"
        );
        self.patrol.note_request(run_id, &run.job, recovery, now);
        let audit = audit(run_id, AuditKind::StuckRequested, recovery.as_str(), now);
        [audit].into_iter().chain(rescue).collect()
    }

    /// A session that nobody drove has been looked after.
    pub(super) fn recovery_ended(
        &mut self,
        run_id: &RunId,
        generation: Generation,
        end: &RecoveryEnd,
        now: Timestamp,
    ) -> Vec<Command> {
        // What was found out about an older work says nothing about this one.
        let is_meant = |run: &&mut ActiveRun| run.watch.generation == generation;
        let Some(run) = self.active.get_mut(run_id).filter(is_meant) else { return Vec::new() };
        match end {
            RecoveryEnd::Released(end) => self.run_ended(run_id, Some(end), now),
            RecoveryEnd::Alive => {
                run.watch.unowned = Work::Loose;
                run.watch.recovery = None;
                vec![self.recovery_completed(run_id, RecoveryResult::Alive, now)]
            }
        }
    }

    /// What the end of a run means for a recovery that was asked for.
    pub(super) fn recovery_of_ended(
        &mut self,
        run_id: &RunId,
        run: &ActiveRun,
        end: Option<&RunEnd>,
        now: Timestamp,
    ) -> Option<Command> {
        let was_cut = end.is_some_and(|end| end.kind == Some(ErrorKind::Stuck));
        let result = match run.watch.recovery? {
            RecoveryAct::Abort if was_cut => RecoveryResult::Drained,
            RecoveryAct::Release if was_cut => RecoveryResult::Released,
            RecoveryAct::Abort | RecoveryAct::Release => RecoveryResult::EndedByItself,
        };
        Some(self.recovery_completed(run_id, result, now))
    }

    fn recovery_completed(
        &mut self,
        run_id: &RunId,
        result: RecoveryResult,
        now: Timestamp,
    ) -> Command {
        tracing::warn!(%run_id, %result, "session.recovery completed");
        self.patrol.note_result(run_id, result, now);
        audit(run_id, AuditKind::StuckCompleted, result.as_str(), now)
    }

    /// What there is to say about the session of `run` now.
    pub(super) fn attention_of(
        &self,
        run: &ActiveRun,
        queues: &HashMap<JobId, usize>,
    ) -> Option<Attention> {
        let seen = run.snapshot(&run.activity(), queues);
        let liveness = classify(&seen, self.patrol.thresholds?).liveness;
        let is_fine = liveness == Liveness::Fine;
        (!is_fine).then_some(Attention { liveness, silent_ms: millis(seen.silent) })
    }

    /// How many runs of each job wait for another one of it.
    pub(super) fn queues(&self) -> HashMap<JobId, usize> {
        let mut queues = HashMap::new();
        for run in self.active.values().filter(|run| run.turn.is_some()) {
            *queues.entry(run.job.clone()).or_default() += 1;
        }
        queues
    }
}

impl ActiveRun {
    fn activity(&self) -> Activity {
        self.watchdog.activity(self.ticket.spec.limits.tool_timeout)
    }

    fn snapshot(&self, activity: &Activity, queues: &HashMap<JobId, usize>) -> Snapshot {
        Snapshot {
            generation: self.watch.generation,
            beat: activity.beat,
            work: self.work(activity.doing),
            queued: queues.get(&self.job).copied().unwrap_or(0),
            silent: activity.silent,
            recovering: self.recovering(),
        }
    }

    fn current(&self) -> Current {
        let activity = self.activity();
        Current {
            generation: Some(self.watch.generation),
            beat: activity.beat,
            work: self.work(activity.doing),
            // Each run has a lane of its own.
            newest_on_lane: self.watch.generation,
            recovering: self.recovering(),
        }
    }

    /// Whoever records, starts or drives a run has its watchdog, too.
    fn work(&self, doing: Doing) -> Work {
        if Arc::strong_count(&self.watchdog) > 1 { Work::Owned(doing) } else { self.watch.unowned }
    }

    fn recovering(&self) -> Recovering {
        self.watch.recovery.map_or(Recovering::No, |_| Recovering::Yes)
    }

    /// Says once that it has had its session's lock for long. Nobody takes it away for that.
    fn tell_lock_age(&mut self, run_id: &RunId, activity: &Activity) {
        let is_old = activity.lock_held.is_some_and(|age| age >= OLD_AFTER);
        if is_old && self.watch.lock_age == LockAge::Untold {
            self.watch.lock_age = LockAge::Told;
            let session = self.ticket.session_id.as_str();
            tracing::warn!(%run_id, job = %self.job, session, "session.lock_old");
        }
    }
}

fn report(run_id: &RunId, run: &ActiveRun, liveness: Liveness, seen: &Snapshot) {
    let (job, session) = (&run.job, run.ticket.session_id.as_str());
    let (silent_ms, queued, work) = (millis(seen.silent), seen.queued, name_of(seen.work));
    match liveness {
        Liveness::Fine => {}
        Liveness::LongRunning => {
            tracing::info!(%run_id, %job, session, work, silent_ms, queued, "session.long_running");
        }
        Liveness::Stalled => {
            tracing::warn!(%run_id, %job, session, work, silent_ms, queued, "session.stalled");
        }
        Liveness::Stuck => {
            tracing::warn!(%run_id, %job, session, work, silent_ms, queued, "session.stuck");
        }
    }
}

fn name_of(work: Work) -> &'static str {
    match work {
        Work::Nothing => "nothing",
        Work::Owned(Doing::Waiting) => "waiting",
        Work::Owned(Doing::Model) => "model_call",
        Work::Owned(Doing::Tool { .. }) => "tool_call",
        Work::Owned(Doing::Between) => "run",
        Work::Owned(Doing::Ending) => "cleanup",
        Work::Loose => "unowned",
        Work::Dead => "none",
    }
}

fn audit(run_id: &RunId, kind: AuditKind, result: &'static str, at: Timestamp) -> Command {
    let run_id = run_id.clone();
    let actor = Actor::Punctual;
    Command::Audit(AuditRow { at, actor, kind, run_id, name: None, result: Some(result) })
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
