//! MCP servers that die, flood, hang, lie and will not go: what a model is told, what a run says of it,
//! and that nothing is left. With the real binary, from outside.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fs;

use serde_json::{Value, json};
use support::mcp::{JOB, house, server, step, told, verdicts};
use support::stub::Stub;
use support::until;

/// The run that fails because its server does not start: what it says.
fn refusal(arguments: &[&str], keys: &str) -> String {
    let model = Stub::calling(&[]);
    let house = house(&model, &server(arguments, keys), "");
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1), "{run:#}");
    assert_eq!(run["error"]["kind"], "mcp_unavailable", "{run:#}");
    assert_eq!(run["error"]["phase"], "context");
    assert_eq!(run["error"]["retryable"], true);
    assert_eq!(model.requests().len(), 0, "a model is asked nothing without its tools");
    house.assert_nothing_is_left();
    run["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_server_that_does_not_start_fails_the_run_and_is_named() {
    let keys = "env.set = { DATABASE = \"db-1\" }";
    assert_eq!(
        refusal(&["exit"], keys),
        "the MCP server `w` has ended before it told its tools (exit code 3); it said: no \
         database at db-1"
    );
    assert_eq!(
        refusal(&["hang"], "start_timeout = \"700ms\""),
        "the MCP server `w` did not start and list its tools within 700ms"
    );
    assert_eq!(
        refusal(&["endless"], "start_timeout = \"20s\""),
        "the MCP server `w` cannot be used: its list of tools has no end"
    );
    assert_eq!(
        refusal(&["many", "10000"], ""),
        "the MCP server `w` cannot be used: 10000 tools are more than the 128 that a model can be \
         offered: name those that are needed in `tools`"
    );
    assert_eq!(refusal(&["none"], ""), "the MCP server `w` cannot be used: it has no tools");
    assert_eq!(
        refusal(&["clash"], "tools = [\"b*\"]").split(';').next().unwrap(),
        "the MCP server `w` cannot be used: none of its tools may be offered (`tools`, [ceilings] \
         tools)"
    );
}

#[test]
fn a_program_that_is_not_there_is_named_and_so_is_each_server_that_fails() {
    let model = Stub::calling(&[]);
    let more = "[mcp.servers.x]\ncommand = [\"no-such-program\"]\n";
    let house = house(&model, &format!("{}{more}", server(&["exit"], "")), "");
    house.job("j", &JOB.replace("[\"w\"]", "[\"x\", \"w\"]"));
    let (_, run) = house.run("j");
    assert_eq!(
        run["error"]["message"],
        "the MCP server `x` could not be started: start `no-such-program`: no such command; the \
         MCP server `w` has ended before it told its tools (exit code 3); it said: no database at \
         nowhere"
    );
}

#[test]
fn what_is_no_message_is_passed_over() {
    let model = Stub::calling(&[("w__echo", json!({"text": "through"}))]);
    let house = house(&model, &server(&["garbage"], ""), "");
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(told(&model), ["through"]);
}

// semantics §2: one tool call has a limit of its own; it is ended, and the model is told.
#[test]
fn a_server_that_never_answers_is_cancelled_and_one_that_hears_nothing_is_ended() {
    let model = Stub::calling(&[
        ("w__busy", json!({})),
        ("w__echo", json!({"text": "the same server"})),
        ("w__stuck", json!({})),
        ("w__echo", json!({"text": "a fresh one"})),
    ]);
    let house =
        house(&model, &server(&["plain"], "timeout = \"800ms\""), "").with_env("MCP_LOG_TO", "log");
    let log = house.path("log");
    // It writes where no run may.
    house.job("j", &format!("{JOB}sandbox = \"off\"\n"));
    house.write(
        "config.toml",
        &format!(
            "{}\nenv.set = {{ MCP_LOG = {} }}\n",
            fs::read_to_string(house.path("config.toml")).unwrap().trim_end(),
            json!(log)
        ),
    );
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    let want = [
        "no answer from the MCP server `w` within 800ms; the call was cancelled",
        "the same server",
        "no answer from the MCP server `w` within 800ms; the server was ended",
        "a fresh one",
    ];
    assert_eq!(told(&model), want);
    let outcomes: Vec<_> = verdicts(&house).iter().map(|row| row[1].clone()).collect();
    assert_eq!(outcomes, ["timed_out", "ok", "timed_out", "ok"]);
    let log = fs::read_to_string(log).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let cancelled: Vec<_> = lines.filter(|it| it["method"] == "notifications/cancelled").collect();
    assert_eq!(cancelled.len(), 1, "{log}");
    assert_eq!(step(&run, "mcp")["detail"], "w: started again");
    house.assert_nothing_is_left();
}

#[test]
fn progress_keeps_an_idle_call_alive_and_nothing_keeps_it_longer_than_its_limit() {
    let model = Stub::calling(&[
        ("w__work", json!({"times": 10})),
        ("w__busy", json!({})),
        ("w__work", json!({"times": 1000})),
    ]);
    let keys = "idle_timeout = \"1200ms\"\ntimeout = \"4s\"";
    let house = house(&model, &server(&["plain"], keys), "");
    assert_eq!(house.run("j").0, Some(0));
    let want = [
        "worked",
        "neither answer nor progress from the MCP server `w` within 1s 200ms; the call was \
         cancelled",
        "no answer from the MCP server `w` within 4s; the call was cancelled",
    ];
    assert_eq!(told(&model), want);
}

#[test]
fn a_server_may_only_be_stricter_than_the_job() {
    let model = Stub::calling(&[("w__busy", json!({}))]);
    let house = house(&model, &server(&["plain"], "timeout = \"1h\""), "tool_timeout = \"300ms\"");
    assert_eq!(house.run("j").0, Some(0));
    let want = "no answer from the MCP server `w` within 300ms; the call was cancelled";
    assert_eq!(told(&model), [want]);
}

#[test]
fn a_server_that_dies_is_told_about_and_started_again_once() {
    let model = Stub::calling(&[
        ("w__die", json!({})),
        ("w__echo", json!({"text": "back"})),
        ("w__die", json!({"again": true})),
        ("w__echo", json!({"text": "gone"})),
    ]);
    let house = house(&model, &server(&["plain"], ""), "");
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "the run goes on: {run:#}");
    let died = "the floor is lava";
    let gone = "the MCP server `w` has ended and is not started again";
    assert_eq!(told(&model), [died, "back", died, gone]);
    let last = model.requests().pop().unwrap().to_string();
    let about = "the MCP server `w` ended during the call (exit code 7); its last words:";
    assert_eq!(last.matches(about).count(), 2);
    house.assert_nothing_is_left();
}

#[test]
fn a_server_that_floods_takes_no_memory_and_the_model_is_told() {
    let model = Stub::calling(&[
        ("w__large", json!({"bytes": 60_000_000})),
        ("w__notes", json!({"count": 2000})),
        ("w__large", json!({"bytes": 500_000})),
        ("w__unended", json!({})),
        ("w__echo", json!({"text": "after"})),
    ]);
    let keys = "timeout = \"10s\"\ntools = [\"large\", \"notes\", \"unended\", \"echo\"]";
    let house = house(&model, &server(&["plain"], keys), "");
    let mut running = house.start(&["run", "j", "--json"]);
    let mut peak_kib = 0;
    until("the run ends", || {
        let status = fs::read_to_string(format!("/proc/{}/status", running.pid()));
        let line = status.unwrap_or_default();
        let line = line.lines().find_map(|line| {
            line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok()
        });
        peak_kib = peak_kib.max(line.unwrap_or_default());
        !running.is_running()
    });
    let said = running.end();
    assert_eq!(said.code, Some(0), "{said:?}");
    let told = told(&model);
    assert_eq!(told[0], "the result is larger than 8 MiB and was not read");
    assert_eq!(told[1], "noted");
    assert!(told[2].contains("cut …]") && told[2].len() < 20_000, "{}", told[2].len());
    let want = "no answer from the MCP server `w` within 10s; the server was ended";
    assert_eq!(told[3..], [want, "after"]);
    assert!(peak_kib < 150 * 1024, "{peak_kib} KiB");
    house.assert_nothing_is_left();
}

#[test]
fn nobody_is_there_for_the_questions_of_a_server() {
    let model = Stub::calling(&[("w__ask", json!({}))]);
    let house = house(&model, &server(&["plain"], ""), "");
    assert_eq!(house.run("j").0, Some(0));
    let answers: Value = serde_json::from_str(&told(&model)[0]).unwrap();
    let answers = answers.as_array().unwrap();
    assert!(answers.contains(&json!({"action": "decline"})), "{answers:?}");
    assert!(answers.contains(&json!(-32601)), "{answers:?}");
    assert!(answers.contains(&json!({"roots": []})), "{answers:?}");
}

#[test]
fn what_will_not_go_is_ended_with_the_run() {
    for mode in ["deaf", "daemon"] {
        let model = Stub::calling(&[("w__spawn", json!({}))]);
        let house = house(&model, &server(&[mode], ""), "stop_grace = \"500ms\"");
        let (code, run) = house.run("j");
        assert_eq!(code, Some(0), "{run:#}");
        assert_eq!(run["cleanup"]["outcome"], "forced", "{mode}: {run:#}");
        assert_eq!(run["cleanup"]["leaked"], json!([]));
        house.assert_nothing_is_left();
    }
}

#[test]
fn a_run_that_is_cut_ends_on_time_with_its_servers() {
    let model = Stub::calling(&[("w__stuck", json!({}))]);
    let house = house(&model, &server(&["deaf"], ""), "timeout = \"3s\"\nstop_grace = \"500ms\"");
    let (code, run) = house.run("j");
    assert_eq!((code, &run["state"]), (Some(124), &json!("timed_out")), "{run:#}");
    let took = run["duration_ms"].as_u64().unwrap();
    assert!((3000..8000).contains(&took), "{took}");
    house.assert_nothing_is_left();
}

#[test]
fn a_server_that_takes_too_long_is_named_before_the_run_is_cut() {
    let model = Stub::calling(&[]);
    let house = house(&model, &server(&["late", "60"], ""), "timeout = \"4s\"");
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    let message = "the MCP server `w` did not start and list its tools within 1s 500ms";
    assert_eq!(run["error"]["message"], message);
    assert_eq!(
        (&run["error"]["limit"], &run["error"]["limit_ms"]),
        (&json!("setup"), &json!(1500))
    );
    house.assert_nothing_is_left();
}
