//! What the house does for itself, by the clock: a few rare jobs in UTC, each of which only asks.
//!
//! `tokio-cron-scheduler` drives these and nothing else: a tick may come half a second late, or
//! not at all after a clock step, and nobody is the worse for it. It looks at its clock twice a
//! second, so it runs only while there is something to keep in order: from the first change of the
//! ledger to the first tick that finds none since the last.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

use super::retention::{Pruned, prune};
use crate::clock::{Clock, to_millis};
use crate::config::{Config, Retention};
use crate::store::Store;

/// At every fifth minute old audit rows and costs go, and the write-ahead log is folded back; at some of them
/// the history is pruned.
const CHECKPOINT: &str = "0 */5 * * * *";

/// How long the scheduler may take to stop before it is left behind.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// How often the history is looked through for what is over. It is also done at each start.
const PRUNE_EVERY: Duration = Duration::from_hours(1);

/// Keeps order until it is dropped.
pub(super) struct Housekeeping {
    ledger: Arc<Ledger>,
    kept: Kept,
    keeping: JoinHandle<()>,
}

/// How much of the history is kept, as the configuration has it now.
type Kept = Arc<Mutex<Retention>>;

/// Whether there is anything to keep in order.
#[derive(Default)]
struct Ledger {
    changed: AtomicBool,
    wake: Notify,
}

/// What is kept in order.
struct House {
    store: Store,
    state_dir: PathBuf,
    clock: Arc<dyn Clock>,
    kept: Kept,
    pruned_at: Mutex<Option<Instant>>,
}

impl Housekeeping {
    /// Looks through the history once, and then waits for the first change.
    pub(super) fn start(store: Store, clock: Arc<dyn Clock>, config: &Config) -> Self {
        let ledger = Arc::new(Ledger::default());
        let kept = Arc::new(Mutex::new(config.retention));
        let house = Arc::new(House {
            store,
            state_dir: config.state_dir.clone(),
            clock,
            kept: Arc::clone(&kept),
            pruned_at: Mutex::default(),
        });
        let changes = Arc::clone(&ledger);
        Self { ledger, kept, keeping: tokio::spawn(keep(house, changes)) }
    }

    /// The ledger has changed.
    pub(super) fn note_change(&self) {
        if !self.ledger.changed.swap(true, Ordering::Relaxed) {
            self.ledger.wake.notify_one();
        }
    }

    /// From now on so much is kept.
    pub(super) fn use_config(&self, config: &Config) {
        *self.kept.lock().expect("no holder of this lock can panic") = config.retention;
    }
}

async fn keep(house: Arc<House>, ledger: Arc<Ledger>) {
    house.prune().await;
    keep_order(CHECKPOINT, ledger, || {
        let house = Arc::clone(&house);
        async move { house.tidy().await }
    })
    .await;
}

impl House {
    async fn tidy(&self) {
        let now = to_millis(self.clock.wall());
        match self.store.prune_audit(now).await {
            Ok(0) => {}
            Ok(rows) => tracing::debug!(rows, "pruned the audit ledger"),
            Err(error) => tracing::warn!(%error, "could not prune the audit ledger"),
        }
        if let Err(error) = self.store.prune_costs(now).await {
            tracing::warn!(%error, "could not prune the costs");
        }
        let pruned_at = *self.pruned_at.lock().expect("no holder of this lock can panic");
        if pruned_at.is_none_or(|at| self.clock.monotonic() >= at + PRUNE_EVERY) {
            self.prune().await;
        }
        self.fold_back().await;
    }

    async fn fold_back(&self) {
        if let Err(error) = self.store.checkpoint().await {
            tracing::warn!(%error, "could not fold back the write-ahead log");
        }
    }

    async fn prune(&self) {
        let now = self.clock.monotonic();
        *self.pruned_at.lock().expect("no holder of this lock can panic") = Some(now);
        let kept = *self.kept.lock().expect("no holder of this lock can panic");
        let now = to_millis(self.clock.wall());
        match prune(&self.store, &self.state_dir, kept, now).await {
            Ok(pruned) if pruned == Pruned::default() => {}
            Ok(Pruned { runs, slots, definitions, sessions }) => {
                // The file gets no smaller before.
                self.fold_back().await;
                tracing::info!(runs, slots, definitions, sessions, "pruned the history");
            }
            Err(error) => tracing::warn!(%error, "could not prune the history"),
        }
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

/// `tidy` at each tick of `at` that finds a change.
async fn keep_order<T: Future<Output = ()>>(at: &str, ledger: Arc<Ledger>, tidy: impl Fn() -> T) {
    loop {
        ledger.wake.notified().await;
        let (tick, mut ticks) = mpsc::channel(1);
        let mut scheduler = match start_ticks(at, tick).await {
            Ok(scheduler) => scheduler,
            Err(error) => {
                // A daemon without housekeeping is a daemon all the same.
                tracing::warn!(%error, "housekeeping is off");
                return;
            }
        };
        while ticks.recv().await.is_some() {
            if !ledger.changed.swap(false, Ordering::Relaxed) {
                break;
            }
            tidy().await;
        }
        // What it does not finish in time goes on without anybody listening.
        drop(tokio::time::timeout(STOP_WITHIN, scheduler.shutdown()).await);
    }
}

/// Ticks that each only send; one that nobody has taken yet is enough.
async fn start_ticks(at: &str, tick: mpsc::Sender<()>) -> Result<JobScheduler, JobSchedulerError> {
    let scheduler = JobScheduler::new_with_channel_size(1024).await?;
    let checkpoint = Job::new(at, move |_, _| {
        let _ = tick.try_send(());
    })?;
    scheduler.add(checkpoint).await?;
    scheduler.start().await?;
    Ok(scheduler)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn it_tidies_after_changes_rests_without_and_begins_again() {
        let ledger = Arc::new(Ledger::default());
        let (tidied, mut tidyings) = mpsc::channel(16);
        let keeping = keep_order("* * * * * *", Arc::clone(&ledger), move || {
            let tidied = tidied.clone();
            async move { tidied.send(()).await.unwrap() }
        });
        let kept = Kept::default();
        let housekeeping = Housekeeping { ledger, kept, keeping: tokio::spawn(keeping) };
        let within = Duration::from_secs(30);
        for _ in 0..2 {
            housekeeping.note_change();
            assert!(tokio::time::timeout(within, tidyings.recv()).await.is_ok(), "it tidies");
            // Two ticks without a change: the first one sends it to rest.
            let quiet = tokio::time::timeout(Duration::from_millis(2500), tidyings.recv());
            assert!(quiet.await.is_err(), "nothing has changed since");
        }
    }
}
