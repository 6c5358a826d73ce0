//! The control socket: how verbs talk to the process that holds the state folder.
//!
//! A line of JSON asks, lines of JSON answer. A client that goes away ends its own listening and
//! nothing else: no run ends because a terminal was closed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::dispatcher::Event;
use super::socket;
use crate::executor::{Bus, LaneView};
use crate::run::{EventPhase, RunEvent, Stream, Trigger};
use crate::store::{RunRecord, Store};

/// A request is a line; longer ones are refused before they are read whole.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Request {
    /// Start a run and tell how it goes.
    Run {
        /// Of which job.
        job: String,
        /// Whose slot's variables it gets.
        slot: Option<Timestamp>,
        /// Lifts `enabled = false`.
        force: bool,
    },
    /// Tell how a run goes.
    Follow {
        /// Which run.
        run_id: String,
    },
    /// End runs.
    Cancel {
        /// Which.
        target: Target,
    },
    /// Tell how things are.
    Status,
}

/// Which runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// All active ones of a job.
    Job(String),
    /// This one.
    Run(String),
}

/// What is answered, a line each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The run is recorded. Events follow, then `Ended`.
    Accepted {
        /// Its id.
        run_id: String,
    },
    /// It will not be done.
    Refused {
        /// A word for scripts: `unknown`, `invalid`, `disabled`, `overlap`, `stopping`, `internal`;
        /// `gone`: the process was leaving and has not looked at the request.
        reason: String,
        /// The same for people.
        message: String,
    },
    /// Something happened in the run.
    Event(RunEvent),
    /// The listener was too slow for so many events.
    Lost {
        /// How many.
        events: u64,
    },
    /// The run is over.
    Ended(Box<RunRecord>),
    /// These runs were asked to end.
    Cancelled {
        /// Their ids.
        run_ids: Vec<String>,
    },
    /// How things are.
    Status(Box<Status>),
}

/// How things are in the process that holds the state folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Jobs that can run.
    pub jobs: usize,
    /// Files that define none, with the reason.
    pub invalid: BTreeMap<String, String>,
    /// What is due next.
    pub next: Option<StatusNext>,
    /// Runs that wait or run.
    pub runs: Vec<StatusRun>,
    /// The lanes.
    pub lanes: Vec<LaneView>,
}

/// A job and when it is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusNext {
    /// The job.
    pub job: String,
    /// When it is due.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub due_at: Timestamp,
}

/// An active run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRun {
    /// Its id.
    pub run_id: String,
    /// Its job.
    pub job: String,
    /// What made it start.
    pub trigger: Trigger,
    /// When it was accepted.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub since: Timestamp,
    /// Whether it waits for a lane.
    pub waiting: bool,
}

impl Reply {
    /// A refusal.
    pub fn refused(reason: &str, message: String) -> Self {
        Self::Refused { reason: reason.into(), message }
    }
}

/// What can go wrong on the socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error("no punctual process holds this state folder")]
    NotRunning,
    /// The state folder or its socket cannot be reached.
    #[error("failed to look for a running punctual process in {}", state_dir.display())]
    Connect {
        /// Where.
        state_dir: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection to the running punctual process broke")]
    Io(#[from] std::io::Error),
    /// It answered in words that are not known here.
    #[error("the running punctual process gave an answer that this version does not know")]
    Unknown(#[source] serde_json::Error),
}

/// A verb's end of the socket.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    /// As much as has come of the next line: whoever waits for it may turn to something else.
    line: Vec<u8>,
}

impl Client {
    /// Connects to the process that holds `state_dir`.
    pub async fn connect(state_dir: &Path) -> Result<Self, ControlError> {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match socket::connect(state_dir).await {
            Ok(stream) => Ok(Self { stream: BufReader::new(stream), line: Vec::new() }),
            Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => {
                Err(ControlError::NotRunning)
            }
            Err(source) => Err(ControlError::Connect { state_dir: state_dir.to_owned(), source }),
        }
    }

    /// Asks.
    pub async fn ask(&mut self, request: &Request) -> Result<(), ControlError> {
        write_line(self.stream.get_mut(), request).await.map_err(Into::into)
    }

    /// The next line of the answer; `None` at its end. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<Option<Reply>, ControlError> {
        self.stream.read_until(b'\n', &mut self.line).await?;
        let line = std::mem::take(&mut self.line);
        // Without its end it is not all of it.
        if !line.ends_with(b"\n") {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).map_err(ControlError::Unknown)
    }
}

/// Answers everyone who connects, until it is dropped.
pub(super) async fn answer_all(
    listener: UnixListener,
    events: mpsc::Sender<Event>,
    bus: Bus,
    store: Store,
    lanes: Arc<dyn Fn() -> Vec<LaneView> + Send + Sync>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let desk = Desk {
                    events: events.clone(),
                    bus: bus.clone(),
                    store: store.clone(),
                    lanes: Arc::clone(&lanes),
                };
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

struct Desk {
    events: mpsc::Sender<Event>,
    bus: Bus,
    store: Store,
    lanes: Arc<dyn Fn() -> Vec<LaneView> + Send + Sync>,
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
        match request {
            Request::Run { job, slot, force } => {
                // Before the run exists, so that nothing of it is missed.
                let listening = self.bus.listen();
                let reply = self.ask(|answer| Event::RunWanted { job, slot, force, answer }).await;
                write_line(stream.get_mut(), &reply).await?;
                match reply {
                    Reply::Accepted { run_id } => self.follow(stream, &run_id, listening).await,
                    _ => Ok(()),
                }
            }
            Request::Follow { run_id } => {
                let listening = self.bus.listen();
                self.follow(stream, &run_id, listening).await
            }
            Request::Cancel { target } => {
                let reply = self.ask(|answer| Event::CancelWanted { target, answer }).await;
                write_line(stream.get_mut(), &reply).await
            }
            Request::Status => {
                let mut reply = self.ask(Event::StatusWanted).await;
                if let Reply::Status(status) = &mut reply {
                    status.lanes = (self.lanes)();
                }
                write_line(stream.get_mut(), &reply).await
            }
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
        run_id: &str,
        mut listening: broadcast::Receiver<Arc<RunEvent>>,
    ) -> std::io::Result<()> {
        if let Some(ended) = self.record(run_id).await.filter(is_over) {
            return write_line(stream.get_mut(), &Reply::Ended(Box::new(ended))).await;
        }
        loop {
            let reply = tokio::select! {
                // A client says nothing more: whatever comes is its end.
                _ = stream.read_u8() => return Ok(()),
                event = listening.recv() => match event {
                    Ok(event) if event.run_id.as_str() == run_id => Reply::Event((*event).clone()),
                    Ok(_) => continue,
                    Err(broadcast::error::RecvError::Lagged(events)) => Reply::Lost { events },
                    Err(broadcast::error::RecvError::Closed) => return Ok(()),
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

    async fn record(&self, run_id: &str) -> Option<RunRecord> {
        let (store, run_id) = (self.store.clone(), run_id.to_owned());
        let read = move || store.reader().ok()?.run(&run_id).ok()?;
        tokio::task::spawn_blocking(read).await.ok()?
    }
}

/// Whether `event` is the one terminal lifecycle event of its run.
pub(crate) fn is_terminal(event: &RunEvent) -> bool {
    event.stream == Stream::Lifecycle && matches!(event.phase, EventPhase::End | EventPhase::Error)
}

fn is_over(record: &RunRecord) -> bool {
    record.finished_at.is_some()
}

async fn write_line(stream: &mut UnixStream, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line).await
}
