//! Looks after jobs that are not well: whenever something has happened that may matter, and when
//! the time comes for what happens by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::dispatcher::Scheduling;
use crate::clock::{Clock, Deadline, to_millis};
use crate::job::JobId;
use crate::store::{AlertRule, Scope, Store};

/// A provider that is down takes its jobs with it one after the other: the message waits for them.
const GATHER: Duration = Duration::from_secs(10);

/// What happens at once is looked at together.
const QUIET: Duration = Duration::from_millis(50);

/// The wall clock is looked at as often as this: it may have been set.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// How soon a ledger that could not be asked is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A hold on the look-out, which ends with it.
pub(super) struct Alerts {
    orders: mpsc::UnboundedSender<Order>,
    looking: JoinHandle<()>,
}

enum Order {
    /// These rules hold from now on.
    Rules(Arc<Vec<AlertRule>>),
    /// Say when what has happened so far has been looked at.
    Look(oneshot::Sender<()>),
}

impl Alerts {
    /// Begins with a look at everything.
    pub(super) fn start(
        store: Store,
        clock: Arc<dyn Clock>,
        rules: Vec<AlertRule>,
        scheduling: Scheduling,
    ) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let gather = match scheduling {
            Scheduling::On => GATHER,
            // It will not be there to wait for anybody.
            Scheduling::Off => Duration::ZERO,
        };
        let watch = Watch {
            store,
            clock,
            rules: Arc::new(rules),
            gather,
            stale_at: HashMap::new(),
            tell_at: None,
        };
        Self { orders, looking: tokio::spawn(watch.keep(received)) }
    }

    /// Looks by these rules from now on.
    pub(super) fn use_rules(&self, rules: Vec<AlertRule>) {
        // The look-out lives as long as this.
        drop(self.orders.send(Order::Rules(Arc::new(rules))));
    }

    /// Returns when what has happened so far has been looked at.
    pub(super) async fn look(&self) {
        let (done, heard) = oneshot::channel();
        if self.orders.send(Order::Look(done)).is_ok() {
            drop(heard.await);
        }
    }
}

impl Drop for Alerts {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

struct Watch {
    store: Store,
    clock: Arc<dyn Clock>,
    rules: Arc<Vec<AlertRule>>,
    gather: Duration,
    /// When jobs become stale, if nothing succeeds before.
    stale_at: HashMap<JobId, Timestamp>,
    /// When somebody is to be told of what is held back.
    tell_at: Option<Timestamp>,
}

impl Watch {
    async fn keep(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let bell = self.store.stirred_bell();
        let mut again = self.look(Scope::All).await;
        loop {
            tokio::select! {
                () = bell.notified() => tokio::time::sleep(QUIET).await,
                () = again.wait() => {}
                order = orders.recv() => match order {
                    None => return,
                    Some(Order::Rules(rules)) => {
                        self.rules = rules;
                        self.stale_at.clear();
                        again = self.look(Scope::All).await;
                        continue;
                    }
                    Some(Order::Look(heard)) => {
                        again = self.look(Scope::Stirred(Vec::new())).await;
                        // Whoever asked may be gone.
                        let _ = heard.send(());
                        continue;
                    }
                },
            }
            let now = self.clock.wall();
            let due = self.stale_at.iter().filter(|(_, at)| **at <= now);
            let due = due.map(|(job, _)| job.clone()).collect();
            again = self.look(Scope::Stirred(due)).await;
        }
    }

    /// Looks, and says when to look again although nothing happens.
    async fn look(&mut self, scope: Scope) -> Deadline {
        let now = to_millis(self.clock.wall());
        let rules = Arc::clone(&self.rules);
        let looked = self.store.look_at_incidents(rules, scope, self.gather, now).await;
        let at_once = self.clock.monotonic();
        match looked {
            Ok(looked) => {
                for (job, at) in looked.stale_at {
                    match at {
                        Some(at) => drop(self.stale_at.insert(job, at)),
                        None => drop(self.stale_at.remove(&job)),
                    }
                }
                self.tell_at = looked.tell_at;
                let next = self.stale_at.values().copied().chain(self.tell_at).min();
                let Some(next) = next else { return Deadline::NEVER };
                let left = Duration::try_from(next.duration_since(now)).unwrap_or_default();
                Deadline::after(at_once, left.min(LOOK_EVERY))
            }
            Err(error) => {
                tracing::error!(%error, "could not look for incidents");
                Deadline::after(at_once, ASK_AGAIN)
            }
        }
    }
}
