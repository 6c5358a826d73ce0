//! A stable delay per job and instant, so that not everything starts at :00.

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

/// Why a length of time cannot be a jitter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a jitter of {} is not less than the shortest distance between two due times, {}",
    humantime::format_duration(*.jitter),
    humantime::format_duration(*.distance)
)]
pub struct JitterError {
    /// What was asked for.
    pub jitter: Duration,
    /// The shortest distance found.
    pub distance: Duration,
}

/// Delays from zero to right below a length of time.
#[derive(Debug, Clone)]
pub(super) struct Jitter {
    max_ms: u64,
    /// The hash with the seed in it already.
    seeded: Sha256,
}

impl Jitter {
    pub(super) fn new(max: Duration, seed: &str) -> Self {
        let mut seeded = Sha256::new();
        // The length keeps one seed from being the beginning of another.
        seeded.update(u64::try_from(seed.len()).unwrap_or(u64::MAX).to_be_bytes());
        seeded.update(seed);
        Self { max_ms: u64::try_from(max.as_millis()).unwrap_or(u64::MAX), seeded }
    }

    /// The delay of an instant: the same on every machine and after every restart.
    pub(super) fn delay(&self, due_at: Timestamp) -> Duration {
        let mut hash = self.seeded.clone();
        hash.update(due_at.as_millisecond().to_be_bytes());
        let digest = hash.finalize();
        let bytes = digest.first_chunk().expect("the digest has 32 bytes");
        let wide = u128::from(u64::from_be_bytes(*bytes)) * u128::from(self.max_ms);
        Duration::from_millis(u64::try_from(wide >> 64).expect("it is less than the maximum"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn delays_are_stable_and_spread() {
        let max = Duration::from_mins(5);
        let due_at: Timestamp = "2026-12-01T09:00:00Z".parse().unwrap();
        let delays = |hour: i64| {
            let due_at = due_at + jiff::SignedDuration::from_hours(hour);
            (0..50).map(move |job| Jitter::new(max, &format!("job-{job}")).delay(due_at))
        };
        assert_eq!(delays(0).collect::<Vec<_>>(), delays(0).collect::<Vec<_>>());
        assert_ne!(delays(0).collect::<Vec<_>>(), delays(1).collect::<Vec<_>>());
        assert!(delays(0).all(|delay| delay < max));
        assert!(delays(0).any(|delay| delay > max / 2), "they use the whole width");
        let seconds: BTreeSet<_> = delays(0).map(|delay| delay.as_secs()).collect();
        assert!(seconds.len() >= 30, "only {} different seconds", seconds.len());
        // Stored rows rest on it: another value would be a change for users.
        let known = Jitter::new(max, "daily-report").delay(due_at);
        assert_eq!(known, Duration::from_millis(98_652));
    }

    #[test]
    fn a_width_below_a_millisecond_delays_nothing() {
        let jitter = Jitter::new(Duration::from_micros(900), "x");
        assert_eq!(jitter.delay(Timestamp::UNIX_EPOCH), Duration::ZERO);
    }
}
