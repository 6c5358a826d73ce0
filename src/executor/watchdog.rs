//! One watchdog per run: it owns the limits and the reason for which a run is cut.
//!
//! A run is a ladder of stages. Each stage's work is awaited through [`Watchdog::guard`], against
//! one future, [`Watchdog::tripped`]: the first limit to expire or the cancel that came first. What
//! ended the run first stays; whatever comes later is noted and changes nothing. A limit of one
//! request ends that request only: after [`Watchdog::rest`] the run may go on with another.

mod session;
mod tripped;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::next_attempt::TimeLeft;
use crate::clock::{Clock, Deadline};
use crate::run::{CancelReason, Phase};

use session::Pulse;
pub use session::{Activity, Asked};
pub use tripped::Tripped;

/// The limits of a run, as configured; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// From the start of execution to the end of the work.
    pub deadline: Option<Duration>,
    /// From the runner's start to the first model call or tool.
    pub pre_execution: Option<Duration>,
    /// The idle window of a model request.
    pub idle: Option<Duration>,
    /// The wait for a first token, where it is configured apart from the idle window.
    pub first_token: Option<Duration>,
    /// The provider's own limit, while the response head is awaited.
    pub provider: Option<Duration>,
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It waits for its lanes, at most so long.
    Lane(Option<Duration>),
    /// It has its lanes, and is being set up, within this.
    Setup(Duration),
    /// The turn runner has it; neither a model call nor a tool has begun.
    PreExecution,
    /// A model's answer is awaited.
    Model {
        /// Whether the response head has come.
        opened: bool,
        /// Whether there was any progress yet.
        progressed: bool,
    },
    /// A tool works, the answer is being shaped, or the next attempt is waited for: only the
    /// deadline and a cancel count.
    Busy,
    /// It waits for its session's lock, which has its own limit. What the stage before it has used
    /// up counts from `before` again afterwards.
    SessionLock {
        /// When the stage before it began.
        before: Instant,
    },
    /// The work is over and being tidied up after.
    Ending,
}

/// The limits of one run, and whether one of them has been reached.
#[derive(Debug)]
pub struct Watchdog {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    limits: RunLimits,
    started: Option<Instant>,
    stage: Stage,
    /// When the stage began, or its last progress.
    since: Instant,
    phase: Option<Phase>,
    cancel: Option<CancelReason>,
    tripped: Option<Tripped>,
    pulse: Pulse,
}

impl Watchdog {
    /// A watchdog of a run that waits for its lanes.
    pub fn new(clock: Arc<dyn Clock>, lane_timeout: Option<Duration>) -> Self {
        let state = State {
            limits: RunLimits::default(),
            started: None,
            stage: Stage::Lane(lane_timeout),
            since: clock.monotonic(),
            phase: None,
            cancel: None,
            tripped: None,
            pulse: Pulse::new(clock.monotonic()),
        };
        Self { clock, state: Mutex::new(state), changed: Notify::new() }
    }

    /// The one waiting place of a run: `work`, unless a limit or a cancel comes first.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T, Tripped> {
        tokio::select! {
            biased;
            tripped = self.tripped() => Err(tripped),
            done = work => Ok(done),
        }
    }

    /// The run has its lanes and is set up, within `limit`. Its own clock does not run yet.
    pub fn set_up(&self, limit: Duration) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        state.stage = Stage::Setup(limit);
        state.since = now;
        state.pulse.beat(now);
        drop(state);
        self.changed.notify_one();
    }

    /// Starts the run's clock: from here the deadline counts.
    pub fn start(&self, limits: RunLimits) {
        let now = self.clock.monotonic();
        let mut at = self.state();
        at.limits = limits;
        at.started = Some(now);
        at.stage = Stage::PreExecution;
        at.since = now;
        at.pulse.beat(now);
        drop(at);
        self.changed.notify_one();
    }

    /// Sets the limits of the requests that follow: each model has its own.
    pub fn set_request_limits(&self, limits: RunLimits) {
        let mut state = self.state();
        let RunLimits { idle, first_token, provider, .. } = limits;
        state.limits = RunLimits { idle, first_token, provider, ..state.limits };
        drop(state);
        self.changed.notify_one();
    }

    /// A watchdog for a part of the work inside of a call.
    pub(super) fn of_part(&self) -> Self {
        Self::new(Arc::clone(&self.clock), None)
    }

    /// The limits of the requests that go on.
    pub(super) fn request_limits(&self) -> RunLimits {
        let RunLimits { idle, first_token, provider, .. } = self.state().limits;
        RunLimits { idle, first_token, provider, ..RunLimits::default() }
    }

    /// The run has come to `phase`.
    pub fn entered(&self, phase: Phase) {
        let entering = match phase {
            Phase::ModelCall => Some(Stage::Model { opened: false, progressed: false }),
            Phase::BeforeReplyHook | Phase::Tool | Phase::Output => Some(Stage::Busy),
            Phase::Probe
            | Phase::Gate
            | Phase::RunnerEntered
            | Phase::Workspace
            | Phase::ModelResolution
            | Phase::Auth
            | Phase::Context => None,
        };
        let now = self.clock.monotonic();
        let mut state = self.state();
        state.phase = Some(phase);
        state.pulse.beat(now);
        if let Some(stage) = entering {
            state.stage = stage;
            state.since = now;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The response head has come.
    pub fn opened(&self) {
        let mut state = self.state();
        if let Stage::Model { progressed, .. } = state.stage {
            state.stage = Stage::Model { opened: true, progressed };
        }
    }

    /// A sign of progress: the idle window begins anew.
    pub fn pulse(&self) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        state.pulse.beat(now);
        if let Stage::Model { opened, .. } = state.stage {
            state.stage = Stage::Model { opened, progressed: true };
            state.since = now;
        }
        // No wake-up: whoever waits looks again when the old window would have ended.
    }

    /// A request has failed and no other one is open yet. The phase stays where it failed.
    pub fn rest(&self) {
        let mut state = self.state();
        state.stage = Stage::Busy;
        drop(state);
        self.changed.notify_one();
    }

    /// Whether a model's answer is awaited.
    pub fn is_asking(&self) -> bool {
        matches!(self.state().stage, Stage::Model { .. })
    }

    /// What is left of the run's time.
    pub(super) fn time_left(&self) -> TimeLeft {
        let now = self.clock.monotonic();
        let state = self.state();
        match (state.limits.deadline, state.deadline()) {
            (Some(whole), Some((at, _))) => match at.remaining(now) {
                Some(left) => TimeLeft::Until { left, whole },
                None => TimeLeft::Unlimited,
            },
            _ => TimeLeft::Unlimited,
        }
    }

    /// Asks the run to end. The gravest reason wins until the run has been cut.
    pub fn cancel(&self, reason: CancelReason) {
        let mut state = self.state();
        if let Some(first) = state.tripped {
            tracing::info!(?first, later = ?reason, "the run is ending already");
        }
        state.cancel = state.cancel.max(Some(reason));
        drop(state);
        self.changed.notify_one();
    }

    /// Whether the run still waits for its lanes.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state().stage, Stage::Lane(_))
    }

    /// The last phase.
    pub fn phase(&self) -> Option<Phase> {
        self.state().phase
    }

    /// The run's deadline.
    pub fn deadline(&self) -> Deadline {
        let state = self.state();
        state.deadline().map_or(Deadline::NEVER, |(at, _)| at)
    }

    /// Returns when a limit has been reached or somebody asked for the end. A reason that ends the
    /// run is the same from then on.
    pub async fn tripped(&self) -> Tripped {
        loop {
            // Before the look, so that a change between look and wait is not lost.
            let changed = self.changed.notified();
            let next = match self.look() {
                Ok(tripped) => return tripped,
                Err(next) => next,
            };
            tokio::select! {
                () = changed => {}
                () = next.wait() => {}
            }
        }
    }

    /// What has tripped, or when to look again.
    fn look(&self) -> Result<Tripped, Deadline> {
        let now = self.clock.monotonic();
        let mut state = self.state();
        if let Some(tripped) = state.tripped {
            return Ok(tripped);
        }
        if let Some(reason) = state.cancel {
            let tripped = Tripped::Cancelled(reason);
            state.tripped = Some(tripped);
            return Ok(tripped);
        }
        let candidates = [state.deadline(), state.stage_limit(), state.pulse.hold_limit()];
        // On a tie the run's own deadline is the reason.
        let due = candidates.iter().flatten().find(|(at, _)| at.passed(now)).map(|&(_, why)| why);
        if let Some(tripped) = due {
            if tripped.of_request().is_none() {
                state.tripped = Some(tripped);
            }
            return Ok(tripped);
        }
        Err(candidates.into_iter().flatten().map(|(at, _)| at).fold(Deadline::NEVER, Deadline::min))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }
}

impl State {
    fn deadline(&self) -> Option<(Deadline, Tripped)> {
        let limit = self.limits.deadline?;
        Some((Deadline::after(self.started?, limit), Tripped::Deadline(limit)))
    }

    fn stage_limit(&self) -> Option<(Deadline, Tripped)> {
        let (limit, why) = match self.stage {
            Stage::Lane(limit) => (limit?, Tripped::Lane(limit?)),
            Stage::Setup(limit) => (limit, Tripped::Setup(limit)),
            Stage::PreExecution => {
                (self.limits.pre_execution?, Tripped::PreExecution(self.limits.pre_execution?))
            }
            Stage::Model { progressed: false, opened } => self.first_token_limit(opened)?,
            Stage::Model { progressed: true, .. } => {
                (self.limits.idle?, Tripped::Idle(self.limits.idle?))
            }
            Stage::Busy | Stage::SessionLock { .. } | Stage::Ending => return None,
        };
        Some((Deadline::after(self.since, limit), why))
    }

    /// Before any progress: the first-token limit where it is set, which then also replaces the
    /// provider's; else the provider's while the head is awaited, and the idle window.
    fn first_token_limit(&self, opened: bool) -> Option<(Duration, Tripped)> {
        let RunLimits { first_token, provider, idle, .. } = self.limits;
        if let Some(limit) = first_token {
            return Some((limit, Tripped::FirstToken(limit)));
        }
        match (provider, idle) {
            (Some(provider), idle) if !opened && idle.is_none_or(|idle| provider <= idle) => {
                Some((provider, Tripped::Provider(provider)))
            }
            (_, idle) => idle.map(|idle| (idle, Tripped::Idle(idle))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::run::{ErrorKind, Limit};

    fn watchdog(limits: RunLimits) -> Watchdog {
        let watchdog = Watchdog::new(Arc::new(SystemClock), None);
        watchdog.start(limits);
        watchdog
    }

    #[expect(clippy::unnecessary_wraps, reason = "limits are optional, and the tables read better")]
    fn seconds(count: u64) -> Option<Duration> {
        Some(Duration::from_secs(count))
    }

    /// Progress every second for `count` seconds.
    async fn drip(watchdog: &Watchdog, count: u32) {
        watchdog.entered(Phase::ModelCall);
        watchdog.opened();
        for _ in 0..count {
            tokio::time::sleep(Duration::from_secs(1)).await;
            watchdog.pulse();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn progress_restarts_the_window_and_the_deadline_stands() {
        let dog =
            watchdog(RunLimits { deadline: seconds(10), idle: seconds(2), ..RunLimits::default() });
        assert_eq!(dog.guard(drip(&dog, 5)).await, Ok(()));
        assert_eq!(
            dog.guard(drip(&dog, 50)).await,
            Err(Tripped::Deadline(Duration::from_secs(10)))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn silence_after_progress_is_idle_and_a_tool_is_not_silence() {
        let dog =
            watchdog(RunLimits { deadline: seconds(60), idle: seconds(2), ..RunLimits::default() });
        dog.entered(Phase::Tool);
        let tool = tokio::time::sleep(Duration::from_secs(20));
        assert_eq!(dog.guard(tool).await, Ok(()));
        let silent = async {
            drip(&dog, 1).await;
            std::future::pending::<()>().await;
        };
        assert_eq!(dog.guard(silent).await, Err(Tripped::Idle(Duration::from_secs(2))));
        let failure = dog.tripped().await.failure(dog.phase());
        assert_eq!(
            (failure.kind, failure.limit, failure.limit_ms, failure.phase),
            (ErrorKind::IdleTimeout, Some(Limit::Idle), Some(2000), Some(Phase::ModelCall))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_the_first_token_has_its_own_limit() {
        let wait = |limits, opened: bool| async move {
            let dog = watchdog(limits);
            dog.entered(Phase::ModelCall);
            if opened {
                dog.opened();
            }
            dog.tripped().await
        };
        let idle = RunLimits { idle: seconds(2), ..RunLimits::default() };
        assert_eq!(wait(idle, false).await, Tripped::Idle(Duration::from_secs(2)));
        let cold = RunLimits { first_token: seconds(9), provider: seconds(5), ..idle };
        assert_eq!(wait(cold, false).await, Tripped::FirstToken(Duration::from_secs(9)));
        assert_eq!(wait(cold, true).await, Tripped::FirstToken(Duration::from_secs(9)));
        let provider = RunLimits { idle: seconds(5), provider: seconds(5), ..RunLimits::default() };
        assert_eq!(wait(provider, false).await, Tripped::Provider(Duration::from_secs(5)));
        assert_eq!(wait(provider, true).await, Tripped::Idle(Duration::from_secs(5)));
        // The run's limit bounds the window: it comes before the provider's.
        let shorter = RunLimits { idle: seconds(3), provider: seconds(5), ..RunLimits::default() };
        assert_eq!(wait(shorter, false).await, Tripped::Idle(Duration::from_secs(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reason_stays() {
        let dog = watchdog(RunLimits { deadline: seconds(1), ..RunLimits::default() });
        assert_eq!(dog.tripped().await, Tripped::Deadline(Duration::from_secs(1)));
        dog.cancel(CancelReason::Shutdown);
        assert_eq!(dog.tripped().await, Tripped::Deadline(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_of_a_request_ends_that_request_and_no_other() {
        let limits = RunLimits { deadline: seconds(60), idle: seconds(2), ..RunLimits::default() };
        let dog = watchdog(limits);
        for _ in 0..3 {
            dog.entered(Phase::ModelCall);
            let silent = dog.guard(std::future::pending::<()>()).await;
            assert_eq!(silent, Err(Tripped::Idle(Duration::from_secs(2))));
            assert!(dog.is_asking());
            dog.rest();
            assert!(!dog.is_asking());
            assert_eq!(dog.phase(), Some(Phase::ModelCall));
            assert_eq!(dog.guard(tokio::time::sleep(Duration::from_secs(5))).await, Ok(()));
        }
        let whole = Duration::from_mins(1);
        let left = Duration::from_secs(60 - 3 * 7);
        assert_eq!(dog.time_left(), TimeLeft::Until { left, whole });
        let end = dog.guard(std::future::pending::<()>()).await;
        assert_eq!(end, Err(Tripped::Deadline(whole)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_graver_reason_replaces_one_that_has_not_taken_effect() {
        let dog = watchdog(RunLimits::default());
        dog.cancel(CancelReason::Person);
        dog.cancel(CancelReason::Shutdown);
        dog.cancel(CancelReason::Replaced);
        assert_eq!(dog.tripped().await, Tripped::Cancelled(CancelReason::Shutdown));
    }

    #[tokio::test(start_paused = true)]
    async fn the_lane_and_the_stall_before_execution_have_limits_of_their_own() {
        let dog = Watchdog::new(Arc::new(SystemClock), seconds(4));
        assert_eq!(dog.tripped().await, Tripped::Lane(Duration::from_secs(4)));
        let dog = watchdog(RunLimits { pre_execution: seconds(3), ..RunLimits::default() });
        dog.entered(Phase::Context);
        assert_eq!(dog.tripped().await, Tripped::PreExecution(Duration::from_secs(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_set_up_has_a_limit_and_uses_up_no_other() {
        let dog = Watchdog::new(Arc::new(SystemClock), seconds(1));
        dog.set_up(Duration::from_secs(5));
        assert_eq!(dog.guard(tokio::time::sleep(Duration::from_secs(4))).await, Ok(()));
        let set_up = dog.tripped().await;
        assert_eq!(set_up, Tripped::Setup(Duration::from_secs(5)));
        let failure = set_up.failure(dog.phase());
        assert_eq!(
            (failure.kind, failure.limit, failure.limit_ms, failure.phase),
            (ErrorKind::SetupTimeout, Some(Limit::Setup), Some(5000), None)
        );
        let dog = Watchdog::new(Arc::new(SystemClock), None);
        dog.set_up(Duration::from_secs(5));
        assert_eq!(dog.guard(tokio::time::sleep(Duration::from_secs(4))).await, Ok(()));
        dog.start(RunLimits { deadline: seconds(3), ..RunLimits::default() });
        assert_eq!(dog.guard(tokio::time::sleep(Duration::from_secs(2))).await, Ok(()));
        assert_eq!(dog.tripped().await, Tripped::Deadline(Duration::from_secs(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancel_wakes_whoever_waits() {
        let dog = Arc::new(watchdog(RunLimits::default()));
        let waiting = tokio::spawn({
            let dog = Arc::clone(&dog);
            async move { dog.guard(std::future::pending::<()>()).await }
        });
        tokio::task::yield_now().await;
        dog.cancel(CancelReason::Person);
        assert_eq!(waiting.await.unwrap(), Err(Tripped::Cancelled(CancelReason::Person)));
    }
}
