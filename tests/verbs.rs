//! What a newcomer runs into: times in a job's own zone, files that break under a running `serve`,
//! names that nobody knows, slots that are none.

#![expect(clippy::disallowed_methods, reason = "these tests start the program from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::scripts::{FINE, PLAIN};
use support::{House, Said, scripted};

fn fine(house: &House, arguments: &[&str]) -> Said {
    let said = house.say(arguments);
    assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
    said
}

fn fails(house: &House, code: i32, arguments: &[&str], words: &str) -> Said {
    let said = house.say(arguments);
    assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
    assert!(said.stderr.contains(words), "{arguments:?}: {said:?}");
    said
}

fn scheduled(schedule: &str) -> String {
    format!("[schedule]\n{schedule}\n{PLAIN}")
}

#[test]
fn intervals_and_single_times_are_shown_in_the_zone_of_their_job() {
    let house = scripted(FINE, "");
    let zone = "timezone = \"Asia/Tokyo\"";
    house.job("once", &scheduled(&format!("at = \"2999-01-01T09:00\"\n{zone}")));
    house.job("often", &scheduled(&format!("every = \"6h\"\n{zone}")));
    let next = fine(&house, &["next", "once", "--json"]).json();
    assert_eq!(
        next,
        json!({
            "job": "once", "timezone": "Asia/Tokyo",
            "next": [{
                "due_at": "2999-01-01T00:00:00.000Z", "local": "2999-01-01T09:00:00+09:00",
                "note": null,
            }],
        })
    );
    let why = fine(&house, &["why", "once", "--at", "2999-01-01T09:00", "--json"]).json();
    assert_ne!(why["verdict"], "not_due", "{why:#}");
    assert_eq!(why["timezone"], "Asia/Tokyo");
    for verb in ["next", "show"] {
        let said = fine(&house, &[verb, "often"]).stdout;
        assert!(said.contains("+09:00  Asia/Tokyo"), "{verb}: {said}");
    }
    let list = fine(&house, &["ls", "--json"]).json();
    let zones: Vec<_> = list.as_array().unwrap().iter().map(|it| &it["timezone"]).collect();
    assert_eq!(zones, ["Asia/Tokyo", "Asia/Tokyo"]);
    for verb in ["ls", "plan", "validate"] {
        let said = fine(&house, &[verb]).stdout;
        assert!(said.contains("2999-01-01T09:00:00+09:00"), "{verb}: {said}");
    }
    let span = ["simulate", "--from", "2998-12-31", "--to", "2999-01-02", "--job", "once"];
    let said = fine(&house, &span);
    assert!(said.stdout.contains("2999-01-01T09:00:00+09:00"), "{said:?}");
    assert_eq!(said.stderr, "no run yet: 1 job is taken to need 1m (--takes)\n");
    let serve = house.serve();
    house.until("SELECT count(*) = 2 FROM v1_jobs WHERE timezone = 'Asia/Tokyo'");
    serve.stop();
}

#[test]
fn a_broken_configuration_hides_no_running_process() {
    let house = scripted(FINE, "");
    house.job("j", PLAIN);
    fails(&house, 2, &["query", "SELECT 1"], "nothing has run");
    let mut serve = house.serve();
    let run_id = house.detach("j");
    assert_eq!(house.ended(&run_id)["state"], "succeeded");
    house.write("config.toml", "colour = \"red\"\n[scheduler]\nshutdown_grace = 5\n");
    assert_ne!(house.say(&["reload"]).code, Some(0));

    let said = fine(&house, &["status"]);
    assert!(said.stdout.contains("changed files are not in force"), "{said:?}");
    assert!(said.stdout.contains("times in UTC"), "{said:?}");
    assert!(said.stderr.contains("colour"), "{said:?}");
    let status = fine(&house, &["status", "--json"]).json();
    assert_eq!((&status["running"]["pid"], &status["jobs"]), (&json!(serve.pid()), &Value::Null));
    for arguments in [
        &["runs", "--job", "j"][..],
        &["slots"],
        &["logs", "j"],
        &["logs", &run_id],
        &["show", &run_id],
        &["query", "SELECT 1"],
        &["pause", "j"],
        &["resume", "j"],
    ] {
        let said = fine(&house, arguments);
        assert!(said.stderr.contains("colour"), "{arguments:?}: {said:?}");
    }
    fails(&house, 3, &["cancel", "j"], "nothing of `j` is active");
    fails(&house, 2, &["show", "j"], "cannot be shown");
    let said = fails(&house, 2, &["validate"], "colour");
    assert!(said.stdout.contains("no job was looked at"), "{said:?}");
    assert!(!said.stdout.contains("valid,"), "{said:?}");

    assert!(serve.is_running());
    serve.stop();
    // Nobody is there to be asked, but the history is.
    fine(&house, &["runs"]);
    fails(&house, 2, &["pause", "j"], "no `punctual serve` runs here");
}

#[test]
fn a_name_that_nobody_knows_is_refused_with_the_nearest_one() {
    let house = scripted(FINE, "");
    house.job("report", PLAIN);
    house.job("other", PLAIN);
    for verb in ["runs", "slots"] {
        fails(&house, 2, &[verb, "--job", "reprot"], "did you mean `report`?");
        fine(&house, &[verb, "--job", "report"]);
    }
    fails(&house, 2, &["logs", "reprot"], "did you mean `report`?");
    let (_, run) = house.run("other");
    // Its file is gone, its history is not.
    std::fs::remove_file(house.path("jobs/other.toml")).unwrap();
    let runs = fine(&house, &["runs", "--job", "other", "--json"]).json();
    assert_eq!(runs[0]["run_id"], run["run_id"]);
    fine(&house, &["logs", "other"]);
    fails(&house, 2, &["show", "other"], "the file of `other` is gone");
    let serve = house.serve();
    let detached = fine(&house, &["run", "report", "--detach", "--json"]).json();
    house.ended(detached["run_id"].as_str().unwrap());
    assert_eq!(detached.as_object().unwrap().len(), 1);
    serve.stop();
}

#[test]
fn a_slot_by_hand_has_to_be_a_due_time() {
    let house = scripted("[[rule]]\nstep = [{ text = \"{{ prompt }}\" }]\n", "");
    house.job(
        "j",
        "[schedule]\ncron = \"0 9 * * *\"\ntimezone = \"Europe/Berlin\"\n[agent]\n\
         prompt = \"{{ due_at }}\"\ntools = []\n",
    );
    house.job("hand", PLAIN);
    let said = fine(&house, &["run", "j", "--slot", "2026-03-29T09:00"]);
    assert_eq!(said.stdout, "2026-03-29T07:00:00.000Z\n");
    let near = "the nearest are 2026-03-29T09:00:00+02:00 before and 2026-03-30T09:00:00+02:00";
    fails(&house, 2, &["run", "j", "--slot", "2026-03-29T10:00"], near);
    fails(&house, 2, &["run", "j", "--slot", "soon"], "--slot `soon`");
    fails(&house, 2, &["run", "hand", "--slot", "2026-03-29T10:00"], "has no schedule");
}

#[test]
fn past_days_are_whole_and_nothing_is_run_for_a_job_that_is_held() {
    let house = scripted(FINE, "");
    let job = scheduled("cron = \"0 9,21 * * *\"\ntimezone = \"Europe/Berlin\"");
    house.job("j", &job);
    house.job("off", &format!("enabled = false\n{job}"));
    let day = |job| ["backfill", job, "--from", "2026-03-29", "--to", "2026-03-29", "--json"];
    let slots = fine(&house, &day("j")).json();
    let due: Vec<_> = slots["slots"].as_array().unwrap().iter().map(|it| &it["due_at"]).collect();
    assert_eq!(due, ["2026-03-29T07:00:00.000Z", "2026-03-29T19:00:00.000Z"]);
    let today =
        jiff::Timestamp::now().to_zoned_datetime(jiff::tz::TimeZone::get("Europe/Berlin").unwrap());
    fine(&house, &["backfill", "j", "--from", "2026-03-29", "--to", &today.date().to_string()]);
    let run = |job| [&day(job)[..], &["--run"]].concat();
    let said = fails(&house, 3, &run("off"), "`off` is disabled");
    assert!(said.stdout.is_empty() && !said.stderr.contains("--force runs it"), "{said:?}");
    fine(&house, &["pause", "j", "--reason", "holidays"]);
    let said = fails(&house, 3, &run("j"), "`j` is paused (holidays)");
    assert!(said.stdout.is_empty() && !said.stderr.contains("--force"), "{said:?}");
    fine(&house, &["pause", "off"]);
    let said = fine(&house, &["ls"]).stdout;
    assert!(said.contains("disabled, paused"), "{said}");
    let said = fine(&house, &["next", "j"]);
    assert!(said.stderr.contains("`j` is paused (holidays)"), "{said:?}");
}

#[test]
fn a_simulation_respects_what_the_ledger_knows() {
    let house = scripted(FINE, "");
    house.job("night", &scheduled("cron = \"0 9 * * *\""));
    house.job("done", &scheduled("at = \"2026-01-01T09:00\""));
    house.serve().stop();
    house.until("SELECT count(*) = 1 FROM v1_slots WHERE job = 'done'");
    fine(&house, &["pause", "night", "--until", "2999-01-03T00:00Z"]);
    let told = |from: &str, to: &str| {
        let said = fine(&house, &["simulate", "--from", from, "--to", to, "--json"]);
        let decisions = said.json()["decisions"].as_array().unwrap().clone();
        decisions
            .iter()
            .map(|it| (it["due_at"].to_string(), it["decision"].to_string()))
            .collect::<Vec<_>>()
    };
    let row = |day: &str, decision: &str| {
        (format!("\"2999-01-0{day}T09:00:00.000Z\""), format!("\"{decision}\""))
    };
    assert_eq!(told("2999-01-02", "2999-01-04"), [row("2", "held"), row("3", "started")]);
    assert_eq!(told("2026-01-01", "2026-01-01T10:00Z").len(), 1, "only `night`");
}

#[test]
fn a_file_that_breaks_under_serve_leaves_its_last_good_version_in_sight() {
    let house = scripted(FINE, "");
    house.job("j", &scheduled("cron = \"0 9 1 1 *\"\ntimezone = \"Asia/Tokyo\""));
    let mut serve = house.serve();
    house.job("j", "x = 1\n");
    house.job("never", "x = 1\n");
    fine(&house, &["reload"]);
    let status = fine(&house, &["status", "--json"]).json();
    assert_eq!(status["running"]["last_good"], json!(["j"]));
    let said = fine(&house, &["ls"]).stdout;
    assert!(said.contains("-01-01T09:00:00+09:00"), "{said}");
    let said = fails(&house, 2, &["next", "j"], "x");
    assert!(said.stdout.contains("last good version"), "{said:?}");
    assert!(said.stdout.contains("-01-01T09:00:00+09:00  Asia/Tokyo"), "{said:?}");
    let next = house.say(&["next", "j", "--json"]).json();
    assert_eq!((&next["last_good"], &next["timezone"]), (&json!(true), &json!("Asia/Tokyo")));
    fails(&house, 2, &["show", "j"], "last good version");
    let said = fails(&house, 2, &["plan"], "x");
    assert!(said.stdout.contains("last good"), "{said:?}");
    fails(&house, 2, &["next", "never"], "x");
    let why = fine(&house, &["why", "never", "--json"]).json();
    assert_eq!(why["verdict"], "invalid", "{why:#}");
    assert!(serve.is_running());
    serve.stop();
}

#[test]
fn a_job_is_shown_with_its_rules() {
    let house = scripted(FINE, "[lanes]\nwarehouse = 1\n");
    house.job(
        "j",
        &format!(
            "lane = \"warehouse\"\n[schedule]\ncron = \"0 9 * * *\"\njitter = \"5m\"\n\
             exclude = [\"2999-12-24..2999-12-31\"]\nstart_at = \"2026-01-01\"\n\
             overlap = \"buffer_one\"\ncatchup_window = \"1h\"\n{PLAIN}[limits]\ntimeout = \"20m\"\n"
        ),
    );
    let said = fine(&house, &["show", "j"]).stdout;
    for line in [
        "  lane      warehouse",
        "  timeout   20m",
        "  retry     up to 4 attempts, after 30s, 1m, 5m; 10 failures in a row pause it",
        "  jitter    starts up to 5m later",
        "  bounds    from 2026-01-01 on",
        "  exclude   2999-12-24..2999-12-31",
        "  overlap   buffer_one",
        "  catchup   latest, no later than 1h after it was due",
    ] {
        assert!(said.lines().any(|it| it == line), "{line}:\n{said}");
    }
}

#[test]
fn doubtful_schedules_are_named() {
    let house = scripted(FINE, "");
    house.job("grid", &scheduled("every = \"6h\"\ndst_gap = \"skip\""));
    let at = "at = \"2027-03-28T02:30\"\ntimezone = \"Europe/Berlin\"\ndst_overlap = \"twice\"";
    house.job("gap", &scheduled(at));
    house.job("twice", &scheduled("cron = [\"0 9 * * *\", \"0 10 * * *\", \"0 9 * * *\"]"));
    let said = fine(&house, &["validate"]).stderr;
    for words in [
        "`dst_gap` has no effect beside `every`",
        "`dst_overlap` has no effect beside `at`",
        "it is due at 2027-03-28T03:00:00+02:00",
        "`0 9 * * *` is in the list twice",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    house.job("far", &scheduled("at = \"2027-03-28T02:30+24:00\""));
    house.job("bound", &scheduled("cron = \"0 9 * * *\"\nend_at = \"2027-02-30\""));
    let said = fails(&house, 2, &["validate"], "has an offset beyond 23:59").stderr;
    let bound = "`end_at`: `2027-02-30` is not a date and time (such as 2027-01-01T09:00, or with \
                 an offset)\n";
    assert!(said.contains(bound), "{said}");
}

#[test]
fn the_start_list_calls_nothing_missed_that_is_paused() {
    let house = scripted(FINE, "");
    house.job("j", &scheduled("cron = \"* * * * * *\""));
    house.serve().stop();
    fine(&house, &["pause", "j", "--reason", "holidays"]);
    let serve = house.serve();
    serve.until_stderr("held: it is paused (holidays)");
    assert!(!serve.stderr().contains("missed"), "{}", serve.stderr());
    serve.stop();
}
