//! The supervisor's loop: wait for the two things that can happen, a line from the parent or a dead
//! child, and then look at the state of the world instead of trusting the event: signals merge, and
//! `wait` alone says who is gone. That nothing is left is equally plain: a subreaper without
//! children has no descendants.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::identity::ProcessId;
use super::lines::Lines;
use super::protocol::{Fact, Request};
use super::table;
use super::tree::Leftover;
use crate::clock::{Clock, SystemClock};

/// Grace of a tree whose parent died: long enough to write a file, short enough for a restart.
pub(super) const ORPHANS_GRACE: Duration = Duration::from_secs(2);

/// How often to look for newcomers while the grace runs.
const GRACE_ROUND: Duration = Duration::from_millis(50);

/// How often to kill again what is left.
const KILL_ROUND: Duration = Duration::from_millis(5);

/// For how long to kill again: only a process that the kernel itself holds survives the first.
pub(super) const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How many survivors are named.
const LEFT_NAMED_MAX: usize = 64;

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

/// A supervisor at work.
pub(super) struct Watch {
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
    pub fn new(line: Lines, main: ProcessId) -> Result<Self, Lines> {
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

    pub fn blind(line: Lines, main: ProcessId) -> Self {
        let main = Some(Pid::from_raw(main.pid));
        Self { line, deaths: None, main, stage: Stage::Running, signalled: HashSet::new() }
    }

    pub fn until_nothing_is_left(mut self) -> i32 {
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
