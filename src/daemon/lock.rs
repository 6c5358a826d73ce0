//! One process per state folder: a kernel lock, which dies with its holder, not a pid file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What kind of process holds a state folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `punctual serve`.
    Serve,
    /// `punctual run` without a running `serve`; it goes when its run ends.
    Run,
}

/// Who holds a state folder, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// What it is.
    pub kind: Kind,
    /// Its process.
    pub pid: u32,
}

/// The lock of a state folder, held until it is dropped or the process dies.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

/// A state folder that cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it. The holder is unknown for the instant in which it introduces
    /// itself.
    #[error("the state folder {path} is in use by {}", introduce(holder.as_ref()))]
    Held {
        /// Which folder.
        path: PathBuf,
        /// By whom.
        holder: Option<Holder>,
    },
    /// The lock's file cannot be used.
    #[error("failed to lock the state folder {path}")]
    Io {
        /// Which folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = match self.kind {
            Kind::Serve => "serve",
            Kind::Run => "run",
        };
        write!(f, "`punctual {verb}` (pid {})", self.pid)
    }
}

fn introduce(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "another process".to_owned(), Holder::to_string)
}

impl StateLock {
    /// Takes the lock, or says who has it. Two paths to one folder are one lock.
    pub fn acquire(state_dir: &Path, kind: Kind) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { path: state_dir.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(state_dir.join("punctual.lock"))
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut words = String::new();
                // Whatever cannot be read is a holder that has not introduced itself.
                drop(file.read_to_string(&mut words));
                let holder = serde_json::from_str(&words).ok();
                return Err(LockError::Held { path: state_dir.to_owned(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let holder = Holder { kind, pid: std::process::id() };
        let words = serde_json::to_string(&holder).expect("a holder is plain data");
        file.set_len(0).map_err(failed)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        file.write_all(words.as_bytes()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_the_first_is_also_through_a_symlink() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let first = StateLock::acquire(dir.path(), Kind::Run).unwrap();
        match StateLock::acquire(&link, Kind::Serve) {
            Err(LockError::Held { holder: Some(holder), .. }) => {
                assert_eq!(holder, Holder { kind: Kind::Run, pid: std::process::id() });
            }
            other => panic!("{other:?}"),
        }
        drop(first);
        StateLock::acquire(&link, Kind::Serve).unwrap();
    }
}
