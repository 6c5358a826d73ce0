//! The tidying after a run: bounded steps, each with its outcome.
//!
//! The budget belongs to the clean-up alone; no deadline of the run takes it away. A step that is
//! out of time is left behind and named, and the next one still gets its chance.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::clock::{Clock, Deadline, to_millis};
use crate::process::{Household, Leftover};
use crate::run::{Cleanup, CleanupStep, Outcome, StepOutcome};
use crate::session::{Released, SessionLock};
use crate::tools::McpServers;
use crate::turn::Turn;

/// What is kept back of the budget for the steps after the processes, so that a tree that does
/// not die cannot take the transcript's time. Where it is scarce, a quarter of it.
const RESERVED: Duration = Duration::from_secs(2);

/// What is kept back of that for killing and reaping, so that no grace takes all of it. Where it is
/// scarce, half of it.
const KILLING: Duration = Duration::from_secs(2);

/// When the budget has cut the end of the processes, they are killed within this.
const KILL_WITHIN: Duration = Duration::from_millis(500);

/// A server that is told that it is not needed any more leaves within this, or is asked to like any
/// other process.
const MCP_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// The session's lock has this long to be given back, also when the budget is used up: the next run
/// of the session waits for it.
const RELEASE_MIN: Duration = Duration::from_millis(250);

/// Collects the steps.
pub(super) struct Tidying {
    clock: Arc<dyn Clock>,
    started: Instant,
    budget: Deadline,
    reserved: Duration,
    /// Spent on what is no tidying.
    elsewhere: Duration,
    cleanup: Cleanup,
}

/// How one step went.
struct Done {
    outcome: StepOutcome,
    detail: Option<String>,
}

impl Done {
    fn clean() -> Self {
        Self { outcome: StepOutcome::Clean, detail: None }
    }

    fn with(outcome: StepOutcome, detail: impl Into<String>) -> Self {
        Self { outcome, detail: Some(detail.into()) }
    }
}

impl Tidying {
    /// Begins with `budget` for everything.
    pub(super) fn begin(clock: Arc<dyn Clock>, budget: Duration) -> Self {
        let started = clock.monotonic();
        let cleanup = Cleanup {
            steps: Vec::new(),
            duration: Duration::ZERO,
            killed_processes: 0,
            leaked: Vec::new(),
        };
        let reserved = RESERVED.min(budget / 4);
        Self {
            clock,
            started,
            budget: Deadline::after(started, budget),
            reserved,
            elsewhere: Duration::ZERO,
            cleanup,
        }
    }

    /// The model's stream was closed when the turn's future was dropped; `cut` says that it was
    /// still open then.
    pub(super) async fn model_stream(&mut self, stream: ModelStream) {
        let done = match stream {
            ModelStream::Ended => Done::clean(),
            ModelStream::Cut => Done::with(StepOutcome::Forced, "closed before its end"),
        };
        self.step("model_stream", Duration::ZERO, async { done }).await;
    }

    /// Lets MCP servers end by themselves after work that did so too; those of a run that was cut
    /// are ended with everything else, and nobody waits for them.
    pub(super) async fn mcp(&mut self, servers: &McpServers, outcome: &Outcome, grace: Duration) {
        if servers.is_empty() {
            return;
        }
        let wait = match outcome.failure() {
            None => grace.min(MCP_ENDS_WITHIN),
            Some(_) => Duration::ZERO,
        };
        self.step("mcp", self.reserved, async {
            let told = servers.close(wait).await;
            Done { outcome: StepOutcome::Clean, detail: told }
        })
        .await;
    }

    /// Ends every process of the run.
    pub(super) async fn processes(&mut self, household: &Household, grace: Duration) {
        let left = self.budget.remaining(self.clock.monotonic()).unwrap_or(Duration::MAX);
        let left = left.saturating_sub(self.reserved);
        let grace = grace.min(left.saturating_sub(KILLING.min(left / 2)));
        let end = self
            .step("processes", self.reserved, async {
                let end = household.end_all(grace).await;
                let done = if !end.left.is_empty() {
                    let names: Vec<_> = end.left.iter().map(named).collect();
                    Done::with(
                        StepOutcome::Incomplete,
                        format!("still alive: {}", names.join(", ")),
                    )
                } else if household.has_lost_one() {
                    let words = "their supervisor had been killed";
                    Done::with(
                        StepOutcome::Forced,
                        format!("ended {} processes; {words}", end.killed),
                    )
                } else if end.killed > 0 {
                    Done::with(StepOutcome::Forced, format!("ended {} processes", end.killed))
                } else {
                    Done::clean()
                };
                (done, end)
            })
            .await;
        match end {
            Some(end) => {
                self.cleanup.killed_processes += end.killed;
                self.cleanup
                    .leaked
                    .extend(end.left.iter().map(|left| format!("process {}", named(left))));
            }
            None => self.kill(household).await,
        }
    }

    /// The last resort: nothing of the run lives on because there was no time to end it nicely.
    async fn kill(&mut self, household: &Household) {
        match tokio::time::timeout(KILL_WITHIN, household.kill_all()).await {
            Ok(end) if end.left.is_empty() => self.cleanup.killed_processes += end.killed,
            Ok(end) => {
                let left = end.left.iter().map(|left| format!("process {}", named(left)));
                self.cleanup.leaked.extend(left);
            }
            Err(_) => self.cleanup.leaked.push("processes that did not end in time".into()),
        }
    }

    /// Completes the transcript.
    pub(super) async fn transcript(&mut self, turn: Option<&mut Turn>, why: &str) {
        let Some(turn) = turn else { return };
        let flushed = self
            .step("transcript", Duration::ZERO, async {
                match turn.close(why).await {
                    Ok(0) => Done::clean(),
                    Ok(open) => {
                        Done::with(StepOutcome::Forced, format!("{open} calls had no result"))
                    }
                    Err(error) => Done::with(StepOutcome::Incomplete, error.to_string()),
                }
            })
            .await;
        if flushed.is_none() {
            self.cleanup.leaked.push("an unfinished transcript".into());
        }
    }

    /// Gives the session's lock back, also from under the hands of nested writers: nothing of the
    /// run writes any more.
    pub(super) async fn session_lock(&mut self, lock: Option<SessionLock>) {
        let Some(lock) = lock else { return };
        let (started_at, start) = (self.clock.wall(), self.clock.monotonic());
        let left = self.budget.remaining(start).unwrap_or(Duration::MAX);
        // Away from the runtime: the file is removed, and a disk may be slow.
        let release = tokio::task::spawn_blocking(move || lock.release());
        let done = match tokio::time::timeout(left.max(RELEASE_MIN), release).await {
            Ok(Ok(Released::Free)) => Done::clean(),
            Ok(Ok(Released::TakenFrom { nested })) => {
                Done::with(StepOutcome::Forced, format!("taken from {nested} nested writers"))
            }
            Ok(Err(error)) => Done::with(StepOutcome::Incomplete, error.to_string()),
            Err(_) => {
                self.cleanup.leaked.push("a session's lock that was not given back in time".into());
                Done::with(StepOutcome::TimedOut, "cut by the clean-up's budget")
            }
        };
        self.record("session_lock", done, started_at, start);
    }

    /// Removes the folders that were made for the run.
    pub(super) async fn workspace(&mut self, made: &[&Path]) {
        if made.is_empty() {
            return;
        }
        let removed = self
            .step("workspace", Duration::ZERO, async {
                let mut done = Done::clean();
                for path in made {
                    match tokio::fs::remove_dir_all(path).await {
                        Ok(()) => {}
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                        Err(error) => {
                            done = Done::with(StepOutcome::Incomplete, error.to_string());
                        }
                    }
                }
                done
            })
            .await;
        for path in made.iter().filter(|path| removed.is_none() || path.exists()) {
            self.cleanup.leaked.push(format!("workspace {}", path.display()));
        }
    }

    /// Gives the lanes back.
    pub(super) async fn lane<T>(&mut self, permits: Option<T>) {
        let Some(permits) = permits else { return };
        self.step("lane", Duration::ZERO, async {
            drop(permits);
            Done::clean()
        })
        .await;
    }

    /// Waits for what is no tidying and has limits of its own: the budget stands still.
    pub(super) async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> T {
        let start = self.clock.monotonic();
        let done = other.await;
        let took = self.clock.monotonic() - start;
        self.budget = self.budget.later_by(took);
        self.elsewhere += took;
        done
    }

    /// What there is to store.
    pub(super) fn end(mut self) -> Cleanup {
        let took = self.clock.monotonic() - self.started;
        self.cleanup.duration = took.saturating_sub(self.elsewhere);
        self.cleanup
    }

    /// Runs one step within what is left of the budget, less `reserved`; `None` if it was cut.
    async fn step<T>(
        &mut self,
        name: &'static str,
        reserved: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T::Value>
    where
        T: StepEnd,
    {
        let (started_at, start) = (self.clock.wall(), self.clock.monotonic());
        let left = self.budget.remaining(start).unwrap_or(Duration::MAX).saturating_sub(reserved);
        // `timeout` polls the work once before it looks at the time: a step that has nothing to
        // wait for is done even when the budget is used up.
        let ended = tokio::time::timeout(left, work).await.ok().map(StepEnd::split);
        let (done, value) = match ended {
            Some((done, value)) => (done, Some(value)),
            None => (Done::with(StepOutcome::TimedOut, "cut by the clean-up's budget"), None),
        };
        self.record(name, done, started_at, start);
        value
    }

    fn record(&mut self, step: &'static str, done: Done, started_at: Timestamp, start: Instant) {
        self.cleanup.steps.push(CleanupStep {
            step,
            outcome: done.outcome,
            started_at: to_millis(started_at),
            duration: self.clock.monotonic() - start,
            detail: done.detail,
        });
    }
}

fn named(left: &Leftover) -> String {
    format!("{} ({})", left.name, left.id.pid)
}

/// Whether the model's stream was open when the turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelStream {
    /// It had ended, or none was open.
    Ended,
    /// It was cut.
    Cut,
}

/// What a step gives back, beside how it went.
trait StepEnd {
    type Value;
    fn split(self) -> (Done, Self::Value);
}

impl StepEnd for Done {
    type Value = ();
    fn split(self) -> (Done, ()) {
        (self, ())
    }
}

impl<V> StepEnd for (Done, V) {
    type Value = V;
    fn split(self) -> (Done, V) {
        self
    }
}
