//! The process that holds the state folder: a running one, or this one for as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use super::context::{Place, now};
use super::output::{self, Failed, note};
use crate::clock::{SystemClock, to_millis};
use crate::daemon::{
    Client, ControlError, Daemon, Kind, LockError, OpenError, Reply, Request, Stopped,
};
use crate::process::{self, SupervisorPath};
use crate::store::Store;

/// Another process may hold the state folder and not answer yet, or not any more.
const REACH_WITHIN: Duration = Duration::from_secs(10);

/// How many processes may leave between being reached and answering.
pub(super) const REACHED_MAX: usize = 20;

/// How long the row of a run that is left behind may take to be closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Whether this process may become the one that holds the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnDaemon {
    /// If no other one does.
    IfNeeded,
    /// Nobody would be left to see to what is asked.
    Never,
}

/// The daemon of this very process.
pub(super) struct Own {
    serving: tokio::task::JoinHandle<std::io::Result<Stopped>>,
    store: Store,
}

impl Own {
    /// It ends by itself once nothing runs; a run that was cut is tidied first.
    pub(super) async fn ended(self) -> Result<(), Failed> {
        let stopped = self.serving.await.map_err(|error| Failed::broken(&error))??;
        tracing::debug!(?stopped, "the daemon of this process has ended");
        Ok(())
    }

    /// The run that is left behind in mid clean-up does not stay open in the history.
    pub(super) async fn close_row(&self) {
        let closing = self.store.close_open_runs(to_millis(now()));
        match tokio::time::timeout(CLOSE_WITHIN, closing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => note(&output::chain(&error)),
            Err(_) => note("the database took too long: the next start closes the run's row"),
        }
    }
}

/// A connection to it; with its daemon if it is this process.
pub(super) async fn reach(place: &Place, own: OwnDaemon) -> Result<(Client, Option<Own>), Failed> {
    let reaching = async {
        loop {
            match Client::connect(&place.state_dir).await {
                Ok(client) => return Ok((client, None)),
                Err(ControlError::NotRunning) if own == OwnDaemon::Never => {
                    return Err(Failed::refused("--detach needs a running `punctual serve`"));
                }
                Err(ControlError::NotRunning) => {}
                Err(error) => return Err(Failed::unasked(&error)),
            }
            let Some(config) = &place.config else {
                let words = "no `punctual serve` runs here, and without a configuration that can \
                             be used nothing else can do it";
                return Err(Failed::usage(words));
            };
            process::adopt_orphans()?;
            let clock = Arc::new(SystemClock);
            let supervisor = SupervisorPath::current_exe();
            match Daemon::open(config.clone(), Kind::Run, clock, supervisor).await {
                Ok(daemon) => {
                    let listening = daemon.listen()?;
                    let store = daemon.store();
                    let serving = tokio::spawn(daemon.serve(listening));
                    let client = Client::connect(&config.state_dir).await?;
                    return Ok((client, Some(Own { serving, store })));
                }
                // It is just starting or just ending.
                Err(OpenError::Lock(LockError::Held { .. })) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(Failed::usage(output::chain(&error))),
            }
        }
    };
    tokio::time::timeout(REACH_WITHIN, reaching).await.map_err(|_| {
        Failed::refused("the state folder is in use by a process that does not answer")
    })?
}

/// What it answers to `request`; `None` if it left before it took that. A refusal is an error.
pub(super) async fn say(client: &mut Client, request: &Request) -> Result<Option<Reply>, Failed> {
    let asked = match client.ask(request).await {
        Ok(()) => client.next().await,
        Err(error) => Err(error),
    };
    match asked {
        Ok(Some(Reply::Refused { reason, .. })) if reason == "gone" => Ok(None),
        Ok(Some(Reply::Refused { reason, message })) => Err(refusal(&reason, message)),
        Ok(reply) => Ok(reply),
        Err(ControlError::Io(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Asks it, and returns what it answers when that is no refusal.
pub(super) async fn ask(place: &Place, request: &Request) -> Result<Reply, Failed> {
    for _ in 0..REACHED_MAX {
        let (mut client, own) = reach(place, OwnDaemon::IfNeeded).await?;
        let said = say(&mut client, request).await;
        if let Some(own) = own {
            own.ended().await?;
        }
        if let Some(reply) = said? {
            return Ok(reply);
        }
    }
    Err(nobody_stays())
}

/// Each one that was reached has left.
pub(super) fn nobody_stays() -> Failed {
    Failed::refused("whoever holds the state folder leaves before it answers")
}

/// A refusal with the exit code that its reason has.
pub(super) fn refusal(reason: &str, message: String) -> Failed {
    match reason {
        "unknown" | "invalid" => Failed::usage(message),
        _ => Failed::refused(message),
    }
}
