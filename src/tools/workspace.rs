//! The folder that file tools see, and the way into it.
//!
//! Every path goes through one directory descriptor that refuses to be left, by `..` or by a
//! symbolic link; there is no check of a name first and use of it later. Paths that a run must
//! never write, even inside its folder, are compared with where the opened folder really is.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read as _, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt, ReadDir};
use nix::fcntl::OFlag;

use super::tool::Refusal;

/// A folder with no way out.
#[derive(Debug)]
pub struct Workspace {
    dir: Dir,
    /// As it was named.
    named: PathBuf,
    /// Without symbolic links.
    real: PathBuf,
    protected: Vec<PathBuf>,
    /// Folders elsewhere that may be read all the same, each with where it is.
    beside: Vec<(PathBuf, Dir)>,
    hidden: Vec<PathBuf>,
}

impl Workspace {
    /// Opens the folder at `path`. What is at or below one of `protected` cannot be written:
    /// the folders of jobs and state, and the configuration.
    pub fn open(path: &Path, protected: &[PathBuf]) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        let named = std::path::absolute(path)?;
        let protected =
            protected.iter().map(|path| without_links(path)).collect::<io::Result<_>>()?;
        let (real, beside, hidden) = (real_path(&dir)?, Vec::new(), Vec::new());
        Ok(Self { dir, named, real, protected, beside, hidden })
    }

    /// The same with folders elsewhere that can be read, but not written, by their absolute paths.
    pub fn reading(mut self, folders: &[PathBuf]) -> io::Result<Self> {
        for folder in folders {
            let dir = Dir::open_ambient_dir(folder, ambient_authority())?;
            self.beside.push((real_path(&dir)?, dir));
        }
        Ok(self)
    }

    /// Those folders.
    pub fn readable(&self) -> impl Iterator<Item = &Path> {
        self.beside.iter().map(|(path, _)| path.as_path())
    }

    /// The same folder, in which what is at or below one of `hidden` cannot be looked at.
    pub fn hiding(mut self, hidden: &[PathBuf]) -> io::Result<Self> {
        self.hidden = hidden.iter().map(|path| without_links(path)).collect::<io::Result<_>>()?;
        Ok(self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.real
    }

    /// `path` relative to the folder. An absolute one is accepted if it begins with it.
    fn relative(&self, path: &str) -> Result<PathBuf, Refusal> {
        let path = Path::new(path);
        let inside = if path.is_absolute() {
            let stripped =
                path.strip_prefix(&self.real).or_else(|_| path.strip_prefix(&self.named));
            stripped.map_err(|_| outside(path))?
        } else {
            path
        };
        let kept = inside.components().filter(|part| *part != Component::CurDir);
        let kept: PathBuf = kept.collect();
        Ok(if kept.as_os_str().is_empty() { ".".into() } else { kept })
    }

    /// The folder that is read for `path`, and the path in it.
    fn place_to_read(&self, path: &str) -> Result<(&Dir, PathBuf), Refusal> {
        let beside = self.beside.iter().find_map(|(real, dir)| {
            let rest = Path::new(path).strip_prefix(real).ok()?;
            Some((dir, if rest.as_os_str().is_empty() { Path::new(".") } else { rest }))
        });
        match beside {
            Some((dir, rest)) => Ok((dir, rest.to_owned())),
            None => Ok((&self.dir, self.relative(path)?)),
        }
    }

    /// `path` relative to the folder, with its symbolic links resolved; it must exist.
    pub(super) fn resolve(&self, path: &str) -> Result<PathBuf, Refusal> {
        let relative = self.relative(path)?;
        let real = self.dir.canonicalize(&relative).map_err(|error| refused(path, &error))?;
        Ok(if real.as_os_str().is_empty() { ".".into() } else { real })
    }

    /// Opens a regular file to read it. A pipe or a device would block or have no end.
    pub(super) fn open_file(&self, path: &str) -> Result<File, Refusal> {
        let (dir, relative) = self.place_to_read(path)?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let opened = dir.open_with(&relative, &options);
        let file = opened.map_err(|error| refused(path, &error))?;
        self.check_visible(path, &file)?;
        let kind = file.metadata().map_err(|error| refused(path, &error))?;
        if kind.is_dir() {
            return Err(Refusal::Failed(format!("`{path}` is a folder; `list` shows it")));
        }
        if !kind.is_file() {
            return Err(Refusal::Failed(format!("`{path}` is not a regular file")));
        }
        Ok(file)
    }

    /// As much of the file `name` as fits into `bytes_max`, and how long it is; `None` if there is
    /// none, and in words why it cannot be read.
    pub fn read_beginning(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<(Vec<u8>, u64)>, String> {
        let file = match self.open_file(name) {
            Ok(file) => file,
            Err(_) if self.dir.symlink_metadata(name).is_err() => return Ok(None),
            Err(Refusal::Denied(why) | Refusal::Failed(why)) => return Err(why),
        };
        let size = file.metadata().map_err(|error| error.to_string())?.len();
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        let size = size.max(bytes.len() as u64);
        Ok(Some((bytes, size)))
    }

    /// The entries of a folder.
    pub(super) fn read_dir(&self, path: &str) -> Result<ReadDir, Refusal> {
        let (dir, relative) = self.place_to_read(path)?;
        let folder = dir.open_dir(&relative).map_err(|error| refused(path, &error))?;
        self.check_visible(path, &folder)?;
        folder.entries().map_err(|error| refused(path, &error))
    }

    /// Writes `content` to `path` so that a reader sees the old file or the new one, never half of
    /// it, and makes the folders on the way.
    pub(super) fn replace(&self, path: &str, content: &[u8]) -> Result<(), Refusal> {
        let place = self.place(path)?;
        place.replace(content).map_err(|error| refused(path, &error))
    }

    /// Where `path` is to be written, checked and with its folders made.
    fn place(&self, path: &str) -> Result<Place, Refusal> {
        let relative = match self.resolve(path) {
            Ok(existing) => existing,
            // What does not exist yet has nothing to resolve; where it leads out, opening its
            // folder says so.
            Err(Refusal::Failed(_)) => self.relative(path)?,
            Err(denied) => return Err(denied),
        };
        let not_a_file = || Refusal::Failed(format!("`{path}` does not name a file"));
        let name = relative.file_name().ok_or_else(not_a_file)?.to_owned();
        let parts: Vec<Component<'_>> =
            relative.parent().into_iter().flat_map(Path::components).collect();
        let failed = |error: io::Error| refused(path, &error);
        let (folder, missing) = self.deepest(&parts).map_err(failed)?;
        if missing.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(Refusal::Failed(format!(
                "`{path}` goes back out of a folder that is not there"
            )));
        }
        self.check_writable(path, &folder, &missing.join(&name))?;
        if missing.as_os_str().is_empty() {
            return Ok(Place { folder, name });
        }
        folder.create_dir_all(&missing).map_err(failed)?;
        let folder = folder.open_dir(&missing).map_err(failed)?;
        // Again, in case a command put something else there meanwhile.
        self.check_writable(path, &folder, Path::new(&name))?;
        Ok(Place { folder, name })
    }

    /// The deepest folder on the way that exists, and the rest of the way.
    fn deepest(&self, parts: &[Component<'_>]) -> io::Result<(Dir, PathBuf)> {
        for depth in (1..=parts.len()).rev() {
            match self.dir.open_dir(parts[..depth].iter().collect::<PathBuf>()) {
                Ok(folder) => return Ok((folder, parts[depth..].iter().collect())),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok((self.dir.try_clone()?, parts.iter().collect()))
    }

    fn check_visible(&self, path: &str, opened: &impl AsFd) -> Result<(), Refusal> {
        if self.hidden.is_empty() {
            return Ok(());
        }
        let place = real_path(opened).map_err(|error| refused(path, &error))?;
        if self.hidden.iter().any(|hidden| place.starts_with(hidden)) {
            let text = format!("`{path}` belongs to the scheduler; a run cannot look at it");
            return Err(Refusal::Denied(text));
        }
        Ok(())
    }

    fn check_writable(&self, path: &str, folder: &Dir, rest: &Path) -> Result<(), Refusal> {
        let target = real_path(folder).map_err(|error| refused(path, &error))?.join(rest);
        if self.protected.iter().any(|protected| target.starts_with(protected)) {
            let text = format!("`{path}` belongs to the scheduler; a run cannot change it");
            return Err(Refusal::Denied(text));
        }
        Ok(())
    }
}

/// A name in an open folder.
struct Place {
    folder: Dir,
    name: OsString,
}

impl Place {
    fn replace(&self, content: &[u8]) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let before = match self.folder.symlink_metadata(&self.name) {
            Ok(before) if before.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Ok(before) if before.is_file() => Some(before.permissions()),
            Ok(before) if before.is_symlink() => None,
            Ok(_) => return Err(io::Error::other("it is not a regular file")),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".punctual-{}-{number}.tmp", std::process::id());
        let write = || {
            let options = OpenOptions::new().write(true).create_new(true).clone();
            let mut file = self.folder.open_with(&temporary, &options)?;
            file.write_all(content)?;
            if let Some(permissions) = before {
                file.set_permissions(permissions)?;
            }
            file.sync_all()?;
            self.folder.rename(&temporary, &self.folder, &self.name)
        };
        write().inspect_err(|_| {
            // It is hidden and small; the first error is the one to tell.
            let _ = self.folder.remove_file(&temporary);
        })
    }
}

/// Where an open file or folder is now, whatever it was called when it was opened.
fn real_path(dir: &impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()))
}

/// The path without symbolic links, as far as it exists.
pub(crate) fn without_links(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    for known in path.ancestors() {
        if let Ok(real) = known.canonicalize() {
            let rest = path.strip_prefix(known).unwrap_or(Path::new(""));
            return Ok(if rest == OsStr::new("") { real } else { real.join(rest) });
        }
    }
    Ok(path)
}

fn outside(path: &Path) -> Refusal {
    Refusal::Denied(format!("`{}` is outside the workspace", path.display()))
}

/// The system's refusal in words for the model. One that is not the system's own says that the
/// path leads out.
fn refused(path: &str, error: &io::Error) -> Refusal {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::PermissionDenied, None) => outside(Path::new(path)),
        (ErrorKind::NotFound, _) => Refusal::Failed(format!("there is no `{path}`")),
        _ => Refusal::Failed(format!("`{path}`: {error}")),
    }
}
