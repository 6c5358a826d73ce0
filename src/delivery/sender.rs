//! The loop that empties the outbox.
//!
//! One per process that holds the state folder. It sleeps until there is something new or due, sends
//! side by side within bounds, and gives each target only a few places, so that one that hangs holds
//! up nobody else.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::http::Http;
use super::letter::{Content, Letter};
use super::sent::{AfterCrash, Sent};
use super::{command, email, file, slack, webhook};
use crate::clock::{Clock, Deadline, to_millis};
use crate::config::{Config, Target, TargetKind};
use crate::hooks::Hooks;
use crate::job::Masker;
use crate::process::SupervisorPath;
use crate::store::{About, Claim, DeliveryEnd, Outgoing, RunRecord, Store, StoreError};

/// Sends at once, in all.
const IN_ALL_MAX: usize = 16;

/// Sends at once to one target.
const OF_TARGET_MAX: usize = 4;

/// The wall clock is looked at as often as this: it may have been set.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// How soon a ledger that could not be asked is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What the sender works with.
#[derive(Debug, Clone)]
pub struct Outlet {
    /// The ledger.
    pub store: Store,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The program that supervises processes.
    pub supervisor: SupervisorPath,
    /// Who may keep something back.
    pub hooks: Arc<Hooks>,
}

/// A hold on the loop, which ends with it.
#[derive(Debug)]
pub struct Sender {
    orders: mpsc::UnboundedSender<Order>,
    in_force: watch::Sender<InForce>,
    sending: JoinHandle<()>,
}

/// What may change under the loop.
type InForce = (Arc<Config>, Arc<Hooks>);

#[derive(Debug)]
enum Order {
    /// Say when nothing is left to send until then.
    Drain(Timestamp, oneshot::Sender<()>),
    /// Begin nothing more; say when what was begun has ended.
    Stop(oneshot::Sender<()>),
}

impl Sender {
    /// Begins to send.
    pub fn start(outlet: Outlet) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let now = (Arc::clone(&outlet.config), Arc::clone(&outlet.hooks));
        let (in_force, seen) = watch::channel(now);
        let sending = tokio::spawn(send_all(outlet, seen, received));
        Self { orders, in_force, sending }
    }

    /// Sends under this configuration from now on.
    pub fn use_config(&self, config: Arc<Config>, hooks: Arc<Hooks>) {
        self.in_force.send_replace((config, hooks));
    }

    /// Returns when nothing is left to send `within` that time, from `now`. Whatever is being sent
    /// at its end is waited for.
    pub async fn drain(&self, within: Duration, now: Timestamp) {
        let drained = self.ask(|heard| Order::Drain(now + within, heard));
        drop(tokio::time::timeout(within, drained).await);
        self.ask(Order::Stop).await;
    }

    /// Begins nothing more, and waits for what was begun, `within`.
    pub async fn stop(self, within: Duration) {
        drop(tokio::time::timeout(within, self.ask(Order::Stop)).await);
        self.sending.abort();
    }

    async fn ask(&self, order: impl FnOnce(oneshot::Sender<()>) -> Order) {
        let (done, heard) = oneshot::channel();
        if self.orders.send(order(done)).is_ok() {
            // The loop ends only with this.
            drop(heard.await);
        }
    }
}

/// How far the loop is.
enum Course {
    Sending,
    /// Somebody wants to hear that nothing is left until then.
    Draining(Timestamp, Option<oneshot::Sender<()>>),
    /// Nothing more is begun.
    Stopping(Option<oneshot::Sender<()>>),
}

fn say(heard: &mut Option<oneshot::Sender<()>>) {
    if let Some(heard) = heard.take() {
        // Whoever asked may be gone.
        let _ = heard.send(());
    }
}

async fn send_all(
    outlet: Outlet,
    seen: watch::Receiver<InForce>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let http = Http::default();
    let bell = outlet.store.outbox_bell();
    let mut desk = Desk { outlet, http, busy: HashMap::new(), sends: JoinSet::new() };
    let (config, _) = seen.borrow().clone();
    desk.after_a_crash(&config).await;
    let mut course = Course::Sending;
    loop {
        let look_again = match &mut course {
            Course::Stopping(heard) => {
                if desk.sends.is_empty() {
                    say(heard);
                }
                Deadline::NEVER
            }
            Course::Sending | Course::Draining(..) => {
                let in_force = seen.borrow().clone();
                match desk.begin(in_force).await {
                    Ok(next) => {
                        if let Course::Draining(until, heard) = &mut course
                            && desk.sends.is_empty()
                            && next.is_none_or(|next| next > *until)
                        {
                            say(heard);
                        }
                        desk.deadline(next)
                    }
                    Err(()) => Deadline::after(desk.outlet.clock.monotonic(), ASK_AGAIN),
                }
            }
        };
        tokio::select! {
            () = bell.notified() => {}
            Some(target) = desk.sends.join_next(), if !desk.sends.is_empty() => {
                desk.ended(target.ok());
            }
            () = look_again.wait() => {}
            order = orders.recv() => match order {
                None => return,
                Some(Order::Drain(until, heard)) => course = Course::Draining(until, Some(heard)),
                Some(Order::Stop(heard)) => course = Course::Stopping(Some(heard)),
            },
        }
    }
}

struct Desk {
    outlet: Outlet,
    http: Http,
    /// How many sends are under way, by target.
    busy: HashMap<String, usize>,
    sends: JoinSet<String>,
}

impl Desk {
    /// What a dead process was sending may have arrived.
    async fn after_a_crash(&self, config: &Config) {
        let Outlet { store, clock, .. } = &self.outlet;
        let interrupted = match store.interrupted_deliveries().await {
            Ok(interrupted) => interrupted,
            Err(error) => return tracing::error!(%error, "could not look at the outbox"),
        };
        for outgoing in interrupted {
            let kind = config.targets.get(&outgoing.target).map(|target| &target.kind);
            let after = kind.map_or(AfterCrash::LeaveUnknown, AfterCrash::of);
            let id = &outgoing.delivery_id;
            let done = match after {
                AfterCrash::Repeat if outgoing.repeats == 0 => store.repeat_delivery(id).await,
                AfterCrash::Repeat | AfterCrash::LeaveUnknown => {
                    let why = "the process that sent it died".to_owned();
                    let now = to_millis(clock.wall());
                    store.end_delivery(id, DeliveryEnd::Unknown(why), now).await
                }
            };
            match done {
                Ok(()) => tracing::warn!(
                    delivery_id = id,
                    target = outgoing.target,
                    ?after,
                    "a dead process was sending this"
                ),
                Err(error) => tracing::error!(%error, "could not look after a delivery"),
            }
        }
    }

    /// Begins to send what is due, as far as there are places, and says when more is due.
    async fn begin(&mut self, (config, hooks): InForce) -> Result<Option<Timestamp>, ()> {
        let busy = self.busy.clone();
        let of_target = move |target: &str| {
            OF_TARGET_MAX.saturating_sub(busy.get(target).copied().unwrap_or(0))
        };
        let in_all = IN_ALL_MAX.saturating_sub(self.sends.len());
        let now = to_millis(self.outlet.clock.wall());
        let claim = self.outlet.store.claim_deliveries(of_target, in_all, now).await;
        let Claim { outgoing, next_at } = claim.map_err(|error| {
            tracing::error!(%error, "could not look at the outbox");
        })?;
        for outgoing in outgoing {
            *self.busy.entry(outgoing.target.clone()).or_default() += 1;
            let (outlet, http) = (self.outlet.clone(), self.http.clone());
            let (config, hooks) = (Arc::clone(&config), Arc::clone(&hooks));
            let try_once = Try { outlet: Outlet { config, hooks, ..outlet }, http };
            self.sends.spawn(try_once.send(outgoing));
        }
        Ok(next_at)
    }

    fn ended(&mut self, target: Option<String>) {
        match target {
            Some(target) => {
                if let Some(count) = self.busy.get_mut(&target) {
                    *count = count.saturating_sub(1);
                }
            }
            // It did not even end: nothing says whose place it had.
            None if self.sends.is_empty() => self.busy.clear(),
            None => {}
        }
    }

    fn deadline(&self, next: Option<Timestamp>) -> Deadline {
        let Some(at) = next else { return Deadline::NEVER };
        let clock = &self.outlet.clock;
        let left = Duration::try_from(at.duration_since(clock.wall())).unwrap_or_default();
        Deadline::after(clock.monotonic(), left.min(LOOK_EVERY))
    }
}

/// One try to send one thing.
pub(super) struct Try {
    pub(super) outlet: Outlet,
    http: Http,
}

impl Try {
    /// Sends it, records how that went, and says to which target it was.
    async fn send(self, outgoing: Outgoing) -> String {
        let Outlet { store, clock, config, .. } = &self.outlet;
        let tried = AssertUnwindSafe(self.try_once(&outgoing)).catch_unwind().await;
        let sent = tried.unwrap_or_else(|_| Sent::Lost("a fault in punctual itself".into()));
        let now = to_millis(clock.wall());
        let end = sent.end(outgoing.attempt, outgoing.queued_at, now);
        let end = masked(end, &Masker::new(config.target_secrets()));
        log(&outgoing, &end);
        if let Err(error) = store.end_delivery(&outgoing.delivery_id, end.clone(), now).await {
            tracing::error!(%error, "could not record how a delivery went");
        }
        self.tell_sent(&outgoing, &end).await;
        outgoing.target
    }

    async fn try_once(&self, outgoing: &Outgoing) -> Sent {
        let Outlet { config, .. } = &self.outlet;
        let Some(target) = config.targets.get(&outgoing.target) else {
            return Sent::Refused(format!("there is no target `{}` any more", outgoing.target));
        };
        match self.letter(outgoing).await {
            Ok(letter) => match self.kept_back(outgoing, &letter).await {
                Some(sent) => sent,
                None => self.to_target(&letter, target).await,
            },
            Err(sent) => sent,
        }
    }

    /// What there is to send, as the ledger has it now.
    async fn letter(&self, outgoing: &Outgoing) -> Result<Letter, Sent> {
        let (store, about) = (self.outlet.store.clone(), outgoing.about.clone());
        let read = move || content(&store, &about);
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(Some((content, next_due)))) => Ok(Letter {
                delivery_id: outgoing.delivery_id.clone(),
                attachments: match (&content, outgoing.attach) {
                    (Content::Run(run), true) => self.kept(run),
                    (Content::Run(_) | Content::Message(..) | Content::Incident(..), _) => {
                        Vec::new()
                    }
                },
                content,
                subject: outgoing.subject.clone(),
                next_due,
                parts_sent: outgoing.parts_sent,
            }),
            Ok(Ok(None)) => Err(Sent::Refused("what it tells of is not in the history".into())),
            Ok(Err(error)) => Err(Sent::not_yet(error.to_string())),
            Err(error) => Err(Sent::not_yet(error.to_string())),
        }
    }

    /// The files that are kept of a run.
    fn kept(&self, run: &RunRecord) -> Vec<PathBuf> {
        let folder = self.outlet.config.state_dir.join("artifacts").join(&run.run_id);
        run.artifacts.iter().map(|artifact| folder.join(&artifact.path)).collect()
    }

    async fn to_target(&self, letter: &Letter, target: &Target) -> Sent {
        let Outlet { config, supervisor, .. } = &self.outlet;
        let out = (&self.http, config.allow_hosts.as_slice(), &config.environment);
        match &target.kind {
            TargetKind::Webhook(webhook) => {
                webhook::send(letter, webhook, target.timeout, out).await
            }
            TargetKind::File { path, folder } => {
                let written = file::send(letter, path, folder);
                let limit = tokio::time::timeout(target.timeout, written).await;
                limit.unwrap_or_else(|_| Sent::Lost("the file system did not answer".into()))
            }
            TargetKind::Command { argv, folder } => {
                let state_dir = &config.state_dir;
                let place = command::Place { folder, state_dir, supervisor };
                command::send(letter, argv, target.timeout, &place).await
            }
            TargetKind::Slack { url } => {
                slack::send(letter, url, target.timeout, out, &self.outlet.store).await
            }
            TargetKind::Email(email) => {
                email::send(letter, email, target.timeout, &config.environment).await
            }
        }
    }
}

/// What there is to say, and when the job is due next.
fn content(store: &Store, about: &About) -> Result<Option<(Content, Option<String>)>, StoreError> {
    let reader = store.reader()?;
    match about {
        About::Run(run_id) => {
            let Some(run) = reader.run(run_id)? else { return Ok(None) };
            let next_due = reader.next_due_of(&run.job)?;
            Ok(Some((Content::Run(Box::new(run)), next_due)))
        }
        About::Message(run_id, text) => {
            let Some(run) = reader.run(run_id)? else { return Ok(None) };
            let next_due = reader.next_due_of(&run.job)?;
            Ok(Some((Content::Message(Box::new(run), text.clone()), next_due)))
        }
        About::Incident(id, event) => {
            let Some(incident) = reader.incident(id)? else { return Ok(None) };
            let next_due = match &incident.job {
                Some(job) => reader.next_due_of(job)?,
                None => None,
            };
            let run = incident.run_id.as_deref().map(|run_id| reader.run(run_id)).transpose()?;
            let run = run.flatten().map(Box::new);
            Ok(Some((Content::Incident(Box::new(incident), *event, run), next_due)))
        }
    }
}

/// A receiver's words may repeat what it was sent.
fn masked(end: DeliveryEnd, masker: &Masker) -> DeliveryEnd {
    let mask = |why: String| masker.mask(&why).into_owned();
    match end {
        DeliveryEnd::Sent => DeliveryEnd::Sent,
        DeliveryEnd::Failed(why) => DeliveryEnd::Failed(mask(why)),
        DeliveryEnd::Unknown(why) => DeliveryEnd::Unknown(mask(why)),
        DeliveryEnd::Again(why, at) => DeliveryEnd::Again(mask(why), at),
        DeliveryEnd::Suppressed(why) => DeliveryEnd::Suppressed(mask(why)),
    }
}

fn log(outgoing: &Outgoing, end: &DeliveryEnd) {
    let Outgoing { delivery_id, target, attempt, .. } = outgoing;
    match end {
        DeliveryEnd::Sent => tracing::info!(delivery_id, target, attempt, "delivered"),
        DeliveryEnd::Again(error, at) => {
            tracing::info!(delivery_id, target, attempt, error, again_at = %at, "not delivered yet");
        }
        DeliveryEnd::Failed(error) => {
            tracing::warn!(delivery_id, target, attempt, error, "delivery failed");
        }
        DeliveryEnd::Suppressed(why) => {
            tracing::info!(delivery_id, target, attempt, why, "not let out");
        }
        DeliveryEnd::Unknown(error) => {
            tracing::warn!(
                delivery_id,
                target,
                attempt,
                error,
                "it is not known whether it arrived"
            );
        }
    }
}
