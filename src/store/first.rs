//! The first database of a state folder: whole, or not there.
//!
//! SQLite makes a file without a byte and fills it later. What a crash leaves of that looks like a
//! history that somebody has lost, and would be filled again without a word. So the database is
//! made under another name and gets its own when its schema is in it: an empty file of that name
//! is never our beginning.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::writer;

/// The smallest page that SQLite knows; ours are larger.
const PAGE_BYTES_MIN: u64 = 512;

/// Makes the database at `path` if there is none. Whoever calls this holds the state folder.
pub(super) fn make_if_missing(path: &Path) -> Result<(), StoreError> {
    match path.symlink_metadata() {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(source) => return Err(StoreError::Unreachable { path: path.to_owned(), source }),
    }
    // SQLite would play the log of the lost database into the new one.
    if beside(path, "-wal").metadata().is_ok_and(|log| log.len() > 0) {
        return Err(StoreError::Lost(path.to_owned()));
    }
    let failed = |source| StoreError::Make { path: path.to_owned(), source };
    let unfinished = beside(path, ".new");
    remove_all_of(&unfinished).map_err(failed)?;
    // Closing it folds the write-ahead log into the file, which is then all there is.
    writer::set_up(&unfinished)?
        .close()
        .map_err(|(_, source)| StoreError::Open { path: unfinished.clone(), source })?;
    fs::rename(&unfinished, path).and_then(|()| sync_folder_of(path)).map_err(failed)
}

/// Refuses a file that is empty or ends within its first page: SQLite would begin a new database
/// in it, or fill it from its log.
pub(super) fn refuse_beginning(path: &Path) -> Result<(), StoreError> {
    match path.metadata() {
        Ok(file) if file.is_file() && file.len() < PAGE_BYTES_MIN => {
            Err(StoreError::Lost(path.to_owned()))
        }
        // Whatever else is wrong with it is told by who opens it.
        _ => Ok(()),
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// A database and its companions.
fn remove_all_of(path: &Path) -> io::Result<()> {
    for end in ["", "-wal", "-shm", "-journal"] {
        match fs::remove_file(beside(path, end)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// A new name is on the disk when its folder is.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
