//! Reading what is known of one slot, of the job behind it, and how long runs usually take.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Row, params};
use serde::Serialize;

use super::error::StoreError;
use super::instant;
use super::read::{Reader, SlotSummary};
use super::record::RunRecord;
use super::recover::{Ended, chain, end_from};

/// One attempt of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlotAttempt {
    /// Its run.
    pub run_id: String,
    /// Its number.
    pub attempt: u32,
    /// What made it start.
    pub trigger: String,
    /// Its slot.
    pub due_at: String,
    /// The slots that it stands for.
    pub slots: Option<i64>,
    /// Where it is in its life.
    pub state: String,
    /// When it was recorded.
    pub queued_at: String,
    /// When its clock started.
    pub started_at: Option<String>,
    /// When it was over.
    pub finished_at: Option<String>,
    /// How long it took.
    pub duration_ms: Option<i64>,
    /// From its due time to its start.
    pub late_ms: Option<i64>,
    /// Why it did not succeed.
    pub error_kind: Option<String>,
    /// The same in words.
    pub error_message: Option<String>,
    /// The limit that ended it.
    pub limit_name: Option<String>,
    /// The definition it ran under.
    pub definition_hash: String,
}

/// A version of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeenDefinition {
    /// Its hash.
    pub definition_hash: String,
    /// When it was first there.
    pub first_seen_at: String,
}

/// How a job stands, as `v1_jobs` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobStanding {
    /// `active`, `paused`, `disabled`, `invalid`, `done` or `removed`.
    pub state: String,
    /// Why nothing of it starts.
    pub paused_reason: Option<String>,
    /// When that ends by itself.
    pub paused_until: Option<String>,
    /// Nothing of it starts before this, after failures.
    pub backoff_until: Option<String>,
    /// Why its file cannot be used.
    pub invalid_reason: Option<String>,
    /// When it was first there.
    pub first_seen_at: String,
    /// Every due time up to here is decided.
    pub decided_until: String,
}

/// How many runs a job's usual length is taken from, and among how many of its last ones.
const USUAL_RUNS: u32 = 20;
const USUAL_AMONG: u32 = 1000;

/// Rows that begin before an instant and may reach it: they hardly ever overlap.
const COVERING_AMONG: u32 = 16;

pub(super) const SLOT_COLUMNS: &str =
    "job, due_at, due_until, slots, decision, reason, run_id, decided_at, late_ms";

impl Reader {
    /// The row that `at` lies in.
    pub fn slot_at(&self, job: &str, at: Timestamp) -> Result<Option<SlotSummary>, StoreError> {
        let sql = format!(
            "SELECT {SLOT_COLUMNS} FROM
                 (SELECT * FROM slots WHERE job = ?1 AND due_at <= ?2 ORDER BY due_at DESC LIMIT ?3)
             WHERE due_until >= ?2 ORDER BY due_at DESC LIMIT 1"
        );
        let row = self
            .0
            .prepare_cached(&sql)?
            .query_row(params![job, instant::text(at), COVERING_AMONG], slot_from);
        Ok(row.optional()?)
    }

    /// The row of the newest due time that is decided.
    pub fn newest_slot(&self, job: &str) -> Result<Option<SlotSummary>, StoreError> {
        let sql =
            format!("SELECT {SLOT_COLUMNS} FROM slots WHERE job = ?1 ORDER BY due_at DESC LIMIT 1");
        Ok(self.0.prepare_cached(&sql)?.query_row([job], slot_from).optional()?)
    }

    /// Every run for the slot of `due_at`, in the order of their numbers.
    pub fn attempts_at(&self, job: &str, due_at: &str) -> Result<Vec<SlotAttempt>, StoreError> {
        Ok(self
            .0
            .prepare_cached("SELECT * FROM runs WHERE job = ?1 AND due_at = ?2 ORDER BY attempt")?
            .query_map([job, due_at], attempt_from)?
            .collect::<Result<_, _>>()?)
    }

    /// One of these.
    pub fn attempt_at(
        &self,
        job: &str,
        due_at: Timestamp,
        attempt: u32,
    ) -> Result<Option<RunRecord>, StoreError> {
        let run_id: Option<String> = self
            .0
            .prepare_cached(
                "SELECT run_id FROM runs WHERE job = ?1 AND due_at = ?2 AND attempt = ?3",
            )?
            .query_row(params![job, instant::text(due_at), attempt], |row| row.get(0))
            .optional()?;
        run_id.map_or(Ok(None), |run_id| self.run(&run_id))
    }

    /// The last attempt of a slot, if it has ended and what follows it is not decided yet.
    pub fn unsettled_at(&self, job: &str, due_at: &str) -> Result<Option<Ended>, StoreError> {
        let last = self
            .0
            .prepare_cached(
                "SELECT attempt, state, error_kind, tool_calls, finished_at, queued_at, settled
                 FROM runs WHERE job = ?1 AND due_at = ?2 ORDER BY attempt DESC LIMIT 1",
            )?
            .query_row([job, due_at], |row| {
                let settled: bool = row.get("settled")?;
                Ok((row.get::<_, u32>("attempt")?, end_from(row)?, settled))
            })
            .optional()?;
        match last {
            Some((attempt, end, false)) if end.state.is_terminal() => {
                let chain = chain(&self.0, job, instant::parse(due_at)?, attempt)?;
                Ok(Some(Ended { chain, end }))
            }
            _ => Ok(None),
        }
    }

    /// The run of a later slot that stands for those up to `due_until` too.
    pub fn stand_in(&self, job: &str, due_until: &str) -> Result<Option<SlotAttempt>, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT * FROM
                     (SELECT * FROM runs WHERE job = ?1 AND due_at > ?2 ORDER BY due_at, attempt
                      LIMIT 1)
                 WHERE slots > 1",
            )?
            .query_row([job, due_until], attempt_from)
            .optional()?)
    }

    /// A version of a job by its hash.
    pub fn seen_definition(&self, hash: &str) -> Result<Option<SeenDefinition>, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT definition_hash, first_seen_at FROM definitions WHERE definition_hash = ?1",
            )?
            .query_row([hash], definition_from)
            .optional()?)
    }

    /// The version that a job last took over before `at`, as far as the ledger can tell.
    pub fn definition_at(&self, job: &str, at: &str) -> Result<Option<SeenDefinition>, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT definition_hash, first_seen_at FROM definitions
                 WHERE job = ?1 AND first_seen_at <= ?2
                 ORDER BY iif(last_seen_at <= ?2, last_seen_at, first_seen_at) DESC LIMIT 1",
            )?
            .query_row([job, at], definition_from)
            .optional()?)
    }

    /// How a job stands now.
    pub fn standing(&self, job: &str) -> Result<Option<JobStanding>, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT v.state, v.paused_reason, v.paused_until, v.backoff_until,
                        v.invalid_reason, v.first_seen_at, j.decided_until
                 FROM v1_jobs v JOIN jobs j USING (job) WHERE v.job = ?1",
            )?
            .query_row([job], |row| {
                Ok(JobStanding {
                    state: row.get(0)?,
                    paused_reason: row.get(1)?,
                    paused_until: row.get(2)?,
                    backoff_until: row.get(3)?,
                    invalid_reason: row.get(4)?,
                    first_seen_at: row.get(5)?,
                    decided_until: row.get(6)?,
                })
            })
            .optional()?)
    }

    /// The jobs whose files could not be used when they were last read.
    pub fn invalid_jobs(&self) -> Result<Vec<String>, StoreError> {
        Ok(self
            .0
            .prepare_cached("SELECT job FROM jobs WHERE invalid_reason IS NOT NULL")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?)
    }

    /// How long a run of the job takes: the median of its last 20 that succeeded. `None`: none
    /// of its recent ones did.
    pub fn usual_duration(&self, job: &str) -> Result<Option<Duration>, StoreError> {
        let mut lengths: Vec<i64> = self
            .0
            .prepare_cached(
                "SELECT duration_ms FROM
                     (SELECT state, duration_ms FROM runs WHERE job = ?1
                      ORDER BY queued_at DESC LIMIT ?3)
                 WHERE state = 'succeeded' AND duration_ms IS NOT NULL LIMIT ?2",
            )?
            .query_map(params![job, USUAL_RUNS, USUAL_AMONG], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        lengths.sort_unstable();
        let median = lengths.get(lengths.len() / 2);
        Ok(median.map(|&ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))))
    }

    /// What a run of the job usually costs in USD: the mean of its last successful ones of which it
    /// is known.
    pub fn usual_cost(&self, job: &str) -> Result<Option<f64>, StoreError> {
        Ok(self
            .0
            .prepare_cached(
                "SELECT avg(usd) FROM
                     (SELECT usd FROM
                          (SELECT state, usd FROM runs WHERE job = ?1
                           ORDER BY queued_at DESC LIMIT ?3)
                      WHERE state = 'succeeded' AND usd IS NOT NULL LIMIT ?2)",
            )?
            .query_row(params![job, USUAL_RUNS, USUAL_AMONG], |row| row.get(0))?)
    }

    /// [`Reader::usual_duration`] of each of these.
    pub fn usual_durations<'a>(
        &self,
        jobs: impl IntoIterator<Item = &'a str>,
    ) -> Result<HashMap<String, Duration>, StoreError> {
        let mut usual = HashMap::new();
        for job in jobs {
            if let Some(length) = self.usual_duration(job)? {
                usual.insert(job.to_owned(), length);
            }
        }
        Ok(usual)
    }
}

pub(super) fn slot_from(row: &Row<'_>) -> rusqlite::Result<SlotSummary> {
    Ok(SlotSummary {
        job: row.get("job")?,
        due_at: row.get("due_at")?,
        due_until: row.get("due_until")?,
        slots: row.get("slots")?,
        decision: row.get("decision")?,
        reason: row.get("reason")?,
        run_id: row.get("run_id")?,
        decided_at: row.get("decided_at")?,
        late_ms: row.get("late_ms")?,
    })
}

fn attempt_from(row: &Row<'_>) -> rusqlite::Result<SlotAttempt> {
    Ok(SlotAttempt {
        run_id: row.get("run_id")?,
        attempt: row.get("attempt")?,
        trigger: row.get("trigger")?,
        due_at: row.get("due_at")?,
        slots: row.get("slots")?,
        state: row.get("state")?,
        queued_at: row.get("queued_at")?,
        started_at: row.get("started_at")?,
        finished_at: row.get("finished_at")?,
        duration_ms: row.get("duration_ms")?,
        late_ms: row.get("late_ms")?,
        error_kind: row.get("error_kind")?,
        error_message: row.get("error_message")?,
        limit_name: row.get("limit_name")?,
        definition_hash: row.get("definition_hash")?,
    })
}

fn definition_from(row: &Row<'_>) -> rusqlite::Result<SeenDefinition> {
    Ok(SeenDefinition { definition_hash: row.get(0)?, first_seen_at: row.get(1)? })
}
