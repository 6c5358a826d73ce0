//! What a watchdog knows of its run's session: the wait for its lock, the hold of it, and how long
//! nothing has moved.

use std::time::Duration;

use tokio::time::Instant;

use super::{Stage, State, Tripped, Watchdog};
use crate::clock::Deadline;
use crate::run::{CancelReason, Phase};
use crate::session::{Beat, Doing};

/// The signs of life of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pulse {
    /// Counts them, so that two looks can tell whether there was one in between.
    beat: Beat,
    /// When the last one was.
    at: Instant,
    /// Since when the run has its session's lock, and for how long it may.
    hold: Option<(Instant, Option<Duration>)>,
}

/// What a run does now, for those who look whether it still does anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// What it does.
    pub doing: Doing,
    /// How long ago the last sign of progress was, or the start.
    pub silent: Duration,
    /// Which sign of progress that was.
    pub beat: Beat,
    /// How long it has had its session's lock.
    pub lock_held: Option<Duration>,
}

impl Pulse {
    pub(super) fn new(at: Instant) -> Self {
        Self { beat: Beat::default(), at, hold: None }
    }

    pub(super) fn beat(&mut self, at: Instant) {
        self.beat = self.beat.next();
        self.at = at;
    }

    pub(super) fn hold_limit(&self) -> Option<(Deadline, Tripped)> {
        let (since, limit) = self.hold?;
        Some((Deadline::after(since, limit?), Tripped::SessionHeld(limit?)))
    }
}

impl Watchdog {
    /// The run waits for its session's lock, which has a limit of its own.
    pub(in crate::executor) fn waits_for_session(&self) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        let before = state.since;
        state.stage = Stage::SessionLock { before };
        state.since = now;
        state.pulse.beat(now);
        drop(state);
        self.changed.notify_one();
    }

    /// The run has its session's lock and may hold it for `limit`. The wait counts for no other
    /// limit but the run's deadline.
    pub(in crate::executor) fn has_session(&self, limit: Option<Duration>) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        if let Stage::SessionLock { before } = state.stage {
            state.stage = Stage::PreExecution;
            state.since = before + (now - state.since);
        }
        state.pulse.hold = Some((now, limit));
        state.pulse.beat(now);
        drop(state);
        self.changed.notify_one();
    }

    /// The work is over; from here the clean-up's budget counts.
    pub(in crate::executor) fn ends(&self) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        state.stage = Stage::Ending;
        state.since = now;
        state.pulse.beat(now);
    }

    /// What the run does now, and how long nothing has moved; its tools may take `tool_timeout`.
    pub fn activity(&self, tool_timeout: Duration) -> Activity {
        let now = self.clock.monotonic();
        let state = self.state();
        Activity {
            doing: state.doing(tool_timeout),
            silent: now.saturating_duration_since(state.pulse.at),
            beat: state.pulse.beat,
            lock_held: state.pulse.hold.map(|(since, _)| now.saturating_duration_since(since)),
        }
    }

    /// Ends the run as stuck, unless there was a sign of life after `beat` or it is ending
    /// already. `after` is the configured threshold. Says whether the run was asked to end.
    pub fn abort_stuck(&self, beat: Beat, after: Duration) -> Asked {
        let mut state = self.state();
        let is_ending = state.tripped.is_some() || matches!(state.stage, Stage::Ending);
        if is_ending || state.pulse.beat != beat {
            return Asked::NoMore;
        }
        state.cancel = state.cancel.max(Some(CancelReason::Stuck(after)));
        drop(state);
        self.changed.notify_one();
        Asked::ToEnd
    }
}

/// Whether a run was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It was.
    ToEnd,
    /// It has moved on meanwhile.
    NoMore,
}

impl State {
    fn doing(&self, tool_timeout: Duration) -> Doing {
        match (self.stage, self.phase) {
            // In the last case its next attempt is waited for, as long as a server has asked for.
            (Stage::Lane(_) | Stage::SessionLock { .. }, _)
            | (Stage::Busy, Some(Phase::ModelCall)) => Doing::Waiting,
            (Stage::Ending, _) => Doing::Ending,
            (Stage::Model { .. }, _) => Doing::Model,
            (Stage::Busy, Some(Phase::Tool)) => Doing::Tool { limit: tool_timeout },
            (Stage::Setup(_) | Stage::Busy | Stage::PreExecution, _) => Doing::Between,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::RunLimits;
    use super::*;
    use crate::clock::{Clock as _, SystemClock};
    use crate::run::{ErrorKind, Limit};

    const TOOL: Duration = Duration::from_mins(10);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn started(limits: RunLimits) -> Watchdog {
        let dog = Watchdog::new(Arc::new(SystemClock), None);
        dog.start(limits);
        dog
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_the_lock_uses_up_nothing_but_the_deadline() {
        let limits = RunLimits { pre_execution: Some(seconds(3)), ..RunLimits::default() };
        let dog = started(limits);
        tokio::time::sleep(seconds(1)).await;
        dog.waits_for_session();
        assert_eq!(dog.guard(tokio::time::sleep(seconds(50))).await, Ok(()));
        dog.has_session(None);
        let start = SystemClock.monotonic();
        assert_eq!(dog.tripped().await, Tripped::PreExecution(seconds(3)));
        // One of the three seconds was used up before the wait.
        assert_eq!((SystemClock.monotonic() - start).as_secs(), 2);

        let dog = started(RunLimits { deadline: Some(seconds(5)), ..RunLimits::default() });
        dog.waits_for_session();
        assert_eq!(dog.tripped().await, Tripped::Deadline(seconds(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_that_is_too_long_ends_the_run() {
        let dog = started(RunLimits::default());
        dog.entered(Phase::Context);
        dog.waits_for_session();
        dog.has_session(Some(seconds(300)));
        dog.entered(Phase::Tool);
        assert_eq!(dog.guard(tokio::time::sleep(seconds(299))).await, Ok(()));
        let tripped = dog.tripped().await;
        assert_eq!(tripped, Tripped::SessionHeld(seconds(300)));
        let failure = tripped.failure(dog.phase());
        assert_eq!(
            (failure.kind, failure.limit, failure.limit_ms, failure.phase),
            (ErrorKind::Stuck, Some(Limit::SessionLock), Some(300_000), Some(Phase::Tool))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_does_and_since_when_it_is_silent() {
        let dog = Watchdog::new(Arc::new(SystemClock), None);
        assert_eq!(dog.activity(TOOL).doing, Doing::Waiting);
        dog.start(RunLimits::default());
        let seen = |dog: &Watchdog| {
            let activity = dog.activity(TOOL);
            (activity.doing, activity.silent.as_secs())
        };
        tokio::time::sleep(seconds(2)).await;
        assert_eq!(seen(&dog), (Doing::Between, 2));
        dog.entered(Phase::ModelCall);
        tokio::time::sleep(seconds(3)).await;
        // The transport lives, which is not progress.
        dog.opened();
        assert_eq!(seen(&dog), (Doing::Model, 3));
        dog.pulse();
        assert_eq!(seen(&dog), (Doing::Model, 0));
        dog.rest();
        assert_eq!(dog.activity(TOOL).doing, Doing::Waiting, "between two attempts");
        dog.entered(Phase::Tool);
        tokio::time::sleep(seconds(4)).await;
        assert_eq!(seen(&dog), (Doing::Tool { limit: TOOL }, 4));
        dog.pulse();
        assert_eq!(seen(&dog), (Doing::Tool { limit: TOOL }, 0));
        dog.ends();
        assert_eq!(seen(&dog), (Doing::Ending, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_saves_it_from_an_abort_that_did_not_see_it() {
        let dog = started(RunLimits::default());
        dog.entered(Phase::ModelCall);
        let before = dog.activity(TOOL).beat;
        dog.pulse();
        assert_eq!(dog.abort_stuck(before, seconds(6)), Asked::NoMore);
        let now = dog.activity(TOOL).beat;
        assert_eq!(dog.abort_stuck(now, seconds(6)), Asked::ToEnd);
        let tripped = dog.tripped().await;
        assert_eq!(tripped, Tripped::Cancelled(CancelReason::Stuck(seconds(6))));
        let failure = tripped.failure(dog.phase());
        assert_eq!(
            (failure.kind, failure.limit, failure.limit_ms, failure.phase),
            (ErrorKind::Stuck, Some(Limit::Stuck), Some(6000), Some(Phase::ModelCall))
        );
        assert_eq!(dog.abort_stuck(now, seconds(6)), Asked::NoMore);
    }
}
