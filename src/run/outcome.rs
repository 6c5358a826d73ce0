//! How the work of a run ended.

use std::time::Duration;

use super::failure::{ErrorKind, Failure, Limit};
use super::payload::Payload;
use super::state::State;

/// Why somebody ended a run early, gravest last: a graver reason replaces a lighter one that has
/// not taken effect yet, never the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CancelReason {
    /// Nothing has moved for this long, the configured threshold. What somebody wants is graver
    /// than what we suspect.
    Stuck(Duration),
    /// A newer run of the job takes its place (`overlap = "cancel_other"`).
    Replaced,
    /// A person asked.
    Person,
    /// The daemon stops.
    Shutdown,
}

impl CancelReason {
    /// The failure that is stored for it.
    pub fn failure(self) -> Failure {
        match self {
            Self::Stuck(limit) => {
                let words = humantime::format_duration(limit);
                Failure::new(ErrorKind::Stuck, format!("nothing has moved for {words}"))
                    .by_limit(Limit::Stuck, Some(limit))
                    .retryable()
            }
            Self::Replaced => {
                Failure::new(ErrorKind::Replaced, "a newer run of the job replaced it")
            }
            Self::Person => Failure::new(ErrorKind::Cancelled, "cancelled by request"),
            Self::Shutdown => Failure::new(ErrorKind::Shutdown, "punctual was stopped"),
        }
    }
}

/// How the work ended: the first of a run's facts.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The turn ended by itself with this reply.
    Succeeded {
        /// What the model answered.
        reply: String,
    },
    /// It did not.
    Ended {
        /// The terminal state that this end leads to; never `succeeded`.
        state: State,
        /// Why.
        failure: Failure,
        /// What the model had said so far: kept for the record, never delivered.
        partial_text: Option<String>,
    },
}

impl Outcome {
    /// The outcome for `failure`, in the state that its kind means.
    pub fn ended(failure: Failure, partial_text: Option<String>) -> Self {
        let state = match failure.kind {
            ErrorKind::Deadline => State::TimedOut,
            ErrorKind::Cancelled | ErrorKind::Replaced | ErrorKind::Gate => State::Cancelled,
            ErrorKind::Shutdown | ErrorKind::Interrupted => State::Interrupted,
            _ => State::Failed,
        };
        Self::Ended { state, failure, partial_text: partial_text.filter(|text| !text.is_empty()) }
    }

    /// The terminal state it leads to.
    pub fn state(&self) -> State {
        match self {
            Self::Succeeded { .. } => State::Succeeded,
            Self::Ended { state, .. } => *state,
        }
    }

    /// The failure, if it is one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Succeeded { .. } => None,
            Self::Ended { failure, .. } => Some(failure),
        }
    }
}

/// What a run's work left to record, before any tidying: outcome and counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// How it ended.
    pub outcome: Outcome,
    /// What people are shown of it.
    pub payloads: Vec<Payload>,
    /// Tool calls made.
    pub tool_calls: u32,
    /// Of these, the ones that failed.
    pub tool_errors: u32,
    /// Of these, the ones that were refused.
    pub denied_calls: u32,
    /// The host has not looked yet whether its success is one.
    pub unchecked: bool,
    /// How its command ended, if it is one and ended by itself.
    pub exit_code: Option<i32>,
    /// What tells the output of its gate from another one.
    pub gate_digest: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_decides_the_state() {
        let table = [
            (ErrorKind::Deadline, State::TimedOut),
            (ErrorKind::IdleTimeout, State::Failed),
            (ErrorKind::Replaced, State::Cancelled),
            (ErrorKind::Gate, State::Cancelled),
            (ErrorKind::Cancelled, State::Cancelled),
            (ErrorKind::Shutdown, State::Interrupted),
            (ErrorKind::Interrupted, State::Interrupted),
            (ErrorKind::ToolLoop, State::Failed),
        ];
        for (kind, state) in table {
            assert_eq!(Outcome::ended(Failure::new(kind, "x"), None).state(), state, "{kind}");
        }
    }

    #[test]
    fn reasons_only_get_graver() {
        assert!(CancelReason::Shutdown > CancelReason::Person);
        assert!(CancelReason::Person > CancelReason::Replaced);
        assert!(CancelReason::Replaced > CancelReason::Stuck(Duration::MAX));
    }
}
