//! The jobs and their definitions, as the ledger knows them.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::error::StoreError;
use super::{Reader, Store, instant};
use crate::job::JobId;
use crate::plan::{Account, Ahead, Decided, Memory, Pause, PauseCause};

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
    /// Its definition; none while the file is invalid.
    pub definition: Option<Definition>,
}

/// A definition that can be run.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Its hash.
    pub hash: String,
    /// It, as JSON.
    pub effective: String,
    /// What of it says when the job is due, as JSON.
    pub timing: String,
    /// Its schedule as text.
    pub schedule: Option<String>,
    /// The zone of that schedule.
    pub timezone: Option<String>,
    /// Its only due instant, if it has just one.
    pub one_shot: Option<Timestamp>,
    /// What its runs send, as JSON.
    pub sends: Option<String>,
}

/// What the ledger remembers of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobMemory {
    /// What decisions depend on.
    pub memory: Memory,
    /// The grid of its `every`.
    pub anchor: Timestamp,
    /// Whether it was there when the files were last read.
    pub was_there: bool,
    /// What of its last definition said when it is due.
    pub timing: Option<String>,
    /// That definition.
    pub definition_hash: Option<String>,
    /// Its file.
    pub file: String,
    /// Whether that file was broken.
    pub was_invalid: bool,
    /// When it was due next.
    pub next_due: Option<Timestamp>,
}

impl Reader {
    /// What is remembered of every job that there ever was.
    pub fn known_jobs(&self) -> Result<HashMap<String, JobMemory>, StoreError> {
        Ok(self
            .0
            .prepare(&format!(
                "SELECT {MEMORY_COLUMNS}, job FROM jobs WHERE job <> '{}'",
                JobId::AD_HOC
            ))?
            .query_map([], |row| {
                let job: String = row.get("job")?;
                let mut known = memory_from(row)?;
                known.memory.ahead = ahead(&self.0, &job, known.memory.decided_until)?;
                Ok((job, known))
            })?
            .collect::<Result<_, _>>()?)
    }

    /// Whether there ever was such a job.
    pub fn knows(&self, job: &str) -> Result<bool, StoreError> {
        Ok(self.0.prepare_cached("SELECT 1 FROM jobs WHERE job = ?1")?.exists([job])?)
    }

    /// Where the decisions of a job are: its watermark, and what is decided ahead of it.
    pub fn decided(&self, job: &JobId) -> Result<Option<Decided>, StoreError> {
        let until: Option<String> = self
            .0
            .prepare_cached("SELECT decided_until FROM jobs WHERE job = ?1")?
            .query_row([job.as_str()], |row| row.get(0))
            .optional()?;
        let Some(until) = until else { return Ok(None) };
        let until = instant::parse(&until)?;
        Ok(Some((until, ahead(&self.0, job.as_str(), until)?)))
    }

    /// What tells the output of the job's gate before its last success from another one.
    pub fn gate_digest(&self, job: &JobId) -> Result<Option<String>, StoreError> {
        let digest = self
            .0
            .prepare_cached("SELECT gate_digest FROM jobs WHERE job = ?1")?
            .query_row([job.as_str()], |row| row.get(0))
            .optional()?;
        Ok(digest.flatten())
    }

    /// A definition as JSON.
    pub fn definition(&self, hash: &str) -> Result<Option<String>, StoreError> {
        Ok(self
            .0
            .prepare_cached("SELECT effective FROM definitions WHERE definition_hash = ?1")?
            .query_row([hash], |row| row.get(0))
            .optional()?)
    }
}

impl Store {
    /// Takes over what the files say of these jobs, marks those that are `gone`, and returns what
    /// is remembered of each that is there. A job seen for the first time was due at no time
    /// before `now`; one with a schedule of another timing begins anew at `now`.
    pub async fn adopt_jobs(
        &self,
        jobs: Vec<JobRow>,
        gone: Vec<String>,
        now: Timestamp,
    ) -> Result<HashMap<String, JobMemory>, StoreError> {
        self.writer
            .transaction(move |db| {
                for job in &gone {
                    db.prepare_cached(
                        "UPDATE jobs SET removed_at = ?2, next_due_at = NULL
                         WHERE job = ?1 AND removed_at IS NULL",
                    )?
                    .execute(params![job, instant::text(now)])?;
                }
                jobs.iter().map(|job| Ok((job.job.clone(), adopt(db, job, now)?))).collect()
            })
            .await
    }

    /// The clock was set back to `now`: what was counted as missed after that has not been missed
    /// yet. Returns where the decisions of each such job begin again, and what of them stays.
    pub async fn rewind(&self, now: Timestamp) -> Result<Ahead, StoreError> {
        self.writer.transaction(move |db| rewind(db, now)).await
    }
}

const MEMORY_COLUMNS: &str = "decided_until, every_anchor, first_seen_at, removed_at IS NULL,
     timing, definition_hash, paused_cause, paused_reason, paused_until, failed_slots,
     counted_failures, backoff_until, file, invalid_reason IS NOT NULL, next_due_at";

fn memory_from(row: &Row<'_>) -> rusqlite::Result<JobMemory> {
    let at = |column: usize| -> rusqlite::Result<Option<Timestamp>> {
        row.get::<_, Option<String>>(column)?.as_deref().map(instant::parse).transpose()
    };
    let pause = match row.get::<_, Option<String>>(6)? {
        None => None,
        Some(cause) => {
            let words: Option<String> = row.get(7)?;
            let words = words.unwrap_or_default();
            let cause: PauseCause = cause.parse().map_err(|error: String| {
                rusqlite::Error::FromSqlConversionFailure(
                    6,
                    rusqlite::types::Type::Text,
                    error.into(),
                )
            })?;
            let own = words.strip_prefix(&format!("{cause}: ")).map(str::to_owned);
            Some(Pause { cause, words: own.unwrap_or(words), until: at(8)? })
        }
    };
    let first_seen = at(2)?.unwrap_or(Timestamp::MIN);
    Ok(JobMemory {
        memory: Memory {
            decided_until: at(0)?.unwrap_or(first_seen),
            ahead: Vec::new(),
            pause,
            account: Account {
                failed_slots: row.get(9)?,
                counted_failures: row.get(10)?,
                backoff_until: at(11)?,
            },
        },
        anchor: at(1)?.unwrap_or(first_seen),
        was_there: row.get(3)?,
        timing: row.get(4)?,
        definition_hash: row.get(5)?,
        file: row.get(12)?,
        was_invalid: row.get(13)?,
        next_due: at(14)?,
    })
}

/// Rows that reach beyond `after`. There are some only when the clock was set back.
fn ahead(
    db: &Connection,
    job: &str,
    after: Timestamp,
) -> rusqlite::Result<Vec<(Timestamp, Timestamp)>> {
    db.prepare_cached(
        "SELECT due_at, due_until FROM slots
         WHERE job = ?1 AND due_until > ?2
           AND due_at >= coalesce((SELECT max(due_at) FROM slots
                                    WHERE job = ?1 AND due_at <= ?2), ?2)
         ORDER BY due_at",
    )?
    .query_map(params![job, instant::text(after)], |row| {
        Ok((instant::parse(&row.get::<_, String>(0)?)?, instant::parse(&row.get::<_, String>(1)?)?))
    })?
    .collect()
}

fn adopt(db: &Connection, job: &JobRow, now: Timestamp) -> rusqlite::Result<JobMemory> {
    let known = db
        .prepare_cached(&format!("SELECT {MEMORY_COLUMNS} FROM jobs WHERE job = ?1"))?
        .query_row([&job.job], memory_from)
        .optional()?;
    let mut memory = match known {
        None => JobMemory {
            memory: Memory::since(now),
            anchor: whole_second(now),
            was_there: false,
            timing: None,
            definition_hash: None,
            file: job.file.clone(),
            was_invalid: false,
            next_due: None,
        },
        // While its file was gone it was due at no time.
        Some(known) if !known.was_there => {
            JobMemory { memory: Memory { decided_until: now, ..known.memory }, ..known }
        }
        Some(known) => known,
    };
    if let Some(definition) = &job.definition {
        let is_new = memory.timing.is_none() && memory.definition_hash.is_none();
        let is_other = memory.timing.as_ref().is_some_and(|it| *it != definition.timing);
        if is_other {
            memory.anchor = whole_second(now);
            memory.memory.decided_until = now;
            lift_pause_of_a_failed_slot(db, &job.job, &mut memory.memory)?;
        }
        if is_new || is_other || !memory.was_there {
            due_in_the_past(db, job, definition, now, &mut memory.memory)?;
        }
        memory.timing = Some(definition.timing.clone());
        memory.definition_hash = Some(definition.hash.clone());
        store_definition(db, &job.job, definition, now)?;
    }
    store_job(db, job, &memory, now)?;
    memory.memory.ahead = ahead(db, &job.job, memory.memory.decided_until)?;
    Ok(memory)
}

/// A grid of whole seconds is one that people can name. Not after `now`, which would be due itself.
fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_millisecond().div_euclid(1000)).unwrap_or(now)
}

/// A slot that has failed holds nothing that is due at another time.
fn lift_pause_of_a_failed_slot(
    db: &Connection,
    job: &str,
    memory: &mut Memory,
) -> rusqlite::Result<()> {
    if memory.pause.take_if(|it| it.cause == PauseCause::OneShotFailed).is_none() {
        return Ok(());
    }
    db.prepare_cached(
        "UPDATE jobs SET paused_cause = NULL, paused_reason = NULL, paused_at = NULL,
                         paused_until = NULL
         WHERE job = ?1",
    )?
    .execute([job])
    .map(drop)
}

/// A one-shot whose instant has passed and has no row yet was not decided by anybody.
fn due_in_the_past(
    db: &Connection,
    job: &JobRow,
    definition: &Definition,
    now: Timestamp,
    memory: &mut Memory,
) -> rusqlite::Result<()> {
    let Some(due_at) = definition.one_shot.filter(|&at| at <= now) else { return Ok(()) };
    let has_row = db
        .prepare_cached("SELECT 1 FROM slots WHERE job = ?1 AND due_at <= ?2 AND due_until >= ?2")?
        .exists(params![job.job, instant::text(due_at)])?;
    if !has_row {
        memory.decided_until = due_at - SignedDuration::from_millis(1);
    }
    Ok(())
}

fn store_definition(
    db: &Connection,
    job: &str,
    definition: &Definition,
    now: Timestamp,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO definitions (definition_hash, job, first_seen_at, last_seen_at, effective, sends)
         VALUES (?1, ?2, ?3, ?3, ?4, ?5)
         ON CONFLICT (definition_hash) DO UPDATE SET last_seen_at = excluded.last_seen_at",
    )?
    .execute(params![
        definition.hash,
        job,
        instant::text(now),
        definition.effective,
        definition.sends
    ])
    .map(drop)
}

fn store_job(
    db: &Connection,
    job: &JobRow,
    memory: &JobMemory,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let definition = job.definition.as_ref();
    db.prepare_cached(
        "INSERT INTO jobs (job, file, description, owner, labels, enabled, invalid_reason, schedule,
                           timezone, first_seen_at, definition_hash, decided_until, every_anchor,
                           timing)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
         ON CONFLICT (job) DO UPDATE SET
             file = excluded.file, invalid_reason = excluded.invalid_reason, removed_at = NULL,
             description = iif(?15, excluded.description, description),
             owner = iif(?15, excluded.owner, owner),
             labels = iif(?15, excluded.labels, labels),
             enabled = iif(?15, excluded.enabled, enabled),
             schedule = iif(?15, excluded.schedule, schedule),
             timezone = iif(?15, excluded.timezone, timezone),
             definition_hash = coalesce(excluded.definition_hash, definition_hash),
             decided_until = excluded.decided_until, every_anchor = excluded.every_anchor,
             timing = coalesce(excluded.timing, timing)",
    )?
    .execute(params![
        job.job,
        job.file,
        job.description,
        job.owner,
        job.labels,
        job.enabled,
        job.invalid_reason,
        definition.and_then(|it| it.schedule.as_ref()),
        definition.and_then(|it| it.timezone.as_ref()),
        instant::text(now),
        definition.map(|it| &it.hash),
        instant::text(memory.memory.decided_until),
        instant::text(memory.anchor),
        memory.timing,
        definition.is_some(),
    ])
    .map(drop)
}

fn rewind(db: &Connection, now: Timestamp) -> rusqlite::Result<Ahead> {
    let at = instant::text(now);
    let jobs: Vec<String> = db
        .prepare_cached("SELECT job FROM jobs WHERE decided_until > ?1")?
        .query_map([&at], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut rewound = Ahead::new();
    for job in jobs {
        let (decided_until, ahead) = rewind_job(db, &job, now)?;
        if let Ok(id) = job.parse::<JobId>() {
            rewound.insert(id, (decided_until, ahead));
        }
    }
    Ok(rewound)
}

/// A run that was started stands for its instant; a miss that lies ahead was never one, and nobody
/// waits there for anything yet. A counted range that reaches beyond `now` is given up as a whole and counted again from its beginning.
fn rewind_job(db: &Connection, job: &str, now: Timestamp) -> rusqlite::Result<Decided> {
    let at = instant::text(now);
    let first: Option<String> = db
        .prepare_cached(
            "SELECT min(due_at) FROM slots
             WHERE job = ?1 AND due_until > ?2
               AND (decision = 'missed' OR (decision = 'held' AND reason IN ('model_unreachable', 'budget')))",
        )?
        .query_row([job, &at], |row| row.get(0))?;
    let first = first.as_deref().map(instant::parse).transpose()?;
    let decided_until = first.map_or(now, |it| now.min(it - SignedDuration::from_millis(1)));
    db.prepare_cached(
        "DELETE FROM slots
         WHERE job = ?1 AND due_until > ?2
           AND (decision = 'missed' OR (decision = 'held' AND reason IN ('model_unreachable', 'budget')))",
    )?
    .execute([job, &at])?;
    db.prepare_cached("UPDATE jobs SET decided_until = ?2 WHERE job = ?1")?
        .execute([job, &instant::text(decided_until)])?;
    Ok((decided_until, ahead(db, job, decided_until)?))
}
