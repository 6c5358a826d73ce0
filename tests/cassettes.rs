//! `test --record` against a real server, and `test` with that server gone.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use punctual::cassette::Cassette;
use serde_json::{Value, json};
use support::scripts::{FINE, KEY, PLAIN, exec_job, exec_script};
use support::stub::{Act, Stub, call, event, finish, head, refusal, reply, retry_after, text};
use support::{House, Said, asking, scripted, until};

/// A job with two tools, and checks of all kinds that look at the world or the reply.
const JOB: &str = r#"[schedule]
cron = "0 9 * * *"

[agent]
prompt = """
Count the orders of {{ slot.end }}.
Be brief.
"""
tools = ["exec", "write"]
exec_allow = ["echo *", "date >*", "*"]

[limits]
max_tokens = 1000

[[check]]
name = "report is there"
file = "out/report.md"
min_bytes = 4

[[check]]
name = "is a file"
command = ["test", "-f", "out/report.md"]

[[check]]
name = "counts"
regex = "[0-9]+ orders"
"#;

fn both_calls() -> String {
    let one = json!({"index": 0, "id": "a", "type": "function", "function": {
        "name": "exec", "arguments": "{\"command\": \"echo 17; echo '\\\"so\\\" it''s'\"}"}});
    let two = json!({"index": 1, "id": "b", "type": "function", "function": {
        "name": "write", "arguments": "{\"path\": \"out/report.md\", \"content\": \"17\\n\\u00e9\\n\"}"}});
    event(
        &json!({"choices": [{"index": 0, "delta": {"content": "Let me see.\nSoon.", "tool_calls": [one, two]}}]}),
    )
}

/// The model of [`JOB`], as chat completions.
fn openai() -> Stub {
    Stub::new(|n| match n {
        0 => vec![Act::Say(head() + ": hello\n\n" + &both_calls() + &finish("tool_calls"))],
        _ => vec![
            Act::Say(head() + &text("There are 17 ord")),
            Act::Say(text("ers.\nThat is all.") + &finish("stop")),
        ],
    })
}

/// The same as Anthropic messages.
fn anthropic() -> Stub {
    let named =
        |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let start = named(json!({"type": "message_start", "message": {
        "id": "m", "role": "assistant", "content": [],
        "usage": {"input_tokens": 12, "output_tokens": 1, "cache_read_input_tokens": 3}}}));
    let block = move |at: usize, block: Value, delta: Value| {
        [
            named(json!({"type": "content_block_start", "index": at, "content_block": block})),
            named(json!({"type": "content_block_delta", "index": at, "delta": delta})),
            named(json!({"type": "content_block_stop", "index": at})),
        ]
        .concat()
    };
    let end = move |reason: &str| {
        named(json!({"type": "message_delta", "delta": {"stop_reason": reason},
                     "usage": {"output_tokens": 9}}))
            + &named(json!({"type": "message_stop"}))
    };
    let tool = move |at, id: &str, name: &str, arguments: Value| {
        let arguments = arguments.to_string();
        block(
            at,
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": arguments}),
        )
    };
    let thought = block(
        0,
        json!({"type": "thinking", "thinking": "", "signature": ""}),
        json!({"type": "thinking_delta", "thinking": "hm"}),
    );
    let first = head()
        + &start
        + &thought
        + &tool(1, "a", "exec", json!({"command": "echo 17"}))
        + &tool(2, "b", "write", json!({"path": "out/report.md", "content": "17\n\u{e9}\n"}))
        + &end("tool_use");
    let words = json!({"type": "text_delta", "text": "There are 17 orders.\nThat is all."});
    let second =
        head() + &start + &block(0, json!({"type": "text", "text": ""}), words) + &end("end_turn");
    Stub::new(move |n| vec![Act::Say(if n == 0 { first.clone() } else { second.clone() })])
}

/// The same in Ollama's words, which give calls no ids.
fn ollama() -> Stub {
    let head = || head().replace("text/event-stream", "application/x-ndjson");
    let line = |message: Value, more: Value| {
        let mut line = json!({"model": "m", "message": message, "done": false});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("{line}\n")
    };
    let end =
        json!({"done": true, "done_reason": "stop", "prompt_eval_count": 31, "eval_count": 9});
    let tool =
        |name: &str, arguments: Value| json!({"function": {"name": name, "arguments": arguments}});
    let calls = json!([
        tool("exec", json!({"command": "echo 17"})),
        tool("write", json!({"path": "out/report.md", "content": "17\n\u{e9}\n"})),
    ]);
    let first = head()
        + &line(json!({"role": "assistant", "content": "", "tool_calls": calls}), json!({}))
        + &line(json!({"role": "assistant", "content": ""}), end.clone());
    let second = head()
        + &line(json!({"role": "assistant", "content": "There are 17 orders.\n"}), json!({}))
        + &line(json!({"role": "assistant", "content": "That is all."}), end);
    Stub::new(move |n| vec![Act::Say(if n == 0 { first.clone() } else { second.clone() })])
}

/// A house for [`JOB`] whose temporary files are inside it.
fn house(stub: &Stub, api: &str) -> House {
    let house = House::new(&format!(
        "[agents.defaults]\nmodel = \"local/m\"\n[models.providers.local]\napi = \"{api}\"\n\
         base_url = \"{}\"\n",
        stub.url()
    ));
    house.job("j", JOB);
    with_tmp(house)
}

fn with_tmp(house: House) -> House {
    fs::create_dir(house.path("tmp")).unwrap();
    let tmp = house.path("tmp");
    house.with_env("TMPDIR", tmp.to_str().unwrap())
}

fn record(house: &House) {
    let said = house.say(&["test", "j", "--record"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(house.path("jobs/j.cassette").exists());
    assert_eq!(fs::read_dir(house.path("tmp")).unwrap().count(), 0, "its folder is gone");
}

fn cassette(house: &House) -> String {
    fs::read_to_string(house.path("jobs/j.cassette")).unwrap()
}

/// What was said, without what is never the same.
fn shown(house: &House, said: &Said) -> String {
    let home = house.path("config.toml").parent().unwrap().display().to_string();
    let text = format!("exit code {:?}\n{}{}", said.code.unwrap(), said.stdout, said.stderr);
    text.replace(&home, "[house]")
}

#[test]
fn a_recorded_run_is_the_same_with_its_server_gone() {
    for (api, stub) in [("openai", openai()), ("anthropic", anthropic()), ("ollama", ollama())] {
        let house = house(&stub, api);
        record(&house);
        assert_eq!(stub.requests().len(), 2, "{api}");
        stub.close_door();
        let said = house.say(&["test", "j"]);
        assert_eq!(said.code, Some(0), "{api}: {said:?}\n{}", cassette(&house));
        let words = "j: as recorded (2 requests, 2 tool calls, 3 checks; ";
        assert!(said.stdout.starts_with(words), "{said:?}");
        assert_eq!(fs::read_dir(house.path("tmp")).unwrap().count(), 0);
        // Neither moves a schedule, nor makes a state folder or a run that anybody sees.
        assert!(!house.path("state").exists());
    }
}

#[test]
fn a_cassette_can_be_read_by_people() {
    let stub = openai();
    let house = house(&stub, "openai");
    record(&house);
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[time]");
    settings.bind(|| insta::assert_snapshot!("cassette", cassette(&house)));
    // The same again is the same file, but for its times.
    let timeless = |text: String| {
        let lines = text.lines().map(|line| {
            let line = line.split("2026-").next().unwrap();
            line.split("2027-").next().unwrap().to_owned()
        });
        lines.collect::<Vec<_>>()
    };
    let first = timeless(cassette(&house));
    let again = openai();
    let config = fs::read_to_string(house.path("config.toml")).unwrap();
    let (before, _) = config.split_once("base_url").unwrap();
    house.write("config.toml", &format!("{before}base_url = \"{}\"\n", again.url()));
    record(&house);
    assert_eq!(timeless(cassette(&house)), first);
}

#[test]
fn every_change_shows_and_says_what_it_is() {
    let stub = openai();
    let house = house(&stub, "openai");
    record(&house);
    stub.close_door();
    let job = |from: &str, to: &str| {
        assert!(JOB.contains(from), "{from}");
        (JOB.replace(from, to), None)
    };
    let taped = |from: &str, to: &str| {
        let text = cassette(&house);
        assert!(text.contains(from), "{from}");
        (JOB.to_owned(), Some(text.replace(from, to)))
    };
    let table = [
        ("prompt", job("Be brief", "Be short")),
        ("tools", job("[\"exec\", \"write\"]", "[\"write\"]")),
        ("exec_allow", job("[\"echo *\", \"date >*\", \"*\"]", "[\"ls *\"]")),
        ("check_regex", job("[0-9]+ orders", "[0-9]+ refunds")),
        ("check_min_bytes", job("min_bytes = 4", "min_bytes = 400")),
        ("check_unknown_file", job("file = \"out/report.md\"", "file = \"out/summary.md\"")),
        ("check_unknown_command", job("\"-f\"", "\"-s\"")),
        ("check_gone", job("[[check]]\nname = \"counts\"\nregex = \"[0-9]+ orders\"\n", "")),
        ("max_tokens", job("max_tokens = 1000", "max_tokens = 10")),
        ("max_turns", job("max_tokens = 1000", "max_turns = 1")),
        ("reply", taped("\"content\":\"There are 17", "\"content\":\"There are 18")),
        ("recorded_call", taped("\\\"echo 17;", "\\\"echo 18;")),
        ("recorded_usage", taped("\"completion_tokens\":4", "\"completion_tokens\":5")),
        ("broken_frame", taped("\"finish_reason\":\"stop\"", "\"finish_reason\":\"length\"")),
    ];
    let kept = cassette(&house);
    for (name, (job, taped)) in table {
        house.job("j", &job);
        house.write("jobs/j.cassette", taped.as_ref().unwrap_or(&kept));
        let said = house.say(&["test", "j"]);
        assert_eq!(said.code, Some(1), "{name}: {said:?}");
        let mut settings = insta::Settings::clone_current();
        settings.add_filter(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[time]");
        settings.bind(|| insta::assert_snapshot!(format!("change_{name}"), shown(&house, &said)));
        // It is a test: it never makes itself right.
        assert_eq!(cassette(&house), taped.unwrap_or_else(|| kept.clone()), "{name}");
    }
    house.job("j", JOB);
    house.write("jobs/j.cassette", &kept);
    assert_eq!(house.say(&["test", "j"]).code, Some(0));
    assert_eq!(stub.requests().len(), 2);
}

#[test]
fn a_replay_touches_nothing_and_needs_no_secret() {
    let stub = Stub::new(|n| match n {
        0 => {
            let arguments = json!({"command": "echo $TOKEN; date >> mark"}).to_string();
            vec![Act::Say(head() + &call("exec", &arguments) + &finish("tool_calls"))]
        }
        1 => {
            let arguments = json!({"path": "made.md", "content": "made"}).to_string();
            vec![Act::Say(head() + &call("write", &arguments) + &finish("tool_calls"))]
        }
        _ => vec![Act::Say(reply("fine"))],
    });
    let job = exec_job("").replace("[\"exec\"]", "[\"exec\", \"write\"]\nworkdir = \"../work\"")
        + "[env]\nsecret = { TOKEN = { env = \"HOUSE_TOKEN\" } }\n\
           [[check]]\nname = \"c\"\ncommand = [\"sh\", \"-c\", \"date >> checked\"]\n\
           [[check]]\nname = \"f\"\nfile = \"made.md\"\n";
    let config = "api_key_env = \"MODEL_KEY\"";
    let house = with_tmp(asking(&stub, config, ""))
        .with_secret("MODEL_KEY", KEY)
        .with_secret("HOUSE_TOKEN", "hunter2-correct-horse");
    fs::create_dir(house.path("work")).unwrap();
    house.job("j", &job);
    record(&house);
    stub.close_door();
    let read = |name: &str| fs::read_to_string(house.path(name)).unwrap_or_default();
    assert_eq!([read("work/mark"), read("work/checked")].map(|it| it.lines().count()), [1, 1]);
    assert!(house.path("work/made.md").exists());
    assert_eq!(house.files_with("hunter2"), Vec::<std::path::PathBuf>::new());
    assert!(cassette(&house).contains("[secret TOKEN]"), "{}", cassette(&house));

    // Elsewhere: no key, no secret, an empty folder.
    let elsewhere = with_tmp(asking(&stub, config, ""));
    fs::create_dir(elsewhere.path("work")).unwrap();
    elsewhere.job("j", &job);
    elsewhere.write("jobs/j.cassette", &cassette(&house));
    for house in [&house, &elsewhere] {
        let said = house.say(&["test", "j"]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    assert_eq!([read("work/mark"), read("work/checked")].map(|it| it.lines().count()), [1, 1]);
    assert_eq!(fs::read_dir(elsewhere.path("work")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(elsewhere.path("tmp")).unwrap().count(), 0);
}

#[test]
fn a_damaged_cassette_is_one_clear_error() {
    let stub = openai();
    let house = house(&stub, "openai");
    record(&house);
    let whole = cassette(&house);
    let middle = whole.len() / 2;
    let other = whole.replace("job = \"j\"", "job = \"other\"");
    let table = [
        ("cut", whole[..middle].to_owned()),
        ("cut_at_the_end", whole.trim_end().rsplit_once('\n').unwrap().0.to_owned()),
        ("empty", String::new()),
        ("nonsense", "no cassette at all".to_owned()),
        ("no_version", whole.replace("version = 1\n", "")),
        ("newer", whole.replace("version = 1\n", "version = 2\n[from_tomorrow]\n")),
        ("of_another", other),
        ("unknown_key", whole.replace("kept = 0\n", "kept = 0\nfrom_tomorrow = 1\n")),
        ("call_lost", whole.replacen("[[call]]", "[[file]]", 1)),
        ("wrong_type", whole.replace("state = \"succeeded\"", "state = \"fine\"")),
    ];
    let mut all = Vec::new();
    for (name, text) in table {
        house.write("jobs/j.cassette", &text);
        let said = house.say(&["test", "j"]);
        assert_eq!(said.code, Some(2), "{name}: {said:?}");
        assert_eq!(said.stderr.lines().count(), 1, "{name}: {said:?}");
        all.push(format!("{name}: {}", shown(&house, &said)));
    }
    insta::assert_snapshot!("damaged", all.concat());

    // However it is cut, it is never taken for a whole one.
    let (path, id) = (house.path("jobs/j.cassette"), "j".parse().unwrap());
    let lines: Vec<_> = whole.lines().collect();
    for count in 0..lines.len() {
        house.write("jobs/j.cassette", &lines[..count].join("\n"));
        assert!(Cassette::read(&path, &id).is_err(), "after {count} lines");
    }
    house.write("jobs/j.cassette", &whole);
    assert!(Cassette::read(&path, &id).unwrap().is_some());
}

#[test]
fn no_secret_is_kept() {
    let echo = json!({"error": {"message": format!("bad key {KEY} at /v1?key={KEY}")}});
    let stub = Stub::new(move |n| match n {
        0 => vec![Act::Say(refusal("401 Unauthorized", &echo))],
        1 => {
            let thought = event(&json!({
                "choices": [{"index": 0, "delta": {"reasoning_content": format!("it is {KEY}")}}],
            }));
            let call = call("exec", &json!({"command": format!("echo {KEY}; env")}).to_string());
            vec![Act::Say(head() + &thought + &call + &finish("tool_calls"))]
        }
        _ => vec![Act::Say(reply(&format!("the key is {KEY}, keep it")))],
    });
    let keys = "[[models.providers.local.auth]]\nname = \"first\"\napi_key_env = \"MODEL_KEY\"\n\
                [[models.providers.local.auth]]\nname = \"second\"\napi_key_env = \"OTHER_KEY\"\n";
    let house = with_tmp(asking(&stub, "", keys))
        .with_secret("MODEL_KEY", KEY)
        .with_secret("OTHER_KEY", "pk-otter-9876543210");
    house.job("j", &exec_job(""));
    record(&house);
    assert_eq!(stub.requests().len(), 3);
    for secret in [KEY, &KEY[..8], "pk-otter-9876543210", "pk-otter"] {
        assert_eq!(house.files_with(secret), Vec::<std::path::PathBuf>::new());
    }
    assert!(!cassette(&house).to_lowercase().contains("bearer"));
    stub.close_door();
    let said = house.say(&["test", "j"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn a_secret_in_pieces_is_withheld_with_all_the_rest() {
    let thought = |words: &str| {
        event(&json!({"choices": [{"index": 0, "delta": {"reasoning_content": words}}]}))
    };
    let pieces: [(&str, Vec<String>); 3] = [
        (
            "reply",
            vec![text("the key is sk-zeb"), text("ra-0123456789-abcdefghij"), finish("stop")],
        ),
        (
            "thought",
            vec![thought("sk-ze"), thought("bra-0123456789"), text("fine"), finish("stop")],
        ),
        ("across", vec![thought("it is sk-zeb"), text("ra-0123456789-abcdefghij"), finish("stop")]),
    ];
    for (name, pieces) in pieces {
        let body = pieces.concat();
        let stub = Stub::saying(head() + &body);
        let house = with_tmp(asking(&stub, "api_key_env = \"MODEL_KEY\"", ""))
            .with_secret("MODEL_KEY", KEY);
        house.job("j", PLAIN);
        let said = house.say(&["test", "j", "--record"]);
        let why = "nothing is kept: the answer to request 1 spells out a secret in pieces";
        assert_eq!((said.code, said.stderr.contains(why)), (Some(1), true), "{name}: {said:?}");
        assert!(!house.path("jobs/j.cassette").exists(), "{name}");
    }
}

#[test]
fn what_failed_on_the_way_is_played_again_without_its_waits() {
    let stub = Stub::new(|n| match n {
        0 => {
            let words = json!({"error": {"message": "slow down"}});
            vec![Act::Say(retry_after("3", &refusal("429 Too Many Requests", &words)))]
        }
        1 => vec![Act::Say(head() + &text("so f")), Act::Reset],
        2 => vec![Act::Say(head() + &text("half an answer"))],
        _ => vec![Act::Say(reply("fine"))],
    });
    let house = with_tmp(asking(&stub, "", ""));
    let job = PLAIN.replace("prompt", "fallbacks = [\"local/n\"]\nprompt");
    house.job("j", &job);
    record(&house);
    assert_eq!(stub.requests().len(), 4);
    stub.close_door();
    let said = house.say(&["test", "j", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.took < Duration::from_secs(5), "the waits alone took longer: {said:?}");
    assert_eq!(said.json()["tests"][0]["result"], "same");
}

#[test]
fn a_run_that_fails_or_is_cut_leaves_the_cassette_as_it_was() {
    let stub = Stub::new(|n| match n {
        0 | 4 => vec![Act::Say(reply("fine"))],
        1 => vec![Act::Say(refusal("401 Unauthorized", &json!({"error": {"message": "no"}})))],
        2 => vec![Act::Say(reply("not what is wanted"))],
        _ => vec![Act::Hold],
    });
    let house = with_tmp(asking(&stub, "timeout = \"1s\"", ""));
    let job = PLAIN.replace("prompt", "fallbacks = [\"local/n\"]\nprompt")
        + "[[check]]\nname = \"fine\"\nregex = \"^fine\"\n";
    house.job("j", &job);
    record(&house);
    let kept = cassette(&house);
    let said = |words: &str, code: i32| {
        let said = house.say(&["test", "j", "--record"]);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.stderr.contains(words), "{words}: {said:?}");
        assert_eq!(cassette(&house), kept);
        assert_eq!(fs::read_dir(house.path("tmp")).unwrap().count(), 0);
    };
    house.job("j", &job.replace("fallbacks = [\"local/n\"]", "fallbacks = []"));
    said("auth: no", 1);
    said("check_failed: fine: the reply does not match", 1);
    house.job("j", &job);
    // The first model is silent, the second answers: a silence cannot be played again.
    said("the answer to request 1 was cut by a limit", 1);
    assert_eq!(stub.requests().len(), 5);
}

#[test]
fn a_recording_can_be_cancelled() {
    let house = with_tmp(scripted(&exec_script("echo begun >&2; sleep 61"), ""));
    house.job("j", &exec_job(""));
    let recording = house.start(&["test", "j", "--record"]);
    until("its command runs", || house.living("sleep 61") == 1);
    recording.signal(Signal::SIGINT);
    let said = recording.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.stderr.contains("nothing is kept"), "{said:?}");
    house.assert_nothing_is_left();
    assert!(!house.path("jobs/j.cassette").exists());
    assert_eq!(fs::read_dir(house.path("tmp")).unwrap().count(), 0);
}

#[test]
fn what_run_refuses_is_not_recorded_either() {
    let house = with_tmp(scripted(&exec_script("sleep 61"), ""));
    house.job("j", &exec_job(""));
    house.job("off", &format!("enabled = false\n{}", exec_job("")));
    house.job("held", &exec_job(""));
    let serve = house.serve();
    assert_eq!(house.say(&["pause", "held", "--reason", "move"]).code, Some(0));
    house.detach("j");
    until("it runs", || house.living("sleep 61") == 1);
    let refused = |arguments: &[&str], words: &str| {
        let said = house.say(&[&["test", "--record"], arguments].concat());
        assert_eq!(said.code, Some(3), "{said:?}");
        assert!(said.stderr.contains(words), "{said:?}");
    };
    refused(&["off"], "`off` is disabled; --force records it all the same");
    refused(&["held"], "`held` is paused (move");
    refused(&["j", "--force"], "`j` is already running");
    assert_eq!(house.say(&["cancel", "j"]).code, Some(0));
    until("it has ended", || house.living("sleep 61") == 0);
    house.write("model.toml", FINE);
    for job in ["off", "held"] {
        assert_eq!(house.say(&["test", job, "--record", "--force"]).code, Some(0));
    }
    // Whoever serves has seen none of it.
    assert_eq!(house.value("SELECT count(*) FROM v1_runs"), 1);
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn all_cassettes_are_tested_at_once() {
    let house = with_tmp(scripted(FINE, ""));
    let none = house.say(&["test"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    for job in ["j", "k", "without"] {
        house.job(job, PLAIN);
    }
    for job in ["j", "k"] {
        assert_eq!(house.say(&["test", job, "--record"]).code, Some(0));
    }
    let last_line = |said: &Said| said.stdout.lines().last().unwrap_or_default().to_owned();
    let said = house.say(&["test"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(last_line(&said), "2 jobs: 2 as recorded, 0 different, 0 not tested");
    house.job("k", &PLAIN.replace("go", "stop"));
    let said = house.say(&["test"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(last_line(&said), "2 jobs: 1 as recorded, 1 different, 0 not tested");
    fs::remove_file(house.path("jobs/j.toml")).unwrap();
    let said = house.say(&["test"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert_eq!(last_line(&said), "2 jobs: 0 as recorded, 1 different, 1 not tested");
    assert_eq!(said.stderr, "error: j: there is no job `j`: its cassette is left over\n");

    let json = house.say(&["test", "--json"]).json();
    let keys: Vec<_> = json["tests"][1].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["job", "cassette", "result", "error", "differences", "duration_ms"]);
    let difference = &json["tests"][1]["differences"][0];
    let keys: Vec<_> = difference.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["what", "words", "expected", "found", "diff"]);
    assert_eq!(difference["what"], "request 1");

    let unknown = house.say(&["test", "kk"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("there is no job or run `kk`"), "{unknown:?}");
    let without = house.say(&["test", "without"]);
    assert_eq!(without.code, Some(2));
    assert!(without.stderr.contains("`punctual test without --record` makes it"), "{without:?}");
}

#[test]
fn a_slot_is_recorded_and_played_again_at_its_time() {
    let house = with_tmp(scripted("[[rule]]\nstep = [{ text = \"{{ prompt }}\" }]\n", ""));
    let job = "[schedule]\ncron = \"0 9 * * *\"\n[agent]\n\
               prompt = \"{{ slot.start }} {{ slot.end }} {{ due_at }}\"\ntools = []\n";
    house.job("j", job);
    let said = house.say(&["test", "j", "--record", "--slot", "2026-05-02T09:00"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let times = ["01", "02", "02"].map(|day| format!("2026-05-{day}T09:00:00.000Z"));
    assert_eq!(said.stdout.trim(), times.join(" "));
    assert_eq!(house.say(&["test", "j"]).code, Some(0));
    let wrong = house.say(&["test", "j", "--record", "--slot", "2026-05-02T10:00"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[test]
fn what_was_said_before_is_on_the_cassette() {
    let house = with_tmp(scripted("[[rule]]\nstep = [{ text = \"{{ prompt }}\" }]\n", ""));
    let gate = "[gate]\ncommand = [\"sh\", \"-c\", \"date >> ../asked; echo 3 rows\"]\n";
    let job = |prompt: &str| {
        format!(
            "{}{gate}",
            PLAIN.replace("[agent]", "[agent]\nworkdir = \"../work\"").replace("\"go\"", prompt)
        )
    };
    fs::create_dir(house.path("work")).unwrap();
    house.job("other", &PLAIN.replace("go", "from the other"));
    assert_eq!(house.run("other").0, Some(0));
    house.job("j", &job("\"{{ jobs.other.reply }}, {{ gate.output }}\""));
    record(&house);
    let asked = || fs::read_to_string(house.path("asked")).unwrap().lines().count();
    assert_eq!(asked(), 1);
    assert!(cassette(&house).contains("reply = \"from the other, 3 rows\""));
    // Without a history, and without asking the gate.
    fs::remove_dir_all(house.path("state")).unwrap();
    let said = house.say(&["test", "j"]);
    assert_eq!((said.code, asked()), (Some(0), 1), "{said:?}");
    house.job("j", &job("\"{{ jobs.other.reply }}\""));
    let said = house.say(&["test", "j"]);
    assert_eq!((said.code, asked()), (Some(1), 1), "{said:?}");

    let no = "[gate]\ncommand = [\"sh\", \"-c\", \"exit 10\"]\n";
    house.job("no", &format!("{PLAIN}{no}"));
    let said = house.say(&["test", "no", "--record"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("nothing is kept"), "{said:?}");
    house.job("command", "[command]\nargv = [\"true\"]\n");
    let said = house.say(&["test", "command", "--record"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("it asks no model"), "{said:?}");
}
