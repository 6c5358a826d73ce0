//! How slots of a job have ended, for the jobs that come after it.

use jiff::Timestamp;
use rusqlite::{Row, params};

use super::error::StoreError;
use super::{Reader, instant};
use crate::job::JobId;
use crate::plan::{How, SlotEnd};
use crate::run::State;

impl Reader {
    /// The slots of `upstream` after `since` that have come to their end and of which `job` has
    /// none, oldest first.
    pub fn slot_ends(
        &self,
        upstream: &JobId,
        job: &JobId,
        since: Timestamp,
    ) -> Result<Vec<SlotEnd>, StoreError> {
        let mut select = self.0.prepare_cached(
            "SELECT s.due_at, s.due_until, s.decided_at, s.decision, r.state, r.finished_at
             FROM slots s
             LEFT JOIN runs r ON s.decision = 'started' AND r.job = s.job AND r.due_at = s.due_at
                  AND r.trigger <> 'backfill'
                  AND r.attempt = (SELECT max(attempt) FROM runs l
                                    WHERE l.job = s.job AND l.due_at = s.due_at
                                      AND l.trigger <> 'backfill')
             WHERE s.job = ?1 AND s.due_at > ?3
               AND CASE s.decision
                   WHEN 'started' THEN r.settled = 1 AND r.state NOT IN ('queued', 'running')
                   WHEN 'held' THEN s.reason NOT IN ('model_unreachable', 'budget')
                   WHEN 'buffered' THEN 0
                   ELSE s.reason NOT IN ('excluded', 'dst_gap') END
               AND NOT EXISTS (SELECT 1 FROM slots d WHERE d.job = ?2 AND d.due_at <= s.due_at
                                  AND d.due_until >= s.due_at)
             ORDER BY s.due_at",
        )?;
        let since = instant::text(since);
        let ends = select.query_map(params![upstream.as_str(), job.as_str(), since], |row| {
            end_from(upstream, row)
        })?;
        Ok(ends.collect::<Result<_, _>>()?)
    }
}

fn end_from(job: &JobId, row: &Row<'_>) -> rusqlite::Result<SlotEnd> {
    let at = |column: usize| instant::parse(&row.get::<_, String>(column)?);
    let state: Option<String> = row.get(4)?;
    let how = match state.and_then(|state| state.parse::<State>().ok()) {
        Some(state) => How::of(state),
        None => How::Otherwise,
    };
    let finished: Option<String> = row.get(5)?;
    let at_end = match finished {
        Some(text) => instant::parse(&text)?,
        None => at(2)?,
    };
    Ok(SlotEnd { job: job.clone(), first: at(0)?, last: at(1)?, how, at: at_end })
}
