//! The life of a run in the ledger: running, its work's end, its attempts, its terminal state.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::oneshot;

use super::costs::{self, Days};
use super::error::StoreError;
use super::outbox::settle;
use super::writer::Patience;
use super::{Store, instant};
use crate::plan::Then;
use crate::provider::Usage;
use crate::run::{
    Artifact, CheckResult, Cleanup, ErrorKind, Failure, Findings, Limit, Outcome, Payload, Phase,
    RunId, State, Work,
};

/// A model attempt that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptStart {
    /// 1, 2, 3 … within the run.
    pub n: u32,
    /// `provider/model`.
    pub model: String,
    /// The name of its key, if that has one.
    pub auth_profile: Option<String>,
    /// The idle window of its requests; `None` is off.
    pub idle_window: Option<Duration>,
    /// The rule of semantics §3 that gave the window.
    pub idle_rule: &'static str,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptEnd {
    /// Which one.
    pub n: u32,
    /// Like a run's.
    pub state: State,
    /// Why, if it did not succeed.
    pub error_kind: Option<ErrorKind>,
    /// How long it took.
    pub duration: Duration,
    /// Its tokens.
    pub usage: Usage,
    /// What it cost; `None` is unknown.
    pub usd: Option<f64>,
}

/// What is on its way to the disk.
#[derive(Debug)]
#[must_use = "until it has been waited for, it may not be there"]
pub struct Written(oneshot::Receiver<Result<(), StoreError>>);

impl Written {
    /// Waits until it is there.
    pub async fn wait(self) -> Result<(), StoreError> {
        self.0.await.map_err(|_| StoreError::Stopped)?
    }
}

/// A tool call that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallRow {
    /// 1, 2, 3 … within the run.
    pub n: u32,
    /// The tool's name.
    pub tool: String,
    /// `ok`, `error`, `denied` or `timed_out`.
    pub outcome: &'static str,
    /// Its exit code, if it is a command.
    pub exit_code: Option<i32>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
    /// What it returned, before any cut.
    pub output_bytes: u64,
    /// The call of `subturn` that it was made in.
    pub inside: Option<u32>,
}

impl Store {
    /// `queued` → `running`. The run's clock starts when this returns.
    pub async fn start_run(&self, run_id: &RunId, now: Timestamp) -> Result<(), StoreError> {
        let run_id = run_id.clone();
        self.writer
            .transaction(move |db| {
                // Both are whole milliseconds, so that the difference is exact.
                db.prepare_cached(
                    "UPDATE runs SET state = 'running', started_at = ?2,
                         late_ms = CAST(round((julianday(?2) - julianday(start_at)) * 86400000) AS INTEGER)
                     WHERE run_id = ?1 AND state = 'queued'",
                )?
                .execute(params![run_id.as_str(), instant::text(now)])
                .map(drop)
            })
            .await
    }

    /// Records that an attempt begins; nothing waits for the disk, since the run's own row is on
    /// it already.
    pub async fn start_attempt(
        &self,
        run_id: &RunId,
        attempt: AttemptStart,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let run_id = run_id.clone();
        self.writer
            .enqueue("attempt", move |db| {
                db.prepare_cached(
                    "INSERT INTO attempts (run_id, n, model, auth_profile, state, started_at, idle_window_ms, idle_rule)
                     VALUES (?1, ?2, ?3, ?7, 'running', ?4, ?5, ?6)",
                )?
                .execute(params![
                    run_id.as_str(),
                    attempt.n,
                    attempt.model,
                    instant::text(now),
                    attempt.idle_window.map(instant::millis),
                    attempt.idle_rule,
                    attempt.auth_profile,
                ])?;
                db.prepare_cached("UPDATE runs SET model = ?2 WHERE run_id = ?1")?
                    .execute(params![run_id.as_str(), attempt.model])
                    .map(drop)
            })
            .await
    }

    /// Records how an attempt ended that another one follows; nothing waits for the disk.
    pub async fn end_attempt(&self, run_id: &RunId, end: AttemptEnd) -> Result<(), StoreError> {
        let run_id = run_id.clone();
        self.writer.enqueue("attempt's end", move |db| set_attempt_end(db, &run_id, &end)).await
    }

    /// Records a tool call that ended; nothing waits for the disk.
    pub async fn note_tool_call(
        &self,
        run_id: &RunId,
        call: ToolCallRow,
    ) -> Result<(), StoreError> {
        let run_id = run_id.clone();
        self.writer
            .enqueue("tool call", move |db| {
                db.prepare_cached(
                    "INSERT INTO tool_calls (run_id, n, tool, outcome, exit_code, started_at, duration_ms, output_bytes, inside)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                )?
                .execute(params![
                    run_id.as_str(),
                    call.n,
                    call.tool,
                    call.outcome,
                    call.exit_code,
                    instant::text(call.started_at),
                    instant::millis(call.duration),
                    i64::try_from(call.output_bytes).unwrap_or(i64::MAX),
                    call.inside,
                ])
                .map(drop)
            })
            .await
    }

    /// Records how the work ended, before any tidying, while the row stays `running` (semantics
    /// §2). If the process dies once it is written, the row is finished from this. It is kept until
    /// the disk takes it.
    pub async fn record_work(
        &self,
        run_id: &RunId,
        work: Work,
        last_attempt: Option<AttemptEnd>,
    ) -> Result<Written, StoreError> {
        let run_id = run_id.clone();
        let write = move |db: &Connection| {
            set_work(db, &run_id, &work)?;
            last_attempt.as_ref().map_or(Ok(()), |end| set_attempt_end(db, &run_id, end))
        };
        let receipt = self.writer.submit(write, Patience::UntilWritten).await?;
        Ok(Written(receipt))
    }

    /// Records the clean-up, the checks and the terminal state that the work's end leads to, which
    /// is another one if a check has `failed`. A run that was already finished is left as it is. It
    /// is kept until the disk takes it.
    pub async fn finish_run(
        &self,
        run_id: &RunId,
        cleanup: Cleanup,
        findings: Findings,
        failed: Option<Failure>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (run_id, days) = (run_id.clone(), self.days.clone());
        let write = move |db: &Connection| {
            insert_checks(db, &run_id, &findings.checks)?;
            insert_artifacts(db, &run_id, &findings.artifacts)?;
            set_checked(db, &run_id, failed.as_ref())?;
            finish(db, &run_id, &cleanup, &days, now)
        };
        let receipt = self.writer.submit(write, Patience::UntilWritten).await?;
        Written(receipt).wait().await
    }
}

/// What the work's end says, in columns. Also used when a row is finished after a crash.
pub(super) fn set_work(db: &Connection, run_id: &RunId, work: &Work) -> rusqlite::Result<()> {
    let (reply, partial) = match &work.outcome {
        Outcome::Succeeded { reply } => (Some(reply), None),
        Outcome::Ended { partial_text, .. } => (None, partial_text.as_ref()),
    };
    let failure = work.outcome.failure();
    db.prepare_cached(
        "UPDATE runs SET work_state = ?2, error_kind = ?3, error_message = ?4, limit_name = ?5,
                         limit_ms = ?6, phase = ?7, retryable = ?8, reply = ?9, partial_text = ?10,
                         tool_calls = ?11, tool_errors = ?12, denied_calls = ?13,
                         unchecked = ?14, exit_code = ?15, gate_digest = ?16, payloads = ?17
         WHERE run_id = ?1 AND state IN ('queued', 'running') AND work_state IS NULL",
    )?
    .execute(params![
        run_id.as_str(),
        work.outcome.state().as_str(),
        failure.map(|failure| failure.kind.as_str()),
        failure.map(|failure| &failure.message),
        failure.and_then(|failure| failure.limit).map(Limit::as_str),
        failure.and_then(Failure::limit_ms_column),
        failure.and_then(|failure| failure.phase).map(Phase::as_str),
        failure.map(|failure| failure.retryable),
        reply,
        partial,
        work.tool_calls,
        work.tool_errors,
        work.denied_calls,
        work.unchecked,
        work.exit_code,
        work.gate_digest,
        serde_json::to_string(&work.payloads).unwrap_or_default(),
    ])?;
    Ok(())
}

fn set_attempt_end(db: &Connection, run_id: &RunId, end: &AttemptEnd) -> rusqlite::Result<()> {
    let column = |tokens: Option<u64>| tokens.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    db.prepare_cached(
        "UPDATE attempts SET state = ?3, error_kind = ?4, duration_ms = ?5, input_tokens = ?6,
                             output_tokens = ?7, cache_read_tokens = ?8, cache_write_tokens = ?9,
                             usd = ?10
         WHERE run_id = ?1 AND n = ?2",
    )?
    .execute(params![
        run_id.as_str(),
        end.n,
        end.state.as_str(),
        end.error_kind.map(ErrorKind::as_str),
        instant::millis(end.duration),
        column(end.usage.input_tokens),
        column(end.usage.output_tokens),
        column(end.usage.cache_read_tokens),
        column(end.usage.cache_write_tokens),
        end.usd,
    ])?;
    // Unknown stays NULL: sum() of no known value is NULL.
    db.prepare_cached(
        "UPDATE runs SET
             input_tokens = (SELECT sum(input_tokens) FROM attempts WHERE run_id = ?1),
             output_tokens = (SELECT sum(output_tokens) FROM attempts WHERE run_id = ?1),
             usd = (SELECT CASE WHEN count(usd) = count(*) THEN sum(usd) END
                    FROM attempts WHERE run_id = ?1)
         WHERE run_id = ?1",
    )?
    .execute([run_id.as_str()])
    .map(drop)
}

fn insert_checks(db: &Connection, run_id: &RunId, checks: &[CheckResult]) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO checks (run_id, n, name, passed, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (CheckResult { name, passed, detail }, n) in checks.iter().zip(1..) {
        insert.execute(params![run_id.as_str(), n, name, passed, detail])?;
    }
    Ok(())
}

fn insert_artifacts(
    db: &Connection,
    run_id: &RunId,
    artifacts: &[Artifact],
) -> rusqlite::Result<()> {
    if artifacts.is_empty() {
        return Ok(());
    }
    let mut insert =
        db.prepare_cached("INSERT INTO artifacts (run_id, path, bytes) VALUES (?1, ?2, ?3)")?;
    for Artifact { path, bytes } in artifacts {
        let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
        insert.execute(params![run_id.as_str(), path.to_string_lossy(), bytes])?;
    }
    Ok(())
}

/// The host has looked: what it found wanting makes a failure of a success, whose reply is kept for
/// the record only.
pub(super) fn set_checked(
    db: &Connection,
    run_id: &RunId,
    failed: Option<&Failure>,
) -> rusqlite::Result<()> {
    if let Some(failure) = failed {
        db.prepare_cached(
            "UPDATE runs SET work_state = 'failed', error_kind = ?2, error_message = ?3,
                             retryable = ?4, partial_text = reply, reply = NULL, payloads = ?5
             WHERE run_id = ?1 AND state = 'running' AND unchecked = 1",
        )?
        .execute(params![
            run_id.as_str(),
            failure.kind.as_str(),
            failure.message,
            failure.retryable,
            serde_json::to_string(&refused(db, run_id, failure)?).unwrap_or_default(),
        ])?;
    }
    db.prepare_cached("UPDATE runs SET unchecked = 0 WHERE run_id = ?1 AND unchecked = 1")?
        .execute([run_id.as_str()])
        .map(drop)
}

/// What is left to show of a run whose success is none.
fn refused(db: &Connection, run_id: &RunId, failure: &Failure) -> rusqlite::Result<Vec<Payload>> {
    let payloads: Option<String> = db
        .prepare_cached("SELECT payloads FROM runs WHERE run_id = ?1")?
        .query_row([run_id.as_str()], |row| row.get(0))
        .optional()?
        .flatten();
    let payloads = payloads.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Ok(Payload::refused(payloads, &failure.message))
}

fn finish(
    db: &Connection,
    run_id: &RunId,
    cleanup: &Cleanup,
    days: &Days,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let changed = db
        .prepare_cached(
            "UPDATE runs SET state = work_state, finished_at = ?2,
                 duration_ms = CAST(round((julianday(?2) - julianday(coalesce(started_at, ?2))) * 86400000) AS INTEGER),
                 cleanup_outcome = ?3, cleanup_ms = ?4, killed_processes = ?5, leaked = ?6
             WHERE run_id = ?1 AND state IN ('queued', 'running') AND work_state IS NOT NULL",
        )?
        .execute(params![
            run_id.as_str(),
            instant::text(now),
            cleanup.outcome().as_str(),
            instant::millis(cleanup.duration),
            cleanup.killed_processes,
            serde_json::to_string(&cleanup.leaked).unwrap_or_default(),
        ])?;
    if changed == 0 {
        return Ok(());
    }
    costs::count(db, run_id, days, now)?;
    settle_by_itself(db, run_id, now)?;
    let mut insert = db.prepare_cached(
        "INSERT INTO cleanups (run_id, n, step, outcome, started_at, duration_ms, detail)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for (step, n) in cleanup.steps.iter().zip(1..) {
        insert.execute(params![
            run_id.as_str(),
            n,
            step.step,
            step.outcome.as_str(),
            instant::text(step.started_at),
            instant::millis(step.duration),
            step.detail,
        ])?;
    }
    Ok(())
}

/// Where nothing is left to decide after a run: it was asked for by hand or by a program, or it
/// has succeeded, which also ends the row of failures that it stands in.
pub(super) fn settle_by_itself(
    db: &Connection,
    run_id: &RunId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let is_settled = db
        .prepare_cached(
            "SELECT 1 FROM runs WHERE run_id = ?1
                AND (state = 'succeeded' OR trigger IN ('manual', 'rpc') OR due_at IS NULL)",
        )?
        .exists([run_id.as_str()])?;
    if is_settled {
        settle(db, run_id.as_str(), Then::Nothing, now)?;
    }
    skip_gated(db, run_id)?;
    db.prepare_cached(
        "UPDATE jobs SET gate_digest = (SELECT gate_digest FROM runs WHERE run_id = ?1)
         WHERE job = (SELECT job FROM runs
                       WHERE run_id = ?1 AND state = 'succeeded' AND gate_digest IS NOT NULL)",
    )?
    .execute([run_id.as_str()])?;
    db.prepare_cached(
        "UPDATE jobs SET failed_slots = 0, counted_failures = 0, backoff_until = NULL
         WHERE failed_slots > 0
           AND job = (SELECT job FROM runs WHERE run_id = ?1 AND state = 'succeeded')",
    )?
    .execute([run_id.as_str()])
    .map(drop)
}

/// A gate that says no takes back the start of the slot (contract §3).
fn skip_gated(db: &Connection, run_id: &RunId) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE slots SET decision = 'skipped', reason = 'gate'
         WHERE decision = 'started' AND (job, due_at) =
               (SELECT job, due_at FROM runs
                 WHERE run_id = ?1 AND state = 'cancelled' AND error_kind = 'gate')
           AND run_id = ?1",
    )?
    .execute([run_id.as_str()])
    .map(drop)
}

impl Failure {
    fn limit_ms_column(&self) -> Option<i64> {
        self.limit_ms.map(|millis| i64::try_from(millis).unwrap_or(i64::MAX))
    }
}
