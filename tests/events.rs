//! What a run tells while it goes on: each stream with its phases, one end whatever happens, and
//! nothing of what nobody has asked for.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};
use support::scripts::{exec_job, exec_script};
use support::stub::{Act, Stub, call, event, finish, head, reply, text};
use support::{House, LONG, asking, scripted};

fn of<'a>(events: &'a [Value], stream: &'a str, phase: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |it| it["stream"] == stream && it["phase"] == phase)
}

fn texts(events: &[Value], key: &str) -> Vec<String> {
    let pieces = of(events, "assistant", "update").filter_map(|it| it[key].as_str());
    pieces.map(str::to_owned).collect()
}

/// A model that thinks, says something, calls a tool, and then answers in two pieces.
fn talking() -> Stub {
    Stub::new(|n| {
        let thought = event(&json!({"choices": [{"delta": {"reasoning_content": "Look first."}}]}));
        let called = call("exec", "{\"command\":\"echo one $PW\"}");
        vec![Act::Say(match n {
            0 => {
                head()
                    + &thought
                    + &text("Let me ")
                    + &text("look.")
                    + &called
                    + &finish("tool_calls")
            }
            _ => head() + &text("All ") + &text("well.") + &finish("stop"),
        })]
    })
}

// semantics §9: lifecycle (start, end), assistant (deltas), tool (start, end); reasoning is a
// stream of its own where it is asked for; block streaming at `text_end` and `message_end`.
#[test]
fn a_run_tells_what_was_asked_for() {
    let none: &[&str] = &[];
    let both = &["Let me look.", "All well."][..];
    let table = [
        ("", none, none),
        ("reasoning = \"stream\"\n", &["Look first."][..], none),
        ("reasoning = \"blocks\"\n", none, none),
        ("block_streaming = \"text_end\"\n", none, both),
        ("block_streaming = \"message_end\"\n", none, both),
    ];
    for (keys, thoughts, blocks) in table {
        let stub = talking();
        let house = asking(&stub, "", "");
        house.job("j", &exec_job("").replace("[limits]", &format!("{keys}[limits]")));
        let serve = house.serve();
        let events = house.follow("j");
        assert_eq!(serve.stop().code, Some(0));
        assert_eq!(texts(&events, "text").concat(), "Let me look.All well.", "{keys}");
        assert_eq!(texts(&events, "reasoning"), thoughts, "{keys}");
        assert_eq!(texts(&events, "block"), blocks, "{keys}");
        let order: Vec<_> = events
            .iter()
            .filter(|it| it["phase"] != "update")
            .map(|it| {
                format!("{} {}", it["stream"].as_str().unwrap(), it["phase"].as_str().unwrap())
            })
            .collect();
        let expected = [
            "lifecycle start",
            "assistant start",
            "assistant end",
            "tool start",
            "tool end",
            "assistant start",
            "assistant end",
            "lifecycle end",
        ];
        assert_eq!(order, expected, "{keys}");
        let seqs: Vec<_> = events.iter().map(|it| it["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
        // At the end of a text a block comes before the call that ended it.
        let at = |is: &dyn Fn(&Value) -> bool| events.iter().position(is);
        if let Some(block) = at(&|it| it["block"].is_string()) {
            assert!(Some(block) < at(&|it| it["stream"] == "tool"), "{keys}");
        }
    }
}

#[test]
fn silence_is_no_block() {
    let stub = Stub::saying(reply("NO_REPLY"));
    let house = asking(&stub, "", "");
    house.job("j", "[agent]\nprompt = \"go\"\nblock_streaming = \"message_end\"\n");
    let serve = house.serve();
    let events = house.follow("j");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(texts(&events, "block"), Vec::<String>::new());
}

// semantics §9: tool (start, update, end), bounded, with secrets masked.
#[test]
fn a_tool_that_goes_on_says_how_far_it_has_come() {
    let command = "head -c 9000 /dev/zero | tr '\\0' x; echo $PW; sleep 2.5; echo ended";
    let house = scripted(&exec_script(command), "").with_secret("PW", "hunter22-hunter22");
    let job = exec_job("");
    house.job("j", &format!("{job}[env]\nsecret = {{ PW = {{ env = \"PW\" }} }}\n"));
    let serve = house.serve();
    let events = house.follow("j");
    assert_eq!(serve.stop().code, Some(0));
    let updates: Vec<_> = of(&events, "tool", "update").collect();
    assert!((1..=3).contains(&updates.len()), "{updates:#?}");
    for update in updates {
        assert_eq!((&update["n"], &update["tool"]), (&json!(1), &json!("exec")));
        let output = update["output"].as_str().unwrap();
        assert!(
            output.chars().count() <= 2_000 && output.ends_with("xxx[secret PW]\n"),
            "{output}"
        );
        assert!(update["output_bytes"].as_u64().unwrap() > 9_000);
    }
}

const HANGS: &str = "[[rule]]\nstep = [{ text = \"so far\" }, { hang = true }]\n";
const FAILS: &str = "[[rule]]\nstep = [{ error = { status = 400, message = \"no\" } }]\n";

/// Starts a run of the only job and returns everything that it tells.
fn follow(socket: &Path) -> Vec<Value> {
    let mut socket = UnixStream::connect(socket).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let request = json!({"verb": "run", "job": "j", "slot": null, "force": false});
    socket.write_all(format!("{request}\n").as_bytes()).unwrap();
    let lines = BufReader::new(socket).lines();
    let replies = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    replies.filter_map(|reply| reply.get("event").cloned()).collect()
}

/// The terminal events of a run of the only job, which `then` ends.
fn ends(script: &str, limits: &str, then: impl FnOnce(&House)) -> Vec<(String, String)> {
    let house = scripted(script, "");
    house.job("j", &exec_job(limits));
    let serve = house.serve();
    let socket = house.path("state/punctual.sock");
    let events = std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&socket));
        then(&house);
        follower.join().unwrap()
    });
    assert_eq!(serve.stop().code, Some(0));
    let is_end = |it: &&Value| it["phase"] == "end" || it["phase"] == "error";
    let last = events.iter().filter(|it| it["stream"] == "lifecycle").filter(is_end);
    let words = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(events.last().unwrap()["stream"], "lifecycle");
    last.map(|it| (words(it, "phase"), words(it, "state"))).collect()
}

// semantics §1: every run has exactly one terminal lifecycle event, `end` or `error`, and it is the
// last. That a run whose driver crashed has one too is in `executor::events`.
#[test]
fn every_way_to_end_is_told_once() {
    let one = |phase: &str, state: &str| vec![(phase.to_owned(), state.to_owned())];
    let fine = "[[rule]]\nstep = [{ text = \"fine\" }]\n";
    assert_eq!(ends(fine, "", |_| {}), one("end", "succeeded"));
    assert_eq!(ends(FAILS, "", |_| {}), one("error", "failed"));
    assert_eq!(ends(HANGS, "timeout = \"700ms\"", |_| {}), one("error", "timed_out"));
    let cancel = |house: &House| {
        house.until("SELECT count(*) = 1 FROM v1_attempts");
        assert_eq!(house.say(&["cancel", "j"]).code, Some(0));
    };
    assert_eq!(ends(HANGS, "", cancel), one("error", "cancelled"));
}

// contract: `trace`: every request and answer, beside the transcripts, for nobody else's eyes.
#[test]
fn a_trace_has_every_request_and_every_answer_and_no_secret() {
    let stub = talking();
    let house = asking(&stub, "", "").with_secret("PW", "hunter22-hunter22");
    let job = exec_job("").replace("[limits]", "trace = true\n[limits]");
    house.job("j", &format!("{job}[env]\nsecret = {{ PW = {{ env = \"PW\" }} }}\n"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    let path = house.path(&format!("state/traces/{}.jsonl", run["run_id"].as_str().unwrap()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let types: Vec<_> = lines.iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["request", "answer", "request", "answer"]);
    assert_eq!(lines[0]["messages"][0]["text"], "go");
    assert_eq!(lines[1]["message"]["reasoning"], "Look first.");
    assert_eq!(lines[2]["messages"][2]["content"], "one [secret PW]\n");
    assert_eq!(lines[3]["message"]["text"], "All well.");
    // Without it, there is none.
    house.job("k", &exec_job(""));
    let (_, other) = house.run("k");
    let none = house.path(&format!("state/traces/{}.jsonl", other["run_id"].as_str().unwrap()));
    assert_eq!(other["state"], "succeeded");
    assert!(!none.exists());
}

// semantics §7: images reduced to metadata.
#[test]
fn a_picture_in_a_result_is_told_by_its_size() {
    let command =
        "printf 'a data:image/png;base64,'; head -c 400 /dev/zero | tr '\\0' A; echo ' b'";
    let house = scripted(&exec_script(command), "");
    house.job("j", &exec_job(""));
    let (_, run) = house.run("j");
    assert_eq!(run["reply"], "a [image/png, 300 bytes, left out] b\n");
    assert!(house.files_with(&"A".repeat(100)).is_empty());
}
