//! What a run's tools reach beyond its workspace, through the rooms that they do not know.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use crate::cassette::Deck;
use crate::clock::{Clock, to_millis};
use crate::job::Masker;
use crate::run::RunId;
use crate::store::{QueryLimits, Reader, Store, StoreError};
use crate::tools::{AskBounds, Beyond, Ledger, Post, Posted, Rows};

impl Executor {
    /// What the configuration lets the tools of a run reach.
    pub(super) fn beyond(&self, ticket: &Ticket, holdings: &Holdings) -> Beyond {
        let history = self.deck.as_ref().and_then(Deck::history);
        Beyond {
            allow_hosts: self.config.allow_hosts.clone(),
            ledger: Some(Arc::new(Past { store: self.store.clone(), history })),
            post: Some(Arc::new(Outbox {
                run_id: ticket.run_id.clone(),
                targets: self.config.targets.keys().cloned().collect(),
                masker: Arc::clone(&holdings.masker),
                store: self.store.clone(),
                clock: Arc::clone(&self.clock),
            })),
        }
    }
}

/// The outbox, as one run may use it.
struct Outbox {
    run_id: RunId,
    targets: Vec<String>,
    masker: Arc<Masker>,
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Post for Outbox {
    fn targets(&self) -> Vec<String> {
        self.targets.clone()
    }

    /// Whoever may stop a message looks at the rows of the outbox: this is one of them.
    fn put(&self, n: usize, target: &str, text: &str) -> BoxFuture<'_, Result<Posted, String>> {
        let (target, text) = (target.to_owned(), self.masker.mask(text).into_owned());
        async move {
            let now = to_millis(self.clock.wall());
            match self.store.put_message(&self.run_id, n, &target, &text, now).await {
                Ok(true) => Ok(Posted::Queued),
                Ok(false) => Ok(Posted::Suppressed),
                Err(error) => Err(format!("the ledger: {error}")),
            }
        }
        .boxed()
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
