//! Whatever happens to a planner, in any order: no slot is lost, none runs twice, and none starts
//! while a cap of the day is used up.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::tests::{EIGHT, alone, at, cron, id};
use super::*;
use crate::job::{AfterInterruption, Catchup, Overlap, Usd};
use crate::plan::{Act, Caps, PauseChange, Server, Spent, Start, Waits};
use crate::run::{ErrorKind, State, Trigger};
use crate::schedule::{ZoneChoice, Zones};

/// One thing that happens to a planner.
#[derive(Debug, Clone)]
enum Happens {
    Passes(u64),
    Sleeps(u64),
    IsSet(i64),
    Ends(usize, State, Usd),
    OthersSpend(Usd),
    Pauses,
    Resumes,
    Restarts(u64),
    Answers(bool),
}

fn happens() -> impl Strategy<Value = Happens> {
    let states = [
        State::Succeeded,
        State::Succeeded,
        State::Failed,
        State::TimedOut,
        State::Cancelled,
        State::Interrupted,
    ];
    prop_oneof![
        8 => (0..90_000_u64).prop_map(Happens::Passes),
        1 => (0..8_000_000_u64).prop_map(Happens::Sleeps),
        1 => (-8_000_000..8_000_000_i64).prop_map(Happens::IsSet),
        6 => (0..4_usize, proptest::sample::select(states.to_vec()), usd())
            .prop_map(|(which, state, usd)| Happens::Ends(which, state, usd)),
        1 => usd().prop_map(Happens::OthersSpend),
        1 => Just(Happens::Pauses),
        1 => Just(Happens::Resumes),
        1 => (0..600_000_u64).prop_map(Happens::Restarts),
        3 => any::<bool>().prop_map(Happens::Answers),
    ]
}

fn usd() -> impl Strategy<Value = Usd> {
    (0..4_u8).prop_map(|quarters| Usd::from_dollars(f64::from(quarters) / 4.0))
}

/// A job of its own that is only run by hand.
fn other() -> JobId {
    id("other")
}

/// What the ledger does with the acts of a planner, in memory.
struct Ledger {
    rules: Rules,
    planner: Planner,
    wall: Timestamp,
    since_boot: Duration,
    rows: BTreeMap<Timestamp, (Timestamp, u64, SlotDecision)>,
    runs: BTreeMap<(Timestamp, u32), Trigger>,
    live: Vec<Start>,
    /// Slots that are held for a model or a cap.
    held: BTreeMap<Timestamp, Waits>,
    /// The servers of the job's models.
    servers: Arc<[Server]>,
    /// What its days may cost, and what they have.
    caps: Caps,
    spent: Spent,
    earliest: Timestamp,
    decided_until: Timestamp,
    pause: Option<Pause>,
}

impl Ledger {
    fn new(rules: Rules, servers: Arc<[Server]>, caps: Caps) -> Self {
        let start = at(EIGHT);
        let mut ledger = Self {
            rules,
            planner: Planner::default(),
            wall: start,
            since_boot: Duration::ZERO,
            rows: BTreeMap::new(),
            runs: BTreeMap::new(),
            live: Vec::new(),
            held: BTreeMap::new(),
            servers,
            caps,
            spent: Spent::default(),
            earliest: start,
            decided_until: start,
            pause: None,
        };
        ledger.begin(Memory::since(start));
        ledger
    }

    /// A process begins.
    fn begin(&mut self, memory: Memory) {
        let now = self.wall;
        self.planner = Planner::default();
        self.planner.knows_spent(self.spent.clone());
        self.planner.adopt(&id("a"), self.rules.clone(), memory, now);
        self.planner.use_servers(&id("a"), Arc::clone(&self.servers), now);
        self.planner.use_caps(&id("a"), self.caps.clone(), now);
        let by_hand = Rules::idle(None, Availability::Ready);
        self.planner.adopt(&other(), by_hand, Memory::since(now), now);
        self.planner.use_caps(&other(), Caps { own: None, ..self.caps.clone() }, now);
    }

    fn look(&mut self) {
        let acts = self.planner.look(Now { wall: self.wall, since_boot: self.since_boot });
        self.keep(acts);
        assert!(self.planner.wake().is_none_or(|wake| wake > self.wall), "it would spin");
    }

    fn keep(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Rewind(to) => {
                    let ahead = self.rewind(to);
                    let rewound = [(id("a"), (self.decided_until, ahead))].into();
                    self.planner.rewound(Some(rewound), self.wall);
                    self.look();
                }
                Act::Probe(servers) => assert!(!servers.is_empty()),
                Act::Replace(_) | Act::Release(_) => {}
                Act::Record(record) => {
                    if let (Some(first), Some(last)) = (record.rows.first(), record.rows.last()) {
                        assert!(self.decided_until < first.due_at, "somebody was there before");
                        self.decided_until = last.due_until;
                    }
                    for row in &record.rows {
                        assert!(row.due_at <= row.due_until && row.due_until <= self.wall);
                        let row_of = (row.due_until, row.slots, row.decision);
                        if row.decision == SlotDecision::Held && row.start.is_some() {
                            let waits = match row.reason {
                                Some(Reason::ModelUnreachable) => Waits::ForModel,
                                Some(Reason::Budget) => Waits::ForBudget,
                                other => panic!("{} is held for {other:?}", row.due_at),
                            };
                            self.held.insert(row.due_at, waits);
                        }
                        let known = self.rows.insert(row.due_at, row_of);
                        assert_eq!(known, None, "{} was decided before", row.due_at);
                    }
                    for turned in &record.turned {
                        let row = self.rows.get_mut(&turned.due_at).expect("it waited");
                        let gives_up = match row.2 {
                            SlotDecision::Buffered => SlotDecision::Skipped,
                            SlotDecision::Held => SlotDecision::Missed,
                            other => panic!("{} was {other}", turned.due_at),
                        };
                        assert!([SlotDecision::Started, gives_up].contains(&turned.decision));
                        let was_held = self.held.remove(&turned.due_at).is_some();
                        assert_eq!(row.2 == SlotDecision::Held, was_held);
                        row.2 = turned.decision;
                    }
                    if let Some(start) = record.start {
                        let used_up = self.spent.used_up(&id("a"), &self.caps, self.wall);
                        assert_eq!(used_up, None, "no money is left");
                        let key = (start.chain.due_at, start.chain.attempt);
                        assert_eq!(
                            self.runs.insert(key, start.trigger),
                            None,
                            "{key:?} runs twice"
                        );
                        self.live.push(start);
                    }
                    match record.pause {
                        Some(PauseChange::Held(pause)) => self.pause = Some(pause),
                        Some(PauseChange::Lifted) => self.pause = None,
                        None => {}
                    }
                }
            }
        }
    }

    /// As the store does it.
    fn rewind(&mut self, now: Timestamp) -> Vec<(Timestamp, Timestamp)> {
        self.earliest = self.earliest.min(now);
        if self.decided_until > now {
            let held = self.held.clone();
            let goes = |due: &Timestamp, row: &(Timestamp, u64, SlotDecision)| {
                row.0 > now && (row.2 == SlotDecision::Missed || held.contains_key(due))
            };
            let first = self.rows.iter().find(|(due, row)| goes(due, row));
            let before = |due: &Timestamp| *due - SignedDuration::from_millis(1);
            self.decided_until = first.map_or(now, |(due, _)| now.min(before(due)));
            self.rows.retain(|due, row| !goes(due, row));
            self.held.retain(|due, _| *due <= now);
        }
        self.ahead(self.decided_until)
    }

    fn ahead(&self, after: Timestamp) -> Vec<(Timestamp, Timestamp)> {
        let ahead = self.rows.iter().filter(|(_, row)| row.0 > after);
        ahead.map(|(due, row)| (*due, row.0)).collect()
    }

    /// The process dies, and another one begins later with what the ledger holds.
    fn restart(&mut self, down_ms: u64) {
        self.wall += Duration::from_millis(down_ms);
        self.since_boot += Duration::from_millis(down_ms);
        let ahead = self.rewind(self.wall);
        let mut memory = Memory::since(self.decided_until);
        memory.ahead = ahead;
        memory.pause.clone_from(&self.pause);
        self.begin(memory);
        let waits = |(due, row): (&Timestamp, &(_, _, SlotDecision))| match row.2 {
            SlotDecision::Buffered => Some((*due, Waits::ForRun)),
            SlotDecision::Held => self.held.get(due).map(|waits| (*due, *waits)),
            _ => None,
        };
        let waiting: Vec<_> = self.rows.iter().filter_map(waits).collect();
        for start in std::mem::take(&mut self.live) {
            let end = RunEnd {
                state: State::Interrupted,
                kind: Some(ErrorKind::Interrupted),
                tool_calls: 0,
                usd: Usd::ZERO,
                at: self.wall,
            };
            let acts = self.planner.ended_before(&id("a"), start.chain, &end, self.wall);
            self.keep(acts);
        }
        for (due_at, waits) in waiting {
            let acts = self.planner.waits_again(&id("a"), alone(due_at, waits), self.wall);
            self.keep(acts);
        }
        self.look();
    }

    fn happen(&mut self, what: &Happens) {
        match *what {
            Happens::Passes(ms) | Happens::Sleeps(ms) => {
                self.wall += Duration::from_millis(ms);
                self.since_boot += Duration::from_millis(ms);
                self.look();
            }
            Happens::IsSet(ms) => {
                self.wall += SignedDuration::from_millis(ms);
                self.look();
            }
            Happens::Ends(which, state, usd) => {
                if self.live.is_empty() {
                    return;
                }
                let start = self.live.remove(which % self.live.len());
                let kind = (state != State::Succeeded).then_some(ErrorKind::IncompleteStream);
                let end = RunEnd { state, kind, tool_calls: 0, usd, at: self.wall };
                self.spent.add(&id("a"), &self.caps, self.wall, usd);
                let acts = self.planner.ended(&id("a"), start.id, Some(&end), self.wall);
                self.keep(acts);
            }
            Happens::OthersSpend(usd) => {
                let (ByHand::Starts(living), _) = self.planner.by_hand(&other(), self.wall) else {
                    panic!("nothing of it lives");
                };
                let end = RunEnd {
                    state: State::Succeeded,
                    kind: None,
                    tool_calls: 0,
                    usd,
                    at: self.wall,
                };
                self.spent.add(&other(), &self.caps, self.wall, usd);
                let acts = self.planner.ended(&other(), living, Some(&end), self.wall);
                self.keep(acts);
            }
            Happens::Pauses => {
                let words = "so".to_owned();
                let pause = Pause { cause: PauseCause::Person, words, until: None };
                let acts = self.planner.pause(&id("a"), pause, self.wall);
                self.keep(acts);
            }
            Happens::Resumes => {
                self.look();
                let acts = self.planner.resume(&id("a"), self.wall);
                self.keep(acts);
            }
            Happens::Restarts(down_ms) => self.restart(down_ms),
            Happens::Answers(reachable) => {
                for server in Arc::clone(&self.servers).iter() {
                    let acts = self.planner.probed(server, reachable, self.wall);
                    self.keep(acts);
                }
            }
        }
    }

    /// Nothing is held for longer than the longest window.
    fn check_held(&self) {
        for due in self.held.keys() {
            assert!(*due + Duration::from_hours(2) > self.wall, "{due} is held at {}", self.wall);
        }
    }

    /// Both promises, on what was kept: rows do not overlap, their counts are right, and every due
    /// instant that has come lies in one of them.
    fn check(&self) {
        let schedule = self.rules.schedule.as_ref().unwrap();
        let mut last = Timestamp::MIN;
        for (due, (until, slots, _)) in &self.rows {
            assert!(*due > last, "{due} lies in the row before");
            let just_before = *due - SignedDuration::from_millis(1);
            assert_eq!(*slots, schedule.count_between(just_before, *until), "{due} to {until}");
            last = *until;
        }
        for due in schedule.upcoming(self.earliest).take_while(|due| due.at <= self.wall) {
            let row = self.rows.range(..=due.at).next_back();
            assert!(row.is_some_and(|(_, row)| row.0 >= due.at), "{} has no row", due.at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_is_lost_or_run_twice_whatever_happens(
        overlap in proptest::sample::select(Overlap::ALL.to_vec()),
        catchup in proptest::sample::select(Catchup::ALL.to_vec()),
        text in proptest::sample::select(vec!["* * * * *", "*/7 * * * *", "30 */2 * * *", "*/20 * * * * *"]),
        servers in 0..3_usize,
        own in proptest::option::of(0..12_u8),
        all in proptest::option::of(0..12_u8),
        events in proptest::collection::vec(happens(), 1..60),
    ) {
        let mut rules = cron(text);
        (rules.overlap, rules.catchup) = (overlap, catchup);
        rules.retry.interrupted = AfterInterruption::RepeatOnce;
        let servers = (0..servers).map(|it| Server(format!("http://{it}"))).collect();
        // Their days turn two and three hours after the beginning.
        let zones = Zones::open(ZoneChoice::Bundled).unwrap();
        let zone = |name| zones.get(name).unwrap();
        let dollars = |quarters: u8| Usd::from_dollars(f64::from(quarters) / 4.0);
        let caps = Caps {
            zone: zone("Pacific/Kiritimati"),
            own: own.map(dollars),
            zone_of_all: zone("Pacific/Auckland"),
            all: all.map(dollars),
        };
        let mut ledger = Ledger::new(rules, servers, caps);
        for event in &events {
            ledger.happen(event);
        }
        ledger.look();
        ledger.check();
        ledger.check_held();
    }
}
