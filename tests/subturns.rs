//! A part of the work in a conversation of its own: the tool `subturn`, in whole runs.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::stub::{Act, Stub, call, finish, head, text};
use support::{House, asking, until};

/// A model that plays one part for the job and another for its parts, whose prompts begin with
/// `part`. `turn` counts what was said so far in that conversation.
fn model(play: impl Fn(&str, usize, &Value) -> Vec<Act> + Send + Sync + 'static) -> Stub {
    Stub::answering(move |request| {
        let messages = request["messages"].as_array().unwrap();
        let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
        let prompt = messages.iter().find(|message| message["role"] == "user").unwrap();
        play(prompt["content"].as_str().unwrap(), turn, request)
    })
}

fn says(words: &str) -> Vec<Act> {
    vec![Act::Say(head() + &text(words) + &finish("stop"))]
}

fn calls(tool: &str, arguments: &Value) -> Vec<Act> {
    vec![Act::Say(head() + &call(tool, &arguments.to_string()) + &finish("tool_calls"))]
}

/// What the tools of the job itself have given, call by call.
fn given(stub: &Stub) -> Vec<String> {
    let requests = stub.requests();
    let messages = requests.last().unwrap()["messages"].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn offered(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

const JOB: &str = "[agent]\nprompt = \"go\"\ntools = [\"read\", \"exec\", \"message\", \"subturn\"]\n\
                   exec_allow = [\"*\"]\n";

fn tool_calls(house: &House) -> Vec<Value> {
    house.rows("SELECT n, tool, outcome, inside FROM v1_tool_calls ORDER BY n")
}

// semantics §1: a sub-turn runs under the permit already held: with lane width 1 nothing deadlocks.
#[test]
fn a_part_works_under_the_permit_of_its_run_and_counts_as_the_run_s_own() {
    let stub = model(|prompt, turn, _| match (prompt, turn) {
        ("go", 0) => calls("subturn", &json!({"prompt": "part: look"})),
        ("go", 1) => calls("exec", &json!({"command": "echo after"})),
        ("go", _) => says("fine"),
        ("part: look", 0) => calls("exec", &json!({"command": "echo inside"})),
        _ => says("seen"),
    });
    let more = "[scheduler]\nmax_concurrent_runs = 1\n[lanes]\nnarrow = 1\n";
    let house = asking(&stub, "", more);
    house.job("j", &format!("lane = \"narrow\"\n{JOB}"));
    let serve = house.serve();
    let events = house.follow("j");
    let run = house.ended(events[0]["run_id"].as_str().unwrap());
    assert_eq!((&run["state"], &run["reply"]), (&json!("succeeded"), &json!("fine")), "{run:#}");
    // Five requests, 12 and 4 tokens each.
    assert_eq!(run["usage"]["input_tokens"], 60);
    assert_eq!(run["usage"]["output_tokens"], 20);
    assert_eq!(run["tools"], json!({"calls": 3, "errors": 0, "denied": 0}));
    let rows = [
        json!([1, "subturn", "ok", null]),
        json!([2, "exec", "ok", 1]),
        json!([3, "exec", "ok", null]),
    ];
    assert_eq!(tool_calls(&house), rows);
    assert_eq!(given(&stub), ["seen", "after\n"]);

    // A part begins empty, with the tools that need no naming, and opens no part itself.
    let part = &stub.requests()[1];
    assert_eq!(offered(part), ["read", "exec"]);
    assert!(!part["messages"].to_string().contains("\"go\""), "{part:#}");

    // Its words are no answer of the run.
    let of = |stream: &str, phase: &str| {
        let is = |event: &&Value| event["stream"] == stream && event["phase"] == phase;
        events.iter().filter(is).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("assistant", "end").len(), 3);
    let updates: Vec<_> = of("tool", "update").iter().map(|it| it["text"].clone()).collect();
    assert_eq!(updates, [json!(""), json!("seen")]);
    let inside: Vec<_> = of("tool", "end").iter().map(|it| it["inside"].clone()).collect();
    assert_eq!(inside, [json!(1), Value::Null, Value::Null]);

    // In the transcript it is a note between the call and its result.
    let session = run["session_id"].as_str().unwrap();
    let file = std::fs::read_to_string(house.path(&format!("state/sessions/{session}.jsonl")));
    let entries: Vec<Value> =
        file.unwrap().lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = entries.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    let (message, note) = ("message", "custom");
    let wanted = [message, message, note, note, note, note, message, message, message, message];
    assert_eq!(kinds, wanted);
    let ids: Vec<_> = entries.iter().map(|entry| entry["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=10).collect::<Vec<_>>());
    assert_eq!((&entries[2]["name"], &entries[2]["data"]["n"]), (&json!("subturn"), &json!(1)));
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_part_has_no_tool_that_its_turn_has_not_and_there_are_only_so_many() {
    let stub = model(|prompt, turn, _| match (prompt, turn) {
        ("go", 0) => calls("subturn", &json!({"prompt": "part", "tools": ["read", "write"]})),
        ("go", 1) => calls("subturn", &json!({"prompt": "part", "tools": ["subturn"]})),
        ("go", 2) => calls("subturn", &json!({"prompt": " "})),
        ("go", 3) => calls("subturn", &json!({"prompt": "part m", "tools": ["message"]})),
        ("go", turn @ 4..14) => calls("subturn", &json!({"prompt": format!("part {turn}")})),
        ("go", _) => says("fine"),
        // A part that asks for what it has not.
        ("part 4", 0) => calls("subturn", &json!({"prompt": "part of a part"})),
        ("part 4", 1) => calls("message", &json!({"target": "x", "text": "y"})),
        _ => says("seen"),
    });
    let house = asking(&stub, "", "");
    house.job("j", JOB);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#}");
    let given = given(&stub);
    let may = "it may have read, exec, message";
    assert_eq!(given[0], format!("a part may not have `write`; {may}"));
    assert_eq!(given[1], format!("a part may not have `subturn`; {may}"));
    assert_eq!(given[2], "the prompt is empty");
    assert_eq!(given[3..11], ["seen"; 8]);
    assert_eq!(given[11..], ["a run has at most 8 parts"; 3]);
    let inside = house.rows("SELECT tool, outcome FROM v1_tool_calls WHERE inside IS NOT NULL");
    assert_eq!(inside, [json!(["subturn", "denied"]), json!(["message", "denied"])]);
    let of_part = |it: &&Value| it["messages"].to_string().contains("\"part m\"");
    assert_eq!(offered(stub.requests().iter().find(of_part).unwrap()), ["message"]);
}

#[test]
fn a_part_that_fails_or_takes_too_long_is_an_answer_and_leaves_nothing_behind() {
    let stub = model(|prompt, turn, _| match (prompt, turn) {
        ("go", 0) => calls("subturn", &json!({"prompt": "part: broken"})),
        ("go", 1) => calls("subturn", &json!({"prompt": "part: slow", "timeout": "400ms"})),
        ("go", 2) => calls("subturn", &json!({"prompt": "part: works", "timeout": "700ms"})),
        ("go", 3) => calls("subturn", &json!({"prompt": "part: dear", "max_tokens": 20})),
        ("go", 4) => calls("exec", &json!({"command": "pgrep -f 'sleep 4[7]' | wc -l"})),
        ("go", _) => says("fine"),
        ("part: broken", _) => vec![Act::Say(head() + &text("so far") + &finish("length"))],
        ("part: slow", _) => vec![Act::Say(head() + &text("hm")), Act::Hold],
        ("part: works", 0) => calls("exec", &json!({"command": "sleep 47 & sleep 47"})),
        // 16 tokens a request: there is no second one.
        ("part: dear", 0) => calls("exec", &json!({"command": "true"})),
        ("part: dear", 1) => calls("exec", &json!({"command": "echo"})),
        _ => says("too late"),
    });
    let house = asking(&stub, "", "");
    house.job("j", JOB);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#}");
    let given = given(&stub);
    assert!(given[0].starts_with("the part ended without an answer: the answer was cut off"));
    assert!(given[0].ends_with("It had said so far:\nso far"), "{given:#?}");
    assert!(given[1].starts_with("the part ended without an answer: it took longer than 400ms"));
    assert!(given[2].contains("it took longer than 700ms"), "{given:#?}");
    assert!(given[3].contains("tokens used of 20 (limits.max_tokens)"), "{given:#?}");
    assert_eq!(given[4], "0\n");
    let outcomes =
        house.rows("SELECT outcome FROM v1_tool_calls WHERE tool = 'subturn' ORDER BY n");
    assert_eq!(
        outcomes,
        [json!(["error"]), json!(["timed_out"]), json!(["timed_out"]), json!(["error"])]
    );
    house.assert_nothing_is_left();
}

// Its own idle watchdog: a silent model ends the part, not the run.
#[test]
fn a_silent_model_ends_the_part_and_a_talking_one_is_the_run_s_sign_of_life() {
    let stub = model(|prompt, turn, _| match (prompt, turn) {
        ("go", 0) => calls("subturn", &json!({"prompt": "part: silent"})),
        ("go", 1) => calls("subturn", &json!({"prompt": "part: talks"})),
        ("go", _) => says("fine"),
        ("part: silent", _) => vec![Act::Say(head() + &text("hm")), Act::Hold],
        _ => {
            let mut acts = vec![Act::Say(head())];
            for _ in 0..6 {
                acts.extend([Act::Wait(Duration::from_millis(300)), Act::Say(text("la "))]);
            }
            acts.push(Act::Say(finish("stop")));
            acts
        }
    });
    // P is the window of a request.
    let house = asking(&stub, "timeout = \"1s\"\n", "");
    house.job("j", JOB);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#}");
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{run:#}");
    let given = given(&stub);
    assert!(given[0].starts_with("the part ended without an answer: "), "{given:#?}");
    assert_eq!(given[1].trim(), "la la la la la la");
    until("its connection is closed", || stub.clients_gone() == 1);
}

#[test]
fn a_part_is_cut_with_its_run_and_what_it_has_used_is_counted() {
    let stub = model(|prompt, turn, _| match (prompt, turn) {
        ("go", _) => calls("subturn", &json!({"prompt": "part"})),
        (_, 0) => calls("exec", &json!({"command": "true"})),
        _ => calls("exec", &json!({"command": "sleep 53"})),
    });
    let house = asking(&stub, "", "");
    house.job("j", &format!("{JOB}[limits]\ntimeout = \"2s\"\n"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["state"]), (Some(124), &json!("timed_out")), "{run:#}");
    assert_eq!(run["error"]["limit"], "deadline");
    assert_eq!(run["usage"]["input_tokens"], 36);
    assert_eq!(run["tools"]["calls"], 3);
    house.assert_nothing_is_left();
    // Every call has a result, that of the part and that in it.
    let session = run["session_id"].as_str().unwrap();
    let file = std::fs::read_to_string(house.path(&format!("state/sessions/{session}.jsonl")));
    let file = file.unwrap();
    assert_eq!(file.matches("not finished: ").count(), 2, "{file}");
}

#[test]
fn a_recorded_part_is_played_again_with_its_requests_and_calls() {
    let stub = model(|prompt, turn, _| match (prompt, turn) {
        ("go", 0) => calls("subturn", &json!({"prompt": "part"})),
        ("go", _) => says("fine"),
        (_, 0) => calls("exec", &json!({"command": "touch made; echo made"})),
        _ => says("seen"),
    });
    let house = asking(&stub, "", "");
    std::fs::create_dir(house.path("work")).unwrap();
    house.job("j", &JOB.replace("[agent]\n", "[agent]\nworkdir = \"../work\"\n"));
    let said = house.say(&["test", "j", "--record"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    std::fs::remove_file(house.path("work/made")).unwrap();
    let asked = stub.requests().len();
    let said = house.say(&["test", "j"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("4 requests, 2 tool calls"), "{said:?}");
    assert_eq!((stub.requests().len(), house.path("work/made").exists()), (asked, false));
}

// semantics §8, row before_tool_call: nothing gets past a gate by being part of a call, and a gate
// that ends the run ends all of it.
#[test]
fn hooks_are_asked_of_the_calls_of_a_part_too() {
    let refuse = |more: &str| {
        let answer = format!("{{\\\"block\\\": true, \\\"reason\\\": \\\"no shell\\\"{more}}}");
        let script = format!("grep -q '.tool.:.exec.' && echo '{answer}'; true");
        format!(
            "[[hooks]]\non = \"before_tool_call\"\nname = \"guard\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\n"
        )
    };
    let table = [("", "succeeded"), (", \\\"end_run\\\": true", "failed")];
    for (more, state) in table {
        let stub = model(|prompt, turn, request| match (prompt, turn) {
            ("go", 0) => calls("subturn", &json!({"prompt": "part: look"})),
            ("go", _) => says("fine"),
            ("part: look", 0) => calls("exec", &json!({"command": "touch made"})),
            _ => {
                assert!(request.to_string().contains("no shell"), "{request:#}");
                says("refused")
            }
        });
        let house = asking(&stub, "", &refuse(more));
        house.job("j", JOB);
        let (_, run) = house.run("j");
        assert_eq!(run["state"], state, "{run:#}");
        let exec = tool_calls(&house).into_iter().find(|call| call[1] == "exec").unwrap();
        assert_eq!(exec, json!([2, "exec", "denied", 1]));
        let kind = if state == "failed" { json!("hook_blocked") } else { Value::Null };
        assert_eq!(run["error"]["kind"], kind, "{run:#}");
        house.assert_nothing_is_left();
    }
}
