//! How the tidying of a run ended: the second fact.

use std::time::Duration;

use jiff::Timestamp;

words!(
    /// How one step of the clean-up ended.
    StepOutcome {
        /// Nothing was left to end.
        Clean = "clean",
        /// Something had to be signalled, aborted or force-cleared, and is gone.
        Forced = "forced",
        /// Something is left.
        Incomplete = "incomplete",
        /// The budget ran out first.
        TimedOut = "timed_out",
    }
);

words!(
    /// How the whole clean-up ended.
    CleanupOutcome {
        /// Nothing was left to end.
        Clean = "clean",
        /// Something had to be signalled, aborted or force-cleared, and nothing is left.
        Forced = "forced",
        /// Something is left: see `leaked`.
        Incomplete = "incomplete",
        /// The clean-up's budget ran out first.
        TimedOut = "timed_out",
    }
);

/// One step, as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct CleanupStep {
    /// Its name: `model_stream`, `processes`, `transcript`, `session_lock`, `workspace`, `lane`.
    pub step: &'static str,
    /// How it ended.
    pub outcome: StepOutcome,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
    /// What there is to say about it.
    pub detail: Option<String>,
}

/// The whole clean-up of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Cleanup {
    /// Its steps, in order.
    pub steps: Vec<CleanupStep>,
    /// How long all of it took.
    pub duration: Duration,
    /// Processes that had to be signalled.
    pub killed_processes: u32,
    /// What is left, by name.
    pub leaked: Vec<String>,
}

impl Cleanup {
    /// The gravest of its steps' outcomes.
    pub fn outcome(&self) -> CleanupOutcome {
        let has = |outcome| self.steps.iter().any(|step| step.outcome == outcome);
        if has(StepOutcome::TimedOut) {
            CleanupOutcome::TimedOut
        } else if has(StepOutcome::Incomplete) || !self.leaked.is_empty() {
            CleanupOutcome::Incomplete
        } else if has(StepOutcome::Forced) {
            CleanupOutcome::Forced
        } else {
            CleanupOutcome::Clean
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(outcomes: &[StepOutcome]) -> CleanupOutcome {
        let step = |&outcome| CleanupStep {
            step: "x",
            outcome,
            started_at: Timestamp::UNIX_EPOCH,
            duration: Duration::ZERO,
            detail: None,
        };
        let steps = outcomes.iter().map(step).collect();
        Cleanup { steps, duration: Duration::ZERO, killed_processes: 0, leaked: vec![] }.outcome()
    }

    #[test]
    fn the_gravest_step_names_the_whole() {
        use StepOutcome::{Clean, Forced, Incomplete, TimedOut};
        assert_eq!(of(&[]), CleanupOutcome::Clean);
        assert_eq!(of(&[Clean, Forced, Clean]), CleanupOutcome::Forced);
        assert_eq!(of(&[Forced, Incomplete]), CleanupOutcome::Incomplete);
        assert_eq!(of(&[TimedOut, Incomplete, Forced]), CleanupOutcome::TimedOut);
    }
}
