//! Open rows, closed: those that a dead process left, and those of a process that leaves at once.
//!
//! Called by whoever holds the state folder's lock, before anything else or as its last act: under
//! that lock no other living process drives a run.

use jiff::Timestamp;
use rusqlite::params;

use super::error::StoreError;
use super::{Store, instant};
use crate::run::{ErrorKind, Failure, Outcome, RunId, State, Work};
use crate::store::runs::set_work;

/// What [`Store::close_open_runs`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Rows whose work had ended: finished from what was stored.
    pub finished: u64,
    /// Rows whose work had not: now `interrupted`.
    pub interrupted: u64,
}

impl Store {
    /// Closes every open row: from its stored result if there is one, else as interrupted for the
    /// reason `why` (`interrupted`: the process died; `shutdown`: it leaves). Doing it again
    /// changes nothing.
    pub async fn close_open_runs(
        &self,
        why: ErrorKind,
        now: Timestamp,
    ) -> Result<Recovered, StoreError> {
        self.writer
            .transaction(move |db| {
                let mut recovered = Recovered::default();
                let open: Vec<(String, String, Option<String>)> = db
                    .prepare(
                        "SELECT run_id, state, work_state FROM runs
                         WHERE state IN ('queued', 'running')",
                    )?
                    .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                    .collect::<Result<_, _>>()?;
                for (run_id, state, work_state) in open {
                    let run_id = RunId::from_stored(run_id);
                    if work_state.is_some() {
                        recovered.finished += 1;
                    } else {
                        recovered.interrupted += 1;
                        set_work(db, &run_id, &interrupted(why, &state))?;
                        db.execute(
                            "UPDATE attempts SET state = 'interrupted', error_kind = ?2
                             WHERE run_id = ?1 AND state = 'running'",
                            params![run_id.as_str(), why.as_str()],
                        )?;
                    }
                    db.execute(
                        "UPDATE runs SET state = work_state, finished_at = ?2,
                             duration_ms = CAST(round((julianday(?2) - julianday(coalesce(started_at, ?2))) * 86400000) AS INTEGER)
                         WHERE run_id = ?1",
                        params![run_id.as_str(), instant::text(now)],
                    )?;
                }
                Ok(recovered)
            })
            .await
    }
}

fn interrupted(why: ErrorKind, state: &str) -> Work {
    let words = match (why, state == State::Queued.as_str()) {
        (ErrorKind::Shutdown, true) => "punctual was stopped before it started",
        (ErrorKind::Shutdown, false) => "punctual was stopped at once",
        (_, true) => "the process that had queued it died before it started",
        (_, false) => "the process that ran it died",
    };
    Work {
        outcome: Outcome::ended(Failure::new(why, words), None),
        tool_calls: 0,
        tool_errors: 0,
        denied_calls: 0,
    }
}
