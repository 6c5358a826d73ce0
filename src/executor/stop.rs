//! Why a run's work stopped without an answer, and the outcome that it means.

use super::cleanup::ModelStream;
use super::holdings::Holdings;
use super::models::ModelError;
use super::watchdog::{Tripped, Watchdog};
use crate::job::Masker;
use crate::run::{ErrorKind, Failure, Limit, Outcome, Phase};
use crate::store::StoreError;
use crate::turn::{Turn, TurnEnd};

/// Why the work stopped without an answer.
pub(super) enum Stop {
    Tripped(Tripped),
    Turn(TurnEnd),
    Failed(Failure),
}

impl From<Tripped> for Stop {
    fn from(tripped: Tripped) -> Self {
        Self::Tripped(tripped)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(Failure::new(ErrorKind::Internal, format!("the ledger: {error}")))
    }
}

/// The outcome of work that stopped without an answer.
pub(super) fn ended(stop: &Stop, watchdog: &Watchdog, holdings: &mut Holdings) -> Outcome {
    let partial = match stop {
        Stop::Turn(TurnEnd::Fault(fault)) => {
            Some(holdings.masker.mask(&fault.partial_text).into_owned())
        }
        _ => match &holdings.command {
            Some(command) => Some(holdings.masker.mask(&command.output_so_far().text).into_owned()),
            None => holdings.turn.as_ref().and_then(Turn::partial_text),
        },
    };
    if matches!(stop, Stop::Tripped(_)) && watchdog.is_asking() {
        holdings.stream = ModelStream::Cut;
    }
    let mut failure = failure(stop, watchdog, &holdings.masker);
    if holdings.attempts > 1 {
        failure.message = format!("{} (after {} attempts)", failure.message, holdings.attempts);
    }
    Outcome::ended(failure, partial)
}

/// What a stop is called, secrets masked, in the phase that the run has come to.
pub(super) fn failure(stop: &Stop, watchdog: &Watchdog, masker: &Masker) -> Failure {
    let phase = watchdog.phase();
    let mut failure = match stop {
        Stop::Tripped(tripped) => return tripped.failure(phase),
        Stop::Turn(end) => turn_failure(end),
        Stop::Failed(failure) => failure.clone(),
    };
    failure.message = masker.mask(&failure.message).into_owned();
    failure.phase = failure.phase.or(phase);
    failure
}

/// A definition that cannot be run as it is.
pub(super) fn invalid(message: String) -> Failure {
    Failure::new(ErrorKind::Validation, message)
}

impl From<ModelError> for Stop {
    fn from(error: ModelError) -> Self {
        invalid(error.to_string()).into()
    }
}

/// A panic of the work: a fault of ours, and an outcome like any other.
pub(super) fn internal(panic: &Box<dyn std::any::Any + Send>) -> Failure {
    let words = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(panic = words, "the run's code panicked");
    Failure::new(ErrorKind::Internal, format!("a fault in punctual itself: {words}"))
}

fn turn_failure(end: &TurnEnd) -> Failure {
    let words = end.to_string();
    match end {
        TurnEnd::Fault(fault) => Failure::from(fault),
        TurnEnd::TruncatedReply => Failure::new(ErrorKind::TruncatedReply, words),
        TurnEnd::ContentFilter => Failure::new(ErrorKind::ContentFilter, words),
        TurnEnd::ToolLoop { .. } => Failure::new(ErrorKind::ToolLoop, words).in_phase(Phase::Tool),
        TurnEnd::TurnLimit(_) => {
            Failure::new(ErrorKind::TurnLimit, words).by_limit(Limit::Turns, None)
        }
        TurnEnd::HookBlocked(_) => {
            Failure::new(ErrorKind::HookBlocked, words).in_phase(Phase::Tool)
        }
        TurnEnd::Budget(_) => Failure::new(ErrorKind::Budget, words).by_limit(Limit::Budget, None),
    }
}
