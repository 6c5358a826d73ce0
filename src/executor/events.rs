//! What runs tell while they go on, to whoever listens.
//!
//! Each run that somebody follows has a [`Feed`] of its own, so that one that pours out text delays
//! nobody else's followers. Who looks at all runs hears of their steps, not of each piece of text.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::{Notify, broadcast};

use crate::clock::{Clock, to_millis};
use crate::run::{EventPhase, RunEvent, RunId, Stream};

/// Steps of all runs that a slow listener may be behind before it loses the oldest. A run never
/// waits for a listener; a listener that lost some is told how many.
const STEPS_MAX: usize = 4096;

/// The same for the events of one run, and for what their texts hold.
const EVENTS_MAX: usize = 1024;
const EVENT_BYTES_MAX: usize = 512 << 10;

/// Where all runs of a process tell.
#[derive(Debug, Clone)]
pub struct Bus {
    steps: broadcast::Sender<Arc<RunEvent>>,
    feeds: Arc<Feeds>,
    clock: Arc<dyn Clock>,
}

/// The feeds of runs that somebody follows, or is about to.
#[derive(Debug, Default)]
struct Feeds {
    of_run: Mutex<HashMap<RunId, Arc<Feed>>>,
    /// So many, for those who would look in vain.
    count: AtomicUsize,
}

/// What one run tells.
#[derive(Debug, Default)]
struct Feed {
    told: Mutex<Told>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Told {
    events: VecDeque<Arc<RunEvent>>,
    bytes: usize,
    /// How many there were before those that are kept.
    dropped: u64,
    is_over: bool,
}

/// Follows one run from what is kept of it.
#[derive(Debug)]
pub struct Follower {
    feeds: Arc<Feeds>,
    run_id: RunId,
    feed: Arc<Feed>,
    heard: u64,
}

/// What a follower hears.
#[derive(Debug)]
pub enum Heard {
    /// The next event.
    Event(Arc<RunEvent>),
    /// So many were dropped, since it was too slow.
    Lost(u64),
    /// The run tells nothing more.
    Over,
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
        Self { steps: broadcast::Sender::new(STEPS_MAX), feeds: Arc::default(), clock }
    }

    /// Listens to the steps of all runs from now on: their beginnings and ends, those of answers
    /// and of tools.
    pub fn listen(&self) -> broadcast::Receiver<Arc<RunEvent>> {
        self.steps.subscribe()
    }

    /// Keeps what the run tells until somebody follows it.
    pub fn keep(&self, run_id: &RunId) {
        self.feeds.open(run_id);
    }

    /// Follows a run, from what is kept of it on.
    pub fn follow(&self, run_id: &RunId) -> Follower {
        let feed = self.feeds.open(run_id);
        Follower { feeds: Arc::clone(&self.feeds), run_id: run_id.clone(), feed, heard: 0 }
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

impl Feeds {
    fn open(&self, run_id: &RunId) -> Arc<Feed> {
        let mut feeds = self.lock();
        let feed = Arc::clone(feeds.entry(run_id.clone()).or_default());
        self.count.store(feeds.len(), Ordering::Release);
        feed
    }

    fn get(&self, run_id: &RunId) -> Option<Arc<Feed>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.lock().get(run_id).cloned()
    }

    fn close(&self, run_id: &RunId) {
        let mut feeds = self.lock();
        let feed = feeds.remove(run_id);
        self.count.store(feeds.len(), Ordering::Release);
        drop(feeds);
        if let Some(feed) = feed {
            feed.change(|told| told.is_over = true);
        }
    }

    /// A follower goes. The last one takes the feed along: nothing is kept for nobody.
    fn leave(&self, run_id: &RunId, feed: &Arc<Feed>) {
        let mut feeds = self.lock();
        let is_last = Arc::strong_count(feed) == 2;
        if is_last && feeds.get(run_id).is_some_and(|kept| Arc::ptr_eq(kept, feed)) {
            feeds.remove(run_id);
            self.count.store(feeds.len(), Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Arc<Feed>>> {
        self.of_run.lock().expect("no holder of this lock can panic")
    }
}

impl Feed {
    fn change(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.told.lock().expect("no holder of this lock can panic"));
        self.changed.notify_waiters();
    }

    fn tell(&self, event: Arc<RunEvent>) {
        self.change(|told| {
            told.bytes += size(&event);
            told.events.push_back(event);
            while told.events.len() > EVENTS_MAX
                || (told.bytes > EVENT_BYTES_MAX && told.events.len() > 1)
            {
                let oldest = told.events.pop_front();
                told.bytes -= oldest.as_deref().map_or(0, size);
                told.dropped += 1;
            }
        });
    }
}

/// What the texts of an event hold: the rest is small.
fn size(event: &RunEvent) -> usize {
    event.data.values().filter_map(Value::as_str).map(str::len).sum()
}

impl Follower {
    /// The next thing to hear.
    pub async fn next(&mut self) -> Heard {
        loop {
            let feed = Arc::clone(&self.feed);
            let changed = feed.changed.notified();
            tokio::pin!(changed);
            // Before the look, so that a change between look and wait is not lost.
            changed.as_mut().enable();
            if let Some(heard) = self.look() {
                return heard;
            }
            changed.await;
        }
    }

    fn look(&mut self) -> Option<Heard> {
        let told = self.feed.told.lock().expect("no holder of this lock can panic");
        if self.heard < told.dropped {
            let lost = told.dropped - self.heard;
            self.heard = told.dropped;
            return Some(Heard::Lost(lost));
        }
        let index = usize::try_from(self.heard - told.dropped).unwrap_or(usize::MAX);
        match told.events.get(index) {
            Some(event) => {
                self.heard += 1;
                Some(Heard::Event(Arc::clone(event)))
            }
            None if told.is_over => Some(Heard::Over),
            None => None,
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.feeds.leave(&self.run_id, &self.feed);
    }
}

impl RunEvents {
    /// What the clock shows, in whole milliseconds.
    pub fn now(&self) -> Timestamp {
        self.bus.now()
    }

    /// Tells whoever listens.
    pub fn tell(&self, stream: Stream, phase: EventPhase, data: Map<String, Value>) {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let is_piece = (stream, phase) == (Stream::Assistant, EventPhase::Update);
        let feed = self.bus.feeds.get(&self.run_id);
        let is_step_heard = !is_piece && self.bus.steps.receiver_count() > 0;
        if feed.is_none() && !is_step_heard {
            return;
        }
        let run_id = self.run_id.clone();
        let event = Arc::new(RunEvent { run_id, seq, at: self.now(), stream, phase, data });
        if is_step_heard {
            // Whoever listened has just gone: then nobody misses it.
            drop(self.bus.steps.send(Arc::clone(&event)));
        }
        if let Some(feed) = feed {
            feed.tell(event);
        }
    }
}

impl Drop for RunEvents {
    fn drop(&mut self) {
        self.bus.feeds.close(&self.run_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn bus() -> Bus {
        Bus::new(Arc::new(SystemClock))
    }

    fn piece(text: &str) -> Map<String, Value> {
        Map::from_iter([("text".to_owned(), text.into())])
    }

    #[tokio::test]
    async fn a_follower_hears_its_run_from_where_it_is_kept_to_its_end() {
        let bus = bus();
        let (a, b) = (RunId::from_stored("a"), RunId::from_stored("b"));
        bus.keep(&a);
        let (run, other) = (bus.of_run(a.clone()), bus.of_run(b.clone()));
        run.tell(Stream::Lifecycle, EventPhase::Start, Map::new());
        other.tell(Stream::Assistant, EventPhase::Update, piece("not mine"));
        let mut follower = bus.follow(&a);
        let waits = tokio::spawn(async move {
            let mut seqs = Vec::new();
            while let Heard::Event(event) = follower.next().await {
                assert_eq!(event.run_id.as_str(), "a");
                seqs.push(event.seq);
            }
            seqs
        });
        tokio::task::yield_now().await;
        run.tell(Stream::Assistant, EventPhase::Update, piece("x"));
        run.tell(Stream::Lifecycle, EventPhase::End, Map::new());
        drop(run);
        assert_eq!(waits.await.unwrap(), [1, 2, 3]);
        // Nothing is left of it, and what nobody followed was not kept.
        assert_eq!(bus.feeds.lock().len(), 0);
        assert!(bus.follow(&b).look().is_none());
        assert_eq!(bus.feeds.lock().len(), 0, "whoever goes leaves nothing behind");
    }

    #[tokio::test]
    async fn who_is_too_slow_loses_the_oldest_and_is_told_how_many() {
        let bus = bus();
        let run_id = RunId::from_stored("a");
        let mut follower = bus.follow(&run_id);
        let run = bus.of_run(run_id);
        for _ in 0..EVENTS_MAX + 3 {
            run.tell(Stream::Tool, EventPhase::Start, Map::new());
        }
        assert!(matches!(follower.next().await, Heard::Lost(3)));
        let Heard::Event(event) = follower.next().await else { panic!("there are more") };
        assert_eq!(event.seq, 4);
        let long = "x".repeat(EVENT_BYTES_MAX / 4);
        for _ in 0..100 {
            run.tell(Stream::Assistant, EventPhase::Update, piece(&long));
        }
        let told = follower.feed.told.lock().unwrap();
        assert!(told.bytes <= EVENT_BYTES_MAX && told.events.len() >= 3);
    }

    #[tokio::test]
    async fn who_looks_at_all_runs_hears_steps_and_no_pieces() {
        let bus = bus();
        let mut steps = bus.listen();
        let run = bus.of_run(RunId::from_stored("a"));
        run.tell(Stream::Assistant, EventPhase::Start, Map::new());
        run.tell(Stream::Assistant, EventPhase::Update, piece("x"));
        run.tell(Stream::Assistant, EventPhase::End, Map::new());
        assert_eq!([steps.recv().await.unwrap().seq, steps.recv().await.unwrap().seq], [1, 3]);
    }
}
