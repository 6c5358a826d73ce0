//! The instant at which work is cut.

use std::time::Duration;

use tokio::time::Instant;

/// A point on the monotonic clock, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// A deadline that never comes.
    pub const NEVER: Self = Self(None);

    /// `limit` after `start`; a limit too large for the clock is [`Deadline::NEVER`].
    pub fn after(start: Instant, limit: Duration) -> Self {
        Self(start.checked_add(limit))
    }

    /// The earlier of the two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Self(Some(a.min(b))),
            (a, b) => Self(a.or(b)),
        }
    }

    /// The same so much later.
    #[must_use]
    pub fn later_by(self, length: Duration) -> Self {
        Self(self.0.and_then(|at| at.checked_add(length)))
    }

    /// The instant, or `None` for never.
    pub fn instant(self) -> Option<Instant> {
        self.0
    }

    /// Time left at `now`; `None` is unlimited, zero means that it has passed.
    pub fn remaining(self, now: Instant) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(now))
    }

    /// Whether it has come at `now`.
    pub fn passed(self, now: Instant) -> bool {
        self.0.is_some_and(|at| at <= now)
    }

    /// Returns when it has come; for [`Deadline::NEVER`], never.
    pub async fn wait(self) {
        match self.0 {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};

    #[test]
    fn the_earlier_deadline_wins_and_never_loses() {
        let now = SystemClock.monotonic();
        let soon = Deadline::after(now, Duration::from_secs(1));
        let late = Deadline::after(now, Duration::from_secs(9));
        assert_eq!(late.min(soon), soon);
        assert_eq!(Deadline::NEVER.min(late), late);
        assert_eq!(late.min(Deadline::NEVER), late);
        assert_eq!(Deadline::NEVER.remaining(now), None);
        assert!(soon.passed(now + Duration::from_secs(1)));
        assert!(!soon.passed(now));
        assert_eq!(Deadline::after(now, Duration::MAX), Deadline::NEVER);
    }
}
