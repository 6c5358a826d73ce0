//! Caps of days: held, started when the day turns, missed when it does not turn in time.

use super::tests::{EIGHT, alone, at, cron, end, id, now, planner, short, start_of};
use super::*;
use crate::job::{Overlap, Usd};
use crate::plan::{Cap, Caps, Spent, Standing, day_in};
use crate::run::{ErrorKind, State};
use crate::schedule::{Zone, ZoneChoice, Zones};

const NINE: &str = "2026-11-30T09:00:00Z";

fn usd(dollars: f64) -> Usd {
    Usd::from_dollars(dollars)
}

fn zone(name: &str) -> Zone {
    Zones::open(ZoneChoice::Bundled).unwrap().get(name).unwrap()
}

/// A dollar a day for the job, in a zone.
fn own(zone: Zone) -> Caps {
    Caps { zone, own: Some(usd(1.0)), ..Caps::default() }
}

/// A dollar a day for all jobs.
fn shared() -> Caps {
    Caps { all: Some(usd(1.0)), ..Caps::default() }
}

fn capped(rules: Rules, caps: Caps) -> Planner {
    let mut planner = planner(&[("a", rules)], EIGHT);
    planner.use_caps(&id("a"), caps, at(EIGHT));
    planner
}

/// Starts what is due at `when`, and ends it a second later at the cost of so many dollars.
fn spends(planner: &mut Planner, when: &str, dollars: f64) {
    let start = start_of(&planner.look(now(when)));
    let ended = at(when) + Duration::from_secs(1);
    let done = RunEnd { usd: usd(dollars), ..end(State::Succeeded, None, &ended.to_string()) };
    assert_eq!(planner.ended(&id("a"), start.id, Some(&done), ended), []);
}

/// Looks whenever it wants to until then, and tells what it says, but for what keeps it in time.
fn until(planner: &mut Planner, end: &str) -> Vec<(String, Vec<String>)> {
    let mut told = Vec::new();
    while let Some(wake) = planner.wake().filter(|&wake| wake <= at(end)) {
        let acts = planner.look(now(&wake.to_string()));
        assert!(planner.wake().is_none_or(|next| next > wake), "it would spin at {wake}");
        told.push((wake.to_string(), short(&acts)));
        assert!(told.len() < 100, "{told:#?}");
    }
    told
}

fn said(when: &str, words: &[&str]) -> (String, Vec<String>) {
    (when.to_owned(), words.iter().map(|&it| it.to_owned()).collect())
}

#[test]
fn a_slot_is_held_when_the_day_is_used_up_and_starts_when_it_turns() {
    // Every other hour; the window is an hour, and Berlin's day turns at 23:00 UTC.
    let mut planner = capped(cron("30 */2 * * *"), own(zone("Europe/Berlin")));
    spends(&mut planner, "2026-11-30T08:30:00Z", 0.7);
    // What is left may be exceeded by a run that has begun.
    spends(&mut planner, "2026-11-30T10:30:00Z", 0.7);
    let used_up = planner.used_up(&id("a"), at("2026-11-30T11:00:00Z")).unwrap();
    let standing = Standing { cap: Cap::Job, spent: usd(1.4), allowed: usd(1.0) };
    assert_eq!((used_up.standing, used_up.until), (standing, at("2026-11-30T23:00:00Z")));
    assert_eq!(
        until(&mut planner, "2026-12-01T00:00:00Z"),
        [
            said("2026-11-30T12:30:00Z", &["12:30:00Z held budget"]),
            said("2026-11-30T13:30:00Z", &["12:30:00Z turned missed budget"]),
            said("2026-11-30T14:30:00Z", &["14:30:00Z held budget"]),
            said("2026-11-30T15:30:00Z", &["14:30:00Z turned missed budget"]),
            said("2026-11-30T16:30:00Z", &["16:30:00Z held budget"]),
            said("2026-11-30T17:30:00Z", &["16:30:00Z turned missed budget"]),
            said("2026-11-30T18:30:00Z", &["18:30:00Z held budget"]),
            said("2026-11-30T19:30:00Z", &["18:30:00Z turned missed budget"]),
            said("2026-11-30T20:30:00Z", &["20:30:00Z held budget"]),
            said("2026-11-30T21:30:00Z", &["20:30:00Z turned missed budget"]),
            said("2026-11-30T22:30:00Z", &["22:30:00Z held budget"]),
            said(
                "2026-11-30T23:00:00Z",
                &["22:30:00Z turned started", "start 22:30:00Z #1 by schedule"]
            ),
        ]
    );
    assert_eq!(planner.used_up(&id("a"), at("2026-11-30T23:00:00Z")), None);
}

#[test]
fn the_next_due_instant_ends_the_waiting_and_waits_itself() {
    let mut planner = capped(cron("* * * * *"), own(Zone::utc()));
    spends(&mut planner, "2026-11-30T08:01:00Z", 1.0);
    let told = until(&mut planner, "2026-11-30T08:03:30Z");
    assert_eq!(
        told,
        [
            said("2026-11-30T08:02:00Z", &["08:02:00Z held budget"]),
            said(
                "2026-11-30T08:03:00Z",
                &["08:02:00Z turned missed budget", "08:03:00Z held budget"]
            ),
        ]
    );
    // The day turns at a due instant: the last one of the old day is missed, the new one starts.
    planner.look(now("2026-11-30T23:59:00Z"));
    let acts = short(&planner.look(now("2026-12-01T00:00:00Z")));
    assert_eq!(
        acts,
        ["23:59:00Z turned missed budget", "00:00:00Z started", "start 00:00:00Z #1 by schedule"]
    );
}

#[test]
fn jobs_share_the_cap_of_all_and_one_that_costs_nothing_knows_none() {
    let jobs = [("a", cron("0 * * * *")), ("b", cron("0 * * * *")), ("free", cron("0 * * * *"))];
    let mut planner = planner(&jobs, EIGHT);
    for job in ["a", "b"] {
        planner.use_caps(&id(job), shared(), at(EIGHT));
    }
    let acts = planner.look(now(NINE));
    let starts: Vec<_> = acts
        .iter()
        .filter_map(|act| match act {
            Act::Record(record) => Some((record.job.clone(), record.start?)),
            _ => None,
        })
        .collect();
    assert_eq!(starts.len(), 3);
    for (job, start) in &starts {
        let cost = if *job == id("free") { 0.0 } else { 0.5 };
        let done = RunEnd { usd: usd(cost), ..end(State::Succeeded, None, NINE) };
        planner.ended(job, start.id, Some(&done), at(NINE));
    }
    let acts = short(&planner.look(now("2026-11-30T10:00:00Z")));
    assert_eq!(
        acts,
        [
            "10:00:00Z held budget",
            "10:00:00Z held budget",
            "10:00:00Z started",
            "start 10:00:00Z #1 by schedule"
        ]
    );
    // A cap that is raised, or gone, holds nobody.
    planner.use_caps(
        &id("a"),
        Caps { all: Some(usd(2.0)), ..shared() },
        at("2026-11-30T10:01:00Z"),
    );
    let acts = short(&planner.look(now("2026-11-30T10:01:00Z")));
    assert_eq!(acts, ["10:00:00Z turned started", "start 10:00:00Z #1 by schedule"]);
}

#[test]
fn a_slot_that_a_dead_process_held_waits_on_starts_or_is_missed() {
    let due = at("2026-11-30T22:30:00Z");
    let restarted = |when: &str| {
        let berlin = zone("Europe/Berlin");
        let mut planner = Planner::default();
        let mut spent = Spent::default();
        spent.know_job(id("a"), day_in(&berlin, due), usd(1.0));
        planner.knows_spent(spent);
        let memory = Memory { decided_until: due, ..Memory::since(due) };
        planner.adopt(&id("a"), cron("30 */2 * * *"), memory, at(when));
        planner.use_caps(&id("a"), own(berlin), at(when));
        let slot = alone(due, Waits::ForBudget);
        let mut acts = short(&planner.waits_again(&id("a"), slot, at(when)));
        acts.extend(short(&planner.look(now(when))));
        (acts, planner.wake())
    };
    let midnight = at("2026-11-30T23:00:00Z");
    assert_eq!(restarted("2026-11-30T22:40:00Z"), (vec![], Some(midnight)));
    let started = ["22:30:00Z turned started", "start 22:30:00Z #1 by catchup"];
    assert_eq!(restarted("2026-11-30T23:00:00Z").0, started);
    assert_eq!(restarted("2026-11-30T23:30:00Z").0[0], "22:30:00Z turned missed budget");
    let mut gone = Planner::default();
    let acts = gone.waits_again(&id("a"), alone(due, Waits::ForBudget), midnight);
    assert_eq!(short(&acts), ["22:30:00Z turned missed disabled"]);
}

#[test]
fn a_further_attempt_waits_for_the_next_day_or_does_not_come() {
    let failed_at = |planner: &mut Planner, when: &str, dollars: f64| {
        let start = start_of(&planner.look(now(when)));
        let kind = Some(ErrorKind::IncompleteStream);
        let failed = RunEnd { usd: usd(dollars), ..end(State::Failed, kind, when) };
        assert_eq!(planner.ended(&id("a"), start.id, Some(&failed), at(when)), []);
    };
    let mut late = capped(cron("30 23 * * *"), own(Zone::utc()));
    failed_at(&mut late, "2026-11-30T23:30:00Z", 1.0);
    let started = ["start 23:30:00Z #2 by retry", "settled 23:30:00Z #1"];
    assert_eq!(
        until(&mut late, "2026-12-01T00:10:00Z"),
        [said("2026-11-30T23:30:30Z", &[]), said("2026-12-01T00:00:00Z", &started)]
    );
    // The next due instant is first.
    let mut early = capped(cron("0 * * * *"), own(Zone::utc()));
    failed_at(&mut early, NINE, 1.0);
    assert_eq!(
        until(&mut early, "2026-11-30T10:00:00Z"),
        [
            said("2026-11-30T09:00:30Z", &[]),
            said("2026-11-30T09:30:00Z", &["settled 09:00:00Z #1"]),
            said("2026-11-30T10:00:00Z", &["10:00:00Z held budget"]),
        ]
    );
}

#[test]
fn past_slots_wait_for_money_as_long_as_it_takes() {
    let mut planner = capped(cron("0 0 1 1 *"), own(Zone::utc()));
    let past = vec![(at("2026-01-01T00:00:00Z"), 1), (at("2025-01-01T00:00:00Z"), 1)];
    let start = start_of(&planner.run_past(&id("a"), past, at(EIGHT)).1);
    let done = RunEnd { usd: usd(1.0), ..end(State::Succeeded, None, NINE) };
    assert_eq!(planner.ended(&id("a"), start.id, Some(&done), at(NINE)), []);
    assert!(planner.has_backfill());
    assert_eq!(planner.backfill_wake(), Some(at("2026-12-01T00:00:00Z")));
    let told = until(&mut planner, "2026-12-01T00:00:00Z");
    assert_eq!(told, [said("2026-12-01T00:00:00Z", &["start 00:00:00Z #1 by backfill"])]);
    assert_eq!(planner.backfill_wake(), None);
}

#[test]
fn money_comes_before_models_and_a_model_is_asked_once_there_is_some() {
    let mut planner = capped(cron("30 */2 * * *"), own(zone("Europe/Berlin")));
    spends(&mut planner, "2026-11-30T20:30:00Z", 1.0);
    let servers: Arc<[Server]> = [Server("s".into())].into();
    planner.use_servers(&id("a"), servers, at("2026-11-30T21:00:00Z"));
    assert_eq!(
        until(&mut planner, "2026-11-30T23:00:00Z"),
        [
            said("2026-11-30T22:30:00Z", &["22:30:00Z held budget"]),
            said("2026-11-30T23:00:00Z", &["ask s"]),
        ]
    );
    // What ends the waiting in vain is the reason.
    let told = until(&mut planner, "2026-11-30T23:30:00Z");
    let (when, acts) = told.last().unwrap();
    assert_eq!(when, "2026-11-30T23:30:00Z");
    assert_eq!(*acts, ["22:30:00Z turned missed model_unreachable"]);
}

#[test]
fn a_run_by_hand_is_counted_and_what_waits_behind_it_is_held() {
    let mut rules = cron("0 * * * *");
    rules.overlap = Overlap::BufferAll;
    let mut planner = capped(rules, own(Zone::utc()));
    let (ByHand::Starts(living), _) = planner.by_hand(&id("a"), at(EIGHT)) else {
        panic!("nothing of the job lives");
    };
    assert_eq!(short(&planner.look(now(NINE))), ["09:00:00Z buffered overlap"]);
    let done = RunEnd { usd: usd(3.0), ..end(State::Succeeded, None, NINE) };
    assert_eq!(planner.ended(&id("a"), living, Some(&done), at(NINE)), []);
    assert_eq!(
        until(&mut planner, "2026-11-30T09:45:00Z"),
        [said("2026-11-30T09:30:00Z", &["09:00:00Z turned skipped budget"])]
    );
}
