//! What follows a model attempt that failed: the rule of semantics §4 as one function.
//!
//! It knows nothing of sockets and clocks. A failure belongs to a cause; what is done about a cause
//! depends on how often it was tried, on what else there is to try, and on the time that is left.

use std::time::Duration;

use crate::provider::{Fault, FaultClass};

/// The waits before the second and the third request to one model, where it names none itself.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// So many silences in a row, across models, are no bad luck.
const SILENCES_MAX: u32 = 5;

/// Nothing starts when less than this is left, or a quarter of the run's time.
const LEFT_MIN: Duration = Duration::from_millis(500);

/// What a failure means for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It may pass.
    Passing,
    /// Too many requests: another key may have room, and it may pass.
    Limited,
    /// The server itself took too long (408, 504).
    Late,
    /// A limit of ours on the request ended it.
    Silent,
    /// The key or its account was refused.
    Account,
    /// This model will not do it.
    Unfit,
    /// No model will.
    Final,
}

impl Cause {
    /// The cause of a fault.
    pub(super) const fn of(class: FaultClass) -> Self {
        match class {
            FaultClass::RateLimit => Self::Limited,
            FaultClass::Overloaded
            | FaultClass::Network
            | FaultClass::ServerError
            | FaultClass::Unreachable
            | FaultClass::IncompleteStream
            | FaultClass::EmptyResponse => Self::Passing,
            FaultClass::Timeout => Self::Late,
            FaultClass::Auth | FaultClass::Billing => Self::Account,
            FaultClass::ModelNotFound
            | FaultClass::Other
            | FaultClass::NotAStream
            | FaultClass::TruncatedToolCall
            | FaultClass::MalformedToolCall => Self::Unfit,
            FaultClass::BadRequest | FaultClass::ContextOverflow | FaultClass::ContentFilter => {
                Self::Final
            }
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) cause: Cause,
    /// How long the server asked us to wait.
    pub(super) retry_after: Option<Duration>,
    /// The window that the request had: the limit that ended it, or else its idle window; `None`
    /// is off.
    pub(super) window: Option<Duration>,
}

impl Failed {
    /// What a fault says.
    pub(super) fn by(fault: &Fault, window: Option<Duration>) -> Self {
        Self { cause: Cause::of(fault.class), retry_after: fault.retry_after, window }
    }
}

/// What has been tried, and what there is still to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tried {
    /// Requests to this model that repeated one that had failed, since its last complete answer.
    pub(super) repeats: u32,
    /// Silent requests in a row without a complete answer, of any model, the last one counted.
    pub(super) silences: u32,
    /// Keys of this model's provider that come after the one in use.
    pub(super) profiles_left: usize,
    /// Models that come after this one.
    pub(super) models_left: usize,
}

/// The time of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeLeft {
    /// It has no deadline.
    Unlimited,
    /// It has one.
    Until {
        /// What is left until then.
        left: Duration,
        /// What the run had at its start.
        whole: Duration,
    },
}

impl TimeLeft {
    /// Whether an attempt may begin after `wait`: later it could hardly come to anything.
    pub(super) fn allows_after(self, wait: Duration) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Until { left, whole } => {
                left.checked_sub(wait).is_some_and(|left| left >= LEFT_MIN.max(whole / 4))
            }
        }
    }

    /// Whether two such windows fit in; two that never end fit in nothing that does.
    fn has_two_windows(self, window: Option<Duration>) -> bool {
        match (self, window) {
            (Self::Unlimited, _) => true,
            (Self::Until { .. }, None) => false,
            (Self::Until { left, .. }, Some(window)) => left >= window.saturating_mul(2),
        }
    }
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The same model with the same key, after a wait.
    Again {
        /// How long.
        after: Duration,
    },
    /// The same model with its provider's next key, at once.
    NextProfile,
    /// The next model, at once.
    NextModel,
    /// Nothing: the run ends with this failure.
    GiveUp,
}

impl Step {
    /// How long to wait before it.
    pub(super) const fn wait(self) -> Duration {
        match self {
            Self::Again { after } => after,
            Self::NextProfile | Self::NextModel | Self::GiveUp => Duration::ZERO,
        }
    }
}

/// What follows `failed`.
pub(super) fn next_attempt(failed: Failed, tried: Tried, time: TimeLeft) -> Step {
    if tried.silences >= SILENCES_MAX || !time.allows_after(Duration::ZERO) {
        return Step::GiveUp;
    }
    let next_model = if tried.models_left > 0 { Step::NextModel } else { Step::GiveUp };
    let again = |wait: Option<Duration>| match wait {
        Some(after) if time.allows_after(after) => Step::Again { after },
        _ => next_model,
    };
    match failed.cause {
        Cause::Account | Cause::Limited if tried.profiles_left > 0 => Step::NextProfile,
        Cause::Passing | Cause::Limited => {
            let usual = WAITS.get(tried.repeats as usize);
            again(usual.map(|&usual| failed.retry_after.unwrap_or(usual)))
        }
        Cause::Late | Cause::Silent => {
            let may = tried.models_left == 0 || time.has_two_windows(failed.window);
            let is_first = tried.repeats == 0;
            again((may && is_first).then(|| failed.retry_after.unwrap_or(Duration::ZERO)))
        }
        Cause::Account | Cause::Unfit => next_model,
        Cause::Final => Step::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use Cause::{Account, Final, Late, Limited, Passing, Silent, Unfit};
    use Step::{Again, GiveUp, NextModel, NextProfile};
    use TimeLeft::Unlimited;

    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    const fn failed(cause: Cause) -> Failed {
        Failed { cause, retry_after: None, window: Some(ms(10_000)) }
    }

    const fn wanting(cause: Cause, wait: u64) -> Failed {
        Failed { retry_after: Some(ms(wait)), ..failed(cause) }
    }

    const fn endless(cause: Cause) -> Failed {
        Failed { window: None, ..failed(cause) }
    }

    /// Repeats of this model, profiles left, models left.
    const fn tried(repeats: u32, profiles_left: usize, models_left: usize) -> Tried {
        Tried { repeats, silences: 0, profiles_left, models_left }
    }

    /// What is left of a hundred seconds.
    const fn left(left: u64) -> TimeLeft {
        TimeLeft::Until { left: ms(left), whole: ms(100_000) }
    }

    const fn again(after: u64) -> Step {
        Again { after: ms(after) }
    }

    #[track_caller]
    fn check(table: &[(Failed, Tried, TimeLeft, Step)]) {
        for &(failed, tried, time, step) in table {
            let found = next_attempt(failed, tried, time);
            assert_eq!(found, step, "{failed:?} {tried:?} {time:?}");
        }
    }

    #[test]
    fn what_may_pass_is_asked_twice_more_and_then_the_next_model() {
        check(&[
            (failed(Passing), tried(0, 0, 1), Unlimited, again(1000)),
            (failed(Passing), tried(1, 0, 1), Unlimited, again(4000)),
            (failed(Passing), tried(2, 0, 1), Unlimited, NextModel),
            (failed(Passing), tried(2, 0, 0), Unlimited, GiveUp),
            (failed(Passing), tried(0, 2, 0), Unlimited, again(1000)),
            (wanting(Passing, 0), tried(1, 0, 1), Unlimited, again(0)),
            (wanting(Passing, 90_000), tried(0, 0, 1), Unlimited, again(90_000)),
            (wanting(Passing, 0), tried(2, 0, 1), Unlimited, NextModel),
        ]);
    }

    #[test]
    fn another_key_comes_before_a_wait_and_before_another_model() {
        check(&[
            (failed(Limited), tried(0, 1, 1), Unlimited, NextProfile),
            (wanting(Limited, 9000), tried(0, 1, 1), Unlimited, NextProfile),
            (failed(Limited), tried(0, 0, 1), Unlimited, again(1000)),
            (failed(Limited), tried(2, 0, 1), Unlimited, NextModel),
            (failed(Account), tried(0, 1, 1), Unlimited, NextProfile),
            (failed(Account), tried(0, 0, 1), Unlimited, NextModel),
            (failed(Account), tried(0, 0, 0), Unlimited, GiveUp),
        ]);
    }

    #[test]
    fn what_one_model_cannot_another_may_and_what_none_can_ends_the_run() {
        check(&[
            (failed(Unfit), tried(0, 1, 1), Unlimited, NextModel),
            (failed(Unfit), tried(0, 1, 0), Unlimited, GiveUp),
            (failed(Final), tried(0, 1, 1), Unlimited, GiveUp),
            (wanting(Final, 1), tried(0, 0, 1), left(100_000), GiveUp),
        ]);
    }

    #[test]
    fn a_silent_model_is_asked_once_more_where_there_is_time_or_nothing_else() {
        for cause in [Silent, Late] {
            check(&[
                (failed(cause), tried(0, 0, 1), left(90_000), again(0)),
                (endless(cause), tried(0, 0, 1), left(90_000), NextModel),
                (endless(cause), tried(0, 0, 0), left(90_000), again(0)),
                (endless(cause), tried(0, 0, 1), Unlimited, again(0)),
                (failed(cause), tried(1, 1, 1), Unlimited, NextModel),
                (failed(cause), tried(1, 0, 0), Unlimited, GiveUp),
                (wanting(cause, 2000), tried(0, 0, 0), left(90_000), again(2000)),
            ]);
        }
        let slow = Failed { window: Some(ms(45_001)), ..failed(Silent) };
        check(&[
            (slow, tried(0, 0, 1), left(90_001), NextModel),
            (slow, tried(0, 0, 1), left(90_002), again(0)),
        ]);
    }

    #[test]
    fn five_silences_in_a_row_end_the_run() {
        let silent = |silences| Tried { silences, ..tried(0, 1, 3) };
        check(&[
            (failed(Silent), silent(4), Unlimited, again(0)),
            (failed(Silent), silent(5), Unlimited, GiveUp),
        ]);
    }

    #[test]
    fn nothing_starts_in_the_last_quarter_or_half_second() {
        let short = |left| TimeLeft::Until { left: ms(left), whole: ms(1000) };
        check(&[
            (failed(Unfit), tried(0, 0, 1), left(25_000), NextModel),
            (failed(Unfit), tried(0, 0, 1), left(24_999), GiveUp),
            (failed(Account), tried(0, 1, 1), left(24_999), GiveUp),
            (failed(Unfit), tried(0, 0, 1), short(500), NextModel),
            (failed(Unfit), tried(0, 0, 1), short(499), GiveUp),
            (failed(Passing), tried(0, 0, 0), left(26_000), again(1000)),
            (failed(Passing), tried(0, 0, 0), left(25_999), GiveUp),
            (failed(Passing), tried(0, 0, 1), left(25_999), NextModel),
            (wanting(Limited, 80_000), tried(0, 0, 1), left(99_000), NextModel),
            (wanting(Limited, 80_000), tried(0, 0, 0), left(99_000), GiveUp),
            (wanting(Limited, 70_000), tried(0, 0, 0), left(99_000), again(70_000)),
        ]);
    }

    #[test]
    fn every_class_of_fault_has_its_cause() {
        use FaultClass::{
            Auth, BadRequest, Billing, ContentFilter, ContextOverflow, EmptyResponse,
            IncompleteStream, MalformedToolCall, ModelNotFound, Network, NotAStream, Other,
            Overloaded, RateLimit, ServerError, Timeout, TruncatedToolCall, Unreachable,
        };
        let table: [(Cause, &[FaultClass]); 6] = [
            (Limited, &[RateLimit]),
            (
                Passing,
                &[Overloaded, Network, ServerError, Unreachable, IncompleteStream, EmptyResponse],
            ),
            (Late, &[Timeout]),
            (Account, &[Auth, Billing]),
            (Unfit, &[ModelNotFound, Other, NotAStream, TruncatedToolCall, MalformedToolCall]),
            (Final, &[BadRequest, ContextOverflow, ContentFilter]),
        ];
        for (cause, classes) in table {
            assert!(classes.iter().all(|&class| Cause::of(class) == cause), "{cause:?}");
        }
    }
}
