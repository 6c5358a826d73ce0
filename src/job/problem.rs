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

impl Problem {
    /// A problem about a whole file, or a folder.
    pub fn of_file(file: &std::path::Path, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: file.to_owned(),
            line: 1,
            column: 1,
            key: None,
            message: message.into(),
            help: None,
            span: 0..0,
        }
    }

    /// The same with what was expected, or what to do.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }

    /// The same as a warning.
    #[must_use]
    pub fn as_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Whether it makes what the file defines unusable.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// In the order in which a person reads: by file, then by place.
pub fn sort_problems(problems: &mut [Problem]) {
    problems.sort_by(|a, b| {
        (&a.file, a.line, a.column, &a.message).cmp(&(&b.file, b.line, b.column, &b.message))
    });
}
