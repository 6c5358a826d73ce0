//! What the house does for itself, by the clock: a few rare jobs in UTC, each of which only asks.
//!
//! `tokio-cron-scheduler` drives these and nothing else: a tick may come half a second late, or
//! not at all after a clock step, and nobody is the worse for it.

use std::time::Duration;

use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

use crate::store::Store;

/// The write-ahead log is folded back at every fifth minute.
const CHECKPOINT: &str = "0 */5 * * * *";

/// How long the scheduler may take to stop before it is left behind.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// The ticks, as long as they run.
pub(super) struct Housekeeping(Option<JobScheduler>);

impl Housekeeping {
    /// Starts the ticks. A daemon without them is a daemon all the same.
    pub(super) async fn start(store: Store) -> Self {
        match Self::ticks(store).await {
            Ok(scheduler) => Self(Some(scheduler)),
            Err(error) => {
                tracing::warn!(%error, "housekeeping is off");
                Self(None)
            }
        }
    }

    async fn ticks(store: Store) -> Result<JobScheduler, JobSchedulerError> {
        let scheduler = JobScheduler::new_with_channel_size(1024).await?;
        let checkpoint = Job::new_async(CHECKPOINT, move |_, _| {
            let store = store.clone();
            Box::pin(async move {
                if let Err(error) = store.checkpoint().await {
                    tracing::warn!(%error, "could not fold back the write-ahead log");
                }
            })
        })?;
        scheduler.add(checkpoint).await?;
        scheduler.start().await?;
        Ok(scheduler)
    }

    /// Stops the ticks.
    pub(super) async fn stop(self) {
        if let Some(mut scheduler) = self.0 {
            // What it does not finish in time ends with the process.
            drop(tokio::time::timeout(STOP_WITHIN, scheduler.shutdown()).await);
        }
    }
}
