//! Notices that files have changed.
//!
//! Folders are watched, not files: editors write beside a file and rename over it. What happens
//! within [`QUIET`] of each other is one change, so that a half-written set is not taken over.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};

use super::dispatcher::Scheduling;
use crate::clock::{Clock, Deadline};
use crate::config::{Config, Reload};

/// The contract: changes are taken as one set after this long without another one.
const QUIET: Duration = Duration::from_secs(2);

/// A name is at most 255 bytes; this holds a dozen of the longest, or a hundred usual ones.
const EVENT_BYTES_MAX: usize = 4096;

/// The watch, as long as this lives.
pub(super) struct FileWatch {
    /// `None`: nobody watches.
    watching: Option<Watching>,
    quiet_from: Option<Deadline>,
    clock: Arc<dyn Clock>,
}

struct Watching {
    events: EventStream<Vec<u8>>,
    folders: HashMap<WatchDescriptor, PathBuf>,
    watched: Watched,
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
        let mut watch = Self { watching: None, quiet_from: None, clock: Arc::clone(clock) };
        watch.renew(config, scheduling);
        watch
    }

    /// Watches anew: a folder may have been replaced, or other files be meant. What has happened
    /// and was not looked at yet is not forgotten.
    pub(super) fn renew(&mut self, config: &Config, scheduling: Scheduling) {
        if scheduling == Scheduling::Off || config.scheduler.reload != Reload::Watch {
            self.watching = None;
            return;
        }
        let renewed = match &mut self.watching {
            Some(watching) => watching.renew(config),
            None => Watching::start(config).map(|watching| self.watching = Some(watching)),
        };
        if let Err(error) = renewed {
            tracing::warn!(%error, "cannot watch the files; `punctual reload` reads them");
        }
    }

    /// Returns when files have changed and been quiet since. Nothing is lost if the future is
    /// dropped.
    pub(super) async fn changed(&mut self) {
        let Some(watching) = &mut self.watching else { return std::future::pending().await };
        loop {
            let quiet = self.quiet_from.unwrap_or(Deadline::NEVER);
            tokio::select! {
                matters = watching.next_matters() => {
                    if matters {
                        self.quiet_from = Some(Deadline::after(self.clock.monotonic(), QUIET));
                    }
                }
                () = quiet.wait() => {
                    self.quiet_from = None;
                    return;
                }
            }
        }
    }
}

impl Watching {
    fn start(config: &Config) -> std::io::Result<Self> {
        let events = Inotify::init()?.into_event_stream(vec![0; EVENT_BYTES_MAX])?;
        let mut watching =
            Self { events, folders: HashMap::new(), watched: Watched::files_of(config) };
        watching.renew(config)?;
        Ok(watching)
    }

    /// A folder that is watched already stays as it is.
    fn renew(&mut self, config: &Config) -> std::io::Result<()> {
        self.watched = Watched::files_of(config);
        // Reading is no change, so it is not asked for.
        let mask = WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::MODIFY
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVE
            | WatchMask::ATTRIB;
        for folder in self.watched.folders() {
            let watch = self.events.watches().add(&folder, mask)?;
            self.folders.insert(watch, folder);
        }
        Ok(())
    }

    /// Whether the next thing that happens changes something that matters.
    async fn next_matters(&mut self) -> bool {
        match self.events.next().await {
            // More has happened than the system keeps: it may have been anything.
            Some(Ok(event)) if event.mask.contains(EventMask::Q_OVERFLOW) => true,
            Some(Ok(event)) => {
                let folder = self.folders.get(&event.wd);
                folder
                    .zip(event.name)
                    .is_some_and(|(folder, name)| self.watched.matters(&folder.join(name)))
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "lost sight of the files; `punctual reload` reads them");
                std::future::pending().await
            }
            None => std::future::pending().await,
        }
    }
}

impl Watched {
    fn files_of(config: &Config) -> Self {
        Self { files: config.watched_files(), jobs_dir: config.jobs_dir.clone() }
    }

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
