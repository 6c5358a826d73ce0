//! What follows the end of a scheduled run (semantics §4).

use std::time::Duration;

use jiff::Timestamp;

use super::due::catchup_window;
use super::rules::{Account, Rules};
use crate::job::{AfterInterruption, RetrySpec, Usd};
use crate::run::{ErrorKind, State, Trigger};

/// Waits after one, two, three … failed slots in a row; the last one repeats.
const SLOT_BACKOFF: [Duration; 5] = [
    Duration::from_secs(30),
    Duration::from_mins(1),
    Duration::from_mins(5),
    Duration::from_mins(15),
    Duration::from_hours(1),
];

/// How a run ended, as far as decisions depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEnd {
    /// Its terminal state.
    pub state: State,
    /// Why, if it did not succeed.
    pub kind: Option<ErrorKind>,
    /// How many tools it called.
    pub tool_calls: u32,
    /// What is known of its cost.
    pub usd: Usd,
    /// When it ended.
    pub at: Timestamp,
}

/// The attempts of one slot, the present one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// What started the first one.
    pub origin: Trigger,
    /// The slot.
    pub due_at: Timestamp,
    /// The slots that its runs stand for: itself and the misfires before it.
    pub stands_for: u64,
    /// The first of them.
    pub first_due: Timestamp,
    /// The number of the present attempt.
    pub attempt: u32,
    /// Attempts that have ended and count against `max_attempts`.
    pub counted: u32,
    /// Attempts that have ended, whatever their cause.
    pub ended: u32,
    /// Attempts that were interrupted.
    pub interrupted: u32,
}

impl Chain {
    /// A slot's first attempt, or the first one of a backfill.
    pub fn new(origin: Trigger, due_at: Timestamp, attempt: u32) -> Self {
        Self {
            origin,
            due_at,
            stands_for: 1,
            first_due: due_at,
            attempt,
            counted: 0,
            ended: 0,
            interrupted: 0,
        }
    }

    /// The same, standing for as many slots from `first_due` on.
    #[must_use]
    pub fn standing_for(self, stands_for: u64, first_due: Timestamp) -> Self {
        Self { stands_for, first_due, ..self }
    }

    /// The same with its present attempt ended.
    #[must_use]
    pub fn after(self, end: &RunEnd) -> Self {
        let interrupted = u32::from(end.state == State::Interrupted);
        let counts = interrupted == 0 && !is_providers_fault(end);
        Self {
            counted: self.counted + u32::from(counts),
            ended: self.ended + 1,
            interrupted: self.interrupted + interrupted,
            ..self
        }
    }

    /// The next attempt.
    #[must_use]
    pub fn next(self) -> Self {
        Self { attempt: self.attempt + 1, ..self }
    }
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// The slot is done.
    Succeeded,
    /// It is over without having failed: cancelled, or interrupted and left.
    Over,
    /// Another attempt at this instant.
    Again(Timestamp),
    /// It has failed after its last attempt.
    Failed,
    /// It was interrupted, and so was its repetition.
    Hold,
}

/// What follows `end`, the end of the present attempt of `chain` (which does not count it yet).
pub fn follow(rules: &Rules, chain: Chain, end: &RunEnd) -> Follow {
    let after = chain.after(end);
    match end.state {
        State::Succeeded => return Follow::Succeeded,
        State::Queued | State::Running | State::Cancelled => return Follow::Over,
        State::Interrupted => {
            return match (rules.retry.interrupted, after.interrupted) {
                (AfterInterruption::Leave, _) => Follow::Over,
                (AfterInterruption::RepeatOnce, 1) => Follow::Again(end.at),
                (AfterInterruption::RepeatOnce, _) => Follow::Hold,
            };
        }
        State::Failed | State::TimedOut => {}
    }
    let at = end.at + wait(&rules.retry, after.ended);
    let again = if rules.retry.max_attempts == 1 {
        false
    } else if is_providers_fault(end) && rules.schedule.is_some() {
        provider_limit(rules, chain.due_at).is_some_and(|limit| at <= limit)
    } else {
        // Without a next due time there is no other end to what is the provider's fault.
        let attempts = match rules.schedule {
            Some(_) => after.counted,
            None => after.ended - after.interrupted,
        };
        !is_permanent(&rules.retry, end) && attempts < rules.retry.max_attempts
    };
    if again { Follow::Again(at) } else { Follow::Failed }
}

/// The account after a slot that has failed for good at `end`.
pub fn failed_slot(account: Account, end: &RunEnd) -> Account {
    let failed_slots = account.failed_slots.saturating_add(1);
    let counted = u32::from(!is_of_provider(end));
    let index = usize::try_from(failed_slots - 1).unwrap_or(usize::MAX);
    let backoff = SLOT_BACKOFF[index.min(SLOT_BACKOFF.len() - 1)];
    Account {
        failed_slots,
        counted_failures: account.counted_failures.saturating_add(counted),
        backoff_until: Some(end.at + backoff),
    }
}

/// The longest that any account can make a job wait.
pub(super) const BACKOFF_MAX: Duration = SLOT_BACKOFF[SLOT_BACKOFF.len() - 1];

/// The wait after so many ended attempts.
fn wait(retry: &RetrySpec, ended: u32) -> Duration {
    let index = usize::try_from(ended.saturating_sub(1)).unwrap_or(usize::MAX);
    let index = index.min(retry.backoff.len().saturating_sub(1));
    retry.backoff.get(index).copied().unwrap_or(BACKOFF_MAX)
}

/// Until when a slot is retried for its provider's sake: its window or the next due instant,
/// whichever is first.
fn provider_limit(rules: &Rules, due_at: Timestamp) -> Option<Timestamp> {
    let schedule = rules.schedule.as_ref()?;
    let window = catchup_window(schedule, rules.catchup_window, due_at);
    let limit = schedule.start_of(due_at) + window;
    Some(schedule.next_after(due_at).map_or(limit, |next| limit.min(next.at)))
}

/// A cause on the provider's side, of an attempt in which no tool ran: it does not use up the
/// attempts.
fn is_providers_fault(end: &RunEnd) -> bool {
    is_of_provider(end) && end.tool_calls == 0
}

/// A cause on the provider's side, whatever the attempt had done: it never pauses a job.
fn is_of_provider(end: &RunEnd) -> bool {
    end.kind.is_some_and(is_provider_side)
}

/// Whether a failure is a provider's, and not the job's.
pub fn is_provider_side(kind: ErrorKind) -> bool {
    use ErrorKind::{
        FirstTokenTimeout, IdleTimeout, ModelUnreachable, Network, Overloaded, ProviderTimeout,
        RateLimit, ServerError,
    };
    matches!(
        kind,
        RateLimit
            | Overloaded
            | Network
            | ModelUnreachable
            | ServerError
            | FirstTokenTimeout
            | IdleTimeout
            | ProviderTimeout
    )
}

/// The job's own list of what is retried all the same comes first.
fn is_permanent(retry: &RetrySpec, end: &RunEnd) -> bool {
    use ErrorKind::{
        Auth, BadRequest, Billing, Budget, CheckFailed, ContentFilter, ContextOverflow,
        HookBlocked, ModelNotFound, OutputInvalid, ToolLoop, TruncatedReply, TruncatedToolCall,
        TurnLimit, Validation,
    };
    let Some(kind) = end.kind else { return false };
    let permanent = matches!(
        kind,
        Auth | Billing
            | ModelNotFound
            | BadRequest
            | ContextOverflow
            | ContentFilter
            | TruncatedReply
            | TruncatedToolCall
            | ToolLoop
            | TurnLimit
            | HookBlocked
            | Validation
            | CheckFailed
            | OutputInvalid
            | Budget
    );
    permanent && !retry.on.iter().any(|listed| listed == kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rules::Availability;
    use crate::schedule::{CronExpr, Fold, Gap, Schedule, Zone};

    const NINE: &str = "2026-11-30T09:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn rules(cron: &str) -> Rules {
        let expr = CronExpr::parse(cron).unwrap();
        let schedule = Schedule::cron(expr, Zone::utc(), Gap::Shift, Fold::Once);
        let mut rules = Rules::idle(Some(schedule), Availability::Ready);
        rules.catchup = crate::job::Catchup::Latest;
        rules
    }

    fn end(state: State, kind: ErrorKind, at_text: &str) -> RunEnd {
        RunEnd { state, kind: Some(kind), tool_calls: 0, usd: Usd::ZERO, at: at(at_text) }
    }

    /// The seconds after nine at which attempts of a slot start, when each one ends at once with
    /// `kind`; the slot's end is named last.
    fn story(rules: &Rules, kind: ErrorKind, tool_calls: u32) -> (Vec<i64>, Follow) {
        let (mut chain, mut now) = (Chain::new(Trigger::Schedule, at(NINE), 1), at(NINE));
        let mut starts = vec![0];
        loop {
            let end = RunEnd {
                state: State::Failed,
                kind: Some(kind),
                tool_calls,
                usd: Usd::ZERO,
                at: now,
            };
            match follow(rules, chain, &end) {
                Follow::Again(next) if starts.len() < 100 => {
                    starts.push(next.duration_since(at(NINE)).as_secs());
                    (chain, now) = (chain.after(&end).next(), next);
                }
                last => return (starts, last),
            }
        }
    }

    #[test]
    fn a_failure_of_our_own_is_retried_three_times_with_growing_waits() {
        let daily = rules("0 9 * * *");
        let own = (vec![0, 30, 90, 390], Follow::Failed);
        assert_eq!(story(&daily, ErrorKind::IncompleteStream, 0), own);
        assert_eq!(story(&daily, ErrorKind::Deadline, 3), own);
        // A provider's fault counts once a tool has run.
        assert_eq!(story(&daily, ErrorKind::RateLimit, 1), own);
        let mut once = daily.clone();
        once.retry.max_attempts = 1;
        assert_eq!(story(&once, ErrorKind::RateLimit, 0), (vec![0], Follow::Failed));
        assert_eq!(story(&once, ErrorKind::IncompleteStream, 0), (vec![0], Follow::Failed));
    }

    #[test]
    fn a_providers_fault_is_retried_until_the_window_or_the_next_slot() {
        let (starts, last) = story(&rules("0 9 * * *"), ErrorKind::Overloaded, 0);
        assert_eq!((starts[..5].to_vec(), last), (vec![0, 30, 90, 390, 690], Follow::Failed));
        assert_eq!(*starts.last().unwrap(), 90 + 23 * 300, "two hours, and not a second more");
        let (starts, _) = story(&rules("*/5 * * * *"), ErrorKind::Network, 0);
        assert_eq!(starts, [0, 30, 90], "its window is half of five minutes");
        let mut wide = rules("*/5 * * * *");
        wide.catchup_window = Some(Duration::from_hours(1));
        wide.retry.backoff = vec![Duration::from_secs(100)];
        assert_eq!(story(&wide, ErrorKind::Network, 0).0, [0, 100, 200, 300]);
    }

    #[test]
    fn a_permanent_error_is_not_retried_unless_the_job_says_so() {
        let mut daily = rules("0 9 * * *");
        for kind in [ErrorKind::Auth, ErrorKind::BadRequest, ErrorKind::CheckFailed] {
            assert_eq!(story(&daily, kind, 0), (vec![0], Follow::Failed));
        }
        daily.retry.on = vec!["check_failed".into()];
        assert_eq!(story(&daily, ErrorKind::CheckFailed, 0).0.len(), 4);
        assert_eq!(story(&daily, ErrorKind::Auth, 0).0.len(), 1);
    }

    #[test]
    fn an_interruption_is_repeated_once_if_the_job_says_so() {
        let mut daily = rules("0 9 * * *");
        let interrupted = end(State::Interrupted, ErrorKind::Interrupted, NINE);
        let first = Chain::new(Trigger::Schedule, at(NINE), 1);
        assert_eq!(follow(&daily, first, &interrupted), Follow::Over);
        daily.retry.interrupted = AfterInterruption::RepeatOnce;
        assert_eq!(follow(&daily, first, &interrupted), Follow::Again(at(NINE)));
        let second = first.after(&interrupted).next();
        assert_eq!((second.attempt, second.counted), (2, 0));
        assert_eq!(follow(&daily, second, &interrupted), Follow::Hold);
        // Whatever comes between the two: the repeat of an interruption is the only one.
        let failed = end(State::Failed, ErrorKind::IncompleteStream, NINE);
        let third = second.after(&failed).next();
        assert_eq!(follow(&daily, third, &interrupted), Follow::Hold);
    }

    #[test]
    fn what_succeeded_or_was_cancelled_is_over() {
        let daily = rules("0 9 * * *");
        let chain = Chain::new(Trigger::Catchup, at(NINE), 1);
        let done = RunEnd {
            state: State::Succeeded,
            kind: None,
            tool_calls: 1,
            usd: Usd::ZERO,
            at: at(NINE),
        };
        assert_eq!(follow(&daily, chain, &done), Follow::Succeeded);
        let cancelled = end(State::Cancelled, ErrorKind::Cancelled, NINE);
        assert_eq!(follow(&daily, chain, &cancelled), Follow::Over);
    }

    #[test]
    fn failed_slots_add_up_and_make_the_next_one_wait() {
        let own = end(State::Failed, ErrorKind::IncompleteStream, NINE);
        let providers = end(State::Failed, ErrorKind::Overloaded, NINE);
        let mut account = Account::default();
        let mut waits = Vec::new();
        let with_tools = RunEnd { tool_calls: 3, ..providers };
        for end in [&own, &providers, &with_tools, &own, &own, &own] {
            account = failed_slot(account, end);
            waits.push(account.backoff_until.unwrap().duration_since(at(NINE)).as_secs());
        }
        assert_eq!(waits, [30, 60, 300, 900, 3600, 3600]);
        assert_eq!((account.failed_slots, account.counted_failures), (6, 4));
    }

    #[test]
    fn the_kinds_that_a_job_may_name_are_the_permanent_ones() {
        let retry = RetrySpec::default();
        let permanent = |kind: &&ErrorKind| {
            let end = RunEnd {
                state: State::Failed,
                kind: Some(**kind),
                tool_calls: 0,
                usd: Usd::ZERO,
                at: at(NINE),
            };
            is_permanent(&retry, &end)
        };
        let ours: Vec<_> = ErrorKind::ALL.iter().filter(permanent).map(|it| it.as_str()).collect();
        let mut theirs = crate::job::PERMANENT_KINDS.to_vec();
        let mut ours_sorted = ours.clone();
        ours_sorted.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours_sorted, theirs);
    }
}
