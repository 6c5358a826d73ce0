//! `[session.queue]`: what becomes of messages whose session is busy.

use std::time::Duration;

use crate::job::tree::Node;

words!(
    /// What is done with messages that arrive while their session is busy (semantics §6).
    QueueMode {
        /// They go into the turn that goes on, at its next boundary.
        Steer = "steer",
        /// A turn each, one after the other.
        Followup = "followup",
        /// One turn for all, after some quiet.
        Collect = "collect",
        /// The turn that goes on is cut, and the newest one has its own.
        Interrupt = "interrupt",
    }
);

/// `[session.queue]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRules {
    /// What is done with them.
    pub mode: QueueMode,
    /// How many may wait; of more, the oldest are dropped into a few words.
    pub cap: usize,
    /// The quiet before a collected turn.
    pub debounce: Duration,
}

impl Default for QueueRules {
    fn default() -> Self {
        Self { mode: QueueMode::Steer, cap: 20, debounce: Duration::from_millis(500) }
    }
}

pub(super) fn queue(root: &Node) -> QueueRules {
    let usual = QueueRules::default();
    let mode: Option<QueueMode> = root.text("session.queue.mode").and_then(|it| it.parse().ok());
    let debounce: Option<Duration> = root.duration("session.queue.debounce");
    QueueRules {
        mode: mode.unwrap_or(usual.mode),
        cap: root.integer("session.queue.cap").unwrap_or(usual.cap),
        debounce: debounce.unwrap_or(usual.debounce),
    }
}
