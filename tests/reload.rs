//! Files that change while `serve` runs: what holds from when on, and what goes on as it was.

#![expect(clippy::disallowed_methods, reason = "these tests edit files under a running program")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::ledger::{
    Grid, assert_covers, assert_once, assert_rows_follow, assert_sound, instant_ms,
};
use support::scripts::{EVERY_SECOND, FINE, by_hand};
use support::{House, Running, scripted, until};

/// A model that says back what it was told, some things later than others.
const ECHO: &str = r#"
[[rule]]
when = { contains = "long" }
step = [{ delay = "5s" }, { text = "at last" }]
[[rule]]
when = { contains = "brief" }
step = [{ delay = "1500ms" }, { text = "brief" }]
[[rule]]
step = [{ text = "fine" }]
"#;

const MANUAL: &str = "[scheduler]\nreload = \"manual\"\n";

/// A job that is due each second with this prompt.
fn ticking(prompt: &str) -> String {
    EVERY_SECOND.replace("\"go\"", &format!("\"{prompt}\""))
}

/// The hash of the definition that the job has in the ledger.
fn definition(house: &House, job: &str) -> String {
    let hash = house.value(&format!("SELECT definition_hash FROM v1_jobs WHERE job = '{job}'"));
    hash.as_str().unwrap().to_owned()
}

/// Waits until a run of the job has succeeded under another definition than `old`; returns its hash.
fn succeeded_under_another(house: &House, job: &str, old: &str) -> String {
    house.until(&format!(
        "SELECT count(*) >= 1 FROM v1_runs
         WHERE job = '{job}' AND state = 'succeeded' AND definition_hash <> '{old}'"
    ));
    definition(house, job)
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

/// How often the files were read again.
fn readings(serve: &Running) -> usize {
    serve.stderr().matches("files read again").count()
}

fn until_read(serve: &Running, times: usize) {
    until("the files are read again", || readings(serve) >= times);
}

/// `punctual reload`, which has to succeed.
fn reload(house: &House) -> Value {
    let said = house.say(&["reload", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    said.json()
}

#[test]
fn a_file_that_an_editor_renames_into_place_is_taken_over_with_the_new_ones_and_without_the_deleted()
 {
    let house = scripted(ECHO, "");
    for job in ["edited", "kept", "deleted"] {
        house.job(job, &ticking("one"));
    }
    let serve = house.serve();
    house.until("SELECT count(DISTINCT job) = 3 FROM v1_runs WHERE state = 'succeeded'");
    let (old, kept) = (definition(&house, "edited"), definition(&house, "kept"));

    house.write("jobs/.edited.toml.swp", &ticking("two"));
    std::fs::rename(house.path("jobs/.edited.toml.swp"), house.path("jobs/edited.toml")).unwrap();
    house.job("new", &ticking("one"));
    std::fs::remove_file(house.path("jobs/deleted.toml")).unwrap();
    let new = succeeded_under_another(&house, "edited", &old);
    succeeds_again(&house, "new");
    let removed = house.value("SELECT removed_at FROM v1_jobs WHERE job = 'deleted'");
    let started_later = format!(
        "SELECT count(*) FROM v1_runs WHERE job = 'deleted' AND queued_at > '{}'",
        removed.as_str().unwrap()
    );
    succeeds_again(&house, "kept");
    succeeds_again(&house, "kept");
    assert_eq!(house.value(&started_later), 0);
    assert_eq!(definition(&house, "kept"), kept);
    let list = house.say(&["ls", "--json"]).json();
    let names: Vec<_> = list.as_array().unwrap().iter().map(|job| &job["job"]).collect();
    assert_eq!(names, ["edited", "kept", "new"]);
    assert_eq!(house.value("SELECT state FROM v1_jobs WHERE job = 'deleted'"), "removed");

    // It comes back: while it was gone it was due at no time.
    house.job("deleted", &ticking("one"));
    succeeds_again(&house, "deleted");
    assert_eq!(serve.stop().code, Some(0));
    // Each version has its runs, and once the new one holds, the old one starts nothing.
    let order = "SELECT DISTINCT definition_hash FROM v1_runs WHERE job = 'edited' ORDER BY due_at";
    assert_eq!(house.rows(order), [json!([old]), json!([new])]);
    for job in ["edited", "kept", "new"] {
        assert_covers(&house, job, Grid::seconds(&house, job, 1));
    }
    assert_once(&house);
    assert_sound(&house);
}

#[test]
fn a_file_that_is_written_in_two_halves_is_never_taken_half() {
    let house = scripted(ECHO, "");
    house.job("halves", &ticking("one"));
    house.job("whole", &ticking("one"));
    let serve = house.serve();
    house.until("SELECT count(DISTINCT job) = 2 FROM v1_runs WHERE state = 'succeeded'");
    let old = definition(&house, "halves");
    for (first, rest) in [
        // Half of it is a job of its own.
        (ticking("two"), "[labels]\nwhole = \"yes\"\n".to_owned()),
        // Half of it is none.
        (
            "[schedule]\ncron = \"* * ".to_owned(),
            "* * * *\"\n[agent]\nprompt = \"three\"\n".to_owned(),
        ),
    ] {
        let times = readings(&serve);
        house.job("halves", &first);
        std::thread::sleep(Duration::from_millis(300));
        house.job("halves", &format!("{first}{rest}"));
        until_read(&serve, times + 1);
        succeeds_again(&house, "halves");
    }
    let now = definition(&house, "halves");
    assert_eq!(serve.stop().code, Some(0));
    assert_ne!(old, now);
    // Two edits, two new versions, none of them invalid in between.
    let versions = "SELECT count(*) FROM v1_definitions WHERE job = 'halves'";
    assert_eq!(house.value(versions), 3);
    assert_eq!(house.rows("SELECT * FROM v1_slots WHERE reason = 'invalid'"), Vec::<Value>::new());
    assert_covers(&house, "halves", Grid::seconds(&house, "halves", 1));
}

#[test]
fn an_invalid_new_version_leaves_the_last_good_one_in_force_and_says_so() {
    let house = scripted(ECHO, "");
    house.job("torn", &ticking("one"));
    house.job("other", &ticking("one"));
    let serve = house.serve();
    house.until("SELECT count(DISTINCT job) = 2 FROM v1_runs WHERE state = 'succeeded'");
    let old = definition(&house, "torn");
    house.job("torn", "[agent]\nprompt = \"two\"\n[schedule]\ncron = \"99 * * * *\"\n");
    house.until("SELECT invalid_reason IS NOT NULL FROM v1_jobs WHERE job = 'torn'");
    succeeds_again(&house, "torn");
    succeeds_again(&house, "other");
    assert_eq!(definition(&house, "torn"), old);
    let list = house.say(&["ls", "--json"]).json();
    let torn = list.as_array().unwrap().iter().find(|job| job["job"] == "torn").unwrap();
    assert_eq!((&torn["state"], &torn["last_good_in_force"]), (&json!("invalid"), &json!(true)));
    assert!(torn["invalid_reason"].as_str().unwrap().contains("99"), "{torn}");
    assert!(house.say(&["ls"]).stdout.contains("last good in force"));
    let status = house.say(&["status", "--json"]).json();
    assert_eq!(status["running"]["last_good"], json!(["torn"]));
    assert!(house.say(&["status"]).stdout.contains("its last good version is in force"));

    house.job("torn", &ticking("three"));
    let new = succeeded_under_another(&house, "torn", &old);
    assert_eq!(house.value("SELECT invalid_reason FROM v1_jobs WHERE job = 'torn'"), Value::Null);
    let status = house.say(&["status", "--json"]).json();
    assert_eq!(status["running"]["last_good"], json!([]));
    assert_eq!(serve.stop().code, Some(0));
    let order = "SELECT DISTINCT definition_hash FROM v1_runs WHERE job = 'torn' ORDER BY due_at";
    assert_eq!(house.rows(order), [json!([old]), json!([new])]);
    assert_covers(&house, "torn", Grid::seconds(&house, "torn", 1));
}

#[test]
fn a_file_that_was_broken_from_the_start_runs_once_it_is_mended() {
    let house = scripted(ECHO, "");
    house.job("torn", &ticking("one"));
    let serve = house.serve();
    house.until("SELECT count(*) >= 1 FROM v1_runs WHERE state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    house.job("torn", "[agent\n");
    house.job("new", "[agent\n");
    let serve = house.serve();
    house.until("SELECT count(*) >= 1 FROM v1_slots WHERE reason = 'invalid'");
    for job in ["torn", "new"] {
        house.job(job, &ticking("one"));
    }
    succeeds_again(&house, "torn");
    succeeds_again(&house, "new");
    assert_eq!(serve.stop().code, Some(0));
    assert_covers(&house, "torn", Grid::seconds(&house, "torn", 1));
    assert_once(&house);
}

#[test]
fn running_work_ends_once_under_the_definition_that_it_began_with() {
    let house = scripted(ECHO, "");
    house.job("long", &by_hand("long", "", ""));
    house.job("gone", &by_hand("long too", "", ""));
    house.job("other", &ticking("one"));
    house.job("breaks", &ticking("one"));
    let serve = house.serve();
    let old = definition(&house, "long");
    let runs = [house.detach("long"), house.detach("gone")];
    house.until("SELECT count(*) = 2 FROM v1_runs WHERE trigger = 'manual' AND state = 'running'");
    house.job("long", &by_hand("other words", "", ""));
    std::fs::remove_file(house.path("jobs/gone.toml")).unwrap();
    house.job("other", &ticking("two"));
    house.job("new", &ticking("one"));
    house.job("breaks", "[agent\n");
    house.until("SELECT count(*) = 2 FROM v1_definitions WHERE job = 'long'");
    assert_eq!(
        house
            .value("SELECT count(*) FROM v1_runs WHERE trigger = 'manual' AND finished_at IS NULL"),
        2
    );
    for run in &runs {
        assert_eq!(house.ended(run)["reply"], "at last");
    }
    succeeds_again(&house, "new");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows("SELECT job, state, definition_hash FROM v1_runs WHERE job = 'long'"),
        [json!(["long", "succeeded", old])]
    );
    assert_ne!(definition(&house, "long"), old);
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE job = 'gone'"), 1);
    assert_eq!(
        house.value("SELECT invalid_reason IS NOT NULL FROM v1_jobs WHERE job = 'breaks'"),
        1
    );
}

#[test]
fn an_edit_of_the_schedule_begins_anew_and_an_edit_of_the_prompt_does_not() {
    let house = scripted(ECHO, MANUAL);
    let job = |every: &str, prompt: &str| {
        format!("[schedule]\nevery = \"{every}\"\n[agent]\nprompt = \"{prompt}\"\ntools = []\n")
    };
    let anchor = || instant_ms(&house.value("SELECT every_anchor FROM jobs"));
    house.job("every", &job("3s", "one"));
    let serve = house.serve();
    let first = anchor();
    house.job("every", &job("3s", "two"));
    assert_eq!(reload(&house)["changed"], json!(["every"]));
    assert_eq!(anchor(), first, "another prompt");
    // There and back again: each of them is an edit.
    let mut last = first;
    for every in ["2s", "3s"] {
        // A grid begins at a whole second.
        std::thread::sleep(Duration::from_millis(1100));
        house.job("every", &job(every, "two"));
        let before = jiff::Timestamp::now().as_millisecond();
        assert_eq!(reload(&house)["changed"], json!(["every"]));
        assert!(anchor() > before - 1000 && anchor() > last, "{every}");
        last = anchor();
    }
    house.until("SELECT count(*) >= 2 FROM v1_runs WHERE state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    // What ran is on the last grid, or on one that held at the time.
    let due = house.rows("SELECT due_at FROM v1_slots ORDER BY due_at");
    let on_the_last = due.iter().filter(|row| instant_ms(&row[0]) > last);
    for (n, row) in (1..).zip(on_the_last) {
        assert_eq!(instant_ms(&row[0]), last + n * 3000, "{due:?}");
    }
}

#[test]
fn a_reload_without_a_change_moves_nothing_and_starts_nothing() {
    let house = scripted(ECHO, "");
    let far = "[schedule]\nevery = \"40m\"\n[agent]\nprompt = \"go\"\ntools = []\n";
    house.job("every", far);
    house.job("daily", &far.replace("every = \"40m\"", "cron = \"@yearly\""));
    let serve = house.serve();
    let jobs = || {
        house.rows("SELECT job, definition_hash, every_anchor, decided_until, next_due_at, first_seen_at FROM jobs")
    };
    let before = jobs();
    // Who answers watches its files.
    assert_eq!(house.say(&["status"]).code, Some(0));
    house.job("every", far);
    until_read(&serve, 1);
    let said = house.say(&["reload"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""), "{said:?}");
    assert!(said.stderr.contains("nothing has changed"), "{said:?}");
    serve.signal(Signal::SIGHUP);
    until_read(&serve, 3);
    house.job("daily", &far.replace("every = \"40m\"", "cron = \"@yearly\" # the same"));
    until_read(&serve, 4);
    assert_eq!(jobs(), before);
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(jobs(), before);
    assert_eq!(house.rows("SELECT * FROM runs"), Vec::<Value>::new());
    assert_eq!(house.value("SELECT count(*) FROM v1_definitions"), 2);
}

#[test]
fn a_broken_configuration_leaves_everything_as_it_was_and_says_so() {
    let house = scripted(ECHO, "");
    house.job("tick", &ticking("one"));
    let serve = house.serve();
    house.until("SELECT count(*) >= 1 FROM v1_runs WHERE state = 'succeeded'");
    let good = std::fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &format!("{good}[scheduler\n"));
    serve.until_stderr("all stays as it was");
    succeeds_again(&house, "tick");
    let said = house.say(&["reload"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    // Whoever asks about the files is told, by another copy of the configuration, what holds.
    house.write("good.toml", &good);
    let status = house.say(&["--config", "good.toml", "status", "--json"]).json();
    let problem = status["running"]["config_problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("config.toml"), "{problem}");
    let said = house.say(&["--config", "good.toml", "status"]);
    assert!(said.stdout.contains("changed files are not in force"), "{said:?}");
    let said = house.say(&["status"]);
    assert!(said.stderr.contains("config.toml"), "{said:?}");

    house.write("config.toml", &good);
    let mended = || house.say(&["status", "--json"]).json()["running"]["config_problem"].is_null();
    until("it is mended", mended);
    succeeds_again(&house, "tick");
    assert_eq!(serve.stop().code, Some(0));
    assert_covers(&house, "tick", Grid::seconds(&house, "tick", 1));
}

#[test]
fn without_the_watch_files_are_read_when_somebody_says_so() {
    let house = scripted(ECHO, MANUAL);
    house.job("tick", &ticking("one"));
    let serve = house.serve();
    house.until("SELECT count(*) >= 1 FROM v1_runs WHERE state = 'succeeded'");
    let one = definition(&house, "tick");
    house.job("tick", &ticking("two"));
    house.job("new", &ticking("one"));
    // Longer than the quiet after which a watched file is read.
    std::thread::sleep(Duration::from_secs(3));
    succeeds_again(&house, "tick");
    assert_eq!((readings(&serve), definition(&house, "tick")), (0, one.clone()));
    assert!(house.say(&["status"]).stdout.contains("have changed since"));
    let told = reload(&house);
    assert_eq!((&told["changed"], &told["added"]), (&json!(["tick"]), &json!(["new"])), "{told}");
    let two = succeeded_under_another(&house, "tick", &one);
    house.job("tick", &ticking("three"));
    serve.signal(Signal::SIGHUP);
    house.until(&format!(
        "SELECT count(*) >= 1 FROM v1_runs WHERE job = 'tick' AND state = 'succeeded'
            AND definition_hash NOT IN ('{one}', '{two}')"
    ));
    assert_eq!(serve.stop().code, Some(0));
    let said = house.say(&["reload"]);
    assert_eq!(said.code, Some(3), "{said:?}");
}

#[test]
fn a_changed_configuration_holds_for_runs_that_start_from_then_on() {
    let lanes = |width: u32| format!("{MANUAL}[lanes]\nnarrow = {width}\n");
    let house = scripted(ECHO, &lanes(1));
    for job in ["a", "b"] {
        house.job(job, &by_hand("long", "lane = \"narrow\"", ""));
    }
    house.job("tick", &ticking("one"));
    let serve = house.serve();
    let runs = [house.detach("a"), house.detach("b")];
    let states = |running: u32, queued: u32| {
        house.until(&format!(
            "SELECT sum(state = 'running') = {running} AND sum(state = 'queued') = {queued}
             FROM v1_runs WHERE trigger = 'manual'"
        ));
    };
    states(1, 1);
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    let other = config.replace("narrow = 1", "narrow = 2").replace("model.toml", "other.toml");
    house.write("other.toml", "[[rule]]\nstep = [{ text = \"other\" }]\n");
    house.write("config.toml", &other);
    reload(&house);
    // The one that waits gets its place at once, and answers as the new model does.
    let replies: Vec<_> = runs.iter().map(|run| house.ended(run)["reply"].clone()).collect();
    assert_eq!(replies[0], "at last", "it began under the old one: {replies:?}");
    house.until("SELECT count(*) >= 1 FROM v1_runs WHERE job = 'tick' AND reply = 'other'");

    // The folder of the ledger stays what it is.
    house.write("config.toml", &format!("state_dir = \"elsewhere\"\n{other}"));
    let said = house.say(&["--state-dir", "state", "reload"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("state folder cannot change"), "{said:?}");
    succeeds_again(&house, "tick");
    assert!(!house.path("elsewhere").exists());
    house.write("config.toml", &other);
    assert_eq!(reload(&house)["changed"], json!([]));
    house.write("model.toml", FINE);
    assert_eq!(serve.stop().code, Some(0));
    assert_covers(&house, "tick", Grid::seconds(&house, "tick", 1));
}

#[test]
fn files_that_change_while_it_stops_are_left_to_the_next_start() {
    let house = scripted(ECHO, "[scheduler]\nshutdown_grace = \"20s\"\n");
    house.job("long", &by_hand("long", "", ""));
    house.job("tick", &ticking("one"));
    let serve = house.serve();
    succeeds_again(&house, "tick");
    house.detach("long");
    house.until("SELECT state = 'running' FROM v1_runs WHERE job = 'long'");
    serve.signal(Signal::SIGTERM);
    serve.until_stderr("stopping");
    house.job("tick", &ticking("one").replace("* * * * * *", "@yearly"));
    let said = house.say(&["reload"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let said = serve.end();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.stderr.contains("files read again"), "{said:?}");
    assert_eq!(house.value("SELECT state FROM v1_runs WHERE job = 'long'"), "succeeded");
    // It was due each second until somebody looked at the new file, and that was the next start.
    let restart = jiff::Timestamp::now().as_millisecond();
    assert_eq!(house.serve().stop().code, Some(0));
    let next = assert_rows_follow(&house, "tick", Grid::seconds(&house, "tick", 1));
    assert!(next > restart, "{next} {restart}");
}

#[test]
fn a_slot_whose_jitter_is_not_over_has_its_row_when_its_schedule_goes() {
    let house = scripted(ECHO, MANUAL);
    let job = |cron: &str| {
        format!(
            "[schedule]\ncron = \"{cron}\"\njitter = \"4s\"\n[agent]\nprompt = \"go\"\ntools = []\n"
        )
    };
    let jobs = ["edited", "deleted", "while-down"];
    for id in jobs {
        house.job(id, &job("*/5 * * * * *"));
    }
    let serve = house.serve();
    // Its next instant has come, and the start of it has not.
    let waits = |id: &str| {
        house.until(&format!(
            "SELECT unixepoch() / 5 * 5 > unixepoch(decided_until)
                AND unixepoch() / 5 * 5 > unixepoch(first_seen_at)
             FROM jobs WHERE job = '{id}'"
        ));
    };
    waits("edited");
    house.job("edited", &job("@yearly"));
    reload(&house);
    waits("deleted");
    std::fs::remove_file(house.path("jobs/deleted.toml")).unwrap();
    reload(&house);
    waits("while-down");
    serve.kill();
    house.job("while-down", &job("@yearly"));
    assert_eq!(house.serve().stop().code, Some(0));
    for id in jobs {
        let grid = Grid::seconds(&house, id, 5);
        let next = assert_rows_follow(&house, id, grid);
        let ended =
            format!("SELECT coalesce(removed_at, decided_until) FROM jobs WHERE job = '{id}'");
        let ended = instant_ms(&house.value(&ended));
        assert!(next > ended, "{id}: {next} {ended}");
    }
    assert_once(&house);
}

#[test]
fn a_run_without_a_serve_that_reads_the_files_loses_no_slot() {
    let house = scripted(ECHO, "");
    house.job("long", &by_hand("long", "", ""));
    for job in ["edited", "deleted"] {
        house.job(job, &ticking("one"));
    }
    assert_eq!(house.serve().stop().code, Some(0));
    let run = house.start(&["run", "long"]);
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE job = 'long' AND state = 'running'");
    std::thread::sleep(Duration::from_millis(1200));
    house.job("edited", &ticking("one").replace("* * * * * *", "@yearly"));
    std::fs::remove_file(house.path("jobs/deleted.toml")).unwrap();
    let read = jiff::Timestamp::now().as_millisecond();
    let told = reload(&house);
    assert_eq!((&told["changed"], &told["removed"]), (&json!(["edited"]), &json!(["deleted"])));
    assert_eq!(run.end().code, Some(0));
    assert_eq!(house.serve().stop().code, Some(0));
    for job in ["edited", "deleted"] {
        let next = assert_rows_follow(&house, job, Grid::seconds(&house, job, 1));
        assert!(next > read, "{job}: {next} {read}");
        let last = format!(
            "SELECT decision, reason FROM v1_slots WHERE job = '{job}' ORDER BY due_at DESC LIMIT 1"
        );
        assert_eq!(house.rows(&last), [json!(["missed", "down"])], "{job}");
    }
}
