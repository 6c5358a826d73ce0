//! The whole daemon on a real database: due jobs, failures beside them, stops, power cuts, missed
//! slots, lanes, and who may use a state folder.

#![expect(clippy::disallowed_methods, reason = "these tests time the program from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use support::stub::{Act, Stub, head, refusal, reply, text};
use support::{House, asking, scripted, until};

/// Every second, without tools.
const EVERY_SECOND: &str =
    "[schedule]\ncron = \"* * * * * *\"\n[agent]\nprompt = \"go\"\ntools = []\n";

/// A model that answers at once.
const FINE: &str = "[[rule]]\nstep = [{ text = \"fine\" }]\n";

/// A model that keeps a tool running, for those prompts that say so.
const MANY: &str = r#"
[[rule]]
when = { contains = "sleep", turn = 0 }
step = [{ tool = { name = "exec", arguments = { command = "sleep 60" } } }]
[[rule]]
when = { contains = "stubborn", turn = 0 }
step = [{ tool = { name = "exec", arguments = { command = "(trap '' TERM; while :; do sleep 0.2; done) & echo begun" } } }]
[[rule]]
when = { contains = "deaf", turn = 0 }
step = [{ tool = { name = "exec", arguments = { command = "trap '' TERM; while :; do sleep 0.2; done" } } }]
[[rule]]
when = { contains = "brief" }
step = [{ delay = "700ms" }, { text = "brief" }]
[[rule]]
when = { contains = "hang" }
step = [{ text = "so far" }, { hang = true }]
[[rule]]
step = [{ text = "fine" }]
"#;

fn by_hand(prompt: &str, top: &str, limits: &str) -> String {
    format!(
        "{top}\n[agent]\nprompt = \"{prompt}\"\ntools = [\"exec\"]\nexec_allow = [\"*\"]\n\
         [limits]\n{limits}\n"
    )
}

/// What the ledger says about runs, in the order in which they were recorded.
const ENDS: &str = "SELECT job, state, error_kind FROM v1_runs ORDER BY job";

/// Everything in the ledger that must never change by itself.
fn ledger(house: &House) -> Vec<Vec<Value>> {
    let tables = ["runs", "slots", "attempts", "tool_calls", "cleanups"];
    tables.iter().map(|table| house.rows(&format!("SELECT * FROM {table} ORDER BY 1, 2"))).collect()
}

fn assert_sound(house: &House) {
    assert_eq!(house.value("PRAGMA integrity_check"), "ok");
    assert_eq!(house.rows("PRAGMA foreign_key_check"), Vec::<Value>::new());
}

/// No instant of a job that is due each second is without its row, and none has two.
fn assert_no_gap(house: &House, job: &str) {
    let rows = house.rows(&format!(
        "SELECT due_at, due_until, slots FROM v1_slots WHERE job = '{job}' ORDER BY due_at"
    ));
    let at = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
    let mut next = at(&rows[0][0]);
    for row in &rows {
        assert_eq!(at(&row[0]), next, "{rows:#?}");
        let seconds = at(&row[1]) - at(&row[0]) + 1;
        assert_eq!(row[2], seconds, "{rows:#?}");
        next += seconds;
    }
}

/// Changes the ledger as nobody does, to make the past look different. Nothing may be running.
fn rewrite(house: &House, sql: &str) {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let db = Connection::open_with_flags(house.path("state/punctual.db"), flags).unwrap();
    assert!(db.execute(sql, []).unwrap() > 0, "{sql}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

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
    let kinds = [
        ("torn", "validation"),
        ("gone", "model_unreachable"),
        ("failing", "server_error"),
        ("cut", "incomplete_stream"),
    ];
    for (provider, _) in kinds {
        house.job(provider, &format!("{EVERY_SECOND}model = \"{provider}/m\"\n"));
    }
    house.job("nowhere", &format!("{EVERY_SECOND}workdir = \"../away\"\n"));
    std::fs::create_dir(house.path("away")).unwrap();
    let mut serve = house.serve();
    std::fs::remove_dir(house.path("away")).unwrap();
    for (job, kind) in kinds.into_iter().chain([("nowhere", "validation")]) {
        house.until(&format!(
            "SELECT count(*) >= 2 FROM v1_runs WHERE job = '{job}' AND state = 'failed'
                AND error_kind = '{kind}'"
        ));
    }
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

/// A house whose daemon has a run with a tool, one that streams, and one that waits for a lane.
fn busy(grace: &str) -> (House, support::Running) {
    let house = scripted(
        MANY,
        &format!("[scheduler]\nshutdown_grace = \"{grace}\"\n[lanes]\nnarrow = 1\n"),
    );
    house.job("sleeps", &by_hand("sleep", "lane = \"narrow\"", ""));
    house.job("streams", &by_hand("hang", "", "timeout = \"0s\""));
    house.job("waits", &by_hand("go", "lane = \"narrow\"", ""));
    let serve = house.serve();
    house.detach("sleeps");
    until("the tool works", || house.living("sleep 60") == 1);
    house.detach("streams");
    house.detach("waits");
    house.until("SELECT count(*) = 2 FROM v1_attempts WHERE state = 'running'");
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE job = 'waits' AND state = 'queued'");
    (house, serve)
}

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

#[test]
fn a_second_serve_on_the_same_folder_is_refused() {
    let house = scripted(FINE, "");
    let serve = house.serve();
    std::os::unix::fs::symlink(house.path("state"), house.path("link")).unwrap();
    let started = Instant::now();
    for arguments in [&["serve"][..], &["serve", "--state-dir", "link"]] {
        let said = house.say(arguments);
        assert_eq!(said.code, Some(3), "{said:?}");
        let words = format!("in use by `punctual serve` (pid {})", serve.pid());
        assert!(said.stderr.contains(&words), "{said:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.serve().stop().code, Some(0));
}

#[test]
fn a_run_goes_through_the_serve_that_is_there() {
    let house = scripted(FINE, "");
    house.job("j", &by_hand("go", "", ""));
    let serve = house.serve();
    let (code, run) = house.run("j");
    assert_eq!((code, &run["state"]), (Some(0), &json!("succeeded")));
    assert_eq!(house.value("SELECT owner_pid FROM runs"), serve.pid());
    let said = house.say(&["run", "j"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "fine\n"));
    assert!(said.stderr.contains("started by manual with local/m"), "{said:?}");
    assert_eq!(serve.stop().code, Some(0));
    // And never moves the schedule.
    assert_eq!(house.value("SELECT count(*) FROM v1_slots"), 0);
}

#[test]
fn a_client_that_goes_away_ends_nothing() {
    let house = scripted(MANY, "");
    house.job("brief", &by_hand("brief", "", ""));
    let serve = house.serve();
    let client = house.start(&["run", "brief"]);
    house.until("SELECT count(*) FROM v1_attempts");
    client.kill();
    house.until("SELECT state = 'succeeded' FROM v1_runs");
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_run_without_a_serve_is_one_for_a_while() {
    let house = scripted(MANY, "");
    house.job("hangs", &by_hand("hang", "", "timeout = \"0s\""));
    house.job("other", &by_hand("go", "", ""));
    house.job("tick", EVERY_SECOND);
    assert_eq!(house.say(&["run", "other", "--detach"]).code, Some(3));
    let first = house.start(&["run", "hangs", "--json"]);
    house.until("SELECT count(*) FROM v1_attempts WHERE state = 'running'");
    let status = house.say(&["status", "--json"]).json();
    assert_eq!(status["running"]["pid"], first.pid());
    assert_eq!(status["running"]["runs"][0]["job"], "hangs");
    let (code, _) = house.run("other");
    assert_eq!(code, Some(0));
    assert_eq!(house.value("SELECT count(DISTINCT owner_pid) FROM runs"), 1);

    let serve = house.start(&["serve"]);
    serve.until_stderr(&format!("standing by until `punctual run` (pid {})", first.pid()));
    // What is due meanwhile is not started by the run.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE job = 'tick'"), 0);
    let said = house.say(&["cancel", "hangs"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = first.end();
    assert_eq!((said.code, &said.json()["state"]), (Some(130), &json!("cancelled")));
    house.until("SELECT count(*) >= 1 FROM v1_runs WHERE job = 'tick' AND state = 'succeeded'");
    assert_eq!(house.say(&["status", "--json"]).json()["running"]["pid"], serve.pid());
    assert_eq!(serve.stop().code, Some(0));
    assert_no_gap(&house, "tick");
    house.assert_nothing_is_left();
}

#[test]
fn runs_that_start_at_the_same_moment_all_find_a_home() {
    let house = scripted(MANY, "");
    let jobs = ["a", "b", "c", "d"];
    for job in jobs {
        house.job(job, &by_hand("brief", "", ""));
    }
    for _ in 0..3 {
        let started: Vec<_> = jobs.iter().map(|job| house.start(&["run", job])).collect();
        for run in started {
            let said = run.end();
            assert_eq!(said.code, Some(0), "{said:?}");
        }
    }
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE state = 'succeeded'"), 12);
}

#[test]
fn a_run_that_comes_when_another_is_just_leaving_runs_all_the_same() {
    let house = scripted(FINE, "");
    house.job("a", &by_hand("go", "", ""));
    house.job("b", &by_hand("go", "", ""));
    for round in 0..12 {
        let first = house.start(&["run", "a"]);
        std::thread::sleep(Duration::from_millis(8 * round));
        let second = house.start(&["run", "b"]);
        for run in [first, second] {
            let said = run.end();
            assert_eq!(said.code, Some(0), "{said:?}");
        }
    }
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE state = 'succeeded'"), 24);
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
    // The work had ended before: that stays what happened.
    assert_eq!(house.run("k").0, Some(0));
    assert_eq!(
        house.rows(ENDS),
        [json!(["j", "succeeded", null]), json!(["k", "succeeded", null])]
    );
}

#[test]
fn a_deep_state_folder_works_too() {
    let house = scripted(MANY, "");
    let deep = format!("{}/{}", "d".repeat(120), "e".repeat(120));
    std::fs::create_dir_all(house.path(&deep)).unwrap();
    house.job("hangs", &by_hand("hang", "", "timeout = \"0s\""));
    let with = |arguments: &[&str]| [arguments, &["--state-dir", &deep]].concat().join("\n");
    let say = |arguments: &[&str]| house.say(&with(arguments).split('\n').collect::<Vec<_>>());
    let mut serve = house.start(&with(&["serve"]).split('\n').collect::<Vec<_>>());
    until("serve answers", || {
        assert!(serve.is_running(), "{}", serve.stderr());
        !say(&["status", "--json"]).json()["running"].is_null()
    });
    let said = say(&["run", "hangs", "--detach"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    until("it runs", || say(&["runs", "--json"]).json()[0]["attempts"][0]["state"] == "running");
    assert_eq!(say(&["cancel", "hangs"]).code, Some(0));
    until("it ends", || say(&["runs", "--json"]).json()[0]["state"] == "cancelled");
    assert_eq!(say(&["serve"]).code, Some(3));
    assert_eq!(serve.stop().code, Some(0));
}

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
    assert!(lanes.as_array().unwrap().contains(&json!({"lane": "narrow", "width": 1, "held": 1})));
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

#[test]
fn noise_on_the_socket_and_a_hangup_end_nothing() {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    let house = scripted(FINE, "");
    house.job("j", &by_hand("go", "", ""));
    let mut serve = house.serve();
    let connect = || UnixStream::connect(house.path("state/punctual.sock")).unwrap();
    let silent: Vec<_> = (0..50).map(|_| connect()).collect();
    let long = vec![b'x'; 200_000];
    for noise in [&b"\n"[..], b"{}\n", b"{\"verb\":\"dance\"}\n", b"\xff\xfe\n", &long] {
        let mut socket = connect();
        socket.set_read_timeout(Some(support::LONG)).unwrap();
        // It may hang up before it has heard all of it.
        drop(socket.write_all(noise));
        let mut answer = Vec::new();
        drop(socket.read_to_end(&mut answer));
    }
    serve.signal(Signal::SIGHUP);
    serve.until_stderr("reloading is not supported yet");
    assert_eq!(house.run("j").0, Some(0));
    drop(silent);
    assert!(serve.is_running());
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_newer_database_is_left_alone() {
    let house = scripted(FINE, "");
    house.job("j", &by_hand("go", "", ""));
    assert_eq!(house.run("j").0, Some(0));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let db = Connection::open_with_flags(house.path("state/punctual.db"), flags).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    for arguments in [&["serve"][..], &["run", "j"], &["runs"], &["query", "SELECT 1"]] {
        let said = house.say(arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
        let words = [" 99", env!("CARGO_PKG_VERSION")];
        assert!(words.iter().all(|word| said.stderr.contains(word)), "{said:?}");
    }
}

#[test]
fn admins_read_the_database_while_it_is_served() {
    let house = scripted(FINE, "");
    house.job("tick", EVERY_SECOND);
    let serve = house.serve();
    let db = {
        house.until("SELECT count(*) >= 1 FROM v1_runs WHERE state = 'succeeded'");
        house.database()
    };
    for view in ["v1_jobs", "v1_definitions", "v1_slots", "v1_runs", "v1_attempts", "v1_cleanups"] {
        let rows = support::rows(&db, &format!("SELECT * FROM {view}"));
        assert!(!rows.is_empty(), "{view}");
    }
    assert_eq!(support::rows(&db, "PRAGMA journal_mode"), [json!(["wal"])]);
    // One connection sees what comes, and a long read holds nothing up.
    let reading = db.unchecked_transaction().unwrap();
    let count = "SELECT count(*) FROM v1_runs";
    let before = support::rows(&reading, count);
    house.until(&format!("SELECT count(*) >= 2 + {} FROM v1_runs", before[0][0]));
    assert_eq!(support::rows(&reading, count), before);
    drop(reading);
    assert_ne!(support::rows(&db, count), before);
    let said = house.say(&["query", "SELECT count(*) AS n FROM v1_runs", "--format", "json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.json()[0]["n"].as_u64().unwrap() >= 3, "{said:?}");
    let said = house.say(&["query", "DELETE FROM runs"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn only_the_owner_may_look_into_the_state_folder() {
    let house = scripted(MANY, "");
    house.job("sleeps", &by_hand("sleep", "", ""));
    let serve = house.serve();
    house.detach("sleeps");
    until("the tool works", || house.living("sleep 60") == 1);
    let state = house.path("state");
    let workspace = std::fs::read_dir(state.join("workspaces")).unwrap().next().unwrap().unwrap();
    for folder in
        [state.clone(), state.join("sessions"), state.join("workspaces"), workspace.path()]
    {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
    let files = support::files_below(&state);
    let names: Vec<_> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    for name in ["punctual.db", "punctual.db-wal", "punctual.lock", "punctual.sock"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    let is_transcript =
        |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "jsonl");
    assert!(files.iter().any(is_transcript), "{names:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    assert_eq!(house.say(&["cancel", "sleeps"]).code, Some(0));
    house.until("SELECT state = 'cancelled' FROM v1_runs");
    house.assert_nothing_is_left();
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn one_terminal_event_ends_what_a_run_tells() {
    let house = scripted(MANY, "");
    house.job("brief", &by_hand("brief", "", ""));
    let serve = house.serve();
    let run_id = house.detach("brief");
    let said = house.say(&["logs", &run_id, "-f", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let events: Vec<Value> =
        said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let terminal = |event: &&Value| {
        event["stream"] == "lifecycle"
            && ["end", "error"].contains(&event["phase"].as_str().unwrap())
    };
    assert_eq!(events.iter().filter(terminal).count(), 1, "{events:#?}");
    assert!(terminal(&events.last().unwrap()), "{events:#?}");
    assert_eq!(serve.stop().code, Some(0));
}
