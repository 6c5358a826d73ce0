//! MCP servers of other people, as `contrib/mcp-servers` installs them: a job with each, what it may
//! and may not do in a sandbox, and that nothing of them is left.
//!
//! They run when `PUNCTUAL_REAL_MCP` is set, and then whatever is missing is a failure.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use punctual::process::{Filters, offered};
use serde_json::{Value, json};
use support::stub::Stub;
use support::{House, asking};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/mcp-servers");

/// Where the servers are, if they are wanted.
fn installed() -> Option<PathBuf> {
    if std::env::var_os("PUNCTUAL_REAL_MCP").is_none() {
        eprintln!("skipped: PUNCTUAL_REAL_MCP is not set");
        return None;
    }
    let folder = Path::new(FOLDER);
    let prepared = Command::new("bash").arg(folder.join("prepare.sh")).status().unwrap();
    assert!(prepared.success(), "prepare.sh: {prepared}");
    Some(folder.join("installed"))
}

fn node(installed: &Path, package: &str) -> Vec<String> {
    let place = installed.join("node_modules/@modelcontextprotocol").join(package);
    vec!["node".into(), place.join("dist/index.js").display().to_string()]
}

fn server(name: &str, command: &[String], keys: &str) -> String {
    format!("[mcp.servers.{name}]\ncommand = {}\n{keys}\n", json!(command))
}

/// Runs the job `j`, which has to succeed, and looks at what is left.
fn run(house: &House, job: &str) -> Vec<Value> {
    house.job("j", job);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#}");
    house.assert_nothing_is_left();
    house.rows("SELECT tool, outcome FROM v1_tool_calls ORDER BY n")
}

#[test]
fn everything_is_called_by_its_allow_list_and_a_long_operation_lives_by_its_progress() {
    let Some(installed) = installed() else { return };
    let model = Stub::calling(&[
        ("every__echo", json!({ "message": "grüße" })),
        ("every__get-sum", json!({ "a": 2, "b": 40 })),
        ("every__get-tiny-image", json!({})),
        ("every__get-env", json!({})),
        ("every__trigger-long-running-operation", json!({ "duration": 8, "steps": 16 })),
        ("short__trigger-long-running-operation", json!({ "duration": 600, "steps": 600 })),
        ("every__echo", json!({ "message": "still here" })),
    ]);
    let command = node(&installed, "server-everything");
    let keys = "tools = [\"echo\", \"get-[st]*\", \"trigger-*\"]\nidle_timeout = \"6s\"";
    let servers = server("every", &command, keys) + &server("short", &command, "timeout = \"2s\"");
    let house = asking(&model, "", &servers);
    let job = "[agent]\nprompt = \"go\"\ntools = []\nmcp = [\"every\", \"short\"]\n";
    let called = run(&house, job);
    let outcomes: Vec<_> = called.iter().map(|row| row[1].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["ok", "ok", "ok", "denied", "ok", "timed_out", "ok"]);
    let told = model.told();
    assert!(told[0].contains("grüße") && told[1].contains("42"), "{told:#?}");
    assert!(told[2].contains("[image, image/png") && !told[2].contains("iVBOR"), "{}", told[2]);
    assert!(told[6].contains("still here"), "{}", told[6]);
}

#[test]
fn the_time_is_told() {
    let Some(installed) = installed() else { return };
    let at_noon = json!({
        "source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo",
    });
    let model = Stub::calling(&[
        ("time__convert_time", at_noon),
        ("time__get_current_time", json!({ "timezone": "Mars/Olympus" })),
    ]);
    let command = [installed.join("venv/bin/mcp-server-time").display().to_string()];
    let house = asking(&model, "", &server("time", &command, ""));
    let called = run(&house, "[agent]\nprompt = \"go\"\ntools = []\nmcp = [\"time\"]\n");
    assert_eq!((&called[0][1], &called[1][1]), (&json!("ok"), &json!("error")));
    let told = model.told();
    assert!(told[0].contains("19:00") || told[0].contains("20:00"), "{}", told[0]);
}

/// semantics §10: a sandboxed run's MCP servers see its sandbox, whatever they were told.
#[test]
fn a_file_server_that_was_told_of_another_folder_sees_what_its_sandbox_lets_it() {
    let Some(installed) = installed() else { return };
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("canary");
    fs::write(&canary, "sing").unwrap();
    let path = canary.to_str().unwrap();
    let wanted = [
        ("files__write_file", json!({ "path": "note.txt", "content": "hello" })),
        ("files__read_text_file", json!({ "path": "note.txt" })),
        ("files__read_text_file", json!({ "path": path })),
        ("files__write_file", json!({ "path": path, "content": "silence" })),
    ];
    let mut command = node(&installed, "server-filesystem");
    command.extend([".".into(), outside.path().display().to_string()]);
    let readable = json!([installed]);
    for (mode, reads_outside) in [("strict", "error"), ("workspace", "ok")] {
        let offer = offered();
        let is_whole = offer.landlock >= Some(6) && offer.filters == Filters::Some;
        if mode == "strict" && !is_whole {
            eprintln!("skipped: this kernel cannot hold a strict sandbox");
            continue;
        }
        let model = Stub::calling(&wanted);
        let house = asking(&model, "", &server("files", &command, ""));
        let job = format!(
            "[agent]\nprompt = \"go\"\ntools = []\nmcp = [\"files\"]\nsandbox = \"{mode}\"\n\
             sandbox_read = {readable}\n"
        );
        let called = run(&house, &job);
        let outcomes: Vec<_> = called.iter().map(|row| row[1].as_str().unwrap()).collect();
        assert_eq!(outcomes, ["ok", "ok", reads_outside, "error"], "{mode}: {:#?}", model.told());
        assert_eq!(fs::read_to_string(&canary).unwrap(), "sing", "{mode}");
        assert!(model.told()[1].contains("hello"));
    }
}
