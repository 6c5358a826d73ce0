//! One supervised command, seen from our side.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::adopted;
use super::asking;
use super::identity::ProcessId;
use super::output::{Collected, Output, Pipes};
use super::protocol::{Fact, Failure, Request};
use super::stray::{self, Mark};
use super::table;
use super::watch::KILL_LIMIT;
use crate::clock::{Clock as _, SystemClock};

/// What a supervisor may take beyond its own limits before it counts as stuck.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Not within the limit; it still runs.
    TimedOut,
    /// Nobody knows: its supervisor was killed.
    Unknown,
}

impl Exit {
    /// What is wrong with it, if it is not one of the codes that are a success; `limit` is what
    /// the command had.
    pub fn complaint(self, ok: &[i32], limit: Duration) -> Option<String> {
        match self {
            Self::Code(code) if ok.contains(&code) => None,
            Self::Code(code) => Some(format!("it exited with {code}")),
            Self::Signal(signal) => Some(format!("signal {signal} ended it")),
            Self::TimedOut => {
                Some(format!("it took longer than {}", humantime::format_duration(limit)))
            }
            Self::Unknown => Some("how it ended is not known".to_owned()),
        }
    }

    /// The exit code, if it ended by itself.
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(_) | Self::TimedOut | Self::Unknown => None,
        }
    }
}

/// A command that ended, or that was waited for long enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub exit: Exit,
    /// What it had printed until then.
    pub output: Output,
    /// The same on standard error, where that was kept apart.
    pub errors: Output,
}

/// A process that outlived the end of its tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leftover {
    /// Which one.
    pub id: ProcessId,
    /// Its name, as the kernel shows it.
    pub name: String,
}

/// What the end of a tree took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeEnd {
    /// How many processes had to be signalled.
    pub killed: u32,
    /// What is left all the same, in part by name.
    pub left: Vec<Leftover>,
}

impl TreeEnd {
    pub(super) fn add(&mut self, other: Self) {
        self.killed = self.killed.saturating_add(other.killed);
        self.left.extend(other.left);
    }
}

/// A running command. Dropping it ends nothing: its tree stays supervised until its household ends.
#[derive(Debug)]
pub struct Child {
    tree: Arc<Tree>,
    pipes: Pipes,
    id: ProcessId,
}

impl Child {
    pub(super) fn new(tree: Arc<Tree>, pipes: Pipes, id: ProcessId) -> Self {
        Self { tree, pipes, id }
    }

    /// The command's own process.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Waits for the command itself, for up to `limit`, and a moment for what it printed last.
    ///
    /// It does not wait for what the command left in the background, even where that holds the
    /// pipe. A command that timed out goes on: see [`Child::end`]. May be called again.
    pub async fn wait_output(&self, limit: Duration) -> Ended {
        let exit = timeout(limit, self.tree.exit()).await.unwrap_or(Exit::TimedOut);
        let Pipes { output, errors } = &self.pipes;
        if exit != Exit::TimedOut {
            for pipe in output.iter().chain(errors) {
                pipe.settle().await;
            }
        }
        let text = |pipe: &Option<Collected>| pipe.as_ref().map(Collected::output);
        let (output, errors) = (text(output), text(errors));
        Ended { exit, output: output.unwrap_or_default(), errors: errors.unwrap_or_default() }
    }

    /// What it has printed so far.
    pub fn output_so_far(&self) -> Output {
        self.pipes.output.as_ref().map(Collected::output).unwrap_or_default()
    }

    /// The same on standard error, where that is kept apart.
    pub fn errors_so_far(&self) -> Output {
        self.pipes.errors.as_ref().map(Collected::output).unwrap_or_default()
    }

    /// Ends this command's tree: asks all of it, waits `grace`, then kills until none is left.
    pub async fn end(&self, grace: Duration) -> TreeEnd {
        self.tree.end(grace).await
    }
}

/// A command that somebody talks with.
#[derive(Debug)]
pub struct Talk {
    /// The command.
    pub child: Child,
    /// What it writes to its standard output.
    pub from: OwnedReadHalf,
    /// What it reads on its standard input. Dropping it is the end of that.
    pub to: OwnedWriteHalf,
}

/// What the supervisor has told so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub started: Option<Result<ProcessId, (Failure, String)>>,
    exit: Option<Exit>,
    pub end: Option<SupervisorEnd>,
}

/// How a supervisor ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SupervisorEnd {
    /// With an account of its tree.
    Told(TreeEnd),
    /// Without a word: it was killed. Its tree may live on.
    Lost,
}

/// The way to a supervisor. Dropping the last one closes the socket, which ends the tree.
#[derive(Debug)]
pub(super) struct Tree {
    supervisor: ProcessId,
    socket: Mutex<OwnedWriteHalf>,
    story: watch::Receiver<Story>,
}

impl Tree {
    pub fn new(
        supervisor: ProcessId,
        process: tokio::process::Child,
        socket: tokio::net::UnixStream,
    ) -> Self {
        let (facts, socket) = socket.into_split();
        let (teller, story) = watch::channel(Story::default());
        tokio::spawn(listen(supervisor, process, facts, teller));
        Self { supervisor, socket: Mutex::new(socket), story }
    }

    pub async fn send(&self, line: &impl Serialize) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        self.socket.lock().await.write_all(&line).await
    }

    /// Returns when `seen` holds, or the supervisor is gone.
    pub async fn until<T>(&self, seen: impl Fn(&Story) -> Option<T>) -> Option<T> {
        let mut story = self.story.clone();
        let told = story.wait_for(|story| story.end.is_some() || seen(story).is_some()).await;
        // The teller sets the end before it leaves.
        told.ok().and_then(|story| seen(&story))
    }

    async fn exit(&self) -> Exit {
        self.until(|story| story.exit).await.unwrap_or(Exit::Unknown)
    }

    /// How the supervisor ended, if it did.
    pub fn ended(&self) -> Option<SupervisorEnd> {
        self.story.borrow().end.clone()
    }

    /// Whether nothing is left of it, nothing was killed and nothing is unknown.
    pub fn is_forgettable(&self) -> bool {
        self.ended() == Some(SupervisorEnd::Told(TreeEnd::default()))
    }

    pub async fn end(&self, grace: Duration) -> TreeEnd {
        let give_up_at = SystemClock.monotonic() + grace;
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        // A command may have stopped it.
        table::send(self.supervisor, Signal::SIGCONT);
        let answer = async {
            // If it does not reach the supervisor any more, its end is on the way.
            let _ = self.send(&Request::End { grace_ms }).await;
            self.until(|story| story.end.clone()).await
        };
        let limit = grace.saturating_add(KILL_LIMIT).saturating_add(ANSWER_LIMIT);
        let end = match timeout(limit, answer).await {
            Ok(end) => end,
            Err(_) => self.give_up().await,
        };
        match end {
            Some(SupervisorEnd::Told(end)) => end,
            // Whoever has had the grace already gets no second one.
            Some(SupervisorEnd::Lost) | None => {
                let left = give_up_at.saturating_duration_since(SystemClock.monotonic());
                stray::end(&self.below_main(), left).await
            }
        }
    }

    /// Which process supervises it.
    pub fn supervisor(&self) -> ProcessId {
        self.supervisor
    }

    /// Kills the supervisor, if it is there.
    pub fn kill_supervisor(&self) {
        table::send(self.supervisor, Signal::SIGKILL);
    }

    /// Kills a supervisor that does not answer.
    pub async fn give_up(&self) -> Option<SupervisorEnd> {
        self.kill_supervisor();
        timeout(ANSWER_LIMIT, self.until(|story| story.end.clone())).await.ok().flatten()
    }

    fn below_main(&self) -> Mark {
        match self.story.borrow().started {
            Some(Ok(main)) => Mark::Below(main),
            Some(Err(_)) | None => Mark::Nothing,
        }
    }
}

/// Writes down what the supervisor tells. Its end is told once it is reaped, so that whoever waits
/// for the end finds no zombie either.
async fn listen(
    supervisor: ProcessId,
    mut process: tokio::process::Child,
    facts: OwnedReadHalf,
    teller: watch::Sender<Story>,
) {
    let mut end = SupervisorEnd::Lost;
    let mut lines = BufReader::new(facts).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(fact) = serde_json::from_str::<Fact>(&line) else { continue };
        match fact {
            Fact::Started(main) => teller.send_modify(|story| story.started = Some(Ok(main))),
            Fact::Failed { what, message } => {
                end = SupervisorEnd::Told(TreeEnd::default());
                teller.send_modify(|story| story.started = Some(Err((what, message))));
            }
            Fact::ExitedWith(code) => {
                teller.send_modify(|story| story.exit = Some(Exit::Code(code)));
            }
            Fact::KilledBy(signal) => {
                teller.send_modify(|story| story.exit = Some(Exit::Signal(signal)));
            }
            Fact::Gone { signalled, left } => {
                end = SupervisorEnd::Told(TreeEnd { killed: signalled, left });
            }
        }
    }
    // An error would mean that somebody else reaped it.
    let _ = process.wait().await;
    adopted::forget(supervisor);
    asking::forget(supervisor);
    teller.send_modify(|story| story.end = Some(end));
}
