//! Open rows, closed: those that a dead process left, and those of a process that leaves at once.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::costs::Days;
use super::error::StoreError;
use super::{Owner, Reader, Store, instant};
use crate::job::{JobId, Usd};
use crate::plan::{Chain, RunEnd, SlotDecision, SlotEnd, SlotStart, Then, WaitingSlot, Waits};
use crate::run::{
    ErrorKind, Failure, Outcome, Payload, PayloadKind, RunId, SessionId, State, Trigger, Work,
};
use crate::store::outbox::settle;
use crate::store::runs::{set_checked, set_work};

/// What dead processes had left, and what has become of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Rows whose work had ended: finished from what was stored.
    pub finished: u64,
    /// Rows whose work had not: now `interrupted`.
    pub interrupted: u64,
    /// Runs of slots that had been recorded and had not begun.
    pub queued: Vec<QueuedRun>,
    /// Attempts that have ended and whose consequences nobody has decided.
    pub ended: Vec<EndedRun>,
    /// Open runs of a process that lives.
    pub alive: Vec<RunId>,
    /// Slots that wait, for a run that is over, for a model or for the next day.
    pub waiting: Vec<(JobId, WaitingSlot)>,
    /// Slots that had ended and of which nobody has said what follows for the jobs after them.
    pub upstream: Vec<SlotEnd>,
}

/// A run that has not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedRun {
    /// Its id.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// Its job.
    pub job: JobId,
    /// What made it start.
    pub trigger: Trigger,
    /// The attempts of its slot.
    pub chain: Chain,
}

/// An attempt that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The attempts of its slot, this one not counted as ended.
    pub chain: Chain,
    /// How it ended.
    pub end: RunEnd,
}

/// The same with its job.
pub type EndedRun = (JobId, Ended);

impl Store {
    /// Closes every run of an owner that is dead, from its stored result if there is one, else as
    /// interrupted, and says what is left to decide. Doing it again changes nothing.
    pub async fn recover(
        &self,
        is_alive: impl Fn(&Owner) -> bool + Send + 'static,
        queued: Queued,
        now: Timestamp,
    ) -> Result<Recovered, StoreError> {
        let (own, days) = (self.owner.clone(), self.days.clone());
        self.writer
            .transaction(move |db| {
                let mut recovered = Recovered::default();
                let open = open_runs(db)?;
                let (alive, dead): (Vec<_>, Vec<_>) =
                    open.into_iter().partition(|run| is_alive(&run.owner));
                recovered.alive = alive.into_iter().map(|run| run.run_id).collect();
                for run in dead {
                    let waits = run.state == State::Queued && run.due_at.is_some();
                    if waits && run.work_state.is_none() {
                        if queued == Queued::TakenOver {
                            set_owner(db, &run.run_id, &own)?;
                        }
                        recovered.queued.extend(queued_run(db, &run)?);
                    } else {
                        close(db, &run, ErrorKind::Interrupted, (now, &days), &mut recovered)?;
                    }
                }
                recovered.ended = unsettled(db)?;
                recovered.waiting = waiting(db)?;
                Ok(recovered)
            })
            .await
    }

    /// Closes every open run of this process, which leaves: from its stored result if there is
    /// one, else as interrupted.
    pub async fn close_open_runs(&self, now: Timestamp) -> Result<(), StoreError> {
        let (own, days) = (self.owner.clone(), self.days.clone());
        self.writer
            .transaction(move |db| {
                let mut closed = Recovered::default();
                for run in open_runs(db)?.into_iter().filter(|run| run.owner.is(&own)) {
                    close(db, &run, ErrorKind::Shutdown, (now, &days), &mut closed)?;
                }
                Ok(())
            })
            .await
    }

    /// A run that was taken over runs under the present definition.
    pub async fn redefine_queued(
        &self,
        run_id: &RunId,
        definition_hash: &str,
    ) -> Result<(), StoreError> {
        let (run_id, hash) = (run_id.clone(), definition_hash.to_owned());
        self.writer
            .transaction(move |db| {
                db.prepare_cached(
                    "UPDATE runs SET definition_hash = ?2 WHERE run_id = ?1 AND state = 'queued'",
                )?
                .execute([run_id.as_str(), &hash])
                .map(drop)
            })
            .await
    }

    /// Closes a run that a dead process had queued and that is too late now.
    pub async fn give_up_queued(&self, run_id: &RunId, now: Timestamp) -> Result<(), StoreError> {
        let (run_id, days) = (run_id.clone(), self.days.clone());
        self.writer
            .transaction(move |db| {
                let mut closed = Recovered::default();
                for run in open_runs(db)?.into_iter().filter(|run| run.run_id == run_id) {
                    close(db, &run, ErrorKind::Interrupted, (now, &days), &mut closed)?;
                }
                // It never began, so nothing follows from it.
                settle(db, run_id.as_str(), Then::Nothing, now)
            })
            .await
    }
}

impl Reader {
    /// Who drives, or drove, a run of this ledger.
    pub fn owner_of(&self, run_id: &str) -> Result<Option<Owner>, StoreError> {
        let owner = self.0.query_row(
            "SELECT owner_boot_id, owner_pid, owner_started, host FROM runs WHERE run_id = ?1",
            [run_id],
            |row| {
                Ok(Owner {
                    boot_id: row.get(0)?,
                    pid: row.get(1)?,
                    started: row.get(2)?,
                    host: row.get(3)?,
                })
            },
        );
        Ok(owner.optional()?)
    }
}

/// What becomes of the runs that a dead process had queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queued {
    /// They are this process's from now on, so that another one finds them in good hands.
    TakenOver,
    /// They are left to a process that starts what is due.
    Left,
}

fn set_owner(db: &Connection, run_id: &RunId, own: &Owner) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE runs SET owner_boot_id = ?2, owner_pid = ?3, owner_started = ?4, host = ?5,
                         version = ?6
         WHERE run_id = ?1 AND state = 'queued'",
    )?
    .execute(params![
        run_id.as_str(),
        own.boot_id,
        own.pid,
        own.started,
        own.host,
        env!("CARGO_PKG_VERSION"),
    ])
    .map(drop)
}

impl Owner {
    /// Whether both are the same process; its host is no part of it.
    fn is(&self, other: &Self) -> bool {
        (&self.boot_id, self.pid, self.started) == (&other.boot_id, other.pid, other.started)
    }
}

struct OpenRun {
    run_id: RunId,
    session_id: String,
    job: String,
    trigger: String,
    due_at: Option<String>,
    attempt: u32,
    state: State,
    work_state: Option<String>,
    owner: Owner,
}

fn open_runs(db: &Connection) -> rusqlite::Result<Vec<OpenRun>> {
    db.prepare_cached(
        "SELECT run_id, session_id, job, trigger, due_at, attempt, state, work_state,
                owner_boot_id, owner_pid, owner_started, host
         FROM runs WHERE state IN ('queued', 'running')",
    )?
    .query_map([], |row| {
        Ok(OpenRun {
            run_id: RunId::from_stored(row.get::<_, String>(0)?),
            session_id: row.get(1)?,
            job: row.get(2)?,
            trigger: row.get(3)?,
            due_at: row.get(4)?,
            attempt: row.get(5)?,
            state: word(row, 6)?,
            work_state: row.get(7)?,
            owner: Owner {
                boot_id: row.get(8)?,
                pid: row.get(9)?,
                started: row.get(10)?,
                host: row.get(11)?,
            },
        })
    })?
    .collect()
}

fn word<T: std::str::FromStr<Err = String>>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    row.get::<_, String>(column)?.parse().map_err(|error: String| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })
}

fn close(
    db: &Connection,
    run: &OpenRun,
    why: ErrorKind,
    (now, days): (Timestamp, &Days),
    recovered: &mut Recovered,
) -> rusqlite::Result<()> {
    if run.work_state.is_some() {
        recovered.finished += 1;
        let unseen = Failure::new(ErrorKind::CheckFailed, "nobody was left to check its success");
        set_checked(db, &run.run_id, Some(&unseen))?;
    } else {
        recovered.interrupted += 1;
        set_work(db, &run.run_id, &interrupted(why, run.state))?;
        db.execute(
            "UPDATE attempts SET state = 'interrupted', error_kind = ?2
             WHERE run_id = ?1 AND state = 'running'",
            params![run.run_id.as_str(), why.as_str()],
        )?;
    }
    db.execute(
        "UPDATE runs SET state = work_state, finished_at = ?2,
             -- When a process died is not known.
             duration_ms = iif(?3, NULL,
                 CAST(round((julianday(?2) - julianday(coalesce(started_at, ?2))) * 86400000) AS INTEGER))
         WHERE run_id = ?1",
        params![run.run_id.as_str(), instant::text(now), why == ErrorKind::Interrupted],
    )?;
    super::costs::count(db, &run.run_id, days, now)?;
    super::runs::settle_by_itself(db, &run.run_id, now)
}

fn interrupted(why: ErrorKind, state: State) -> Work {
    let words = match (why, state) {
        (ErrorKind::Shutdown, State::Queued) => "punctual was stopped before it started",
        (ErrorKind::Shutdown, _) => "punctual was stopped at once",
        (_, State::Queued) => "the process that had queued it died before it started",
        (_, _) => "the process that ran it died",
    };
    Work {
        outcome: Outcome::ended(Failure::new(why, words), None),
        payloads: vec![Payload::new(PayloadKind::Error, words)],
        tool_calls: 0,
        tool_errors: 0,
        denied_calls: 0,
        unchecked: false,
        exit_code: None,
        gate_digest: None,
    }
}

fn queued_run(db: &Connection, run: &OpenRun) -> rusqlite::Result<Option<QueuedRun>> {
    let (Ok(job), Ok(trigger), Some(due_at)) =
        (run.job.parse::<JobId>(), run.trigger.parse(), run.due_at.as_deref())
    else {
        return Ok(None);
    };
    let chain = chain(db, &run.job, instant::parse(due_at)?, run.attempt)?;
    let session_id = SessionId::from_stored(run.session_id.clone());
    Ok(Some(QueuedRun { run_id: run.run_id.clone(), session_id, job, trigger, chain }))
}

/// The attempts of a slot before this one, as far as they belong to the same start.
pub(super) fn chain(
    db: &Connection,
    job: &str,
    due_at: Timestamp,
    attempt: u32,
) -> rusqlite::Result<Chain> {
    let attempts: Vec<(u32, Trigger, RunEnd)> = db
        .prepare_cached(
            "SELECT attempt, trigger, state, error_kind, tool_calls, finished_at, queued_at
             FROM runs WHERE job = ?1 AND due_at = ?2 AND attempt <= ?3 ORDER BY attempt",
        )?
        .query_map(params![job, instant::text(due_at), attempt], |row| {
            Ok((row.get(0)?, word(row, 1)?, end_from(row)?))
        })?
        .collect::<Result<_, _>>()?;
    let first = attempts.iter().rposition(|(_, trigger, _)| *trigger != Trigger::Retry);
    let own = &attempts[first.unwrap_or(0)..];
    let origin = own.first().map_or(Trigger::Schedule, |(_, trigger, _)| *trigger);
    let first_attempt = own.first().map_or(attempt, |(number, ..)| *number);
    let (stands_for, first_due) = covered(db, job, due_at, first_attempt)?;
    let mut chain = Chain::new(origin, due_at, first_attempt).standing_for(stands_for, first_due);
    for (number, _, end) in own.iter().filter(|(number, ..)| *number < attempt) {
        chain = Chain { attempt: *number, ..chain }.after(end);
    }
    Ok(Chain { attempt, ..chain })
}

/// The slots that an attempt stands for, and the first of them.
fn covered(
    db: &Connection,
    job: &str,
    due_at: Timestamp,
    attempt: u32,
) -> rusqlite::Result<(u64, Timestamp)> {
    let covered: Option<(Option<i64>, Option<String>)> = db
        .prepare_cached(
            "SELECT slots, first_due_at FROM runs WHERE job = ?1 AND due_at = ?2 AND attempt = ?3",
        )?
        .query_row(params![job, instant::text(due_at), attempt], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let (slots, first) = covered.unwrap_or_default();
    let slots = slots.and_then(|slots| u64::try_from(slots).ok()).unwrap_or(1);
    let first = first.as_deref().map(instant::parse).transpose()?;
    Ok((slots, first.unwrap_or(due_at)))
}

pub(super) fn end_from(row: &Row<'_>) -> rusqlite::Result<RunEnd> {
    let kind: Option<String> = row.get("error_kind")?;
    let at: Option<String> = row.get("finished_at")?;
    let queued_at: String = row.get("queued_at")?;
    Ok(RunEnd {
        state: row.get::<_, String>("state")?.parse().unwrap_or(State::Interrupted),
        kind: kind.and_then(|kind| kind.parse().ok()),
        tool_calls: row.get("tool_calls")?,
        // What ended before is in the ledger's own sums.
        usd: Usd::ZERO,
        at: instant::parse(&at.unwrap_or(queued_at))?,
    })
}

fn unsettled(db: &Connection) -> rusqlite::Result<Vec<EndedRun>> {
    let rows: Vec<(String, String, u32, RunEnd)> = db
        .prepare_cached(
            "SELECT job, due_at, attempt, state, error_kind, tool_calls, finished_at, queued_at
             FROM runs WHERE settled = 0 AND due_at IS NOT NULL
               AND state NOT IN ('queued', 'running')
             ORDER BY finished_at",
        )?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, end_from(row)?)))?
        .collect::<Result<_, _>>()?;
    let mut ended = Vec::new();
    for (job, due_at, attempt, end) in rows {
        let chain = chain(db, &job, instant::parse(&due_at)?, attempt)?;
        if let Ok(job) = job.parse::<JobId>() {
            ended.push((job, Ended { chain, end }));
        }
    }
    Ok(ended)
}

fn waiting(db: &Connection) -> rusqlite::Result<Vec<(JobId, WaitingSlot)>> {
    let mut waiting = Vec::new();
    // What one of them stands for was decided with it.
    let mut select = db.prepare_cached(
        "SELECT w.job, w.due_at, w.decision,
                (SELECT sum(s.slots) FROM slots s WHERE s.job = w.job AND s.due_at < w.due_at
                    AND s.decided_at = w.decided_at AND s.reason = 'superseded'),
                (SELECT min(s.due_at) FROM slots s WHERE s.job = w.job AND s.due_at < w.due_at
                    AND s.decided_at = w.decided_at AND s.reason = 'superseded'), w.reason
         FROM slots w WHERE w.decision = 'buffered'
            OR (w.decision = 'held' AND w.reason = 'model_unreachable')
            OR (w.decision = 'held' AND w.reason = 'budget')
         ORDER BY w.job, w.due_at",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let due_at = instant::parse(&row.get::<_, String>(1)?)?;
        let reason: Option<String> = row.get(5)?;
        let waits = match word(row, 2)? {
            SlotDecision::Held if reason.as_deref() == Some("budget") => Waits::ForBudget,
            SlotDecision::Held => Waits::ForModel,
            _ => Waits::ForRun,
        };
        let older: Option<i64> = row.get(3)?;
        let first: Option<String> = row.get(4)?;
        let first_due = first.as_deref().map(instant::parse).transpose()?.unwrap_or(due_at);
        let stands_for = 1 + u64::try_from(older.unwrap_or(0)).unwrap_or(0);
        let start = SlotStart { trigger: Trigger::Catchup, stands_for, first_due };
        if let Ok(job) = row.get::<_, String>(0)?.parse::<JobId>() {
            waiting.push((job, WaitingSlot { due_at, waits, start }));
        }
    }
    Ok(waiting)
}
