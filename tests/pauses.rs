//! Jobs that are held and freed again, and past slots that are run by hand.

#![expect(clippy::disallowed_methods, reason = "these tests start the program from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use support::ledger::{
    Grid, assert_covers, assert_once, assert_one_at_a_time, instant_ms, ledger, rewrite,
};
use support::scripts::{EVERY_SECOND, PLAIN};
use support::{House, Said, scripted};

/// A model that does what the prompt says.
const MODEL: &str = r#"
[[rule]]
when = { contains = "break" }
step = [{ text = "half" }, { end = "incomplete" }]
[[rule]]
when = { contains = "brief" }
step = [{ delay = "200ms" }, { text = "brief" }]
[[rule]]
step = [{ text = "fine" }]
"#;

fn fine(house: &House, arguments: &[&str]) -> Said {
    let said = house.say(arguments);
    assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
    said
}

fn refused(house: &House, code: i32, arguments: &[&str]) -> String {
    let said = house.say(arguments);
    assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{arguments:?}: {said:?}");
    said.stderr
}

/// Waits until the job has another run that succeeded.
fn succeeds_again(house: &House, job: &str) {
    let last = house.value(&format!("SELECT max(queued_at) FROM v1_runs WHERE job = '{job}'"));
    house.until(&format!(
        "SELECT count(*) >= 1 FROM v1_runs
         WHERE job = '{job}' AND state = 'succeeded' AND queued_at > '{}'",
        last.as_str().unwrap_or_default()
    ));
}

/// Waits until `count` slots of the job are held.
fn until_held(house: &House, job: &str, count: u32) {
    house.until(&format!(
        "SELECT coalesce(sum(slots), 0) >= {count} FROM v1_slots
         WHERE job = '{job}' AND decision = 'held' AND reason = 'paused'"
    ));
}

/// Nothing of the job began while the audit says that it was held, nor later for what was due then.
fn assert_nothing_started_while_held(house: &House, job: &str) {
    let last_word = |column: &str| {
        format!(
            "(SELECT a.kind FROM v1_audit a
             WHERE a.kind IN ('pause', 'resume') AND a.name = r.job AND a.at <= r.{column}
              ORDER BY a.at DESC LIMIT 1)"
        )
    };
    for column in ["queued_at", "due_at"] {
        let started = format!(
            "SELECT r.run_id, r.due_at, r.queued_at FROM v1_runs r
             WHERE r.job = '{job}' AND r.trigger <> 'manual' AND {} = 'pause'",
            last_word(column)
        );
        assert_eq!(house.rows(&started), Vec::<Value>::new(), "{column}");
    }
}

#[test]
fn a_job_that_is_held_is_not_started_and_not_made_up_for() {
    let house = scripted(MODEL, "");
    for job in ["held", "other"] {
        house.job(job, EVERY_SECOND);
    }
    let serve = house.serve();
    succeeds_again(&house, "held");
    let said = fine(&house, &["pause", "held", "--reason", "moving house", "--json"]);
    assert_eq!(said.json(), json!({"paused": ["held"], "until": null}));
    until_held(&house, "held", 2);
    succeeds_again(&house, "other");
    assert_eq!(
        house.rows("SELECT state, paused_cause, paused_reason FROM v1_jobs ORDER BY job"),
        [json!(["paused", "person", "moving house"]), json!(["active", null, null])]
    );
    let list = fine(&house, &["ls", "--json"]).json();
    assert_eq!(
        (&list[0]["state"], &list[0]["paused_reason"]),
        (&json!("paused"), &json!("moving house"))
    );

    // By hand it runs only by force, and that frees nobody.
    assert!(refused(&house, 3, &["run", "held"]).contains("moving house"));
    fine(&house, &["run", "held", "--force"]);
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE trigger = 'manual'"), 1);
    until_held(&house, "held", 4);

    assert_eq!(fine(&house, &["resume", "held", "--json"]).json(), json!({"resumed": ["held"]}));
    succeeds_again(&house, "held");
    let said = fine(&house, &["resume", "held"]);
    assert!(said.stderr.contains("nothing to do"), "{said:?}");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows(
            "SELECT actor, kind, name, result FROM v1_audit WHERE kind IN ('pause', 'resume') ORDER BY at"
        ),
        ["pause", "resume"].map(|kind| json!(["person", kind, "held", "person"]))
    );
    assert_nothing_started_while_held(&house, "held");
    for job in ["held", "other"] {
        assert_covers(&house, job, Grid::seconds(&house, job, 1));
    }
}

#[test]
fn all_are_held_and_freed_at_once_and_unknown_ones_are_refused() {
    let house = scripted(MODEL, "");
    for job in ["a", "b"] {
        house.job(job, EVERY_SECOND);
    }
    house.job("by-hand", PLAIN);
    let serve = house.serve();
    let said = fine(&house, &["pause", "--all", "--json"]);
    assert_eq!(said.json()["paused"], json!(["a", "b", "by-hand"]));
    until_held(&house, "a", 2);
    until_held(&house, "b", 2);
    refused(&house, 3, &["run", "by-hand"]);
    refused(&house, 2, &["pause", "c"]);
    refused(&house, 2, &["resume", "c"]);
    refused(&house, 2, &["pause"]);
    refused(&house, 2, &["pause", "a", "--until", "2020-01-01"]);
    refused(&house, 2, &["pause", "a", "--until", "whenever"]);
    // One that is freed runs, the others are held on.
    fine(&house, &["resume", "a"]);
    succeeds_again(&house, "a");
    assert_eq!(
        fine(&house, &["resume", "--all", "--json"]).json()["resumed"],
        json!(["b", "by-hand"])
    );
    succeeds_again(&house, "b");
    fine(&house, &["run", "by-hand"]);
    assert_eq!(serve.stop().code, Some(0));
    for job in ["a", "b"] {
        assert_nothing_started_while_held(&house, job);
        assert_covers(&house, job, Grid::seconds(&house, job, 1));
    }
}

#[test]
fn a_pause_with_an_end_ends_by_itself() {
    let house = scripted(MODEL, "");
    house.job("held", EVERY_SECOND);
    let serve = house.serve();
    succeeds_again(&house, "held");
    let until = Timestamp::now() + SignedDuration::from_millis(3500);
    let text = format!("{until:.3}");
    fine(&house, &["pause", "held", "--until", &text]);
    assert_eq!(house.value("SELECT paused_until FROM v1_jobs"), text.as_str());
    until_held(&house, "held", 2);
    succeeds_again(&house, "held");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.value("SELECT paused_until FROM v1_jobs"), Value::Null);
    // Each instant up to the end is held, each one after it is not.
    let wrong = format!(
        "SELECT * FROM v1_slots WHERE due_at > (SELECT min(at) FROM v1_audit WHERE kind IN ('pause', 'resume'))
            AND (decision = 'held') <> (due_at <= '{text}')"
    );
    assert_eq!(house.rows(&wrong), Vec::<Value>::new());
    assert_eq!(
        house.rows(
            "SELECT actor, kind, result FROM v1_audit WHERE kind IN ('pause', 'resume') ORDER BY at"
        ),
        [json!(["person", "pause", "person"]), json!(["punctual", "resume", "person"])]
    );
    assert_covers(&house, "held", Grid::seconds(&house, "held", 1));
}

#[test]
fn a_pause_outlives_restarts_and_its_end_may_come_while_nobody_looks() {
    let house = scripted(MODEL, "");
    for job in ["held", "ends"] {
        house.job(job, EVERY_SECOND);
    }
    let serve = house.serve();
    succeeds_again(&house, "held");
    fine(&house, &["pause", "held", "--reason", "for long"]);
    let until = Timestamp::now() + SignedDuration::from_secs(2);
    let text = format!("{until:.3}");
    fine(&house, &["pause", "ends", "--until", &text]);
    serve.kill();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    // It has run out, so nothing keeps a person from it; the other one is held.
    fine(&house, &["run", "ends"]);
    refused(&house, 3, &["run", "held"]);
    let serve = house.serve();
    succeeds_again(&house, "ends");
    until_held(&house, "held", 3);
    serve.kill();
    let serve = house.serve();
    until_held(&house, "held", 5);
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.value("SELECT paused_reason FROM v1_jobs WHERE job = 'held'"), "for long");
    let early = format!(
        "SELECT run_id FROM v1_runs WHERE job = 'ends' AND trigger <> 'manual' AND due_at <= '{text}'
            AND due_at > (SELECT at FROM v1_audit
             WHERE kind IN ('pause', 'resume') AND name = 'ends' ORDER BY at LIMIT 1)"
    );
    assert_eq!(house.rows(&early), Vec::<Value>::new());
    assert_nothing_started_while_held(&house, "held");
    for job in ["held", "ends"] {
        assert_covers(&house, job, Grid::seconds(&house, job, 1));
    }
}

#[test]
fn without_a_serve_a_job_is_held_and_freed_all_the_same() {
    let house = scripted(MODEL, "");
    house.job("held", EVERY_SECOND);
    let far = EVERY_SECOND.replace("* * * * * *", "@hourly");
    house.job("hourly", &far);
    fine(&house, &["pause", "--all", "--reason", "not yet"]);
    let pauses =
        "SELECT count(*) FROM v1_jobs WHERE state = 'paused' AND paused_reason = 'not yet'";
    assert_eq!(house.value(pauses), 2);
    // One instant of it comes and goes while nobody serves.
    let an_hour_ago = Timestamp::now() - SignedDuration::from_secs(3605);
    rewrite(
        &house,
        &format!(
            "UPDATE jobs SET decided_until = '{an_hour_ago:.3}', first_seen_at = '{an_hour_ago:.3}' WHERE job = 'hourly'"
        ),
    );
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(
        fine(&house, &["resume", "--all", "--json"]).json()["resumed"],
        json!(["held", "hourly"])
    );
    assert_eq!(house.rows("SELECT * FROM v1_runs"), Vec::<Value>::new());
    let serve = house.serve();
    succeeds_again(&house, "held");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows("SELECT DISTINCT decision, reason FROM v1_slots WHERE job = 'hourly'"),
        [json!(["held", "paused"])],
        "what was due while it was held is not made up for"
    );
    assert_nothing_started_while_held(&house, "held");
    assert_covers(&house, "held", Grid::seconds(&house, "held", 1));
    assert_eq!(
        house.rows(
            "SELECT kind, name FROM v1_audit WHERE kind IN ('pause', 'resume') ORDER BY at, name"
        ),
        [("pause", "held"), ("pause", "hourly"), ("resume", "held"), ("resume", "hourly")]
            .map(|(kind, job)| json!([kind, job]))
    );
}

#[test]
fn a_job_that_fails_again_and_again_is_held_with_one_notice() {
    let house = scripted(MODEL, "");
    let job = |pause_after: u32| {
        let text = EVERY_SECOND.replace("\"go\"", "\"break\"");
        format!("{text}[retry]\nmax_attempts = 1\npause_after = {pause_after}\n")
    };
    house.job("at-once", &job(1));
    house.job("twice", &job(2));
    house.job("patient", &job(10));
    let serve = house.serve();
    house.until("SELECT state = 'paused' FROM v1_jobs WHERE job = 'at-once'");
    until_held(&house, "at-once", 2);
    // The second one has to wait half a minute for its second failure.
    house.until("SELECT count(*) >= 5 FROM v1_slots WHERE job = 'twice' AND reason = 'backoff'");
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE job = 'twice'"), 1);
    assert_eq!(serve.stop().code, Some(0));
    rewrite(&house, "UPDATE jobs SET backoff_until = NULL WHERE job = 'twice'");
    let serve = house.serve();
    house.until("SELECT state = 'paused' FROM v1_jobs WHERE job = 'twice'");
    until_held(&house, "twice", 2);
    assert_eq!(
        house.rows(
            "SELECT job, count(*), min(state), min(error_kind) FROM v1_runs GROUP BY 1 ORDER BY 1"
        ),
        [
            json!(["at-once", 1, "failed", "incomplete_stream"]),
            json!(["patient", 1, "failed", "incomplete_stream"]),
            json!(["twice", 2, "failed", "incomplete_stream"]),
        ]
    );
    assert_eq!(
        house.rows(
            "SELECT actor, kind, name, result FROM v1_audit WHERE kind IN ('pause', 'resume') ORDER BY name"
        ),
        ["at-once", "twice"].map(|job| json!(["punctual", "pause", job, "failures"]))
    );
    let reason = house.value("SELECT paused_reason FROM v1_jobs WHERE job = 'twice'");
    let reason = reason.as_str().unwrap();
    assert!(
        reason.starts_with("failures: 2 slots") && reason.contains("incomplete_stream"),
        "{reason}"
    );

    // Freed and mended it runs, and counts from the beginning.
    house.write("model.toml", "[[rule]]\nstep = [{ text = \"fine\" }]\n");
    fine(&house, &["resume", "--all"]);
    succeeds_again(&house, "twice");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows(
            "SELECT failed_slots, counted_failures, backoff_until FROM jobs WHERE job = 'twice'"
        ),
        [json!([0, 0, null])]
    );
    for job in ["at-once", "twice", "patient"] {
        assert_covers(&house, job, Grid::seconds(&house, job, 1));
    }
}

/// A house with a job that was due each minute for half an hour while nobody looked, and the
/// instants of its last three slots.
fn half_an_hour_behind() -> (House, Vec<String>) {
    let house = scripted(MODEL, "");
    // Its next slot is well away from all that is done here.
    let second = (Timestamp::now().as_second() - 15).rem_euclid(60);
    let cron = format!("{second} * * * * *");
    let job = format!("[schedule]\ncron = \"{cron}\"\ncatchup = \"none\"\n{PLAIN}");
    house.job("past", &job.replace("\"go\"", "\"brief\""));
    assert_eq!(house.serve().stop().code, Some(0));
    let then = Timestamp::now() - SignedDuration::from_mins(30);
    rewrite(
        &house,
        &format!("UPDATE jobs SET decided_until = '{then:.3}', first_seen_at = '{then:.3}'"),
    );
    assert_eq!(house.serve().stop().code, Some(0));
    let last = instant_ms(&house.value("SELECT max(due_until) FROM v1_slots")) / 1000;
    let due = [-120, -60, 0].map(|it| Timestamp::from_second(last + it).unwrap());
    (house, due.map(|it| format!("{it:.3}")).into())
}

fn selected(said: &Said) -> Vec<(String, bool)> {
    let slots = said.json()["slots"].clone();
    let slot =
        |it: &Value| (it["due_at"].as_str().unwrap().to_owned(), it["selected"].as_bool().unwrap());
    slots.as_array().unwrap().iter().map(slot).collect()
}

#[test]
fn past_slots_run_one_after_the_other_and_move_nothing() {
    let (house, due) = half_an_hour_behind();
    let period = ["backfill", "past", "--from", &due[0], "--to", &due[2], "--json"];
    let all: Vec<_> = due.iter().map(|it| (it.clone(), true)).collect();
    let none: Vec<_> = due.iter().map(|it| (it.clone(), false)).collect();
    let run = |more: &[&str]| fine(&house, &[&period, more].concat());
    let before = (ledger(&house), house.rows("SELECT * FROM jobs"));
    assert_eq!(selected(&run(&[])), all);
    assert_eq!((ledger(&house), house.rows("SELECT * FROM jobs")), before, "a dry run");

    let schedule = || house.rows("SELECT job, decided_until, next_due_at, every_anchor FROM jobs");
    let (slots, schedule_before) = (house.rows("SELECT * FROM slots"), schedule());
    // Without a serve it does so itself, to the end.
    assert_eq!(selected(&run(&["--run"])), all);
    let runs = "SELECT due_at, attempt, trigger, state FROM v1_runs ORDER BY started_at";
    let once: Vec<_> = due.iter().map(|it| json!([it, 1, "backfill", "succeeded"])).collect();
    assert_eq!(house.rows(runs), once);
    assert_one_at_a_time(&house, "past");
    assert_eq!(selected(&run(&["--run"])), none, "they have succeeded");
    assert_eq!(house.rows(runs), once);

    // With one it hands them over.
    let serve = house.serve();
    assert_eq!(selected(&run(&["--run", "--again"])), all);
    house.until("SELECT count(*) = 3 FROM v1_runs WHERE attempt = 2 AND state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    let again = due.iter().map(|it| json!([it, 2, "backfill", "succeeded"]));
    assert_eq!(house.rows(runs), once.iter().cloned().chain(again).collect::<Vec<_>>());
    assert_one_at_a_time(&house, "past");
    assert_eq!((house.rows("SELECT * FROM slots"), schedule()), (slots, schedule_before));
    assert_once(&house);
}

#[test]
fn a_past_slot_that_failed_is_run_again_and_one_that_succeeded_is_not() {
    let (house, due) = half_an_hour_behind();
    let period = ["backfill", "past", "--from", &due[1], "--to", &due[2], "--json", "--run"];
    let once = |prompt: &str| {
        let text = std::fs::read_to_string(house.path("jobs/past.toml")).unwrap();
        let text = text.split("[agent]").next().unwrap().to_owned();
        house.job(
            "past",
            &format!(
                "{text}[agent]\nprompt = \"{prompt}\"\ntools = []\n[retry]\nmax_attempts = 1\n"
            ),
        );
    };
    once("break");
    fine(&house, &["backfill", "past", "--from", &due[2], "--to", &due[2], "--run"]);
    once("go");
    assert_eq!(selected(&fine(&house, &period)), [(due[1].clone(), true), (due[2].clone(), true)]);
    assert_eq!(
        selected(&fine(&house, &period)),
        [(due[1].clone(), false), (due[2].clone(), false)]
    );
    assert_eq!(
        house.rows("SELECT due_at, attempt, trigger, state FROM v1_runs ORDER BY due_at, attempt"),
        [
            json!([due[1], 1, "backfill", "succeeded"]),
            json!([due[2], 1, "backfill", "failed"]),
            json!([due[2], 2, "backfill", "succeeded"]),
        ]
    );
    // A failure of the past holds nothing up.
    assert_eq!(house.rows("SELECT failed_slots, paused_cause FROM jobs"), [json!([0, null])]);
}

#[test]
fn periods_that_make_no_sense_are_refused() {
    let (house, due) = half_an_hour_behind();
    house.job("by-hand", PLAIN);
    house.job("broken", "[agent\n");
    let before = ledger(&house);
    let future = format!("{:.3}", Timestamp::now() + SignedDuration::from_hours(1));
    for (job, from, to, words) in [
        ("past", due[2].as_str(), due[0].as_str(), "--to lies before --from"),
        ("past", &due[0], &future, "future"),
        ("past", "2020-01-01", &due[0], "at most"),
        ("past", "yesterday-ish", &due[0], "--from"),
        ("past", &due[0], "2026-02-30", "--to"),
        ("by-hand", &due[0], &due[2], "no schedule"),
        ("broken", &due[0], &due[2], "broken.toml"),
        ("nobody", &due[0], &due[2], "no job"),
    ] {
        let said = refused(&house, 2, &["backfill", job, "--from", from, "--to", to, "--run"]);
        assert!(said.contains(words), "{job} {from} {to}: {said}");
    }
    refused(&house, 2, &["backfill", "past", "--from", &due[0]]);
    // What is held is not run by the back door.
    fine(&house, &["pause", "past"]);
    let paused = house.say(&["backfill", "past", "--from", &due[0], "--to", &due[2], "--run"]);
    assert_eq!(paused.code, Some(3), "{paused:?}");
    assert_eq!(ledger(&house), before);
}
