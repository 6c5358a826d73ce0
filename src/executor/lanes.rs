//! Queues with a width. The order is fixed, so that two runs never wait for each other: the
//! session's lane (an isolated run has its own), then the job's named lane, then the global one.
//!
//! In each lane whoever asked first goes first, within a [`Rank`]: a storm of runs that make up
//! for missed slots holds up neither what comes in time nor a person.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::run::{RunId, SessionId, Trigger};

/// The name of the lane that every run waits in.
const GLOBAL: &str = "*";

/// All lanes of a daemon.
#[derive(Debug, Clone, Default)]
pub struct Lanes(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    lanes: BTreeMap<Name, Lane>,
    /// Numbers those who ask, so that the first goes first.
    asked: u64,
}

#[derive(Debug)]
struct Lane {
    width: usize,
    held: BTreeMap<Place, RunId>,
    waiting: BTreeMap<Place, (RunId, oneshot::Sender<()>)>,
}

/// What a lane is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    /// As in the configuration, or the global one.
    Lane(String),
    /// That of a session, which is there as long as somebody is in it.
    Session(String),
}

/// Who goes first.
type Place = (Rank, u64);

/// Which runs go before which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Somebody waits for it.
    ByHand,
    /// Its time has come.
    InTime,
    /// Its time has passed.
    MadeUp,
}

/// The places that a run holds; dropping it gives all of them back, once, also on a panic.
#[derive(Debug)]
pub struct Permits {
    _global: Option<Permit>,
    _named: Option<Permit>,
    _session: Option<SessionPermit>,
}

/// The one place in a session's lane.
#[derive(Debug)]
pub struct SessionPermit {
    _permit: Option<Permit>,
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
    /// How many wait for it.
    pub waiting: usize,
    /// The runs that hold it, the first few of them.
    #[serde(default)]
    pub holders: Vec<String>,
    /// The runs that wait for it, the next one first, as many.
    #[serde(default)]
    pub line: Vec<String>,
}

/// So many runs of a lane are shown by name.
const SHOWN_MAX: usize = 20;

impl Rank {
    /// The rank of a run that was started by `trigger`.
    pub const fn of(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Manual | Trigger::Rpc => Self::ByHand,
            Trigger::Schedule | Trigger::Retry | Trigger::After => Self::InTime,
            Trigger::Catchup | Trigger::Backfill => Self::MadeUp,
        }
    }
}

impl Lanes {
    /// The global lane (`None`: there is none) and the named ones, with their widths.
    pub fn new(global: Option<NonZeroUsize>, named: &BTreeMap<String, NonZeroUsize>) -> Self {
        let lanes = Self::default();
        lanes.resize(global, named);
        lanes
    }

    /// Other widths. What is held stays held; a lane that is no longer named is gone when nobody
    /// holds it.
    pub fn resize(&self, global: Option<NonZeroUsize>, named: &BTreeMap<String, NonZeroUsize>) {
        let mut state = self.state();
        let wanted = |name: &Name| match name {
            Name::Session(_) => Some(NonZeroUsize::MIN),
            Name::Lane(name) if name == GLOBAL => global,
            Name::Lane(name) => named.get(name).copied(),
        };
        for (name, lane) in &mut state.lanes {
            lane.width = wanted(name).map_or(usize::MAX, NonZeroUsize::get);
            lane.let_in();
        }
        state.lanes.retain(|name, lane| wanted(name).is_some() || !lane.held.is_empty());
        let all = named.keys().map(String::as_str).chain(global.map(|_| GLOBAL));
        for name in all {
            let name = Name::Lane(name.to_owned());
            let width = wanted(&name).map_or(usize::MAX, NonZeroUsize::get);
            state.lanes.entry(name).or_insert_with(|| Lane::new(width));
        }
    }

    /// Waits for the place in the lane of `session`: there whoever asked first goes first.
    pub async fn enter(&self, session: &SessionId, who: &RunId) -> SessionPermit {
        let name = Name::Session(session.to_string());
        SessionPermit { _permit: self.acquire_one(name, Rank::InTime, who).await }
    }

    /// Waits for a place in the lane `name` and then for one in the global lane, for the run `who`.
    pub async fn acquire(&self, name: Option<&str>, rank: Rank, who: &RunId) -> Permits {
        let named = match name {
            Some(name) => self.acquire_one(Name::Lane(name.to_owned()), rank, who).await,
            None => None,
        };
        let global = self.acquire_one(Name::Lane(GLOBAL.to_owned()), rank, who).await;
        Permits { _global: global, _named: named, _session: None }
    }

    async fn acquire_one(&self, name: Name, rank: Rank, who: &RunId) -> Option<Permit> {
        let mut waiter = self.stand_in_line(name, rank, who)?;
        if let Some(turn) = &mut waiter.turn {
            turn.await.expect("whoever waits is let in or goes away");
        }
        Some(waiter.into_permit())
    }

    fn stand_in_line(&self, name: Name, rank: Rank, who: &RunId) -> Option<Waiter> {
        let mut state = self.state();
        let place = (rank, state.asked);
        state.asked += 1;
        if matches!(name, Name::Session(_)) {
            state.lanes.entry(name.clone()).or_insert_with(|| Lane::new(1));
        }
        let lane = state.lanes.get_mut(&name)?;
        let turn = if lane.held.len() < lane.width {
            lane.held.insert(place, who.clone());
            None
        } else {
            let (sender, receiver) = oneshot::channel();
            lane.waiting.insert(place, (who.clone(), sender));
            Some(receiver)
        };
        Some(Waiter { lane: Some((self.clone(), name)), place, turn })
    }

    /// Every lane with what is held of it.
    pub fn view(&self) -> Vec<LaneView> {
        let view = |(name, lane): (&Name, &Lane)| {
            // Of sessions there are too many, and each says who is in it by itself.
            let Name::Lane(name) = name else { return None };
            let line = lane.waiting.values().take(SHOWN_MAX);
            Some(LaneView {
                lane: name.clone(),
                width: lane.width,
                held: lane.held.len(),
                waiting: lane.waiting.len(),
                holders: lane.held.values().take(SHOWN_MAX).map(RunId::to_string).collect(),
                line: line.map(|(who, _)| who.to_string()).collect(),
            })
        };
        self.state().lanes.iter().filter_map(view).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder of this lock can panic")
    }
}

impl Permits {
    /// Together with the place in a session's lane.
    #[must_use]
    pub fn within(self, session: Option<SessionPermit>) -> Self {
        Self { _session: session, ..self }
    }
}

impl State {
    /// A session's lane goes with the last who was in it.
    fn sweep(&mut self, name: &Name) {
        let is_empty = |lane: &Lane| lane.held.is_empty() && lane.waiting.is_empty();
        if matches!(name, Name::Session(_)) && self.lanes.get(name).is_some_and(is_empty) {
            self.lanes.remove(name);
        }
    }
}

impl Lane {
    fn new(width: usize) -> Self {
        Self { width, held: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    /// Gives free places to those who wait.
    fn let_in(&mut self) {
        while self.held.len() < self.width
            && let Some((place, (who, turn))) = self.waiting.pop_first()
        {
            // Whoever has gone away since gives its place back when it notices.
            self.held.insert(place, who);
            let _ = turn.send(());
        }
    }
}

/// One place in one lane.
#[derive(Debug)]
struct Permit {
    lanes: Lanes,
    name: Name,
    place: Place,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.lanes.state();
        if let Some(lane) = state.lanes.get_mut(&self.name) {
            lane.held.remove(&self.place);
            lane.let_in();
        }
        state.sweep(&self.name);
    }
}

/// Somebody in line. Going away gives up the place, or gives it back if it has just been given.
struct Waiter {
    /// The lane, until the permit is made of it.
    lane: Option<(Lanes, Name)>,
    place: Place,
    /// `None`: a place was free.
    turn: Option<oneshot::Receiver<()>>,
}

impl Waiter {
    fn into_permit(mut self) -> Permit {
        let (lanes, name) = self.lane.take().expect("it is taken here alone");
        Permit { lanes, name, place: self.place }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let Some((lanes, name)) = self.lane.take() else { return };
        let waited = {
            let mut state = lanes.state();
            let lane = state.lanes.get_mut(&name);
            let waited = lane.is_some_and(|lane| lane.waiting.remove(&self.place).is_some());
            state.sweep(&name);
            waited
        };
        if !waited {
            drop(Permit { lanes, name, place: self.place });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).unwrap()
    }

    fn ask(
        lanes: &Lanes,
        name: Option<&'static str>,
        rank: Rank,
    ) -> impl Future<Output = Permits> + use<> {
        let lanes = lanes.clone();
        async move { lanes.acquire(name, rank, &RunId::from_stored("run")).await }
    }

    /// Lane, width, holders, line.
    fn view(lanes: &Lanes) -> Vec<(String, usize, Vec<String>, Vec<String>)> {
        let told = lanes.view().into_iter().inspect(|it| {
            assert_eq!((it.held, it.waiting), (it.holders.len(), it.line.len()));
        });
        told.map(|it| (it.lane, it.width, it.holders, it.line)).collect()
    }

    fn seen(
        lane: &str,
        width: usize,
        held: usize,
        waiting: usize,
    ) -> (String, usize, Vec<String>, Vec<String>) {
        let runs = |count| vec!["run".to_owned(); count];
        (lane.into(), width, runs(held), runs(waiting))
    }

    #[tokio::test]
    async fn a_run_that_waits_for_a_named_lane_holds_no_global_place() {
        let lanes = Lanes::new(Some(width(2)), &BTreeMap::from([("w".into(), width(1))]));
        let first = ask(&lanes, Some("w"), Rank::InTime).await;
        let mut second = Box::pin(ask(&lanes, Some("w"), Rank::InTime));
        assert!(futures_util::poll!(&mut second).is_pending());
        let other = ask(&lanes, None, Rank::InTime).await;
        assert_eq!(view(&lanes), [seen("*", 2, 2, 0), seen("w", 1, 1, 1)]);
        drop((first, other));
        drop(second.await);
        assert_eq!(view(&lanes), [seen("*", 2, 0, 0), seen("w", 1, 0, 0)]);
    }

    #[tokio::test]
    async fn places_are_given_in_the_order_of_asking() {
        let lanes = Lanes::new(Some(width(1)), &BTreeMap::new());
        let held = ask(&lanes, None, Rank::InTime).await;
        let mut first = Box::pin(ask(&lanes, None, Rank::InTime));
        let mut second = Box::pin(ask(&lanes, None, Rank::InTime));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(held);
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first.await);
        drop(second.await);
    }

    #[tokio::test]
    async fn a_person_goes_before_what_is_in_time_and_that_before_what_is_made_up() {
        let lanes = Lanes::new(Some(width(1)), &BTreeMap::new());
        let held = ask(&lanes, None, Rank::InTime).await;
        let mut made_up = Box::pin(ask(&lanes, None, Rank::MadeUp));
        let mut in_time = Box::pin(ask(&lanes, None, Rank::InTime));
        let mut by_hand = Box::pin(ask(&lanes, None, Rank::ByHand));
        assert!(futures_util::poll!(&mut made_up).is_pending());
        assert!(futures_util::poll!(&mut in_time).is_pending());
        assert!(futures_util::poll!(&mut by_hand).is_pending());
        drop(held);
        assert!(futures_util::poll!(&mut made_up).is_pending());
        assert!(futures_util::poll!(&mut in_time).is_pending());
        drop(by_hand.await);
        assert!(futures_util::poll!(&mut made_up).is_pending());
        drop(in_time.await);
        drop(made_up.await);
    }

    #[tokio::test]
    async fn whoever_goes_away_leaves_its_place_to_the_next_also_when_just_let_in() {
        let lanes = Lanes::new(Some(width(1)), &BTreeMap::new());
        let held = ask(&lanes, None, Rank::InTime).await;
        let mut gone = Box::pin(ask(&lanes, None, Rank::InTime));
        let mut let_in = Box::pin(ask(&lanes, None, Rank::InTime));
        let mut last = Box::pin(ask(&lanes, None, Rank::InTime));
        assert!(futures_util::poll!(&mut gone).is_pending());
        assert!(futures_util::poll!(&mut let_in).is_pending());
        assert!(futures_util::poll!(&mut last).is_pending());
        drop(gone);
        drop(held);
        drop(let_in);
        drop(last.await);
        assert_eq!((lanes.view()[0].held, lanes.view()[0].waiting), (0, 0));
    }

    #[tokio::test]
    async fn a_panic_gives_its_places_back_once() {
        let lanes = Lanes::new(Some(width(1)), &BTreeMap::from([("w".into(), width(2))]));
        let held = ask(&lanes, Some("w"), Rank::InTime);
        let panics = tokio::spawn(async move {
            let _permits = held.await;
            panic!("a fault in the run");
        });
        assert!(panics.await.unwrap_err().is_panic());
        assert_eq!(view(&lanes), [seen("*", 1, 0, 0), seen("w", 2, 0, 0)]);
        let one = ask(&lanes, None, Rank::InTime).await;
        let mut other = Box::pin(ask(&lanes, None, Rank::InTime));
        assert!(futures_util::poll!(&mut other).is_pending());
        drop(one);
        drop(other.await);
    }

    // Semantics §1: one turn at a time per session, then the named lane, then the global one.
    #[tokio::test]
    async fn who_waits_for_its_session_holds_no_other_place() {
        let lanes = Lanes::new(Some(width(2)), &BTreeMap::from([("w".into(), width(1))]));
        let (main, who) = (SessionId::from_stored("s1"), RunId::from_stored("run"));
        let first = lanes.enter(&main, &who).await;
        let first = ask(&lanes, Some("w"), Rank::InTime).await.within(Some(first));
        let mut second = Box::pin(lanes.enter(&main, &who));
        let mut third = Box::pin(lanes.enter(&main, &who));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(futures_util::poll!(&mut third).is_pending());
        assert_eq!(view(&lanes), [seen("*", 2, 1, 0), seen("w", 1, 1, 0)]);
        drop(lanes.enter(&SessionId::from_stored("s2"), &who).await);
        lanes.resize(Some(width(2)), &BTreeMap::new());
        drop(first);
        let second = second.await;
        assert!(futures_util::poll!(&mut third).is_pending());
        drop(third);
        drop(second);
        assert!(!lanes.state().lanes.keys().any(|name| matches!(name, Name::Session(_))));
    }

    #[tokio::test]
    async fn another_width_lets_those_in_who_fit_and_takes_nothing_away() {
        let lanes = Lanes::new(Some(width(1)), &BTreeMap::new());
        let first = ask(&lanes, None, Rank::InTime).await;
        let mut second = Box::pin(ask(&lanes, None, Rank::InTime));
        assert!(futures_util::poll!(&mut second).is_pending());
        lanes.resize(Some(width(2)), &BTreeMap::from([("w".into(), width(1))]));
        let second = second.await;
        lanes.resize(Some(width(1)), &BTreeMap::new());
        let mut third = Box::pin(ask(&lanes, Some("w"), Rank::InTime));
        assert!(futures_util::poll!(&mut third).is_pending());
        drop(first);
        assert!(futures_util::poll!(&mut third).is_pending(), "one is still held of one");
        drop(second);
        drop(third.await);
        lanes.resize(None, &BTreeMap::new());
        let all = (ask(&lanes, None, Rank::InTime).await, ask(&lanes, None, Rank::InTime).await);
        assert_eq!(lanes.view(), []);
        drop(all);
    }
}
