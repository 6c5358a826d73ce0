//! How a try went, and when there is another one.

use std::time::Duration;

use jiff::Timestamp;

use crate::config::TargetKind;
use crate::store::DeliveryEnd;

/// How one try to send went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The receiver has it.
    Arrived,
    /// Nothing of it can have arrived, and that may change.
    NotYet {
        /// Why.
        why: String,
        /// What the receiver asks to wait.
        after: Option<Duration>,
    },
    /// It was refused for good, or cannot be sent at all.
    Refused(String),
    /// It may have arrived.
    Lost(String),
    /// A hook did not let it out.
    Cancelled(String),
}

/// Waits before the second, third … try; the last one repeats. Short first, since most receivers
/// that are away are being restarted.
const WAITS: [Duration; 7] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_mins(30),
    Duration::from_hours(1),
];

/// A receiver that is away for longer is gone; what it missed is in the history.
const TRIED_FOR: Duration = Duration::from_hours(24);

/// A receiver that asks for a longer wait is asked again all the same.
const WAIT_MAX: Duration = Duration::from_hours(1);

impl Sent {
    /// Try again later.
    pub(super) fn not_yet(why: impl Into<String>) -> Self {
        Self::NotYet { why: why.into(), after: None }
    }

    /// What the ledger keeps of the `attempt`th try of something that waits since `queued_at`.
    pub(super) fn end(self, attempt: u32, queued_at: Timestamp, now: Timestamp) -> DeliveryEnd {
        match self {
            Self::Arrived => DeliveryEnd::Sent,
            Self::Refused(why) => DeliveryEnd::Failed(why),
            Self::Lost(why) => DeliveryEnd::Unknown(why),
            Self::Cancelled(why) => DeliveryEnd::Suppressed(why),
            Self::NotYet { why, after } => {
                let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
                let usual = WAITS[index.min(WAITS.len() - 1)];
                let at = now + after.map_or(usual, |asked| asked.clamp(usual, WAIT_MAX.max(usual)));
                if at > queued_at + TRIED_FOR {
                    return DeliveryEnd::Failed(format!("given up after a day: {why}"));
                }
                DeliveryEnd::Again(why, at)
            }
        }
    }
}

/// What becomes of a delivery whose sender died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCrash {
    /// It is sent once more: the receiver can tell that it is the same.
    Repeat,
    /// It stays `unknown`: a second one would be a second one.
    LeaveUnknown,
}

impl AfterCrash {
    /// A webhook gets the same idempotency key, a mail the same message id, a file the same
    /// content. A chat shows everything it is told, and a program may do anything.
    pub fn of(kind: &TargetKind) -> Self {
        match kind {
            TargetKind::Webhook(_) | TargetKind::Email(_) | TargetKind::File { .. } => Self::Repeat,
            TargetKind::Slack { .. } | TargetKind::Command { .. } => Self::LeaveUnknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_come_to_an_end() {
        let start: Timestamp = "2026-11-30T09:00:00Z".parse().unwrap();
        let (mut now, mut waits) = (start, Vec::new());
        let last = loop {
            let attempt = u32::try_from(waits.len()).unwrap() + 1;
            match Sent::not_yet("away").end(attempt, start, now) {
                DeliveryEnd::Again(_, at) => {
                    waits.push(at.duration_since(now).as_secs());
                    now = at;
                }
                end => break end,
            }
        };
        assert_eq!(waits[..8], [1, 5, 30, 120, 600, 1800, 3600, 3600]);
        assert_eq!(last, DeliveryEnd::Failed("given up after a day: away".into()));
        assert!(now <= start + TRIED_FOR);
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_wait_within_reason() {
        let start: Timestamp = "2026-11-30T09:00:00Z".parse().unwrap();
        for (asked, waited) in [(0, 1), (7, 7), (86_400, 3600)] {
            let after = Some(Duration::from_secs(asked));
            let end = Sent::NotYet { why: String::new(), after }.end(1, start, start);
            let at = start + Duration::from_secs(waited);
            assert_eq!(end, DeliveryEnd::Again(String::new(), at));
        }
    }
}
