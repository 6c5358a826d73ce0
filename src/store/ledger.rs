//! Decisions of the planner, and the runs that they start.

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, params};
use tokio::sync::oneshot;

use super::error::StoreError;
use super::outbox::settle_attempt;
use super::sessions::{self, Kept, LetterRow, Seat};
use super::writer::Patience;
use super::{Owner, Store, instant};
use crate::job::JobId;
use crate::plan::{
    Account, Claim, Pause, PauseCause, PauseChange, PlannedSlot, Reason, Record, SlotDecision,
    Turned,
};
use crate::run::{RunId, SessionId, Trigger};

/// A run to be, recorded before anything of it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Its id.
    pub run_id: RunId,
    /// What made it start.
    pub trigger: Trigger,
    /// Its slot; none for a run by hand.
    pub slot: Option<RunSlot>,
    /// 1 for the first.
    pub attempt: u32,
    /// Its session.
    pub session_id: SessionId,
    /// The definition that it runs under.
    pub definition_hash: String,
    /// What is sent when it is over.
    pub sending: Sending,
    /// Whose conversation that session is; `None`: it says nothing to anybody.
    pub session: Option<Seat>,
    /// What a person has said, if it is there for that.
    pub letters: Vec<LetterRow>,
    /// Its definition, as JSON, if it is of no job.
    pub ad_hoc: Option<String>,
}

/// What is sent when a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// What its definition says.
    Usual,
    /// Nothing: whoever asked for the run does not want it.
    Suppressed,
}

/// The slot that a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSlot {
    /// Its nominal time.
    pub due_at: Timestamp,
    /// That with its jitter: lateness counts from here.
    pub start_at: Timestamp,
    /// How many slots the run stands for, this one included.
    pub stands_for: u64,
    /// The first of them.
    pub first_due: Timestamp,
}

/// Whether a decision was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It is in the ledger now.
    New,
    /// The ledger already had one for that instant: nothing was recorded, nothing may start.
    AlreadyDecided,
}

/// A decision on its way to the disk; what is handed over later is written later.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Result<(), StoreError>>);

impl Receipt {
    /// Waits until it is on the disk.
    pub async fn recorded(self) -> Result<Recorded, StoreError> {
        match self.0.await.map_err(|_| StoreError::Stopped)? {
            Ok(()) => Ok(Recorded::New),
            Err(StoreError::Sql(rusqlite::Error::SqliteFailure(failure, _)))
                if failure.code == ErrorCode::ConstraintViolation
                    && is_uniqueness(failure.extended_code) =>
            {
                Ok(Recorded::AlreadyDecided)
            }
            Err(StoreError::Sql(rusqlite::Error::QueryReturnedNoRows)) => {
                Ok(Recorded::AlreadyDecided)
            }
            Err(error) => Err(error),
        }
    }
}

impl Store {
    /// Hands a decision over, with the run that starts by it: all of it or nothing. When this
    /// returns, its place among the decisions is fixed; [`Receipt::recorded`] says when it is on
    /// the disk.
    pub async fn record(
        &self,
        record: Record,
        run: Option<NewRun>,
        now: Timestamp,
    ) -> Result<Receipt, StoreError> {
        let owner = self.owner.clone();
        let receipt = self
            .writer
            .submit(move |db| write(db, &record, run.as_ref(), &owner, now), Patience::None)
            .await?;
        Ok(Receipt(receipt))
    }

    /// Records when jobs are due next, for those who look at `v1_jobs`, and that the definitions
    /// of all jobs that are there have been seen.
    pub async fn note_start(
        &self,
        next: Vec<(JobId, Option<Timestamp>)>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer
            .transaction(move |db| {
                db.execute(
                    "UPDATE definitions SET last_seen_at = ?1 WHERE definition_hash IN
                         (SELECT definition_hash FROM jobs WHERE removed_at IS NULL)",
                    [instant::text(now)],
                )?;
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

fn write(
    db: &Connection,
    record: &Record,
    run: Option<&NewRun>,
    owner: &Owner,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let job = &record.job;
    if let Some((run, effective)) = run.and_then(|run| Some((run, run.ad_hoc.as_ref()?))) {
        insert_ad_hoc(db, job, &run.definition_hash, effective, now)?;
    }
    claim(db, record)?;
    for attempt in &record.settled {
        settle_attempt(db, job, attempt, now)?;
    }
    if let Some(run) = run {
        insert_run(db, job, run, owner, now)?;
    }
    let started = run.and_then(|run| Some((run.slot?.due_at, &run.run_id)));
    let run_of = |due_at: Timestamp| started.filter(|it| it.0 == due_at).map(|it| it.1);
    for slot in &record.rows {
        insert_slot(db, job, slot, run_of(slot.due_at), now)?;
    }
    for turned in &record.turned {
        turn(db, job, turned, run_of(turned.due_at), now)?;
    }
    if let Some(account) = &record.account {
        set_account(db, job, account)?;
    }
    if let Some(change) = &record.pause {
        set_pause(db, job, change, now)?;
    }
    Ok(())
}

/// Moves the watermark over the new rows, unless somebody else has moved it there, or rows before
/// these did not make it to the disk.
fn claim(db: &Connection, record: &Record) -> rusqlite::Result<()> {
    let next_due = record.next_due.map(instant::text);
    let first = record.rows.iter().map(|slot| slot.due_at).min();
    let last = record.rows.iter().map(|slot| slot.due_until).max();
    let (Some(first), Some(last)) = (first, last) else {
        return db
            .prepare_cached("UPDATE jobs SET next_due_at = ?2 WHERE job = ?1")?
            .execute(params![record.job.as_str(), next_due])
            .map(drop);
    };
    let after = match record.claim {
        Claim::After(row) => row,
        Claim::Beside(decided) => {
            return db
                .prepare_cached(
                    "UPDATE jobs SET decided_until = max(decided_until, ?2) WHERE job = ?1",
                )?
                .execute(params![record.job.as_str(), instant::text(decided)])
                .map(drop);
        }
    };
    // Nothing was recorded before.
    let after = (after > Timestamp::MIN).then(|| instant::text(after));
    let moved = db
        .prepare_cached(
            "UPDATE jobs SET decided_until = ?3, next_due_at = ?4
             WHERE job = ?1 AND decided_until < ?2 AND decided_until >= coalesce(?5, '')",
        )?
        .execute(params![
            record.job.as_str(),
            instant::text(first),
            instant::text(last),
            next_due,
            after,
        ])?;
    if moved == 1 { Ok(()) } else { Err(rusqlite::Error::QueryReturnedNoRows) }
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
        "INSERT INTO runs (run_id, job, trigger, due_at, start_at, slots, attempt, state, queued_at,
                           session_id, definition_hash, host, version, owner_boot_id, owner_pid,
                           owner_started, first_due_at, settled, unsent, session_key)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'queued', ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, 0,
                 ?17, ?18)",
    )?
    .execute(params![
        run.run_id.as_str(),
        job.as_str(),
        run.trigger.as_str(),
        run.slot.map(|slot| instant::text(slot.due_at)),
        run.slot.map(|slot| instant::text(slot.start_at)),
        run.slot.map(|slot| i64::try_from(slot.stands_for).unwrap_or(i64::MAX)),
        run.attempt,
        instant::text(now),
        run.session_id.as_str(),
        run.definition_hash,
        owner.host,
        env!("CARGO_PKG_VERSION"),
        owner.boot_id,
        owner.pid,
        owner.started,
        run.slot.map(|slot| instant::text(slot.first_due)),
        run.sending == Sending::Suppressed,
        run.session.as_ref().map(|seat| seat.key.as_str()),
    ])?;
    match &run.session {
        Some(Seat { key, kept: Kept::FromRunToRun }) => {
            sessions::use_session(db, &run.session_id, key, Some(&run.run_id), now)?;
        }
        Some(Seat { kept: Kept::ForTheRun, .. }) | None => {}
    }
    let mut letters = run.letters.iter();
    letters.try_for_each(|it| sessions::set_letter(db, &run.session_id, &run.run_id, it, now))
}

/// Turns that belong to no job have their place among the jobs all the same.
fn insert_ad_hoc(
    db: &Connection,
    job: &JobId,
    hash: &str,
    effective: &str,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let now = instant::text(now);
    db.prepare_cached(
        "INSERT INTO definitions (definition_hash, job, first_seen_at, last_seen_at, effective)
         VALUES (?1, ?2, ?3, ?3, ?4)
         ON CONFLICT (definition_hash) DO UPDATE SET last_seen_at = ?3",
    )?
    .execute(params![hash, job.as_str(), now, effective])?;
    db.prepare_cached(
        "INSERT INTO jobs (job, file, first_seen_at, decided_until, definition_hash)
         VALUES (?1, '', ?2, ?2, ?3)
         ON CONFLICT (job) DO UPDATE SET definition_hash = ?3",
    )?
    .execute(params![job.as_str(), now, hash])
    .map(drop)
}

fn insert_slot(
    db: &Connection,
    job: &JobId,
    slot: &PlannedSlot,
    run_id: Option<&RunId>,
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
        run_id.filter(|_| slot.decision == SlotDecision::Started).map(RunId::as_str),
        instant::text(now),
        instant::millis_between(slot.start_at, now),
    ])?;
    Ok(())
}

/// What had waited is decided for good. None starts a run that does not wait there: somebody else
/// has decided it.
fn turn(
    db: &Connection,
    job: &JobId,
    turned: &Turned,
    run_id: Option<&RunId>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let count = db
        .prepare_cached(
            "UPDATE slots SET decision = ?3, reason = ?4, run_id = ?5, decided_at = ?6,
                 late_ms = late_ms + CAST(round((julianday(?6) - julianday(decided_at)) * 86400000) AS INTEGER)
             WHERE job = ?1 AND due_at = ?2 AND decision IN ('buffered', 'held')",
        )?
        .execute(params![
            job.as_str(),
            instant::text(turned.due_at),
            turned.decision.as_str(),
            turned.reason.map(Reason::as_str),
            run_id.map(RunId::as_str),
            instant::text(now),
        ])?;
    match run_id {
        Some(_) if count == 0 => Err(rusqlite::Error::QueryReturnedNoRows),
        Some(_) | None => Ok(()),
    }
}

fn set_account(db: &Connection, job: &JobId, account: &Account) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE jobs SET failed_slots = ?2, counted_failures = ?3, backoff_until = ?4
         WHERE job = ?1",
    )?
    .execute(params![
        job.as_str(),
        account.failed_slots,
        account.counted_failures,
        account.backoff_until.map(instant::text),
    ])
    .map(drop)
}

fn set_pause(
    db: &Connection,
    job: &JobId,
    change: &PauseChange,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let now = instant::text(now);
    let (pause, kind) = match change {
        PauseChange::Held(pause) => (Some(pause), "pause"),
        PauseChange::Lifted => (None, "resume"),
    };
    let (known, ended): (Option<String>, bool) = db
        .prepare_cached(
            "SELECT paused_cause, coalesce(paused_until <= ?2, 0) FROM jobs WHERE job = ?1",
        )?
        .query_row([job.as_str(), &now], |row| Ok((row.get(0)?, row.get(1)?)))?;
    db.prepare_cached(
        "UPDATE jobs SET paused_reason = ?2, paused_cause = ?3, paused_at = ?4, paused_until = ?5
         WHERE job = ?1",
    )?
    .execute(params![
        job.as_str(),
        pause.map(Pause::reason_column),
        pause.map(|pause| pause.cause.as_str()),
        pause.map(|_| &now),
        pause.and_then(|pause| pause.until).map(instant::text),
    ])?;
    let result = pause.map(|pause| pause.cause.as_str().to_owned()).or(known);
    let by_person = match change {
        PauseChange::Held(pause) => pause.cause == PauseCause::Person,
        PauseChange::Lifted => !ended,
    };
    db.prepare_cached(
        "INSERT INTO audit (at, actor, kind, name, result) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        now,
        if by_person { "person" } else { "punctual" },
        kind,
        job.as_str(),
        result
    ])
    .map(drop)
}

impl Pause {
    /// What a person said, or which rule it was.
    fn reason_column(&self) -> String {
        match self.cause {
            PauseCause::Person => self.words.clone(),
            cause => format!("{cause}: {}", self.words),
        }
    }
}
