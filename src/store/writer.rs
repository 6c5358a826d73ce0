//! One thread that writes, and groups what waits into one commit.
//!
//! A durable commit costs a sync of the disk whatever is in it. So the thread takes everything
//! that waits (up to [`GROUP_MAX`]), runs each request in a savepoint of its own inside one
//! transaction, commits once, and only then answers: alone a request costs one sync, a thousand
//! at once cost a handful. A request that fails undoes itself and nobody else.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::{mpsc, oneshot};

use super::error::StoreError;
use super::migrate;
use crate::clock::{Clock as _, SystemClock};

/// Requests in one commit. More would lengthen the wait of the first without saving syncs that
/// matter: at this size a sync is already shared by hundreds of rows.
const GROUP_MAX: usize = 256;

/// Requests that may wait; beyond this the callers wait, so that memory stays bounded.
const QUEUE_MAX: usize = 4096;

/// How long SQLite itself waits for another process's lock before the thread asks again.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How soon an opening that met a lock is tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(20);

type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
type Work = Box<dyn FnOnce(&Connection) -> Answer + Send>;

enum Request {
    InTransaction(Work),
    Outside(Work),
}

/// A handle on the writing thread; the thread ends with its last handle.
#[derive(Debug, Clone)]
pub(super) struct Writer(Arc<mpsc::Sender<Request>>);

impl Writer {
    /// Starts the thread on `db`.
    pub(super) fn start(db: Connection) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || write_until_closed(&db, receiver))
            .expect("a thread can be started while the process sets itself up");
        Self(Arc::new(sender))
    }

    /// Runs `work` in a transaction; when this returns `Ok`, it is on the disk.
    pub(super) async fn transaction<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let receipt = self.submit_transaction(work).await?;
        receipt.await.map_err(|_| StoreError::Stopped)?
    }

    /// The same in two steps: when this returns, its place in the order of writing is fixed; the
    /// receipt says when it is on the disk.
    pub(super) async fn submit_transaction<T, F>(
        &self,
        work: F,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.submit(Request::InTransaction(in_savepoint(work, sender))).await?;
        Ok(receiver)
    }

    /// Queues `work` for the next transaction and does not wait for the disk. What is queued
    /// later is written later; a failure is logged as one of `what`.
    pub(super) async fn enqueue<F>(&self, what: &'static str, work: F) -> Result<(), StoreError>
    where
        F: FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static,
    {
        self.submit(Request::InTransaction(unanswered(what, work))).await
    }

    /// The same if there is room for it; else it is lost. Never waits.
    pub(super) fn offer<F>(&self, what: &'static str, work: F)
    where
        F: FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static,
    {
        if self.0.try_send(Request::InTransaction(unanswered(what, work))).is_err() {
            tracing::debug!(what, "not stored: too much waits for the ledger");
        }
    }

    /// Runs `work` between transactions, for statements that refuse to be inside one.
    pub(super) async fn outside_transaction<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.submit(Request::Outside(Box::new(move |db| {
            let result = work(db).map_err(StoreError::from);
            Box::new(move |_| drop(sender.send(result)))
        })))
        .await?;
        receiver.await.map_err(|_| StoreError::Stopped)?
    }

    async fn submit(&self, request: Request) -> Result<(), StoreError> {
        self.0.send(request).await.map_err(|_| StoreError::Stopped)
    }
}

/// Opens the database for writing. A process that is just closing it holds it for itself for a
/// moment, and not every step of an opening waits for that by itself: the whole is tried again.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let give_up_at = SystemClock.monotonic() + BUSY_TIMEOUT;
    loop {
        match connect_once(path) {
            Err(error) if error.is_busy() && SystemClock.monotonic() < give_up_at => {
                std::thread::sleep(OPEN_AGAIN);
            }
            result => return result,
        }
    }
}

fn connect_once(path: &Path) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::Open { path: path.to_owned(), source };
    let mut db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(failed)?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    // Before anything is changed: it may be somebody else's.
    migrate::check(&db, path)?;
    private_to_the_owner(path);
    db.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    db.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    db.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    db.set_prepared_statement_cache_capacity(64);
    migrate::migrate(&mut db, path)?;
    Ok(db)
}

/// The history can hold what a model read: only its owner may look. Best effort, since a file
/// system without modes has none to set.
fn private_to_the_owner(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if let Err(error) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)) {
        tracing::warn!(path = %path.display(), %error, "could not make the database private");
    }
}

fn in_savepoint<T, F>(work: F, sender: oneshot::Sender<Result<T, StoreError>>) -> Work
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
{
    Box::new(move |db| {
        let result = savepoint(db, work);
        Box::new(move |committed| {
            let answer = match (result, committed) {
                (Ok(value), Ok(())) => Ok(value),
                (Err(error), _) => Err(StoreError::Sql(error)),
                (Ok(_), Err(error)) => Err(error),
            };
            // Nobody waits any more: the caller was cancelled, and the record stands.
            drop(sender.send(answer));
        })
    })
}

fn unanswered<F>(what: &'static str, work: F) -> Work
where
    F: FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static,
{
    Box::new(move |db| {
        let result = savepoint(db, work).map_err(StoreError::from);
        Box::new(move |committed| {
            if let Err(error) = result.and(committed) {
                tracing::error!(what, %error, "could not be stored");
            }
        })
    })
}

fn savepoint<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    db.execute_batch("SAVEPOINT request")?;
    match work(db) {
        Ok(value) => db.execute_batch("RELEASE request").map(|()| value),
        Err(error) => {
            db.execute_batch("ROLLBACK TO request; RELEASE request")?;
            Err(error)
        }
    }
}

fn write_until_closed(db: &Connection, mut requests: mpsc::Receiver<Request>) {
    while let Some(first) = requests.blocking_recv() {
        let mut group = Vec::new();
        let mut outside = Vec::new();
        let mut sort = |request| match request {
            Request::InTransaction(work) => group.push(work),
            Request::Outside(work) => outside.push(work),
        };
        sort(first);
        for _ in 1..GROUP_MAX {
            match requests.try_recv() {
                Ok(request) => sort(request),
                Err(_) => break,
            }
        }
        if !group.is_empty() {
            write_group(db, group);
        }
        for work in outside {
            work(db)(Ok(()));
        }
    }
}

fn write_group(db: &Connection, group: Vec<Work>) {
    if let Err(error) = begin(db) {
        let words = error.to_string();
        for work in group {
            // `work` is not run: its savepoint would be a transaction of its own.
            drop(work);
        }
        tracing::error!(error = words, "could not begin a transaction");
        return;
    }
    let answers: Vec<Answer> = group.into_iter().map(|work| work(db)).collect();
    let committed = db.execute_batch("COMMIT").map_err(|error| {
        tracing::error!(%error, "commit failed");
        drop(db.execute_batch("ROLLBACK"));
        error.to_string()
    });
    for answer in answers {
        answer(committed.clone().map_err(StoreError::Commit));
    }
}

/// Begins a transaction, and waits as long as another process holds the lock: a result that is
/// already known is not thrown away because somebody else is slow.
fn begin(db: &Connection) -> rusqlite::Result<()> {
    loop {
        match db.execute_batch("BEGIN IMMEDIATE") {
            Err(rusqlite::Error::SqliteFailure(failure, _))
                if matches!(failure.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) =>
            {
                tracing::warn!("the database is locked by another process, still waiting");
            }
            result => return result,
        }
    }
}
