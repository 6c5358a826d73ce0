//! `serve` is killed again and again over one database, and both promises hold: nothing was due
//! without a row, and nothing ran twice.
//!
//! `PUNCTUAL_KILLS` says how often, `PUNCTUAL_SEED` repeats what has failed.

#![expect(clippy::disallowed_methods, reason = "these tests kill the program from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use support::ledger::{
    Grid, assert_all_ended, assert_covers, assert_once, assert_one_at_a_time, assert_sound,
};
use support::{House, scripted, until};

/// Kills without the variable: about half a minute.
const KILLS: u64 = 20;

/// Every how many kills, on average, it stays down for so long that slots are misfires.
const LONG_REST_EVERY: u64 = 16;

const MODEL: &str = r#"
[[rule]]
when = { contains = "long" }
step = [{ delay = "3s" }, { text = "at last" }]
[[rule]]
when = { contains = "short" }
step = [{ delay = "300ms" }, { text = "done" }]
[[rule]]
when = { contains = "second" }
step = [{ delay = "1200ms" }, { text = "done" }]
[[rule]]
when = { contains = "cut" }
step = [{ text = "half" }, { error = { status = 200, message = "an odd one" } }]
[[rule]]
when = { contains = "tool", turn = 0 }
step = [{ tool = { name = "exec", arguments = { command = "sleep 2" } } }]
[[rule]]
step = [{ text = "fine" }]
"#;

/// Jobs that are due each `step` seconds: their keys of `[schedule]`, prompt and further tables.
const JOBS: [(&str, i64, &str, &str, &str); 12] = [
    ("skips", 1, "overlap = \"skip\"", "second", ""),
    ("buffers-one", 1, "overlap = \"buffer_one\"", "second", ""),
    ("buffers-all", 1, "overlap = \"buffer_all\"", "short", ""),
    ("replaces", 1, "overlap = \"cancel_other\"", "second", ""),
    ("allows", 1, "overlap = \"allow_all\"", "second", ""),
    ("takes-long", 1, "", "long", ""),
    ("fails", 2, "", "cut", "[retry]\nmax_attempts = 2\nbackoff = [\"1s\"]\n"),
    ("repeats", 1, "", "second", "[retry]\ninterrupted = true\n"),
    ("makes-up", 1, "catchup = \"all\"", "go", ""),
    ("lets-go", 1, "catchup = \"none\"", "go", ""),
    ("has-a-tool", 1, "", "tool", ""),
    ("jitters", 3, "jitter = \"1s\"", "go", ""),
];

/// A cheap source of numbers, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn write_job(house: &House, (id, step, when, prompt, more): (&str, i64, &str, &str, &str), n: u64) {
    let tools = if prompt == "tool" { "[\"exec\"]\nexec_allow = [\"*\"]" } else { "[]" };
    let schedule = format!("[schedule]\ncron = \"*/{step} * * * * *\"\n{when}\n");
    let agent = format!("[agent]\nprompt = \"{prompt} {n}\"\ntools = {tools}\n");
    house.job(id, &format!("{schedule}{agent}{more}"));
}

#[test]
fn however_often_it_is_killed_nothing_is_lost_and_nothing_runs_twice() {
    let seed = number("PUNCTUAL_SEED").unwrap_or_else(|| u64::from(std::process::id()) * 7919 + 1);
    let kills = number("PUNCTUAL_KILLS").unwrap_or(KILLS);
    // Shown when the test fails.
    println!("PUNCTUAL_SEED={seed} PUNCTUAL_KILLS={kills}");
    let mut dice = Dice(seed);
    let house = scripted(MODEL, "[scheduler]\nshutdown_grace = \"2s\"\nmax_concurrent_runs = 20\n");
    for job in JOBS {
        write_job(&house, job, 0);
    }
    let every =
        |n: u64| format!("[schedule]\nevery = \"2s\"\n[agent]\nprompt = \"go {n}\"\ntools = []\n");
    house.job("every", &every(0));
    let due = Timestamp::from_second(Timestamp::now().as_second() + 4).unwrap();
    house.job("once", &support::scripts::once_at(due, "short", ""));

    for n in 1..=kills {
        let serve = house.start(&["serve"]);
        std::thread::sleep(dice.millis(20, 1500));
        serve.kill();
        match dice.below(6) {
            0 => write_job(&house, JOBS[usize::try_from(dice.below(12)).unwrap()], n),
            1 => house.job("every", &every(n)),
            // It is held after two interruptions; then somebody sees to it.
            2 if n > 1 => drop(house.say(&["resume", "repeats"])),
            _ => {}
        }
        if dice.below(LONG_REST_EVERY) == 0 {
            std::thread::sleep(dice.millis(10_500, 12_000));
        }
    }
    let last_start = Timestamp::now();
    let serve = house.serve();
    house.until(&format!(
        "SELECT count(DISTINCT job) = 14 FROM v1_slots
         WHERE job = 'once' OR due_until > '{last_start:.3}'"
    ));
    std::thread::sleep(Duration::from_secs(2));
    // The test would prove little if little had happened.
    for state in ["succeeded", "failed", "interrupted"] {
        house.until(&format!("SELECT count(*) > 0 FROM v1_runs WHERE state = '{state}'"));
    }
    let said = serve.stop();
    assert_eq!(said.code, Some(0), "{said:?}");
    until("no process is left", || house.run_processes().is_empty());

    assert_sound(&house);
    assert_once(&house);
    assert_all_ended(&house);
    for (job, step, ..) in JOBS {
        assert_covers(&house, job, Grid::seconds(&house, job, step));
        if job != "allows" {
            assert_one_at_a_time(&house, job);
        }
    }
    assert_covers(&house, "every", Grid::every(&house, "every", 2));
    assert_eq!(house.value("SELECT count(*) FROM v1_slots WHERE job = 'once'"), 1);
    assert_interruptions(&house, last_start);
    assert_eq!(std::fs::read_dir(house.path("state/workspaces")).unwrap().count(), 0);
}

/// A run that was interrupted is repeated once, if its job says so; when that was interrupted too,
/// the job is held.
fn assert_interruptions(house: &House, last_start: Timestamp) {
    let slots = |having: &str| {
        house.rows(&format!(
            "SELECT job, due_at, group_concat(attempt || ' ' || state, ', ') FROM
                 (SELECT * FROM v1_runs WHERE due_at IS NOT NULL ORDER BY attempt)
             GROUP BY job, due_at HAVING {having}"
        ))
    };
    let nothing = Vec::<Value>::new();
    let without_leave = "job NOT IN ('repeats', 'fails') AND count(*) > 1";
    assert_eq!(slots(without_leave), nothing, "only a job that says so has a second attempt");
    assert_eq!(slots("job = 'repeats' AND count(*) > 2"), nothing, "the repeat is the only one");
    let left = format!(
        "job = 'repeats' AND count(*) = 1 AND min(state) = 'interrupted'
         AND min(finished_at) < '{last_start:.3}'"
    );
    assert_eq!(slots(&left), nothing, "an interruption is repeated");
    let twice = "job = 'repeats' AND sum(state = 'interrupted') = 2";
    let before = format!("{twice} AND max(finished_at) < '{last_start:.3}'");
    let pauses = house.value(
        "SELECT count(*) FROM v1_audit
             WHERE kind = 'pause' AND name = 'repeats' AND result = 'interrupted_twice'",
    );
    let pauses = usize::try_from(pauses.as_u64().unwrap()).unwrap();
    assert!(slots(&before).len() <= pauses && pauses <= slots(twice).len(), "{pauses}");
    // From the second interruption until somebody frees it, nothing of it starts.
    let started_while_held = "SELECT r.run_id, r.queued_at FROM v1_runs r
        WHERE r.job = 'repeats' AND 'pause' =
            (SELECT a.kind FROM v1_audit a
             WHERE a.kind IN ('pause', 'resume') AND a.name = 'repeats' AND a.at < r.queued_at
             ORDER BY a.at DESC LIMIT 1)";
    assert_eq!(house.rows(started_while_held), nothing);
    let is_held = house.value("SELECT paused_cause FROM v1_jobs WHERE job = 'repeats'");
    if is_held == json!("interrupted_twice") {
        let last = "SELECT decision, reason FROM v1_slots WHERE job = 'repeats'
                    ORDER BY due_at DESC LIMIT 1";
        assert_eq!(house.rows(last), [json!(["held", "interrupted_twice"])]);
    }
}
