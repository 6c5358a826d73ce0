//! Lanes bound how many runs work at once, and waiting in one costs a run nothing.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::ledger::{assert_once, instant_ms};
use support::scenes::busy;
use support::scripts::{MANY, PLAIN, by_hand, once_at, soon};
use support::stub::{Act, Stub, head, reply, text};
use support::{House, asking, scripted};

/// What a loaded machine may add to what needs no time.
const MOMENT: Duration = Duration::from_secs(3);

/// Whoever types a verb does not wait for longer.
const PROMPTLY: Duration = Duration::from_secs(2);

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
    assert_eq!(runs_at_once(&house), 0);
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
    assert_eq!(runs_at_once(&house), 0);
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_run_that_hangs_delays_its_own_lane_only_and_that_until_its_limit() {
    const LIMIT: Duration = Duration::from_secs(4);
    let stub = Stub::answering(|request| match prompt(request) {
        "hang" => vec![Act::Say(head() + &text("so far")), Act::Hold],
        _ => vec![Act::Say(reply("fine"))],
    });
    let house = asking(&stub, "", "[lanes]\nx = 1\ny = 1\n");
    let due = soon();
    let job = |lane: &str, after: u64, prompt: &str, retry: &str| {
        let at = due + Duration::from_secs(after);
        format!("lane = \"{lane}\"\n{}", once_at(at, prompt, retry))
    };
    let limit = format!("max_attempts = 1\n[limits]\ntimeout = \"{}s\"", LIMIT.as_secs());
    house.job("a", &job("x", 0, "hang", &limit));
    house.job("b", &job("y", 1, "go", ""));
    house.job("c", &job("y", 1, "go", ""));
    house.job("d", &job("x", 1, "go", ""));
    let serve = house.serve();
    house.until("SELECT count(*) = 4 FROM v1_runs WHERE finished_at IS NOT NULL");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows("SELECT job, state, error_kind, partial_text FROM v1_runs ORDER BY job"),
        [
            json!(["a", "timed_out", "deadline", "so far"]),
            json!(["b", "succeeded", null, null]),
            json!(["c", "succeeded", null, null]),
            json!(["d", "succeeded", null, null]),
        ]
    );
    let at = |job: &str, column: &str| {
        instant_ms(&house.value(&format!("SELECT {column} FROM v1_runs WHERE job = '{job}'")))
    };
    // The store rounds to the millisecond.
    let within = |from: i64, length: Duration| {
        let length = i64::try_from(length.as_millis()).unwrap();
        from + length - 5..from + length + i64::try_from(MOMENT.as_millis()).unwrap()
    };
    let (begun, freed) = (at("a", "started_at"), at("a", "finished_at"));
    assert!(within(begun, LIMIT).contains(&freed), "{freed}, begun {begun}");
    // Three seconds before the limit of what hangs.
    for job in ["b", "c"] {
        let ended = at(job, "finished_at");
        assert!(ended < freed, "{job}: {ended}, {freed}");
    }
    let (started, ended) = (at("d", "started_at"), at("d", "finished_at"));
    assert!(within(begun, LIMIT).contains(&started), "{started}, {begun}");
    assert!(within(started, Duration::ZERO).contains(&ended), "{ended}, begun {started}");
    assert_eq!(stub.requests().len(), 4);
    assert_once(&house);
}

#[test]
fn two_jobs_that_are_due_at_once_in_one_lane_ask_their_model_once_each() {
    let stub = Stub::new(|_| vec![Act::Wait(Duration::from_millis(500)), Act::Say(reply("fine"))]);
    let house = asking(&stub, "", "[lanes]\nnarrow = 1\n");
    let due = soon();
    for job in ["a", "b"] {
        house.job(job, &format!("lane = \"narrow\"\n{}", once_at(due, job, "")));
    }
    house.job("c", &format!("lane = \"narrow\"\n{}", PLAIN.replace("go", "c")));
    let serve = house.serve();
    house.until("SELECT count(*) = 2 FROM v1_runs WHERE finished_at IS NOT NULL");
    assert_eq!(house.run("c").0, Some(0));
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows("SELECT job, trigger, attempt, state FROM v1_runs ORDER BY job"),
        [
            json!(["a", "schedule", 1, "succeeded"]),
            json!(["b", "schedule", 1, "succeeded"]),
            json!(["c", "manual", 1, "succeeded"]),
        ]
    );
    assert_eq!(runs_at_once(&house), 0);
    let longest = house.value("SELECT max(duration_ms) FROM v1_runs").as_u64().unwrap();
    assert!(Duration::from_millis(longest) < MOMENT, "{longest} ms");
    let requests = stub.requests();
    let mut asked: Vec<_> = requests.iter().map(prompt).collect();
    asked.sort_unstable();
    assert_eq!(asked, ["a", "b", "c"]);
}

#[test]
fn verbs_are_answered_at_once_while_a_run_goes_on() {
    let (house, serve) = busy("1s");
    house.job("other", PLAIN);
    let verbs: [&[&str]; 9] = [
        &["reload"],
        &["ls"],
        &["next", "other"],
        &["status"],
        &["pause", "other"],
        &["resume", "other"],
        &["runs"],
        &["why", "other"],
        &["run", "other"],
    ];
    for verb in verbs {
        // The quickest of a few: a busy machine is no slow verb.
        let quick = (0..3).any(|_| {
            let said = house.say(verb);
            assert_eq!(said.code, Some(0), "{verb:?}: {said:?}");
            said.took < PROMPTLY
        });
        assert!(quick, "{verb:?}");
    }
    let others = "SELECT job, state FROM v1_runs WHERE job <> 'other' ORDER BY job";
    assert_eq!(
        house.rows(others),
        [json!(["sleeps", "running"]), json!(["streams", "running"]), json!(["waits", "queued"])]
    );
    assert_eq!(serve.stop().code, Some(0));
}

/// What a request asks.
fn prompt(request: &Value) -> &str {
    request["messages"][1]["content"].as_str().unwrap_or_default()
}

/// How many pairs of runs worked at the same time. A run gives its lane back a moment before the
/// end of its row.
fn runs_at_once(house: &House) -> Value {
    house.value(
        "SELECT count(*) FROM v1_runs x JOIN v1_runs y ON x.run_id < y.run_id
         AND 86400000 * (julianday(min(x.finished_at, y.finished_at))
                         - julianday(max(x.started_at, y.started_at))) > 100",
    )
}
