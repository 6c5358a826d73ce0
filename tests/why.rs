//! What `why` prints: of real runs, and of a ledger in which everything has happened long ago.

#![expect(clippy::disallowed_methods, reason = "a history of long ago is written by hand")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use support::scripts::{BERLIN, EVERY_SECOND, MANY, PLAIN};
use support::{House, until};

fn house(jobs: &[(&str, &str)]) -> House {
    let house = House::new(BERLIN);
    house.write("model.toml", MANY);
    for (id, text) in jobs {
        house.job(id, text);
    }
    house
}

fn instant(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[test]
fn of_a_slot_that_ran_the_run_and_its_definition_are_told() {
    let house = house(&[("second", EVERY_SECOND)]);
    let serve = house.serve();
    house.until("SELECT count(*) > 0 FROM v1_runs WHERE state = 'succeeded'");
    // It reads beside a living `serve`.
    let due_at = house.value("SELECT min(due_at) FROM v1_runs WHERE state = 'succeeded'");
    let asked = ["why", "second", "--at", due_at.as_str().unwrap(), "--json"];
    let answer = house.say(&asked).json();
    serve.stop();
    let run = &house.rows(&format!(
        "SELECT run_id, queued_at, started_at, finished_at, duration_ms, late_ms, definition_hash
         FROM v1_runs WHERE due_at = {due_at}"
    ))[0];
    let slot = &house
        .rows(&format!("SELECT decided_at, late_ms FROM v1_slots WHERE due_at = {due_at}"))[0];
    let seen = house.value("SELECT first_seen_at FROM v1_definitions");
    let second = SignedDuration::from_secs(1);
    let shown = |at: Timestamp| format!("{at:.3}");
    let expected = json!({
        "job": "second", "at": due_at, "timezone": "Europe/Berlin", "verdict": "decided",
        "decision": "started", "reason": null, "sentence": "A run was started for it",
        "advice": null, "note": null,
        "slot": {
            "job": "second", "due_at": due_at, "due_until": due_at, "slots": 1,
            "decision": "started", "reason": null, "run_id": run[0], "decided_at": slot[0],
            "late_ms": slot[1],
        },
        "attempts": [{
            "run_id": run[0], "attempt": 1, "trigger": "schedule", "due_at": due_at, "slots": 1,
            "state": "succeeded", "queued_at": run[1], "started_at": run[2],
            "finished_at": run[3], "duration_ms": run[4], "late_ms": run[5], "error_kind": null,
            "error_message": null, "limit_name": null, "definition_hash": run[6],
        }],
        "next_attempt": null, "next_attempt_at": null, "stand_in": null,
        "definition": {"definition_hash": run[6], "first_seen_at": seen},
        "due_before": shown(instant(&due_at) - second), "due_after": shown(instant(&due_at) + second), "file": "valid",
        "standing": {
            "state": "active", "paused_reason": null, "paused_until": null, "backoff_until": null,
            "invalid_reason": null, "first_seen_at": seen,
            "decided_until": answer["standing"]["decided_until"],
        },
    });
    assert_eq!(answer, expected);
    // Without a time it is about the newest slot.
    let newest = house.value("SELECT max(due_at) FROM v1_slots");
    assert_eq!(house.say(&["why", "second", "--json"]).json()["slot"]["due_at"], newest);
}

#[test]
fn of_a_slot_that_failed_the_error_and_the_attempt_to_come_are_told() {
    let text = EVERY_SECOND.replace("go", "hang") + "[limits]\ntimeout = \"1s\"\n";
    let house = house(&[("slow", &text)]);
    let serve = house.serve();
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE state = 'timed_out'");
    let [due_at, finished_at] =
        ["due_at", "finished_at"].map(|it| house.value(&format!("SELECT {it} FROM v1_runs")));
    let asked = ["why", "slow", "--at", due_at.as_str().unwrap()];
    let answer = house.say(&[&asked[..], &["--json"]].concat()).json();
    let said = house.say(&asked);
    // What comes due meanwhile is passed over, since the slot is not done.
    let skipped = "SELECT max(due_at) FROM v1_slots WHERE decision = 'skipped'";
    until("a slot is passed over", || house.value(skipped) != Value::Null);
    let passed = house.value(skipped);
    serve.stop();
    assert_eq!(answer["attempts"][0]["error_kind"], "deadline");
    assert_eq!((&answer["decision"], &answer["next_attempt"]), (&json!("started"), &json!(2)));
    let wait = instant(&answer["next_attempt_at"]).duration_since(instant(&finished_at));
    assert_eq!(wait, SignedDuration::from_secs(30), "the first wait of `retry.backoff`");
    for words in ["attempt 1   timed_out, run ", "deadline", "next        attempt 2 at "] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    let said = house.say(&["why", "slow", "--at", passed.as_str().unwrap()]);
    assert!(said.stdout.contains(": skipped (overlap)"), "{said:?}");
    assert!(said.stdout.contains("one of its slots was to be tried again."), "{said:?}");
}

/// A row of a slot long ago.
struct Row {
    due_at: &'static str,
    due_until: &'static str,
    slots: u32,
    decision: &'static str,
    reason: Option<&'static str>,
}

/// A run of a slot long ago.
struct Run {
    id: &'static str,
    trigger: &'static str,
    due_at: &'static str,
    attempt: u32,
    state: &'static str,
    error: Option<&'static str>,
    finished_at: &'static str,
    slots: u32,
}

/// A house whose ledger has known `night` since 2024 and decided all until the end of 2025.
fn long_ago(rows: &[Row], runs: &[Run]) -> House {
    let house = house(&[
        ("night", &format!("[schedule]\ncron = \"30 2 * * *\"\n{PLAIN}")),
        ("by-hand", PLAIN),
    ]);
    assert_eq!(house.serve().stop().code, Some(0));
    let db = Connection::open(house.path("state/punctual.db")).unwrap();
    db.execute_batch(
        "UPDATE jobs SET first_seen_at = '2024-01-01T00:00:00.000Z',
                         decided_until = '2025-12-31T00:00:00.000Z', paused_cause = 'person',
                         paused_reason = 'person: the warehouse moves',
                         paused_until = '2099-01-01T00:00:00.000Z' WHERE job = 'night';
         UPDATE definitions SET first_seen_at = '2024-01-01T00:00:00.000Z',
                                last_seen_at = '2024-01-01T00:00:00.000Z' WHERE job = 'night';",
    )
    .unwrap();
    for it in runs {
        db.execute(
            "INSERT INTO runs (run_id, job, trigger, due_at, attempt, state, error_kind,
                               error_message, queued_at, started_at, finished_at, duration_ms,
                               session_id, host, version, definition_hash, owner_boot_id,
                               owner_pid, owner_started, slots)
             SELECT ?1, 'night', ?2, ?3, ?4, ?5, ?6, iif(?6 IS NULL, NULL, 'so it said'), ?3, ?3,
                    ?7, 1500, 's', 'h', '1', definition_hash, 'b', 1, 1, ?8
             FROM jobs WHERE job = 'night'",
            params![
                it.id,
                it.trigger,
                it.due_at,
                it.attempt,
                it.state,
                it.error,
                it.finished_at,
                it.slots
            ],
        )
        .unwrap();
    }
    for it in rows {
        db.execute(
            "INSERT INTO slots SELECT 'night', ?1, ?2, ?3, ?4, ?5, run_id, ?1, 0 FROM
                 (SELECT max(run_id) AS run_id FROM runs
                  WHERE job = 'night' AND due_at = ?1 AND ?4 = 'started')",
            params![it.due_at, it.due_until, it.slots, it.decision, it.reason],
        )
        .unwrap();
    }
    house
}

const GAP: &str = "2025-03-30T01:00:00.000Z";
const MISSED: [&str; 2] = ["2025-04-01T00:30:00.000Z", "2025-04-05T00:30:00.000Z"];
const CAUGHT_UP: &str = "2025-04-06T00:30:00.000Z";

fn history() -> House {
    let one =
        |due_at, decision, reason| Row { due_at, due_until: due_at, slots: 1, decision, reason };
    let run = |id, trigger, due_at, attempt, state, error, finished_at| Run {
        id,
        trigger,
        due_at,
        attempt,
        state,
        error,
        finished_at,
        slots: 1,
    };
    let rows = [
        one(GAP, "started", None),
        Row {
            due_at: MISSED[0],
            due_until: MISSED[1],
            slots: 5,
            decision: "missed",
            reason: Some("superseded"),
        },
        one(CAUGHT_UP, "started", None),
        one("2025-04-07T00:30:00.000Z", "held", Some("paused")),
    ];
    let runs = [
        run("run-a", "schedule", GAP, 1, "failed", Some("network"), "2025-03-30T01:00:02.000Z"),
        run("run-b", "retry", GAP, 2, "succeeded", None, "2025-03-30T01:00:40.000Z"),
        Run {
            slots: 6,
            ..run("run-c", "catchup", CAUGHT_UP, 1, "succeeded", None, "2025-04-06T05:00:00.000Z")
        },
    ];
    long_ago(&rows, &runs)
}

/// What the program says to each of these, without the hash.
fn told(house: &House, asked: &[&[&str]]) -> String {
    let hash = house.value("SELECT definition_hash FROM v1_jobs WHERE job = 'night'");
    let one = |args: &&[&str]| {
        let said = house.say(&[&["why"], *args].concat());
        let text = said.stdout.replace(hash.as_str().unwrap(), "HASH");
        format!("$ why {}\n{text}{}exit {}\n", args.join(" "), said.stderr, said.code.unwrap())
    };
    asked.iter().map(one).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_kind_of_answer_reads_well() {
    let house = history();
    let before = support::ledger::ledger(&house);
    let said = told(
        &house,
        &[
            &["night"],
            &["night", "--at", "2025-03-30T02:30"],
            &["night", "--at", "2025-04-03T02:30"],
            &["night", "--at", "2025-04-06 02:30"],
            &["night", "--at", "2025-06-01T02:30"],
            &["night", "--at", "2025-06-01"],
            &["night", "--at", "2023-06-01T02:30"],
            &["night", "--at", "2026-01-02T02:30"],
            &["night", "--at", "2098-06-01T02:30"],
            &["night", "--at", "2099-06-01T02:30"],
            &["by-hand"],
            &["by-hand", "--at", "2025-06-01T02:30"],
            &["nihgt"],
            &["night", "--at", "yesterday"],
        ],
    );
    insta::assert_snapshot!("answers", said);
    assert_eq!(support::ledger::ledger(&house), before, "it only reads");
}

#[test]
fn a_job_that_no_serve_has_read_and_one_whose_file_is_gone_have_answers() {
    let house = history();
    std::fs::remove_file(house.path("jobs/night.toml")).unwrap();
    house.job("fresh", &format!("enabled = false\n[schedule]\ncron = \"0 9 * * *\"\n{PLAIN}"));
    let said = told(
        &house,
        &[
            &["night", "--at", "2025-04-06T02:30"],
            &["night", "--at", "2025-06-01T02:30"],
            &["fresh", "--at", "2025-06-01T09:00"],
            &["fresh", "--at", "2098-06-01T09:00"],
        ],
    );
    insta::assert_snapshot!("gone_and_fresh", said);
    house.job("night", "x = 1\n");
    let answer = house.say(&["why", "night", "--at", "2099-06-01T02:30", "--json"]).json();
    let told = (&answer["verdict"], &answer["decision"], &answer["reason"]);
    assert_eq!(told, (&json!("future"), &json!("skipped"), &json!("invalid")));
    // Without any history there is nothing but the files.
    std::fs::remove_dir_all(house.path("state")).unwrap();
    let answer = house.say(&["why", "fresh", "--json"]).json();
    assert_eq!((&answer["verdict"], &answer["standing"]), (&json!("nothing_yet"), &Value::Null));
    assert!(!house.path("state").exists());
}

#[test]
fn every_reason_is_explained_by_its_row() {
    let reasons = [
        "overlap",
        "excluded",
        "dst_gap",
        "gate",
        "paused",
        "disabled",
        "invalid",
        "budget",
        "too_late",
        "down",
        "clock_step",
        "model_unreachable",
        "upstream",
        "superseded",
        "interrupted_twice",
        "backoff",
    ];
    let house = long_ago(&[], &[]);
    let db = Connection::open(house.path("state/punctual.db")).unwrap();
    for (day, reason) in reasons.iter().enumerate() {
        let due_at = format!("2025-07-{:02}T00:30:00.000Z", day + 1);
        db.execute(
            "INSERT INTO slots VALUES ('night', ?1, ?1, 1, 'skipped', ?2, NULL, ?1, 0)",
            [&due_at, *reason],
        )
        .unwrap();
        let answer = house.say(&["why", "night", "--at", &due_at, "--json"]).json();
        assert_eq!(answer["reason"], *reason);
        let sentence = answer["sentence"].as_str().unwrap();
        assert!(sentence.starts_with("It came in time and was passed over: "), "{sentence}");
        let advice = answer["advice"].as_str().unwrap();
        assert!(advice.len() > 20 && !advice.contains("JOB"), "{reason}: {advice}");
    }
}
