//! The history as admins have it: questions, tables, pictures, files that go elsewhere.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use jiff::Timestamp;
use rusqlite::Connection;
use serde_json::{Value, json};
use support::month::{hours, month};
use support::past::{Past, days, minutes};
use support::questions::questions;
use support::scripts::{EVERY_SECOND, FINE, by_hand};
use support::{House, open, rows, scripted};

/// The questions of the README, asked as it says, have the answers that this month has.
#[test]
fn the_questions_of_the_readme_are_answered() {
    let house = scripted(FINE, "");
    #[expect(clippy::disallowed_methods, reason = "the program has the same clock")]
    let now = punctual::clock::to_millis(Timestamp::now());
    let past = month(&house, now);
    let ago = |ago| past.ago(ago);
    let answers = answers(&past);
    // A range that began before the period reaches into it.
    let slots = house.say(&["slots", "--job", "backup", "--since", "8h", "--json"]).json();
    assert_eq!(slots[0]["due_at"], json!(ago(hours(12))));
    let asked: Vec<_> = questions();
    let names: Vec<_> = asked.iter().map(|(question, _)| question.as_str()).collect();
    assert_eq!(names.len(), answers.len(), "{names:?}");
    for (question, sql) in &asked {
        let said = house.say(&["query", sql, "--json"]);
        assert_eq!(said.code, Some(0), "{question}: {said:?}");
        let found: Vec<Value> = said
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row.as_object().unwrap().values().cloned().collect())
            .collect();
        assert_eq!(Some(&Value::from(found)), answers.get(question.as_str()), "{question}");
        // None of them reads a long table from end to end.
        let plan = house.say(&["query", &format!("EXPLAIN QUERY PLAN {sql}"), "--format", "csv"]);
        let scans = |line: &&str| {
            [
                "runs",
                "deliveries",
                "slots",
                "attempts",
                "tool_calls",
                "cleanups",
                "checks",
                "r",
                "c",
                "a",
                "t",
            ]
            .iter()
            .any(|table| line.ends_with(&format!(",SCAN {table}")))
        };
        assert_eq!(plan.stdout.lines().find(scans), None, "{question}: {}", plan.stdout);
    }
}

/// What the month has to say, question by question.
fn answers(past: &Past) -> BTreeMap<&'static str, Value> {
    let mut answers = answers_about_runs(past);
    let ago = |ago| past.ago(ago);
    answers.extend([
        (
            "How late do jobs start?",
            json!([
                ["digest", 20, 100, 200, 200],
                ["report", 1, 40, 40, 40],
                ["backup", 3, 0, 0, 0]
            ]),
        ),
        (
            "Which models fail, with what, and what went well all the same?",
            json!([
                ["cloud/big", "rate_limit", 3, 2, 1],
                ["cloud/m", "deadline", 1, 1, 0],
                ["cloud/m", "idle_timeout", 1, 1, 0]
            ]),
        ),
        ("Which tools are refused most?", json!([["report", "exec", 2], ["report", "write", 1]])),
        (
            "Which checks fail?",
            json!([["report", "report exists", 1, 2, "out/report.md: is not there"]]),
        ),
        (
            "When was nobody there, and what came due meanwhile and did not run?",
            json!([[ago(hours(12)), ago(hours(6)), 2, 8]]),
        ),
        (
            "What did not arrive, or may not have?",
            json!([
                ["backup", "ops", "failed", 2, ago(days(2)), "404 Not Found"],
                ["report", "chat", "unknown", 1, ago(days(1)), "the answer was lost"]
            ]),
        ),
        (
            "What did each model cost in a year?",
            json!([["cloud/m", 2, 50, 3.25, 1], ["local/m", 1, 7, null, 7]]),
        ),
        (
            "What happened between two and three in the night?",
            json!([
                ["2026-11-03T02:10:00.000Z", "person", "pause", "report", "person"],
                ["2026-11-03T02:30:00.012Z", "punctual", "held", "report", "paused"],
                ["2026-11-03T02:40:00.000Z", "person", "resume", "report", "person"]
            ]),
        ),
    ]);
    answers
}

fn answers_about_runs(past: &Past) -> BTreeMap<&'static str, Value> {
    let ago = |ago| past.ago(ago);
    let last = ago(days(2));
    BTreeMap::from([
        (
            "Which jobs have not succeeded for a week?",
            json!([["backup", "active", "failed", 2, ago(days(20))]]),
        ),
        (
            "How long do runs take and what do they cost, by job?",
            json!([
                ["backup", 3, 90_000, null, 2],
                ["digest", 20, 19_000, 0.2, 0],
                ["report", 2, 700, null, 0]
            ]),
        ),
        (
            "What was not started this week, and why?",
            json!([
                ["report", "missed", "down", 6, ago(hours(12)), ago(hours(7))],
                ["backup", "missed", "down", 2, ago(hours(12)), ago(hours(7))],
                ["report", "skipped", "overlap", 2, ago(hours(50)), ago(hours(49))],
                ["report", "held", "paused", 1, ago(hours(26)), ago(hours(26))]
            ]),
        ),
        (
            "What had to be cleaned up by force, or is still there?",
            json!([
                ["backup", "model_stream", "forced", 1, last, "closed before its end"],
                ["backup", "processes", "forced", 1, last, "ended 3 processes"],
                ["backup", "processes", "incomplete", 1, last, "still alive: dd (77)"]
            ]),
        ),
        (
            "Which limits end runs?",
            json!([["backup", "deadline", "tool", 60, 1], ["backup", "idle", "model_call", 30, 1]]),
        ),
    ])
}

fn fixed() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn picture(house: &House, arguments: &[&str]) -> String {
    let arguments =
        [&["runs", "--timeline", "--until", "2026-11-30T12:00:00Z"], arguments].concat();
    let said = house.say(&arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    said.stdout
}

/// The same month drawn: a day, a week, one job, narrow, and where there are no such letters.
#[test]
fn a_period_is_drawn_with_a_row_for_each_job() {
    let house = scripted(FINE, "").with_env("COLUMNS", "100");
    let past = month(&house, fixed());
    let runs = json!({"state": "running", "finished_at": null, "duration_ms": null});
    past.run("backup-4", "backup", minutes(150), &runs);
    past.run(
        "digest-99",
        "digest",
        hours(9),
        &json!({"state": "cancelled", "due_at": null,
        "trigger": "manual", "finished_at": past.ago(hours(6))}),
    );
    let drawn = |arguments: &[&str]| {
        let picture = picture(&house, arguments);
        format!("$ runs --timeline {}\n{picture}\n", arguments.join(" "))
    };
    let week = ["--since", "7days"];
    let mut all = [&[][..], &week, &["--job", "report", "--since", "60h"]].map(drawn).concat();
    let house = house.with_env("COLUMNS", "60").with_env("LANG", "C");
    all += "$ in 60 columns of ASCII\n";
    all += &picture(&house, &[]);
    insta::assert_snapshot!("timeline", all);
    let said = house.say(&["runs", "--timeline", "--job", "gone"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""));
    assert!(said.stderr.contains("nothing happened"), "{said:?}");
    let coloured = house.with_env("CLICOLOR_FORCE", "1");
    assert!(
        picture(&coloured, &[]).contains("\u{1b}[1m\u{1b}[31m!"),
        "{}",
        picture(&coloured, &[])
    );
}

#[test]
fn lists_have_times_that_people_understand_and_colour_only_where_it_is_wanted() {
    let house = scripted(FINE, "");
    house.job("digest", &by_hand("go", "", ""));
    house.job("soon", &EVERY_SECOND.replace("* * * * * *", "0 0 1 1 *"));
    #[expect(clippy::disallowed_methods, reason = "the program has the same clock")]
    month(&house, Timestamp::now());
    let plain = house.say(&["runs", "--limit", "30"]).stdout;
    for words in ["QUEUED", "1 h ago", "20 h ago", "2 days ago", "failed", "500ms"] {
        assert!(plain.contains(words), "{words}: {plain}");
    }
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let list = house.say(&["ls"]).stdout;
    assert!(list.contains("succeeded 1 h ago") && list.contains("in "), "{list}");
    assert!(house.say(&["slots"]).stdout.contains("7 h ago"));
    let house = house.with_env("CLICOLOR_FORCE", "1");
    let coloured = house.say(&["runs", "--limit", "30"]).stdout;
    assert!(coloured.contains("\u{1b}[31mfailed\u{1b}[0m"), "{coloured:?}");
    assert!(house.say(&["ls"]).stdout.contains("\u{1b}[32msucceeded\u{1b}[0m 1 h ago"));
    let without = |text: &str| {
        text.replace("\u{1b}[31m", "").replace("\u{1b}[32m", "").replace("\u{1b}[0m", "")
    };
    assert_eq!(without(&coloured), plain);
    let house = house.with_env("NO_COLOR", "1");
    // Who forces colour gets it; NO_COLOR is for the rest.
    let house = house.with_env("CLICOLOR_FORCE", "0");
    assert_eq!(house.say(&["runs", "--limit", "30"]).stdout, plain);
}

/// Programs get the same columns as RFC 4180 has them, whatever a model said.
#[test]
fn lists_come_as_csv_and_json_too() {
    let house = scripted(FINE, "");
    let past = month(&house, fixed());
    let reply = json!({"reply": "one, \"two\"\r\nthree", "usd": 0.5, "model": "a/b"});
    past.run("newest", "digest", minutes(1), &reply);
    let said = house.say(&["runs", "--format", "csv", "--limit", "1"]);
    let text = "run_id,job,trigger,due_at,attempt,state,error_kind,error_message,limit_name,model,\
        queued_at,started_at,finished_at,duration_ms,late_ms,input_tokens,output_tokens,usd,\
        tool_calls,tool_errors,denied_calls,cleanup_outcome,session_id,exit_code,definition_hash,\
        reply,partial_text\r\n\
        newest,digest,schedule,2026-11-30T11:59:00.000Z,1,succeeded,,,,a/b,\
        2026-11-30T11:59:00.000Z,2026-11-30T11:59:00.000Z,2026-11-30T11:59:01.000Z,1000,0,,,0.5,\
        0,0,0,clean,newest,,hash-digest,\"one, \"\"two\"\"\r\nthree\",\r\n";
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), text));
    let list = house.say(&["runs", "--format", "json", "--limit", "1"]).stdout;
    assert_eq!(list, house.say(&["runs", "--json", "--limit", "1"]).stdout);
    let slots = house.say(&["slots", "--job", "backup", "--format", "csv"]).stdout;
    assert_eq!(
        slots,
        "job,due_at,due_until,slots,decision,reason,run_id,decided_at,late_ms\r\n\
         backup,2026-11-30T00:00:00.000Z,2026-11-30T05:00:00.000Z,2,missed,down,,\
         2026-11-30T06:00:00.000Z,0\r\n"
    );
}

/// Everything that the views have is in one file, made while the history goes on.
#[test]
fn the_history_is_exported_into_one_file_and_no_file_is_overwritten_unasked() {
    let house = scripted(FINE, "");
    house.job("tick", EVERY_SECOND);
    let serve = house.serve();
    house.until("SELECT count(*) >= 2 FROM v1_runs WHERE state = 'succeeded'");
    let said = house.say(&["export", "out.sqlite", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let views = house.rows("SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name");
    let file = open(&house.path("out.sqlite"));
    let tables = rows(&file, "SELECT name FROM sqlite_schema WHERE name LIKE 'v1%' ORDER BY name");
    assert_eq!(tables, views);
    assert_eq!(rows(&file, "PRAGMA integrity_check"), [json!(["ok"])]);
    let columns = |db: &Connection| rows(db, "SELECT name FROM pragma_table_info('v1_runs')");
    assert_eq!(columns(&file), columns(&house.database()));
    let first = "SELECT run_id, job, state, reply FROM v1_runs ORDER BY queued_at LIMIT 2";
    assert_eq!(rows(&file, first), house.rows(first));
    assert_eq!(rows(&file, "SELECT version FROM about"), [json!([env!("CARGO_PKG_VERSION")])]);
    let mode = fs::metadata(house.path("out.sqlite")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    drop(file);

    house.write("mine", "precious");
    let said = house.say(&["export", "mine"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("is there already"), "{said:?}");
    assert_eq!(fs::read_to_string(house.path("mine")).unwrap(), "precious");
    assert_eq!(house.say(&["export", "mine", "--force"]).code, Some(0));
    assert_eq!(rows(&open(&house.path("mine")), "SELECT count(*) > 0 FROM v1_runs"), [json!([1])]);
    // Nothing half-made is left, also where it could not be made.
    assert_eq!(house.say(&["export", "nowhere/x"]).code, Some(2));
    let names = fs::read_dir(house.path(".")).unwrap().map(|it| it.unwrap().file_name());
    let parts: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".part")).collect();
    assert_eq!(parts, Vec::<std::ffi::OsString>::new());
    assert_eq!(serve.stop().code, Some(0));
}

/// A copy made under a writing `serve` is whole, and another `serve` goes on from it.
#[test]
fn a_backup_made_while_it_is_written_is_a_state_folder() {
    let house = scripted(FINE, "");
    house.job("tick", EVERY_SECOND);
    let serve = house.serve();
    house.until("SELECT count(*) >= 2 FROM v1_runs WHERE state = 'succeeded'");
    let said = house.say(&["backup", "copy"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(serve.stop().code, Some(0));

    let copy = open(&house.path("copy/punctual.db"));
    assert_eq!(rows(&copy, "PRAGMA integrity_check"), [json!(["ok"])]);
    assert_eq!(rows(&copy, "PRAGMA foreign_key_check"), Vec::<Value>::new());
    let done = rows(&copy, "SELECT session_id FROM v1_runs WHERE state = 'succeeded'");
    assert!(done.len() >= 2, "{done:?}");
    for session in done {
        let name = format!("sessions/{}.jsonl", session[0].as_str().unwrap());
        let original = fs::read(house.path(&format!("state/{name}"))).unwrap();
        assert_eq!(fs::read(house.path(&format!("copy/{name}"))).unwrap(), original);
    }
    drop(copy);
    let runs = house.say(&["--state-dir", "copy", "runs", "--json"]).json();
    assert!(runs.as_array().unwrap().len() >= 2);
    assert_eq!(house.say(&["--state-dir", "copy", "run", "tick"]).code, Some(0));
    let mode = |name: &str| fs::metadata(house.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("copy"), mode("copy/punctual.db")), (0o700, 0o600));

    let said = house.say(&["backup", "copy"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    fs::create_dir(house.path("empty")).unwrap();
    assert_eq!(house.say(&["backup", "empty"]).code, Some(0));
    assert!(house.path("empty/punctual.db").exists());
}

/// A writer that never rests does not make a copy begin again and again.
#[test]
fn a_copy_is_of_one_moment_however_much_is_written() {
    let house = scripted(FINE, "");
    let past = month(&house, fixed());
    past.together(|| {
        for n in 0..3000 {
            past.run(&format!("more-{n:05}"), "digest", hours(100 + n), &Value::Null);
        }
    });
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, stop) = (house.writable(), &stop);
        scope.spawn(move || {
            let mut n = 0;
            // So often at least, however slow the disk is: then it has moved.
            while n < 300 || !stop.load(std::sync::atomic::Ordering::Relaxed) {
                n += 1;
                // Each step moves a pair together: half of one is no moment that there was.
                db.execute_batch(&format!(
                    "BEGIN; UPDATE runs SET late_ms = {n} WHERE run_id = 'more-00000';
                     UPDATE runs SET late_ms = {n} WHERE run_id = 'more-02999'; COMMIT"
                ))
                .unwrap();
            }
        });
        for n in 0..3 {
            let said = house.say(&["backup", &format!("copy-{n}")]);
            assert_eq!(said.code, Some(0), "{said:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    for n in 0..3 {
        let copy = open(&house.path(&format!("copy-{n}/punctual.db")));
        let pair = "SELECT count(DISTINCT late_ms) FROM v1_runs WHERE run_id IN ('more-00000', 'more-02999')";
        assert_eq!(rows(&copy, pair), [json!([1])]);
    }
    assert_eq!(house.value("SELECT max(late_ms) >= 300 FROM v1_runs"), 1);
}
