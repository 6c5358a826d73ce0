//! What is told of a run to whoever watches that its job is done at all.

use crate::job::{JobId, SecretText};
use crate::run::{ErrorKind, State};

/// A moment in the life of a run whose job has a switch.
#[derive(Debug, Clone)]
pub enum Milestone {
    /// Its clock runs.
    Started(Watched),
    /// All of it is over.
    Ended(Watched, Ended),
}

/// Which run it is.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Of which job.
    pub job: JobId,
    /// The run.
    pub run_id: String,
    /// The switch.
    pub url: SecretText,
    /// When it is known that a failure is one.
    pub failure: Failing,
}

/// When it is known that a run that did not succeed is the failure of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// With its end: nothing follows a run by hand.
    AtOnce,
    /// Once it is decided whether another attempt follows.
    Later,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its terminal state.
    pub state: State,
    /// Why, if it did not succeed.
    pub kind: Option<ErrorKind>,
    /// How its command ended, if it is one and ended by itself.
    pub exit_code: Option<i32>,
}
