//! One thread that writes, and groups what waits into one commit.
//!
//! A durable commit costs a sync of the disk whatever is in it. So the thread takes everything
//! that waits (up to [`GROUP_MAX`]), runs each request in a savepoint of its own inside one
//! transaction, commits once, and only then answers: alone a request costs one sync, a thousand
//! at once cost a handful. A request that fails undoes itself and nobody else.
//!
//! Where the disk does not take a group, those who are not patient hear of it at once. What is
//! *kept* is written with the next group, and the one after that, in its order, until the disk has
//! room again: how a run went is known only once.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::{mpsc, oneshot};

use super::error::StoreError;
use super::{first, migrate};
use crate::clock::{Clock as _, SystemClock};

/// Requests in one commit. More would lengthen the wait of the first without saving syncs that
/// matter: at this size a sync is already shared by hundreds of rows.
const GROUP_MAX: usize = 256;

/// Requests that may wait; beyond this the callers wait, so that memory stays bounded.
const QUEUE_MAX: usize = 4096;

/// How long SQLite itself waits for another process's lock before the thread asks again.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What is kept for a disk that takes nothing; beyond this nobody is heard until it does.
const KEPT_MAX: usize = 16_384;

/// How soon an opening that met a lock is tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(20);

/// How soon a group that the disk did not take is tried again.
const WRITE_AGAIN: Duration = Duration::from_millis(200);

/// Of so many tries in a row one is logged.
const TELL_EACH: u32 = 50;

/// A database of this size is made anew in less than a second.
const MADE_ANEW_BYTES_MAX: i64 = 64 << 20;

type Outside = Box<dyn FnOnce(&Connection) + Send>;

enum Request {
    InTransaction(Box<dyn Work>),
    Outside(Outside),
}

/// One request of a group.
trait Work: Send {
    /// Runs it in a savepoint of the open transaction, not for the first time, maybe. Fails only if
    /// the transaction as a whole cannot go on.
    fn run(&mut self, db: &Connection) -> Result<(), String>;

    /// Says what came of it, once the group is on the disk or given up.
    fn answer(self: Box<Self>, committed: Result<(), String>);

    /// What becomes of it if the disk does not take it.
    fn patience(&self) -> Patience;
}

/// What becomes of a request that the disk does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// It fails.
    None,
    /// It is kept, and written when there is room.
    UntilWritten,
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
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let receipt = self.submit(work, Patience::None).await?;
        receipt.await.map_err(|_| StoreError::Stopped)?
    }

    /// The same in two steps: when this returns, its place in the order of writing is fixed; the
    /// receipt says when it is on the disk.
    pub(super) async fn submit<T, F>(
        &self,
        work: F,
        patience: Patience,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        // Nobody waits any more: the caller was cancelled, and the record stands.
        let told = move |answer| drop(sender.send(answer));
        let task = Task { work, told, patience, result: None };
        self.send(Request::InTransaction(Box::new(task))).await?;
        Ok(receiver)
    }

    /// Keeps `work` until the disk takes it, and does not wait for that. What is queued later is
    /// written later; a failure is logged as one of `what`.
    pub(super) async fn enqueue<F>(&self, what: &'static str, work: F) -> Result<(), StoreError>
    where
        F: FnMut(&Connection) -> rusqlite::Result<()> + Send + 'static,
    {
        self.send(unanswered(what, work, Patience::UntilWritten)).await
    }

    /// Writes `work` if there is room for it, in the queue and on the disk; else it is lost. Never
    /// waits.
    pub(super) fn offer<F>(&self, what: &'static str, work: F)
    where
        F: FnMut(&Connection) -> rusqlite::Result<()> + Send + 'static,
    {
        if self.0.try_send(unanswered(what, work, Patience::None)).is_err() {
            tracing::debug!(what, "not stored: too much waits for the ledger");
        }
    }

    /// Keeps `work` until the disk takes it, and never waits: where the queue is full, it waits by
    /// itself for a place in it.
    pub(super) fn keep<F>(&self, what: &'static str, work: F)
    where
        F: FnMut(&Connection) -> rusqlite::Result<()> + Send + 'static,
    {
        use mpsc::error::TrySendError;
        match self.0.try_send(unanswered(what, work, Patience::UntilWritten)) {
            Ok(()) => {}
            Err(TrySendError::Full(request)) => {
                let writer = self.clone();
                tokio::spawn(async move { drop(writer.send(request).await) });
            }
            Err(TrySendError::Closed(_)) => {
                tracing::error!(what, "not stored: the ledger is closed");
            }
        }
    }

    /// Runs `work` between transactions, for statements that refuse to be inside one.
    pub(super) async fn outside_transaction<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let work = move |db: &Connection| drop(sender.send(work(db).map_err(StoreError::from)));
        self.send(Request::Outside(Box::new(work))).await?;
        receiver.await.map_err(|_| StoreError::Stopped)?
    }

    async fn send(&self, request: Request) -> Result<(), StoreError> {
        self.0.send(request).await.map_err(|_| StoreError::Stopped)
    }
}

/// Opens the database for writing. A process that is just closing it holds it for itself for a
/// moment, and not every step of an opening waits for that by itself: the whole is tried again.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let give_up_at = SystemClock.monotonic() + BUSY_TIMEOUT;
    loop {
        match first::make_if_missing(path).and_then(|()| connect_once(path)) {
            Err(error) if error.is_busy() && SystemClock.monotonic() < give_up_at => {
                std::thread::sleep(OPEN_AGAIN);
            }
            result => return result,
        }
    }
}

fn connect_once(path: &Path) -> Result<Connection, StoreError> {
    first::refuse_beginning(path)?;
    set_up_as(path, OpenFlags::empty())
}

/// Makes a database with this version's schema.
pub(super) fn set_up(path: &Path) -> Result<Connection, StoreError> {
    set_up_as(path, OpenFlags::SQLITE_OPEN_CREATE)
}

fn set_up_as(path: &Path, more: OpenFlags) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::Open { path: path.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let mut db = Connection::open_with_flags(path, flags).map_err(failed)?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    // Before anything is changed: it may be somebody else's.
    migrate::check(&db, path)?;
    private_to_the_owner(path);
    // Of use only before the first table: what is pruned later can then be given back.
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(failed)?;
    db.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    db.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    db.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    db.set_prepared_statement_cache_capacity(64);
    migrate::migrate(&mut db, path)?;
    learn_to_shrink(&db);
    Ok(db)
}

/// A database that was made before it could be shrunk is made anew, once, while it is small. Best
/// effort: it works as well without.
fn learn_to_shrink(db: &Connection) {
    let number = |pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let make_anew = || {
        let bytes = number("page_count")?.saturating_mul(number("page_size")?);
        if number("auto_vacuum")? != 0 || bytes > MADE_ANEW_BYTES_MAX {
            return Ok(());
        }
        db.execute_batch("VACUUM")
    };
    if let Err(error) = make_anew() {
        tracing::debug!(%error, "the database stays one that does not shrink");
    }
}

/// The history can hold what a model read: only its owner may look. Best effort, since a file
/// system without modes has none to set.
fn private_to_the_owner(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if let Err(error) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)) {
        tracing::warn!(path = %path.display(), %error, "could not make the database private");
    }
}

fn unanswered<F>(what: &'static str, work: F, patience: Patience) -> Request
where
    F: FnMut(&Connection) -> rusqlite::Result<()> + Send + 'static,
{
    let told = move |answer: Result<(), StoreError>| {
        if let Err(error) = answer {
            tracing::error!(what, %error, "could not be stored");
        }
    };
    Request::InTransaction(Box::new(Task { work, told, patience, result: None }))
}

/// A request with its result, until the commit says whether that stands.
struct Task<T, F, G> {
    work: F,
    told: G,
    patience: Patience,
    result: Option<rusqlite::Result<T>>,
}

impl<T, F, G> Work for Task<T, F, G>
where
    T: Send,
    F: FnMut(&Connection) -> rusqlite::Result<T> + Send,
    G: FnOnce(Result<T, StoreError>) + Send,
{
    fn run(&mut self, db: &Connection) -> Result<(), String> {
        let result = savepoint(db, &mut self.work);
        let trouble = match &result {
            Err(error) if is_the_disks(error) => Some(error.to_string()),
            _ if db.is_autocommit() => Some("the transaction was undone".to_owned()),
            _ => None,
        };
        self.result = Some(result);
        trouble.map_or(Ok(()), Err)
    }

    fn answer(self: Box<Self>, committed: Result<(), String>) {
        let answer = match (self.result, committed) {
            (Some(Ok(value)), Ok(())) => Ok(value),
            (Some(Err(error)), Ok(())) => Err(StoreError::Sql(error)),
            (_, Err(trouble)) => Err(StoreError::Commit(trouble)),
            (None, Ok(())) => Err(StoreError::Stopped),
        };
        (self.told)(answer);
    }

    fn patience(&self) -> Patience {
        self.patience
    }
}

fn savepoint<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    execute(db, "SAVEPOINT request")?;
    match work(db) {
        Ok(value) => execute(db, "RELEASE request").map(|()| value),
        Err(error) => {
            // If that fails, the transaction is gone, and with it the savepoint.
            let undone = db.execute_batch("ROLLBACK TO request; RELEASE request");
            Err(if is_the_disks(&error) { error } else { undone.err().unwrap_or(error) })
        }
    }
}

/// These few statements go around every request: they are parsed once.
fn execute(db: &Connection, statement: &str) -> rusqlite::Result<()> {
    db.prepare_cached(statement)?.execute([]).map(drop)
}

/// Whether it is not the request's fault but that of the place where it is to be written.
fn is_the_disks(error: &rusqlite::Error) -> bool {
    use ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, ReadOnly, SystemIoFailure,
    };
    matches!(
        error.sqlite_error_code(),
        Some(DiskFull | SystemIoFailure | CannotOpen | ReadOnly | DatabaseBusy | DatabaseLocked)
    )
}

fn write_until_closed(db: &Connection, mut requests: mpsc::Receiver<Request>) {
    let mut kept = Kept::default();
    while let Some(Taken { outside, are_last }) = take(&mut requests, &mut kept) {
        kept.write(db);
        for work in outside {
            work(db);
        }
        if are_last {
            break;
        }
    }
}

/// What waits for the disk, in the order of asking.
#[derive(Default)]
struct Kept {
    works: VecDeque<Box<dyn Work>>,
    /// How often in a row the disk has not taken it.
    refusals: u32,
}

/// What came beside that.
struct Taken {
    outside: Vec<Outside>,
    /// Nothing will come any more.
    are_last: bool,
}

/// Takes what waits, behind what is kept; `None` when nothing will come any more.
fn take(requests: &mut mpsc::Receiver<Request>, kept: &mut Kept) -> Option<Taken> {
    let mut taken = Taken { outside: Vec::new(), are_last: false };
    if kept.refusals == 0 {
        taken.add(requests.blocking_recv()?, kept);
    } else {
        std::thread::sleep(WRITE_AGAIN);
    }
    // Also while the disk takes nothing: those who are not patient want to hear of it.
    let room = KEPT_MAX.saturating_sub(kept.works.len());
    for _ in 1..GROUP_MAX.min(room) {
        match requests.try_recv() {
            Ok(request) => taken.add(request, kept),
            Err(mpsc::error::TryRecvError::Empty) => break,
            Err(mpsc::error::TryRecvError::Disconnected) => {
                taken.are_last = true;
                break;
            }
        }
    }
    Some(taken)
}

impl Taken {
    fn add(&mut self, request: Request, kept: &mut Kept) {
        match request {
            Request::InTransaction(work) => kept.works.push_back(work),
            Request::Outside(work) => self.outside.push(work),
        }
    }
}

impl Kept {
    /// Writes group after group and answers, until the disk does not take one.
    fn write(&mut self, db: &Connection) {
        let count = self.works.len();
        while !self.works.is_empty() {
            let group = self.works.len().min(GROUP_MAX);
            let mut group: Vec<_> = self.works.drain(..group).collect();
            match write_all(db, &mut group) {
                Ok(()) => {
                    for work in group {
                        work.answer(Ok(()));
                    }
                }
                Err(trouble) => return self.keep(group, &trouble),
            }
        }
        if self.refusals > 0 {
            let tries = self.refusals;
            tracing::info!(count, tries, "the ledger has taken what was kept for it");
            self.refusals = 0;
        }
    }

    /// Puts back what is patient and tells the others.
    fn keep(&mut self, group: Vec<Box<dyn Work>>, trouble: &str) {
        if self.refusals.is_multiple_of(TELL_EACH) {
            tracing::error!(error = trouble, "the ledger cannot be written");
        }
        self.refusals += 1;
        let behind = std::mem::take(&mut self.works);
        for work in group.into_iter().chain(behind) {
            match work.patience() {
                Patience::UntilWritten => self.works.push_back(work),
                Patience::None => work.answer(Err(trouble.to_owned())),
            }
        }
        if self.works.is_empty() {
            // Whoever comes next tries anew.
            self.refusals = 0;
        }
    }
}

/// All of a group in one transaction, or nothing of it.
fn write_all(db: &Connection, group: &mut [Box<dyn Work>]) -> Result<(), String> {
    begin(db).map_err(|error| error.to_string())?;
    let written = group.iter_mut().try_for_each(|work| work.run(db));
    let committed =
        written.and_then(|()| execute(db, "COMMIT").map_err(|error| format!("commit: {error}")));
    if committed.is_err() && !db.is_autocommit() {
        // Whatever is left of it; the next one begins anew.
        drop(db.execute_batch("ROLLBACK"));
    }
    committed
}

/// Begins a transaction, and waits as long as another process holds the lock: a result that is
/// already known is not thrown away because somebody else is slow.
fn begin(db: &Connection) -> rusqlite::Result<()> {
    loop {
        match execute(db, "BEGIN IMMEDIATE") {
            Err(rusqlite::Error::SqliteFailure(failure, _))
                if matches!(failure.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) =>
            {
                tracing::warn!("the database is locked by another process, still waiting");
            }
            result => return result,
        }
    }
}
