//! A verb's end of the control socket.

use std::path::{Path, PathBuf};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixStream;

use super::protocol::{Reply, Request};
use super::socket::{self, write_line};

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
    /// Connects to the process that holds `state_dir`. One that is just leaving, and resets the
    /// connection while it is made, counts as gone.
    pub async fn connect(state_dir: &Path) -> Result<Self, ControlError> {
        use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
        match socket::connect(state_dir).await {
            Ok(stream) => Ok(Self { stream: BufReader::new(stream), line: Vec::new() }),
            Err(source) => Err(match source.kind() {
                ConnectionRefused | NotFound | ConnectionReset | BrokenPipe => {
                    ControlError::NotRunning
                }
                _ => ControlError::Connect { state_dir: state_dir.to_owned(), source },
            }),
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
