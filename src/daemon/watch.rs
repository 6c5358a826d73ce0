//! Notices that files have changed.
//!
//! Folders are watched, not files: editors write beside a file and rename over it. What happens
//! within [`QUIET`] of each other is one change, so that a half-written set is not taken over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use super::dispatcher::Scheduling;
use crate::clock::{Clock, Deadline};
use crate::config::{Config, Reload};

/// The contract: changes are taken as one set after this long without another one.
const QUIET: Duration = Duration::from_secs(2);

/// The watch, as long as this lives.
pub(super) struct FileWatch {
    /// Changes that matter; one that has not been taken stands for those after it.
    changes: mpsc::Receiver<()>,
    sender: mpsc::Sender<()>,
    quiet_from: Option<Deadline>,
    clock: Arc<dyn Clock>,
    /// The present one, and the one before it: what that has noticed and not told yet would go
    /// with it.
    watchers: Vec<notify::RecommendedWatcher>,
}

/// What belongs to the configuration.
struct Watched {
    files: Vec<PathBuf>,
    jobs_dir: PathBuf,
}

impl FileWatch {
    /// Watches the files of `config`, if it says so. A watch that the system refuses is a word in
    /// the log, not an end: `reload` goes on working.
    pub(super) fn start(config: &Config, scheduling: Scheduling, clock: &Arc<dyn Clock>) -> Self {
        let (sender, changes) = mpsc::channel(1);
        let watchers = watcher(config, scheduling, &sender).into_iter().collect();
        Self { changes, sender, quiet_from: None, clock: Arc::clone(clock), watchers }
    }

    /// Watches anew: a folder may have been replaced, or other files be meant. A change that was
    /// noticed and not taken yet is not forgotten.
    pub(super) fn renew(&mut self, config: &Config, scheduling: Scheduling) {
        match watcher(config, scheduling, &self.sender) {
            Some(watcher) => {
                self.watchers.drain(..self.watchers.len().saturating_sub(1));
                self.watchers.push(watcher);
            }
            None => self.watchers.clear(),
        }
    }

    /// Returns when files have changed and been quiet since. Nothing is lost if the future is
    /// dropped.
    pub(super) async fn changed(&mut self) {
        loop {
            let quiet = self.quiet_from.unwrap_or(Deadline::NEVER);
            tokio::select! {
                change = self.changes.recv() => match change {
                    Some(()) => {
                        self.quiet_from = Some(Deadline::after(self.clock.monotonic(), QUIET));
                    }
                    None => unreachable!("this holds a sender of its own"),
                },
                () = quiet.wait() => {
                    self.quiet_from = None;
                    return;
                }
            }
        }
    }
}

fn watcher(
    config: &Config,
    scheduling: Scheduling,
    changes: &mpsc::Sender<()>,
) -> Option<notify::RecommendedWatcher> {
    if scheduling == Scheduling::Off || config.scheduler.reload != Reload::Watch {
        return None;
    }
    let refused = |error: &notify::Error| {
        tracing::warn!(%error, "cannot watch the files; `punctual reload` reads them");
    };
    watch(config, changes.clone()).inspect_err(refused).ok()
}

fn watch(config: &Config, changes: mpsc::Sender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let watched = Watched { files: config.watched_files(), jobs_dir: config.jobs_dir.clone() };
    let folders = watched.folders();
    let mut inotify = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // What cannot be told may have been anything.
        if event.map_or(true, |event| watched.is_changed_by(&event)) {
            // Full: a change waits already, and is taken with this one.
            let _ = changes.try_send(());
        }
    })?;
    for folder in folders {
        inotify.watch(&folder, RecursiveMode::NonRecursive)?;
    }
    Ok(inotify)
}

impl Watched {
    /// The folder of each file; and the one above the jobs', where a folder is replaced as a whole.
    fn folders(&self) -> Vec<PathBuf> {
        let of_files = self.files.iter().filter_map(|file| file.parent());
        let above = self.jobs_dir.parent();
        let mut folders: Vec<_> =
            of_files.chain(above).chain([&*self.jobs_dir]).map(Path::to_owned).collect();
        folders.sort_unstable();
        folders.dedup();
        folders.retain(|folder| folder.is_dir());
        folders
    }

    fn is_changed_by(&self, event: &notify::Event) -> bool {
        match event.kind {
            // Reading them is no change.
            EventKind::Access(_) => false,
            EventKind::Any
            | EventKind::Create(_)
            | EventKind::Modify(_)
            | EventKind::Remove(_)
            | EventKind::Other => event.paths.iter().any(|path| self.matters(path)),
        }
    }

    fn matters(&self, path: &Path) -> bool {
        if path == self.jobs_dir || self.files.iter().any(|file| file == path) {
            return true;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // `..data` is how a mounted set of files is replaced in one step.
        let is_job = name.ends_with(".toml") && !name.starts_with('.') || name.starts_with("..");
        is_job && path.parent() == Some(&*self.jobs_dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::config::{Sources, load};
    use crate::job::Environment;

    #[tokio::test]
    async fn a_change_just_before_the_watch_is_renewed_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("jobs")).unwrap();
        std::fs::write(dir.path().join("config.toml"), "").unwrap();
        let sources = Sources {
            config_paths: vec![dir.path().join("config.toml")],
            state_dir: None,
            environment: Environment::fixed([]),
            current_dir: dir.path().to_owned(),
        };
        let config = load(&sources).unwrap().0;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut watch = FileWatch::start(&config, Scheduling::On, &clock);
        std::fs::write(dir.path().join("jobs/new.toml"), "").unwrap();
        watch.renew(&config, Scheduling::On);
        let changed = tokio::time::timeout(Duration::from_secs(30), watch.changed()).await;
        assert_eq!(changed, Ok(()));
    }
}
