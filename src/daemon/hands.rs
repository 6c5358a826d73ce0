//! The hands that carry out what the dispatcher decides.
//!
//! Decisions are handed to the ledger in the order in which they were made, by one worker, so that
//! neither a slow disk nor a full queue ever holds up the loop; what follows from each is done
//! when it is on the disk, side by side.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use super::boundary::{tell_command, tell_received};
use super::event::{Answer, Command, Drain, Event, Files, Launch, Post, RecoveryEnd, Rescue};
use super::protocol::Reply;
use crate::clock::to_millis;
use crate::config::{JobSet, load_jobs};
use crate::executor::Executor;
use crate::job::JobId;
use crate::plan::{Record, Server, SlotDecision};
use crate::run::{MessageId, RunId};
use crate::store::{JobRow, LetterEnd, Receipt, Recorded, SessionRow, Store};

/// What could not be recorded is decided again after this: a disk that is full is not asked
/// without a pause.
const STEP_AGAIN: Duration = Duration::from_secs(1);

/// Carries out commands. Cheap to hold; what it has begun goes on without it.
pub(super) struct Hands {
    events: mpsc::Sender<Event>,
    /// Unbounded, so that the loop never waits; at most one entry per slot that is due.
    ledger: mpsc::UnboundedSender<(Arc<Executor>, Write)>,
}

/// What goes to the ledger, in its order.
enum Write {
    Record { record: Box<Record>, launch: Option<Box<Launch>>, then: Option<(Answer, Reply)> },
    TakeOver(Box<Launch>),
    GiveUp(RunId),
    Rewind(jiff::Timestamp),
    Post(Box<Post>),
    SettleLetters(Vec<MessageId>, LetterEnd),
    KeepSession(SessionRow, Option<(Answer, Reply)>),
    Adopt { rows: Vec<JobRow>, gone: Vec<String>, files: Box<Files>, at: jiff::Timestamp },
}

impl Hands {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Self {
        let (ledger, writes) = mpsc::unbounded_channel();
        tokio::spawn(write_in_order(writes, events.clone()));
        Self { events, ledger }
    }

    /// Begins what `command` says, under the configuration of `executor`.
    pub(super) fn carry_out(&self, executor: &Arc<Executor>, command: Command) {
        let write = match command {
            Command::Record { record, launch, then } => Write::Record { record, launch, then },
            Command::TakeOver(launch) => Write::TakeOver(launch),
            Command::GiveUp(run_id) => Write::GiveUp(run_id),
            Command::Rewind(now) => Write::Rewind(now),
            Command::Adopt { rows, gone, files, at } => Write::Adopt { rows, gone, files, at },
            Command::Post(post) => Write::Post(post),
            Command::SettleLetters(ids, end) => Write::SettleLetters(ids, end),
            Command::KeepSession(session, then) => Write::KeepSession(session, then),
            Command::Commanded(commanded) => return tell_command(executor, commanded),
            Command::Received(key, text) => return tell_received(executor, &key, text),
            // Whoever asked may be gone.
            Command::Answer(answer, reply) => return drop(answer.send(*reply)),
            Command::Cancel(watchdog, reason) => return watchdog.cancel(reason),
            Command::Rescue(rescue) => return self.rescue(executor, *rescue),
            Command::Ack(incident, answer) => return ack(executor, incident, answer),
            Command::Audit(row) => return executor.store.offer_audit(row),
            Command::Probe(servers) => return self.probe(executor, servers),
            Command::ReadFiles => return self.read_files(executor),
            Command::Exit | Command::UseConfig(_) => unreachable!("the loop sees to it"),
        };
        // The worker lives as long as these hands.
        drop(self.ledger.send((Arc::clone(executor), write)));
    }

    /// Frees a session that nobody drives, unless something of it lives.
    fn rescue(&self, executor: &Arc<Executor>, rescue: Rescue) {
        let (executor, events) = (Arc::clone(executor), self.events.clone());
        tokio::spawn(async move {
            let Rescue { ticket, generation, drain, after } = rescue;
            if drain == Drain::Processes {
                executor.drain(&ticket).await;
            }
            let end = if executor.has_processes(&ticket).await {
                RecoveryEnd::Alive
            } else {
                RecoveryEnd::Released(executor.release(&ticket, after).await)
            };
            let run_id = ticket.run_id;
            drop(events.send(Event::RecoveryEnded { run_id, generation, end }).await);
        });
    }

    /// Asks all at once; each answer is told when it is there.
    fn probe(&self, executor: &Arc<Executor>, servers: Vec<Server>) {
        for server in servers {
            let (executor, events) = (Arc::clone(executor), self.events.clone());
            tokio::spawn(async move {
                let reachable = executor.models.probe(&server).await;
                drop(events.send(Event::Probed { server, reachable }).await);
            });
        }
    }

    /// Reads the configuration and the jobs, away from the loop.
    fn read_files(&self, executor: &Arc<Executor>) {
        let (config, events) = (Arc::clone(&executor.config), self.events.clone());
        tokio::task::spawn_blocking(move || {
            let (config, jobs) = match config.read_again() {
                Ok((config, _)) => {
                    let jobs = load_jobs(&config);
                    (Ok(Arc::new(config)), jobs)
                }
                Err(problems) => (Err(problems), JobSet::default()),
            };
            let files = Files { config, jobs, gone: Vec::new() };
            drop(events.blocking_send(Event::FilesRead(Box::new(files))));
        });
    }
}

/// Says in the ledger that an incident is known.
fn ack(executor: &Arc<Executor>, incident: String, answer: Answer) {
    let executor = Arc::clone(executor);
    tokio::spawn(async move {
        let now = to_millis(executor.clock.wall());
        let reply = match executor.store.ack_incident(&incident, now).await {
            Ok(Some(incident)) => Reply::Acked { incident },
            Ok(None) => {
                let words = format!("there is not one open incident that begins with `{incident}`");
                Reply::refused("unknown", words)
            }
            Err(error) => Reply::refused("internal", error.to_string()),
        };
        // Whoever asked may be gone.
        let _ = answer.send(reply);
    });
}

async fn write_in_order(
    mut writes: mpsc::UnboundedReceiver<(Arc<Executor>, Write)>,
    events: mpsc::Sender<Event>,
) {
    while let Some((executor, write)) = writes.recv().await {
        let now = to_millis(executor.clock.wall());
        match write {
            Write::Record { record, launch, then } => {
                log_decisions(&record);
                let run = launch.as_ref().map(|launch| launch.run.clone());
                let job = (!record.rows.is_empty()).then(|| record.job.clone());
                let receipt = executor.store.record(*record, run, now).await;
                let events = events.clone();
                tokio::spawn(async move {
                    let recorded = match receipt {
                        Ok(receipt) => recorded(receipt).await,
                        Err(error) => Err(error.to_string()),
                    };
                    if let (Some(job), false) = (job, matches!(recorded, Ok(Recorded::New))) {
                        tokio::spawn(fall_into_step(executor.store.clone(), events.clone(), job));
                    }
                    after_record(&executor, &events, recorded, launch, then).await;
                });
            }
            // Nothing else is written about these two, so they need not wait for each other.
            Write::TakeOver(launch) => {
                let events = events.clone();
                tokio::spawn(async move {
                    let hash = &launch.run.definition_hash;
                    let taken = executor.store.redefine_queued(&launch.run.run_id, hash).await;
                    let recorded = taken.map(|()| Recorded::New).map_err(|error| error.to_string());
                    after_record(&executor, &events, recorded, Some(launch), None).await;
                });
            }
            Write::GiveUp(run_id) => {
                tokio::spawn(async move {
                    if let Err(error) = executor.store.give_up_queued(&run_id, now).await {
                        tracing::error!(%run_id, %error, "could not close a run that is too late");
                    }
                });
            }
            Write::Post(post) => deliver(&executor, &events, *post, now).await,
            Write::SettleLetters(ids, end) => {
                if let Err(error) = executor.store.settle_letters(ids, end, now).await {
                    tracing::error!(%error, "could not store what became of a message");
                }
            }
            Write::KeepSession(session, then) => {
                let kept = executor.store.keep_session(session, now).await;
                if let Some((answer, reply)) = then {
                    let refused = |words| Reply::refused("internal", words);
                    let reply = kept.as_ref().err().map_or(reply, |it| refused(it.to_string()));
                    drop(answer.send(reply));
                }
                if let Err(error) = kept {
                    tracing::error!(%error, "could not store a session");
                }
            }
            Write::Rewind(to) => {
                let ahead = executor.store.rewind(to).await;
                let ahead = ahead.inspect_err(
                    |error| tracing::error!(%error, "could not look behind a clock that was set back"),
                );
                drop(events.send(Event::Rewound(ahead.ok())).await);
            }
            Write::Adopt { rows, gone, files, at } => {
                let event = match executor.store.adopt_jobs(rows, gone, at).await {
                    Ok(memories) => Event::FilesAdopted(files, memories),
                    Err(error) => Event::FilesRefused(error.to_string()),
                };
                drop(events.send(event).await);
            }
        }
    }
}

/// Tells a message to a turn that goes on or waits, once it is on the disk that it was said.
async fn deliver(
    executor: &Executor,
    events: &mpsc::Sender<Event>,
    mut post: Post,
    now: jiff::Timestamp,
) {
    let Post { session_id, run_id, row, .. } = &post;
    let noted = executor.store.note_letter(session_id, run_id, row.clone(), now).await;
    if let Err(error) = noted {
        let reply = Reply::refused("internal", format!("it could not be recorded: {error}"));
        return drop(post.answer.take().map(|answer| answer.send(reply)));
    }
    match post.inbox.put(post.letter.clone(), post.cap, executor.clock.monotonic()) {
        Ok(dropped) => {
            let ids: Vec<_> = dropped.map(|it| it.id).into_iter().collect();
            if !ids.is_empty() {
                let settled = executor.store.settle_letters(ids, LetterEnd::Dropped, now).await;
                settled.unwrap_or_else(|error| tracing::error!(%error, "could not drop a message"));
            }
            let reply = Reply::Heard(Box::new(post.heard));
            drop(post.answer.map(|answer| answer.send(reply)));
        }
        Err(_) => drop(events.send(Event::CameTooLate(Box::new(post))).await),
    }
}

/// The ledger does not have what was decided: a full disk, or another process that was faster. The
/// job's decisions begin again where the ledger is.
async fn fall_into_step(store: Store, events: mpsc::Sender<Event>, job: JobId) {
    loop {
        tokio::time::sleep(STEP_AGAIN).await;
        let (reading, of) = (store.clone(), job.clone());
        let read = move || reading.reader()?.decided(&of);
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(Some(decided))) => {
                return drop(events.send(Event::OutOfStep { job, decided }).await);
            }
            Ok(Err(error)) => tracing::error!(%job, %error, "could not look at the ledger"),
            // The job is not there any more, or the process ends.
            Ok(Ok(None)) | Err(_) => return,
        }
    }
}

async fn recorded(receipt: Receipt) -> Result<Recorded, String> {
    receipt.recorded().await.map_err(|error| error.to_string())
}

fn log_decisions(record: &Record) {
    for slot in &record.rows {
        tracing::debug!(job = %record.job, due_at = %slot.due_at, slots = slot.slots,
            decision = %slot.decision, reason = slot.reason.map(crate::plan::Reason::as_str),
            "slot decided");
    }
    for turned in &record.turned {
        if turned.decision == SlotDecision::Missed {
            let reason = turned.reason.map(crate::plan::Reason::as_str);
            tracing::warn!(job = %record.job, due_at = %turned.due_at, reason, "slot missed");
        }
        tracing::debug!(job = %record.job, due_at = %turned.due_at, decision = %turned.decision,
            reason = turned.reason.map(crate::plan::Reason::as_str), "buffered slot decided");
    }
    match &record.pause {
        Some(crate::plan::PauseChange::Held(pause)) => {
            tracing::warn!(job = %record.job, cause = %pause.cause, reason = pause.words, "paused");
        }
        Some(crate::plan::PauseChange::Lifted) => tracing::info!(job = %record.job, "resumed"),
        None => {}
    }
}

/// Record, then act: nothing of a run happens before its rows are on the disk, and nothing at all
/// if the ledger had decided that slot before.
async fn after_record(
    executor: &Executor,
    events: &mpsc::Sender<Event>,
    recorded: Result<Recorded, String>,
    launch: Option<Box<Launch>>,
    then: Option<(Answer, Reply)>,
) {
    if let Some((answer, reply)) = then {
        let reply = match &recorded {
            Ok(_) => reply,
            Err(words) => Reply::refused("internal", format!("it could not be recorded: {words}")),
        };
        drop(answer.send(reply));
    }
    let Some(launch) = launch else {
        match recorded {
            Ok(Recorded::New) => {}
            Ok(Recorded::AlreadyDecided) => tracing::warn!("the ledger has decided that before"),
            Err(error) => tracing::error!(error, "could not record a decision"),
        }
        return;
    };
    let Launch { ticket, watchdog, answer, heard, .. } = *launch;
    let (job, run_id) = (ticket.spec.id.clone(), ticket.run_id.clone());
    let reply = match &recorded {
        Ok(Recorded::New) => match heard {
            Some(heard) => Reply::Heard(heard),
            None => Reply::Accepted { run_id: run_id.to_string() },
        },
        Ok(Recorded::AlreadyDecided) => {
            tracing::warn!(%job, due_at = ?ticket.due_at, "the ledger has decided this slot before");
            Reply::refused("overlap", "the ledger has decided this slot before".into())
        }
        Err(error) => {
            tracing::error!(%job, error, "could not record a run, so it does not start");
            Reply::refused("internal", format!("the run could not be recorded: {error}"))
        }
    };
    if let Some(answer) = answer {
        // Whoever asks follows, and misses nothing.
        if matches!(recorded, Ok(Recorded::New)) {
            executor.bus.keep(&run_id);
        }
        drop(answer.send(reply));
    }
    let end = match recorded {
        Ok(Recorded::New) => {
            let driven = AssertUnwindSafe(executor.drive(&ticket, &watchdog)).catch_unwind().await;
            match driven {
                Ok(end) => Some(end),
                Err(_) => Some(executor.abandon(&ticket).await),
            }
        }
        Ok(Recorded::AlreadyDecided) | Err(_) => None,
    };
    // The loop is gone only when the process is.
    drop(events.send(Event::RunEnded { run_id, end }).await);
}
