//! The supervisor's side: set itself up, start one command, watch over what comes of it.
//!
//! It runs in a fresh copy of this binary, single-threaded and without an async runtime, so that it
//! starts in a few milliseconds and has nothing to go wrong.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::sys::prctl;
use nix::unistd;

use super::become_command::{self, BECOME, become_command};
use super::confine::{Closing, Confinement};
use super::identity::ProcessId;
use super::lines::Lines;
use super::protocol::{Fact, Failure, Input, Order};
use super::watch::Watch;

/// The first argument that makes this binary a supervisor.
pub(super) const SUPERVISE: &str = "__supervise";

/// How the supervisor is named in `ps`.
pub(super) const NAME: &CStr = c"punctual-watch";

/// Turns this process into a supervisor, or into the command of one, if its first argument says so,
/// and then never returns.
///
/// To be called first thing in `main`, before anything is opened or started.
pub fn become_supervisor_if_asked() {
    if std::env::args_os().nth(1).is_some_and(|first| first == SUPERVISE) {
        std::process::exit(supervise());
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == BECOME) {
        std::process::exit(become_command());
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
        Err((what, message)) => {
            line.tell(&Fact::Failed { what, message });
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
fn start(order: &Order) -> Result<ProcessId, (Failure, String)> {
    let folder = fs::metadata(&order.cwd).map_err(told(Failure::Folder))?;
    if !folder.is_dir() {
        return Err(told(Failure::Folder)(ErrorKind::NotADirectory.into()));
    }
    let nowhere = File::options().read(true).write(true).open("/dev/null");
    let nowhere = nowhere.map_err(told(Failure::Supervisor))?;
    let main = match &order.confinement {
        Confinement::Off => start_free(order)?,
        Confinement::Humble => become_command::start(order, Closing::ByRules)?,
        Confinement::Fenced(_) => match become_command::start(order, Closing::ByMounts) {
            Err((Failure::Mounts, _)) => become_command::start(order, Closing::ByRules)?,
            result => result?,
        },
    };
    // The command runs, so this must not fail any more; it cannot with descriptors that are open.
    let _ = unistd::dup2_stdin(&nowhere);
    let _ = unistd::dup2_stdout(&nowhere);
    let _ = unistd::dup2_stderr(&nowhere);
    Ok(main)
}

/// Starts a command that is not confined.
#[expect(clippy::disallowed_methods, reason = "this is the place that starts processes")]
fn start_free(order: &Order) -> Result<ProcessId, (Failure, String)> {
    let mut command =
        command(order).ok_or_else(|| (Failure::Command, "the command line is empty".to_owned()))?;
    let stdin = stdin_of(order).map_err(told(Failure::Supervisor))?;
    let child = command.stdin(stdin).process_group(0).spawn().map_err(|error| {
        let what = match error.kind() {
            ErrorKind::NotFound => Failure::NotFound,
            _ => Failure::Command,
        };
        told(what)(error)
    })?;
    Ok(ProcessId::of_child(child.id()))
}

/// The command, but for its standard input; none for an empty command line.
pub(super) fn command(order: &Order) -> Option<Command> {
    let (program, arguments) = order.argv.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&order.cwd).env_clear();
    command.envs(order.env.iter().map(|(name, value)| (name, value)));
    Some(command)
}

/// What it reads.
pub(super) fn stdin_of(order: &Order) -> io::Result<Stdio> {
    match &order.input {
        Input::File(path) => File::open(path).map(Stdio::from),
        Input::Nothing => Ok(Stdio::null()),
        Input::Talk => io::stdout().as_fd().try_clone_to_owned().map(Stdio::from),
    }
}

fn told(what: Failure) -> impl Fn(io::Error) -> (Failure, String) {
    move |error| (what, error.to_string())
}
