//! What an answer means for its run, whatever dialect it comes in: calls run and their results go
//! back, thoughts go back with them, half a call never runs, and no character is broken.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::run_object::assert_run;
use support::scripts::{PLAIN, exec_job};
use support::stub::{Act, Stub, head, refusal, reply};
use support::{House, asking};

/// A recorded stream with some of its words replaced.
fn recorded(name: &str, swaps: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/streams").join(name);
    swaps.iter().fold(std::fs::read_to_string(path).unwrap(), |text, (old, new)| {
        assert!(text.contains(old), "{name}: {old}");
        text.replace(old, new)
    })
}

/// A house whose model speaks `api`.
fn speaking(api: &str, stub: &Stub) -> House {
    House::new(&format!(
        "[agents.defaults]\nmodel = \"local/m\"\n\
         [models.providers.local]\napi = \"{api}\"\nbase_url = \"{}\"\n",
        stub.url()
    ))
}

/// An answer in lines, as Ollama sends it.
fn lines(body: &str) -> String {
    head().replace("text/event-stream", "application/x-ndjson") + body
}

fn events(payloads: &[Value]) -> String {
    let event = |it: &Value| format!("event: {}\ndata: {it}\n\n", it["type"].as_str().unwrap());
    payloads.iter().map(event).collect()
}

/// How a command is called in a fragment of OpenAI's.
fn call(command: &str) -> String {
    let arguments = json!({"command": command}).to_string();
    json!({"name": "exec", "arguments": arguments}).to_string()
}

fn of_role<'a>(request: &'a Value, role: &'a str) -> impl Iterator<Item = &'a Value> {
    request["messages"].as_array().unwrap().iter().filter(move |it| it["role"] == role)
}

// B89, with fixtures 18, 20, 21 and 29.
#[test]
fn calls_run_though_the_answer_says_that_it_just_stopped() {
    let (one, two) = (call("echo one"), call("echo two"));
    let get_time = "{\"name\":\"get_time\",\"arguments\":\"{}\"}";
    let add = r#"{"name":"add","arguments":"{\"a\":1,\"b\":2}"}"#;
    let without_id = [(get_time, one.as_str()), (add, two.as_str())];
    let read = "{\"name\":\"read\",\"arguments\":{\"filePath\":\"README.md\"}}";
    let exec = "{\"name\":\"exec\",\"arguments\":{\"command\":\"echo one\"}}";
    // Both in the line that ends it, with an index that starts anew.
    let both: Vec<_> = ["echo one", "echo two"]
        .map(|it| json!({"function": {"index": 0, "name": "exec", "arguments": {"command": it}}}))
        .into();
    let message = json!({"role": "assistant", "content": "", "tool_calls": both});
    let at_the_end = json!({"message": message, "done": true, "done_reason": "stop"});
    let fine = json!({"message": {"role": "assistant", "content": "fine"}, "done": true});
    let fine = lines(&format!("{fine}\n"));
    let table = [
        ("openai", head() + &recorded("29-stop-with-tools.sse", &without_id[..1]), 1),
        ("openai", head() + &recorded("18-ollama-no-id-no-index.sse", &without_id), 2),
        ("ollama", lines(&recorded("20-ollama-native.ndjson", &[(read, exec)])), 1),
        ("ollama", lines(&format!("{at_the_end}\n")), 2),
    ];
    for (api, calls, count) in table {
        let last = if api == "openai" { reply("fine") } else { fine.clone() };
        let stub =
            Stub::new(move |n| vec![Act::Say(if n == 0 { calls.clone() } else { last.clone() })]);
        let house = speaking(api, &stub);
        house.job("j", &exec_job(""));
        let (code, run) = house.run("j");
        assert_eq!(code, Some(0), "{run:#}");
        assert_run(
            &run,
            &json!({
                "/state": "succeeded", "/reply": "fine",
                "/tools": {"calls": count, "errors": 0, "denied": 0},
            }),
        );
        let requests = stub.requests();
        assert_eq!(requests.len(), 2);
        let told: Vec<_> = of_role(&requests[1], "tool").map(|it| &it["content"]).collect();
        assert_eq!(told, &[&json!("one\n"), &json!("two\n")][..count], "{:#}", requests[1]);
        if api == "openai" {
            let calls = of_role(&requests[1], "assistant").next().unwrap()["tool_calls"].clone();
            let asked: Vec<_> = calls.as_array().unwrap().iter().map(|it| &it["id"]).collect();
            let answered: Vec<_> =
                of_role(&requests[1], "tool").map(|it| &it["tool_call_id"]).collect();
            assert_eq!(asked, answered);
            assert!(count == 1 || asked[0] != asked[1], "{asked:?}");
        }
    }
}

/// A model that refuses whoever does not give its thoughts back as they were: its second request
/// must hold `expected` as the message of the assistant.
fn strict(calls: String, last: String, expected: Value) -> Stub {
    Stub::answering(move |request| {
        let mut said = of_role(request, "assistant").peekable();
        if said.peek().is_none() {
            return vec![Act::Say(calls.clone())];
        }
        if said.next() == Some(&expected) {
            return vec![Act::Say(last.clone())];
        }
        let words = json!({"error": {"message": "thoughts must be passed back"}});
        vec![Act::Say(refusal("400 Bad Request", &words))]
    })
}

// B90, with fixtures 23, 52 and 53: whoever gets other blocks answers 400.
#[test]
fn thoughts_go_back_as_they_were_and_before_the_call() {
    let input = json!({"command": "echo one"});
    let used = |id: &str| json!({"type": "tool_use", "id": id, "name": "exec", "input": input});
    let by_assistant = |content: Value| json!({"role": "assistant", "content": content});

    // With words, and with some that nobody can read.
    let swaps = [
        ("\"read_file\"", "\"exec\""),
        (r#"{\"path\":\"a.txt\"}"#, r#"{\"command\":\"echo one\"}"#),
    ];
    let worded = recorded("52-anthropic-thinking-signature-tool.sse", &swaps);
    let thoughts = json!([
        {"type": "thinking", "thinking": "Need the file.", "signature": "EqQBCkYIAR"},
        {"type": "redacted_thinking", "data": "b64opaque=="},
        used("toolu_11"),
    ]);
    // Without a word, but signed.
    let start = |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    let wordless = events(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 6}}}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "signature_delta", "signature": "signed"})),
        stop(0),
        start(1, json!({"type": "tool_use", "id": "t", "name": "exec", "input": input})),
        stop(1),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        json!({"type": "message_stop"}),
    ]);
    let signed = json!([{"type": "thinking", "thinking": "", "signature": "signed"}, used("t")]);
    // Beside the text.
    let reasoned = recorded(
        "23-reasoning-content.sse",
        &[(
            "{\"content\":\"\"}",
            &format!(
                "{{\"tool_calls\":[{{\"index\":0,\"id\":\"c\",\"type\":\"function\",\"function\":{}}}]}}",
                call("echo one")
            ),
        )],
    );
    let function: Value = serde_json::from_str(&call("echo one")).unwrap();
    let reasoning = json!({
        "role": "assistant", "content": "4", "reasoning_content": "First, add.",
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    });
    let fine = recorded("50-anthropic-text-ping.sse", &[]);
    let table = [
        ("anthropic", worded, fine.clone(), by_assistant(thoughts)),
        ("anthropic", wordless, fine, by_assistant(signed)),
        ("openai", reasoned, reply("fine").replace(&head(), ""), reasoning),
    ];
    for (api, calls, last, expected) in table {
        let stub = strict(head() + &calls, head() + &last, expected);
        let house = speaking(api, &stub);
        house.job("j", &exec_job(""));
        let (code, run) = house.run("j");
        assert_eq!(code, Some(0), "{run:#}\n{:#}", stub.requests().last().unwrap());
        assert_eq!(stub.requests().len(), 2);
        assert_run(&run, &json!({"/state": "succeeded", "/tools/calls": 1}));
    }
}

// B88, with fixtures 27, 28 and 57: no tool starts, and nothing is asked again.
#[test]
fn half_a_call_starts_nothing_and_is_not_asked_for_again() {
    let openai = |reason: &str| {
        let function = json!({"name": "exec", "arguments": "{\"command\": \"touch mark"});
        let call = json!({"index": 0, "id": "c", "type": "function", "function": function});
        let delta = json!({"content": "so", "tool_calls": [call]});
        let piece = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
        format!("{}data: {piece}\n\ndata: [DONE]\n\n", head())
    };
    let block = json!({"type": "tool_use", "id": "t", "name": "exec", "input": {}});
    let half = json!({"type": "input_json_delta", "partial_json": "{\"command\": \"touch mark"});
    let anthropic = events(&[
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 6}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": half}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}),
        json!({"type": "message_stop"}),
    ]);
    let table = [
        ("openai", openai("length"), "truncated_tool_call"),
        ("openai", openai("tool_calls"), "malformed_tool_call"),
        ("anthropic", head() + &anthropic, "truncated_tool_call"),
    ];
    for (api, answer, kind) in table {
        let stub = Stub::saying(answer);
        let house = speaking(api, &stub);
        house.job("j", &exec_job("").replace("[limits]", "workdir = \"..\"\n[limits]"));
        let (code, run) = house.run("j");
        assert_eq!(code, Some(1), "{run:#}");
        assert_run(
            &run,
            &json!({
                "/state": "failed", "/error/kind": kind, "/reply": null,
                "/tools": {"calls": 0, "errors": 0, "denied": 0},
            }),
        );
        assert_eq!(stub.requests().len(), 1);
        assert_eq!(house.rows("SELECT * FROM v1_tool_calls"), Vec::<Value>::new());
        assert!(!house.path("mark").exists());
    }
}

// B82, with fixture 16: no U+FFFD in any file.
#[test]
fn characters_that_are_cut_between_packets_are_whole_wherever_they_are_kept() {
    let body = recorded("16-utf8-split.sse", &[]).into_bytes();
    let plan: Value = serde_json::from_str(&recorded("16-utf8-split.plan.json", &[])).unwrap();
    let cuts = plan["cuts"].as_array().unwrap().iter();
    let cuts: Vec<_> = cuts.map(|it| usize::try_from(it.as_u64().unwrap()).unwrap()).collect();
    // As recorded, and each byte of its text alone.
    let (first, last) = (cuts[0] - 20, cuts[cuts.len() - 1]);
    for cuts in [cuts, (first..last).collect()] {
        let body = body.clone();
        let stub = Stub::new(move |_| {
            let ends = cuts.iter().copied().chain([body.len()]);
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            let pieces = starts.zip(ends).map(|(from, to)| Act::Bytes(body[from..to].to_vec()));
            std::iter::once(Act::Say(head())).chain(pieces).collect()
        });
        let house = asking(&stub, "", "");
        house.job("j", PLAIN);
        let serve = house.serve();
        let events = house.follow("j");
        assert_eq!(serve.stop().code, Some(0));
        assert_eq!(house.value("SELECT reply FROM v1_runs"), "那个 🙂 é ﷽终");
        let pieces = events.iter().filter(|event| event["phase"] == "update");
        let told: String = pieces.filter_map(|event| event["text"].as_str()).collect();
        assert_eq!(told, "那个 🙂 é ﷽终");
        assert!(!house.files_with("那个 🙂 é ﷽终").is_empty());
        assert_eq!(house.files_with("\u{fffd}"), Vec::<PathBuf>::new());
    }
}
