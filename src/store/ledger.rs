//! Slots: what was decided about each due instant, and the run that a decision starts.

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, params};

use super::error::StoreError;
use super::{Owner, Store, instant};
use crate::job::JobId;
use crate::plan::{Reason, SlotDecision};
use crate::run::{RunId, SessionId, Trigger};

/// A row of the ledger: one due instant, or one counted range with one decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRow {
    /// The first (or only) instant.
    pub due_at: Timestamp,
    /// The last one.
    pub due_until: Timestamp,
    /// How many instants lie from the first to the last.
    pub slots: u64,
    /// What was decided.
    pub decision: SlotDecision,
    /// Why, where a start does not speak for itself.
    pub reason: Option<Reason>,
    /// The run that it started.
    pub run_id: Option<RunId>,
}

/// A run to be, recorded before anything of it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Its id.
    pub run_id: RunId,
    /// What made it start.
    pub trigger: Trigger,
    /// Its slot's nominal time; none for a run by hand.
    pub due_at: Option<Timestamp>,
    /// 1 for the first.
    pub attempt: u32,
    /// Its session.
    pub session_id: SessionId,
    /// The definition that it runs under.
    pub definition_hash: String,
}

/// Whether a decision was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It is in the ledger now.
    New,
    /// The ledger already had one for that instant: nothing was recorded, nothing may start.
    AlreadyDecided,
}

impl Store {
    /// Records what was decided about slots of `job`, the run that a decision starts, and up to
    /// when the job's instants are decided: all of it or nothing.
    pub async fn decide(
        &self,
        job: &JobId,
        slots: Vec<SlotRow>,
        run: Option<NewRun>,
        next_due: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Recorded, StoreError> {
        let job = job.clone();
        let owner = self.owner.clone();
        let result = self
            .writer
            .transaction(move |db| {
                if let Some(run) = &run {
                    insert_run(db, &job, run, &owner, now)?;
                }
                for slot in &slots {
                    insert_slot(db, &job, slot, now)?;
                }
                if let Some(last) = slots.iter().map(|slot| slot.due_until).max() {
                    db.prepare_cached(
                        "UPDATE jobs SET decided_until = max(decided_until, ?2), next_due_at = ?3
                         WHERE job = ?1",
                    )?
                    .execute(params![
                        job.as_str(),
                        instant::text(last),
                        next_due.map(instant::text)
                    ])?;
                }
                Ok(())
            })
            .await;
        match result {
            Ok(()) => Ok(Recorded::New),
            Err(StoreError::Sql(rusqlite::Error::SqliteFailure(failure, _)))
                if failure.code == ErrorCode::ConstraintViolation
                    && is_uniqueness(failure.extended_code) =>
            {
                Ok(Recorded::AlreadyDecided)
            }
            Err(error) => Err(error),
        }
    }

    /// Records when each job is due next, for those who look at `v1_jobs`.
    pub async fn note_next_due(
        &self,
        next: Vec<(JobId, Option<Timestamp>)>,
    ) -> Result<(), StoreError> {
        self.writer
            .transaction(move |db| {
                let mut update =
                    db.prepare_cached("UPDATE jobs SET next_due_at = ?2 WHERE job = ?1")?;
                for (job, due) in &next {
                    update.execute(params![job.as_str(), due.map(instant::text)])?;
                }
                Ok(())
            })
            .await
    }
}

fn is_uniqueness(extended_code: i32) -> bool {
    matches!(
        extended_code,
        rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY
    )
}

fn insert_run(
    db: &Connection,
    job: &JobId,
    run: &NewRun,
    owner: &Owner,
    now: Timestamp,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO runs (run_id, job, trigger, due_at, attempt, state, queued_at, session_id,
                           definition_hash, host, version, owner_boot_id, owner_pid, owner_started)
         VALUES (?1, ?2, ?3, ?4, ?5, 'queued', ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        run.run_id.as_str(),
        job.as_str(),
        run.trigger.as_str(),
        run.due_at.map(instant::text),
        run.attempt,
        instant::text(now),
        run.session_id.as_str(),
        run.definition_hash,
        owner.host,
        env!("CARGO_PKG_VERSION"),
        owner.boot_id,
        owner.pid,
        owner.started,
    ])?;
    Ok(())
}

fn insert_slot(
    db: &Connection,
    job: &JobId,
    slot: &SlotRow,
    now: Timestamp,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO slots (job, due_at, due_until, slots, decision, reason, run_id, decided_at, late_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        job.as_str(),
        instant::text(slot.due_at),
        instant::text(slot.due_until),
        i64::try_from(slot.slots).unwrap_or(i64::MAX),
        slot.decision.as_str(),
        slot.reason.map(Reason::as_str),
        slot.run_id.as_ref().map(RunId::as_str),
        instant::text(now),
        instant::millis_between(slot.due_at, now),
    ])?;
    Ok(())
}
