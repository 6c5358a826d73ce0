//! The jobs and their definitions, as the ledger knows them.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::StoreError;
use super::{Store, instant};

/// A job as the files say it is.
#[derive(Debug, Clone)]
pub struct JobRow {
    /// Its id.
    pub job: String,
    /// Its file.
    pub file: String,
    /// One line for people.
    pub description: Option<String>,
    /// Who answers for it.
    pub owner: Option<String>,
    /// Free words, a JSON object.
    pub labels: String,
    /// Whether its slots start runs.
    pub enabled: bool,
    /// Why its file cannot be used, if it cannot.
    pub invalid_reason: Option<String>,
    /// Its schedule as text.
    pub schedule: Option<String>,
    /// The zone of that schedule.
    pub timezone: Option<String>,
    /// Its definition: hash and JSON; none while the file is invalid.
    pub definition: Option<(String, String)>,
}

/// What the ledger remembers of a job from before this start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobMemory {
    /// When it was first seen.
    pub first_seen_at: Timestamp,
    /// Every due instant up to here has its row.
    pub decided_until: Timestamp,
    /// The grid of its `every`.
    pub every_anchor: Option<Timestamp>,
    /// Whether its file was invalid when it was last looked at.
    pub was_invalid: bool,
}

impl Store {
    /// Takes over the jobs that the files define, marks those that are gone, and returns what is
    /// remembered of each. A job seen for the first time was due at no time before `now`.
    pub async fn adopt_jobs(
        &self,
        jobs: Vec<JobRow>,
        now: Timestamp,
    ) -> Result<HashMap<String, JobMemory>, StoreError> {
        self.writer
            .transaction(move |db| {
                let now = instant::text(now);
                db.execute(
                    "UPDATE jobs SET removed_at = ?1, next_due_at = NULL WHERE removed_at IS NULL",
                    [&now],
                )?;
                jobs.iter().map(|job| Ok((job.job.clone(), adopt(db, job, &now)?))).collect()
            })
            .await
    }
}

fn adopt(db: &Connection, job: &JobRow, now: &str) -> rusqlite::Result<JobMemory> {
    let known = db
        .prepare_cached(
            "SELECT first_seen_at, decided_until, every_anchor, invalid_reason IS NOT NULL
             FROM jobs WHERE job = ?1",
        )?
        .query_row([&job.job], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, Option<String>>(2)?,
                row.get(3)?,
            ))
        })
        .optional()?;
    if let Some((hash, effective)) = &job.definition {
        db.prepare_cached(
            "INSERT INTO definitions (definition_hash, job, first_seen_at, last_seen_at, effective)
             VALUES (?1, ?2, ?3, ?3, ?4)
             ON CONFLICT (definition_hash) DO UPDATE SET last_seen_at = excluded.last_seen_at",
        )?
        .execute(params![hash, job.job, now, effective])?;
    }
    // The grid of `every` begins at first sight and stays; other schedules do not look at it.
    db.prepare_cached(
        "INSERT INTO jobs (job, file, description, owner, labels, enabled, invalid_reason, schedule,
                           timezone, first_seen_at, definition_hash, decided_until, every_anchor)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?10, ?10)
         ON CONFLICT (job) DO UPDATE SET
             file = excluded.file, description = excluded.description, owner = excluded.owner,
             labels = excluded.labels, enabled = excluded.enabled,
             invalid_reason = excluded.invalid_reason, removed_at = NULL,
             schedule = coalesce(excluded.schedule, schedule),
             timezone = coalesce(excluded.timezone, timezone),
             definition_hash = coalesce(excluded.definition_hash, definition_hash)",
    )?
    .execute(params![
        job.job,
        job.file,
        job.description,
        job.owner,
        job.labels,
        job.enabled,
        job.invalid_reason,
        job.schedule,
        job.timezone,
        now,
        job.definition.as_ref().map(|(hash, _)| hash),
    ])?;
    let (first_seen_at, decided_until, every_anchor, was_invalid) =
        known.unwrap_or_else(|| (now.to_owned(), now.to_owned(), Some(now.to_owned()), false));
    Ok(JobMemory {
        first_seen_at: instant::parse(&first_seen_at)?,
        decided_until: instant::parse(&decided_until)?,
        every_anchor: every_anchor.as_deref().map(instant::parse).transpose()?,
        was_invalid,
    })
}
