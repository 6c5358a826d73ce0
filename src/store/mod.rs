//! SQLite: the ledger, the runs and the views that admins query.
//!
//! The only room that speaks SQL. One writer thread groups what waits into one commit
//! (`writer.rs`); readers have read-only connections of their own ([`Reader`]). Every call of
//! [`Store`] is one transaction, and what it records is on the disk when it returns.

mod audit;
mod condition;
mod costs;
mod error;
mod export;
mod first;
mod hooks;
mod incidents;
mod instant;
mod jobs;
mod ledger;
mod messages;
mod migrate;
mod outbox;
mod pages;
mod prompt_parts;
mod query;
mod query_views;
mod read;
mod read_ends;
mod read_slot;
mod record;
mod recover;
mod retention;
mod runs;
mod sessions;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::hooks::Action;
use tokio::sync::Notify;

pub use audit::{Actor, AuditKind, AuditRow, SessionAudit};
pub use costs::{CostRow, Days};
pub use error::StoreError;
pub use export::{ExportedTable, copy, export};
pub use incidents::{AlertRule, IncidentEvent, IncidentRecord, Incidents, Looked, Scope};
pub use jobs::{Definition, JobMemory, JobRow};
pub use ledger::{NewRun, Receipt, Recorded, RunSlot, Sending};
pub use outbox::{About, Claim, DeliveryEnd, Outgoing};
pub use pages::Lived;
pub use prompt_parts::PromptPartRecord;
pub use query::{QueryLimits, Table};
pub use read::{JobSummary, PastSlot, Reader, RunFilter, SlotFilter, SlotSummary};
pub use read_slot::{JobStanding, SeenDefinition, SlotAttempt};
pub use record::{ArtifactRecord, AttemptRecord, CheckRecord, DeliveryRecord, RunRecord};
pub use recover::{Ended, EndedRun, Queued, QueuedRun, Recovered};
pub use retention::{Overdue, PrunedRun};
pub use runs::{AttemptEnd, AttemptStart, ToolCallRow, Written};
pub use sessions::{Kept, LetterEnd, LetterMode, LetterRow, Seat, SessionRow};

use writer::Writer;

/// Who drives the runs that are recorded through a [`Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The kernel's boot id.
    pub boot_id: String,
    /// This process.
    pub pid: i32,
    /// Its start time in clock ticks since boot.
    pub started: i64,
    /// The machine's name.
    pub host: String,
}

/// The database, open for writing.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
    owner: Owner,
    writer: Writer,
    outbox: Arc<Notify>,
    /// On which day a cost counts.
    days: Days,
    stirred: Arc<Notify>,
}

impl Store {
    /// Opens (or makes) `punctual.db` in `state_dir` and brings it to this version's schema.
    pub fn open(state_dir: &Path, owner: Owner) -> Result<Self, StoreError> {
        let path = database_in(state_dir);
        let mut connection = writer::connect(&path)?;
        let (outbox, stirred) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        ring_for_new_rows(&mut connection, [("deliveries", &outbox), ("stirred", &stirred)])?;
        let (writer, days) = (Writer::start(connection), Days::default());
        Ok(Self { path, owner, writer, outbox, days, stirred })
    }

    /// The same store, with costs counted on these days.
    #[must_use]
    pub fn counting_in(&self, days: Days) -> Self {
        Self { days, ..self.clone() }
    }

    /// Rings when there is something new to send. Whoever then claims it finds it.
    pub fn outbox_bell(&self) -> Arc<Notify> {
        Arc::clone(&self.outbox)
    }

    /// A reader of the same database.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        Reader::open(&self.path)
    }

    /// Rings when something has happened that may begin or end an incident.
    pub fn stirred_bell(&self) -> Arc<Notify> {
        Arc::clone(&self.stirred)
    }

    /// Folds the write-ahead log back into the database, as far as readers allow it.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        self.writer
            .outside_transaction(|db| {
                db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            })
            .await
    }
}

/// It rings before the commit: a claim is written behind it, and so finds what was committed.
fn ring_for_new_rows(
    db: &mut Connection,
    bells: [(&'static str, &Arc<Notify>); 2],
) -> Result<(), StoreError> {
    let bells = bells.map(|(table, bell)| (table, Arc::clone(bell)));
    db.update_hook(Some(move |action, _: &str, table: &str, _| {
        if action == Action::SQLITE_INSERT
            && let Some((_, bell)) = bells.iter().find(|(name, _)| *name == table)
        {
            bell.notify_one();
        }
    }))?;
    Ok(())
}

/// Where the database of a state folder is.
pub fn database_in(state_dir: &Path) -> PathBuf {
    state_dir.join("punctual.db")
}
