//! The name of a job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A job's id: the stem of its file, `^[a-z0-9][a-z0-9_-]{0,63}$`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct JobId(std::sync::Arc<str>);

impl JobId {
    /// The longest id, in characters.
    pub const MAX_LENGTH: usize = 64;

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut chars = text.chars();
        let starts_well =
            chars.next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let goes_on_well =
            chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-');
        if starts_well && goes_on_well && text.len() <= Self::MAX_LENGTH {
            Ok(Self(text.into()))
        } else {
            Err(format!(
                "`{text}` cannot be a job's id: 1 to {} of a-z, 0-9, `_` and `-`, beginning with \
                 a letter or digit",
                Self::MAX_LENGTH
            ))
        }
    }
}

impl TryFrom<String> for JobId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_what_a_file_system_and_a_shell_can_bear() {
        for good in ["a", "0", "daily-report", "a_b-c9", &"x".repeat(64)] {
            assert_eq!(good.parse::<JobId>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "_a", "A", "a b", "a.b", "ä", "a/b", "..", &"x".repeat(65)] {
            assert!(bad.parse::<JobId>().is_err(), "{bad:?}");
        }
    }
}
