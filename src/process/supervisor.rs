//! The supervisor's side: one command, its descendants, and nothing else.
//!
//! It runs in a fresh copy of this binary, single-threaded and without an async runtime, so that it
//! starts in a few milliseconds and has nothing to go wrong. Its loop waits for the two things that
//! can happen, a line from the parent or a dead child, and then looks at the state of the world
//! instead of trusting the event: signals merge, and `wait` alone says who is gone. That nothing is
//! left is equally plain: a subreaper without children has no descendants.

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{self, Pid};
use tokio::time::Instant;

use super::identity::ProcessId;
use super::protocol::{Fact, Failure, Order, Request};
use super::table;
use super::tree::Leftover;
use crate::clock::{Clock, SystemClock};

/// The first argument that makes this binary a supervisor.
pub(super) const SUPERVISE: &str = "__supervise";

/// How the supervisor is named in `ps`.
const NAME: &CStr = c"punctual-watch";

/// Grace of a tree whose parent died: long enough to write a file, short enough for a restart.
const ORPHANS_GRACE: Duration = Duration::from_secs(2);

/// How often to look for newcomers while the grace runs.
const GRACE_ROUND: Duration = Duration::from_millis(50);

/// How often to kill again what is left.
const KILL_ROUND: Duration = Duration::from_millis(5);

/// For how long to kill again: only a process that the kernel itself holds survives the first.
pub(super) const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How many survivors are named.
const LEFT_NAMED_MAX: usize = 64;

/// Turns this process into a supervisor if its first argument says so, and then never returns.
///
/// To be called first thing in `main`, before anything is opened or started.
pub fn become_supervisor_if_asked() {
    if std::env::args_os().nth(1).is_some_and(|first| first == SUPERVISE) {
        std::process::exit(supervise());
    }
}

fn supervise() -> i32 {
    // Where that fails somebody typed it, or the parent is gone: there is nobody to tell.
    let Ok(socket) = set_up() else { return 2 };
    let mut line = Lines::new(socket);
    let Some(order) = line.wait().and_then(|line| serde_json::from_slice::<Order>(&line).ok())
    else {
        return 2;
    };
    let main = match start(&order) {
        Ok(main) => main,
        Err((what, error)) => {
            line.tell(&Fact::Failed { what, message: error.to_string() });
            return 1;
        }
    };
    drop(order);
    line.tell(&Fact::Started(main));
    match Watch::new(line, main) {
        Ok(watch) => watch.until_nothing_is_left(),
        // Without the signal descriptor there is no watching: end it at once, by polling.
        Err(line) => Watch::blind(line, main).until_nothing_is_left(),
    }
}

/// Leaves the terminal and the parent's descriptors behind; returns the parent's socket.
fn set_up() -> io::Result<UnixStream> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.peer_addr()?;
    let kept = std::os::fd::AsRawFd::as_raw_fd(&socket);
    for fd in open_descriptors()?.into_iter().filter(|&fd| fd > 2 && fd != kept) {
        // What whoever started the parent left open must not reach a command. One of these was
        // the listing itself, which is closed already.
        let _ = unistd::close(fd);
    }
    // A session of its own has no terminal: nothing below can ask a person for a password.
    unistd::setsid()?;
    prctl::set_child_subreaper(true)?;
    prctl::set_name(NAME)?;
    Ok(socket)
}

fn open_descriptors() -> io::Result<Vec<RawFd>> {
    let listing = fs::read_dir("/proc/self/fd")?;
    Ok(listing.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Starts the command, then lets go of the pipe, so that its end is seen when the command closes it.
#[expect(clippy::disallowed_methods, reason = "this is the place that starts processes")]
fn start(order: &Order) -> Result<ProcessId, (Failure, io::Error)> {
    let (program, arguments) = order
        .argv
        .split_first()
        .ok_or_else(|| (Failure::Command, io::Error::other("the command line is empty")))?;
    let folder = fs::metadata(&order.cwd).map_err(|error| (Failure::Folder, error))?;
    if !folder.is_dir() {
        return Err((Failure::Folder, ErrorKind::NotADirectory.into()));
    }
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    let nowhere = nowhere.map_err(|error| (Failure::Supervisor, error))?;
    let child = Command::new(program)
        .args(arguments)
        .current_dir(&order.cwd)
        .env_clear()
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => (Failure::NotFound, error),
            _ => (Failure::Command, error),
        })?;
    // The command runs, so this must not fail any more; it cannot with descriptors that are open.
    let _ = unistd::dup2_stdin(&nowhere);
    let _ = unistd::dup2_stdout(&nowhere);
    let _ = unistd::dup2_stderr(&nowhere);
    // It is not reaped yet, so its row is there even if it has ended.
    let pid = i32::try_from(child.id()).expect("a pid fits its own type");
    Ok(ProcessId::of(pid).unwrap_or(ProcessId { pid, start_time: 0 }))
}

/// How far the ending has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody asked for the end.
    Running,
    /// Everything was asked to end; it is killed at the given time.
    Grace { until: Instant },
    /// What is left is killed again and again, until the given time.
    Kill { until: Instant },
}

struct Watch {
    line: Lines,
    /// Readable when a child died; without it the loop polls.
    deaths: Option<SignalFd>,
    /// The command itself, until it was reaped.
    main: Option<Pid>,
    stage: Stage,
    signalled: HashSet<ProcessId>,
}

impl Watch {
    /// Blocks the signals that must not end the supervisor. This comes after the command was
    /// started, because it would inherit the mask.
    fn new(line: Lines, main: ProcessId) -> Result<Self, Lines> {
        let mut blocked = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
            blocked.add(signal);
        }
        blocked.add(Signal::SIGCHLD);
        let mut deaths = SigSet::empty();
        deaths.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        match blocked.thread_block().and_then(|()| SignalFd::with_flags(&deaths, flags)) {
            Ok(deaths) => Ok(Self { deaths: Some(deaths), ..Self::blind(line, main) }),
            Err(_) => Err(line),
        }
    }

    fn blind(line: Lines, main: ProcessId) -> Self {
        let main = Some(Pid::from_raw(main.pid));
        Self { line, deaths: None, main, stage: Stage::Running, signalled: HashSet::new() }
    }

    fn until_nothing_is_left(mut self) -> i32 {
        loop {
            if self.reap() == Reaped::NobodyLeft {
                return self.finish(Vec::new());
            }
            let wait = match self.stage {
                Stage::Running if self.deaths.is_some() => PollTimeout::NONE,
                Stage::Running => poll_timeout(GRACE_ROUND),
                Stage::Grace { until } => match left_until(until) {
                    None => {
                        let until = SystemClock.monotonic() + KILL_LIMIT;
                        self.stage = Stage::Kill { until };
                        continue;
                    }
                    Some(left) => {
                        self.ask_to_end();
                        poll_timeout(left.min(GRACE_ROUND))
                    }
                },
                Stage::Kill { until } => {
                    let left = kill_everything(&mut self.signalled);
                    if left_until(until).is_none() {
                        return self.finish(left);
                    }
                    poll_timeout(KILL_ROUND)
                }
            };
            self.wait_for_something(wait);
        }
    }

    /// Takes every dead child off the table; the command's own end is told.
    fn reap(&mut self) -> Reaped {
        loop {
            let (pid, fact) = match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Fact::ExitedWith(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Fact::KilledBy(signal as i32)),
                Ok(WaitStatus::StillAlive) => return Reaped::SomeLive,
                Err(Errno::ECHILD) => return Reaped::NobodyLeft,
                Ok(_) | Err(_) => continue,
            };
            if self.main == Some(pid) {
                self.main = None;
                self.line.tell(&fact);
            }
        }
    }

    fn ask_to_end(&mut self) {
        for row in table::descendants(&table::all(), &[own_pid()]) {
            if self.signalled.contains(&row.id) {
                continue;
            }
            if table::send(row.id, Signal::SIGTERM) == table::Signalled::Sent {
                // A stopped process cannot act on it.
                table::send(row.id, Signal::SIGCONT);
                self.signalled.insert(row.id);
            }
        }
    }

    fn wait_for_something(&mut self, wait: PollTimeout) {
        let mut watched = Vec::with_capacity(2);
        if let Some(socket) = self.line.open_socket() {
            watched.push(PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        }
        if let Some(deaths) = &self.deaths {
            watched.push(PollFd::new(deaths.as_fd(), PollFlags::POLLIN));
        }
        // An interrupted wait is as good as any: the loop looks at everything again.
        let _ = poll(&mut watched, wait);
        let has_line = self.line.is_open() && watched.first().and_then(PollFd::any) == Some(true);
        drop(watched);
        while let Some(Ok(Some(_))) = self.deaths.as_ref().map(SignalFd::read_signal) {}
        if has_line {
            self.listen();
        }
    }

    fn listen(&mut self) {
        self.line.fill();
        while let Some(line) = self.line.next() {
            if let Ok(Request::End { grace_ms }) = serde_json::from_slice(&line) {
                self.begin_to_end(Duration::from_millis(grace_ms));
            }
        }
        if !self.line.is_open() {
            self.begin_to_end(ORPHANS_GRACE);
        }
    }

    /// The end only ever comes nearer.
    fn begin_to_end(&mut self, grace: Duration) {
        let now = SystemClock.monotonic();
        let until = now.checked_add(grace).unwrap_or(now);
        self.stage = match self.stage {
            Stage::Running => Stage::Grace { until },
            Stage::Grace { until: before } => Stage::Grace { until: until.min(before) },
            kill @ Stage::Kill { .. } => kill,
        };
    }

    fn finish(mut self, left: Vec<Leftover>) -> i32 {
        let signalled = u32::try_from(self.signalled.len()).unwrap_or(u32::MAX);
        self.line.tell(&Fact::Gone { signalled, left });
        0
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Reaped {
    SomeLive,
    NobodyLeft,
}

/// Kills every descendant once, its group with it; returns those that were there.
fn kill_everything(signalled: &mut HashSet<ProcessId>) -> Vec<Leftover> {
    let rows = table::descendants(&table::all(), &[own_pid()]);
    let mut groups = HashSet::new();
    for row in &rows {
        // A descendant may have joined our own group; it is killed alone.
        if row.group != own_pid() && groups.insert(row.group) {
            table::kill_group_of(row);
        }
        table::send(row.id, Signal::SIGKILL);
        signalled.insert(row.id);
    }
    let named = rows.into_iter().take(LEFT_NAMED_MAX);
    named.map(|row| Leftover { id: row.id, name: row.name }).collect()
}

fn own_pid() -> i32 {
    Pid::this().as_raw()
}

fn left_until(until: Instant) -> Option<Duration> {
    let left = until.saturating_duration_since(SystemClock.monotonic());
    (!left.is_zero()).then_some(left)
}

/// Rounded up: a wait of nothing would spin.
fn poll_timeout(wait: Duration) -> PollTimeout {
    let millis = u16::try_from(wait.as_millis()).unwrap_or(u16::MAX).max(1);
    PollTimeout::from(millis)
}

/// The parent's socket, a line at a time.
struct Lines {
    socket: Option<UnixStream>,
    /// For the way back, which stays open when the parent has shut its own.
    back: Option<UnixStream>,
    read: Vec<u8>,
}

impl Lines {
    fn new(socket: UnixStream) -> Self {
        let back = socket.try_clone().ok();
        Self { socket: Some(socket), back, read: Vec::new() }
    }

    fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    fn open_socket(&self) -> Option<&UnixStream> {
        self.socket.as_ref()
    }

    /// Reads once, which does not block after a poll said so; notes the end of the stream.
    fn fill(&mut self) {
        let mut chunk = [0; 8 * 1024];
        let Some(socket) = &mut self.socket else { return };
        match socket.read(&mut chunk) {
            Ok(0) => self.socket = None,
            Ok(count) => self.read.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.socket = None,
        }
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.read.iter().position(|&byte| byte == b'\n')?;
        let rest = self.read.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.read, rest);
        line.pop();
        Some(line)
    }

    fn wait(&mut self) -> Option<Vec<u8>> {
        while self.is_open() {
            self.fill();
            if let Some(line) = self.next() {
                return Some(line);
            }
        }
        None
    }

    /// Tells the parent. If it is gone, the read side says so; there is nothing to do here.
    fn tell(&mut self, fact: &Fact) {
        let mut line = serde_json::to_vec(fact).expect("a fact is plain data");
        line.push(b'\n');
        if let Some(back) = &mut self.back {
            let _ = back.write_all(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_where_they_end_and_not_where_the_socket_paused() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(theirs);
        ours.write_all(b"one\ntw").unwrap();
        assert_eq!(lines.wait(), Some(b"one".to_vec()));
        ours.write_all(b"o\nthree").unwrap();
        assert_eq!(lines.wait(), Some(b"two".to_vec()));
        drop(ours);
        assert_eq!(lines.wait(), None);
        assert!(!lines.is_open());
    }
}
