//! The hooks of `serve` itself: that it has started, and that it stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::dispatcher::Scheduling;
use super::open::Daemon;
use super::serve::Stopped;
use crate::config::HookPoint;
use crate::executor::{Commanded, Executor};
use crate::hooks::{
    CommandGiven, GatewayShutdown, GatewayStart, GatewayStartup, GatewayStop, MessageReceived,
};
use crate::job::{Masker, SessionKey};
use crate::process::Household;
use crate::run::RunId;

/// How long hooks may take when `serve` leaves: none is a reason to stay.
const AT_THE_END: Duration = Duration::from_secs(5);

/// From TERM to KILL, of what a hook has left.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// What is told at the start, while it is being told.
pub(super) struct Told(Option<JoinHandle<()>>);

impl Daemon {
    /// Tells that `serve` has started. Nobody waits for it.
    pub(super) fn tell_started(&self) -> Told {
        let points = [HookPoint::GatewayStart, HookPoint::GatewayStartup];
        let executor = &self.executor;
        let is_wanted = self.dispatcher.scheduling() == Scheduling::On
            && points.into_iter().any(|point| executor.hooks.has(point));
        let (executor, jobs) = (Arc::clone(executor), self.jobs());
        Told(is_wanted.then(|| {
            tokio::spawn(async move {
                let (household, site) = site(&executor);
                let start = site.tell(GatewayStart { jobs });
                tokio::join!(start, site.tell(GatewayStartup { jobs }));
                household.end_all(STOP_GRACE).await;
            })
        }))
    }

    /// Tells that it stops, after what it said at its start.
    pub(super) async fn tell_stopping(&self, told: Told, stopped: Stopped) {
        if let Some(telling) = told.0 {
            // Its household ends with it.
            telling.abort();
            drop(telling.await);
        }
        let points = [HookPoint::GatewayStop, HookPoint::GatewayShutdown];
        let is_wanted = self.dispatcher.scheduling() == Scheduling::On
            && stopped != Stopped::AtOnce
            && points.into_iter().any(|point| self.executor.hooks.has(point));
        if !is_wanted {
            return;
        }
        let (household, site) = site(&self.executor);
        let site = site.until(self.in_from_now(AT_THE_END));
        tokio::join!(site.tell(GatewayStop {}), site.tell(GatewayShutdown {}));
        household.end_all(STOP_GRACE).await;
        // What they did is written before the process goes.
        drop(tokio::time::timeout(STOP_GRACE, self.executor.store.checkpoint()).await);
    }
}

/// Tells that a message was a command. Nobody waits for it.
pub(super) fn tell_command(executor: &Arc<Executor>, commanded: Commanded) {
    executor.tell_command(&commanded);
    if !executor.hooks.has(HookPoint::Command) {
        return;
    }
    let executor = Arc::clone(executor);
    tokio::spawn(async move {
        let (household, site) = site(&executor);
        let Commanded { word, key, arguments, .. } = commanded;
        let (command, session_key) = (word.to_string(), key.to_string());
        site.tell(CommandGiven { command, session_key, arguments }).await;
        household.end_all(STOP_GRACE).await;
    });
}

/// Tells that somebody has said something into a session. Nobody waits for it.
pub(super) fn tell_received(executor: &Arc<Executor>, key: &SessionKey, text: String) {
    if !executor.hooks.has(HookPoint::MessageReceived) {
        return;
    }
    let (executor, session_key) = (Arc::clone(executor), key.to_string());
    tokio::spawn(async move {
        let (household, site) = site(&executor);
        site.tell(MessageReceived { session_key, text, via: "agent" }).await;
        household.end_all(STOP_GRACE).await;
    });
}

/// A place for hooks of no run.
fn site(executor: &Executor) -> (Household, crate::hooks::HookSite) {
    let id = RunId::new(executor.clock.wall());
    let household = Household::new(executor.supervisor.clone(), format!("hook-{id}"));
    let secrets = executor.models.secrets().chain(executor.config.target_secrets());
    let site = executor.hook_site(household.clone(), Arc::new(Masker::new(secrets)));
    (household, site)
}
