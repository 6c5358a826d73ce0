//! What the host found when it looked at a run that says it has succeeded.

use std::path::PathBuf;

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The checks.
    pub checks: Vec<CheckResult>,
    /// The files that are kept.
    pub artifacts: Vec<Artifact>,
}

/// A file that is kept of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Relative to the run's working directory.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// One check of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// What it is called.
    pub name: String,
    /// Whether it is as it has to be.
    pub passed: bool,
    /// If not: what was expected, and what was found.
    pub detail: Option<String>,
}
