//! A process that confines itself and then becomes a command.
//!
//! The supervisor cannot do it: what binds it would bind its hands, too. So a confined command
//! begins as another copy of this binary, which is told what to do on its standard input, and tells
//! there what went wrong. If nothing does, that socket is closed by becoming the command.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::confine::{self, Closing, ConfineError};
use super::identity::ProcessId;
use super::protocol::{Becoming, Failure, Order};
use super::supervisor::{command, stdin_of};

/// The first argument that makes this binary such a process.
pub(super) const BECOME: &str = "__become";

/// Becomes what it is told, or tells why not; returns only then.
pub(super) fn become_command() -> i32 {
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return 2 };
    let mut socket = UnixStream::from(socket);
    let (what, message) = match told(&mut socket) {
        Ok(Becoming { order, closing }) => become_it(&order, closing),
        Err(_) => return 2,
    };
    if let Ok(words) = serde_json::to_vec(&(what, message)) {
        let _ = socket.write_all(&words);
    }
    1
}

fn told(socket: &mut UnixStream) -> io::Result<Becoming<Order>> {
    // The supervisor shuts its side when all is said.
    let mut text = Vec::new();
    socket.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn become_it(order: &Order, closing: Closing) -> (Failure, String) {
    let failed = |what, error: &dyn std::error::Error| (what, chain(error));
    let stdin = match stdin_of(order) {
        Ok(stdin) => stdin,
        Err(error) => return failed(Failure::Supervisor, &error),
    };
    match confine::confine(&order.confinement, closing) {
        Ok(()) => {}
        Err(error @ ConfineError::Mounts(_)) => return failed(Failure::Mounts, &error),
        Err(error) => return failed(Failure::Confinement, &error),
    }
    let Some(mut command) = command(order) else { return (Failure::Command, String::new()) };
    let error = command.stdin(stdin).exec();
    match error.kind() {
        ErrorKind::NotFound => failed(Failure::NotFound, &error),
        _ => failed(Failure::Command, &error),
    }
}

/// Starts `order` by way of such a process, which is the command when this returns.
#[expect(clippy::disallowed_methods, reason = "the supervisor's way to start a confined command")]
pub(super) fn start(order: &Order, closing: Closing) -> Result<ProcessId, (Failure, String)> {
    let failed = |error: io::Error| (Failure::Supervisor, error.to_string());
    let (mut ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut child = Command::new("/proc/self/exe")
        .arg(BECOME)
        .current_dir("/")
        .env_clear()
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let words = serde_json::to_vec(&Becoming { order, closing }).map_err(io::Error::from);
    let mut why_not = Vec::new();
    let talk = words.and_then(|words| {
        ours.write_all(&words)?;
        ours.shutdown(std::net::Shutdown::Write)?;
        ours.read_to_end(&mut why_not)
    });
    match talk {
        // The socket was closed by becoming the command.
        Ok(0) => Ok(ProcessId::of_child(child.id())),
        result => {
            // It is on its way out, and its end is nobody's to see.
            let _ = child.wait();
            let told = result.and_then(|_| Ok(serde_json::from_slice(&why_not)?));
            Err(told.unwrap_or_else(failed))
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
