//! What a dead process left open, closed.
//!
//! Called by whoever holds the state folder's lock, before anything else: under that lock no
//! living process drives a run, so every open row belongs to a dead one.

use jiff::Timestamp;
use rusqlite::params;

use super::error::StoreError;
use super::{Store, instant};
use crate::run::{ErrorKind, Failure, Outcome, RunId, State, Work};
use crate::store::runs::set_work;

/// What [`Store::recover`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Rows whose work had ended: finished from what was stored.
    pub finished: u64,
    /// Rows whose work had not: now `interrupted`.
    pub interrupted: u64,
}

impl Store {
    /// Closes every open row. Doing it again changes nothing.
    pub async fn recover(&self, now: Timestamp) -> Result<Recovered, StoreError> {
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
                        set_work(db, &run_id, &interrupted(&state))?;
                        db.execute(
                            "UPDATE attempts SET state = 'interrupted', error_kind = 'interrupted'
                             WHERE run_id = ?1 AND state = 'running'",
                            [run_id.as_str()],
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

fn interrupted(state: &str) -> Work {
    let words = if state == State::Queued.as_str() {
        "the process that had queued it died before it started"
    } else {
        "the process that ran it died"
    };
    Work {
        outcome: Outcome::ended(Failure::new(ErrorKind::Interrupted, words), None),
        tool_calls: 0,
        tool_errors: 0,
        denied_calls: 0,
    }
}
