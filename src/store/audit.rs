//! The audit ledger: who did what when, with which result; never what was said.
//!
//! What moves a run, a tool call's end or a pause is written with it, by the schema or in the same
//! transaction. The rest is offered: when the ledger has too much to do it is lost, and nobody
//! waits for it.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::error::StoreError;
use super::{Store, hooks, instant};
use crate::run::{RunId, SessionId};

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
        /// A message was a command.
        Command = "command",
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

/// A row about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionAudit {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// What.
    pub kind: AuditKind,
    /// Which session.
    pub session_id: SessionId,
    /// In a word.
    pub name: String,
}

impl Store {
    /// Writes `row` if the ledger has room for it. Never waits.
    pub fn offer_session_audit(&self, row: SessionAudit) {
        self.writer.offer("audit row", move |db| {
            db.prepare_cached(
                "INSERT INTO audit (at, actor, kind, session, name) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                instant::text(row.at),
                row.actor.as_str(),
                row.kind.as_str(),
                row.session_id.as_str(),
                row.name,
            ])
            .map(drop)
        });
    }

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
                break;
            }
        }
        // What hooks did for no run is kept as long.
        while self.writer.transaction(move |db| hooks::prune(db, now - KEPT, BATCH)).await?
            == usize::from(BATCH)
        {}
        Ok(pruned)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Owner, QueryLimits};

    fn store(dir: &std::path::Path) -> Store {
        let owner = Owner { boot_id: "boot".into(), pid: 1, started: 2, host: "host".into() };
        Store::open(dir, owner).unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-30T09:00:00.250Z".parse().unwrap()
    }

    /// `count` rows of that age, the oldest that there are.
    async fn rows(store: &Store, count: i64, age: Duration) {
        let at = instant::text(now() - age);
        let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                      INSERT INTO audit (at, actor, kind) SELECT ?2, 'punctual', 'run_end' FROM n";
        store.writer.transaction(move |db| db.execute(insert, params![count, at])).await.unwrap();
    }

    fn value(store: &Store, sql: &str) -> serde_json::Value {
        store.reader().unwrap().query(sql, QueryLimits::default()).unwrap().rows[0][0].clone()
    }

    #[tokio::test]
    async fn rows_go_when_they_are_old_or_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        rows(&store, 12_000, KEPT + Duration::from_secs(1)).await;
        rows(&store, 2, KEPT).await;
        assert_eq!(store.prune_audit(now()).await.unwrap(), 12_000);
        assert_eq!(value(&store, "SELECT count(*) FROM v1_audit"), 2);
        rows(&store, ROWS_MAX, Duration::ZERO).await;
        assert_eq!(store.prune_audit(now()).await.unwrap(), 2);
        assert_eq!(value(&store, "SELECT count(*) FROM v1_audit"), ROWS_MAX);
        assert_eq!(store.prune_audit(now()).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_row_that_there_is_no_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let elsewhere = store.writer.transaction(|db| Ok(db.path().unwrap().to_owned()));
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let admin = Connection::open_with_flags(elsewhere.await.unwrap(), flags).unwrap();
        let run = "INSERT INTO runs (run_id, job, trigger, attempt, state, queued_at, session_id,
                                     definition_hash, host, version, owner_boot_id, owner_pid,
                                     owner_started)
                   VALUES ('r', 'j', 'manual', 1, 'queued', '', 's', 'h', '', '', '', 1, 1)";
        admin.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        admin.execute_batch(run).unwrap();
        // The writer waits for this, and its queue fills up.
        admin.execute_batch("BEGIN IMMEDIATE").unwrap();
        let row = AuditRow {
            at: now(),
            actor: Actor::Person,
            kind: AuditKind::Cancel,
            run_id: RunId::from_stored("r"),
            name: None,
            result: Some("requested"),
        };
        let offered = 10_000;
        for _ in 0..offered {
            store.offer_audit(row.clone());
        }
        admin.execute_batch("COMMIT").unwrap();
        store.writer.transaction(|_| Ok(())).await.unwrap();
        let kept = value(&store, "SELECT count(*) FROM v1_audit WHERE run_id = 'r' AND name = 'j'");
        let kept = kept.as_i64().unwrap();
        assert!((1..offered).contains(&kept), "{kept}");
    }
}
