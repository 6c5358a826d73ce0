//! The outbox: what is to be sent once a run is over.
//!
//! Its rows are written with the fact that nothing more follows the run, in one transaction: a
//! success is news when it is stored, a failure when no further attempt follows it. Whatever
//! crashes when, there is a row for each thing to send, and one only. How the sending went is
//! another fact, which changes nothing about the run.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Deserialize;

use super::error::StoreError;
use super::incidents::IncidentEvent;
use super::messages;
use super::writer::Patience;
use super::{Reader, Store, instant};
use crate::job::{BestEffort, DeliverSpec, DeliverWhen, JobId};
use crate::plan::{Settled, Then};
use crate::run::{Payload, State};

/// Something to be sent, in the hands of whoever sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The same for every try.
    pub delivery_id: String,
    /// What it tells of.
    pub about: About,
    /// Where it goes.
    pub target: String,
    /// The template of its subject.
    pub subject: Option<String>,
    /// Whether the run's artifacts go along.
    pub attach: bool,
    /// Which try this is.
    pub attempt: u32,
    /// Those of its parts that have arrived.
    pub parts_sent: u32,
    /// Since when it waits.
    pub queued_at: Timestamp,
    /// How often it was sent again because nobody knew whether it had arrived.
    pub repeats: u32,
}

/// What something to be sent tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// How a run has ended.
    Run(String),
    /// What a run has to say while it goes on, by `message`.
    Message(String, String),
    /// What has become of an incident.
    Incident(String, IncidentEvent),
}

/// How a try to send went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// It has arrived.
    Sent,
    /// It has not, and will not.
    Failed(String),
    /// It may have arrived.
    Unknown(String),
    /// It has not arrived, and is tried again then.
    Again(String, Timestamp),
    /// Somebody did not let it out.
    Suppressed(String),
}

/// What there is to do for a sender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// To be sent now; marked as such on the disk.
    pub outgoing: Vec<Outgoing>,
    /// When more is due, as far as nothing else happens.
    pub next_at: Option<Timestamp>,
}

impl Store {
    /// Takes what is due at `now`, at most `of_target` for each target and `in_all`, and marks it:
    /// once this returns, a crash leaves a trace.
    pub async fn claim_deliveries(
        &self,
        of_target: impl Fn(&str) -> usize + Send + 'static,
        in_all: usize,
        now: Timestamp,
    ) -> Result<Claim, StoreError> {
        self.writer.transaction(move |db| claim(db, &of_target, in_all, now)).await
    }

    /// Records how a try went. It is kept until the disk takes it.
    pub async fn end_delivery(
        &self,
        delivery_id: &str,
        end: DeliveryEnd,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let id = delivery_id.to_owned();
        let write = move |db: &Connection| end_delivery(db, &id, &end, now);
        let receipt = self.writer.submit(write, Patience::UntilWritten).await?;
        receipt.await.map_err(|_| StoreError::Stopped)?
    }

    /// One more part of it has arrived.
    pub async fn note_part_sent(&self, delivery_id: &str, parts: u32) -> Result<(), StoreError> {
        let id = delivery_id.to_owned();
        let write = move |db: &Connection| {
            db.prepare_cached("UPDATE deliveries SET parts_sent = ?2 WHERE delivery_id = ?1")?
                .execute(params![id, parts])
                .map(drop)
        };
        let receipt = self.writer.submit(write, Patience::UntilWritten).await?;
        receipt.await.map_err(|_| StoreError::Stopped)?
    }

    /// What a dead process was sending. Nobody knows whether it has arrived.
    pub async fn interrupted_deliveries(&self) -> Result<Vec<Outgoing>, StoreError> {
        self.writer
            .transaction(|db| {
                db.prepare_cached(&format!(
                    "SELECT {OUTGOING} FROM deliveries WHERE sending_at IS NOT NULL ORDER BY id"
                ))?
                .query_map([], outgoing_from)?
                .collect()
            })
            .await
    }

    /// Sends again what may have arrived.
    pub async fn repeat_delivery(&self, delivery_id: &str) -> Result<(), StoreError> {
        let id = delivery_id.to_owned();
        self.writer
            .transaction(move |db| {
                db.prepare_cached(
                    "UPDATE deliveries SET sending_at = NULL, repeats = repeats + 1
                     WHERE delivery_id = ?1 AND state = 'queued'",
                )?
                .execute([&id])
                .map(drop)
            })
            .await
    }
}

impl Reader {
    /// When a job is due next, if it starts then.
    pub fn next_due_of(&self, job: &str) -> Result<Option<String>, StoreError> {
        let due = self
            .0
            .prepare_cached(
                "SELECT max(next_due_at, coalesce(backoff_until, '')) FROM jobs
                 WHERE job = ?1 AND enabled = 1 AND paused_cause IS NULL AND removed_at IS NULL",
            )?
            .query_row([job], |row| row.get(0))
            .optional()?;
        Ok(due.flatten())
    }
}

/// What the ledger keeps of a definition, to know what its runs send.
#[derive(Debug, Deserialize)]
struct Sends {
    silent_token: String,
    deliver: Vec<DeliverSpec>,
}

/// An attempt of a slot has had its consequences.
pub(super) fn settle_attempt(
    db: &Connection,
    job: &JobId,
    settled: &Settled,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let Settled { due_at, attempt, then } = *settled;
    let run_id: Option<String> = db
        .prepare_cached("SELECT run_id FROM runs WHERE job = ?1 AND due_at = ?2 AND attempt = ?3")?
        .query_row(params![job.as_str(), instant::text(due_at), attempt], |row| row.get(0))
        .optional()?;
    run_id.map_or(Ok(()), |run_id| settle(db, &run_id, then, now))
}

/// A run has had its consequences. If nothing follows it, how it ended is to be sent.
pub(super) fn settle(
    db: &Connection,
    run_id: &str,
    then: Then,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let how = match then {
        Then::Nothing => 1,
        Then::Attempt => 2,
    };
    let changed = db
        .prepare_cached("UPDATE runs SET settled = ?2 WHERE run_id = ?1 AND settled = 0")?
        .execute(params![run_id, how])?;
    match then {
        Then::Nothing if changed == 1 => put(db, run_id, now),
        Then::Nothing | Then::Attempt => Ok(()),
    }
}

/// What is known of a run that is over, in columns.
struct EndedRun {
    state: String,
    unsent: bool,
    reply: Option<String>,
    payloads: Option<String>,
    sends: String,
    job: String,
}

/// Writes the rows of a run that is over.
fn put(db: &Connection, run_id: &str, now: Timestamp) -> rusqlite::Result<()> {
    let run = db
        .prepare_cached(
            "SELECT r.state, r.unsent, r.reply, r.payloads, d.sends, r.job
             FROM runs r JOIN definitions d USING (definition_hash)
             WHERE r.run_id = ?1 AND d.sends IS NOT NULL",
        )?
        .query_row([run_id], |row| {
            Ok(EndedRun {
                state: row.get(0)?,
                unsent: row.get(1)?,
                reply: row.get(2)?,
                payloads: row.get(3)?,
                sends: row.get(4)?,
                job: row.get(5)?,
            })
        })
        .optional()?;
    let Some(EndedRun { state, unsent, reply, payloads, sends, job }) = run else { return Ok(()) };
    let (Ok(state), Ok(sends)) = (state.parse::<State>(), serde_json::from_str::<Sends>(&sends))
    else {
        return Ok(());
    };
    let payloads: Option<Vec<Payload>> =
        payloads.and_then(|payloads| serde_json::from_str(&payloads).ok());
    let is_silent = reply.as_deref().is_some_and(|reply| {
        // A row that is older than its payloads has its reply only.
        payloads
            .unwrap_or_else(|| Payload::plain(Some(reply), None, &sends.silent_token))
            .is_empty()
    });
    let outcome = match (unsent, is_silent) {
        (true, _) => Some("asked for without deliveries"),
        (false, true) => Some("the reply says that there is nothing to say"),
        (false, false) => None,
    };
    let now = instant::text(now);
    let mut insert = db.prepare_cached(
        "INSERT INTO deliveries (delivery_id, run_id, target, best_effort, subject, attach, state,
                                 queued_at, next_at, last_error, settled_at, job)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?11)
         ON CONFLICT (delivery_id) DO NOTHING",
    )?;
    for (deliver, n) in sends.deliver.iter().zip(1..) {
        if !is_sent_after(deliver.when, state) {
            continue;
        }
        let outcome = match (outcome, &reply) {
            (_, Some(reply)) if !unsent && messages::is_sent(db, run_id, &deliver.to, reply)? => {
                Some("the run has sent it already")
            }
            (outcome, _) => outcome,
        };
        insert.execute(params![
            format!("{run_id}-{n}"),
            run_id,
            deliver.to,
            deliver.best_effort == BestEffort::Yes,
            deliver.subject,
            deliver.attach,
            if outcome.is_some() { "suppressed" } else { "queued" },
            now,
            outcome,
            outcome.map(|_| &now),
            job,
        ])?;
    }
    Ok(())
}

/// What a person has cancelled is nobody's news.
fn is_sent_after(when: DeliverWhen, state: State) -> bool {
    match state {
        State::Succeeded => matches!(when, DeliverWhen::Succeeded | DeliverWhen::Always),
        State::Failed | State::TimedOut | State::Interrupted => {
            matches!(when, DeliverWhen::Failed | DeliverWhen::Always)
        }
        State::Queued | State::Running | State::Cancelled => false,
    }
}

const OUTGOING: &str = "delivery_id, run_id, target, subject, attach, attempts, parts_sent,
     queued_at, repeats, incident, event, text";

fn outgoing_from(row: &Row<'_>) -> rusqlite::Result<Outgoing> {
    let about = match (row.get(9)?, row.get::<_, Option<String>>(10)?.as_deref()) {
        (Some(incident), Some("over")) => About::Incident(incident, IncidentEvent::Over),
        (Some(incident), _) => About::Incident(incident, IncidentEvent::Opened),
        (None, _) => match row.get(11)? {
            Some(text) => About::Message(row.get(1)?, text),
            None => About::Run(row.get(1)?),
        },
    };
    Ok(Outgoing {
        delivery_id: row.get(0)?,
        about,
        target: row.get(2)?,
        subject: row.get(3)?,
        attach: row.get(4)?,
        attempt: row.get(5)?,
        parts_sent: row.get(6)?,
        queued_at: instant::parse(&row.get::<_, String>(7)?)?,
        repeats: row.get(8)?,
    })
}

fn claim(
    db: &Connection,
    of_target: &dyn Fn(&str) -> usize,
    in_all: usize,
    now: Timestamp,
) -> rusqlite::Result<Claim> {
    let at = instant::text(now);
    let mut claim = Claim::default();
    let mut next: Option<String> = None;
    let mut last = String::new();
    // One look per target: what waits for one that takes nothing is passed over at once.
    while let Some(target) = target_after(db, &last)? {
        let wanted = of_target(&target).min(in_all - claim.outgoing.len());
        let rows: Vec<Outgoing> = db
            .prepare_cached(&format!(
                "SELECT {OUTGOING} FROM deliveries
                 WHERE state = 'queued' AND sending_at IS NULL AND target = ?1 AND next_at <= ?2
                 ORDER BY next_at, id LIMIT ?3"
            ))?
            .query_map(params![target, at, i64::try_from(wanted).unwrap_or(0)], outgoing_from)?
            .collect::<Result<_, _>>()?;
        claim.outgoing.extend(rows);
        let later: Option<String> = db
            .prepare_cached(
                "SELECT min(next_at) FROM deliveries
                 WHERE state = 'queued' AND sending_at IS NULL AND target = ?1 AND next_at > ?2",
            )?
            .query_row([&target, &at], |row| row.get(0))?;
        next = [next, later].into_iter().flatten().min();
        last = target;
    }
    for outgoing in &mut claim.outgoing {
        db.prepare_cached(
            "UPDATE deliveries SET sending_at = ?2, attempts = attempts + 1 WHERE delivery_id = ?1",
        )?
        .execute([&outgoing.delivery_id, &at])?;
        outgoing.attempt += 1;
    }
    claim.next_at = next.as_deref().map(instant::parse).transpose()?;
    Ok(claim)
}

fn target_after(db: &Connection, last: &str) -> rusqlite::Result<Option<String>> {
    db.prepare_cached(
        "SELECT min(target) FROM deliveries
         WHERE state = 'queued' AND sending_at IS NULL AND target > ?1",
    )?
    .query_row([last], |row| row.get(0))
}

fn end_delivery(
    db: &Connection,
    delivery_id: &str,
    end: &DeliveryEnd,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (state, error, again) = match end {
        DeliveryEnd::Sent => ("sent", None, None),
        DeliveryEnd::Failed(why) => ("failed", Some(why), None),
        DeliveryEnd::Unknown(why) => ("unknown", Some(why), None),
        DeliveryEnd::Again(why, at) => ("queued", Some(why), Some(*at)),
        DeliveryEnd::Suppressed(why) => ("suppressed", Some(why), None),
    };
    db.prepare_cached(
        "UPDATE deliveries SET state = ?2, sending_at = NULL, last_error = ?3,
             next_at = coalesce(?4, next_at), settled_at = ?5
         WHERE delivery_id = ?1 AND state = 'queued'",
    )?
    .execute(params![
        delivery_id,
        state,
        error,
        again.map(instant::text),
        again.is_none().then(|| instant::text(now)),
    ])
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_where_failures_are_and_a_cancelled_run_nowhere() {
        use DeliverWhen::{Always, Failed, Succeeded};
        let table = [
            (State::Succeeded, vec![Succeeded, Always]),
            (State::Failed, vec![Failed, Always]),
            (State::TimedOut, vec![Failed, Always]),
            (State::Interrupted, vec![Failed, Always]),
            (State::Cancelled, vec![]),
            (State::Running, vec![]),
        ];
        for (state, expected) in table {
            let told = DeliverWhen::ALL.iter().copied().filter(|it| is_sent_after(*it, state));
            assert_eq!(told.collect::<Vec<_>>(), expected, "{state}");
        }
    }
}
