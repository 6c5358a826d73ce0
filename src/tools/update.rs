//! What a tool says while it works. Only the newest matters: whoever listens is never waited for.

use std::sync::Arc;

use tokio::sync::watch;

/// How far a tool has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// What it has printed so far: all of it, or its head and its tail.
    pub output: String,
    /// How many bytes that were.
    pub bytes: u64,
}

/// Where a turn's tools say how far they have come. All clones are one place.
#[derive(Debug, Clone)]
pub struct Updates(Arc<watch::Sender<Update>>);

impl Default for Updates {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Update::default())))
    }
}

impl Updates {
    /// So far.
    pub fn tell(&self, update: Update) {
        self.0.send_replace(update);
    }

    /// Hears what is told from now on.
    pub fn listen(&self) -> watch::Receiver<Update> {
        self.0.subscribe()
    }
}
