//! What a run's tools reach beyond its workspace, through the rooms that they do not know.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::run::Executor;
use crate::cassette::Deck;
use crate::store::{QueryLimits, Reader, Store, StoreError};
use crate::tools::{AskBounds, Beyond, Ledger, Rows};

impl Executor {
    /// What the configuration lets the tools of a run reach.
    pub(super) fn beyond(&self) -> Beyond {
        let history = self.deck.as_ref().and_then(Deck::history);
        Beyond {
            allow_hosts: self.config.allow_hosts.clone(),
            ledger: Some(Arc::new(Past { store: self.store.clone(), history })),
        }
    }
}

/// The history that a run may look at.
struct Past {
    store: Store,
    /// Of a run that is recorded: not its own ledger, which knows nothing.
    history: Option<PathBuf>,
}

impl Ledger for Past {
    fn ask(&self, sql: String, bounds: AskBounds) -> BoxFuture<'_, Result<Rows, String>> {
        let (store, history) = (self.store.clone(), self.history.clone());
        async move {
            let given_up = GivesUp::default();
            let stop = Arc::clone(&given_up.0);
            let read = move || -> Result<Rows, StoreError> {
                let mut reader = match history {
                    None => store.reader()?,
                    Some(path) => Reader::open(&path)?,
                };
                let AskBounds { rows_max, bytes_max, time_max } = bounds;
                let limits = QueryLimits { rows_max, bytes_max, time_max };
                let table = reader.query_views(&sql, limits, stop)?;
                Ok(Rows { columns: table.columns, rows: table.rows })
            };
            match tokio::task::spawn_blocking(read).await {
                Ok(rows) => rows.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        }
        .boxed()
    }
}

/// Ends a question when nobody waits for its answer any more.
#[derive(Default)]
struct GivesUp(Arc<AtomicBool>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
