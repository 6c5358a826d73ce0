//! Each call has its one result, in every history that is sent and in every one that is kept,
//! however a turn was cut.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::ledger::story;
use support::run_object::assert_run;
use support::scripts::{by_hand, exec_job, soon};
use support::stub::{Act, Stub, call, event, finish, head, reply, text};
use support::{House, asking};

/// Two calls in one answer.
fn two_calls(first: &str, second: &str) -> String {
    let call = |index: u32, command: &str| {
        let function =
            json!({"name": "exec", "arguments": json!({"command": command}).to_string()});
        let id = format!("call_{command}");
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        event(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    };
    head() + &call(0, first) + &call(1, second) + &finish("tool_calls")
}

fn exec(command: &str) -> String {
    head() + &call("exec", &json!({"command": command}).to_string()) + &finish("tool_calls")
}

/// The beginning of an answer whose call is cut.
fn half() -> String {
    head() + &text("so far") + &call("exec", "{\"command\": \"touch ma")
}

/// Calls and results of a request in their order, each as `(is_call, id)`.
fn in_request(request: &Value) -> Vec<(bool, String)> {
    let of = |message: &Value| match message["role"].as_str().unwrap() {
        "assistant" => calls(&message["tool_calls"]),
        "tool" => vec![(false, message["tool_call_id"].as_str().unwrap().to_owned())],
        _ => Vec::new(),
    };
    request["messages"].as_array().unwrap().iter().flat_map(of).collect()
}

/// The same of the transcript of a run.
fn in_transcript(house: &House, session: &Value) -> Vec<(bool, String)> {
    let name = format!("state/sessions/{}.jsonl", session.as_str().unwrap());
    let text = std::fs::read_to_string(house.path(&name)).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages = entries.filter(|entry| entry["type"] == "message");
    let of = |entry: Value| match entry["message"]["role"].as_str().unwrap() {
        "assistant" => calls(&entry["message"]["tool_calls"]),
        "tool_result" => vec![(false, entry["message"]["call_id"].as_str().unwrap().to_owned())],
        _ => Vec::new(),
    };
    messages.flat_map(of).collect()
}

fn calls(calls: &Value) -> Vec<(bool, String)> {
    let calls = calls.as_array().into_iter().flatten();
    calls.map(|call| (true, call["id"].as_str().unwrap().to_owned())).collect()
}

/// The calls of one answer are followed by their results in the same order, and nothing is left
/// over.
#[track_caller]
fn assert_paired(history: &[(bool, String)]) {
    let mut rest = history;
    while !rest.is_empty() {
        let calls = rest.iter().take_while(|(is_call, _)| *is_call).count();
        let (asked, after) = rest.split_at(calls);
        assert!(calls > 0 && after.len() >= calls, "{history:#?}");
        let (answered, after) = after.split_at(calls);
        let wanted: Vec<_> = asked.iter().map(|(_, id)| (false, id.clone())).collect();
        assert_eq!(answered, wanted, "{history:#?}");
        rest = after;
    }
}

#[test]
fn what_is_cut_in_the_middle_of_a_turn_leaves_no_call_without_its_result() {
    let stub = Stub::new(|n| match n {
        // A tool that takes too long, beside one that does not.
        0 => vec![Act::Say(two_calls("sleep 60", "echo hi"))],
        // Half a call; once the stream just ends, once the connection breaks.
        1 => vec![Act::Say(half())],
        2 => vec![Act::Say(exec("echo again"))],
        3 => vec![Act::Say(half()), Act::Wait(Duration::from_millis(100)), Act::Reset],
        _ => vec![Act::Say(reply("fine"))],
    });
    let house = asking(&stub, "", "");
    house.job("j", &exec_job("tool_timeout = \"3s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    assert_run(&run, &json!({"/reply": "fine", "/tools": {"calls": 3, "errors": 1, "denied": 0}}));
    let requests = stub.requests();
    let histories: Vec<_> = requests.iter().map(in_request).collect();
    for history in &histories {
        assert_paired(history);
    }
    // A failed answer adds nothing to what is sent.
    assert_eq!(histories.iter().map(Vec::len).collect::<Vec<_>>(), [0, 4, 4, 6, 6]);
    assert_eq!(requests[3]["messages"], requests[4]["messages"]);
    let kept = in_transcript(&house, &run["session_id"]);
    assert_paired(&kept);
    assert_eq!(kept.len(), 6);
}

#[test]
fn an_attempt_that_was_cut_leaves_a_whole_history_and_the_next_one_starts_afresh() {
    let stub = Stub::new(|n| match n {
        0 => vec![Act::Say(two_calls("echo hi", "sleep 60"))],
        1 => vec![Act::Say(exec("echo hi"))],
        2 => vec![Act::Say(half()), Act::Hold],
        _ => vec![Act::Say(reply("fine"))],
    });
    let house = asking(&stub, "", "");
    let job = by_hand("go", "", "timeout = \"4s\"");
    let due = soon();
    house
        .job("j", &format!("{job}[schedule]\nat = \"{due:.3}\"\n[retry]\nbackoff = [\"100ms\"]\n"));
    let serve = house.serve();
    house.until("SELECT state = 'succeeded' FROM v1_runs WHERE attempt = 3");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        story(&house, "j"),
        [
            json!([1, "schedule", "timed_out", "deadline"]),
            json!([2, "retry", "timed_out", "deadline"]),
            json!([3, "retry", "succeeded", null]),
        ]
    );
    let histories: Vec<_> = stub.requests().iter().map(in_request).collect();
    for history in &histories {
        assert_paired(history);
    }
    assert_eq!(histories.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 2, 0]);
    let sessions = house.rows("SELECT session_id, phase FROM v1_runs ORDER BY attempt");
    let kept: Vec<_> = sessions.iter().map(|row| in_transcript(&house, &row[0])).collect();
    for history in &kept {
        assert_paired(history);
    }
    assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2, 0]);
    assert_eq!((&sessions[0][1], &sessions[1][1]), (&json!("tool"), &json!("model_call")));
}
