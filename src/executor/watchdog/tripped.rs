//! What cut a run, and the failure that is stored for it.

use std::time::Duration;

use crate::run::{CancelReason, ErrorKind, Failure, Limit, Phase};

/// What cut a run, or one request of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tripped {
    /// Its deadline.
    Deadline(Duration),
    /// The idle window of the model request.
    Idle(Duration),
    /// The limit for the first token.
    FirstToken(Duration),
    /// The provider's limit for the response head.
    Provider(Duration),
    /// Nothing was executed in time.
    PreExecution(Duration),
    /// No lane in time.
    Lane(Duration),
    /// It was not set up in time.
    Setup(Duration),
    /// It has held its session's lock for too long.
    SessionHeld(Duration),
    /// Somebody ended it.
    Cancelled(CancelReason),
}

impl Tripped {
    /// The value of a limit that bounds one request; `None` for what ends the whole run.
    pub(in crate::executor) fn of_request(self) -> Option<Duration> {
        match self {
            Self::Idle(limit) | Self::FirstToken(limit) | Self::Provider(limit) => Some(limit),
            Self::Deadline(_)
            | Self::PreExecution(_)
            | Self::Lane(_)
            | Self::Setup(_)
            | Self::SessionHeld(_)
            | Self::Cancelled(_) => None,
        }
    }

    /// The failure that is stored for it, with the limit, its value and the last phase.
    pub fn failure(self, phase: Option<Phase>) -> Failure {
        let failure = match self {
            Self::Cancelled(reason) => reason.failure(),
            Self::Deadline(limit) => Failure::new(
                ErrorKind::Deadline,
                format!("the run reached its time limit of {}", humantime::format_duration(limit)),
            )
            .by_limit(Limit::Deadline, Some(limit)),
            Self::Idle(limit) => Failure::new(
                ErrorKind::IdleTimeout,
                format!("no model output for {}", humantime::format_duration(limit)),
            )
            .by_limit(Limit::Idle, Some(limit))
            .retryable(),
            Self::FirstToken(limit) => Failure::new(
                ErrorKind::FirstTokenTimeout,
                format!("no first token within {}", humantime::format_duration(limit)),
            )
            .by_limit(Limit::FirstToken, Some(limit))
            .retryable(),
            Self::Provider(limit) => Failure::new(
                ErrorKind::ProviderTimeout,
                format!(
                    "the provider sent no response within {}",
                    humantime::format_duration(limit)
                ),
            )
            .by_limit(Limit::Provider, Some(limit))
            .retryable(),
            Self::PreExecution(limit) => Failure::new(
                ErrorKind::StalledBeforeExecution,
                format!("no model call within {}", humantime::format_duration(limit)),
            )
            .by_limit(Limit::PreExecution, Some(limit)),
            Self::Lane(limit) => Failure::new(
                ErrorKind::LaneTimeout,
                format!("no lane was free within {}", humantime::format_duration(limit)),
            )
            .by_limit(Limit::Lane, Some(limit)),
            Self::Setup(limit) => Failure::new(
                ErrorKind::SetupTimeout,
                format!("it was not set up within {}", humantime::format_duration(limit)),
            )
            .by_limit(Limit::Setup, Some(limit)),
            Self::SessionHeld(limit) => Failure::new(
                ErrorKind::Stuck,
                format!(
                    "the run held its session's lock for more than {}",
                    humantime::format_duration(limit)
                ),
            )
            .by_limit(Limit::SessionLock, Some(limit)),
        };
        match phase {
            Some(phase) => failure.in_phase(phase),
            None => failure,
        }
    }
}
