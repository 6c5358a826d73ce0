//! Caps of days under a clock that is moved by hand: what is held starts when the day turns, in the
//! zone of the job or of all, whatever restarts and clock changes there are.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/world.rs"]
mod world;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use support::ledger::{assert_once, assert_sound};
use support::{House, scripted};
use world::World;

/// Half a dollar each time.
const SCRIPT: &str =
    "[[rule]]\nstep = [{ text = \"fine\" }, { usage = { input = 500, output = 0 } }]\n";
const PRICE: &str = "[models.providers.local.models.m]\nprice = { input = 1000 }\n";

fn house(top: &str, more: &str) -> House {
    let house = scripted(SCRIPT, &format!("{PRICE}{more}"));
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &format!("timezone_database = \"bundled\"\n{top}\n{config}"));
    house
}

/// Due at these minutes past each hour.
fn hourly(minute: u8, zone: &str, limits: &str) -> String {
    format!(
        "[schedule]\ncron = \"{minute} * * * *\"\ntimezone = \"{zone}\"\n\
         [agent]\nprompt = \"go\"\ntools = []\n[limits]\n{limits}\n"
    )
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Both clocks go on to this time.
fn goes_to(world: &World, time: &str) {
    world.clock.advance(
        at(time).duration_since(punctual::clock::Clock::wall(&*world.clock)).unsigned_abs(),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_starts_at_midnight_of_the_jobs_zone_also_after_a_restart() {
    // The night in which Berlin's clocks go back: its day has 25 hours, and ends at 23:00 UTC.
    let job = hourly(40, "Europe/Berlin", "max_usd_per_day = 1");
    let jobs = [("a", job.as_str())];
    let mut world = World::in_house(house("", ""), &jobs, "2026-10-25T18:30:00Z").await;
    world.goes_to_and_runs("a", "2026-10-25T18:40:00Z");
    world.goes_to_and_runs("a", "2026-10-25T19:40:00Z");
    world.is_idle();
    goes_to(&world, "2026-10-25T20:40:00Z");
    world.until("SELECT decision = 'held' FROM v1_slots WHERE due_at LIKE '%20:40%'");
    // Half the distance to the next due time.
    goes_to(&world, "2026-10-25T21:10:00Z");
    world.until("SELECT decision = 'missed' FROM v1_slots WHERE due_at LIKE '%20:40%'");
    goes_to(&world, "2026-10-25T21:40:00Z");
    world.until("SELECT decision = 'held' FROM v1_slots WHERE due_at LIKE '%21:40%'");
    goes_to(&world, "2026-10-25T22:40:00Z");
    world.until("SELECT decision = 'held' FROM v1_slots WHERE due_at LIKE '%22:40%'");
    world.stop().await;
    world.clock.advance(Duration::from_mins(10));
    world.start().await;
    goes_to(&world, "2026-10-25T22:59:59.900Z");
    world.is_idle();
    assert_eq!(world.house.value("SELECT count(*) FROM v1_runs"), 2);
    goes_to(&world, "2026-10-25T23:00:00Z");
    world.has_run("a", "2026-10-25T22:40:00Z");
    world.is_idle();
    world.stop().await;
    let slots = world.slots("a");
    let slot = |time: &str, decision: &str, reason: Option<&str>| {
        let time = format!("2026-10-25T{time}");
        json!([time, time, 1, decision, reason])
    };
    assert_eq!(
        slots,
        [
            slot("18:40", "started", None),
            slot("19:40", "started", None),
            slot("20:40", "missed", Some("budget")),
            slot("21:40", "missed", Some("budget")),
            slot("22:40", "started", None),
        ]
    );
    assert_eq!(
        world.house.rows("SELECT day, runs, usd FROM v1_costs ORDER BY day"),
        [json!(["2026-10-25", 2, 1.0]), json!(["2026-10-26", 1, 0.5])]
    );
    assert_once(&world.house);
    assert_sound(&world.house);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cap_of_all_counts_in_the_configurations_zone() {
    // Midnight in Tokyo is 15:00 UTC, in New York 05:00 UTC.
    let top = "timezone = \"Asia/Tokyo\"";
    let more = "[budget]\nmax_usd_per_day = 1\n";
    let (a, b) = (hourly(50, "America/New_York", ""), hourly(55, "America/New_York", ""));
    let jobs = [("a", a.as_str()), ("b", b.as_str())];
    let mut world = World::in_house(house(top, more), &jobs, "2026-11-30T12:30:00Z").await;
    world.goes_to_and_runs("a", "2026-11-30T12:50:00Z");
    world.goes_to_and_runs("b", "2026-11-30T12:55:00Z");
    world.is_idle();
    goes_to(&world, "2026-11-30T14:50:00Z");
    world.until("SELECT decision = 'held' FROM v1_slots WHERE job = 'a' AND due_at LIKE '%14:50%'");
    goes_to(&world, "2026-11-30T15:00:00Z");
    world.has_run("a", "2026-11-30T14:50:00Z");
    world.has_run("b", "2026-11-30T14:55:00Z");
    world.is_idle();
    world.stop().await;
    // The costs of both days of Tokyo are on one day of New York.
    assert_eq!(
        world.house.rows("SELECT day, job, runs, usd FROM v1_costs ORDER BY job"),
        [json!(["2026-11-30", "a", 2, 1.0]), json!(["2026-11-30", "b", 2, 1.0])]
    );
}
