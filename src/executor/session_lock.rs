//! The session's lock in the life of a run: taken before anything streams, given back by the
//! clean-up.

use std::time::Duration;

use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::Stop;
use super::watchdog::Watchdog;
use crate::run::{ErrorKind, Failure, Limit};
use crate::session::{LockError, SessionLock, transcript_path};

/// A hold may always be this long (semantics §2).
const HOLD_MIN: Duration = Duration::from_mins(5);

/// And this much longer than the run's own limit.
const HOLD_BEYOND_RUN: Duration = Duration::from_mins(2);

impl Executor {
    /// Takes the lock of the run's transcript. The wait has a limit of its own and uses up no
    /// other one but the run's deadline.
    pub(super) async fn lock_session(
        &self,
        ticket: &Ticket,
        watchdog: &Watchdog,
        holdings: &mut Holdings,
    ) -> Result<(), Stop> {
        let within = self.config.session_lock_timeout;
        let transcript = transcript_path(&self.config.state_dir, ticket.session_id.as_str());
        watchdog.waits_for_session();
        let lock = SessionLock::take(&transcript, within, &self.clock).await;
        holdings.session_lock = Some(lock.map_err(|error| failure(&error, within))?);
        watchdog.has_session(hold_max(self.run_limits(ticket).deadline));
        Ok(())
    }
}

/// How long a run may hold its session: max(5m, its own limit + 2m).
fn hold_max(deadline: Option<Duration>) -> Option<Duration> {
    Some(deadline?.saturating_add(HOLD_BEYOND_RUN).max(HOLD_MIN))
}

fn failure(error: &LockError, within: Duration) -> Failure {
    match error {
        LockError::Busy { .. } => {
            let limit = humantime::format_duration(within);
            Failure::new(ErrorKind::SessionBusy, format!("{error}, waited {limit} for it"))
                .by_limit(Limit::SessionLock, Some(within))
                .retryable()
        }
        LockError::Io { source, .. } => {
            Failure::new(ErrorKind::Internal, format!("{error}: {source}")).retryable()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_bounded_by_the_runs_own_limit() {
        let minutes = Duration::from_mins;
        assert_eq!(hold_max(Some(Duration::from_secs(1))), Some(minutes(5)));
        assert_eq!(hold_max(Some(minutes(3))), Some(minutes(5)));
        assert_eq!(hold_max(Some(minutes(60))), Some(minutes(62)));
        assert_eq!(hold_max(None), None);
    }
}
