//! The waiting half of the daemon: the loop.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::alerts::Alerts;
use super::desk::{Desk, answer_all};
use super::dispatcher::Scheduling;
use super::event::{Command, Event};
use super::hands::Hands;
use super::housekeeping::Housekeeping;
use super::open::Daemon;
use super::signals::{Signal, Signals};
use super::socket;
use super::ticker::Ticker;
use super::watch::FileWatch;
use crate::clock::Deadline;
use crate::delivery::{Outlet, Pings, Sender};
use crate::executor::Executor;

/// Events that may wait. The loop takes microseconds for one; whoever has to wait here waits for
/// that long.
const EVENTS_MAX: usize = 1024;

/// After the grace, runs are cut and tidied; a process that would not die by then is left to its
/// supervisor, and its row to the next start.
const TIDY_AFTER_GRACE: Duration = Duration::from_secs(2);

/// How long the rows of what still runs may take to be closed when it is time to leave.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// How long a process that was there for one run tries to send what comes of it.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// How long what is just being sent may take when `serve` leaves; what is cut by this may have
/// arrived.
const SENT_AT_THE_END: Duration = Duration::from_secs(5);

/// How long the last look for incidents may take.
const LOOKED_WITHIN: Duration = Duration::from_secs(2);

/// How long what is left to ring may take at the end: a switch is no reason to stay.
const RUNG_AT_THE_END: Duration = Duration::from_secs(3);

/// How a daemon came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Nothing was left to do: every run had ended, by itself or at the end of the grace.
    Done,
    /// The grace, or what was left of it, ran out with runs still being tidied.
    OutOfGrace,
    /// A second signal.
    AtOnce,
}

/// A daemon's ears.
#[derive(Debug)]
pub struct Listening {
    pub(super) signals: Signals,
    pub(super) socket: UnixListener,
}

/// How far the stop has come.
enum Stop {
    NotAsked,
    /// Until the grace is over.
    Grace(Deadline),
    /// Until the tidying is cut.
    Tidy(Deadline),
}

impl Daemon {
    /// Serves until it is stopped.
    pub async fn serve(mut self, listening: Listening) -> std::io::Result<Stopped> {
        let Listening { socket, mut signals } = listening;
        // First of all: whoever gets an answer may rely on it.
        let mut watch = self.watch_files();
        let (sender, mut events) = mpsc::channel(EVENTS_MAX);
        let desk = tokio::spawn(answer_all(socket, self.desk(sender.clone())));
        let housekeeping = self.keep_house();
        let ticker = Ticker::start(Arc::clone(&self.executor.clock), sender.clone())?;
        let hands = Hands::new(sender.clone());
        let mut outlet = self.outlet_of_a_daemon_that_stays();
        let mut alerts = outlet.is_some().then(|| self.open_alerts());
        let pings = self.open_pings();
        let mut stop = Stop::NotAsked;
        let mut patrol = Deadline::NEVER;
        let mut beat = self.first_beat();
        let told = self.tell_started();

        // What a dead process left comes first; then what was missed while nobody looked.
        let recovered = std::mem::take(&mut self.recovered);
        let mut commands = self.dispatcher.recover(recovered, self.executor.clock.now());
        let mut event = Some(Event::Woke);
        let stopped = 'serving: loop {
            let now = self.executor.clock.now();
            let adopts = matches!(event, Some(Event::FilesAdopted(..)));
            commands.extend(event.take().into_iter().flat_map(|it| self.dispatcher.step(it, now)));
            for command in commands.drain(..) {
                match command {
                    Command::Exit => break 'serving Stopped::Done,
                    Command::UseConfig(config) => {
                        let before = self.beats_every();
                        self.executor = Arc::new(self.executor.under(config));
                        self.tell_config(housekeeping.as_ref(), outlet.as_ref(), &pings);
                        if before != self.beats_every() {
                            beat = self.first_beat();
                        }
                        self.watch_anew(&mut watch);
                    }
                    command => {
                        if command.starts_a_run() {
                            outlet.get_or_insert_with(|| self.open_outlet());
                            alerts.get_or_insert_with(|| self.open_alerts());
                        }
                        if let Command::Record { record, .. } = &command {
                            pings.decided(record);
                            if let Some(housekeeping) = &housekeeping {
                                housekeeping.note_change();
                            }
                        }
                        hands.carry_out(&self.executor, command);
                    }
                }
            }
            if let Some(alerts) = alerts.as_ref().filter(|_| adopts) {
                alerts.use_rules(self.dispatcher.alert_rules());
            }
            if adopts {
                pings.use_urls(self.dispatcher.ping_urls());
            }
            ticker.aim(self.dispatcher.wake());
            patrol = self.next_patrol(patrol);
            event = tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    Signal::Stop => match self.on_signal(&mut stop) {
                        Some(event) => Some(event),
                        None => break Stopped::AtOnce,
                    },
                    Signal::Reload => Some(Event::ReloadWanted(None)),
                },
                () = stop.limit().wait() => match stop {
                    Stop::Grace(_) => {
                        stop = Stop::Tidy(self.in_from_now(TIDY_AFTER_GRACE));
                        Some(Event::GraceOver)
                    }
                    Stop::NotAsked | Stop::Tidy(_) => break Stopped::OutOfGrace,
                },
                () = watch.changed() => {
                    // A folder that was replaced has to be watched anew.
                    self.watch_anew(&mut watch);
                    Some(Event::ReloadWanted(None))
                }
                () = patrol.wait() => {
                    patrol = Deadline::NEVER;
                    Some(Event::Patrol)
                }
                // Here, so that a loop that hangs is missed.
                () = beat.wait() => {
                    beat = self.beat(&pings, &stop);
                    None
                }
                event = events.recv() => event,
            };
        };
        let rest = self.tell_the_rest(stopped, alerts, outlet, pings, &mut signals);
        tokio::join!(rest, self.tell_stopping(told, stopped));
        drop((ticker, housekeeping));
        desk.abort();
        socket::remove(&self.executor.config.state_dir);
        tracing::info!(how = ?stopped, "stopped");
        Ok(stopped)
    }

    /// Everything that goes on by itself goes on under the configuration that is now in force.
    fn tell_config(
        &self,
        housekeeping: Option<&Housekeeping>,
        outlet: Option<&Sender>,
        pings: &Pings,
    ) {
        let Executor { config, hooks, .. } = &*self.executor;
        if let Some(housekeeping) = housekeeping {
            housekeeping.use_config(config);
        }
        if let Some(outlet) = outlet {
            outlet.use_config(Arc::clone(config), Arc::clone(hooks));
        }
        pings.use_config(Arc::clone(config));
    }

    fn desk(&self, events: mpsc::Sender<Event>) -> Desk {
        let Executor { bus, store, lanes, .. } = &*self.executor;
        Desk { events, bus: bus.clone(), store: store.clone(), lanes: lanes.clone() }
    }

    /// Closes and tells what there is left to close and to tell. A switch is rung meanwhile.
    async fn tell_the_rest(
        &self,
        stopped: Stopped,
        alerts: Option<Alerts>,
        outlet: Option<Sender>,
        pings: Pings,
        signals: &mut Signals,
    ) {
        if stopped != Stopped::Done {
            self.close_rows().await;
        }
        if let (Some(alerts), Stopped::Done) = (&alerts, stopped) {
            // What has just happened is told before anybody leaves.
            drop(tokio::time::timeout(LOOKED_WITHIN, alerts.look()).await);
        }
        let within = match stopped {
            Stopped::Done => RUNG_AT_THE_END,
            Stopped::OutOfGrace | Stopped::AtOnce => Duration::ZERO,
        };
        let sent = async {
            if let Some(outlet) = outlet {
                self.close_outlet(outlet, stopped, signals).await;
            }
        };
        tokio::join!(sent, pings.close(within));
    }

    /// Listens for signals and on the control socket. Apart from [`Daemon::serve`], so that whoever
    /// starts it knows that it can be reached; signals first, so that whoever reaches it can stop it.
    pub fn listen(&self) -> std::io::Result<Listening> {
        let signals = Signals::listen(self.dispatcher.scheduling())?;
        Ok(Listening { signals, socket: socket::listen(&self.executor.config.state_dir)? })
    }

    /// Whoever is there for one request leaves the tidying to others.
    fn keep_house(&self) -> Option<Housekeeping> {
        let Executor { store, clock, config, .. } = &*self.executor;
        let stays = self.dispatcher.scheduling() == Scheduling::On;
        stays.then(|| Housekeeping::start(store.clone(), Arc::clone(clock), config))
    }

    /// Whoever leaves with runs under way says so in their rows. Their processes are ended by
    /// their supervisors once this process is gone.
    async fn close_rows(&self) {
        let now = crate::clock::to_millis(self.executor.clock.wall());
        let closed = self.executor.store.close_open_runs(now);
        match tokio::time::timeout(CLOSE_WITHIN, closed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "could not close the rows of what still ran"),
            Err(_) => tracing::error!("the database took too long: the next start closes the rows"),
        }
    }

    /// The first signal begins the grace; `None` for the second.
    fn on_signal(&self, stop: &mut Stop) -> Option<Event> {
        match stop {
            Stop::NotAsked => {
                // A single run has nobody to be graceful to: whoever ends it wants it ended.
                let grace = match self.dispatcher.scheduling() {
                    Scheduling::On => self.executor.config.scheduler.shutdown_grace,
                    Scheduling::Off => Duration::ZERO,
                };
                let runs = self.dispatcher.active();
                tracing::info!(grace = %humantime::format_duration(grace), runs, "stopping");
                *stop = Stop::Grace(self.in_from_now(grace));
                Some(Event::Stop)
            }
            Stop::Grace(_) | Stop::Tidy(_) => None,
        }
    }

    /// When to look at the sessions next: never while there are none, and no later for whatever
    /// happens in between.
    fn next_patrol(&self, planned: Deadline) -> Deadline {
        match self.dispatcher.patrol_every() {
            None => Deadline::NEVER,
            Some(every) if planned == Deadline::NEVER => self.in_from_now(every),
            Some(_) => planned,
        }
    }

    /// `serve` sends what an earlier process has left; a process that is there for one request
    /// sends once it has a run.
    fn outlet_of_a_daemon_that_stays(&self) -> Option<Sender> {
        (self.dispatcher.scheduling() == Scheduling::On).then(|| self.open_outlet())
    }

    fn open_pings(&mut self) -> Pings {
        let (_, none) = mpsc::unbounded_channel();
        let milestones = std::mem::replace(&mut self.milestones, none);
        let Executor { store, config, .. } = &*self.executor;
        let pings = Pings::start(store.clone(), Arc::clone(config), milestones);
        pings.use_urls(self.dispatcher.ping_urls());
        pings
    }

    fn beats_every(&self) -> Option<Duration> {
        self.executor.config.heartbeat.as_ref().map(|it| it.every)
    }

    /// `serve` says at once that it lives; a process that is there for one request never does.
    fn first_beat(&self) -> Deadline {
        match (self.dispatcher.scheduling(), &self.executor.config.heartbeat) {
            (Scheduling::On, Some(_)) => self.in_from_now(Duration::ZERO),
            (Scheduling::On, None) | (Scheduling::Off, _) => Deadline::NEVER,
        }
    }

    /// Says that it lives, and when to say it next. Whoever leaves says nothing more.
    fn beat(&self, pings: &Pings, stop: &Stop) -> Deadline {
        match (stop, &self.executor.config.heartbeat) {
            (Stop::NotAsked, Some(heartbeat)) => {
                pings.beat();
                self.in_from_now(heartbeat.every)
            }
            (Stop::NotAsked, None) | (Stop::Grace(_) | Stop::Tidy(_), _) => Deadline::NEVER,
        }
    }

    fn open_alerts(&self) -> Alerts {
        let Executor { store, clock, .. } = &*self.executor;
        let (rules, scheduling) = (self.dispatcher.alert_rules(), self.dispatcher.scheduling());
        Alerts::start(store.clone(), Arc::clone(clock), rules, scheduling)
    }

    fn open_outlet(&self) -> Sender {
        let Executor { store, clock, config, supervisor, hooks, .. } = &*self.executor;
        Sender::start(Outlet {
            hooks: Arc::clone(hooks),
            store: store.clone(),
            clock: Arc::clone(clock),
            config: Arc::clone(config),
            supervisor: supervisor.clone(),
        })
    }

    /// What is not sent by then is sent by the next process.
    async fn close_outlet(&self, outlet: Sender, stopped: Stopped, signals: &mut Signals) {
        match (stopped, self.dispatcher.scheduling()) {
            // Nobody else may come: its own run's results are sent before it goes.
            (Stopped::Done, Scheduling::Off) => {
                let now = crate::clock::to_millis(self.executor.clock.wall());
                tokio::select! {
                    () = outlet.drain(DRAIN_WITHIN, now) => {}
                    _ = signals.next() => {}
                }
            }
            (Stopped::Done, Scheduling::On) => outlet.stop(SENT_AT_THE_END).await,
            (Stopped::OutOfGrace | Stopped::AtOnce, _) => outlet.stop(Duration::ZERO).await,
        }
    }

    fn watch_files(&self) -> FileWatch {
        let Executor { config, clock, .. } = &*self.executor;
        FileWatch::start(config, self.dispatcher.scheduling(), clock)
    }

    fn watch_anew(&self, watch: &mut FileWatch) {
        watch.renew(&self.executor.config, self.dispatcher.scheduling());
    }

    pub(super) fn in_from_now(&self, length: Duration) -> Deadline {
        let now: Instant = self.executor.clock.monotonic();
        Deadline::after(now, length)
    }
}

impl Stop {
    fn limit(&self) -> Deadline {
        match self {
            Self::NotAsked => Deadline::NEVER,
            Self::Grace(until) | Self::Tidy(until) => *until,
        }
    }
}
