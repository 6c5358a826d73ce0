//! Whatever a tool prints and a model says, what is kept of it is bounded.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::run_object::assert_run;
use support::scripts::{PLAIN, exec_job, exec_script};
use support::stub::{Act, Stub, event, head, text};
use support::{House, asking, scripted};

/// By so much a daemon may grow for one run.
const GROWTH_MAX_KB: u64 = 32 << 10;

/// What the job `big` of a house makes of it, by how much the daemon has grown for it, in kB.
fn grown(house: &House) -> (Value, u64) {
    house.job("small", "[agent]\nprompt = \"small\"\ntools = []\nmodel = \"small/m\"\n");
    let serve = house.serve();
    // What the first run needs is no growth.
    let run_id = house.detach("small");
    assert_eq!(house.ended(&run_id)["state"], "succeeded");
    let before = peak_kb(serve.pid());
    let run_id = house.detach("big");
    let run = house.ended(&run_id);
    let growth = peak_kb(serve.pid()) - before;
    assert_eq!(serve.stop().code, Some(0));
    house.assert_nothing_is_left();
    (run, growth)
}

/// The most that a process has held so far.
fn peak_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

const SMALL: &str = "[models.providers.small]\napi = \"script\"\nscript = \"small.toml\"\n";

fn with_small(house: House) -> House {
    house.write("small.toml", "[[rule]]\nstep = [{ text = \"fine\" }]\n");
    house
}

// B102
#[test]
fn a_tool_may_print_what_it_likes() {
    let table = [
        ("yes", "[… ", "timed_out"),
        ("head -c 2000000000 /dev/zero", "[… ", "succeeded"),
        ("head -c 50000000 /dev/zero | tr '\\0' x", "xxx", "succeeded"),
        ("head -c 50000000 /dev/urandom", "[… ", "succeeded"),
    ];
    for (command, shown, state) in table {
        let house = with_small(scripted(&exec_script(command), SMALL));
        house.job("big", &exec_job("timeout = \"4s\""));
        let (run, growth) = grown(&house);
        assert!(growth < GROWTH_MAX_KB, "{command}: {growth} kB, {run:#}");
        // A slow machine may not get to the end of two gigabytes.
        let ends = [state, "timed_out"].contains(&run["state"].as_str().unwrap());
        assert!(ends, "{command}: {run:#}");
        if run["state"] == "succeeded" {
            assert!(run["reply"].as_str().unwrap().contains(shown), "{command}: {run:#}");
        }
    }
}

#[test]
fn a_model_may_say_what_it_likes() {
    let long = "x".repeat(64 << 10);
    let pours: fn(&str) -> String = |piece| text(piece);
    let thinks: fn(&str) -> String =
        |piece| event(&json!({"choices": [{"index": 0, "delta": {"reasoning_content": piece}}]}));
    let calls: fn(&str) -> String = |piece| {
        let function = json!({"name": "exec", "arguments": piece});
        let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
        event(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    };
    let pings: fn(&str) -> String = |piece| format!(": {piece}\n\n");
    for (name, says, kind) in [
        ("text", pours, "not_a_stream"),
        ("reasoning", thinks, "not_a_stream"),
        ("a call", calls, "not_a_stream"),
        ("comments", pings, "idle_timeout"),
    ] {
        let piece = says(&long);
        let stub = Stub::new(move |_| {
            vec![Act::Say(head()), Act::Repeat(piece.clone(), Duration::from_millis(1))]
        });
        let house = with_small(asking(&stub, "timeout = \"3s\"", SMALL));
        house.job("big", &format!("{PLAIN}[limits]\ntimeout = \"20s\"\n"));
        let (run, growth) = grown(&house);
        assert!(growth < GROWTH_MAX_KB, "{name}: {growth} kB");
        assert_run(&run, &json!({"/state": "failed", "/error/kind": kind}));
    }
}

#[test]
fn a_line_without_an_end_is_no_answer() {
    for (name, start) in [
        ("a line", head() + "data: "),
        (
            "a body",
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\": \"".to_owned(),
        ),
        ("a refusal", "HTTP/1.1 500 No\r\ncontent-type: text/plain\r\n\r\n".to_owned()),
    ] {
        let stub = Stub::new(move |_| {
            let line = "y".repeat(1 << 20);
            let pieces = (0..50).map(|_| Act::Say(line.clone()));
            [Act::Say(start.clone())].into_iter().chain(pieces).collect()
        });
        let house = with_small(asking(&stub, "", SMALL));
        house.job("big", &format!("{PLAIN}[limits]\ntimeout = \"20s\"\n"));
        let (run, growth) = grown(&house);
        assert!(growth < GROWTH_MAX_KB, "{name}: {growth} kB");
        assert_eq!(run["state"], "failed", "{name}: {run:#}");
    }
}
