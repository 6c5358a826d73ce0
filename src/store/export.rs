//! The history for elsewhere: one file with a table per view, and a copy that is a database again.
//!
//! Both read one snapshot, while whoever writes goes on writing.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, params};

use super::error::StoreError;
use super::read::Reader;
use super::{instant, migrate};

/// A table of an exported file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ExportedTable {
    /// As its view is called.
    pub name: String,
    /// Its rows.
    pub rows: i64,
}

/// How long a copy waits for a lock that is in its way.
const LOCKED_WAIT: Duration = Duration::from_millis(50);

/// How often it does.
const LOCKED_TRIES: u32 = 600;

/// Makes the SQLite file `to`, which must not be there yet, with a table for each view of the
/// database `from`, and a table `about` that says when and what of.
pub fn export(from: &Path, to: &Path, now: Timestamp) -> Result<Vec<ExportedTable>, StoreError> {
    // It says what is wrong with the one file; SQLite below would say so of the other.
    let reader = Reader::open(from)?;
    make_private(to)?;
    let failed = |source| StoreError::Copy { path: to.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(to, flags).map_err(failed)?;
    let tables = export_into(&db, from, now).map_err(failed)?;
    drop(reader);
    db.close().map_err(|(_, source)| failed(source))?;
    sync(to)?;
    Ok(tables)
}

fn export_into(
    db: &Connection,
    from: &Path,
    now: Timestamp,
) -> rusqlite::Result<Vec<ExportedTable>> {
    // Nobody reads it before it is whole, and then it gets its name: it needs no journal.
    db.pragma_update(None, "journal_mode", "OFF")?;
    db.pragma_update(None, "synchronous", "OFF")?;
    db.busy_timeout(LOCKED_WAIT * LOCKED_TRIES)?;
    db.execute("ATTACH ?1 AS history", [read_only(from)])?;
    db.execute_batch("BEGIN")?;
    let views: Vec<String> = db
        .prepare(
            "SELECT name FROM history.sqlite_schema
             WHERE type = 'view' AND name LIKE 'v1\\_%' ESCAPE '\\' ORDER BY name",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut tables = Vec::new();
    for name in views {
        db.execute_batch(&format!("CREATE TABLE main.{name} AS SELECT * FROM history.{name}"))?;
        let count = format!("SELECT count(*) FROM main.{name}");
        let rows = db.query_row(&count, [], |row| row.get(0))?;
        tables.push(ExportedTable { name, rows });
    }
    db.execute_batch("CREATE TABLE main.about (exported_at TEXT, version TEXT, schema INTEGER)")?;
    db.execute(
        "INSERT INTO main.about VALUES (?1, ?2, ?3)",
        params![instant::text(now), env!("CARGO_PKG_VERSION"), migrate::SCHEMA],
    )?;
    db.execute_batch("COMMIT; DETACH history")?;
    Ok(tables)
}

/// A file's name as SQLite takes it with parameters.
fn read_only(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{path}?mode=ro")
}

/// Copies the database `from`, as it is at one moment, into the file `to`, which must not be there
/// yet, and looks whether the copy is whole.
pub fn copy(from: &Path, to: &Path) -> Result<Reader, StoreError> {
    let reader = Reader::open(from)?;
    make_private(to)?;
    let failed = |source| StoreError::Copy { path: to.to_owned(), source };
    let mut copy =
        Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    copy_all(&reader.0, &mut copy).map_err(failed)?;
    let found: String =
        copy.pragma_query_value(None, "integrity_check", |row| row.get(0)).map_err(failed)?;
    if found != "ok" {
        return Err(StoreError::Damaged { path: to.to_owned(), found });
    }
    copy.close().map_err(|(_, source)| failed(source))?;
    sync(to)?;
    Reader::open(to)
}

/// In one step: one of several would have to begin again whenever somebody has written in between.
fn copy_all(from: &Connection, to: &mut Connection) -> rusqlite::Result<()> {
    let backup = Backup::new(from, to)?;
    let mut tries = 0;
    loop {
        match backup.step(-1)? {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            StepResult::Busy | StepResult::Locked if tries < LOCKED_TRIES => {
                tries += 1;
                std::thread::sleep(LOCKED_WAIT);
            }
            _ => {
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                return Err(rusqlite::Error::SqliteFailure(busy, None));
            }
        }
    }
}

impl Reader {
    /// The files that are kept of runs, as they are named in the state folder.
    pub fn kept_files(&self) -> Result<Vec<String>, StoreError> {
        let mut kept = self.0.prepare("SELECT file FROM v1_artifacts")?;
        Ok(kept.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    /// How many runs there are.
    pub fn count_runs(&self) -> Result<usize, StoreError> {
        let count: i64 = self.0.query_row("SELECT count(*) FROM runs", [], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The session of every run, and those that are kept without one.
    pub fn sessions(&self) -> Result<Vec<String>, StoreError> {
        let all = "SELECT session_id FROM runs UNION SELECT session_id FROM sessions";
        let mut sessions = self.0.prepare(all)?;
        Ok(sessions.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
    }
}

/// The history can hold what a model read: only its owner may look.
fn make_private(path: &Path) -> Result<(), StoreError> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).map_err(|source| StoreError::Make { path: path.to_owned(), source })
}

fn sync(path: &Path) -> Result<(), StoreError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|source| StoreError::Make { path: path.to_owned(), source })
}
