//! What the operating system asks of a daemon.

use tokio::signal::unix::{self, SignalKind, signal};

use super::dispatcher::Scheduling;

/// What the process is asked to do from outside.
pub(super) enum Signal {
    Stop,
    Reload,
}

#[derive(Debug)]
pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: Option<unix::Signal>,
    hangup: Option<unix::Signal>,
}

impl Signals {
    /// Ctrl-C and a closed terminal belong to the verb that waits for its run, where there is one:
    /// they cancel the run.
    pub(super) fn listen(scheduling: Scheduling) -> std::io::Result<Self> {
        let ours = |kind| match scheduling {
            Scheduling::On => signal(kind).map(Some),
            Scheduling::Off => Ok(None),
        };
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: ours(SignalKind::interrupt())?,
            hangup: ours(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            () = heard(self.interrupt.as_mut()) => Signal::Stop,
            () = heard(self.hangup.as_mut()) => Signal::Reload,
        }
    }
}

/// Returns when the signal comes; for one that is not listened to, never.
async fn heard(signal: Option<&mut unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
