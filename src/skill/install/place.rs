//! Moving a staged skill into place, in one step, and taking one away.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::{NotInstalled, Noted, Staged};

/// The folder in which skills are staged, on the disk of their place. It is one process's; what is
/// in it goes with it.
#[derive(Debug)]
pub struct Shop {
    installed: PathBuf,
    folder: PathBuf,
    /// Held as long as it is open.
    _lock: File,
}

impl Shop {
    /// Opens it; refused while another process has it open.
    pub fn open(installed: &Path) -> Result<Self, NotInstalled> {
        let failed = |error: io::Error| {
            NotInstalled::while_doing(&format!("use {}", installed.display()), &error)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(installed).map_err(failed)?;
        let lock = File::create(installed.join(".lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(NotInstalled("another process installs a skill now".to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let folder = installed.join(".staged");
        // What a process has left that was killed.
        clear(&folder).map_err(failed)?;
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        Ok(Self { installed: installed.to_owned(), folder, _lock: lock })
    }

    /// A folder for what is fetched; it is not there yet.
    pub fn fetched(&self) -> PathBuf {
        self.folder.join("fetched")
    }

    /// Where the skill is staged; not there yet either.
    pub fn staged(&self) -> PathBuf {
        self.folder.join("staged")
    }

    /// Where what hooks read is put down.
    pub fn inbox(&self) -> PathBuf {
        self.folder.clone()
    }

    /// Makes room for the next skill.
    pub fn tidy(&self) -> Result<(), NotInstalled> {
        for folder in [self.fetched(), self.staged()] {
            clear(&folder).map_err(|error| NotInstalled::while_doing("tidy up", &error))?;
        }
        Ok(())
    }

    /// Moves the skill into place: who looks sees the old one or the new one.
    pub fn place(&self, staged: &Staged, noted: &Noted) -> Result<(), NotInstalled> {
        let name = &staged.skill.name;
        let place = self.installed.join(name);
        let moved = match place.symlink_metadata() {
            Ok(_) => exchange(&staged.folder, &place),
            Err(_) => fs::rename(&staged.folder, &place),
        };
        let noted = moved.and_then(|()| noted.write(&self.installed, name));
        noted.map_err(|error| NotInstalled::while_doing(&format!("install `{name}`"), &error))
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.folder) {
            tracing::warn!(path = %self.folder.display(), %error, "could not remove a folder");
        }
    }
}

fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// What is there comes to be where the other was.
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    Ok(renameat2(AT_FDCWD, new, AT_FDCWD, old, RenameFlags::RENAME_EXCHANGE)?)
}

/// Takes the installed skill `name` away, in one step.
pub fn remove(shop: &Shop, name: &str) -> Result<(), NotInstalled> {
    let failed = |error: io::Error| NotInstalled::while_doing(&format!("remove `{name}`"), &error);
    shop.tidy()?;
    fs::rename(shop.installed.join(name), shop.staged()).map_err(failed)?;
    Noted::forget(&shop.installed, name).map_err(failed)?;
    shop.tidy()
}
