//! A checked copy of a skill: what may be moved into place as it is.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{BYTES_MAX, FILES_MAX, NotInstalled};
use crate::job::hex;
use crate::skill::{Shelf, Skill};

/// How deep its folders may be.
const DEPTH_MAX: usize = 16;

/// How many doubts of one kind are named.
const DOUBTS_MAX: usize = 20;

/// A checked copy of a skill.
#[derive(Debug, Clone)]
pub struct Staged {
    /// What it says of itself.
    pub skill: Skill,
    /// Where the copy is.
    pub folder: PathBuf,
    /// Its files and folders.
    pub files: usize,
    /// SHA-256 over names, kinds and contents, in hex.
    pub digest: String,
    /// What is doubtful about it, in words.
    pub doubts: Vec<String>,
}

/// Copies the skill in `from` to `to`, which is not there yet, and checks it.
pub fn stage(from: &Path, to: &Path) -> Result<Staged, NotInstalled> {
    let mut copy = Copy {
        from: from.to_owned(),
        to: to.to_owned(),
        files: 0,
        bytes: 0,
        digest: Sha256::new(),
        doubts: BTreeSet::new(),
        links: Vec::new(),
    };
    fs::create_dir(to).map_err(|error| NotInstalled::while_doing("stage the skill", &error))?;
    copy.folder(Path::new(""), 0)?;
    copy.check_links()?;
    let skill = Skill::in_folder(to, Shelf::Installed)
        .map_err(|why| NotInstalled(format!("its SKILL.md cannot be used: {why}")))?;
    let mut doubts: Vec<_> = copy.doubts.into_iter().collect();
    let more = doubts.len().saturating_sub(DOUBTS_MAX);
    doubts.truncate(DOUBTS_MAX);
    if more > 0 {
        doubts.push(format!("and {more} more such files"));
    }
    doubts.extend(skill.needs.in_words());
    let digest = hex(&copy.digest.finalize());
    Ok(Staged { skill, folder: to.to_owned(), files: copy.files, digest, doubts })
}

struct Copy {
    from: PathBuf,
    to: PathBuf,
    files: usize,
    bytes: u64,
    digest: Sha256,
    doubts: BTreeSet<String>,
    links: Vec<PathBuf>,
}

impl Copy {
    fn folder(&mut self, inner: &Path, depth: usize) -> Result<(), NotInstalled> {
        if depth > DEPTH_MAX {
            return Err(NotInstalled(format!("its folders are over {DEPTH_MAX} deep")));
        }
        let failed = |error: io::Error| failed(inner, &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(self.from.join(inner)).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
            if names.len() > FILES_MAX {
                return Err(too_many());
            }
        }
        names.sort();
        for name in names {
            // What a repository knows of itself is no part of the skill.
            if name == ".git" {
                continue;
            }
            let is_fit = name.to_str().is_some_and(|name| !name.contains(char::is_control));
            if !is_fit {
                return Err(NotInstalled("a file in it has a name that is no text".to_owned()));
            }
            self.files += 1;
            if self.files > FILES_MAX {
                return Err(too_many());
            }
            self.entry(&inner.join(name), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, depth: usize) -> Result<(), NotInstalled> {
        let kind = fs::symlink_metadata(self.from.join(path)).map_err(|it| failed(path, &it))?;
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            self.doubt(path, "is hidden");
        }
        if kind.is_dir() {
            self.note(path, "folder");
            fs::create_dir(self.to.join(path)).map_err(|it| failed(path, &it))?;
            return self.folder(path, depth + 1);
        }
        if kind.is_symlink() {
            let target = fs::read_link(self.from.join(path)).map_err(|it| failed(path, &it))?;
            if target.is_absolute() {
                return Err(leads_out(path));
            }
            self.note(path, "link");
            self.note(&target, "to");
            self.doubt(path, "is a link");
            self.links.push(path.to_owned());
            return symlink(&target, self.to.join(path)).map_err(|it| failed(path, &it));
        }
        if !kind.is_file() {
            return Err(NotInstalled(format!("`{}` is neither file nor folder", path.display())));
        }
        self.file(path, kind.permissions().mode())
    }

    fn doubt(&mut self, path: &Path, words: &str) {
        self.doubts.insert(format!("`{}` {words}", path.display()));
    }

    /// Each entry has a length before it, so that none can be taken for two.
    fn note(&mut self, path: &Path, kind: &str) {
        let path = path.as_os_str().as_encoded_bytes();
        self.digest.update((path.len() as u64).to_le_bytes());
        self.digest.update(path);
        self.digest.update(kind);
    }

    fn file(&mut self, path: &Path, mode: u32) -> Result<(), NotInstalled> {
        let can_run = mode & 0o111 != 0;
        let no_wait = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOFOLLOW;
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(no_wait.bits());
        let file = options.open(self.from.join(path)).map_err(|it| failed(path, &it))?;
        let mut bytes = Vec::new();
        let left = BYTES_MAX - self.bytes;
        file.take(left + 1).read_to_end(&mut bytes).map_err(|it| failed(path, &it))?;
        self.bytes += bytes.len() as u64;
        if self.bytes > BYTES_MAX {
            return Err(NotInstalled(format!("its files have over {BYTES_MAX} bytes")));
        }
        if can_run || bytes.starts_with(b"#!") {
            self.doubt(path, "can be executed");
        } else if bytes.contains(&0) {
            self.doubt(path, "is binary");
        }
        self.note(path, if can_run { "program" } else { "file" });
        self.digest.update((bytes.len() as u64).to_le_bytes());
        self.digest.update(&bytes);
        let mode = if can_run { 0o755 } else { 0o644 };
        let write = || {
            let mut file = File::create_new(self.to.join(path))?;
            file.write_all(&bytes)?;
            file.set_permissions(fs::Permissions::from_mode(mode))
        };
        write().map_err(|it| failed(path, &it))
    }

    /// A link may go over others: where it leads is seen once all of them are there.
    fn check_links(&self) -> Result<(), NotInstalled> {
        let root = self.to.canonicalize().map_err(|it| failed(Path::new(""), &it))?;
        for path in &self.links {
            let leads = self.to.join(path).canonicalize();
            if !leads.is_ok_and(|real| real.starts_with(&root)) {
                return Err(leads_out(path));
            }
        }
        Ok(())
    }
}

fn failed(path: &Path, error: &io::Error) -> NotInstalled {
    NotInstalled::while_doing(&format!("copy `{}`", path.display()), error)
}

fn leads_out(path: &Path) -> NotInstalled {
    NotInstalled(format!("the link `{}` leads out of the skill, or nowhere", path.display()))
}

fn too_many() -> NotInstalled {
    NotInstalled(format!("it has over {FILES_MAX} files"))
}
