//! Lanes bound how many runs work at once, and waiting in one costs a run nothing.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::scenes::busy;
use support::scripted;
use support::scripts::{MANY, by_hand};

#[test]
fn a_lane_of_width_one_takes_turns_and_waiting_costs_no_time() {
    let house = scripted(
        "[[rule]]\nstep = [{ delay = \"1500ms\" }, { text = \"fine\" }]\n",
        "[lanes]\nnarrow = 1\n",
    );
    let lane = "lane = \"narrow\"";
    for job in ["a", "b", "c"] {
        // Three times 1.5 s is more than any of them may take.
        house.job(job, &by_hand("go", lane, "timeout = \"4s\""));
    }
    house.job("impatient", &by_hand("go", lane, "lane_timeout = \"500ms\""));
    let serve = house.serve();
    let run_ids = ["a", "b", "c"].map(|job| house.detach(job));
    let lanes = house.say(&["status", "--json"]).json()["running"]["lanes"].clone();
    let [a, b, c] = &run_ids;
    assert!(lanes.as_array().unwrap().contains(
        &json!({"lane": "narrow", "width": 1, "held": 1, "waiting": 2, "holders": [a], "line": [b, c]})
    ));
    let table = house.say(&["status"]).stdout;
    let row = table.lines().find(|line| line.starts_with("narrow ")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["narrow", "1", "1", "2", "a"]);
    let impatient = house.detach("impatient");
    for run_id in &run_ids {
        assert_eq!(house.ended(run_id)["state"], "succeeded");
    }
    let at_once = "SELECT count(*) FROM v1_runs x JOIN v1_runs y
                   ON x.run_id < y.run_id AND y.started_at < x.finished_at
                   AND x.started_at < y.finished_at";
    assert_eq!(house.value(at_once), 0);
    let waited = "SELECT max((julianday(started_at) - julianday(queued_at)) * 86400000) >= 2500,
                         max(duration_ms) < 4000 FROM v1_runs WHERE state = 'succeeded'";
    assert_eq!(house.rows(waited), [json!([1, 1])]);

    let run = house.ended(&impatient);
    assert_eq!(
        run["error"],
        json!({
            "kind": "lane_timeout", "message": "no lane was free within 500ms", "limit": "lane",
            "limit_ms": 500, "phase": null, "retryable": false,
        })
    );
    assert_eq!((&run["state"], &run["attempts"]), (&json!("failed"), &json!([])));
    assert_eq!((&run["started_at"], &run["model"]), (&Value::Null, &Value::Null));
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_run_that_waits_can_be_cancelled_and_takes_nothing_with_it() {
    let (house, serve) = busy("1s");
    assert_eq!(house.say(&["cancel", "waits"]).code, Some(0));
    house.until("SELECT state = 'cancelled' FROM v1_runs WHERE job = 'waits'");
    assert_eq!(
        house.rows("SELECT job, state, error_kind, started_at IS NULL FROM v1_runs ORDER BY job"),
        [
            json!(["sleeps", "running", null, 0]),
            json!(["streams", "running", null, 0]),
            json!(["waits", "cancelled", "cancelled", 1]),
        ]
    );
    // By the beginning of its id, and the lane is free for the next.
    let run_id = house.value("SELECT run_id FROM v1_runs WHERE job = 'sleeps'");
    assert_eq!(house.say(&["cancel", run_id.as_str().unwrap()]).code, Some(0));
    house.until("SELECT state = 'cancelled' FROM v1_runs WHERE job = 'sleeps'");
    assert_eq!(house.living("sleep 60"), 0);
    assert_eq!(house.run("waits").0, Some(0));
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn the_global_lane_holds_for_all_jobs() {
    let house = scripted(MANY, "[scheduler]\nmax_concurrent_runs = 1\n");
    for job in ["a", "b", "c"] {
        house.job(job, &by_hand("brief", "", ""));
    }
    let serve = house.serve();
    for run_id in ["a", "b", "c"].map(|job| house.detach(job)) {
        assert_eq!(house.ended(&run_id)["state"], "succeeded");
    }
    let at_once = "SELECT count(*) FROM v1_runs x JOIN v1_runs y
                   ON x.run_id < y.run_id AND y.started_at < x.finished_at
                   AND x.started_at < y.finished_at";
    assert_eq!(house.value(at_once), 0);
    assert_eq!(serve.stop().code, Some(0));
}
