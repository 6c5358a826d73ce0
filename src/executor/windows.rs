//! The window of a model of which the configuration does not say it: its server may.
//!
//! Only a run that is about to use the model asks, and only a server of this machine or network.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::models::{Models, Resolved};
use super::next_attempt::TimeLeft;
use super::run::Executor;
use super::watchdog::Watchdog;
use crate::cassette::Plays;
use crate::job::ModelRef;
use crate::provider::{Locality, served_window};

/// A server on the same machine or network tells it at once, or not.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// The part of a run's time that may be spent on it.
const TIME_SHARE: u32 = 8;

/// How long an answer holds, as that of a probe does.
const HOLDS: Duration = Duration::from_mins(5);

/// What servers have said, and when.
#[derive(Debug, Default)]
pub(super) struct Windows(Mutex<HashMap<ModelRef, (Instant, Option<u64>)>>);

impl Executor {
    /// Learns the window of the model that is asked next, where it is not known.
    pub(super) async fn learn_window(&self, resolved: &mut Resolved, watchdog: &Watchdog) {
        if resolved.model.context_window.is_some() {
            return;
        }
        let recorded = self.deck.as_ref().filter(|deck| deck.plays() == Plays::Cassette);
        if let Some(deck) = recorded {
            resolved.model.context_window = deck.window(&resolved.name.to_string());
            return;
        }
        let within = match watchdog.time_left() {
            TimeLeft::Until { left, .. } => ANSWERED_WITHIN.min(left / TIME_SHARE),
            TimeLeft::Unlimited => ANSWERED_WITHIN,
        };
        let window = self.models.window(resolved, self.clock.monotonic(), within).await;
        resolved.model.context_window = window;
    }
}

impl Models {
    async fn window(&self, of: &Resolved, now: Instant, within: Duration) -> Option<u64> {
        if of.locality == Locality::Cloud {
            return None;
        }
        if let Some((at, window)) = self.windows.get(&of.name)
            && now < at + HOLDS
        {
            return window;
        }
        let (speaks, endpoint) = self.endpoint_of(&of.name, of.profile_at)?;
        let client = self.client(of.locality).ok()?;
        let window = served_window(&client, speaks, &endpoint, &of.model.name, within).await;
        tracing::debug!(model = %of.name, window, "a server was asked for the window of its model");
        self.windows.put(&of.name, now, window);
        window
    }
}

impl Windows {
    fn get(&self, model: &ModelRef) -> Option<(Instant, Option<u64>)> {
        self.0.lock().expect("no holder of this lock can panic").get(model).copied()
    }

    fn put(&self, model: &ModelRef, at: Instant, window: Option<u64>) {
        let mut known = self.0.lock().expect("no holder of this lock can panic");
        known.insert(model.clone(), (at, window));
    }
}
