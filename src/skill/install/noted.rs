//! Where an installed skill came from, noted beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::job::{FILE_BYTES_MAX, read_text};

/// Where an installed skill came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// As [`super::Source`] reads it.
    pub source: String,
    /// Its branch or tag, of a repository.
    pub reference: Option<String>,
    /// Where in it the skill is.
    pub path: Option<String>,
    /// What was installed.
    pub digest: String,
    /// When.
    pub installed_at: String,
}

fn file(installed: &Path, name: &str) -> PathBuf {
    installed.join(".sources").join(format!("{name}.json"))
}

impl Noted {
    /// What is noted of a skill; `None`: nothing that can be read.
    pub fn read(installed: &Path, name: &str) -> Option<Self> {
        serde_json::from_str(&read_text(&file(installed, name), FILE_BYTES_MAX).ok()?).ok()
    }

    pub(super) fn write(&self, installed: &Path, name: &str) -> io::Result<()> {
        let file = file(installed, name);
        fs::create_dir_all(file.parent().unwrap_or(installed))?;
        let beside = file.with_extension("tmp");
        fs::write(&beside, serde_json::to_string_pretty(self)?)?;
        fs::rename(beside, file)
    }

    pub(super) fn forget(installed: &Path, name: &str) -> io::Result<()> {
        match fs::remove_file(file(installed, name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}
