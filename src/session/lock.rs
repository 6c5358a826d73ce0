//! The lock beside a transcript: one writer at a time, whatever process it is in.
//!
//! A kernel lock, because it dies with its holder and with nobody else: a killed owner is
//! reclaimed at once, a stopped one keeps it, and neither an age nor a pid that was used again
//! tells anything. What stands in the file is for people only.
//!
//! The file goes when the lock does, so that a run leaves none behind. Whoever gets the lock of a
//! file that is no longer there (its holder has just removed it) has got nothing and looks again.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Deadline, rfc3339, to_millis};
use crate::process::{ProcessId, boot_id};

/// A hold of this age is reported; nobody loses the lock for it.
pub const OLD_AFTER: Duration = Duration::from_mins(30);

/// The first look at a lock that somebody has comes after this long, each further one after twice
/// as long, up to [`LOOK_EVERY`].
const LOOK_FIRST: Duration = Duration::from_millis(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The file is an owner in a few words; more is not ours.
const OWNER_BYTES_MAX: u64 = 4096;

/// How often a file may vanish between its opening and its lock.
const VANISHED_MAX: u32 = 1000;

/// Who has a lock, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockOwner {
    /// The kernel's name for the boot in which it runs.
    pub boot_id: String,
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessId,
    /// Since when it has the lock.
    #[serde(serialize_with = "crate::clock::serialize_rfc3339")]
    pub since: Timestamp,
}

/// A session's lock, held until [`SessionLock::release`], until the last of its clones by
/// [`SessionLock::allow_reentrant`] is dropped, or until the process dies.
#[derive(Debug)]
pub struct SessionLock(Arc<Hold>);

#[derive(Debug)]
struct Hold {
    file: File,
    path: PathBuf,
}

/// What a single look has found.
#[derive(Debug)]
pub enum Taken {
    /// The lock is ours.
    Ours(SessionLock),
    /// Somebody has it. Who is unknown for the instant in which it introduces itself.
    Busy(Option<LockOwner>),
}

/// How a lock was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Nobody else in this process had a hand on it.
    Free,
    /// It was taken from nested writers that still had it.
    TakenFrom {
        /// How many.
        nested: usize,
    },
}

/// A session's lock that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else has it.
    #[error("the session is in use by {}", introduce(owner.as_ref()))]
    Busy {
        /// Who.
        owner: Option<LockOwner>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Its file cannot be used.
    #[error("failed to lock the session by {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl SessionLock {
    /// Takes the lock of `transcript` as soon as it is free, at most `within` from now.
    pub async fn take(
        transcript: &Path,
        within: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, LockError> {
        let start = clock.monotonic();
        let limit = Deadline::after(start, within);
        let (mut pause, mut is_told) = (LOOK_FIRST, false);
        loop {
            let owner = match look(transcript, clock).await? {
                Taken::Ours(lock) => return Ok(lock),
                Taken::Busy(owner) => owner,
            };
            is_told = is_told || told_of_age(owner.as_ref(), transcript, clock.wall());
            let now = clock.monotonic();
            let left = limit.remaining(now).unwrap_or(Duration::MAX);
            if left.is_zero() {
                return Err(LockError::Busy { owner, waited: now - start });
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(LOOK_EVERY);
        }
    }

    /// Takes the lock of `transcript` if it is free. Two paths to one transcript are one lock.
    pub fn try_take(transcript: &Path, since: Timestamp) -> Result<Taken, LockError> {
        let path = lock_path(transcript);
        let failed = |source| LockError::Io { path: path.clone(), source };
        for _ in 0..VANISHED_MAX {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Taken::Busy(read_owner(&mut file))),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            if is_at(&file, &path) {
                introduce_ourselves(&mut file, since);
                return Ok(Taken::Ours(Self(Arc::new(Hold { file, path }))));
            }
        }
        Err(failed(std::io::Error::other("its file vanishes again and again")))
    }

    /// The same lock once more, for work inside that which has it (a compaction, a rewrite).
    /// Without this nobody gets in twice, not even the process that has it.
    #[must_use]
    pub fn allow_reentrant(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Gives the lock back, also from under the hands of those who were let in again.
    pub fn release(self) -> Released {
        let nested = Arc::strong_count(&self.0) - 1;
        self.0.give_back();
        if nested == 0 { Released::Free } else { Released::TakenFrom { nested } }
    }
}

impl Hold {
    /// Removes the file while it is still locked, so that nobody can have taken it in between.
    fn give_back(&self) {
        if is_at(&self.file, &self.path)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "could not remove a lock's file");
        }
        // Closing it does the same, but others may still have it open.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(path = %self.path.display(), %error, "could not unlock a session");
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl LockOwner {
    /// This process, from now on.
    fn this(since: Timestamp) -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        let process = ProcessId::own().unwrap_or(ProcessId { pid, start_time: 0 });
        Self { boot_id: boot_id(), process, since: to_millis(since) }
    }

    /// How long it has had the lock at `now`.
    pub fn age(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.since)).unwrap_or(Duration::ZERO)
    }
}

/// Removes the files of locks that dead processes left in `sessions`.
pub fn sweep_locks(sessions: &Path) {
    let Ok(folder) = std::fs::read_dir(sessions) else { return };
    let locks = folder.flatten().map(|entry| entry.path());
    for path in locks.filter(|path| path.extension().is_some_and(|it| it == "lock")) {
        // Taking it and letting it go removes it; whoever lives keeps it.
        drop(SessionLock::try_take(&path.with_extension("jsonl"), Timestamp::UNIX_EPOCH));
    }
}

/// The lock's file: beside the transcript itself, wherever the path that names it leads.
fn lock_path(transcript: &Path) -> PathBuf {
    let real = transcript.canonicalize().ok().or_else(|| {
        let folder = transcript.parent()?.canonicalize().ok()?;
        Some(folder.join(transcript.file_name()?))
    });
    real.as_deref().unwrap_or(transcript).with_extension("lock")
}

/// One look, away from the runtime: a slow disk holds up nobody else.
async fn look(transcript: &Path, clock: &Arc<dyn Clock>) -> Result<Taken, LockError> {
    let (path, since) = (transcript.to_owned(), clock.wall());
    let looked = tokio::task::spawn_blocking(move || SessionLock::try_take(&path, since));
    looked.await.unwrap_or_else(|error| {
        let source = std::io::Error::other(error);
        Err(LockError::Io { path: lock_path(transcript), source })
    })
}

/// Whether `path` still leads to `file`.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |it: &Metadata| (it.dev(), it.ino());
    let here = file.metadata().map(|it| id(&it));
    let there = std::fs::symlink_metadata(path).map(|it| id(&it));
    matches!((here, there), (Ok(here), Ok(there)) if here == there)
}

fn read_owner(file: &mut File) -> Option<LockOwner> {
    let mut words = String::new();
    file.take(OWNER_BYTES_MAX).read_to_string(&mut words).ok()?;
    serde_json::from_str(&words).ok()
}

/// Best effort: the lock is the kernel's, and a full disk takes it from nobody.
fn introduce_ourselves(file: &mut File, since: Timestamp) {
    let words = serde_json::to_string(&LockOwner::this(since)).expect("an owner is plain data");
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(words.as_bytes()));
    if let Err(error) = written {
        tracing::debug!(%error, "could not write who has a session's lock");
    }
}

/// Whether there was something to say about the age of a hold.
fn told_of_age(owner: Option<&LockOwner>, transcript: &Path, now: Timestamp) -> bool {
    let Some(owner) = owner.filter(|owner| owner.age(now) >= OLD_AFTER) else { return false };
    tracing::warn!(
        transcript = %transcript.display(), pid = owner.process.pid, since = %owner.since,
        "session.lock_old"
    );
    true
}

fn introduce(owner: Option<&LockOwner>) -> String {
    match owner {
        Some(owner) => format!("process {} since {}", owner.process.pid, rfc3339(owner.since)),
        None => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn noon() -> Timestamp {
        "2026-11-30T12:00:00Z".parse().unwrap()
    }

    #[track_caller]
    fn ours(taken: Result<Taken, LockError>) -> SessionLock {
        match taken.unwrap() {
            Taken::Ours(lock) => lock,
            Taken::Busy(owner) => panic!("busy: {owner:?}"),
        }
    }

    #[track_caller]
    fn busy(taken: Result<Taken, LockError>) -> Option<LockOwner> {
        match taken.unwrap() {
            Taken::Ours(_) => panic!("nobody had it"),
            Taken::Busy(owner) => owner,
        }
    }

    #[test]
    fn nobody_gets_in_twice_unless_it_is_let_in_again() {
        let dir = tempfile::tempdir().unwrap();
        let transcript = dir.path().join("s.jsonl");
        let lock = ours(SessionLock::try_take(&transcript, noon()));
        let owner = busy(SessionLock::try_take(&transcript, noon()));
        assert_eq!(owner, Some(LockOwner::this(noon())));

        let nested = lock.allow_reentrant();
        drop(lock);
        busy(SessionLock::try_take(&transcript, noon()));
        drop(nested);
        let lock = ours(SessionLock::try_take(&transcript, noon()));

        // The clean-up takes it away from whoever is still inside.
        let nested = lock.allow_reentrant();
        assert_eq!(lock.release(), Released::TakenFrom { nested: 1 });
        let lock = ours(SessionLock::try_take(&transcript, noon()));
        drop(nested);
        busy(SessionLock::try_take(&transcript, noon()));
        assert_eq!(lock.release(), Released::Free);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no file is left");
    }

    #[test]
    fn two_paths_to_one_transcript_are_one_lock() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sessions")).unwrap();
        std::os::unix::fs::symlink("sessions", dir.path().join("link")).unwrap();
        let real = dir.path().join("sessions/s.jsonl");
        let lock = ours(SessionLock::try_take(&real, noon()));
        for path in ["link/s.jsonl", "sessions/../sessions/s.jsonl", "link/../link/s.jsonl"] {
            busy(SessionLock::try_take(&dir.path().join(path), noon()));
        }
        drop(lock);
        // So is a transcript that is itself another name of one.
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("alias.jsonl")).unwrap();
        let _lock = ours(SessionLock::try_take(&dir.path().join("alias.jsonl"), noon()));
        busy(SessionLock::try_take(&real, noon()));
        drop(ours(SessionLock::try_take(&dir.path().join("sessions/other.jsonl"), noon())));
    }

    #[test]
    fn what_a_dead_owner_wrote_decides_nothing_and_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let own = ProcessId::own().unwrap();
        let owners = [
            // Dead; another process by now; alive, but without the lock.
            ProcessId { pid: i32::MAX, start_time: 7 },
            ProcessId { start_time: own.start_time + 1, ..own },
            own,
        ];
        let file = dir.path().join("s.lock");
        for process in owners {
            let owner = LockOwner { boot_id: boot_id(), process, since: noon() };
            std::fs::write(&file, serde_json::to_string(&owner).unwrap()).unwrap();
            drop(ours(SessionLock::try_take(&dir.path().join("s.jsonl"), noon())));
        }
        std::fs::write(&file, "not an owner").unwrap();
        std::fs::write(dir.path().join("s.jsonl"), "kept").unwrap();
        let held = ours(SessionLock::try_take(&dir.path().join("held.jsonl"), noon()));
        sweep_locks(dir.path());
        let names = std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["held.lock", "s.jsonl"]);
        drop(held);
    }

    #[tokio::test]
    async fn whoever_waits_gets_it_when_it_is_free_or_hears_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let transcript = dir.path().join("s.jsonl");
        let clock: Arc<dyn Clock> = Arc::new(crate::clock::SystemClock);
        let lock = ours(SessionLock::try_take(&transcript, noon()));
        let limit = Duration::from_millis(150);
        match SessionLock::take(&transcript, limit, &clock).await {
            Err(LockError::Busy { owner, waited }) => {
                assert_eq!(owner, Some(LockOwner::this(noon())));
                assert!(waited >= limit, "{waited:?}");
            }
            other => panic!("{other:?}"),
        }
        let waiting = tokio::spawn({
            let transcript = transcript.clone();
            async move { SessionLock::take(&transcript, Duration::from_secs(30), &clock).await }
        });
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(!waiting.is_finished());
        drop(lock);
        waiting.await.unwrap().unwrap();
    }

    #[test]
    fn an_old_hold_is_only_told_of() {
        let clock = ManualClock::new(noon());
        let owner = LockOwner::this(noon());
        assert!(!told_of_age(None, Path::new("s"), clock.wall()));
        clock.advance(OLD_AFTER / 2);
        assert!(!told_of_age(Some(&owner), Path::new("s"), clock.wall()));
        clock.advance(OLD_AFTER / 2);
        assert!(told_of_age(Some(&owner), Path::new("s"), clock.wall()));
        // A clock that was set back makes nobody younger than new.
        clock.step_to(noon() - Duration::from_hours(1));
        assert_eq!(owner.age(clock.wall()), Duration::ZERO);
    }
}
