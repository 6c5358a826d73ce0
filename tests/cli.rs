//! What the verbs print, to people and to programs, on a house that stands still.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::path::Path;

use assert_cmd::Command;
use serde_json::{Value, json};
use support::run_object::assert_has_every_key;

const CONFIG: &str = r#"
timezone = "Europe/Berlin"
timezone_database = "bundled"

[agents.defaults]
model = "local/default"

[models.providers.local]
api = "script"
script = "model.toml"
"#;

const MODEL: &str = "[[rule]]\n[[rule.step]]\ntext = \"Nothing to report.\"\n";

const REPORT: &str = r#"
description = "What changed"
owner = "ops"
enabled = false

[schedule]
cron = "30 2 * * *"

[agent]
prompt = "Report from {{ slot.start }} to {{ slot.end }}."
tools = []
"#;

const BROKEN: &str = r#"
[schedule]
cron = "0 9 * * MON-FRY"
timezone = "Europe/Budapesst"

[agent]
promt = "x"

[limits]
timeout = 300
"#;

fn house() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("jobs")).unwrap();
    std::fs::write(dir.path().join("config.toml"), CONFIG).unwrap();
    std::fs::write(dir.path().join("model.toml"), MODEL).unwrap();
    std::fs::write(dir.path().join("jobs/report.toml"), REPORT).unwrap();
    dir
}

fn punctual(house: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.current_dir(house).args(args).env("NO_COLOR", "1");
    for name in ["PUNCTUAL_CONFIG", "PUNCTUAL_STATE_DIR", "STATE_DIRECTORY", "PUNCTUAL_LOG"] {
        command.env_remove(name);
    }
    command
}

/// Exit code, standard output and standard error, with the house's own path left out.
fn spoken(house: &Path, args: &[&str]) -> String {
    let output = punctual(house, args).output().unwrap();
    let text = format!(
        "{}\n--- out\n{}--- err\n{}",
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    let real = house.canonicalize().unwrap();
    text.replace(real.to_str().unwrap(), "HOUSE").replace(house.to_str().unwrap(), "HOUSE")
}

fn json_of(house: &Path, args: &[&str]) -> Value {
    let output = punctual(house, args).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{args:?}: {error}\n{}", String::from_utf8_lossy(&output.stdout))
    })
}

#[test]
fn next_names_the_zone_the_offset_and_the_clock_changes() {
    let house = house();
    let args = ["next", "report", "-n", "3", "--from", "2027-03-27T00:00:00Z"];
    insta::assert_snapshot!(spoken(house.path(), &args));
    let args = [&args[..], &["--json"]].concat();
    assert_eq!(
        json_of(house.path(), &args),
        json!({
            "job": "report", "timezone": "Europe/Berlin",
            "next": [
                {"due_at": "2027-03-27T01:30:00.000Z", "local": "2027-03-27T02:30:00+01:00", "note": null},
                {
                    "due_at": "2027-03-28T01:00:00.000Z", "local": "2027-03-28T03:00:00+02:00",
                    "note": json_of(house.path(), &args)["next"][1]["note"],
                },
                {"due_at": "2027-03-29T00:30:00.000Z", "local": "2027-03-29T02:30:00+02:00", "note": null},
            ],
        })
    );
}

#[test]
fn due_times_come_with_their_start_and_with_what_a_clock_change_leaves_out() {
    let house = house();
    let job = "agent.prompt = \"x\"\n[schedule]\ntimezone = \"Europe/Berlin\"\n\
               cron = [\"30 2 * * *\", \"0 12 * * SUN\"]\njitter = \"5m\"\ndst_gap = \"skip\"\n\
               dst_overlap = \"twice\"\nexclude = [\"2027-03-29\"]\nend_at = \"2027-10-31\"\n";
    std::fs::write(house.path().join("jobs/early.toml"), job).unwrap();
    let spring = ["next", "early", "-n", "3", "--from", "2027-03-27"];
    insta::assert_snapshot!("next_in_spring", spoken(house.path(), &spring));
    let autumn = ["next", "early", "--from", "2027-10-30T12:00"];
    insta::assert_snapshot!("next_in_autumn", spoken(house.path(), &autumn));
    let next = json_of(house.path(), &[&spring[..], &["--json"]].concat());
    let keys: Vec<_> = next["next"][0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["due_at", "local", "note", "start_at"]);

    let job = "agent.prompt = \"x\"\n[schedule]\ncron = \"@yearly\"\njitter = \"5m\"\n";
    std::fs::write(house.path().join("jobs/yearly.toml"), job).unwrap();
    let report = json_of(house.path(), &["validate", "--json"]);
    let shown = json_of(house.path(), &["show", "yearly", "--json"]);
    assert_eq!(report["next"]["yearly"].as_array().map(Vec::len), Some(5));
    assert_eq!(report["next"]["yearly"], shown["next"]);
    let said = spoken(house.path(), &["show", "yearly"]);
    assert_eq!(said.matches("  due       2").count(), 5, "{said}");
    assert_eq!(said.matches("  starts 2").count(), 5, "{said}");
    for n in 0..4 {
        std::fs::write(house.path().join(format!("jobs/yearly-{n}.toml")), job).unwrap();
    }
    assert_eq!(json_of(house.path(), &["validate", "--json"])["next"], json!({}));
}

#[test]
fn validate_reports_every_problem_with_its_place() {
    let house = house();
    // What is due next depends on the day.
    let time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+0[12]:00  Europe/Berlin.*";
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(time, "TIME  Europe/Berlin");
    let _bound = settings.bind_to_scope();
    insta::assert_snapshot!("validate_good", spoken(house.path(), &["validate"]));
    std::fs::write(house.path().join("jobs/broken.toml"), BROKEN).unwrap();
    insta::assert_snapshot!("validate_broken", spoken(house.path(), &["validate"]));
    let report = json_of(house.path(), &["validate", "--json"]);
    assert_eq!((&report["jobs"], &report["invalid"]), (&json!(1), &json!(1)));
    let keys: Vec<_> = report["problems"].as_array().unwrap().iter().map(|it| &it["key"]).collect();
    assert!(keys.len() >= 4, "{keys:?}");
}

#[test]
fn a_broken_file_is_listed_and_stops_nobody() {
    let house = house();
    std::fs::write(house.path().join("jobs/broken.toml"), BROKEN).unwrap();
    let list = json_of(house.path(), &["ls", "--json"]);
    let states: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["job"].as_str().unwrap(), it["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [("report", "disabled"), ("broken", "invalid")]);
    punctual(house.path(), &["run", "broken"]).assert().code(2);
    punctual(house.path(), &["run", "report", "--force"]).assert().success();
}

#[test]
fn verbs_refuse_what_they_do_not_know_by_name() {
    let house = house();
    let table: [(&[&str], i32, &str); 9] = [
        (&["query", "SELECT 1"], 2, "nothing has run"),
        (&["audit"], 2, "`punctual audit` is not supported yet"),
        (&["servve"], 2, "did you mean `serve`?"),
        (&["show", "reprot"], 2, "did you mean `report`?"),
        (&["run", "reprot"], 2, "did you mean `report`?"),
        (&["run", "report"], 3, "is disabled"),
        (&["show", "report", "--prompt", "--effective"], 2, "cannot be used with"),
        (&["cancel", "report"], 3, "nothing of `report` is active"),
        (&["run", "report", "--detach"], 3, "needs a running"),
    ];
    for (args, code, words) in table {
        let output = punctual(house.path(), args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_run_by_hand_prints_its_reply_or_the_whole_object() {
    let house = house();
    let output = punctual(house.path(), &["run", "report", "--force"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Nothing to report.\n");
    let run = json_of(house.path(), &["run", "report", "--force", "--json"]);
    assert_has_every_key(&run);
    assert_eq!((&run["state"], &run["trigger"]), (&json!("succeeded"), &json!("manual")));
    let id = run["run_id"].as_str().unwrap();
    assert_eq!(json_of(house.path(), &["show", &id[..20], "--json"]), run);
    // The first run may share a long prefix with it; one letter is shared by all.
    let ambiguous = punctual(house.path(), &["show", &id[..2]]).output().unwrap();
    assert_eq!(ambiguous.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ambiguous.stderr).contains("could be several runs"));
    let runs =
        json_of(house.path(), &["runs", "--job", "report", "--state", "succeeded", "--json"]);
    assert_eq!(runs.as_array().unwrap().len(), 2);
    assert_eq!(runs[0], run);
}

#[test]
fn logs_tell_what_was_said_with_one_terminal_event() {
    let house = house();
    punctual(house.path(), &["run", "report", "--force"]).assert().success();
    let output = punctual(house.path(), &["logs", "report", "--json"]).output().unwrap();
    let events: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<_> = events
        .iter()
        .map(|it| {
            (
                it["seq"].as_u64().unwrap(),
                it["stream"].as_str().unwrap(),
                it["phase"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [(1, "lifecycle", "start"), (2, "assistant", "end"), (3, "lifecycle", "end")]);
    assert_eq!(events[1]["text"], "Nothing to report.");
}

#[test]
fn queries_come_as_a_table_as_json_and_as_csv() {
    let house = house();
    punctual(house.path(), &["run", "report", "--force"]).assert().success();
    let sql = "SELECT job, state, usd FROM v1_runs";
    let out = |format: &str| {
        let output = punctual(house.path(), &["query", sql, "--format", format]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(out("table"), "JOB     STATE      USD\nreport  succeeded\n");
    assert_eq!(out("csv"), "job,state,usd\r\nreport,succeeded,\r\n");
    let rows: Value = serde_json::from_str(&out("json")).unwrap();
    assert_eq!(rows, json!([{"job": "report", "state": "succeeded", "usd": null}]));
    punctual(house.path(), &["query", "DELETE FROM runs"]).assert().code(2);
}

#[test]
fn new_makes_a_file_that_is_valid_and_never_overwrites_one() {
    let house = house();
    punctual(house.path(), &["new", "fresh"]).assert().success();
    let before = std::fs::read(house.path().join("jobs/fresh.toml")).unwrap();
    punctual(house.path(), &["validate"]).assert().success();
    punctual(house.path(), &["new", "fresh"]).assert().code(2);
    punctual(house.path(), &["new", "Not An Id"]).assert().code(2);
    assert_eq!(std::fs::read(house.path().join("jobs/fresh.toml")).unwrap(), before);
}

#[test]
fn the_sample_jobs_and_the_shipped_configuration_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let state = tempfile::tempdir().unwrap();
    let args = ["--state-dir", state.path().to_str().unwrap(), "validate", "--json"];
    let report = json_of(root, &args);
    assert_eq!(report["problems"], json!([]));
    assert_eq!(report["jobs"], json!(3));
}

#[test]
fn schemas_and_completions_are_printed() {
    let house = house();
    for of in ["config", "job"] {
        let schema = json_of(house.path(), &["schema", of]);
        assert!(schema["properties"].as_object().is_some_and(|it| it.len() > 5), "{of}");
    }
    let output = punctual(house.path(), &["completions", "bash"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("_punctual()"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let house = house();
    let program = env!("CARGO_BIN_EXE_punctual");
    let output = Command::new("sh")
        .current_dir(house.path())
        .args(["-c", &format!("{program} schema job | head -1; {program} schema config | true")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
