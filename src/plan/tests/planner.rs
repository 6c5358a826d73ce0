//! The planner as time goes by: retries, pauses, restarts, clocks that are set.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::*;
use crate::job::{AfterInterruption, Catchup, Overlap, RetrySpec, Usd};
use crate::plan::{
    Act, Behaviour, PauseChange, Simulated, SimulatedLanes, SlotStart, Start, What, simulate,
};
use crate::run::{ErrorKind, State, Trigger};
use crate::schedule::{CronExpr, Fold, Gap, Schedule, Zone, ZoneChoice, Zones};

pub(super) const EIGHT: &str = "2026-11-30T08:00:00Z";

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron_in(text: &str, zone: Zone) -> Schedule {
    Schedule::cron(CronExpr::parse(text).unwrap(), zone, Gap::Shift, Fold::Once)
}

fn rules(schedule: Schedule) -> Rules {
    Rules {
        after: None,
        schedule: Some(schedule),
        catchup: Catchup::Latest,
        catchup_window: None,
        overlap: Overlap::Skip,
        retry: RetrySpec::default(),
        availability: Availability::Ready,
    }
}

pub(super) fn cron(text: &str) -> Rules {
    rules(cron_in(text, Zone::utc()))
}

/// A slot that waits and stands for itself.
pub(super) fn alone(due_at: Timestamp, waits: Waits) -> WaitingSlot {
    let start = SlotStart::alone(Trigger::Catchup, due_at);
    WaitingSlot { due_at, waits, start }
}

pub(super) fn id(name: &str) -> JobId {
    name.parse().unwrap()
}

pub(super) fn planner(jobs: &[(&str, Rules)], since: &str) -> Planner {
    let mut planner = Planner::default();
    for (name, rules) in jobs {
        planner.adopt(&id(name), rules.clone(), Memory::since(at(since)), at(since));
    }
    planner
}

/// A reading of a clock that has never been set, on a machine that was started on that day.
pub(super) fn now(text: &str) -> Now {
    let since = at(text).duration_since(at("2026-11-30T00:00:00Z"));
    Now { wall: at(text), since_boot: since.unsigned_abs() }
}

/// What acts say, in short.
pub(super) fn short(acts: &[Act]) -> Vec<String> {
    let time = |at: Timestamp| format!("{at:.0}").split('T').nth(1).unwrap().to_owned();
    let mut words = Vec::new();
    for act in acts {
        match act {
            Act::Replace(job) => words.push(format!("replace {job}")),
            Act::Release(_) => words.push("release".into()),
            Act::Rewind(_) => words.push("rewind".into()),
            Act::Probe(servers) => {
                words.extend(servers.iter().map(|server| format!("ask {}", server.0)));
            }
            Act::Record(record) => {
                words.extend(record.rows.iter().map(|row| {
                    let reason = row.reason.map(|it| format!(" {it}")).unwrap_or_default();
                    let times =
                        if row.slots > 1 { format!("×{} ", row.slots) } else { String::new() };
                    format!("{} {times}{}{reason}", time(row.due_at), row.decision)
                }));
                words.extend(record.turned.iter().map(|it| {
                    let reason = it.reason.map(|it| format!(" {it}")).unwrap_or_default();
                    format!("{} turned {}{reason}", time(it.due_at), it.decision)
                }));
                words.extend(record.start.map(|it| {
                    format!(
                        "start {} #{} by {}",
                        time(it.chain.due_at),
                        it.chain.attempt,
                        it.trigger
                    )
                }));
                words.extend(
                    record
                        .settled
                        .iter()
                        .map(|it| format!("settled {} #{}", time(it.due_at), it.attempt)),
                );
                words.extend(match &record.pause {
                    Some(PauseChange::Held(pause)) => Some(format!("held: {}", pause.cause)),
                    Some(PauseChange::Lifted) => Some("lifted".into()),
                    None => None,
                });
            }
        }
    }
    words
}

pub(super) fn start_of(acts: &[Act]) -> Start {
    let start = acts.iter().find_map(|act| match act {
        Act::Record(record) => record.start,
        _ => None,
    });
    start.expect("a run starts")
}

pub(super) fn end(state: State, kind: Option<ErrorKind>, at_text: &str) -> RunEnd {
    RunEnd { state, kind, tool_calls: 0, usd: Usd::ZERO, at: at(at_text) }
}

/// Which attempts of which slots begin in a simulation, and when.
fn begun(results: &[Simulated]) -> Vec<(String, u32, String)> {
    let time = |at: Timestamp| format!("{at:.0}");
    results
        .iter()
        .filter_map(|it| match &it.what {
            What::Began { chain, .. } => Some((time(chain.due_at), chain.attempt, time(it.at))),
            _ => None,
        })
        .collect()
}

fn fast(_: &JobId, _: &Start) -> Behaviour {
    Behaviour::succeeds_after(Duration::from_millis(200))
}

fn fails_with(kind: ErrorKind) -> Behaviour {
    let takes = Duration::from_secs(1);
    Behaviour { takes, state: State::Failed, kind: Some(kind), usd: Usd::ZERO }
}

#[test]
fn a_week_with_a_clock_change_keeps_the_local_time() {
    let zones = Zones::open(ZoneChoice::Bundled).unwrap();
    let dublin = || zones.get("Europe/Dublin").unwrap();
    for (text, from, until, expected) in [
        (
            "0 5 2 * * *",
            "2025-10-24T12:00:00Z",
            "2025-10-29T12:00:00Z",
            [
                "2025-10-25T01:05:00Z",
                "2025-10-26T02:05:00Z",
                "2025-10-27T02:05:00Z",
                "2025-10-28T02:05:00Z",
                "2025-10-29T02:05:00Z",
            ],
        ),
        (
            "5 2 * * *",
            "2026-03-27T12:00:00Z",
            "2026-04-01T12:00:00Z",
            [
                "2026-03-28T02:05:00Z",
                "2026-03-29T01:05:00Z",
                "2026-03-30T01:05:00Z",
                "2026-03-31T01:05:00Z",
                "2026-04-01T01:05:00Z",
            ],
        ),
    ] {
        let mut planner = planner(&[("a", rules(cron_in(text, dublin())))], from);
        let lanes = SimulatedLanes::default();
        let results = simulate(&mut planner, at(from), at(until), &lanes, fast, 100).results;
        let begun = begun(&results);
        assert_eq!(begun.iter().map(|it| &it.0[..]).collect::<Vec<_>>(), expected);
        assert!(begun.iter().all(|(due, attempt, at)| due == at && *attempt == 1));
    }
}

#[test]
fn a_slot_is_claimed_before_the_next_one_is_computed() {
    let every_five = cron("*/5 * * * *");
    let slot = ["05:45:00Z started", "start 05:45:00Z #1 by schedule"];
    for touched in [false, true] {
        let mut planner = planner(&[("a", every_five.clone())], "2026-11-30T05:40:00Z");
        if touched {
            // The file is written again, without a change, a millisecond before.
            let just_before = at("2026-11-30T05:44:59.999Z");
            assert_eq!(planner.replace(&id("a"), every_five.clone(), None, just_before), []);
        }
        assert_eq!(planner.wake(), Some(at("2026-11-30T05:45:00Z")));
        assert_eq!(short(&planner.look(now("2026-11-30T05:44:59.999Z"))).len(), 0);
        assert_eq!(short(&planner.look(now("2026-11-30T05:45:00Z"))), slot);
        assert_eq!(short(&planner.look(now("2026-11-30T05:45:00.003Z"))).len(), 0);
        assert_eq!(planner.wake(), Some(at("2026-11-30T05:50:00Z")));
    }
}

#[test]
fn a_storm_of_overdue_jobs_is_one_run_each_and_leaves_room_for_what_is_due() {
    let mut overdue = cron("*/5 * * * *");
    overdue.catchup_window = Some(Duration::from_mins(5));
    let names: Vec<_> = (0..40).map(|n| format!("late{n:02}")).collect();
    let mut jobs: Vec<_> = names.iter().map(|name| (&name[..], overdue.clone())).collect();
    jobs.push(("new", rules(Schedule::at(at("2026-11-30T14:02:30Z")))));
    let mut planner = planner(&jobs, EIGHT);
    let lanes =
        SimulatedLanes { widths: BTreeMap::from([("*".into(), 2)]), ..SimulatedLanes::default() };
    let behave = |_: &JobId, _: &Start| Behaviour::succeeds_after(Duration::from_secs(5));
    // It was down until two minutes after the last slot.
    planner.look(now("2026-11-30T07:59:59Z"));
    let until = at("2026-11-30T14:04:59Z");
    let results =
        simulate(&mut planner, at("2026-11-30T14:02:00Z"), until, &lanes, behave, 9999).results;
    let begun: Vec<_> = results
        .iter()
        .filter_map(|it| match &it.what {
            What::Began { trigger, ends_at, .. } => Some((it.at, *ends_at, *trigger, &it.job)),
            _ => None,
        })
        .collect();
    let caught_up = begun.iter().filter(|it| it.2 == Trigger::Catchup).count();
    assert_eq!((caught_up, begun.len()), (40, 41), "one each, not one per missed slot");
    let at_once =
        |moment: Timestamp| begun.iter().filter(move |it| it.0 <= moment && moment < it.1);
    assert!(begun.iter().all(|it| at_once(it.0).count() <= 2));
    let new = begun.iter().find(|it| it.3.as_str() == "new").unwrap();
    assert!(new.0 <= at("2026-11-30T14:02:35Z"), "it goes before what is made up for: {}", new.0);
    let superseded: u64 = results
        .iter()
        .filter_map(|it| match &it.what {
            What::Slot(slot) if slot.reason == Some(Reason::Superseded) => Some(slot.slots),
            _ => None,
        })
        .sum();
    assert_eq!(superseded, 40 * 71);
}

#[test]
fn without_catch_up_nothing_that_is_overdue_starts() {
    let mut none = cron("* * * * *");
    none.catchup = Catchup::None;
    let mut once = rules(Schedule::at(at("2026-11-30T08:05:00Z")));
    once.catchup = Catchup::None;
    let mut planner = planner(&[("minutely", none), ("once", once)], EIGHT);
    assert_eq!(
        short(&planner.look(now("2026-11-30T08:10:30Z"))),
        ["08:01:00Z ×10 missed down", "08:05:00Z missed down"]
    );
    assert_eq!(planner.wake(), Some(at("2026-11-30T08:11:00Z")));
    assert_eq!(planner.next_due_of(&id("once")), None);
}

#[test]
fn a_grid_survives_restarts_that_come_more_often_than_its_interval() {
    let created = at("2026-01-01T00:00:00Z");
    let six_hours = Schedule::every(Duration::from_hours(6), None).unwrap().anchored(created);
    let mut memory = Memory::since(created);
    let mut started = Vec::new();
    for (from, until) in [("00:00", "04:00"), ("04:01", "08:00"), ("08:01", "12:30")] {
        let time = |clock: &str| at(&format!("2026-01-01T{clock}:00Z"));
        let mut planner = Planner::default();
        planner.adopt(&id("a"), rules(six_hours.clone()), memory.clone(), time(from));
        let lanes = SimulatedLanes::default();
        let results = simulate(&mut planner, time(from), time(until), &lanes, fast, 100).results;
        started.extend(begun(&results).into_iter().map(|it| it.2));
        memory.decided_until =
            memory.decided_until.max(six_hours.prev_at_or_before(time(until)).unwrap());
    }
    assert_eq!(started, ["2026-01-01T06:00:00Z", "2026-01-01T12:00:00Z"]);
}

#[test]
fn what_is_far_away_is_neither_early_nor_asked_for_again_and_again() {
    let leap_day = cron("0 0 29 2 *");
    let mut planner = planner(&[("a", leap_day)], "2028-03-01T00:00:00Z");
    let due = at("2032-02-29T00:00:00Z");
    let mut wall = at("2028-03-01T00:00:00Z");
    let mut since_boot = Duration::ZERO;
    // Once a week, and then on the dot.
    while wall < due {
        assert_eq!(planner.wake(), Some(due));
        assert_eq!(planner.look(Now { wall, since_boot }), []);
        wall += SignedDuration::from_hours(7 * 24);
        since_boot += Duration::from_hours(7 * 24);
    }
    let just_before = due - SignedDuration::from_millis(1);
    assert_eq!(planner.look(Now { wall: just_before, since_boot }), []);
    let acts = planner.look(Now { wall: due, since_boot });
    assert_eq!(short(&acts), ["00:00:00Z started", "start 00:00:00Z #1 by schedule"]);
    assert_eq!(planner.wake(), Some(at("2036-02-29T00:00:00Z")));
    let beyond = Planner::default();
    assert_eq!(beyond.wake(), None);
}

#[test]
fn a_machine_that_slept_over_a_slot_makes_up_for_it_once() {
    let mut wide = cron("0 * * * *");
    wide.catchup_window = Some(Duration::from_hours(12));
    let mut planner = planner(&[("a", wide)], EIGHT);
    assert_eq!(planner.look(now("2026-11-30T08:30:00Z")), []);
    // Eight hours later by both clocks that go on while it sleeps.
    let woken = planner.look(now("2026-11-30T16:30:01Z"));
    assert_eq!(
        short(&woken),
        ["09:00:00Z ×7 missed superseded", "16:00:00Z started", "start 16:00:00Z #1 by catchup"]
    );
    assert_eq!(start_of(&woken).chain.stands_for, 8);
    assert_eq!(planner.look(now("2026-11-30T16:30:02Z")), []);
}

#[test]
fn a_clock_that_is_set_forward_starts_each_job_once() {
    let mut none = cron("*/5 * * * * *");
    none.catchup = Catchup::None;
    let jobs = [("fives", cron("*/5 * * * * *")), ("none", none), ("noon", cron("0 12 * * *"))];
    let mut planner = planner(&jobs, "2026-11-30T11:59:58Z");
    assert_eq!(planner.look(now("2026-11-30T11:59:59.900Z")), []);
    // Three seconds forward, over a slot.
    let real = now("2026-11-30T11:59:59.900Z").since_boot;
    let acts = planner.look(Now { wall: at("2026-11-30T12:00:02.900Z"), since_boot: real });
    let started: Vec<_> = short(&acts).into_iter().filter(|it| it.starts_with("start ")).collect();
    assert_eq!(started, ["start 12:00:00Z #1 by schedule"; 3]);
    // An hour forward: 719 slots of each, of which nothing but the newest can run.
    for name in ["fives", "none"] {
        let live = acts.iter().find_map(|act| match act {
            Act::Record(record) if record.job.as_str() == name => record.start,
            _ => None,
        });
        let done = end(State::Succeeded, None, "2026-11-30T12:00:03Z");
        planner.ended(&id(name), live.unwrap().id, Some(&done), at("2026-11-30T12:00:03Z"));
    }
    let acts = planner.look(Now { wall: at("2026-11-30T13:00:03Z"), since_boot: real });
    assert_eq!(
        short(&acts),
        [
            "12:00:05Z ×718 missed superseded",
            "12:59:55Z started",
            "start 12:59:55Z #1 by schedule",
            "13:00:00Z skipped overlap",
            "12:00:05Z ×718 missed clock_step",
            "12:59:55Z started",
            "start 12:59:55Z #1 by schedule",
            "13:00:00Z skipped overlap",
        ]
    );
}

#[test]
fn a_clock_that_is_set_back_repeats_no_slot_and_goes_on_at_the_first_one_without_a_row() {
    let mut planner = planner(&[("a", cron("* * * * *"))], "2026-11-30T11:59:00Z");
    let first = planner.look(now("2026-11-30T12:00:00Z"));
    let done = end(State::Succeeded, None, "2026-11-30T12:00:01Z");
    planner.ended(&id("a"), start_of(&first).id, Some(&done), at("2026-11-30T12:00:01Z"));
    // Two minutes back: the ledger says that noon has its row.
    let back = Now { wall: at("2026-11-30T11:58:00Z"), ..now("2026-11-30T12:00:02Z") };
    assert!(planner.was_set_back(back));
    assert_eq!(short(&planner.look(back)), ["rewind"]);
    assert_eq!((planner.wake(), planner.look(back)), (None, vec![]), "until the ledger answers");
    let noon = (at("2026-11-30T12:00:00Z"), at("2026-11-30T12:00:00Z"));
    planner.rewound(Some([(id("a"), (back.wall, vec![noon]))].into()), back.wall);
    assert_eq!(planner.wake(), Some(at("2026-11-30T11:59:00Z")));
    let since_boot = back.since_boot;
    let starts = |planner: &mut Planner, wall: &str| {
        let acts = planner.look(Now { wall: at(wall), since_boot });
        short(&acts).into_iter().filter(|it| it.starts_with("start")).collect::<Vec<_>>()
    };
    let eleven_59 = "start 11:59:00Z #1 by schedule";
    assert_eq!(starts(&mut planner, "2026-11-30T11:59:00Z"), [eleven_59]);
    assert_eq!(starts(&mut planner, "2026-11-30T12:00:00Z"), [""; 0]);
    assert_eq!(planner.wake(), Some(at("2026-11-30T12:01:00Z")));
    // The ledger could not say: then nothing is decided that may have been decided.
    let back = Now { wall: at("2026-11-30T11:00:00Z"), since_boot };
    assert_eq!(short(&planner.look(back)), ["rewind"]);
    planner.rewound(None, back.wall);
    assert_eq!(planner.wake(), Some(at("2026-11-30T12:01:00Z")));
}

#[test]
fn a_wait_after_failures_does_not_outlast_a_clock_that_was_set_back() {
    let mut planner = planner(&[("a", cron("* * * * *"))], "2026-11-30T17:59:00Z");
    let acts = planner.look(now("2026-11-30T18:00:00Z"));
    let failed = end(State::Failed, Some(ErrorKind::Auth), "2026-11-30T18:00:01Z");
    planner.ended(&id("a"), start_of(&acts).id, Some(&failed), at("2026-11-30T18:00:01Z"));
    let back = Now { wall: at("2026-11-30T10:00:00Z"), ..now("2026-11-30T18:00:02Z") };
    assert_eq!(short(&planner.look(back)), ["rewind"]);
    planner.rewound(Some([(id("a"), (back.wall, vec![]))].into()), back.wall);
    let next = Now { wall: at("2026-11-30T10:01:00Z"), ..back };
    assert_eq!(short(&planner.look(next))[0], "10:01:00Z started");
}

#[test]
fn a_provider_that_fails_for_ever_is_asked_less_and_less_and_the_next_slot_waits_its_turn() {
    let mut planner = planner(&[("a", cron("*/5 * * * *"))], EIGHT);
    let behave = |_: &JobId, _: &Start| fails_with(ErrorKind::RateLimit);
    let until = at("2026-11-30T08:21:00Z");
    let lanes = SimulatedLanes::default();
    let results = simulate(&mut planner, at(EIGHT), until, &lanes, behave, 1000).results;
    let row = |due: &str, attempt, time: &str| {
        (format!("2026-11-30T{due}Z"), attempt, format!("2026-11-30T{time}Z"))
    };
    assert_eq!(
        begun(&results),
        [
            row("08:05:00", 1, "08:05:00"),
            row("08:05:00", 2, "08:05:31"),
            row("08:05:00", 3, "08:06:32"),
            row("08:10:00", 1, "08:10:00"),
            row("08:10:00", 2, "08:10:31"),
            row("08:10:00", 3, "08:11:32"),
            row("08:15:00", 1, "08:15:00"),
            row("08:15:00", 2, "08:15:31"),
            row("08:15:00", 3, "08:16:32"),
        ],
        "the fourth slot comes within the five minutes after the third one failed"
    );
    let passed_over = results.iter().any(|it| {
        matches!(&it.what, What::Slot(slot)
            if slot.due_at == at("2026-11-30T08:20:00Z") && slot.reason == Some(Reason::Backoff))
    });
    assert!(passed_over);
}

#[test]
fn one_blip_costs_a_daily_job_half_a_minute() {
    let mut planner = planner(&[("a", cron("0 9 * * *"))], EIGHT);
    let behave = |_: &JobId, start: &Start| match start.chain.attempt {
        1 => fails_with(ErrorKind::ServerError),
        _ => Behaviour::succeeds_after(Duration::from_secs(1)),
    };
    let until = at("2026-12-01T12:00:00Z");
    let lanes = SimulatedLanes::default();
    let results = simulate(&mut planner, at(EIGHT), until, &lanes, behave, 1000).results;
    let row = |due: &str, attempt, time: &str| (due.to_owned(), attempt, time.to_owned());
    let begun = begun(&results);
    assert_eq!(begun[0], row("2026-11-30T09:00:00Z", 1, "2026-11-30T09:00:00Z"));
    assert_eq!(begun[1], row("2026-11-30T09:00:00Z", 2, "2026-11-30T09:00:31Z"));
    assert_eq!(begun[2], row("2026-12-01T09:00:00Z", 1, "2026-12-01T09:00:00Z"));
}

#[test]
fn ten_failed_slots_in_a_row_pause_the_job_once_and_a_providers_fault_never_does() {
    let lanes = SimulatedLanes::default();
    let until = at("2026-12-30T12:00:00Z");
    let held = |kind| {
        let mut planner = planner(&[("a", cron("0 */6 * * *"))], EIGHT);
        let behave = move |_: &JobId, _: &Start| fails_with(kind);
        let results = simulate(&mut planner, at(EIGHT), until, &lanes, behave, 9999).results;
        let held: Vec<_> = results
            .iter()
            .filter_map(|it| match &it.what {
                What::Held(words) => Some((it.at, words.clone())),
                _ => None,
            })
            .collect();
        let paused_slots = results.iter().filter(
            |it| matches!(&it.what, What::Slot(slot) if slot.reason == Some(Reason::Paused)),
        );
        (held, paused_slots.count(), planner.pause_of(&id("a")).map(|it| it.cause))
    };
    let (once, slots, cause) = held(ErrorKind::Auth);
    assert_eq!(once.len(), 1);
    assert_eq!(once[0].0, at("2026-12-02T18:00:01Z"), "the tenth slot");
    assert!(once[0].1.starts_with("10 slots in a row have failed"), "{}", once[0].1);
    assert_eq!((slots, cause), (111, Some(PauseCause::Failures)));
    assert_eq!(held(ErrorKind::Overloaded), (vec![], 0, None));
}

#[test]
fn a_one_shot_runs_until_it_succeeds_or_stays_held_with_its_error() {
    let once = || rules(Schedule::at(at("2026-11-30T09:00:00Z")));
    let lanes = SimulatedLanes::default();
    let until = at("2026-12-30T12:00:00Z");
    let story = |behave: fn(&JobId, &Start) -> Behaviour| {
        let mut planner = planner(&[("a", once())], EIGHT);
        let results = simulate(&mut planner, at(EIGHT), until, &lanes, behave, 9999).results;
        (begun(&results).len(), planner.pause_of(&id("a")).map(|it| it.cause))
    };
    assert_eq!(story(fast), (1, None));
    assert_eq!(story(|_, _| fails_with(ErrorKind::Auth)), (1, Some(PauseCause::OneShotFailed)));
    let deadline = |_: &JobId, _: &Start| Behaviour {
        state: State::TimedOut,
        ..fails_with(ErrorKind::Deadline)
    };
    assert_eq!(story(deadline), (4, Some(PauseCause::OneShotFailed)));
    let second_try = |_: &JobId, start: &Start| match start.chain.attempt {
        1 => fails_with(ErrorKind::Network),
        _ => Behaviour::succeeds_after(Duration::from_secs(1)),
    };
    assert_eq!(story(second_try), (2, None));
    let cancelled = |_: &JobId, _: &Start| Behaviour {
        takes: Duration::from_secs(1),
        state: State::Cancelled,
        kind: Some(ErrorKind::Cancelled),
        usd: Usd::ZERO,
    };
    assert_eq!(story(cancelled), (1, None));
}

#[test]
fn another_time_frees_a_one_shot_that_was_held_by_its_failure() {
    let once = |time: &str| rules(Schedule::at(at(time)));
    let mut planner = planner(&[("a", once("2026-11-30T09:00:00Z"))], EIGHT);
    let acts = planner.look(now("2026-11-30T09:00:00Z"));
    let failed = end(State::Failed, Some(ErrorKind::Auth), "2026-11-30T09:00:01Z");
    planner.ended(&id("a"), start_of(&acts).id, Some(&failed), failed.at);
    let same = once("2026-11-30T09:00:00Z");
    assert_eq!(planner.replace(&id("a"), same, None, at("2026-11-30T09:01:00Z")), []);
    assert!(planner.pause_of(&id("a")).is_some(), "its time is the same");
    let other = once("2026-11-30T10:00:00Z");
    let edited = at("2026-11-30T09:02:00Z");
    let acts = planner.replace(&id("a"), other, Some(edited), edited);
    assert_eq!(short(&acts), ["lifted"]);
    assert_eq!(short(&planner.look(now("2026-11-30T10:00:00Z")))[0], "10:00:00Z started");
}

#[test]
fn a_slot_between_two_attempts_lives_and_the_job_says_what_that_means_for_the_next_one() {
    let failed = end(State::Failed, Some(ErrorKind::IncompleteStream), "2026-11-30T08:01:40Z");
    let second_slot = |overlap| {
        let mut rules = cron("* * * * *");
        rules.overlap = overlap;
        let mut planner = planner(&[("a", rules)], EIGHT);
        let first = planner.look(now("2026-11-30T08:01:00Z"));
        let after = planner.ended(&id("a"), start_of(&first).id, Some(&failed), failed.at);
        assert_eq!(after, [], "the next attempt is 30 s away");
        let next = short(&planner.look(now("2026-11-30T08:02:00Z")));
        let retry = short(&planner.look(now("2026-11-30T08:02:10Z")));
        (next, retry)
    };
    let retry = ["start 08:01:00Z #2 by retry", "settled 08:01:00Z #1"];
    let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert_eq!(second_slot(Overlap::Skip), (words(&["08:02:00Z skipped overlap"]), words(&retry)));
    assert_eq!(
        second_slot(Overlap::BufferAll),
        (words(&["08:02:00Z buffered overlap"]), words(&retry))
    );
    assert_eq!(
        second_slot(Overlap::AllowAll),
        (words(&["08:02:00Z started", "start 08:02:00Z #1 by schedule"]), words(&retry))
    );
    let (next, retry) = second_slot(Overlap::CancelOther);
    assert_eq!(
        next,
        [
            "08:02:00Z buffered overlap",
            "settled 08:01:00Z #1",
            "replace a",
            "08:02:00Z turned started",
            "start 08:02:00Z #1 by schedule"
        ]
    );
    assert_eq!(retry.len(), 0, "the newer slot has taken its place");
}

#[test]
fn slots_wait_in_their_order_and_a_newer_one_replaces_what_waits() {
    let story = |overlap| {
        let mut rules = cron("* * * * *");
        rules.overlap = overlap;
        let mut planner = planner(&[("a", rules)], EIGHT);
        let first = planner.look(now("2026-11-30T08:01:00Z"));
        let mut told = Vec::new();
        for minute in ["08:02", "08:03"] {
            told.extend(short(&planner.look(now(&format!("2026-11-30T{minute}:00Z")))));
        }
        let done = end(State::Succeeded, None, "2026-11-30T08:03:30Z");
        let mut live = start_of(&first).id;
        loop {
            let acts = planner.ended(&id("a"), live, Some(&done), done.at);
            told.extend(short(&acts));
            if acts.is_empty() {
                return told;
            }
            live = start_of(&acts).id;
        }
    };
    assert_eq!(
        story(Overlap::BufferOne),
        [
            "08:02:00Z buffered overlap",
            "08:03:00Z skipped overlap",
            "08:02:00Z turned started",
            "start 08:02:00Z #1 by schedule",
        ]
    );
    assert_eq!(
        story(Overlap::BufferAll),
        [
            "08:02:00Z buffered overlap",
            "08:03:00Z buffered overlap",
            "08:02:00Z turned started",
            "start 08:02:00Z #1 by schedule",
            "08:03:00Z turned started",
            "start 08:03:00Z #1 by schedule",
        ]
    );
    assert_eq!(
        story(Overlap::CancelOther),
        [
            "08:02:00Z buffered overlap",
            "replace a",
            "08:03:00Z buffered overlap",
            "08:02:00Z turned skipped superseded",
            "replace a",
            "08:03:00Z turned started",
            "start 08:03:00Z #1 by schedule",
        ]
    );
}

#[test]
fn a_pause_takes_what_waits_with_it_and_ends_by_itself() {
    let mut rules = cron("* * * * *");
    rules.overlap = Overlap::BufferAll;
    let mut planner = planner(&[("a", rules)], EIGHT);
    let first = planner.look(now("2026-11-30T08:01:00Z"));
    planner.look(now("2026-11-30T08:02:00Z"));
    let until = Some(at("2026-11-30T08:04:30Z"));
    let pause = Pause { cause: PauseCause::Person, words: "quiet".into(), until };
    assert_eq!(
        short(&planner.pause(&id("a"), pause, at("2026-11-30T08:02:10Z"))),
        ["08:02:00Z turned skipped paused", "held: person"]
    );
    let done = end(State::Succeeded, None, "2026-11-30T08:02:30Z");
    assert_eq!(planner.ended(&id("a"), start_of(&first).id, Some(&done), done.at), []);
    assert_eq!(short(&planner.look(now("2026-11-30T08:03:00Z"))), ["08:03:00Z held paused"]);
    assert_eq!(short(&planner.look(now("2026-11-30T08:04:00Z"))), ["08:04:00Z held paused"]);
    assert_eq!(planner.wake(), until);
    assert_eq!(short(&planner.look(now("2026-11-30T08:04:30Z"))), ["lifted"]);
    assert_eq!(short(&planner.look(now("2026-11-30T08:05:00Z")))[0], "08:05:00Z started");
}

#[test]
fn what_a_dead_process_left_goes_on_is_repeated_once_or_is_over() {
    let nine = at("2026-11-30T09:00:00Z");
    let first = Chain::new(Trigger::Schedule, nine, 1);
    let interrupted = end(State::Interrupted, Some(ErrorKind::Interrupted), "2026-11-30T09:01:00Z");
    let restart = at("2026-11-30T09:01:00Z");
    let mut memory = Memory::since(at(EIGHT));
    memory.decided_until = nine;
    let planner_of = |rules: &Rules| {
        let mut planner = Planner::default();
        planner.adopt(&id("a"), rules.clone(), memory.clone(), restart);
        planner
    };
    let daily = cron("0 9 * * *");
    let mut leaves = planner_of(&daily);
    let acts = leaves.ended_before(&id("a"), first, &interrupted, restart);
    assert_eq!(short(&acts), ["settled 09:00:00Z #1"]);

    let mut repeating = daily.clone();
    repeating.retry.interrupted = AfterInterruption::RepeatOnce;
    let mut repeats = planner_of(&repeating);
    assert_eq!(repeats.ended_before(&id("a"), first, &interrupted, restart), []);
    assert_eq!(
        short(&repeats.look(now("2026-11-30T09:01:00Z"))),
        ["start 09:00:00Z #2 by retry", "settled 09:00:00Z #1"]
    );
    let mut held = planner_of(&repeating);
    let second = first.after(&interrupted).next();
    let acts = held.ended_before(&id("a"), second, &interrupted, restart);
    assert_eq!(short(&acts), ["settled 09:00:00Z #2", "held: interrupted_twice"]);
    let tomorrow = short(&held.look(now("2026-12-01T09:00:00Z")));
    assert_eq!(tomorrow, ["09:00:00Z held interrupted_twice"]);

    let mut in_time = planner_of(&daily);
    assert!(in_time.requeued(&id("a"), first, restart).is_some());
    let late = at("2026-11-30T11:00:01Z");
    assert!(planner_of(&daily).requeued(&id("a"), first, late).is_none());
    let mut waits = planner_of(&daily);
    assert_eq!(waits.waits_again(&id("a"), alone(nine, Waits::ForRun), restart), []);
    assert_eq!(
        short(&waits.look(now("2026-11-30T09:01:00Z"))),
        ["09:00:00Z turned started", "start 09:00:00Z #1 by catchup"]
    );
    let too_late = planner_of(&daily).waits_again(&id("a"), alone(nine, Waits::ForRun), late);
    assert_eq!(short(&too_late), ["09:00:00Z turned skipped too_late"]);
}

/// In the last hour of all time, the arithmetic of a wait that ends after it has no answer.
#[test]
fn a_job_that_cannot_be_computed_is_paused_after_three_tries_and_the_others_go_on() {
    let end = Timestamp::MAX - SignedDuration::from_mins(30);
    let begin = end - SignedDuration::from_mins(1);
    let each_second = Schedule::every(Duration::from_secs(1), Some(begin)).unwrap();
    let mut planner = Planner::default();
    let mut broken = Memory::since(begin);
    broken.account.backoff_until = Some(begin);
    planner.adopt(&id("broken"), rules(each_second.clone()), broken, begin);
    planner.adopt(&id("sound"), rules(each_second), Memory::since(begin), begin);
    let mut told = Vec::new();
    for second in 0..5 {
        let wall = end + SignedDuration::from_secs(second);
        let since_boot = Duration::from_secs(second.unsigned_abs());
        let acts = planner.look(Now { wall, since_boot });
        assert!(planner.wake().is_some_and(|wake| wake > wall), "it would spin");
        told.push(acts.iter().any(
            |act| matches!(act, Act::Record(it) if it.job == id("broken") && it.pause.is_some()),
        ));
        let sound = |act: &Act| matches!(act, Act::Record(it) if it.job == id("sound"));
        assert!(acts.iter().any(sound), "{second}");
    }
    assert_eq!(told, [false, false, true, false, false]);
    let pause = planner.pause_of(&id("broken")).unwrap();
    assert_eq!(pause.cause, PauseCause::Schedule);
}

#[test]
fn past_slots_run_one_by_one_behind_everything_else() {
    let mut planner = planner(&[("a", cron("* * * * *"))], "2026-11-30T08:59:00Z");
    let past = vec![(at("2026-11-30T07:00:00Z"), 1), (at("2026-11-30T07:01:00Z"), 3)];
    let (count, acts) = planner.run_past(&id("a"), past.clone(), at("2026-11-30T08:59:30Z"));
    assert_eq!(count, 2);
    let again = planner.run_past(&id("a"), past, at("2026-11-30T08:59:31Z"));
    assert_eq!(again, (0, vec![]), "they wait already");
    assert_eq!(short(&acts), ["start 07:00:00Z #1 by backfill"]);
    let first = start_of(&acts).id;
    assert_eq!(short(&planner.look(now("2026-11-30T09:00:00Z"))), ["09:00:00Z buffered overlap"]);
    let done = end(State::Succeeded, None, "2026-11-30T09:00:10Z");
    let acts = planner.ended(&id("a"), first, Some(&done), done.at);
    assert_eq!(short(&acts), ["09:00:00Z turned started", "start 09:00:00Z #1 by schedule"]);
    let acts = planner.ended(&id("a"), start_of(&acts).id, Some(&done), done.at);
    assert_eq!(short(&acts), ["start 07:01:00Z #3 by backfill"]);
    assert!(!planner.has_backfill());
}

#[test]
fn a_job_that_is_gone_starts_nothing_more_and_is_forgotten_when_its_run_has_ended() {
    let mut rules = cron("* * * * *");
    rules.overlap = Overlap::BufferAll;
    let mut planner = planner(&[("a", rules)], EIGHT);
    let first = planner.look(now("2026-11-30T08:01:00Z"));
    planner.look(now("2026-11-30T08:02:00Z"));
    let acts = planner.remove(&id("a"), at("2026-11-30T08:02:30Z"));
    assert_eq!(short(&acts), ["08:02:00Z turned skipped disabled"]);
    assert_eq!(planner.look(now("2026-11-30T08:03:00Z")), []);
    assert!(planner.knows(&id("a")));
    let failed = end(State::Failed, Some(ErrorKind::Network), "2026-11-30T08:03:30Z");
    let acts = planner.ended(&id("a"), start_of(&first).id, Some(&failed), failed.at);
    assert_eq!(short(&acts), ["settled 08:01:00Z #1"], "and nothing of it is tried again");
    assert!(!planner.knows(&id("a")));
}
