//! What time it is.
//!
//! Two clocks, never mixed: the *wall* clock decides what is due, the *monotonic* clock measures
//! limits. A third reading, the time since the machine was started, tells a clock that was set from
//! a machine that slept: sleep counts there and a clock step does not. This is the only room that asks the operating system for either; every other room is
//! handed a [`Clock`], so that a test can move both by hand and apart from each other.

mod deadline;

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

pub use deadline::Deadline;

/// A source of both times.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The wall clock: what a calendar on this machine shows, in UTC. It may step either way.
    fn wall(&self) -> Timestamp;

    /// The monotonic clock: never steps. Limits are measured on it.
    fn monotonic(&self) -> Instant;

    /// The time since the machine was started, sleep included. Never steps.
    fn since_boot(&self) -> Duration;

    /// The wall clock, with what is needed to see whether it was set since the last reading.
    fn now(&self) -> Now {
        Now { wall: self.wall(), since_boot: self.since_boot() }
    }
}

/// One reading of the wall clock and of the time since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// What a calendar shows.
    pub wall: Timestamp,
    /// What has really passed.
    pub since_boot: Duration,
}

/// The machine's own clocks.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks")]
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks")]
    fn monotonic(&self) -> Instant {
        Instant::now()
    }

    fn since_boot(&self) -> Duration {
        use nix::time::{ClockId, clock_gettime};
        let reading = clock_gettime(ClockId::CLOCK_BOOTTIME);
        reading.expect("every kernel that this runs on has this clock").into()
    }
}

/// A clock that stands still until it is moved, for tests and simulations.
#[derive(Debug)]
pub struct ManualClock(Mutex<Hands>);

#[derive(Debug, Clone, Copy)]
struct Hands {
    wall: Timestamp,
    monotonic: Instant,
    since_boot: Duration,
}

impl ManualClock {
    /// A clock that shows `wall` and some monotonic instant.
    pub fn new(wall: Timestamp) -> Self {
        Self(Mutex::new(Hands {
            wall,
            monotonic: SystemClock.monotonic(),
            since_boot: Duration::ZERO,
        }))
    }

    /// Lets `by` pass on all clocks.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.hands();
        hands.wall += by;
        hands.monotonic += by;
        hands.since_boot += by;
    }

    /// Sets the wall clock alone: a clock step.
    pub fn step_to(&self, wall: Timestamp) {
        self.hands().wall = wall;
    }

    /// Lets the machine sleep for `by`: limits stand still, time does not.
    pub fn suspend(&self, by: Duration) {
        let mut hands = self.hands();
        hands.wall += by;
        hands.since_boot += by;
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().expect("no holder of this lock can panic")
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        self.hands().wall
    }

    fn monotonic(&self) -> Instant {
        self.hands().monotonic
    }

    fn since_boot(&self) -> Duration {
        self.hands().since_boot
    }
}

/// `wall` cut to whole milliseconds, the precision in which every instant is stored and printed.
pub fn to_millis(wall: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(wall.as_millisecond()).expect("a shorter form of a valid instant")
}

/// `instant` as the contract prints it: RFC 3339, UTC, three decimals.
pub fn rfc3339(instant: Timestamp) -> String {
    format!("{instant:.3}")
}

/// [`rfc3339`] for fields of printed objects.
pub fn serialize_rfc3339<S: serde::Serializer>(
    instant: &Timestamp,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*instant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_printed_in_utc_with_milliseconds() {
        let at: Timestamp = "2026-11-30T09:00:00.1239Z".parse().unwrap();
        assert_eq!(rfc3339(at), "2026-11-30T09:00:00.123Z");
        assert_eq!(rfc3339("2027-01-01T00:00:00Z".parse().unwrap()), "2027-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new("2026-11-30T09:00:00Z".parse().unwrap());
        let start = clock.monotonic();
        clock.advance(Duration::from_secs(2));
        clock.step_to("2026-11-30T08:00:00Z".parse().unwrap());
        assert_eq!(clock.since_boot(), Duration::from_secs(2));
        clock.suspend(Duration::from_hours(8));
        assert_eq!(clock.monotonic() - start, Duration::from_secs(2));
        assert_eq!(clock.wall(), "2026-11-30T16:00:00Z".parse().unwrap());
        assert_eq!(clock.since_boot(), Duration::from_secs(8 * 3600 + 2));
    }
}
