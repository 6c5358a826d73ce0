//! What a run is: its ids, its states and the facts about how it ended.
//!
//! Pure words, no I/O. Three facts are kept apart and none overwrites another: how the work ended
//! ([`Outcome`]), how the tidying ended ([`CleanupOutcome`]) and, later, how the sending ended.

mod chat;
mod check;
mod cleanup;
mod event;
mod failure;
mod ids;
mod outcome;
mod payload;
mod state;

pub use chat::{Chat, ChatView};
pub use check::{Artifact, CheckResult, Findings};
pub use cleanup::{Cleanup, CleanupOutcome, CleanupStep, StepOutcome};
pub use event::{Phase as EventPhase, RunEvent, Stream};
pub use failure::{ErrorKind, Failure, Limit, Phase};
pub use ids::{IncidentId, MessageId, RunId, SessionId};
pub use outcome::{CancelReason, Outcome, Work};
pub use payload::{Payload, PayloadKind};
pub use state::{State, Trigger};
