//! Reading: the rows that the verbs show. Never writes, and works while `serve` does.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params};
use serde::Serialize;

use super::error::StoreError;
use super::record::{
    ArtifactRecord, AttemptRecord, CheckRecord, CleanupRecord, DeliveryRecord, RunRecord,
    StepRecord, ToolsRecord, UsageRecord,
};
use super::{first, instant, migrate};
use crate::job::SILENT_TOKEN;
use crate::run::{Failure, Payload, State};

/// A read-only connection.
#[derive(Debug)]
pub struct Reader(pub(super) Connection);

/// Which runs.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Of this job only.
    pub job: Option<String>,
    /// In this state only.
    pub state: Option<State>,
    /// Recorded at or after this.
    pub since: Option<Timestamp>,
    /// Recorded before this.
    pub until: Option<Timestamp>,
    /// At most so many, newest first.
    pub limit: u32,
}

/// Which slots.
#[derive(Debug, Clone, Default)]
pub struct SlotFilter {
    /// Of this job only.
    pub job: Option<String>,
    /// Due at or after this.
    pub since: Option<Timestamp>,
    /// At most so many, newest first.
    pub limit: u32,
}

/// A job as the ledger knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobSummary {
    /// Its id.
    pub job: String,
    /// State of its last run.
    pub last_state: Option<String>,
    /// When that run was recorded.
    pub last_queued_at: Option<String>,
    /// Failed runs since the last success.
    pub consecutive_failures: i64,
    /// When its `every` grid began.
    pub every_anchor: Option<String>,
    /// `active`, `paused`, `disabled`, `invalid` or `done`.
    pub state: String,
    /// Why it is held, if it is.
    pub paused_reason: Option<String>,
    /// When that ends by itself.
    pub paused_until: Option<String>,
    /// Nothing of it starts before this, after failures.
    pub backoff_until: Option<String>,
}

/// A slot, with the contract's columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotSummary {
    /// The job.
    pub job: String,
    /// The first (or only) instant.
    pub due_at: String,
    /// The last one.
    pub due_until: String,
    /// How many.
    pub slots: i64,
    /// What was decided.
    pub decision: String,
    /// Why.
    pub reason: Option<String>,
    /// The run it started.
    pub run_id: Option<String>,
    /// When it was decided.
    pub decided_at: String,
    /// How late that was.
    pub late_ms: i64,
}

/// One instant that has passed, as the ledger knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PastSlot {
    /// What was decided; `None`: it has no row.
    pub decision: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// How many runs it has had.
    pub runs: u32,
    /// How many of them succeeded.
    pub succeeded: u32,
    /// How many of them are not over.
    pub open_runs: u32,
    /// How the last one ended, or where it is.
    pub last_state: Option<String>,
}

impl PastSlot {
    /// Whether one of its runs succeeded.
    pub fn has_succeeded(&self) -> bool {
        self.succeeded > 0
    }
}

impl Reader {
    /// What a job has answered: in its last success, or in that of one slot.
    pub fn last_reply(
        &self,
        job: &str,
        slot: Option<Timestamp>,
    ) -> Result<Option<String>, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT reply FROM runs
                 WHERE job = ?1 AND state = 'succeeded' AND (?2 IS NULL OR due_at = ?2)
                 ORDER BY queued_at DESC LIMIT 1",
            )?
            .query_row(params![job, slot.map(instant::text)], |row| row.get(0))
            .optional()?)
    }

    /// Opens the database at `path` for reading.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => return Err(StoreError::Missing(path.to_owned())),
            // A folder that may not be looked into is not one without a history.
            Err(source) => return Err(StoreError::Unreachable { path: path.to_owned(), source }),
        }
        if !path.is_file() {
            // A pipe would hold the reader up for ever.
            return Err(StoreError::Foreign(path.to_owned()));
        }
        first::refuse_beginning(path)?;
        let failed = |source| StoreError::Open { path: path.to_owned(), source };
        let db = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .map_err(failed)?;
        db.busy_timeout(std::time::Duration::from_secs(5)).map_err(failed)?;
        // Somebody else has made it, and nothing is in it.
        if migrate::check(&db, path)? == 0 {
            return Err(StoreError::Missing(path.to_owned()));
        }
        Ok(Self(db))
    }

    /// The runs whose id begins with `prefix`, at most `limit`.
    pub fn run_ids(&self, prefix: &str, limit: u32) -> Result<Vec<String>, StoreError> {
        // The end of the range: every id is of a–z and 0–9, which sort before `~`.
        Ok(self
            .0
            .prepare(
                "SELECT run_id FROM runs WHERE run_id >= ?1 AND run_id < ?1 || '~'
                 ORDER BY run_id LIMIT ?2",
            )?
            .query_map(params![prefix, limit], |row| row.get(0))?
            .collect::<Result<_, _>>()?)
    }

    /// One run with everything that is known of it.
    pub fn run(&self, run_id: &str) -> Result<Option<RunRecord>, StoreError> {
        let run = self
            .0
            .prepare_cached(
                "SELECT r.*, json_extract(d.sends, '$.silent_token') AS silent_token
                 FROM runs r LEFT JOIN definitions d USING (definition_hash) WHERE r.run_id = ?1",
            )?
            .query_row([run_id], run_from)
            .optional()?;
        let Some(mut run) = run else { return Ok(None) };
        run.attempts = self.attempts(run_id)?;
        run.checks = self.checks(run_id)?;
        run.deliveries = self.deliveries(run_id)?;
        run.artifacts = self.artifacts(run_id)?;
        run.prompt = self.prompt_parts(run_id)?;
        if let Some(cleanup) = &mut run.cleanup {
            cleanup.steps = self.cleanup_steps(run_id)?;
        }
        Ok(Some(run))
    }

    fn attempts(&self, run_id: &str) -> Result<Vec<AttemptRecord>, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT model, state, error_kind, started_at, duration_ms, idle_window_ms, idle_rule
                 FROM attempts WHERE run_id = ?1 ORDER BY n",
            )?
            .query_map([run_id], |row| {
                Ok(AttemptRecord {
                    model: row.get(0)?,
                    state: row.get(1)?,
                    error_kind: row.get(2)?,
                    started_at: row.get(3)?,
                    duration_ms: row.get(4)?,
                    idle_window_ms: row.get(5)?,
                    idle_rule: row.get(6)?,
                })
            })?
            .collect::<Result<_, _>>()?)
    }

    fn checks(&self, run_id: &str) -> Result<Vec<CheckRecord>, StoreError> {
        let mut statement = self.0.prepare_cached(
            "SELECT name, passed, detail FROM checks WHERE run_id = ?1 ORDER BY n",
        )?;
        let check = |row: &Row<'_>| {
            Ok(CheckRecord { name: row.get(0)?, passed: row.get(1)?, detail: row.get(2)? })
        };
        Ok(statement.query_map([run_id], check)?.collect::<Result<_, _>>()?)
    }

    fn deliveries(&self, run_id: &str) -> Result<Vec<DeliveryRecord>, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT target, state, attempts, last_error, delivery_id, settled_at
                 FROM deliveries WHERE run_id = ?1 ORDER BY id",
            )?
            .query_map([run_id], |row| {
                Ok(DeliveryRecord {
                    target: row.get(0)?,
                    state: row.get(1)?,
                    attempts: row.get(2)?,
                    error: row.get(3)?,
                    delivery_id: row.get(4)?,
                    settled_at: row.get(5)?,
                })
            })?
            .collect::<Result<_, _>>()?)
    }

    fn artifacts(&self, run_id: &str) -> Result<Vec<ArtifactRecord>, StoreError> {
        let mut statement = self
            .0
            .prepare_cached("SELECT path, bytes FROM artifacts WHERE run_id = ?1 ORDER BY path")?;
        let artifact = |row: &Row<'_>| Ok(ArtifactRecord { path: row.get(0)?, bytes: row.get(1)? });
        Ok(statement.query_map([run_id], artifact)?.collect::<Result<_, _>>()?)
    }

    fn cleanup_steps(&self, run_id: &str) -> Result<Vec<StepRecord>, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT step, outcome, duration_ms, detail FROM cleanups WHERE run_id = ?1 ORDER BY n",
            )?
            .query_map([run_id], |row| {
                Ok(StepRecord {
                    step: row.get(0)?,
                    outcome: row.get(1)?,
                    duration_ms: row.get(2)?,
                    detail: row.get(3)?,
                })
            })?
            .collect::<Result<_, _>>()?)
    }

    /// What is known of one instant that has passed.
    pub fn past_slot(&self, job: &str, due_at: Timestamp) -> Result<PastSlot, StoreError> {
        let slot = self.slot_at(job, due_at)?;
        let (decision, reason) = slot.map(|it| (it.decision, it.reason)).unzip();
        let due_at = instant::text(due_at);
        Ok(self
            .0
            .prepare_cached(
                "SELECT count(*), coalesce(sum(state = 'succeeded'), 0),
                        coalesce(sum(state IN ('queued', 'running')), 0),
                        (SELECT state FROM runs WHERE job = ?1 AND due_at = ?2
                         ORDER BY attempt DESC LIMIT 1)
                 FROM runs WHERE job = ?1 AND due_at = ?2",
            )?
            .query_row(params![job, due_at], |row| {
                Ok(PastSlot {
                    decision,
                    reason: reason.flatten(),
                    runs: row.get(0)?,
                    succeeded: row.get(1)?,
                    open_runs: row.get(2)?,
                    last_state: row.get(3)?,
                })
            })?)
    }

    /// The number of a slot's next free attempt.
    pub fn next_attempt(&self, job: &str, due_at: Timestamp) -> Result<u32, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT coalesce(max(attempt), 0) + 1 FROM runs WHERE job = ?1 AND due_at = ?2",
            )?
            .query_row(params![job, instant::text(due_at)], |row| row.get(0))?)
    }

    /// What the ledger knows of every job that is in the files.
    pub fn jobs(&self) -> Result<Vec<JobSummary>, StoreError> {
        Ok(self
            .0
            .prepare(
                "SELECT v.job, v.last_state, v.consecutive_failures, j.every_anchor,
                        (SELECT queued_at FROM runs r WHERE r.job = v.job
                         ORDER BY r.queued_at DESC LIMIT 1),
                        v.state, v.paused_reason, v.paused_until, v.backoff_until
                 FROM v1_jobs v JOIN jobs j USING (job) WHERE v.removed_at IS NULL ORDER BY v.job",
            )?
            .query_map([], |row| {
                Ok(JobSummary {
                    job: row.get(0)?,
                    last_state: row.get(1)?,
                    consecutive_failures: row.get(2)?,
                    every_anchor: row.get(3)?,
                    last_queued_at: row.get(4)?,
                    state: row.get(5)?,
                    paused_reason: row.get(6)?,
                    paused_until: row.get(7)?,
                    backoff_until: row.get(8)?,
                })
            })?
            .collect::<Result<_, _>>()?)
    }
}

fn run_from(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    let error = failure_from(row)?;
    let reply: Option<String> = row.get("reply")?;
    Ok(RunRecord {
        run_id: row.get("run_id")?,
        job: row.get("job")?,
        trigger: row.get("trigger")?,
        due_at: row.get("due_at")?,
        attempt: row.get("attempt")?,
        slots: row.get("slots")?,
        state: row.get("state")?,
        queued_at: row.get("queued_at")?,
        started_at: row.get("started_at")?,
        finished_at: row.get("finished_at")?,
        duration_ms: row.get("duration_ms")?,
        late_ms: row.get("late_ms")?,
        session_id: row.get("session_id")?,
        session_key: row.get("session_key")?,
        model: row.get("model")?,
        payloads: payloads_from(row, reply.as_deref(), error.as_ref())?,
        reply,
        partial_text: row.get("partial_text")?,
        error,
        attempts: Vec::new(),
        usage: UsageRecord {
            input_tokens: row.get("input_tokens")?,
            output_tokens: row.get("output_tokens")?,
            usd: row.get("usd")?,
        },
        tools: ToolsRecord {
            calls: row.get("tool_calls")?,
            errors: row.get("tool_errors")?,
            denied: row.get("denied_calls")?,
        },
        cleanup: cleanup_from(row)?,
        checks: Vec::new(),
        artifacts: Vec::new(),
        deliveries: Vec::new(),
        prompt: Vec::new(),
        exit_code: row.get("exit_code")?,
        definition_hash: row.get("definition_hash")?,
    })
}

/// As they were shaped when the work ended; of an older row, what can be told from it.
fn payloads_from(
    row: &Row<'_>,
    reply: Option<&str>,
    error: Option<&Failure>,
) -> rusqlite::Result<Vec<Payload>> {
    let stored = row.get::<_, Option<String>>("payloads")?;
    if let Some(payloads) = stored.and_then(|text| serde_json::from_str(&text).ok()) {
        return Ok(payloads);
    }
    let silent_token: Option<String> = row.get("silent_token")?;
    let token = silent_token.as_deref().unwrap_or(SILENT_TOKEN);
    Ok(Payload::plain(reply, error.map(|it| it.message.as_str()), token))
}

fn failure_from(row: &Row<'_>) -> rusqlite::Result<Option<Failure>> {
    let Some(kind) = row.get::<_, Option<String>>("error_kind")? else { return Ok(None) };
    let word = |text: String| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, text.into())
    };
    Ok(Some(Failure {
        kind: kind.parse().map_err(word)?,
        message: row.get::<_, Option<String>>("error_message")?.unwrap_or_default(),
        limit: row
            .get::<_, Option<String>>("limit_name")?
            .map(|name| name.parse().map_err(word))
            .transpose()?,
        limit_ms: row.get::<_, Option<i64>>("limit_ms")?.and_then(|ms| u64::try_from(ms).ok()),
        phase: row
            .get::<_, Option<String>>("phase")?
            .map(|phase| phase.parse().map_err(word))
            .transpose()?,
        retryable: row.get::<_, Option<bool>>("retryable")?.unwrap_or(false),
    }))
}

fn cleanup_from(row: &Row<'_>) -> rusqlite::Result<Option<CleanupRecord>> {
    let Some(outcome) = row.get("cleanup_outcome")? else { return Ok(None) };
    let leaked: String = row.get("leaked")?;
    Ok(Some(CleanupRecord {
        outcome,
        duration_ms: row.get::<_, Option<i64>>("cleanup_ms")?.unwrap_or(0),
        steps: Vec::new(),
        killed_processes: row.get("killed_processes")?,
        leaked: serde_json::from_str(&leaked).unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_without_a_schema_is_no_history_and_an_empty_file_was_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("punctual.db");
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let db = Connection::open_with_flags(&path, flags).unwrap();
        assert!(matches!(Reader::open(&path), Err(StoreError::Lost(at)) if at == path));
        db.execute_batch("VACUUM").unwrap();
        assert!(matches!(Reader::open(&path), Err(StoreError::Missing(at)) if at == path));
    }
}
