//! Bringing a database to this version's schema, one numbered file at a time.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::StoreError;

/// Each file takes the schema from its index to the next number.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
    include_str!("migrations/0004.sql"),
    include_str!("migrations/0005.sql"),
    include_str!("migrations/0006.sql"),
    include_str!("migrations/0007.sql"),
    include_str!("migrations/0008.sql"),
    include_str!("migrations/0009.sql"),
    include_str!("migrations/0010.sql"),
    include_str!("migrations/0011.sql"),
    include_str!("migrations/0012.sql"),
    include_str!("migrations/0013.sql"),
    include_str!("migrations/0014.sql"),
    include_str!("migrations/0015.sql"),
    include_str!("migrations/0016.sql"),
];

/// Marks the file as ours: `PUNC`.
const APPLICATION_ID: i64 = 0x5055_4e43;

/// The schema this version writes.
pub(super) const SCHEMA: i64 = 16;
const _: () = assert!(MIGRATIONS.len() as u64 == SCHEMA.unsigned_abs());

/// Applies what is missing; all of it or, on any error, nothing.
pub(super) fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    check(db, path)?;
    let failed = |source| StoreError::Migrate { path: path.to_owned(), to: SCHEMA, source };
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Read again inside the lock: another process may have migrated while this one waited.
    let found = version(&tx).map_err(failed)?;
    for (sql, number) in MIGRATIONS.iter().zip(1..).skip(usize::try_from(found).unwrap_or(0)) {
        tx.execute_batch(sql).map_err(failed)?;
        tx.pragma_update(None, "user_version", number).map_err(failed)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    }
    tx.commit().map_err(failed)
}

/// Refuses a database that a newer version wrote, and says which schema this one has; 0 is none
/// yet.
pub(super) fn check(db: &Connection, path: &Path) -> Result<i64, StoreError> {
    let open = |source| StoreError::Open { path: path.to_owned(), source };
    let found = version(db).map_err(open)?;
    let whose: i64 =
        db.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(open)?;
    let tables: i64 =
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(open)?;
    if whose != APPLICATION_ID && (whose != 0 || tables > 0) {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    if found > SCHEMA {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found,
            known: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
        });
    }
    Ok(found)
}

fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}
