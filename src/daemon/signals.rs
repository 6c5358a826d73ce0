//! What the operating system asks of a daemon.

use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::oneshot;

use super::dispatcher::Scheduling;

/// What the process is asked to do from outside.
pub(super) enum Signal {
    Stop,
    Reload,
}

/// Who asks.
#[derive(Debug)]
pub(super) enum Signals {
    /// The operating system.
    System {
        terminate: unix::Signal,
        interrupt: Option<unix::Signal>,
        hangup: Option<unix::Signal>,
    },
    /// The program that embeds the daemon, once.
    Program(oneshot::Receiver<()>),
    /// Nobody any more.
    Nobody,
}

impl Signals {
    /// Ctrl-C and a closed terminal belong to the verb that waits for its run, where there is one:
    /// they cancel the run.
    pub(super) fn listen(scheduling: Scheduling) -> std::io::Result<Self> {
        let ours = |kind| match scheduling {
            Scheduling::On => signal(kind).map(Some),
            Scheduling::Off => Ok(None),
        };
        Ok(Self::System {
            terminate: signal(SignalKind::terminate())?,
            interrupt: ours(SignalKind::interrupt())?,
            hangup: ours(SignalKind::hangup())?,
        })
    }

    /// A stop when `stop` is done.
    pub(super) fn asked_by(stop: impl Future<Output = ()> + Send + 'static) -> Self {
        let (done, asked) = oneshot::channel();
        tokio::spawn(async move {
            stop.await;
            // The daemon may have come to its end by itself.
            let _ = done.send(());
        });
        Self::Program(asked)
    }

    pub(super) async fn next(&mut self) -> Signal {
        match self {
            Self::System { terminate, interrupt, hangup } => tokio::select! {
                _ = terminate.recv() => Signal::Stop,
                () = heard(interrupt.as_mut()) => Signal::Stop,
                () = heard(hangup.as_mut()) => Signal::Reload,
            },
            Self::Program(asked) => {
                // Gone without a word, it is as good as done.
                drop(asked.await);
                *self = Self::Nobody;
                Signal::Stop
            }
            Self::Nobody => std::future::pending().await,
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
