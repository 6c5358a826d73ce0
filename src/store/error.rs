//! What can go wrong with the database.

use std::path::PathBuf;

/// A failed call of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened as a database.
    #[error("failed to open the database {path}")]
    Open {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// It was written by a newer version.
    #[error(
        "the database {path} has schema {found}, and this is punctual {version}, which knows \
         schemas up to {known}: use a newer punctual"
    )]
    Newer {
        /// Which one.
        path: PathBuf,
        /// The schema it has.
        found: i64,
        /// The newest one known here.
        known: i64,
        /// This binary's version.
        version: &'static str,
    },
    /// A migration failed; nothing was changed.
    #[error("failed to bring the database {path} to schema {to}")]
    Migrate {
        /// Which one.
        path: PathBuf,
        /// The schema aimed at.
        to: i64,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// A statement failed.
    #[error("failed to read or write the database")]
    Sql(#[from] rusqlite::Error),
    /// The commit that would have recorded it failed.
    #[error("failed to commit to the database: {0}")]
    Commit(String),
    /// The writer is gone: the process is shutting down.
    #[error("the database writer has stopped")]
    Stopped,
    /// There is no database yet.
    #[error("there is no database at {0} yet: nothing has run")]
    Missing(PathBuf),
    /// Whether there is a database cannot be seen.
    #[error("failed to look for the database {path}")]
    Unreachable {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It cannot be made.
    #[error("failed to make the database {path}")]
    Make {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What is read from it cannot be written elsewhere.
    #[error("failed to copy the history to {path}")]
    Copy {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// A copy is not whole.
    #[error("the copy {path} is damaged: {found}")]
    Damaged {
        /// Which one.
        path: PathBuf,
        /// What SQLite says.
        found: String,
    },
    /// It is empty or hardly begun, or there is a log without it: a history was here.
    #[error(
        "the database {0} has lost its contents: put a copy of it back, or remove what is left of \
         it ({0} and {0}-wal) to begin a new history"
    )]
    Lost(PathBuf),
    /// It is something else, perhaps an SQLite file of somebody else's.
    #[error("{0} is not a database of punctual's: it is left as it is")]
    Foreign(PathBuf),
    /// A query was refused or ran into a limit.
    #[error("{0}")]
    Query(String),
}

impl StoreError {
    /// Whether another process's lock was in the way.
    pub(super) fn is_busy(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        match self {
            Self::Open { source, .. } | Self::Migrate { source, .. } | Self::Sql(source) => {
                matches!(source.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
            }
            Self::Newer { .. }
            | Self::Commit(_)
            | Self::Stopped
            | Self::Missing(_)
            | Self::Unreachable { .. }
            | Self::Make { .. }
            | Self::Copy { .. }
            | Self::Damaged { .. }
            | Self::Lost(_)
            | Self::Foreign(_)
            | Self::Query(_) => false,
        }
    }
}
