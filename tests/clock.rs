//! A real daemon with a real ledger under a clock that is set forward, set back and sleeps.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;
#[path = "support/world.rs"]
mod world;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use support::scripted;
use world::World;

/// The clock may be moved on before the end of a run has reached everybody: side by side, no slot
/// is passed over for that.
const MINUTELY: &str = "[schedule]\ncron = \"* * * * *\"\noverlap = \"allow_all\"\n\
                        [agent]\nprompt = \"go\"\ntools = []\n";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_has_run_does_not_run_again_when_the_clock_is_set_back() {
    let mut world = World::new(&[("a", MINUTELY)], "2026-11-30T11:59:30Z").await;
    world.goes_to_and_runs("a", "2026-11-30T12:00:00Z");
    world.clock.step_to(at("2026-11-30T11:58:30Z"));
    world.goes_to_and_runs("a", "2026-11-30T11:59:00Z");
    world.clock.advance(Duration::from_mins(1));
    world.goes_to_and_runs("a", "2026-11-30T12:01:00Z");
    // Eight hours back: it goes on at the next minute, and not when the clock has caught up.
    world.clock.step_to(at("2026-11-30T04:00:30Z"));
    world.goes_to_and_runs("a", "2026-11-30T04:01:00Z");
    world.stop().await;
    let started = |time: &str| {
        let time = format!("2026-11-30T{time}");
        json!([time, time, 1, "started", null])
    };
    assert_eq!(
        world.slots("a"),
        [started("04:01"), started("11:59"), started("12:00"), started("12:01")]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_years_ahead_for_a_moment_stops_nothing() {
    let none = MINUTELY.replace("[agent]", "catchup = \"none\"\n[agent]");
    let jobs = [("a", MINUTELY), ("none", &none)];
    let mut world = World::new(&jobs, "2026-11-30T11:59:30Z").await;
    world.goes_to_and_runs("a", "2026-11-30T12:00:00Z");
    world.has_run("none", "2026-11-30T12:00:00Z");
    world.clock.step_to(at("2036-01-01T00:00:30Z"));
    world.has_run("a", "2036-01-01T00:00:00Z");
    world.until("SELECT count(*) = 1 FROM v1_slots WHERE job = 'none' AND reason = 'clock_step'");
    world.clock.step_to(at("2026-11-30T12:02:30Z"));
    world.goes_to_and_runs("a", "2026-11-30T12:03:00Z");
    world.has_run("none", "2026-11-30T12:03:00Z");
    // The same when it is set right while nobody looks.
    world.clock.step_to(at("2036-02-01T00:00:30Z"));
    world.has_run("a", "2036-02-01T00:00:00Z");
    world.until("SELECT count(*) = 1 FROM v1_slots WHERE job = 'none' AND reason = 'clock_step'");
    world.stop().await;
    world.clock.step_to(at("2026-11-30T12:04:30Z"));
    world.start().await;
    world.goes_to_and_runs("a", "2026-11-30T12:05:00Z");
    world.has_run("none", "2026-11-30T12:05:00Z");
    world.stop().await;
    let minute = |time: &str, what: [Option<&str>; 2]| {
        let time = format!("2026-11-30T{time}");
        json!([time, time, 1, what[0], what[1]])
    };
    let (started, missed) = ([Some("started"), None], [Some("missed"), Some("down")]);
    assert_eq!(
        world.slots("none"),
        [
            minute("12:00", started),
            json!(["2026-11-30T12:01", "2026-11-30T12:02", 2, "missed", "down"]),
            minute("12:03", started),
            minute("12:04", missed),
            minute("12:05", started),
        ]
    );
    // Runs that were started stay, and each instant has one row.
    let far = "SELECT count(*) FROM v1_runs WHERE due_at > '2036'";
    assert_eq!(world.house.value(far), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_sleeps_over_slots_makes_up_for_them_once() {
    let wide = "[schedule]\ncron = \"0 * * * *\"\ncatchup_window = \"12h\"\n\
                [agent]\nprompt = \"go\"\ntools = []\n";
    let mut world = World::new(&[("a", wide)], "2026-11-30T08:30:00Z").await;
    world.clock.suspend(Duration::from_hours(8));
    world.has_run("a", "2026-11-30T16:00:00Z");
    world.stop().await;
    assert_eq!(
        world.slots("a"),
        [
            json!(["2026-11-30T09:00", "2026-11-30T15:00", 7, "missed", "superseded"]),
            json!(["2026-11-30T16:00", "2026-11-30T16:00", 1, "started", null]),
        ]
    );
    let run = "SELECT trigger, slots, late_ms >= 1800000 FROM v1_runs";
    assert_eq!(world.house.rows(run), [json!(["catchup", 8, 1])]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_seconds_over_a_slot_starts_it_and_one_of_an_hour_starts_the_newest() {
    let fives = "[schedule]\ncron = \"*/5 * * * * *\"\n[agent]\nprompt = \"go\"\ntools = []\n";
    let noon = "[schedule]\ncron = \"0 12 * * *\"\n[agent]\nprompt = \"go\"\ntools = []\n";
    let jobs = [("fives", fives), ("noon", noon)];
    let mut world = World::new(&jobs, "2026-11-30T11:59:59.900Z").await;
    world.clock.step_to(at("2026-11-30T12:00:02.900Z"));
    world.has_run("noon", "2026-11-30T12:00:00Z");
    world.has_run("fives", "2026-11-30T12:00:00Z");
    world.is_idle();
    world.clock.step_to(at("2026-11-30T13:00:02.900Z"));
    world.has_run("fives", "2026-11-30T12:59:55Z");
    world.is_idle();
    world.goes_to_and_runs("fives", "2026-11-30T13:00:05Z");
    world.stop().await;
    let runs = "SELECT job, count(*) FROM v1_runs GROUP BY 1 ORDER BY 1";
    assert_eq!(world.house.rows(runs), [json!(["fives", 3]), json!(["noon", 1])]);
    let slots = "SELECT sum(slots), count(*) FROM v1_slots WHERE job = 'fives'";
    assert_eq!(world.house.rows(slots), [json!([722, 5])]);
}

/// A verb in a process of its own, which asks the daemon in this one.
fn say(world: &World, arguments: &[&str]) -> support::Said {
    tokio::task::block_in_place(|| world.house.say(arguments))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_overdue_jobs_respects_the_lane_and_holds_up_neither_people_nor_new_slots() {
    let slow = "[[rule]]\nstep = [{ delay = \"300ms\" }, { text = \"fine\" }]\n";
    let house = scripted(slow, "[scheduler]\nmax_concurrent_runs = 2\n");
    let overdue = "[schedule]\ncron = \"*/5 * * * *\"\ncatchup_window = \"5m\"\n\
                   [agent]\nprompt = \"go\"\ntools = []\n";
    let names: Vec<_> = (0..40).map(|n| format!("late{n:02}")).collect();
    let mut jobs: Vec<_> = names.iter().map(|name| (&name[..], overdue)).collect();
    let new = "[schedule]\nat = \"2026-11-30T14:01:03Z\"\n[agent]\nprompt = \"go\"\ntools = []\n";
    jobs.push(("new", new));
    let mut world = World::in_house(house, &jobs, "2026-11-30T08:01:00Z").await;
    world.stop().await;
    world.clock.suspend(Duration::from_hours(6));
    world.start().await;
    world.until("SELECT count(*) = 40 FROM v1_slots WHERE decision = 'started'");
    world.clock.advance(Duration::from_secs(3));
    for verb in
        [&["status"][..], &["pause", "late39"], &["resume", "late39"], &["cancel", "late38"]]
    {
        let said = say(&world, verb);
        assert_eq!(said.code, Some(0), "{said:?}");
        // A person waits for as long as a process takes to begin, not for six seconds of runs.
        assert!(said.took < Duration::from_secs(3), "{said:?}");
    }
    world.until("SELECT count(*) = 41 FROM v1_runs WHERE finished_at IS NOT NULL");
    world.stop().await;
    let rows = |sql: &str| world.house.rows(sql);
    assert_eq!(
        rows("SELECT trigger, count(*), sum(slots) FROM v1_runs GROUP BY 1 ORDER BY 1"),
        [json!(["catchup", 40, 40 * 72]), json!(["schedule", 1, 1])],
        "one run each stands for six hours"
    );
    let order = "SELECT count(*) FROM v1_runs WHERE started_at < (
                     SELECT started_at FROM v1_runs WHERE job = 'new')";
    let before = world.house.value(order).as_i64().unwrap();
    assert!(before < 40, "the new slot went before catch-ups that were there first");
}

/// A disk that takes nothing for a while, as far as one can be had without being root.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_recorded_is_decided_again_and_nothing_is_written_over_the_hole() {
    let mut world = World::new(&[("a", MINUTELY)], "2026-11-30T11:59:30Z").await;
    world.goes_to_and_runs("a", "2026-11-30T12:00:00Z");
    let db = world.house.writable();
    let full = "CREATE TRIGGER full BEFORE INSERT ON slots
                BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    db.execute_batch(full).unwrap();
    for _ in 0..3 {
        world.clock.advance(Duration::from_mins(1));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(world.slots("a").len(), 1);
    db.execute_batch("DROP TRIGGER full").unwrap();
    world.until("SELECT sum(slots) = 4 FROM v1_slots WHERE job = 'a'");
    world.goes_to_and_runs("a", "2026-11-30T12:04:00Z");
    world.stop().await;
    let minute = |time: &str, what: [Option<&str>; 2]| {
        let time = format!("2026-11-30T{time}");
        json!([time, time, 1, what[0], what[1]])
    };
    let started = [Some("started"), None];
    assert_eq!(
        world.slots("a"),
        [
            minute("12:00", started),
            json!(["2026-11-30T12:01", "2026-11-30T12:02", 2, "missed", "superseded"]),
            minute("12:03", started),
            minute("12:04", started),
        ]
    );
}
