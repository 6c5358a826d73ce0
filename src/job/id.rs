//! The name of a job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A job's id: the stem of its file, `^[a-z0-9][a-z0-9_-]{0,63}$`; of a job of a matrix, followed by
/// its combination, `stem.eu.gold`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct JobId(std::sync::Arc<str>);

impl JobId {
    /// The longest stem of a file, in characters.
    pub const MAX_LENGTH: usize = 64;

    /// The longest id of a job of a matrix.
    pub const COMBINED_MAX: usize = 200;

    /// The id of the job, or the jobs, of a file.
    pub fn of_file(stem: &str) -> Result<Self, String> {
        if is_part(stem) && stem.len() <= Self::MAX_LENGTH {
            return Ok(Self(stem.into()));
        }
        Err(format!(
            "`{stem}` cannot be a job's id: 1 to {} of a-z, 0-9, `_` and `-`, beginning with \
             a letter or digit",
            Self::MAX_LENGTH
        ))
    }

    /// The id of one job of a matrix; `None` if that would be none.
    pub fn combined<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut id = self.0.to_string();
        for part in parts {
            id.push('.');
            id.push_str(part);
        }
        id.parse().ok()
    }

    /// The stem of the file that defines it.
    pub fn stem(&self) -> &str {
        self.0.split_once('.').map_or(&self.0, |(stem, _)| stem)
    }

    /// What stands in a job's place for turns that belong to none: no file can have this name.
    pub const AD_HOC: &'static str = "@agent";

    /// The id of turns that belong to no job.
    pub fn ad_hoc() -> Self {
        Self(Self::AD_HOC.into())
    }

    /// Whether it stands for turns that belong to no job.
    pub fn is_ad_hoc(&self) -> bool {
        &*self.0 == Self::AD_HOC
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((stem, parts)) = text.split_once('.') else { return Self::of_file(text) };
        let stem = Self::of_file(stem)?;
        if parts.split('.').all(is_part) && text.len() <= Self::COMBINED_MAX {
            return Ok(Self(text.into()));
        }
        Err(format!("`{text}` cannot be the id of a job of the matrix of `{stem}`"))
    }
}

/// Whether it can be one part of an id.
fn is_part(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-')
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
        for bad in ["", "-a", "_a", "A", "a b", "ä", "a/b", "..", ".a", "a.", &"x".repeat(65)] {
            assert!(bad.parse::<JobId>().is_err(), "{bad:?}");
        }
        assert!(JobId::of_file("a.b").is_err());
    }

    #[test]
    fn a_job_of_a_matrix_is_named_after_its_file_and_its_combination() {
        let stem: JobId = "report".parse().unwrap();
        let id = stem.combined(["eu", "gold"]).unwrap();
        assert_eq!((id.as_str(), id.stem()), ("report.eu.gold", "report"));
        assert_eq!(id.as_str().parse::<JobId>().unwrap(), id);
        assert_eq!(stem.stem(), "report");
        for bad in ["", "EU", "a.b/c", &"x".repeat(200)] {
            assert_eq!(stem.combined([bad]), None, "{bad:?}");
        }
    }
}
