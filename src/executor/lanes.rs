//! Queues with a width. The order is fixed, so that two runs never wait for each other: the
//! session's lane (an isolated run has its own), then the job's named lane, then the global one.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All lanes of a daemon.
#[derive(Debug)]
pub struct Lanes {
    global: Option<Lane>,
    named: BTreeMap<String, Lane>,
}

#[derive(Debug)]
struct Lane {
    width: usize,
    places: Arc<Semaphore>,
}

/// The places that a run holds; dropping it gives all of them back, once, also on a panic.
#[derive(Debug)]
pub struct Permits {
    _named: Option<OwnedSemaphorePermit>,
    _global: Option<OwnedSemaphorePermit>,
}

/// A lane as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneView {
    /// Its name; the global one is `*`.
    pub lane: String,
    /// How many runs may hold it at once.
    pub width: usize,
    /// How many do.
    pub held: usize,
}

impl Lanes {
    /// The global lane (`None`: there is none) and the named ones, with their widths.
    pub fn new(global: Option<NonZeroUsize>, named: &BTreeMap<String, NonZeroUsize>) -> Self {
        Self {
            global: global.map(Lane::new),
            named: named.iter().map(|(name, &width)| (name.clone(), Lane::new(width))).collect(),
        }
    }

    /// Waits for a place in the lane `name` and then for one in the global lane.
    pub async fn acquire(&self, name: Option<&str>) -> Permits {
        let named = match name.and_then(|name| self.named.get(name)) {
            Some(lane) => Some(lane.acquire().await),
            None => None,
        };
        let global = match &self.global {
            Some(lane) => Some(lane.acquire().await),
            None => None,
        };
        Permits { _named: named, _global: global }
    }

    /// Every lane with what is held of it.
    pub fn view(&self) -> Vec<LaneView> {
        let global = self.global.iter().map(|lane| lane.view("*"));
        global.chain(self.named.iter().map(|(name, lane)| lane.view(name))).collect()
    }
}

impl Lane {
    fn new(width: NonZeroUsize) -> Self {
        // The semaphore has an upper bound far beyond any machine.
        let width = width.get().min(Semaphore::MAX_PERMITS);
        Self { width, places: Arc::new(Semaphore::new(width)) }
    }

    async fn acquire(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.places).acquire_owned().await.expect("a lane is never closed")
    }

    fn view(&self, name: &str) -> LaneView {
        let held = self.width - self.places.available_permits();
        LaneView { lane: name.to_owned(), width: self.width, held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).unwrap()
    }

    #[tokio::test]
    async fn a_run_that_waits_for_a_named_lane_holds_no_global_place() {
        let lanes = Lanes::new(Some(width(2)), &BTreeMap::from([("w".into(), width(1))]));
        let first = lanes.acquire(Some("w")).await;
        let mut second = Box::pin(lanes.acquire(Some("w")));
        assert!(futures_util::poll!(&mut second).is_pending());
        let other = lanes.acquire(None).await;
        let view = |lane: &str, width, held| LaneView { lane: lane.into(), width, held };
        assert_eq!(lanes.view(), [view("*", 2, 2), view("w", 1, 1)]);
        drop((first, other));
        drop(second.await);
        assert_eq!(lanes.view(), [view("*", 2, 0), view("w", 1, 0)]);
    }

    #[tokio::test]
    async fn places_are_given_in_the_order_of_asking() {
        let lanes = Lanes::new(Some(width(1)), &BTreeMap::new());
        let held = lanes.acquire(None).await;
        let mut first = Box::pin(lanes.acquire(None));
        let mut second = Box::pin(lanes.acquire(None));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(held);
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first.await);
        drop(second.await);
    }
}
