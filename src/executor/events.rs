//! What runs tell while they go on, to whoever listens.
//!
//! Each run that somebody follows has a [`Feed`] of its own, so that one that pours out text delays
//! nobody else's followers. Who looks at all runs hears of their steps, not of each piece of text.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::{Notify, broadcast};

use crate::clock::{Clock, to_millis};
use crate::run::{EventPhase, RunEvent, RunId, Stream};

/// Steps of all runs that a slow listener may be behind before it loses the oldest. A run never
/// waits for a listener; a listener that lost some is told how many.
const STEPS_MAX: usize = 4096;

/// The same for the events of one run, and for what their texts hold. Pieces of text and of output
/// go first, then other steps; the run's own beginnings and its end are few and stay.
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
    /// What is known of the runs that tell.
    voices: Mutex<HashMap<RunId, Arc<Voice>>>,
}

/// What all that speak for one run have in common: a driver may be replaced, its run goes on.
#[derive(Debug, Default)]
struct Voice {
    seq: AtomicU64,
    /// The end has been told: nothing may follow.
    has_ended: AtomicBool,
}

/// What one run tells.
#[derive(Debug, Default)]
struct Feed {
    told: Mutex<Told>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Told {
    /// Each with its place in the feed; what is missing was dropped.
    events: VecDeque<(u64, Arc<RunEvent>)>,
    bytes: usize,
    /// The place of the next one.
    next: u64,
    is_over: bool,
}

/// Follows one run from what is kept of it.
#[derive(Debug)]
pub struct Follower {
    feeds: Arc<Feeds>,
    run_id: RunId,
    feed: Arc<Feed>,
    /// The place of what it hears next.
    at: u64,
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
    voice: Arc<Voice>,
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
        Follower { feeds: Arc::clone(&self.feeds), run_id: run_id.clone(), feed, at: 0 }
    }

    /// What the clock shows, in whole milliseconds.
    pub fn now(&self) -> Timestamp {
        to_millis(self.clock.wall())
    }

    /// The voice of `run_id`: where another one has spoken for it, it goes on from there. A run has
    /// one end, whoever tells it.
    pub fn of_run(&self, run_id: RunId) -> RunEvents {
        let voice = Arc::clone(self.feeds.voices().entry(run_id.clone()).or_default());
        RunEvents { bus: self.clone(), run_id, voice }
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

    /// One that spoke for the run goes. If it has told the end, all is told; otherwise somebody
    /// else will.
    fn hang_up(&self, run_id: &RunId, voice: &Arc<Voice>) {
        if !voice.has_ended.load(Ordering::Acquire) {
            return;
        }
        let mut voices = self.voices();
        // This one and the map's.
        if Arc::strong_count(voice) == 2 {
            voices.remove(run_id);
        }
        drop(voices);
        self.close(run_id);
    }

    fn voices(&self) -> MutexGuard<'_, HashMap<RunId, Arc<Voice>>> {
        self.voices.lock().expect("no holder of this lock can panic")
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
            told.events.push_back((told.next, event));
            told.next += 1;
            while told.events.len() > EVENTS_MAX || told.bytes > EVENT_BYTES_MAX {
                if !told.drop_one() {
                    break;
                }
            }
        });
    }
}

impl Told {
    /// Drops the oldest of what can best be missed, never the newest; whether there was one.
    fn drop_one(&mut self) -> bool {
        let older = self.events.len().saturating_sub(1);
        let oldest = |is: fn(&RunEvent) -> bool| {
            self.events.iter().take(older).position(move |(_, event)| is(event))
        };
        let Some(at) = oldest(|it| is_piece(it.stream, it.phase))
            .or_else(|| oldest(|it| it.stream != Stream::Lifecycle))
        else {
            return false;
        };
        if let Some((_, dropped)) = self.events.remove(at) {
            self.bytes -= size(&dropped);
        }
        true
    }
}

/// Whether an event is part of something whose end is told too.
fn is_piece(stream: Stream, phase: EventPhase) -> bool {
    matches!(stream, Stream::Assistant | Stream::Tool) && phase == EventPhase::Update
}

/// Whether nothing follows an event.
fn is_end(stream: Stream, phase: EventPhase) -> bool {
    stream == Stream::Lifecycle && matches!(phase, EventPhase::End | EventPhase::Error)
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
        let index = told.events.partition_point(|(place, _)| *place < self.at);
        let place = told.events.get(index).map_or(told.next, |(place, _)| *place);
        if place > self.at {
            let lost = place - self.at;
            self.at = place;
            return Some(Heard::Lost(lost));
        }
        match told.events.get(index) {
            Some((_, event)) => {
                self.at += 1;
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

    /// Tells whoever listens. Nothing is told after the end.
    pub fn tell(&self, stream: Stream, phase: EventPhase, data: Map<String, Value>) {
        let is_over = if is_end(stream, phase) {
            self.voice.has_ended.swap(true, Ordering::AcqRel)
        } else {
            self.voice.has_ended.load(Ordering::Acquire)
        };
        if is_over {
            return;
        }
        let seq = self.voice.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let is_piece = is_piece(stream, phase);
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
        self.bus.feeds.hang_up(&self.run_id, &self.voice);
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

    // semantics §9: a slow listener loses pieces, with a marker, and never a beginning or the end.
    #[tokio::test]
    async fn a_slow_listener_loses_pieces_and_no_steps() {
        let bus = bus();
        let run_id = RunId::from_stored("a");
        let mut follower = bus.follow(&run_id);
        let run = bus.of_run(run_id);
        run.tell(Stream::Lifecycle, EventPhase::Start, Map::new());
        for _ in 0..3 {
            run.tell(Stream::Tool, EventPhase::Start, Map::new());
            for _ in 0..EVENTS_MAX {
                run.tell(Stream::Assistant, EventPhase::Update, piece("x"));
            }
            run.tell(Stream::Lifecycle, EventPhase::Update, Map::new());
        }
        run.tell(Stream::Lifecycle, EventPhase::End, Map::new());
        drop(run);
        let (mut steps, mut lost, mut pieces) = (Vec::new(), 0, 0);
        loop {
            match follower.next().await {
                Heard::Event(event) if is_piece(event.stream, event.phase) => pieces += 1,
                Heard::Event(event) => steps.push((event.stream, event.phase)),
                Heard::Lost(count) => lost += count,
                Heard::Over => break,
            }
        }
        let attempt = [(Stream::Tool, EventPhase::Start), (Stream::Lifecycle, EventPhase::Update)];
        let mut expected = vec![(Stream::Lifecycle, EventPhase::Start)];
        expected.extend([attempt; 3].concat());
        expected.push((Stream::Lifecycle, EventPhase::End));
        assert_eq!(steps, expected);
        assert_eq!(lost + pieces, 3 * EVENTS_MAX as u64);
        assert_eq!(pieces, (EVENTS_MAX - expected.len()) as u64);
    }

    // semantics §1: exactly one terminal lifecycle event, and it is the last.
    #[tokio::test]
    async fn a_run_whose_driver_was_replaced_has_one_end_and_one_count() {
        let bus = bus();
        let run_id = RunId::from_stored("a");
        let mut follower = bus.follow(&run_id);
        let mut steps = bus.listen();
        let first = bus.of_run(run_id.clone());
        first.tell(Stream::Lifecycle, EventPhase::Start, Map::new());
        // Lost without a word.
        drop(first);
        let (second, third) = (bus.of_run(run_id.clone()), bus.of_run(run_id));
        second.tell(Stream::Lifecycle, EventPhase::Error, Map::new());
        drop(second);
        third.tell(Stream::Tool, EventPhase::Start, Map::new());
        third.tell(Stream::Lifecycle, EventPhase::End, Map::new());
        drop(third);
        let mut seqs = Vec::new();
        while let Heard::Event(event) = follower.next().await {
            seqs.push((event.seq, event.phase));
        }
        let expected = [(1, EventPhase::Start), (2, EventPhase::Error)];
        assert_eq!(seqs, expected);
        for (seq, _) in expected {
            assert_eq!(steps.recv().await.unwrap().seq, seq);
        }
        assert!(steps.try_recv().is_err());
        assert_eq!(bus.feeds.voices().len(), 0);
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
