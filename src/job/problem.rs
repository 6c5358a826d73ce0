//! One thing that is wrong with a file, and where.

use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// What the file defines cannot be used.
    Error,
    /// It can, but perhaps not as meant.
    Warning,
}

/// A problem in a file, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The dotted key it is about (`schedule.cron`), if it is about one.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What was expected, or the nearest known key.
    pub help: Option<String>,
    /// The bytes it is about, for the caret.
    #[serde(skip)]
    pub span: Range<usize>,
}
