//! The two ends of what a command writes to: ours, and the ones that it gets.

use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;

use tokio::net::UnixStream;

use super::household::Errors;
use super::output::{Collected, Pipes};

/// Both ends.
pub(super) struct Ends {
    /// What we read.
    pub pipes: Pipes,
    /// What we talk over, with a command that is talked with.
    pub line: Option<UnixStream>,
    /// The command's standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
}

impl Ends {
    /// Of a command that only prints; `bytes_max` of it are kept.
    pub fn of_pipes(bytes_max: usize, errors: Errors) -> io::Result<Self> {
        let (output, stdout) = pipe(bytes_max)?;
        let (errors, stderr) = match errors {
            Errors::WithOutput => (None, stdout.try_clone()?),
            Errors::Apart => pipe(bytes_max).map(|(errors, writer)| (Some(errors), writer))?,
        };
        let pipes = Pipes { output: Some(output), errors };
        Ok(Self { pipes, line: None, stdout: stdout.into(), stderr: stderr.into() })
    }

    /// Of a command that is talked with; `bytes_max` of its standard error are kept.
    pub fn of_talk(bytes_max: usize) -> io::Result<Self> {
        let (errors, stderr) = pipe(bytes_max)?;
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let pipes = Pipes { output: None, errors: Some(errors) };
        let line = Some(UnixStream::from_std(ours)?);
        Ok(Self { pipes, line, stdout: theirs.into(), stderr: stderr.into() })
    }
}

fn pipe(bytes_max: usize) -> io::Result<(Collected, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    Ok((Collected::from(OwnedFd::from(reader), bytes_max)?, writer))
}
