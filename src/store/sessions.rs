//! Conversations that are kept from run to run, and the messages that were said into them.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::StoreError;
use super::{Reader, Store, instant};
use crate::job::SessionKey;
use crate::run::{MessageId, RunId, SessionId};

/// Whose conversation a run goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Under which key.
    pub key: SessionKey,
    /// For how long.
    pub kept: Kept,
}

/// How long a conversation is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It goes with its run.
    ForTheRun,
    /// Later runs go on with it.
    FromRunToRun,
}

/// A conversation that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Under which key.
    pub key: SessionKey,
    /// Its id, the name of its transcript.
    pub id: SessionId,
    /// How often it was cleared.
    pub clearings: u64,
    /// When something was said in it last.
    pub last_used: Timestamp,
}

words!(
    /// How a message came to its run.
    LetterMode {
        /// The run began with it, at once.
        Start = "start",
        /// It was told to a run that went on.
        Steer = "steer",
        /// It has a run of its own, after others.
        Followup = "followup",
        /// It waited for others, to be said with them.
        Collect = "collect",
        /// It took the place of what went on.
        Interrupt = "interrupt",
    }
);

/// A message, without its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterRow {
    /// Its id.
    pub id: MessageId,
    /// How it comes to its run.
    pub mode: LetterMode,
    /// How long it is.
    pub characters: usize,
}

words!(
    /// What became of a message.
    LetterEnd {
        /// The model was told.
        Heard = "heard",
        /// Too many waited.
        Dropped = "dropped",
        /// Nobody wants it answered any more.
        Cancelled = "cancelled",
    }
);

impl Reader {
    /// The conversations that are kept and go on.
    pub fn kept_sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
        let mut select = self.0.prepare(
            "SELECT session_key, session_id, clearings, last_used_at FROM sessions
             WHERE ended_at IS NULL",
        )?;
        let row = |row: &rusqlite::Row<'_>| {
            Ok(SessionRow {
                key: SessionKey::from_stored(&row.get::<_, String>(0)?),
                id: SessionId::from_stored(row.get::<_, String>(1)?),
                clearings: row.get::<_, i64>(2)?.unsigned_abs(),
                last_used: instant::parse(&row.get::<_, String>(3)?)?,
            })
        };
        Ok(select.query_map([], row)?.collect::<Result<_, _>>()?)
    }

    /// Whether a conversation that is kept has this key or this id.
    pub fn knows_session(&self, name: &str) -> Result<bool, StoreError> {
        let select = "SELECT EXISTS (SELECT 1 FROM sessions WHERE ?1 IN (session_key, session_id))";
        Ok(self.0.query_row(select, [name], |row| row.get(0))?)
    }

    /// With which run a message is, and how that stands.
    pub fn letter(&self, id: &str) -> Result<Option<(String, String)>, StoreError> {
        let select = "SELECT run_id, state FROM messages WHERE message_id = ?1";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        Ok(self.0.query_row(select, [id], row).optional()?)
    }
}

impl Store {
    /// Records a session as it is now: another one of its key is over.
    pub async fn keep_session(
        &self,
        session: SessionRow,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer
            .transaction(move |db| {
                use_session(db, &session.id, &session.key, None, now)?;
                db.prepare_cached("UPDATE sessions SET clearings = ?2 WHERE session_id = ?1")?
                    .execute(params![
                        session.id.as_str(),
                        i64::try_from(session.clearings).unwrap_or(i64::MAX)
                    ])
                    .map(drop)
            })
            .await
    }

    /// Records that a message waits to be told to a run.
    pub async fn note_letter(
        &self,
        session: &SessionId,
        run_id: &RunId,
        letter: LetterRow,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (session, run_id) = (session.clone(), run_id.clone());
        self.writer.transaction(move |db| set_letter(db, &session, &run_id, &letter, now)).await
    }

    /// Records what became of messages; nothing waits for the disk.
    pub async fn settle_letters(
        &self,
        ids: Vec<MessageId>,
        end: LetterEnd,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer
            .enqueue("message's end", move |db| {
                let mut update = db.prepare_cached(
                    "UPDATE messages SET state = ?2, settled_at = ?3
                     WHERE message_id = ?1 AND state <> 'heard'",
                )?;
                let now = instant::text(now);
                let mut ids = ids.iter();
                ids.try_for_each(|id| {
                    update.execute(params![id.as_str(), end.as_str(), now]).map(drop)
                })
            })
            .await
    }
}

/// The session is in use: no other one has its key from now on.
pub(super) fn use_session(
    db: &Connection,
    id: &SessionId,
    key: &SessionKey,
    run_id: Option<&RunId>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let now = instant::text(now);
    // A run that goes on in a session that is over does not bring it back.
    let touched = db
        .prepare_cached(
            "UPDATE sessions SET last_used_at = ?2, last_run_id = coalesce(?3, last_run_id)
             WHERE session_id = ?1",
        )?
        .execute(params![id.as_str(), now, run_id.map(RunId::as_str)])?;
    if touched > 0 {
        return Ok(());
    }
    db.prepare_cached(
        "UPDATE sessions SET ended_at = ?2 WHERE session_key = ?1 AND ended_at IS NULL",
    )?
    .execute(params![key.as_str(), now])?;
    db.prepare_cached(
        "INSERT INTO sessions (session_id, session_key, created_at, last_used_at, last_run_id)
         VALUES (?1, ?2, ?3, ?3, ?4)",
    )?
    .execute(params![id.as_str(), key.as_str(), now, run_id.map(RunId::as_str)])
    .map(drop)
}

/// A message waits with this run.
pub(super) fn set_letter(
    db: &Connection,
    session: &SessionId,
    run_id: &RunId,
    letter: &LetterRow,
    now: Timestamp,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO messages (message_id, session_id, run_id, mode, state, received_at, characters)
         VALUES (?1, ?2, ?3, ?4, 'waiting', ?5, ?6)
         ON CONFLICT (message_id)
         DO UPDATE SET run_id = ?3, mode = ?4, state = 'waiting', settled_at = NULL",
    )?
    .execute(params![
        letter.id.as_str(),
        session.as_str(),
        run_id.as_str(),
        letter.mode.as_str(),
        instant::text(now),
        i64::try_from(letter.characters).unwrap_or(i64::MAX),
    ])
    .map(drop)
}
