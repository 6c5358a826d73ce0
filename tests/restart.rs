//! What a daemon finds when it starts: slots that passed without it, runs that died with the one
//! before, rows that nobody drives any more.

#![expect(clippy::disallowed_methods, reason = "these tests start and kill programs from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use support::ledger::{
    Grid, assert_all_ended, assert_covers, assert_once, assert_sound, ledger, rewrite, story,
};
use support::scripts::{EVERY_SECOND, FINE, PLAIN, by_hand, once_at, soon, unconfined};
use support::{House, scripted, until};

/// A model that does what the prompt says.
const MODEL: &str = r#"
[[rule]]
when = { contains = "hang" }
step = [{ text = "so far" }, { hang = true }]
[[rule]]
when = { contains = "refuse" }
step = [{ error = { status = 400, message = "no such thing" } }]
[[rule]]
when = { contains = "brief" }
step = [{ delay = "300ms" }, { text = "brief" }]
[[rule]]
when = { contains = "long" }
step = [{ delay = "2500ms" }, { text = "long" }]
[[rule]]
when = { contains = "sleep", turn = 0 }
step = [{ tool = { name = "exec", arguments = { command = "sleep 60" } } }]
[[rule]]
step = [{ text = "fine" }]
"#;

const NOTHING: [Value; 0] = [];

/// The schedule of a job that is due each minute, the last time `ago` seconds ago.
fn minutely(ago: i64, more: &str) -> String {
    let second = (Timestamp::now().as_second() - ago).rem_euclid(60);
    format!(
        "[schedule]\ncron = \"{second} * * * * *\"\n{more}\n[agent]\nprompt = \"go\"\ntools = []\n"
    )
}

/// Nobody has looked for so long.
fn set_back(house: &House, job: &str, length: SignedDuration) {
    let then = Timestamp::now() - length;
    rewrite(house, &format!("UPDATE jobs SET decided_until = '{then:.3}' WHERE job = '{job}'"));
}

#[test]
fn slots_that_passed_while_it_was_down_have_one_run_or_a_row_that_says_why_not() {
    let house = scripted(MODEL, "");
    house.job("latest", &minutely(25, ""));
    house.job("none", &minutely(25, "catchup = \"none\""));
    assert_eq!(house.serve().stop().code, Some(0));
    let ten_minutes = SignedDuration::from_secs(600 + 5);
    set_back(&house, "latest", ten_minutes);
    set_back(&house, "none", ten_minutes);
    let serve = house.serve();
    house.until("SELECT state = 'succeeded' FROM v1_runs");
    // What is due is not due again, and what was missed is not started later.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows(
            "SELECT r.trigger, r.slots, r.late_ms BETWEEN 25000 AND 59999, r.due_at = s.due_at
             FROM v1_runs r JOIN v1_slots s USING (run_id)"
        ),
        [json!(["catchup", 10, 1, 1])]
    );
    assert_eq!(
        house.rows("SELECT job, slots, decision, reason FROM v1_slots ORDER BY job, due_at"),
        [
            json!(["latest", 9, "missed", "superseded"]),
            json!(["latest", 1, "started", null]),
            json!(["none", 10, "missed", "down"]),
        ]
    );
    let next =
        "SELECT count(*) FROM v1_jobs WHERE next_due_at > (SELECT max(due_until) FROM v1_slots)";
    assert_eq!(house.value(next), 2);
    let before = ledger(&house);
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(ledger(&house), before);
}

#[test]
fn a_run_that_died_is_closed_and_repeated_once_if_its_job_says_so() {
    let house = scripted(MODEL, "");
    let due = soon();
    house.job("left", &once_at(due, "hang", ""));
    house.job("repeated", &once_at(due, "hang", "interrupted = true"));
    let running = |count: u32| {
        house.until(&format!("SELECT count(*) = {count} FROM v1_attempts WHERE state = 'running'"));
    };
    let serve = house.serve();
    running(2);
    serve.kill();

    let dead = json!([1, "schedule", "interrupted", "interrupted"]);
    let again = json!([2, "retry", "interrupted", "interrupted"]);
    let serve = house.serve();
    // Nothing of it waits for the next due instant: there is none.
    running(1);
    assert_eq!(story(&house, "left"), std::slice::from_ref(&dead));
    assert_eq!(story(&house, "repeated"), [dead.clone(), json!([2, "retry", "running", null])]);
    serve.kill();

    for _ in 0..2 {
        let serve = house.serve();
        house
            .until("SELECT paused_cause = 'interrupted_twice' FROM v1_jobs WHERE job = 'repeated'");
        assert_eq!(serve.stop().code, Some(0));
        assert_eq!(story(&house, "left"), std::slice::from_ref(&dead));
        assert_eq!(story(&house, "repeated"), [dead.clone(), again.clone()]);
    }
    let pauses = "SELECT actor, kind, name, result FROM v1_audit WHERE kind IN ('pause', 'resume')";
    assert_eq!(house.rows(pauses), [json!(["punctual", "pause", "repeated", "interrupted_twice"])]);
    assert_eq!(
        house.rows("SELECT job, state FROM v1_jobs ORDER BY job"),
        [json!(["left", "done"]), json!(["repeated", "paused"])]
    );
    let before = ledger(&house);
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(ledger(&house), before);
    assert_all_ended(&house);
    assert_once(&house);
}

#[test]
fn a_job_that_stops_the_daemon_does_so_twice_and_no_more() {
    // The tool's folder is `state/workspaces/<run>`.
    let stop = "kill -TERM $(sed 's/.*\\\"pid\\\":\\\\([0-9]*\\\\).*/\\\\1/' ../../punctual.lock); sleep 60";
    let script = format!(
        "[[rule]]\nwhen = {{ contains = \"stop\", turn = 0 }}\n\
         step = [{{ tool = {{ name = \"exec\", arguments = {{ command = \"{stop}\" }} }} }}]\n\
         [[rule]]\nstep = [{{ text = \"fine\" }}]\n"
    );
    let house = scripted(&script, "[scheduler]\nshutdown_grace = \"1s\"\n");
    let job = unconfined(&by_hand("stop", "", ""));
    let job = format!("{job}\n[schedule]\ncron = \"* * * * * *\"\n[retry]\ninterrupted = true\n");
    house.job("stops", &job);
    house.job("other", EVERY_SECOND);
    // What starts it again and again.
    for _ in 0..2 {
        let said = house.start(&["serve"]).end();
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let mut serve = house.serve();
    house.until("SELECT count(*) >= 2 FROM v1_slots WHERE reason = 'interrupted_twice'");
    let so_far = house.value("SELECT max(queued_at) FROM v1_runs");
    house.until(&format!(
        "SELECT count(*) >= 2 FROM v1_runs
         WHERE job = 'other' AND state = 'succeeded' AND queued_at > '{}'",
        so_far.as_str().unwrap()
    ));
    assert!(serve.is_running());
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        story(&house, "stops"),
        [
            json!([1, "schedule", "interrupted", "shutdown"]),
            json!([2, "retry", "interrupted", "shutdown"]),
        ]
    );
    assert_covers(&house, "stops", Grid::seconds(&house, "stops", 1));
    house.assert_nothing_is_left();
}

#[test]
fn every_instant_has_its_row_and_its_reason() {
    let house = scripted(MODEL, "[scheduler]\nreload = \"manual\"\n");
    let away = format!("[schedule]\ncron = \"* * * * * *\"\ncatchup = \"none\"\n{PLAIN}");
    house.job("away", &format!("enabled = false\n{away}"));
    for job in ["off", "broken", "held"] {
        house.job(job, EVERY_SECOND);
    }
    house.job("over", &EVERY_SECOND.replace("go", "long"));
    let serve = house.serve();
    house.until("SELECT count(DISTINCT job) = 4 FROM v1_runs");
    assert_eq!(serve.stop().code, Some(0));
    // It was seen a minute ago for the first time, and nobody has looked since.
    let then = Timestamp::now() - SignedDuration::from_secs(60);
    rewrite(&house, "DELETE FROM slots WHERE job = 'away'");
    rewrite(
        &house,
        &format!(
            "UPDATE jobs SET first_seen_at = '{then:.3}', decided_until = '{then:.3}'
             WHERE job = 'away'"
        ),
    );
    house.job("away", &away);
    house.job("off", &format!("enabled = false\n{EVERY_SECOND}"));
    house.job("broken", "[agent\n");
    std::thread::sleep(Duration::from_millis(1200));
    let serve = house.serve();
    let said = house.say(&["pause", "held", "--reason", "moving"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let wanted = ["disabled", "down", "invalid", "overlap", "paused"];
    let reasons = || -> BTreeSet<String> {
        let rows = house.rows("SELECT DISTINCT reason FROM v1_slots WHERE reason IS NOT NULL");
        rows.iter().map(|row| row[0].as_str().unwrap().to_owned()).collect()
    };
    until("every reason is there", || wanted.iter().all(|it| reasons().contains(*it)));
    assert_eq!(serve.stop().code, Some(0));

    // The whole of it in one query: each second of each job, minus the rows.
    let without_row = "WITH RECURSIVE instants (job, at, until) AS (
            SELECT j.job, unixepoch(j.first_seen_at) + 1, unixepoch(max(s.due_until))
            FROM v1_jobs j JOIN v1_slots s USING (job) GROUP BY j.job
          UNION ALL
            SELECT job, at + 1, until FROM instants WHERE at < until)
        SELECT count(*), count(DISTINCT job),
               sum(NOT EXISTS (SELECT 1 FROM v1_slots s WHERE s.job = i.job
                   AND i.at BETWEEN unixepoch(s.due_at) AND unixepoch(s.due_until)))
        FROM instants i";
    let rows = house.rows(without_row);
    assert!(rows[0][0].as_i64().unwrap() > 70, "{rows:?}");
    assert_eq!((&rows[0][1], &rows[0][2]), (&json!(5), &json!(0)), "{rows:?}");
    for job in ["away", "off", "broken", "held", "over"] {
        assert_covers(&house, job, Grid::seconds(&house, job, 1));
    }
}

#[test]
fn restarts_and_edits_of_the_prompt_do_not_move_the_grid_of_every() {
    let house = scripted(MODEL, "");
    let job = |prompt: &str| {
        format!("[schedule]\nevery = \"3s\"\n[agent]\nprompt = \"{prompt}\"\ntools = []\n")
    };
    house.job("every", &job("one"));
    let mut anchors = BTreeSet::new();
    for round in 0..5 {
        let serve = house.serve();
        // Less than one interval.
        std::thread::sleep(Duration::from_millis(2200));
        anchors.insert(house.value("SELECT every_anchor FROM jobs").to_string());
        match round % 2 {
            0 => serve.kill(),
            _ => assert_eq!(serve.stop().code, Some(0)),
        }
        house.job("every", &job(&format!("edit {round}")));
    }
    let serve = house.serve();
    house.until("SELECT count(*) >= 3 FROM v1_runs WHERE state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(anchors.len(), 1);
    assert_covers(&house, "every", Grid::every(&house, "every", 3));
    assert_once(&house);
}

/// A process that has nothing to do with it. Dropping it ends it.
struct Innocent(Child);

impl Innocent {
    fn start() -> Self {
        Self(Command::new("sleep").arg("120").spawn().unwrap())
    }

    /// When it started, as the kernel counts.
    fn start_time(&self) -> i64 {
        start_time(self.0.id())
    }
}

impl Drop for Innocent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_time(pid: u32) -> i64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit_once(") ").unwrap().1;
    rest.split(' ').nth(19).unwrap().parse().unwrap()
}

#[test]
fn rows_of_the_dead_are_closed_and_their_jobs_go_on() {
    let house = scripted(MODEL, "");
    house.job("skips", &EVERY_SECOND.replace("go", "brief"));
    house.job("model", PLAIN);
    assert_eq!(house.run("model").0, Some(0));
    let mut innocent = Innocent::start();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = boot.trim();
    let (own, its) = (std::process::id(), innocent.0.id());
    let owners = [
        ("other-boot", "00000000-0000-0000-0000-000000000000", its, innocent.start_time()),
        ("other-start", boot, its, innocent.start_time() - 1),
        ("alive", boot, own, start_time(own)),
    ];
    for (run_id, boot, pid, started) in owners {
        rewrite(
            &house,
            &format!(
                "INSERT INTO runs (run_id, job, trigger, attempt, state, queued_at, started_at,
                     session_id, host, version, definition_hash, owner_boot_id, owner_pid,
                     owner_started)
                 SELECT '{run_id}', 'skips', 'manual', 1, 'running', queued_at, started_at,
                     session_id, host, version, definition_hash, '{boot}', {pid}, {started}
                 FROM runs WHERE job = 'model'"
            ),
        );
    }
    let serve = house.serve();
    assert_eq!(
        house.rows(
            "SELECT run_id, state, error_kind, finished_at IS NOT NULL FROM v1_runs
             WHERE trigger = 'manual' AND job = 'skips' ORDER BY run_id"
        ),
        [
            json!(["alive", "running", null, 0]),
            json!(["other-boot", "interrupted", "interrupted", 1]),
            json!(["other-start", "interrupted", "interrupted", 1]),
        ]
    );
    house.until("SELECT count(*) >= 2 FROM v1_runs WHERE job = 'skips' AND state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    // It lives, and nobody has signalled it: it would be gone.
    assert!(innocent.0.try_wait().unwrap().is_none());
    assert_eq!(house.value("SELECT state FROM v1_runs WHERE run_id = 'alive'"), "running");
}

#[test]
fn what_a_dead_daemon_left_running_is_gone_before_the_job_runs_again() {
    // A kernel lock in the house's folder: the second copy would not get it while the first lives.
    let command = "exec 9>../../../one; flock -n 9 || touch ../../../two-at-once; \
                   trap '' TERM; echo >> ../../../started; while :; do sleep 0.2; done";
    let script = format!(
        "[[rule]]\nwhen = {{ turn = 0 }}\n\
         step = [{{ tool = {{ name = \"exec\", arguments = {{ command = \"{command}\" }} }} }}]\n"
    );
    let house = scripted(&script, "[scheduler]\nshutdown_grace = \"1s\"\n");
    let job = unconfined(&by_hand("go", "", "stop_grace = \"1s\""));
    house.job("stubborn", &format!("{job}\n[schedule]\ncron = \"* * * * * *\"\n"));
    let started = |count: usize| {
        until("the tool works", || {
            std::fs::read_to_string(house.path("started"))
                .is_ok_and(|it| it.lines().count() == count)
        });
    };
    let serve = house.serve();
    started(1);
    serve.kill();
    let serve = house.serve();
    started(2);
    assert!(!house.path("two-at-once").exists());
    assert!(serve.stderr().contains("had left running"), "{}", serve.stderr());
    assert_eq!(serve.stop().code, Some(0));
    house.assert_nothing_is_left();
    assert!(!house.path("two-at-once").exists());
}

#[test]
fn a_job_with_one_slot_runs_once_whatever_comes_of_it() {
    let house = scripted(MODEL, "");
    let due = soon();
    house.job("succeeds", &once_at(due, "go", ""));
    house.job("fails", &once_at(due, "refuse", ""));
    let limit = "max_attempts = 1\n[limits]\ntimeout = \"1s\"";
    house.job("times-out", &once_at(due, "hang", limit));
    house.job("dies", &once_at(due, "hang", ""));
    house.job("off", &format!("enabled = false\n{}", once_at(due, "go", "")));
    let hour = SignedDuration::from_hours(1);
    house.job("late", &once_at(due - hour, "go", ""));
    house.job("too-late", &once_at(due - hour * 3, "go", ""));
    house.job("never", &once_at(due - hour, "go", "").replace("at =", "catchup = \"none\"\nat ="));
    let serve = house.serve();
    house.until("SELECT count(*) = 4 FROM v1_runs WHERE finished_at IS NOT NULL");
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE job = 'dies' AND state = 'running'");
    house.until("SELECT count(*) = 8 FROM v1_slots");
    serve.kill();
    for _ in 0..3 {
        let serve = house.serve();
        house.until("SELECT finished_at IS NOT NULL FROM v1_runs WHERE job = 'dies'");
        assert_eq!(serve.stop().code, Some(0));
    }
    assert_eq!(
        house.rows(
            "SELECT j.job, j.state, j.paused_cause, r.trigger, r.state, r.error_kind, r.attempt
             FROM v1_jobs j LEFT JOIN v1_runs r USING (job) ORDER BY j.job"
        ),
        [
            json!(["dies", "done", null, "schedule", "interrupted", "interrupted", 1]),
            json!(["fails", "paused", "one_shot_failed", "schedule", "failed", "bad_request", 1]),
            json!(["late", "done", null, "catchup", "succeeded", null, 1]),
            json!(["never", "done", null, null, null, null, null]),
            json!(["off", "disabled", null, null, null, null, null]),
            json!(["succeeds", "done", null, "schedule", "succeeded", null, 1]),
            json!([
                "times-out",
                "paused",
                "one_shot_failed",
                "schedule",
                "timed_out",
                "deadline",
                1
            ]),
            json!(["too-late", "done", null, null, null, null, null]),
        ]
    );
    assert_eq!(
        house.rows(
            "SELECT job, decision, reason FROM v1_slots WHERE decision <> 'started' ORDER BY 1"
        ),
        [
            json!(["never", "missed", "down"]),
            json!(["off", "skipped", "disabled"]),
            json!(["too-late", "missed", "too_late"]),
        ]
    );
    assert_sound(&house);
}

#[test]
fn a_run_that_waited_for_a_lane_starts_after_the_restart() {
    let house = scripted(MODEL, "[lanes]\nnarrow = 1\n");
    house.job("holds", &by_hand("sleep", "lane = \"narrow\"", ""));
    house.job("waits", &format!("lane = \"narrow\"\n{}", once_at(soon(), "go", "")));
    let serve = house.serve();
    house.detach("holds");
    until("the tool works", || house.living("sleep 60") == 1);
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE job = 'waits' AND state = 'queued'");
    let waiting = house.value("SELECT run_id FROM v1_runs WHERE job = 'waits'");
    serve.kill();
    let serve = house.serve();
    house.until("SELECT state = 'succeeded' FROM v1_runs WHERE job = 'waits'");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows("SELECT run_id, trigger, attempt, slots FROM v1_runs WHERE job = 'waits'"),
        [json!([waiting, "schedule", 1, 1])]
    );
    assert_eq!(
        story(&house, "holds"),
        [json!([1, "manual", "interrupted", "interrupted"])],
        "a run by hand is not repeated"
    );
    assert_once(&house);
}

#[test]
fn a_slot_that_waited_for_its_jobs_run_starts_after_the_restart() {
    let house = scripted(MODEL, "");
    // Two instants, and then none for a year.
    let first = soon() + SignedDuration::from_secs(3);
    let second = first + SignedDuration::from_secs(1);
    let cron = |at: Timestamp| at.strftime("%-S %-M %-H %-d %-m *").to_string();
    let job = format!(
        "[schedule]\ncron = [\"{}\", \"{}\"]\noverlap = \"buffer_one\"\n\
         [agent]\nprompt = \"hang\"\ntools = []\n",
        cron(first),
        cron(second)
    );
    house.job("buffers", &job);
    let serve = house.serve();
    house.until("SELECT count(*) = 1 FROM v1_slots WHERE decision = 'buffered'");
    serve.kill();
    house.write("model.toml", FINE);
    let serve = house.serve();
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows("SELECT due_at, trigger, state FROM v1_runs ORDER BY due_at"),
        [
            json!([format!("{first:.3}"), "schedule", "interrupted"]),
            json!([format!("{second:.3}"), "catchup", "succeeded"]),
        ]
    );
    assert_once(&house);
}

#[test]
fn a_result_that_was_stored_before_the_crash_is_what_happened() {
    let house = scripted(MODEL, "");
    let due = soon();
    house.job("done", &once_at(due, "hang", "interrupted = true"));
    house.job("failed", &once_at(due, "hang", "backoff = [\"1s\"]"));
    let serve = house.serve();
    house.until("SELECT count(*) = 2 FROM v1_attempts WHERE state = 'running'");
    serve.kill();
    rewrite(&house, "UPDATE runs SET work_state = 'succeeded', reply = 'kept' WHERE job = 'done'");
    rewrite(
        &house,
        "UPDATE runs SET work_state = 'failed', error_kind = 'incomplete_stream',
                         error_message = 'it broke off' WHERE job = 'failed'",
    );
    house.write("model.toml", FINE);
    let serve = house.serve();
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE attempt = 2 AND state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(story(&house, "done"), [json!([1, "schedule", "succeeded", null])]);
    assert_eq!(house.value("SELECT reply FROM v1_runs WHERE job = 'done'"), "kept");
    assert_eq!(
        story(&house, "failed"),
        [
            json!([1, "schedule", "failed", "incomplete_stream"]),
            json!([2, "retry", "succeeded", null]),
        ]
    );
    assert_eq!(house.rows("SELECT state FROM v1_jobs"), [json!(["done"]), json!(["done"])]);
    assert_eq!(house.rows("SELECT * FROM v1_audit WHERE kind IN ('pause', 'resume')"), NOTHING);
}
