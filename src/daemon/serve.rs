//! The waiting half of the daemon: the loop, and the hands that carry out what it decides.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::desk::answer_all;
use super::dispatcher::Scheduling;
use super::event::{Command, Event, Launch};
use super::housekeeping::Housekeeping;
use super::open::Daemon;
use super::protocol::Reply;
use super::signals::{Signal, Signals};
use super::socket;
use super::ticker::Ticker;
use crate::clock::Deadline;
use crate::executor::Executor;
use crate::job::JobId;
use crate::run::ErrorKind;
use crate::store::Recorded;

/// Events that may wait. The loop takes microseconds for one; whoever has to wait here waits for
/// that long.
const EVENTS_MAX: usize = 1024;

/// After the grace, runs are cut and tidied; a process that would not die by then is left to its
/// supervisor, and its row to the next start.
const TIDY_AFTER_GRACE: Duration = Duration::from_secs(2);

/// How long the rows of what still runs may take to be closed when it is time to leave.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// How a daemon came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Nothing was left to do: every run had ended, by itself or at the end of the grace.
    Done,
    /// The grace, or what was left of it, ran out with runs still being tidied.
    OutOfGrace,
    /// A second signal.
    AtOnce,
}

/// A daemon's ears.
#[derive(Debug)]
pub struct Listening {
    signals: Signals,
    socket: UnixListener,
}

/// How far the stop has come.
enum Stop {
    NotAsked,
    /// Until the grace is over.
    Grace(Deadline),
    /// Until the tidying is cut.
    Tidy(Deadline),
}

impl Daemon {
    /// Serves until it is stopped. `events` is another way in for whoever embeds it.
    pub async fn serve(mut self, listening: Listening) -> std::io::Result<Stopped> {
        let Listening { socket, mut signals } = listening;
        let (sender, mut events) = mpsc::channel(EVENTS_MAX);
        let executor = Arc::clone(&self.executor);
        let lanes = {
            let executor = Arc::clone(&executor);
            Arc::new(move || executor.lanes.view())
        };
        let desk = tokio::spawn(answer_all(
            socket,
            sender.clone(),
            executor.bus.clone(),
            executor.store.clone(),
            lanes,
        ));
        let housekeeping = Housekeeping::start(executor.store.clone());
        let ticker = Ticker::start(Arc::clone(&executor.clock), sender.clone())?;
        let mut stop = Stop::NotAsked;

        // The first step decides what was missed while nobody looked.
        let mut event = Some(Event::Woke);
        let stopped = 'serving: loop {
            let now = self.executor.clock.wall();
            for command in
                event.take().map(|event| self.dispatcher.step(event, now)).unwrap_or_default()
            {
                if matches!(command, Command::Exit) {
                    break 'serving Stopped::Done;
                }
                if matches!(command, Command::Record { .. }) {
                    housekeeping.note_change();
                }
                carry_out(&executor, &sender, command);
            }
            ticker.aim(self.dispatcher.next_due());
            event = tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Signal::Stop => match self.on_signal(&mut stop) {
                        Some(event) => Some(event),
                        None => break Stopped::AtOnce,
                    },
                    Signal::Reload => {
                        tracing::warn!("reloading is not supported yet: restart to take over changes");
                        None
                    }
                },
                () = stop.limit().wait() => match stop {
                    Stop::Grace(_) => {
                        stop = Stop::Tidy(self.in_from_now(TIDY_AFTER_GRACE));
                        Some(Event::GraceOver)
                    }
                    Stop::NotAsked | Stop::Tidy(_) => break Stopped::OutOfGrace,
                },
                event = events.recv() => event,
            };
        };
        if stopped != Stopped::Done {
            self.close_rows().await;
        }
        drop((ticker, housekeeping));
        desk.abort();
        socket::remove(&self.executor.config.state_dir);
        tracing::info!(how = ?stopped, "stopped");
        Ok(stopped)
    }

    /// Listens for signals and on the control socket. Apart from [`Daemon::serve`], so that whoever
    /// starts it knows that it can be reached; signals first, so that whoever reaches it can stop it.
    pub fn listen(&self) -> std::io::Result<Listening> {
        let signals = Signals::listen(self.dispatcher.scheduling())?;
        Ok(Listening { signals, socket: socket::listen(&self.executor.config.state_dir)? })
    }

    /// Whoever leaves with runs under way says so in their rows. Their processes are ended by
    /// their supervisors once this process is gone.
    async fn close_rows(&self) {
        let now = crate::clock::to_millis(self.executor.clock.wall());
        let closed = self.executor.store.close_open_runs(ErrorKind::Shutdown, now);
        match tokio::time::timeout(CLOSE_WITHIN, closed).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "could not close the rows of what still ran"),
            Err(_) => tracing::error!("the database took too long: the next start closes the rows"),
        }
    }

    /// The first signal begins the grace; `None` for the second.
    fn on_signal(&self, stop: &mut Stop) -> Option<Event> {
        match stop {
            Stop::NotAsked => {
                // A single run has nobody to be graceful to: whoever ends it wants it ended.
                let grace = match self.dispatcher.scheduling() {
                    Scheduling::On => self.executor.config.scheduler.shutdown_grace,
                    Scheduling::Off => Duration::ZERO,
                };
                let runs = self.dispatcher.active();
                tracing::info!(grace = %humantime::format_duration(grace), runs, "stopping");
                *stop = Stop::Grace(self.in_from_now(grace));
                Some(Event::Stop)
            }
            Stop::Grace(_) | Stop::Tidy(_) => None,
        }
    }

    fn in_from_now(&self, length: Duration) -> Deadline {
        let now: Instant = self.executor.clock.monotonic();
        Deadline::after(now, length)
    }
}

impl Stop {
    fn limit(&self) -> Deadline {
        match self {
            Self::NotAsked => Deadline::NEVER,
            Self::Grace(until) | Self::Tidy(until) => *until,
        }
    }
}

fn carry_out(executor: &Arc<Executor>, events: &mpsc::Sender<Event>, command: Command) {
    match command {
        Command::Record { job, slots, launch, next_due } => {
            let (executor, events) = (Arc::clone(executor), events.clone());
            tokio::spawn(async move {
                record(&executor, &events, &job, slots, launch.map(|it| *it), next_due).await;
            });
        }
        // Whoever asked may be gone.
        Command::Answer(answer, reply) => drop(answer.send(*reply)),
        Command::Cancel(watchdog, reason) => watchdog.cancel(reason),
        Command::Exit => unreachable!("the loop ends on it"),
    }
}

/// Record, then act: nothing of a run happens before its rows are on the disk, and nothing at all
/// if the ledger had decided that slot before.
async fn record(
    executor: &Executor,
    events: &mpsc::Sender<Event>,
    job: &JobId,
    slots: Vec<crate::store::SlotRow>,
    launch: Option<Launch>,
    next_due: Option<jiff::Timestamp>,
) {
    let now = crate::clock::to_millis(executor.clock.wall());
    for slot in &slots {
        tracing::debug!(%job, due_at = %slot.due_at, slots = slot.slots, decision = %slot.decision,
            reason = slot.reason.map(crate::plan::Reason::as_str), "slot decided");
    }
    let run = launch.as_ref().map(|launch| launch.run.clone());
    let recorded = executor.store.decide(job, slots, run, next_due, now).await;
    let Some(Launch { ticket, watchdog, answer, .. }) = launch else {
        if let Err(error) = recorded {
            tracing::error!(%job, %error, "could not record what was decided about a slot");
        }
        return;
    };
    let reply = match &recorded {
        Ok(Recorded::New) => Reply::Accepted { run_id: ticket.run_id.to_string() },
        Ok(Recorded::AlreadyDecided) => {
            tracing::warn!(%job, due_at = ?ticket.due_at, "the ledger has decided this slot before");
            Reply::refused("overlap", "the ledger has decided this slot before".into())
        }
        Err(error) => {
            tracing::error!(%job, %error, "could not record a run, so it does not start");
            Reply::refused("internal", format!("the run could not be recorded: {error}"))
        }
    };
    if let Some(answer) = answer {
        drop(answer.send(reply));
    }
    if matches!(recorded, Ok(Recorded::New)) {
        let driven = AssertUnwindSafe(executor.drive(&ticket, &watchdog)).catch_unwind().await;
        if driven.is_err() {
            executor.abandon(&ticket).await;
        }
    }
    // The loop is gone only when the process is.
    drop(events.send(Event::RunEnded(ticket.run_id)).await);
}
