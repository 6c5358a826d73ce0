//! What the host found when it looked at a run that says it has succeeded.

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
