//! The record of hooks: which were asked when, and what they changed by name.

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::{Store, instant};
use crate::hooks::{HookRecord, HookRecorder};

impl HookRecorder for Store {
    /// It is kept until the disk takes it; nobody waits for that.
    fn note(&self, record: HookRecord) {
        self.writer.keep("hook", move |db| insert(db, &record));
    }
}

fn insert(db: &Connection, record: &HookRecord) -> rusqlite::Result<()> {
    // A run that is not in the history has no row to belong to.
    db.prepare_cached(
        "INSERT INTO hooks (run_id, n, hook, name, outcome, changed, error, started_at, duration_ms)
         SELECT of.run_id,
             (SELECT coalesce(max(n), 0) + 1 FROM hooks WHERE run_id IS of.run_id),
             ?2, ?3, ?4, ?5, ?6, ?7, ?8
         FROM (SELECT (SELECT run_id FROM runs WHERE run_id = ?1) AS run_id) AS of",
    )?
    .execute(params![
        record.run_id,
        record.hook.as_str(),
        record.name,
        record.outcome.as_str(),
        serde_json::to_string(&record.changed).unwrap_or_else(|_| "[]".into()),
        record.error,
        instant::text(record.started_at),
        i64::try_from(record.duration.as_millis()).unwrap_or(i64::MAX),
    ])
    .map(drop)
}

/// Removes what belongs to no run and is older than `oldest`, at most `batch` rows. Returns how
/// many.
pub(super) fn prune(db: &Connection, oldest: Timestamp, batch: u16) -> rusqlite::Result<usize> {
    db.prepare_cached(
        "DELETE FROM hooks WHERE id IN (
             SELECT id FROM hooks WHERE run_id IS NULL AND started_at < ?1 LIMIT ?2)",
    )?
    .execute(params![instant::text(oldest), batch])
}
