//! What runs tell while they go on, to whoever listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::broadcast;

use crate::clock::{Clock, to_millis};
use crate::run::{EventPhase, RunEvent, RunId, Stream};

/// Events that a slow listener may be behind before it loses the oldest. A run never waits for a
/// listener; a listener that lost some is told how many.
const BUFFERED_MAX: usize = 4096;

/// Where all runs of a process tell.
#[derive(Debug, Clone)]
pub struct Bus {
    sender: broadcast::Sender<Arc<RunEvent>>,
    clock: Arc<dyn Clock>,
}

/// The voice of one run.
#[derive(Debug)]
pub struct RunEvents {
    bus: Bus,
    run_id: RunId,
    seq: AtomicU64,
}

impl Bus {
    /// A bus that nobody listens to yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { sender: broadcast::Sender::new(BUFFERED_MAX), clock }
    }

    /// Listens from now on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<RunEvent>> {
        self.sender.subscribe()
    }

    /// What the clock shows, in whole milliseconds.
    pub fn now(&self) -> Timestamp {
        to_millis(self.clock.wall())
    }

    /// The voice of `run_id`.
    pub fn of_run(&self, run_id: RunId) -> RunEvents {
        RunEvents { bus: self.clone(), run_id, seq: AtomicU64::new(0) }
    }
}

impl RunEvents {
    /// What the clock shows, in whole milliseconds.
    pub fn now(&self) -> Timestamp {
        self.bus.now()
    }

    /// Tells whoever listens.
    pub fn tell(&self, stream: Stream, phase: EventPhase, data: Map<String, Value>) {
        let event = RunEvent {
            run_id: self.run_id.clone(),
            seq: self.seq.fetch_add(1, Ordering::Relaxed) + 1,
            at: self.now(),
            stream,
            phase,
            data,
        };
        // Nobody listens: then nobody misses it.
        drop(self.bus.sender.send(Arc::new(event)));
    }
}
