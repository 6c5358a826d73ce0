//! Retention: what is old goes, in transactions so small that nothing waits long behind one.
//!
//! A run goes when it is beyond the newest `runs` of its job or ended more than `days` ago,
//! whichever comes first; a slot by its age alone, and never before its run. What still has
//! consequences stays, whatever its age: runs that are open or not settled, with every attempt of
//! their slot, slots that wait, and the newest slot of each job, which says where it stands.
//!
//! Rows go first. The deletion notes in `pruned` whose files are to follow, and the note goes when
//! they are gone: whenever the process dies in between, the next pass finds it.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::StoreError;
use super::{Reader, Store, instant};
use crate::config::Retention;

/// Rows that one transaction deletes: some ten milliseconds, in which results wait.
const BATCH: u16 = 200;

/// Free pages that are kept for what comes next: 4 MiB.
const SPARE_PAGES: i64 = 1024;

/// Pages that are given back in one go: a few milliseconds.
const PAGES_AT_ONCE: u16 = 64;

/// What of a job's history is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    job: String,
    /// The oldest run within the newest `runs`; those before it go.
    oldest_kept: Option<(String, String)>,
    /// What had ended before this goes.
    before: Option<String>,
}

/// A run whose row is gone, and whose files are to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrunedRun {
    /// Its id: the name of its workspace.
    pub run_id: String,
    /// The name of its transcript, unless others go on with that.
    pub session_id: Option<String>,
}

impl Reader {
    /// The jobs that have more history than is to be kept. A job's own `[retention]` is that of its
    /// last definition, so that it also holds for a job whose file is gone or broken.
    pub fn overdue(&self, usual: Retention, now: Timestamp) -> Result<Vec<Overdue>, StoreError> {
        let jobs: Vec<(String, Retention)> = self
            .0
            .prepare(
                "SELECT job, json_extract(effective, '$.retention.runs'),
                        json_extract(effective, '$.retention.days')
                 FROM jobs LEFT JOIN definitions USING (job, definition_hash)",
            )?
            .query_map([], |row| {
                let own = Retention { runs: row.get(1)?, days: row.get(2)? };
                let runs = own.runs.or(usual.runs);
                Ok((row.get(0)?, Retention { runs, days: own.days.or(usual.days) }))
            })?
            .collect::<Result<_, _>>()?;
        let mut overdue = Vec::new();
        for (job, kept) in jobs {
            let oldest_kept = self.oldest_kept(&job, kept.runs)?;
            let age = kept.days.map(|days| SignedDuration::from_hours(24 * i64::from(days)));
            let before = age.and_then(|age| now.checked_sub(age).ok()).map(instant::text);
            let before = before.filter(|before| self.has_older(&job, before).unwrap_or(true));
            if oldest_kept.is_some() || before.is_some() {
                overdue.push(Overdue { job, oldest_kept, before });
            }
        }
        Ok(overdue)
    }

    /// The last run of the newest `count`, if there are more.
    fn oldest_kept(
        &self,
        job: &str,
        count: Option<u32>,
    ) -> Result<Option<(String, String)>, StoreError> {
        let Some(count) = count.map(i64::from) else { return Ok(None) };
        // Both of these read the index alone.
        let mut nth = self.0.prepare_cached(
            "SELECT queued_at FROM runs WHERE job = ?1 ORDER BY queued_at DESC LIMIT 1 OFFSET ?2",
        )?;
        let mut at = |n: i64| nth.query_row(params![job, n], |row| row.get(0)).optional();
        let beyond: Option<String> = at(count)?;
        let last: Option<String> = at(count - 1)?;
        let (Some(_), Some(last)) = (beyond, last) else { return Ok(None) };
        let newer: i64 = self
            .0
            .prepare_cached("SELECT count(*) FROM runs WHERE job = ?1 AND queued_at > ?2")?
            .query_row([job, &last], |row| row.get(0))?;
        // Several may have been recorded in one millisecond.
        let run_id = self
            .0
            .prepare_cached(
                "SELECT run_id FROM runs WHERE job = ?1 AND queued_at = ?2
                 ORDER BY run_id DESC LIMIT 1 OFFSET ?3",
            )?
            .query_row(params![job, last, count - 1 - newer], |row| row.get(0))?;
        Ok(Some((last, run_id)))
    }

    fn has_older(&self, job: &str, before: &str) -> Result<bool, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM runs WHERE job = ?1 AND queued_at < ?2)
                     OR EXISTS (SELECT 1 FROM slots WHERE job = ?1 AND due_at < ?2)",
            )?
            .query_row([job, before], |row| row.get(0))?)
    }

    /// Runs whose rows are gone and whose files may not be yet, in the order of their ids.
    pub fn pruned_runs(&self, after: &str) -> Result<Vec<PrunedRun>, StoreError> {
        let mut pruned = self.0.prepare_cached(
            "SELECT run_id, session_id FROM pruned WHERE run_id > ?1 ORDER BY run_id LIMIT ?2",
        )?;
        let run = |row: &rusqlite::Row<'_>| {
            let session_id = Some(row.get(1)?).filter(|id: &String| !id.is_empty());
            Ok(PrunedRun { run_id: row.get(0)?, session_id })
        };
        Ok(pruned.query_map(params![after, BATCH], run)?.collect::<Result<_, _>>()?)
    }

    /// Definitions of this job that are not its own any more and that no run ran under, with the
    /// newest row of `runs` that has been looked at.
    fn unused_definitions(&self, job: &str) -> Result<(Vec<String>, i64), StoreError> {
        let seen = self.0.query_row("SELECT coalesce(max(rowid), 0) FROM runs", [], |row| {
            row.get::<_, i64>(0)
        })?;
        let unused = self
            .0
            .prepare_cached(
                "SELECT definition_hash FROM definitions AS d WHERE job = ?1
                   AND NOT EXISTS (SELECT 1 FROM jobs AS j
                                    WHERE j.job = ?1 AND j.definition_hash = d.definition_hash)
                   AND NOT EXISTS (SELECT 1 FROM runs AS r
                                    WHERE r.job = ?1 AND r.definition_hash = d.definition_hash)",
            )?
            .query_map([job], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        Ok((unused, seen))
    }
}

impl Store {
    /// Deletes the kept sessions that nobody has used since `before` and in which nothing goes on.
    pub async fn prune_sessions(&self, before: Timestamp) -> Result<Vec<PrunedRun>, StoreError> {
        let before = instant::text(before);
        self.writer
            .transaction(move |db| {
                let mut delete = db.prepare_cached(
                    "DELETE FROM sessions AS s WHERE session_id IN (
                         SELECT session_id FROM sessions WHERE last_used_at < ?1
                         ORDER BY last_used_at LIMIT ?2)
                       AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.session_id = s.session_id
                                          AND r.state IN ('queued', 'running'))
                     RETURNING session_id",
                )?;
                let ids: Vec<String> = delete
                    .query_map(params![before, BATCH], |row| row.get(0))?
                    .collect::<Result<_, _>>()?;
                // Named by itself: no run has this id.
                let mut note = db.prepare_cached("INSERT OR IGNORE INTO pruned VALUES (?1, ?1)")?;
                ids.iter().try_for_each(|id| note.execute([id]).map(drop))?;
                let row = |id: String| PrunedRun { run_id: id.clone(), session_id: Some(id) };
                Ok(ids.into_iter().map(row).collect())
            })
            .await
    }

    /// Deletes the next of the runs that are over, the oldest first, with all that belongs to them.
    /// None: no more of them can go.
    pub async fn prune_runs(&self, overdue: &Overdue) -> Result<Vec<PrunedRun>, StoreError> {
        let overdue = overdue.clone();
        self.writer.transaction(move |db| prune_runs(db, &overdue)).await
    }

    /// The files of these are gone too.
    pub async fn forget_pruned(&self, runs: Vec<PrunedRun>) -> Result<(), StoreError> {
        self.writer
            .transaction(move |db| {
                let mut forget = db.prepare_cached("DELETE FROM pruned WHERE run_id = ?1")?;
                runs.iter().try_for_each(|run| forget.execute([&run.run_id]).map(drop))
            })
            .await
    }

    /// Deletes the next of the slots that are over, the oldest first. Returns how many; 0: no more
    /// of them can go.
    pub async fn prune_slots(&self, overdue: &Overdue) -> Result<usize, StoreError> {
        let Overdue { job, before, .. } = overdue.clone();
        let Some(before) = before else { return Ok(0) };
        self.writer.transaction(move |db| prune_slots(db, &job, &before)).await
    }

    /// Deletes the versions of this job that nothing names any more. Returns how many.
    pub async fn prune_definitions(&self, overdue: &Overdue) -> Result<usize, StoreError> {
        let (store, job) = (self.clone(), overdue.job.clone());
        let look = move || store.reader()?.unused_definitions(&job);
        let looked = tokio::task::spawn_blocking(look).await;
        let (unused, seen) = looked.map_err(|_| StoreError::Stopped)??;
        if unused.is_empty() {
            return Ok(0);
        }
        self.writer.outside_transaction(move |db| prune_definitions(db, &unused, seen)).await
    }

    /// Gives free pages back to the disk, a few at a time, but for some that the next rows need.
    pub async fn shrink(&self) -> Result<(), StoreError> {
        while self.writer.outside_transaction(give_back).await? == Spare::MoreThanEnough {}
        Ok(())
    }
}

fn prune_runs(db: &Connection, overdue: &Overdue) -> rusqlite::Result<Vec<PrunedRun>> {
    let Overdue { job, oldest_kept, before } = overdue;
    let (queued_at, run_id) = oldest_kept.as_ref().map(|(at, id)| (at, id)).unzip();
    // The newest that may go, so that the index is read no further.
    let newest = queued_at.max(before.as_ref());
    let mut over = db.prepare_cached(
        "SELECT run_id,
                (SELECT r.session_id WHERE r.session_key IS NULL OR r.session_key LIKE 'cron:%')
         FROM runs AS r WHERE job = ?1 AND queued_at <= ?2
           AND ((queued_at, run_id) < (?3, ?4) OR coalesce(finished_at, queued_at) < ?5)
           AND state NOT IN ('queued', 'running')
           AND (settled <> 0 OR EXISTS (SELECT 1 FROM jobs AS j
                                        WHERE j.job = ?1 AND j.removed_at IS NOT NULL))
           AND NOT EXISTS (SELECT 1 FROM runs AS o
                            WHERE o.job = ?1 AND o.due_at = r.due_at AND o.run_id <> r.run_id
                              AND (o.state IN ('queued', 'running') OR o.settled = 0))
           AND NOT EXISTS (SELECT 1 FROM deliveries AS d
                            WHERE d.run_id = r.run_id AND d.state = 'queued')
         ORDER BY queued_at LIMIT ?6",
    )?;
    let run =
        |row: &rusqlite::Row<'_>| Ok(PrunedRun { run_id: row.get(0)?, session_id: row.get(1)? });
    let runs: Vec<PrunedRun> = over
        .query_map(params![job, newest, queued_at, run_id, before, BATCH], run)?
        .collect::<Result<_, _>>()?;
    let mut note = db.prepare_cached("INSERT OR IGNORE INTO pruned VALUES (?1, ?2)")?;
    let mut free = db.prepare_cached("UPDATE slots SET run_id = NULL WHERE run_id = ?1")?;
    let mut delete = db.prepare_cached("DELETE FROM runs WHERE run_id = ?1")?;
    for PrunedRun { run_id, session_id } in &runs {
        note.execute([run_id, session_id.as_deref().unwrap_or_default()])?;
        free.execute([run_id])?;
        delete.execute([run_id])?;
    }
    Ok(runs)
}

fn prune_slots(db: &Connection, job: &str, before: &str) -> rusqlite::Result<usize> {
    db.prepare_cached(
        "DELETE FROM slots WHERE rowid IN (
             SELECT rowid FROM slots
             WHERE job = ?1 AND due_at < ?2 AND due_until < ?2 AND run_id IS NULL
               AND decision <> 'buffered'
               AND NOT (decision = 'held' AND reason IN ('model_unreachable', 'budget'))
               AND due_at < (SELECT max(due_at) FROM slots WHERE job = ?1)
             ORDER BY due_at LIMIT ?3)",
    )?
    .execute(params![job, before, BATCH])
}

/// A foreign key would have each row of `runs` read for each of these. It has been looked after
/// that: none of the rows up to `seen` names them, and the few after it are looked at here.
fn prune_definitions(db: &Connection, unused: &[String], seen: i64) -> rusqlite::Result<usize> {
    db.pragma_update(None, "foreign_keys", false)?;
    let delete = || {
        let mut delete = db.prepare_cached(
            "DELETE FROM definitions WHERE definition_hash = ?1
               AND NOT EXISTS (SELECT 1 FROM jobs
                                WHERE job = definitions.job AND definition_hash = ?1)
               AND NOT EXISTS (SELECT 1 FROM runs WHERE rowid > ?2 AND definition_hash = ?1)",
        )?;
        let mut deleted = 0;
        for hash in unused {
            deleted += delete.execute(params![hash, seen])?;
        }
        Ok(deleted)
    };
    let deleted = delete();
    db.pragma_update(None, "foreign_keys", true)?;
    deleted
}

/// How much of the file is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spare {
    Enough,
    MoreThanEnough,
}

fn give_back(db: &Connection) -> rusqlite::Result<Spare> {
    let free = |db: &Connection| db.pragma_query_value(None, "freelist_count", |row| row.get(0));
    let before: i64 = free(db)?;
    if before <= SPARE_PAGES {
        return Ok(Spare::Enough);
    }
    db.execute_batch(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"))?;
    // A database that was made without it keeps its pages.
    let after: i64 = free(db)?;
    Ok(if after < before && after > SPARE_PAGES { Spare::MoreThanEnough } else { Spare::Enough })
}
