//! A daemon inside another program.

use std::path::Path;
use std::sync::Arc;

use super::lock::Kind;
use super::open::{Daemon, OpenError};
use super::protocol::is_terminal;
use super::serve::{Listening, Stopped};
use super::signals::Signals;
use super::socket;
use tokio::sync::broadcast::error::RecvError;

use crate::clock::SystemClock;
use crate::config::{self, Sources};
use crate::executor::Embedding;
use crate::job::{Environment, Problem};
use crate::process::SupervisorPath;

/// A daemon that cannot be had in this folder.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// Its configuration cannot be used.
    #[error("config.toml: {}", .0.first().map_or("it cannot be used", |it| it.message.as_str()))]
    Config(Vec<Problem>),
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Daemon {
    /// The daemon of `folder`, with its `config.toml`, and `state` unless that says otherwise. Its
    /// supervisor is this very program: see [`crate::process::become_supervisor_if_asked`].
    pub async fn in_folder(folder: &Path, embedding: Embedding) -> Result<Self, EmbedError> {
        let sources = Sources {
            config_paths: vec!["config.toml".into()],
            state_dir: None,
            environment: Environment::of_process(),
            current_dir: folder.to_owned(),
        };
        let (config, _) = config::load(&sources).map_err(EmbedError::Config)?;
        let (clock, supervisor) = (Arc::new(SystemClock), SupervisorPath::current_exe());
        let daemon = Self::open(config, Kind::Serve, clock, supervisor).await?;
        Ok(daemon.embedding(embedding))
    }

    /// The same with what a program brings along.
    #[must_use]
    pub fn embedding(mut self, embedding: Embedding) -> Self {
        let executor = Arc::get_mut(&mut self.executor);
        executor.expect("a daemon that does not serve yet shares it with nobody").embed(embedding);
        self
    }

    /// Done when so many runs have ended from now on, however they ended; their rows are stored
    /// then.
    pub fn runs_ended(&self, count: usize) -> impl Future<Output = ()> + Send + use<> {
        let mut events = self.events();
        async move {
            let mut left = count;
            while left > 0 {
                match events.recv().await {
                    Ok(event) if is_terminal(&event) => left -= 1,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        }
    }

    /// Serves until `stop` is done, and then as after a first signal: what runs has the grace of
    /// `scheduler.shutdown_grace`. The signals of the process stay with the program.
    pub async fn serve_until(
        self,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<Stopped> {
        let signals = Signals::asked_by(stop);
        let socket = socket::listen(&self.executor.config.state_dir)?;
        self.serve(Listening { signals, socket }).await
    }
}
