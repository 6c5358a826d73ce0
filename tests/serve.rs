//! What is due runs, once and on time, whatever else fails, overlaps or was missed.

#![expect(clippy::disallowed_methods, reason = "these tests time the program from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use support::ledger::{assert_no_gap, assert_sound, ledger, rewrite};
use support::scripts::{EVERY_SECOND, FINE};
use support::stub::{Act, Stub, head, refusal, reply, text};
use support::{House, asking, scripted};

#[test]
fn a_due_job_is_recorded_before_anything_happens_and_never_starts_early() {
    // What the ledger held when the first request arrived.
    let seen: Arc<Mutex<Option<Vec<Value>>>> = Arc::default();
    let database: Arc<OnceLock<std::path::PathBuf>> = Arc::default();
    let stub = Stub::new({
        let (seen, database) = (Arc::clone(&seen), Arc::clone(&database));
        move |n| {
            if n == 0 {
                let sql = "SELECT s.decision, s.run_id = r.run_id, r.state, r.due_at = s.due_at,
                                  r.trigger, r.started_at IS NOT NULL, r.session_id <> ''
                           FROM v1_slots s JOIN v1_runs r USING (run_id)";
                let rows = support::rows(&support::open(database.get().unwrap()), sql);
                *seen.lock().unwrap() = Some(rows);
            }
            vec![Act::Say(reply("fine"))]
        }
    });
    let house = asking(&stub, "", "");
    database.set(house.path("state/punctual.db")).unwrap();
    house.job("tick", EVERY_SECOND);
    let serve = house.serve();
    house.until("SELECT count(*) >= 3 FROM v1_runs WHERE state = 'succeeded'");
    let said = serve.stop();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.contains("tick"), "it says what it will run: {}", said.stderr);

    assert_eq!(
        seen.lock().unwrap().as_deref(),
        Some(&[json!(["started", 1, "running", 1, "schedule", 1, 1])][..])
    );
    let late = "SELECT count(*) FROM v1_runs
                WHERE started_at < due_at OR queued_at < due_at OR late_ms IS NULL OR late_ms < 0
                   OR late_ms <> round((julianday(started_at) - julianday(due_at)) * 86400000)";
    assert_eq!(house.value(late), 0);
    let unmatched = "SELECT count(*) FROM v1_slots s LEFT JOIN v1_runs r USING (run_id)
                     WHERE s.decision = 'started' AND (r.due_at IS NOT s.due_at OR r.attempt <> 1)";
    assert_eq!(house.value(unmatched), 0);
    let without_slot = "SELECT count(*) FROM v1_runs r WHERE NOT EXISTS
                        (SELECT 1 FROM v1_slots s WHERE s.run_id = r.run_id)";
    assert_eq!(house.value(without_slot), 0);
    assert_no_gap(&house, "tick");
    assert_sound(&house);
    house.assert_nothing_is_left();
}

#[test]
fn a_job_that_fails_each_way_does_not_stop_the_others() {
    let closed = Stub::saying("").url();
    let failing = Stub::saying(refusal("500 Internal Server Error", &json!({"error": "no"})));
    let cut = Stub::saying(head() + &text("half"));
    let house = House::new(&format!(
        "[agents.defaults]\nmodel = \"good/m\"\n\
         [models.providers.good]\napi = \"script\"\nscript = \"model.toml\"\n\
         [models.providers.torn]\napi = \"script\"\nscript = \"torn.toml\"\n\
         [models.providers.gone]\napi = \"openai\"\nbase_url = \"{closed}\"\n\
         [models.providers.failing]\napi = \"openai\"\nbase_url = \"{}\"\n\
         [models.providers.cut]\napi = \"openai\"\nbase_url = \"{}\"\n",
        failing.url(),
        cut.url()
    ));
    house.write("model.toml", FINE);
    house.write("torn.toml", "[[rule]]\nstep = [{ dance = true }]\n");
    house.job("good", EVERY_SECOND);
    let kinds = [("torn", "validation"), ("failing", "server_error"), ("cut", "incomplete_stream")];
    for (provider, _) in kinds.into_iter().chain([("gone", "")]) {
        house.job(provider, &format!("{EVERY_SECOND}model = \"{provider}/m\"\n"));
    }
    house.job("nowhere", &format!("{EVERY_SECOND}workdir = \"../away\"\n"));
    std::fs::create_dir(house.path("away")).unwrap();
    let mut serve = house.serve();
    std::fs::remove_dir(house.path("away")).unwrap();
    for (job, kind) in kinds.into_iter().chain([("nowhere", "validation")]) {
        house.until(&format!(
            "SELECT count(*) >= 1 FROM v1_runs WHERE job = '{job}' AND state = 'failed'
                AND error_kind = '{kind}'"
        ));
    }
    house.until(
        "SELECT count(*) >= 1 FROM v1_slots
         WHERE job = 'gone' AND (decision, reason) = ('missed', 'model_unreachable')",
    );
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE job = 'gone'"), 0);
    let so_far = house.value("SELECT max(queued_at) FROM v1_runs");
    house.until(&format!(
        "SELECT count(*) >= 2 FROM v1_runs
         WHERE job = 'good' AND state = 'succeeded' AND queued_at > '{}'",
        so_far.as_str().unwrap()
    ));
    assert!(serve.is_running());
    assert_eq!(serve.stop().code, Some(0));
    let spoilt = "SELECT count(*) FROM v1_runs WHERE job = 'good' AND state <> 'succeeded'
                  AND coalesce(error_kind, '') <> 'shutdown'";
    assert_eq!(house.value(spoilt), 0);
    house.assert_nothing_is_left();
}

#[test]
fn a_broken_job_file_is_listed_and_the_others_run() {
    let house = scripted(FINE, "");
    house.job("good", EVERY_SECOND);
    house.job("broken", "[agent]\nprompt = \"go\"\n[schedule]\ncron = \"99 * * * *\"\n");
    house.job("torn", "[agent\n");
    let serve = house.serve();
    house.until("SELECT count(*) >= 1 FROM v1_runs WHERE state = 'succeeded'");
    let list = house.say(&["ls", "--json"]);
    assert_eq!(list.code, Some(0));
    let list = list.json();
    let states: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (job["job"].as_str().unwrap(), job["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [("good", "enabled"), ("broken", "invalid"), ("torn", "invalid")]);
    let reason = list[1]["invalid_reason"].as_str().unwrap();
    assert!(reason.contains("99"), "{reason}");
    assert!(house.say(&["ls"]).stdout.contains("invalid"));
    assert_eq!(
        house.rows("SELECT job FROM v1_jobs WHERE invalid_reason IS NOT NULL ORDER BY job"),
        [json!(["broken"]), json!(["torn"])]
    );
    let said = house.say(&["validate"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("broken.toml") && said.stderr.contains("torn.toml"), "{said:?}");
    assert!(serve.stderr().contains("broken.toml"));
    assert_eq!(house.say(&["run", "broken"]).code, Some(2));
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_slot_that_is_due_while_the_job_runs_is_skipped() {
    let house = scripted(
        "[[rule]]\nstep = [{ delay = \"2500ms\" }, { text = \"slow\" }]\n",
        "[scheduler]\nshutdown_grace = \"10s\"\n",
    );
    house.job("slow", EVERY_SECOND);
    let serve = house.serve();
    house.until("SELECT count(*) >= 2 FROM v1_runs WHERE state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    let skipped = "SELECT count(*) >= 2 FROM v1_slots
                   WHERE decision = 'skipped' AND reason = 'overlap' AND run_id IS NULL";
    assert_eq!(house.value(skipped), 1);
    let at_once = "SELECT count(*) FROM v1_runs a JOIN v1_runs b
                   ON a.run_id < b.run_id AND b.started_at < a.finished_at";
    assert_eq!(house.value(at_once), 0);
    assert_no_gap(&house, "slow");
}

/// A job that is due each day at the whole minute that was `ago`.
fn daily(ago: SignedDuration, catchup: &str) -> (String, Timestamp) {
    let then = Timestamp::now() - ago;
    let due = Timestamp::from_second(then.as_second() / 60 * 60).unwrap();
    let text = format!(
        "[schedule]\ncron = \"{}\"\ncatchup = \"{catchup}\"\ncatchup_window = \"2h\"\n\
         [agent]\nprompt = \"go\"\ntools = []\n",
        due.strftime("%M %H * * *")
    );
    (text, due)
}

#[test]
fn slots_missed_while_down_have_their_rows() {
    let house = scripted(FINE, "");
    let half_an_hour = daily(SignedDuration::from_mins(30), "none");
    let (recent, recent_due) = daily(SignedDuration::from_mins(30), "latest");
    let (old, old_due) = daily(SignedDuration::from_hours(5), "latest");
    house.job("nothing", &half_an_hour.0);
    house.job("recent", &recent);
    house.job("old", &old);
    house.job("off", &format!("enabled = false\n{recent}"));
    // They are known, and then nobody looks for three days.
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(house.rows("SELECT * FROM v1_slots"), Vec::<Value>::new());
    let three_days_ago = Timestamp::now() - SignedDuration::from_hours(3 * 24 - 6);
    rewrite(&house, &format!("UPDATE jobs SET decided_until = '{three_days_ago:.3}'"));
    let serve = house.serve();
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE state = 'succeeded'");
    house.until("SELECT count(*) = 5 FROM v1_slots");
    assert_eq!(serve.stop().code, Some(0));

    let day = SignedDuration::from_hours(24);
    let at = |due: Timestamp| format!("{due:.3}");
    let rows = house.rows(
        "SELECT job, due_at, due_until, slots, decision, reason, run_id IS NOT NULL
         FROM v1_slots ORDER BY job, due_at",
    );
    assert_eq!(
        rows,
        [
            json!(["nothing", at(recent_due - day * 2), at(recent_due), 3, "missed", "down", 0]),
            json!(["off", at(recent_due - day * 2), at(recent_due), 3, "skipped", "disabled", 0]),
            json!(["old", at(old_due - day * 2), at(old_due), 3, "missed", "too_late", 0]),
            json!([
                "recent",
                at(recent_due - day * 2),
                at(recent_due - day),
                2,
                "missed",
                "superseded",
                0
            ]),
            json!(["recent", at(recent_due), at(recent_due), 1, "started", null, 1]),
        ]
    );
    assert_eq!(
        house.rows("SELECT job, trigger, due_at, late_ms >= 1800000 FROM v1_runs"),
        [json!(["recent", "catchup", at(recent_due), 1])]
    );
    let before = ledger(&house);
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(ledger(&house), before, "they are decided once");
}

#[test]
fn stops_and_starts_leave_no_gap() {
    let house = scripted(FINE, "");
    house.job("tick", EVERY_SECOND);
    let mut last = Value::Null;
    for round in 0..4 {
        let serve = house.serve();
        house.until(&format!(
            "SELECT count(*) >= 1 FROM v1_runs WHERE state = 'succeeded' AND due_at > '{}'",
            last.as_str().unwrap_or("")
        ));
        if round % 2 == 0 {
            assert_eq!(serve.stop().code, Some(0));
        } else {
            serve.kill();
        }
        last = house.value("SELECT max(due_until) FROM v1_slots");
        std::thread::sleep(Duration::from_millis(1500));
    }
    assert_eq!(house.serve().stop().code, Some(0));
    assert_no_gap(&house, "tick");
    assert_eq!(house.value("SELECT count(*) = count(DISTINCT due_at) FROM v1_runs"), 1);
    assert_sound(&house);
}
