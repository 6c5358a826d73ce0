//! Files that a run makes and that are kept: found with the checks, copied before the workspace is
//! tidied.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::checks::CLOCK_STEP;
use crate::job::ArtifactPattern;
use crate::run::Artifact;

/// The most files that are kept of a run.
const FILES_MAX: usize = 100;

/// The most that they may take together.
const BYTES_MAX: u64 = 100 * 1024 * 1024;

/// Entries of a working directory that are looked at: a job may work in a large tree.
const ENTRIES_MAX: usize = 200_000;

/// Where what is kept of a run is.
pub(super) fn folder(state_dir: &Path, run_id: &str) -> PathBuf {
    state_dir.join("artifacts").join(run_id)
}

/// The files below `workdir` that `pattern` names and that were written since `since`. Links are
/// not followed.
pub(super) fn find(
    workdir: &Path,
    pattern: &ArtifactPattern,
    since: Timestamp,
) -> Result<Vec<Artifact>, String> {
    let mut walk = ignore::WalkBuilder::new(workdir);
    walk.standard_filters(false).follow_links(false);
    let mut found = Vec::new();
    for entry in walk.build().flatten().take(ENTRIES_MAX) {
        let Ok(path) = entry.path().strip_prefix(workdir) else { continue };
        if !entry.file_type().is_some_and(|it| it.is_file()) || !pattern.matches(path) {
            continue;
        }
        let Ok(file) = entry.metadata() else { continue };
        let written = file.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
        if written.is_some_and(|at| at + CLOCK_STEP >= since) {
            found.push(Artifact { path: path.to_owned(), bytes: file.len() });
        }
    }
    if found.is_empty() {
        return Err(format!("no file `{pattern}` was written"));
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Why so many files are too many, if they are.
pub(super) fn too_many(files: &[Artifact]) -> Option<String> {
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    if files.len() > FILES_MAX {
        return Some(format!("{} files are to be kept, at most {FILES_MAX} are", files.len()));
    }
    let most = BYTES_MAX / (1024 * 1024);
    (bytes > BYTES_MAX).then(|| format!("{bytes} bytes are to be kept, at most {most} MiB are"))
}

/// Copies them out of `workdir`.
pub(super) fn keep(workdir: &Path, files: &[Artifact], to: &Path) -> io::Result<()> {
    for file in files {
        let (from, to) = (workdir.join(&file.path), to.join(&file.path));
        let folder = to.parent().unwrap_or(&to);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        fs::copy(from, &to)?;
        fs::File::open(&to)?.sync_all()?;
    }
    Ok(())
}
