//! The audit ledger: who did what when, with which result; never what was said.
//!
//! What moves a run, a tool call's end or a pause is written with it, by the schema or in the same
//! transaction. The rest is offered: when the ledger has too much to do it is lost, and nobody
//! waits for it.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::error::StoreError;
use super::{Store, instant};
use crate::run::RunId;

/// How long a row is kept.
const KEPT: Duration = Duration::from_hours(30 * 24);

/// How many rows are kept.
const ROWS_MAX: i64 = 100_000;

/// Rows that one transaction prunes, so that no result waits long behind it.
const BATCH: u16 = 5_000;

words!(
    /// Who did it.
    Actor {
        /// Somebody asked for it.
        Person = "person",
        /// A rule of ours.
        Punctual = "punctual",
        /// The model of a run.
        Model = "model",
    }
);

words!(
    /// What was done to a run, as far as nothing else writes it.
    AuditKind {
        /// A tool call began.
        ToolStart = "tool_start",
        /// It was asked to end.
        Cancel = "cancel",
        /// Its session counts as stuck, and a recovery was asked for.
        StuckRequested = "stuck_requested",
        /// That recovery is over.
        StuckCompleted = "stuck_completed",
    }
);

/// A row about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// What.
    pub kind: AuditKind,
    /// Which run. A row about one that nobody knows is not written.
    pub run_id: RunId,
    /// Of what, if not of the run's job: a tool.
    pub name: Option<String>,
    /// With which result, in a word.
    pub result: Option<&'static str>,
}

impl Store {
    /// Writes `row` if the ledger has room for it. Never waits.
    pub fn offer_audit(&self, row: AuditRow) {
        self.writer.offer("audit row", move |db| insert(db, &row));
    }

    /// Removes rows that are older than 30 days or beyond the newest 100,000. Returns how many.
    pub async fn prune_audit(&self, now: Timestamp) -> Result<usize, StoreError> {
        let mut pruned = 0;
        loop {
            let batch = self.writer.transaction(move |db| prune(db, now)).await?;
            pruned += batch;
            if batch < usize::from(BATCH) {
                return Ok(pruned);
            }
        }
    }
}

fn insert(db: &Connection, row: &AuditRow) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO audit (at, actor, kind, run_id, session, name, result)
         SELECT ?2, ?3, ?4, run_id, session_id, coalesce(?5, job), ?6 FROM runs WHERE run_id = ?1",
    )?
    .execute(params![
        row.run_id.as_str(),
        instant::text(row.at),
        row.actor.as_str(),
        row.kind.as_str(),
        row.name,
        row.result,
    ])
    .map(drop)
}

/// The oldest come first, whichever of the two bounds they are beyond.
fn prune(db: &Connection, now: Timestamp) -> rusqlite::Result<usize> {
    let oldest = instant::text(now - KEPT);
    db.prepare_cached(
        "DELETE FROM audit WHERE id IN (
             SELECT id FROM audit
             WHERE at < ?1 OR id <= (SELECT coalesce(max(id), 0) - ?2 FROM audit)
             ORDER BY id LIMIT ?3)",
    )?
    .execute(params![oldest, ROWS_MAX, BATCH])
}
