//! The life of a run, as one match.

words!(
    /// Where a run is in its life. The last five are terminal and never change.
    State {
        /// Recorded, waiting for a lane.
        Queued = "queued",
        /// Its clock has started.
        Running = "running",
        /// The turn ended by itself and every check passed.
        Succeeded = "succeeded",
        /// It ended, and not well: see the error.
        Failed = "failed",
        /// Its own deadline ended it.
        TimedOut = "timed_out",
        /// A person, a gate or a replacing run ended it.
        Cancelled = "cancelled",
        /// The process died or was stopped under it.
        Interrupted = "interrupted",
    }
);

impl State {
    /// Whether nothing can change it any more.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Succeeded
            | Self::Failed
            | Self::TimedOut
            | Self::Cancelled
            | Self::Interrupted => true,
        }
    }

    /// Whether a run may go from `self` to `next`. The whole state machine is this match.
    pub const fn may_become(self, next: Self) -> bool {
        match (self, next) {
            // A run may also end while it still waits for a lane: cancelled, interrupted, or the
            // lane's own limit.
            (Self::Queued, Self::Running | Self::Failed | Self::Cancelled | Self::Interrupted) => {
                true
            }
            (Self::Running, next) => next.is_terminal(),
            _ => false,
        }
    }
}

words!(
    /// What made a run start.
    Trigger {
        /// Its slot came.
        Schedule = "schedule",
        /// A person asked for it.
        Manual = "manual",
        /// A misfire, made up for.
        Catchup = "catchup",
        /// A further attempt for the same slot.
        Retry = "retry",
        /// Another job ended.
        After = "after",
        /// A past period, asked for by a person.
        Backfill = "backfill",
        /// A program asked for it.
        Rpc = "rpc",
    }
);

impl Trigger {
    /// Whether the scheduler started it, as the idle window and the retry rules mean it
    /// (semantics: schedule, catch-up, retry, after, backfill).
    pub const fn is_scheduled(self) -> bool {
        match self {
            Self::Schedule | Self::Catchup | Self::Retry | Self::After | Self::Backfill => true,
            Self::Manual | Self::Rpc => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_states_never_change() {
        for &from in State::ALL.iter().filter(|state| state.is_terminal()) {
            for &to in State::ALL {
                assert!(!from.may_become(to), "{from} → {to}");
            }
        }
    }

    #[test]
    fn a_queued_run_cannot_have_succeeded_or_timed_out() {
        assert!(!State::Queued.may_become(State::Succeeded));
        assert!(!State::Queued.may_become(State::TimedOut));
        assert!(State::Queued.may_become(State::Interrupted));
        assert!(!State::Running.may_become(State::Queued));
    }

    #[test]
    fn words_read_back() {
        for &state in State::ALL {
            assert_eq!(state.as_str().parse::<State>().unwrap(), state);
        }
        assert_eq!("done".parse::<State>().unwrap_err().split(' ').next(), Some("`done`"));
    }
}
