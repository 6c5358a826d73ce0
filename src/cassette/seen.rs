//! What a run's checks saw of the world.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A file below the working directory, after the turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenFile {
    /// Relative to the working directory.
    pub path: String,
    /// Its size; none if there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether it was written since the run started.
    pub fresh: bool,
}

impl SeenFile {
    /// What was seen at `path`, relative to the working directory.
    pub fn new(path: &Path, bytes: Option<u64>, fresh: bool) -> Self {
        // `./a` and `a` are one file.
        let path: PathBuf = path.components().filter(|it| *it != Component::CurDir).collect();
        Self { path: path.to_string_lossy().into_owned(), bytes, fresh }
    }
}

/// The command of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenCommand {
    /// The command.
    pub argv: Vec<String>,
    /// What was wrong; none: it exited with zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complaint: Option<String>,
}
