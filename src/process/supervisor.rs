//! The supervisor's side: set itself up, start one command, watch over what comes of it.
//!
//! It runs in a fresh copy of this binary, single-threaded and without an async runtime, so that it
//! starts in a few milliseconds and has nothing to go wrong.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sys::prctl;
use nix::unistd;

use super::identity::ProcessId;
use super::lines::Lines;
use super::protocol::{Fact, Failure, Input, Order};
use super::watch::Watch;

/// The first argument that makes this binary a supervisor.
pub(super) const SUPERVISE: &str = "__supervise";

/// How the supervisor is named in `ps`.
pub(super) const NAME: &CStr = c"punctual-watch";

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
    let kept = socket.as_raw_fd();
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
    let stdin = match &order.input {
        Input::File(path) => File::open(path).map(Stdio::from),
        Input::Nothing => Ok(Stdio::null()),
        Input::Talk => io::stdout().as_fd().try_clone_to_owned().map(Stdio::from),
    };
    let stdin = stdin.map_err(|error| (Failure::Supervisor, error))?;
    let child = Command::new(program)
        .args(arguments)
        .current_dir(&order.cwd)
        .env_clear()
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .stdin(stdin)
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
