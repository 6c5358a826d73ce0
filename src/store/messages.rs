//! What a run sends while it goes on: a row of the outbox that waits for nothing.

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::error::StoreError;
use super::{Store, instant};
use crate::run::RunId;

impl Store {
    /// Puts the `n`th message of a run into the outbox, once: it is on its way when this returns,
    /// whatever becomes of the run. `false`: nothing is to be sent of this run, and nothing will.
    pub async fn put_message(
        &self,
        run_id: &RunId,
        n: usize,
        target: &str,
        text: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (run_id, target, text) = (run_id.clone(), target.to_owned(), text.to_owned());
        let write = move |db: &Connection| put(db, &run_id, n, (&target, &text), now);
        self.writer.transaction(write).await
    }
}

fn put(
    db: &Connection,
    run_id: &RunId,
    n: usize,
    (target, text): (&str, &str),
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let unsent: bool = db
        .prepare_cached("SELECT unsent FROM runs WHERE run_id = ?1")?
        .query_row([run_id.as_str()], |row| row.get(0))?;
    let now = instant::text(now);
    db.prepare_cached(
        "INSERT INTO deliveries (delivery_id, run_id, job, target, text, state, queued_at, next_at,
                                 last_error, settled_at)
         SELECT ?2, run_id, job, ?3, ?4, ?5, ?6, ?6, ?7, ?8 FROM runs WHERE run_id = ?1
         ON CONFLICT (delivery_id) DO NOTHING",
    )?
    .execute(params![
        run_id.as_str(),
        format!("{run_id}-message-{n}"),
        target,
        text,
        if unsent { "suppressed" } else { "queued" },
        now,
        unsent.then_some("asked for without deliveries"),
        unsent.then_some(&now),
    ])?;
    Ok(!unsent)
}

/// Whether the run itself has sent that text there, and it has arrived or still may.
pub(super) fn is_sent(
    db: &Connection,
    run_id: &str,
    target: &str,
    text: &str,
) -> rusqlite::Result<bool> {
    let mut rows = db.prepare_cached(
        "SELECT text FROM deliveries
         WHERE run_id = ?1 AND target = ?2 AND text IS NOT NULL
           AND state IN ('queued', 'sent', 'unknown')",
    )?;
    let sent = rows.query_map([run_id, target], |row| row.get::<_, String>(0))?;
    let sent: Vec<String> = sent.collect::<Result<_, _>>()?;
    Ok(sent.iter().any(|known| known.trim() == text.trim()))
}
