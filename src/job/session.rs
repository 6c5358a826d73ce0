//! Which conversation a run belongs to.
//!
//! A key is a name for people and for queries; the transcript has the session's id. What Punctual
//! names itself has a colon in it, what a person names has none, so that neither can be the other.

use std::fmt;
use std::str::FromStr;

use super::id::JobId;

/// Of `agent` without `--session`.
const MAIN: &str = "main";

/// The key of a session: `main`, `job:daily-report`, `cron:daily-report`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(std::sync::Arc<str>);

/// Which conversation the runs of a job belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SessionChoice {
    /// A new one each.
    #[default]
    Isolated,
    /// One that is kept for the job.
    Job,
    /// One that is kept under a name, shared with whoever names it.
    Named(SessionKey),
}

impl SessionChoice {
    /// The key that runs of `job` have by it.
    pub fn key_for(&self, job: &JobId) -> SessionKey {
        match self {
            Self::Isolated => SessionKey(format!("cron:{job}").into()),
            Self::Job => SessionKey(format!("job:{job}").into()),
            Self::Named(key) => key.clone(),
        }
    }
}

impl SessionKey {
    /// The longest name, in characters.
    pub const MAX_LENGTH: usize = 64;

    /// Where messages go that name no session.
    pub fn main() -> Self {
        Self(MAIN.into())
    }

    /// A key as it was stored.
    pub fn from_stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The job whose own conversation it is.
    pub fn job(&self) -> Option<&str> {
        self.0.strip_prefix("job:")
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SessionKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_further = |c: char| is_first(c) || matches!(c, '_' | '-' | '.');
        let is_key = text.starts_with(is_first) && text.chars().all(is_further);
        if is_key && text.len() <= Self::MAX_LENGTH {
            return Ok(Self(text.into()));
        }
        Err(format!(
            "`{text}` cannot be a session's key: 1 to {} of a-z, 0-9, `_`, `-` and `.`, beginning \
             with a letter or digit",
            Self::MAX_LENGTH
        ))
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain_and_never_one_of_ours() {
        let long = "a".repeat(64);
        for name in ["main", "ops.nightly-2", "0", &long] {
            assert_eq!(name.parse::<SessionKey>().unwrap().as_str(), name);
        }
        let longer = "a".repeat(65);
        for name in ["", "Main", ".x", "-x", "a b", "job:x", "a/b", "../x", "ä", &longer] {
            assert!(name.parse::<SessionKey>().is_err(), "{name}");
        }
    }

    // Semantics §6: isolated: key `cron:<job>`; `job`: one kept per job; `session:<key>`: a named one.
    #[test]
    fn every_choice_has_its_key() {
        let job: JobId = "daily".parse().unwrap();
        let named = SessionChoice::Named("ops".parse().unwrap());
        let keys = [SessionChoice::Isolated, SessionChoice::Job, named].map(|it| it.key_for(&job));
        assert_eq!(keys.each_ref().map(SessionKey::as_str), ["cron:daily", "job:daily", "ops"]);
        assert_eq!(keys.each_ref().map(SessionKey::job), [None, Some("daily"), None]);
    }
}
