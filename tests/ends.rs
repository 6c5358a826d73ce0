//! A run ends once and for one reason. What comes later changes nothing, and what comes next waits.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::ledger::{assert_all_ended, assert_once, assert_one_at_a_time, instant_ms, story};
use support::run_object::assert_run;
use support::scripts::{MANY, PLAIN, by_hand, soon};
use support::stub::{Act, Stub, call, finish, head, reply, text};
use support::{House, Running, asking, scripted, until};

#[test]
fn what_a_model_says_after_the_deadline_changes_nothing() {
    // It goes on talking to a connection that nobody listens to.
    let stub = Stub::new(|_| {
        let late = text("too late") + &finish("stop");
        vec![Act::Say(head() + &text("so far")), Act::Repeat(late, Duration::from_millis(2500))]
    });
    let house = asking(&stub, "", "");
    house.job("j", &format!("{PLAIN}[limits]\ntimeout = \"2s\"\n"));
    let serve = house.serve();
    let run_id = house.detach("j");
    let run = house.ended(&run_id);
    assert_run(
        &run,
        &json!({
            "/state": "timed_out", "/error/kind": "deadline", "/reply": null,
            "/partial_text": "so far",
        }),
    );
    until("it has talked to nobody", || stub.clients_gone() == 1);
    assert_eq!(house.ended(&run_id), run);
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.files_with("too late"), Vec::<std::path::PathBuf>::new());
    assert_eq!(stub.requests().len(), 1);
}

#[test]
fn a_run_that_timed_out_is_tried_again_when_its_clean_up_has_ended() {
    // The clean-up of the first attempt takes as long as the grace of what it has left behind.
    let left = "{\"command\": \"(trap '' TERM; while :; do sleep 0.2; done) & echo begun\"}";
    let stub = Stub::new(move |n| match n {
        0 => vec![Act::Say(head() + &call("exec", left) + &finish("tool_calls"))],
        1 => vec![Act::Say(head() + &text("so far")), Act::Hold],
        _ => vec![Act::Say(reply("fine"))],
    });
    let house = asking(&stub, "", "");
    let job = by_hand("go", "", "timeout = \"4s\"\nstop_grace = \"2s\"");
    let due = soon();
    house
        .job("j", &format!("{job}[schedule]\nat = \"{due:.3}\"\n[retry]\nbackoff = [\"100ms\"]\n"));
    let serve = house.serve();
    until("it is asked again", || stub.requests().len() == 3);
    // Nobody listens to the first attempt any more.
    assert_eq!(stub.clients_gone(), 1);
    house.until("SELECT state = 'succeeded' FROM v1_runs WHERE attempt = 2");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        story(&house, "j"),
        [json!([1, "schedule", "timed_out", "deadline"]), json!([2, "retry", "succeeded", null])]
    );
    let rows = house.rows(
        "SELECT r.started_at, r.finished_at, due_at, c.duration_ms
         FROM v1_runs r LEFT JOIN v1_cleanups c ON c.run_id = r.run_id AND c.step = 'processes'
         ORDER BY attempt",
    );
    let [first, second] = &rows[..] else { panic!("{rows:#?}") };
    assert!(first[3].as_u64().unwrap() >= 2000, "{rows:#?}");
    assert!(instant_ms(&second[0]) >= instant_ms(&first[1]) + 100, "{rows:#?}");
    assert_eq!(first[2], second[2]);
    assert_eq!(stub.requests().len(), 3);
    assert_one_at_a_time(&house, "j");
    assert_once(&house);
    house.assert_nothing_is_left();
}

/// How the same run is made to end.
type Ending = fn(&House, Running);

#[test]
fn five_ends_of_the_same_run_have_five_reasons() {
    let stays: Ending = |house, serve| {
        house.until("SELECT count(*) >= 1 FROM v1_runs WHERE finished_at IS NOT NULL");
        assert_eq!(serve.stop().code, Some(0));
    };
    let is_cancelled: Ending = |house, serve| {
        assert_eq!(house.say(&["cancel", "j"]).code, Some(0));
        house.until("SELECT count(*) >= 1 FROM v1_runs WHERE finished_at IS NOT NULL");
        assert_eq!(serve.stop().code, Some(0));
    };
    let stops: Ending = |_, serve| assert_eq!(serve.stop().code, Some(0));
    let row = |state: &str, kind: &str, limit: Option<&str>| {
        json!([state, kind, limit, "schedule", "model_call"])
    };
    let window = "timeout = \"1500ms\"";
    let table: [(&str, &str, &str, Ending, Value); 5] = [
        ("", "2s", "skip", stays, row("timed_out", "deadline", Some("deadline"))),
        (window, "1m", "skip", stays, row("failed", "idle_timeout", Some("idle"))),
        ("", "1m", "skip", is_cancelled, row("cancelled", "cancelled", None)),
        ("", "1m", "skip", stops, row("interrupted", "shutdown", None)),
        ("", "1m", "cancel_other", stays, row("cancelled", "replaced", None)),
    ];
    let mut reasons = BTreeSet::new();
    for (provider, timeout, overlap, ends, expected) in table {
        let stub = Stub::new(|_| vec![Act::Say(head() + &text("so far")), Act::Hold]);
        let house = asking(&stub, provider, "[scheduler]\nshutdown_grace = \"100ms\"\n");
        house.job(
            "j",
            &format!(
                "[schedule]\ncron = \"* * * * * *\"\noverlap = \"{overlap}\"\n{PLAIN}\
                 [limits]\ntimeout = \"{timeout}\"\n"
            ),
        );
        let serve = house.serve();
        until("the model is asked", || !stub.requests().is_empty());
        ends(&house, serve);
        assert_all_ended(&house);
        let first = "SELECT state, error_kind, limit_name, trigger, phase
                     FROM v1_runs ORDER BY due_at, attempt LIMIT 1";
        assert_eq!(house.rows(first), [expected]);
        reasons.insert(house.rows(first)[0][1].to_string());
    }
    assert_eq!(reasons.len(), 5, "{reasons:?}");
}

#[test]
fn the_first_reason_stays_and_a_later_one_is_noted() {
    let house = scripted(MANY, "[scheduler]\nshutdown_grace = \"1s\"\n");
    house.job("j", &by_hand("deaf", "", "stop_grace = \"10s\""));
    let serve = house.serve();
    house.detach("j");
    until("the tool works", || house.living("sleep") >= 1);
    assert_eq!(house.say(&["cancel", "j"]).code, Some(0));
    house.until("SELECT state = 'running' AND work_state = 'cancelled' FROM runs");
    serve.signal(Signal::SIGTERM);
    let said = serve.end();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.contains("the run is ending already"), "{}", said.stderr);
    assert_eq!(
        house.rows("SELECT state, error_kind FROM v1_runs"),
        [json!(["cancelled", "cancelled"])]
    );
    until("no process is left", || house.run_processes().is_empty());
}
