//! One zone, and why there may be none.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::tz::TimeZone;

/// A zone and its name. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    name: Arc<str>,
    rules: TimeZone,
}

impl Zone {
    /// UTC, which is the same in every database.
    pub fn utc() -> Self {
        Self { name: "UTC".into(), rules: TimeZone::UTC }
    }

    pub(super) fn new(name: &str, rules: TimeZone) -> Self {
        Self { name: name.into(), rules }
    }

    /// Its name in the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its rules, for printing local times.
    pub fn rules(&self) -> &TimeZone {
        &self.rules
    }
}

/// Why there is no zone, or no database.
#[derive(Debug, thiserror::Error)]
pub enum ZoneError {
    /// No zone has this name.
    #[error("`{name}` is not a time zone of the database")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The nearest known name.
        nearest: Option<String>,
    },
    /// It says a zone in a form that is not a name.
    #[error("`{name}` is not the name of a time zone: {reason}")]
    NotAName {
        /// What was asked for.
        name: String,
        /// Why it is refused.
        reason: &'static str,
    },
    /// The host has none.
    #[error("no time zone database on this host (looked in {})", list(.looked_in))]
    NoDatabase {
        /// Where it was looked for.
        looked_in: Vec<PathBuf>,
    },
    /// A database was there and could not be read.
    #[error("reading the time zone database in {}", .folder.display())]
    Read {
        /// Its folder.
        folder: PathBuf,
        /// What went wrong.
        source: jiff::Error,
    },
    /// A name is in the database and its data cannot be read.
    #[error("reading the data of time zone `{name}`")]
    Data {
        /// The zone.
        name: String,
        /// What went wrong.
        source: jiff::Error,
    },
}

impl ZoneError {
    /// What to write instead, for the help line of a report.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Unknown { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`?"))
            }
            Self::Unknown { nearest: None, .. } | Self::NotAName { .. } => {
                Some("write a name such as `Europe/Berlin`, or `UTC`".to_owned())
            }
            Self::NoDatabase { .. } | Self::Read { .. } => {
                Some("`timezone_database = \"bundled\"` needs no files".to_owned())
            }
            Self::Data { .. } => None,
        }
    }
}

fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}
