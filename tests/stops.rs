//! However the program is stopped, by signals or a power cut, it is quick and no row stays open.

#![expect(clippy::disallowed_methods, reason = "these tests time the program from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde_json::json;
use support::ledger::{assert_all_ended, assert_no_gap, assert_sound, ledger};
use support::scenes::{busy, get_busy, soon_busy};
use support::scripts::{EVERY_SECOND, MANY, by_hand};
use support::{scripted, until};

/// What the ledger says about the ends of runs, by job.
const ENDS: &str = "SELECT job, state, error_kind FROM v1_runs ORDER BY job";

#[test]
fn one_signal_stops_within_the_grace_and_every_row_says_so() {
    let (house, serve) = busy("1s");
    let start = Instant::now();
    let said = serve.stop();
    let took = start.elapsed();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!((Duration::from_secs(1)..Duration::from_secs(15)).contains(&took), "{took:?}");
    house.assert_nothing_is_left();
    assert_eq!(
        house.rows(ENDS),
        ["sleeps", "streams", "waits"].map(|job| json!([job, "interrupted", "shutdown"]))
    );
    assert_eq!(
        house.rows("SELECT job, partial_text, cleanup_outcome FROM v1_runs ORDER BY job"),
        [
            json!(["sleeps", null, "forced"]),
            json!(["streams", "so far", "forced"]),
            json!(["waits", null, "clean"]),
        ]
    );
    assert_sound(&house);
    assert!(!house.path("state/punctual.sock").exists());
    // A start finds nothing to close.
    let before = ledger(&house);
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(ledger(&house), before);
}

#[test]
fn a_terminals_interrupt_stops_the_daemon_and_lets_its_commands_have_the_grace() {
    const GRACE: Duration = Duration::from_secs(3);
    let house = soon_busy(&format!("{}s", GRACE.as_secs()));
    house.job("tick", EVERY_SECOND);
    let serve = house.reached(house.start_in_group(&["serve"]));
    get_busy(&house);
    house.until("SELECT count(*) >= 1 FROM v1_runs WHERE job = 'tick'");
    let start = Instant::now();
    serve.signal_group(Signal::SIGINT);
    serve.until_stderr("stopping");
    let stopping = Timestamp::now();
    // No command of a run is in the group of the terminal.
    assert_eq!(house.living("sleep 60"), 1);
    let said = serve.end();
    let took = start.elapsed();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!((GRACE..GRACE + Duration::from_secs(5)).contains(&took), "{took:?}");
    house.assert_nothing_is_left();
    // Seconds have come and gone, and nothing has started.
    let started = format!("SELECT count(*) FROM v1_runs WHERE queued_at > '{stopping:.3}'");
    assert_eq!(house.value(&started), 0);
    assert_eq!(
        house.rows(&ENDS.replace("ORDER", "WHERE job <> 'tick' ORDER")),
        ["sleeps", "streams", "waits"].map(|job| json!([job, "interrupted", "shutdown"]))
    );
    assert_all_ended(&house);
    assert_sound(&house);
}

#[test]
fn a_terminals_interrupt_cancels_the_run_that_somebody_watches() {
    let house = scripted(MANY, "");
    house.job("sleeps", &by_hand("sleep", "", ""));
    let run = house.start_in_group(&["run", "sleeps", "--json"]);
    until("the tool works", || house.living("sleep 60") == 1);
    run.signal_group(Signal::SIGINT);
    let said = run.end();
    assert_eq!((said.code, &said.json()["state"]), (Some(130), &json!("cancelled")), "{said:?}");
    assert!(said.took < Duration::from_secs(15), "{said:?}");
    house.assert_nothing_is_left();
    assert_eq!(house.rows(ENDS), [json!(["sleeps", "cancelled", "cancelled"])]);
}

#[test]
fn a_stop_is_not_held_up_by_a_command_that_will_not_go() {
    let house = scripted(MANY, "[scheduler]\nshutdown_grace = \"1s\"\n");
    house.job("deaf", &by_hand("deaf", "", "stop_grace = \"1m\""));
    let serve = house.serve();
    house.detach("deaf");
    until("the tool works", || house.living("sleep") >= 1);
    let start = Instant::now();
    assert_eq!(serve.stop().code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    house.assert_nothing_is_left();
    assert_eq!(
        house.rows("SELECT state, error_kind, cleanup_outcome FROM v1_runs"),
        [json!(["interrupted", "shutdown", "forced"])]
    );
}

#[test]
fn a_stop_during_a_long_clean_up_loses_no_result() {
    let house = scripted(MANY, "[scheduler]\nshutdown_grace = \"1s\"\ncleanup_timeout = \"2m\"\n");
    house.job("j", &by_hand("stubborn", "", "stop_grace = \"1m\""));
    let serve = house.serve();
    house.detach("j");
    house.until("SELECT state = 'running' AND work_state = 'succeeded' FROM runs");
    let start = Instant::now();
    assert_eq!(serve.stop().code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    until("no process is left", || house.run_processes().is_empty());
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(house.rows(ENDS), [json!(["j", "succeeded", null])]);
}

#[test]
fn what_ends_within_the_grace_ends_by_itself() {
    let house = scripted(MANY, "[scheduler]\nshutdown_grace = \"60s\"\n");
    house.job("brief", &by_hand("brief", "", ""));
    let serve = house.serve();
    house.detach("brief");
    house.until("SELECT state = 'running' FROM v1_attempts");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.rows(ENDS), [json!(["brief", "succeeded", null])]);
}

#[test]
fn a_second_signal_stops_at_once() {
    let (house, serve) = busy("60s");
    let start = Instant::now();
    serve.signal(Signal::SIGTERM);
    serve.until_stderr("stopping");
    serve.signal(Signal::SIGINT);
    assert_eq!(serve.end().code, Some(130));
    assert!(start.elapsed() < Duration::from_secs(15));
    until("no process is left", || house.run_processes().is_empty());
    // The rows say so already; the next start has nothing to add.
    let told = [
        json!(["sleeps", "interrupted", "shutdown"]),
        json!(["streams", "interrupted", "shutdown"]),
        json!(["waits", "interrupted", "shutdown"]),
    ];
    assert_eq!(house.rows(ENDS), told);
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(house.rows(ENDS), told);
    assert_sound(&house);
}

#[test]
fn a_second_interrupt_does_not_wait_for_the_clean_up() {
    let house = scripted(MANY, "[scheduler]\ncleanup_timeout = \"2m\"\n");
    house.job("j", &by_hand("stubborn", "", "stop_grace = \"1m\""));
    house.job("k", &by_hand("go", "", ""));
    let run = house.start(&["run", "j"]);
    house.until("SELECT state = 'running' AND work_state = 'succeeded' FROM runs");
    run.signal(Signal::SIGINT);
    run.until_stderr("once more to leave at once");
    run.signal(Signal::SIGINT);
    let said = run.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    until("no process is left", || house.run_processes().is_empty());
    // The work had ended before: that stays what happened, and the row says so already.
    assert_eq!(house.rows(ENDS), [json!(["j", "succeeded", null])]);
    assert_eq!(house.run("k").0, Some(0));
    assert_eq!(
        house.rows(ENDS),
        [json!(["j", "succeeded", null]), json!(["k", "succeeded", null])]
    );
}

#[test]
fn after_a_power_cut_rows_are_closed_once_and_processes_are_gone() {
    let (house, serve) = busy("1s");
    house.job("tick", EVERY_SECOND);
    serve.kill();
    let serve = house.serve();
    assert!(serve.stderr().contains("closed runs"), "{}", serve.stderr());
    until("no process is left", || house.run_processes().is_empty());
    assert_eq!(
        house.rows("SELECT job, state, error_kind FROM v1_runs WHERE job <> 'tick' ORDER BY job"),
        ["sleeps", "streams", "waits"].map(|job| json!([job, "interrupted", "interrupted"]))
    );
    let unfinished = "SELECT count(*) FROM v1_runs WHERE job <> 'tick' AND finished_at IS NULL";
    assert_eq!(house.value(unfinished), 0);
    let attempts = "SELECT count(*) FROM v1_attempts a JOIN v1_runs r USING (run_id)
                    WHERE a.state = 'running' AND r.job <> 'tick'";
    assert_eq!(house.value(attempts), 0);
    assert_eq!(std::fs::read_dir(house.path("state/workspaces")).unwrap().count(), 0);
    // Cut it again while nothing of this runs: these rows stay as they are.
    let closed = "SELECT * FROM runs WHERE job <> 'tick' ORDER BY run_id";
    let before = house.rows(closed);
    house.until("SELECT count(*) >= 1 FROM v1_runs WHERE job = 'tick'");
    serve.kill();
    let serve = house.serve();
    house.until("SELECT count(*) >= 2 FROM v1_runs WHERE job = 'tick' AND state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.rows(closed), before);
    assert_no_gap(&house, "tick");
    assert_sound(&house);
}

#[test]
fn a_power_cut_during_the_clean_up_loses_no_result() {
    let house = scripted(MANY, "[scheduler]\ncleanup_timeout = \"2m\"\n");
    house.job("j", &by_hand("stubborn", "", "stop_grace = \"1m\""));
    let serve = house.serve();
    house.detach("j");
    let stored = "SELECT state = 'running' AND work_state = 'succeeded' FROM runs";
    house.until(stored);
    assert!(!house.run_processes().is_empty());
    serve.kill();
    assert_eq!(house.value(stored), 1);
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(
        house.rows("SELECT state, reply, error_kind, finished_at IS NOT NULL FROM v1_runs"),
        [json!(["succeeded", "fine", null, 1])]
    );
    until("no process is left", || house.run_processes().is_empty());
    let before = ledger(&house);
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(ledger(&house), before);
    assert_sound(&house);
}
