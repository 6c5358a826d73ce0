//! One pass over the history: what is over goes, rows and files in step.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use crate::config::Retention;
use crate::executor::TEMPORARY_SUFFIX;
use crate::session::{trace_path, transcript_path};
use crate::store::{PrunedRun, Store, StoreError};

/// What a pass has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Runs, with all that belongs to them.
    pub runs: usize,
    /// Slots, or ranges of them.
    pub slots: usize,
    /// Versions of jobs.
    pub definitions: usize,
    /// Conversations that were kept.
    pub sessions: usize,
}

/// A session that is nearly old enough to go is not gone on with; only after this much more it goes.
/// So no run finds its transcript taken away.
const SESSION_GRACE: SignedDuration = SignedDuration::from_hours(1);

/// From when on a kept session that nobody has used is not gone on with.
pub(super) fn sessions_rest_before(usual: Retention, now: Timestamp) -> Option<Timestamp> {
    let age = SignedDuration::from_hours(24 * i64::from(usual.days?));
    now.checked_sub(age).ok()
}

fn sessions_end_before(usual: Retention, now: Timestamp) -> Option<Timestamp> {
    sessions_rest_before(usual, now)?.checked_sub(SESSION_GRACE).ok()
}

/// Removes what is beyond `usual`, or beyond what a job says for itself, and the files that an
/// earlier pass did not come to. Each step is small: what runs meanwhile does not notice.
pub async fn prune(
    store: &Store,
    state_dir: &Path,
    usual: Retention,
    now: Timestamp,
) -> Result<Pruned, StoreError> {
    finish_what_was_begun(store, state_dir).await?;
    let reading = store.clone();
    let overdue = read(move || reading.reader()?.overdue(usual, now)).await?;
    let mut pruned = Pruned::default();
    for overdue in overdue {
        loop {
            let runs = store.prune_runs(&overdue).await?;
            if runs.is_empty() {
                break;
            }
            pruned.runs += runs.len();
            remove_files(store, state_dir, runs).await?;
        }
        loop {
            let slots = store.prune_slots(&overdue).await?;
            if slots == 0 {
                break;
            }
            pruned.slots += slots;
        }
        pruned.definitions += store.prune_definitions(&overdue).await?;
    }
    if let Some(before) = sessions_end_before(usual, now) {
        loop {
            let sessions = store.prune_sessions(before).await?;
            if sessions.is_empty() {
                break;
            }
            pruned.sessions += sessions.len();
            remove_files(store, state_dir, sessions).await?;
        }
    }
    store.shrink().await?;
    Ok(pruned)
}

/// The files of runs whose rows went when the process died, or the disk refused.
async fn finish_what_was_begun(store: &Store, state_dir: &Path) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let (reading, from) = (store.clone(), after);
        let runs = read(move || reading.reader()?.pruned_runs(&from)).await?;
        let Some(last) = runs.last() else { return Ok(()) };
        after = last.run_id.clone();
        remove_files(store, state_dir, runs).await?;
    }
}

/// What cannot be removed now stays noted for the next pass.
async fn remove_files(
    store: &Store,
    state_dir: &Path,
    runs: Vec<PrunedRun>,
) -> Result<(), StoreError> {
    let state_dir = state_dir.to_owned();
    let removing = move || {
        let is_gone = |run: &PrunedRun| files_of(&state_dir, run).iter().all(|path| remove(path));
        Ok(runs.into_iter().filter(is_gone).collect())
    };
    let gone = read(removing).await?;
    store.forget_pruned(gone).await
}

fn files_of(state_dir: &Path, run: &PrunedRun) -> Vec<PathBuf> {
    let of_run = |folder: &str| state_dir.join(folder).join(&run.run_id);
    let temporary = format!("{}{TEMPORARY_SUFFIX}", run.run_id);
    let temporary = state_dir.join("workspaces").join(temporary);
    let trace = trace_path(state_dir, &run.run_id);
    let mut files = vec![of_run("workspaces"), temporary, of_run("artifacts"), trace];
    if let Some(session) = &run.session_id {
        let transcript = transcript_path(state_dir, session);
        files.extend([transcript.with_extension("lock"), transcript]);
    }
    files
}

/// Whether it is gone.
fn remove(path: &Path) -> bool {
    let removed = match path.symlink_metadata() {
        Ok(it) if it.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => {
            let path = path.display();
            tracing::warn!(%path, %error, "could not remove what a pruned run had left");
            false
        }
    }
}

/// Away from the runtime: a slow disk holds up nobody else.
async fn read<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Stopped)?
}
