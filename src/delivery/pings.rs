//! Rings the switches that notice when something does not happen: one of a job for each of its
//! runs, and that of `serve` itself.
//!
//! A ring is worth something only at its time, so none of this is kept: what could not be rung in
//! a few tries is a line in the log, and the switch does what it is there for. Each switch hears of
//! one thing after the other; one that hangs holds up itself only.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::http::Http;
use super::ring::{Call, call_of, rung, start_of};
use crate::config::Config;
use crate::executor::{Ended, Failing, Milestone};
use crate::job::{JobId, SecretText};
use crate::plan::{Record, Settled, Then};
use crate::store::Store;

/// Rings of jobs at once, in all.
const OF_JOBS_MAX: usize = 32;

/// What one switch has still to hear, at most; what is older says least about how things are.
const OF_ONE_MAX: usize = 8;

/// A hold on the loop, which ends with it.
#[derive(Debug)]
pub struct Pings {
    orders: mpsc::UnboundedSender<Order>,
    config: watch::Sender<Arc<Config>>,
    ringing: JoinHandle<()>,
}

#[derive(Debug)]
enum Order {
    /// These are the jobs' switches from now on.
    Urls(HashMap<JobId, SecretText>),
    /// Nothing follows an attempt that was not a success.
    Decided(JobId, Settled),
    /// `serve` lives.
    Beat,
    /// Say when nothing is left to ring.
    Close(oneshot::Sender<()>),
}

impl Pings {
    /// Begins to ring for what is told in `milestones`.
    pub fn start(
        store: Store,
        config: Arc<Config>,
        milestones: mpsc::UnboundedReceiver<Milestone>,
    ) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let (config, in_force) = watch::channel(config);
        let ringing = tokio::spawn(async move {
            let http = Http::default();
            let (urls, queues) = (HashMap::new(), HashMap::new());
            let (busy, ringing) = (HashSet::new(), JoinSet::new());
            let ringer = Ringer { store, config: in_force, http, urls, queues, busy, ringing };
            ringer.ring_all(milestones, received).await;
        });
        Self { orders, config, ringing }
    }

    /// Rings under this configuration from now on.
    pub fn use_config(&self, config: Arc<Config>) {
        self.config.send_replace(config);
    }

    /// These are the jobs' switches from now on.
    pub fn use_urls(&self, urls: HashMap<JobId, SecretText>) {
        self.order(Order::Urls(urls));
    }

    /// What is decided about attempts that have ended.
    pub fn decided(&self, record: &Record) {
        for settled in record.settled.iter().filter(|it| it.then == Then::Nothing) {
            self.order(Order::Decided(record.job.clone(), *settled));
        }
    }

    /// `serve` lives.
    pub fn beat(&self) {
        self.order(Order::Beat);
    }

    /// Rings what is left to ring, `within` that time.
    pub async fn close(self, within: Duration) {
        let (done, heard) = oneshot::channel();
        self.order(Order::Close(done));
        drop(tokio::time::timeout(within, heard).await);
    }

    fn order(&self, order: Order) {
        // Without a loop nothing is rung, which it has said.
        drop(self.orders.send(order));
    }
}

impl Drop for Pings {
    fn drop(&mut self) {
        self.ringing.abort();
    }
}

/// Whose switch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whose {
    Serve,
    Job(JobId),
}

/// What a switch has to hear.
#[derive(Debug)]
enum News {
    Call(Call),
    /// How the attempt of a slot ended is in the ledger.
    Attempt(Settled),
}

struct Ringer {
    store: Store,
    config: watch::Receiver<Arc<Config>>,
    http: Http,
    urls: HashMap<JobId, SecretText>,
    queues: HashMap<Whose, VecDeque<(SecretText, News)>>,
    busy: HashSet<Whose>,
    ringing: JoinSet<Whose>,
}

impl Ringer {
    async fn ring_all(
        mut self,
        mut milestones: mpsc::UnboundedReceiver<Milestone>,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) {
        let mut closing = None;
        loop {
            self.begin();
            if let Some(heard) = closing.take_if(|_| self.ringing.is_empty()) {
                let heard: oneshot::Sender<()> = heard;
                // Whoever asked may be gone.
                let _ = heard.send(());
                return;
            }
            tokio::select! {
                // What a run has told comes before what is decided about it.
                biased;
                Some(milestone) = milestones.recv() => self.note(milestone),
                order = orders.recv() => match order {
                    None => return,
                    Some(Order::Close(heard)) => closing = Some(heard),
                    Some(Order::Urls(urls)) => self.urls = urls,
                    Some(Order::Beat) => self.beat(),
                    Some(Order::Decided(job, settled)) => {
                        if let Some(url) = self.urls.get(&job).cloned() {
                            self.put(Whose::Job(job), url, News::Attempt(settled));
                        }
                    }
                },
                Some(rung) = self.ringing.join_next() => if let Ok(whose) = rung {
                    self.busy.remove(&whose);
                },
            }
        }
    }

    fn note(&mut self, milestone: Milestone) {
        let (run, call) = match milestone {
            Milestone::Started(run) => {
                let call = start_of(&run.job, &run.run_id);
                (run, Some(call))
            }
            Milestone::Ended(run, end) => {
                let call = call_of(&run.job, &run.run_id, end);
                let waits =
                    run.failure == Failing::Later && call.as_ref().is_some_and(Call::is_failure);
                (run, call.filter(|_| !waits))
            }
        };
        if let Some(call) = call {
            self.put(Whose::Job(run.job), run.url, News::Call(call));
        }
    }

    /// One that is still on its way says as much.
    fn beat(&mut self) {
        let heartbeat = self.config.borrow().heartbeat.clone();
        let is_told = self.busy.contains(&Whose::Serve) || self.queues.contains_key(&Whose::Serve);
        if let Some(heartbeat) = heartbeat.filter(|_| !is_told) {
            self.put(Whose::Serve, heartbeat.url, News::Call(Call::beat()));
        }
    }

    fn put(&mut self, whose: Whose, url: SecretText, news: News) {
        let queue = self.queues.entry(whose).or_default();
        if queue.len() == OF_ONE_MAX {
            queue.pop_front();
        }
        queue.push_back((url, news));
    }

    /// Begins what there is a place for.
    fn begin(&mut self) {
        let free = OF_JOBS_MAX.saturating_sub(self.ringing.len());
        let waiting = self.queues.keys().filter(|whose| !self.busy.contains(*whose));
        // No job's switch holds up that of `serve`.
        let (serve, jobs): (Vec<_>, Vec<_>) =
            waiting.cloned().partition(|whose| *whose == Whose::Serve);
        for whose in serve.into_iter().chain(jobs.into_iter().take(free)) {
            let Some(queue) = self.queues.get_mut(&whose) else { continue };
            let next = queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(&whose);
            }
            let Some((url, news)) = next else { continue };
            self.busy.insert(whose.clone());
            let ring = self.ring(whose.clone(), url, news);
            self.ringing.spawn(async move {
                drop(AssertUnwindSafe(ring).catch_unwind().await);
                whose
            });
        }
    }

    fn ring(
        &self,
        whose: Whose,
        url: SecretText,
        news: News,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (http, store) = (self.http.clone(), self.store.clone());
        let config = Arc::clone(&self.config.borrow());
        async move {
            let call = match (news, &whose) {
                (News::Call(call), _) => Some(call),
                (News::Attempt(settled), Whose::Job(job)) => ended(store, job, settled).await,
                (News::Attempt(_), Whose::Serve) => None,
            };
            let Some(call) = call else { return };
            if let Err(error) = rung(&http, &config, &url, &call).await {
                match whose {
                    Whose::Serve => tracing::warn!(error, "the heartbeat did not arrive"),
                    Whose::Job(job) => tracing::warn!(%job, error, "a ping did not arrive"),
                }
            }
        }
    }
}

/// How an attempt ended after which nothing follows, if that is to be rung: what was no failure
/// has been.
async fn ended(store: Store, job: &JobId, settled: Settled) -> Option<Call> {
    let Settled { due_at, attempt, then: _ } = settled;
    let of = job.clone();
    let read = move || store.reader()?.attempt_at(of.as_str(), due_at, attempt);
    let run = match tokio::task::spawn_blocking(read).await.ok()? {
        Ok(run) => run?,
        Err(error) => {
            tracing::warn!(%job, %error, "could not look up what to ring");
            return None;
        }
    };
    let kind = run.error.map(|error| error.kind);
    let end = Ended { state: run.state.parse().ok()?, kind, exit_code: run.exit_code };
    call_of(job, &run.run_id, end).filter(Call::is_failure)
}
