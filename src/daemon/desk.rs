//! The daemon's end of the control socket.
//!
//! A client that goes away ends its own listening and nothing else: no run ends because a
//! terminal was closed.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

use super::event::Event;
use super::protocol::{Reply, Request, is_terminal};
use super::socket::write_line;
use crate::executor::{Bus, Heard, Lanes};
use crate::plan::{Pause, PauseCause};
use crate::process::belongs_to_a_run;
use crate::run::RunId;
use crate::store::{Actor, AuditKind, AuditRow, RunRecord, Sending, Store, StoreError};

/// A request is a line; longer ones are refused before they are read whole.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;

/// Answers everyone who connects, until it is dropped.
pub(super) async fn answer_all(listener: UnixListener, desk: Desk) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let desk = desk.clone();
                tokio::spawn(async move {
                    if let Err(error) = desk.answer(BufReader::new(stream)).await {
                        tracing::debug!(%error, "a control client went away");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a control client");
                // Out of file handles, most likely: some will be free again.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// What an answer is made of.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) events: mpsc::Sender<Event>,
    pub(super) bus: Bus,
    pub(super) store: Store,
    pub(super) lanes: Lanes,
}

impl Desk {
    async fn answer(&self, mut stream: BufReader<UnixStream>) -> std::io::Result<()> {
        let mut line = String::new();
        (&mut stream).take(REQUEST_BYTES_MAX).read_line(&mut line).await?;
        let request = match serde_json::from_str(&line) {
            Ok(request) => request,
            Err(error) => {
                let refusal = Reply::refused("unknown", format!("not a request: {error}"));
                return write_line(stream.get_mut(), &refusal).await;
            }
        };
        if is_of_a_run(stream.get_ref()) {
            let words = "what a run's tools start cannot ask the scheduler for anything";
            tracing::warn!("a run's tools tried to talk to the scheduler");
            return write_line(stream.get_mut(), &Reply::refused("not_allowed", words.into()))
                .await;
        }
        match request {
            Request::Run { job, slot, force, no_deliver } => {
                let sending = if no_deliver { Sending::Suppressed } else { Sending::Usual };
                let wanted = |answer| Event::RunWanted { job, slot, force, sending, answer };
                let reply = self.ask(wanted).await;
                write_line(stream.get_mut(), &reply).await?;
                match reply {
                    Reply::Accepted { run_id } => self.follow(stream, run_id).await,
                    _ => Ok(()),
                }
            }
            Request::Agent { message, session } => {
                let wanted = |answer| Event::MessageWanted { text: message, session, answer };
                let reply = self.ask(wanted).await;
                write_line(stream.get_mut(), &reply).await?;
                match reply {
                    Reply::Heard(heard) => self.follow(stream, heard.run_id).await,
                    _ => Ok(()),
                }
            }
            Request::Follow { run_id } => self.follow(stream, run_id).await,
            Request::Backfill { job, slots } => {
                let reply = match self.next_attempts(&job, slots).await {
                    Ok(slots) => self.ask(|answer| Event::PastWanted { job, slots, answer }).await,
                    Err(error) => Reply::refused("internal", error.to_string()),
                };
                write_line(stream.get_mut(), &reply).await
            }
            Request::Pause { job, until, reason } => {
                let words = reason.unwrap_or_else(|| "no reason given".to_owned());
                let pause = Pause { cause: PauseCause::Person, words, until };
                let reply = self.ask(|answer| Event::PauseWanted { job, pause, answer }).await;
                write_line(stream.get_mut(), &reply).await
            }
            Request::Resume { job } => {
                let reply = self.ask(|answer| Event::ResumeWanted { job, answer }).await;
                write_line(stream.get_mut(), &reply).await
            }
            Request::Ack { incident } => {
                let reply = self.ask(|answer| Event::AckWanted { incident, answer }).await;
                write_line(stream.get_mut(), &reply).await
            }
            Request::Reload => {
                let reply = self.ask(|answer| Event::ReloadWanted(Some(answer))).await;
                write_line(stream.get_mut(), &reply).await
            }
            Request::Cancel { target } => {
                let reply = self.ask(|answer| Event::CancelWanted { target, answer }).await;
                if let Reply::Cancelled { run_ids } = &reply {
                    self.note_cancel(run_ids);
                }
                write_line(stream.get_mut(), &reply).await
            }
            Request::Status => {
                let mut reply = self.ask(Event::StatusWanted).await;
                if let Reply::Status(status) = &mut reply {
                    status.lanes = self.lanes.view();
                }
                write_line(stream.get_mut(), &reply).await
            }
        }
    }

    fn note_cancel(&self, run_ids: &[String]) {
        for run_id in run_ids {
            self.store.offer_audit(AuditRow {
                at: self.bus.now(),
                actor: Actor::Person,
                kind: AuditKind::Cancel,
                run_id: RunId::from_stored(run_id.as_str()),
                name: None,
                result: Some("requested"),
            });
        }
    }

    async fn ask(&self, event: impl FnOnce(oneshot::Sender<Reply>) -> Event) -> Reply {
        let (answer, answered) = oneshot::channel();
        let gone = || Reply::refused("gone", "the daemon is just leaving".into());
        if self.events.send(event(answer)).await.is_err() {
            return gone();
        }
        answered.await.unwrap_or_else(|_| gone())
    }

    /// Passes on what `run_id` tells until it is over, or until the client goes away.
    async fn follow(
        &self,
        mut stream: BufReader<UnixStream>,
        run_id: String,
    ) -> std::io::Result<()> {
        // Before the look at the record, so that its end is not missed.
        let mut run = self.bus.follow(&RunId::from_stored(run_id.as_str()));
        let run_id = &run_id;
        if let Some(ended) = self.record(run_id).await.filter(is_over) {
            return write_line(stream.get_mut(), &Reply::Ended(Box::new(ended))).await;
        }
        loop {
            let reply = tokio::select! {
                // A client says nothing more: whatever comes is its end.
                _ = stream.read_u8() => return Ok(()),
                heard = run.next() => match heard {
                    Heard::Event(event) => Reply::Event((*event).clone()),
                    Heard::Lost(events) => Reply::Lost { events },
                    Heard::Over => break,
                },
            };
            let over = match &reply {
                Reply::Event(event) => is_terminal(event),
                // The end may be among what was lost.
                Reply::Lost { .. } => {
                    self.record(run_id).await.is_some_and(|record| is_over(&record))
                }
                _ => false,
            };
            write_line(stream.get_mut(), &reply).await?;
            if over {
                break;
            }
        }
        match self.record(run_id).await {
            Some(record) => write_line(stream.get_mut(), &Reply::Ended(Box::new(record))).await,
            None => Ok(()),
        }
    }

    /// Each slot with the number of its next free attempt.
    async fn next_attempts(
        &self,
        job: &str,
        slots: Vec<jiff::Timestamp>,
    ) -> Result<Vec<(jiff::Timestamp, u32)>, StoreError> {
        let (store, job) = (self.store.clone(), job.to_owned());
        let read = move || {
            let reader = store.reader()?;
            let next = |due_at| Ok((due_at, reader.next_attempt(&job, due_at)?));
            slots.into_iter().map(next).collect()
        };
        tokio::task::spawn_blocking(read).await.unwrap_or(Err(StoreError::Stopped))
    }

    async fn record(&self, run_id: &str) -> Option<RunRecord> {
        let (store, run_id) = (self.store.clone(), run_id.to_owned());
        let read = move || store.reader().ok()?.run(&run_id).ok()?;
        tokio::task::spawn_blocking(read).await.ok()?
    }
}

/// Whether a run's tools have started whoever is at the other end. Where the system does not say,
/// the socket's own permissions have to do.
fn is_of_a_run(stream: &UnixStream) -> bool {
    let pid = stream.peer_cred().ok().and_then(|it| it.pid());
    pid.is_some_and(belongs_to_a_run)
}

fn is_over(record: &RunRecord) -> bool {
    record.finished_at.is_some()
}
