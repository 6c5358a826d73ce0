//! The clock's hand: says when the next instant is due.
//!
//! A thread of its own that sleeps until then, but never longer than [`LOOK_EVERY`], and re-reads
//! the wall clock each time, so that clock steps and suspends are noticed at once (design §4). Only
//! when something is due does it wake anybody else: an idle daemon costs one look a second. The
//! runtime's timers would round to milliseconds and wake twice for each sleep.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use super::event::Event;
use crate::clock::Clock;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A clock that goes back by less is being adjusted, not set.
const SET_BACK_MIN: SignedDuration = SignedDuration::from_secs(1);

/// The thread, as long as this lives.
pub(super) struct Ticker {
    hand: Arc<Hand>,
    thread: Option<JoinHandle<()>>,
}

struct Hand {
    aim: Mutex<Aim>,
    moved: Condvar,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// Nothing is due, or it has been said.
    Nothing,
    /// Say it at this instant.
    At(Timestamp),
    /// End.
    End,
}

impl Ticker {
    /// Starts the thread; it says [`Event::Woke`] to `events`.
    pub(super) fn start(
        clock: Arc<dyn Clock>,
        events: mpsc::Sender<Event>,
    ) -> std::io::Result<Self> {
        let hand = Hand { aim: Mutex::new(Aim::Nothing), moved: Condvar::new(), clock };
        let hand = Arc::new(hand);
        let thread = std::thread::Builder::new().name("ticker".into()).spawn({
            let hand = Arc::clone(&hand);
            move || hand.tick(&events)
        })?;
        Ok(Self { hand, thread: Some(thread) })
    }

    /// The instant to say next; replaces the one before.
    pub(super) fn aim(&self, next_due: Option<Timestamp>) {
        self.hand.set(next_due.map_or(Aim::Nothing, Aim::At));
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.hand.set(Aim::End);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and ends as soon as it is told.
            drop(thread.join());
        }
    }
}

impl Hand {
    fn set(&self, aim: Aim) {
        let mut current = self.aim();
        if *current != aim {
            *current = aim;
            self.moved.notify_one();
        }
    }

    fn aim(&self) -> MutexGuard<'_, Aim> {
        self.aim.lock().expect("no holder of this lock can panic")
    }

    fn tick(&self, events: &mpsc::Sender<Event>) {
        let mut aim = self.aim();
        let mut shown = self.clock.wall();
        loop {
            let now = self.clock.wall();
            // Full means that the loop has events to see to, and each of them makes it look.
            if now.duration_since(shown) <= -SET_BACK_MIN {
                drop(events.try_send(Event::Woke));
            }
            shown = now;
            let wait = match *aim {
                Aim::End => return,
                Aim::Nothing => LOOK_EVERY,
                Aim::At(due) => {
                    let left = due.duration_since(now);
                    if left.is_zero() || left.is_negative() {
                        drop(events.try_send(Event::Woke));
                        *aim = Aim::Nothing;
                        continue;
                    }
                    Duration::try_from(left).unwrap_or(LOOK_EVERY).min(LOOK_EVERY)
                }
            };
            let woken = self.moved.wait_timeout(aim, wait);
            aim = woken.expect("no holder of this lock can panic").0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[tokio::test]
    async fn it_is_said_once_never_early_and_at_once_after_a_clock_step() {
        let noon: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
        let clock = Arc::new(ManualClock::new(noon));
        let (sender, mut events) = mpsc::channel(8);
        let ticker = Ticker::start(Arc::clone(&clock) as Arc<dyn Clock>, sender).unwrap();

        ticker.aim(Some(noon));
        assert!(matches!(events.recv().await, Some(Event::Woke)));

        let later = noon + Duration::from_hours(1);
        ticker.aim(Some(later));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(events.try_recv().is_err(), "an hour too early");
        clock.step_to(later);
        let step = tokio::time::timeout(Duration::from_secs(30), events.recv()).await;
        assert!(matches!(step, Ok(Some(Event::Woke))));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(events.try_recv().is_err(), "it was said already");

        drop(ticker);
        assert!(events.recv().await.is_none(), "the thread has ended");
    }
}
