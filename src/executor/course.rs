//! The way of a run through its models: which one is asked now, and what has been tried.

use std::collections::VecDeque;
use std::time::Duration;

use super::models::{ModelError, Models, Resolved};
use super::next_attempt::{Cause, Failed, Step, TimeLeft, Tried, next_attempt};
use super::stop::Stop;
use crate::cassette::Deck;
use crate::job::ModelRef;
use crate::turn::TurnEnd;

/// Where a run has come to. It never goes back: a model that was given up stays so.
pub(super) struct Course {
    pub(super) present: Resolved,
    to_come: VecDeque<ModelRef>,
    /// Repeated requests to the present model since its last complete answer.
    repeats: u32,
    /// Silent requests in a row without a complete answer, across models.
    silences: u32,
}

impl Course {
    /// Begins with `first`.
    pub(super) fn begin(first: Resolved, fallbacks: &[ModelRef]) -> Self {
        let to_come = fallbacks.iter().cloned().collect();
        Self { present: first, to_come, repeats: 0, silences: 0 }
    }

    /// An answer was completed: the model is well, and what failed before it does not count.
    pub(super) fn progressed(&mut self) {
        self.repeats = 0;
        self.silences = 0;
    }

    /// Whether another model comes after this one.
    pub(super) fn has_more(&self) -> bool {
        !self.to_come.is_empty()
    }

    /// Goes on with the next model, whatever this one could still do.
    pub(super) fn next_model(
        &mut self,
        models: &Models,
        deck: Option<&Deck>,
    ) -> Result<(), ModelError> {
        self.silences = 0;
        self.go_on(Step::NextModel, models, deck)
    }

    /// What follows `stop`, which ended an attempt whose requests had this idle window.
    pub(super) fn after(&mut self, stop: &Stop, window: Option<Duration>, time: TimeLeft) -> Step {
        let failed = match stop {
            Stop::Tripped(tripped) => match tripped.of_request() {
                Some(limit) => {
                    self.silences += 1;
                    Failed { cause: Cause::Silent, retry_after: None, window: Some(limit) }
                }
                None => return Step::GiveUp,
            },
            Stop::Turn(TurnEnd::Fault(fault)) => Failed::by(fault, window),
            Stop::Turn(_) | Stop::Failed(_) => return Step::GiveUp,
        };
        let tried = Tried {
            repeats: self.repeats,
            silences: self.silences,
            profiles_left: self.present.profiles_left,
            models_left: self.to_come.len(),
        };
        next_attempt(failed, tried, time)
    }

    /// Goes on as `step` says. The wait of it is the caller's.
    pub(super) fn go_on(
        &mut self,
        step: Step,
        models: &Models,
        deck: Option<&Deck>,
    ) -> Result<(), ModelError> {
        match step {
            Step::Again { .. } => self.repeats += 1,
            Step::NextProfile => {
                self.present =
                    models.resolve(&self.present.name, self.present.profile_at + 1, deck)?;
            }
            Step::NextModel => {
                if let Some(next) = self.to_come.pop_front() {
                    self.present = models.resolve(&next, 0, deck)?;
                    self.repeats = 0;
                }
            }
            Step::GiveUp => {}
        }
        Ok(())
    }
}
