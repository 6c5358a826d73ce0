//! Conversations that become too long for their model, against a server that says so.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::run_object::assert_run;
use support::stub::{Act, Stub, call, event, finish, head, refusal, reply, text};
use support::{House, asking};

/// A model of a small window.
const SMALL: &str = "[models.providers.local.models.m]\ncontext_window = 8000\n";

/// Whether a summary is asked for.
fn wants_summary(request: &Value) -> bool {
    system(request).starts_with("You keep the record")
}

fn system(request: &Value) -> &str {
    request["messages"][0]["content"].as_str().unwrap()
}

fn messages(request: &Value) -> &[Value] {
    request["messages"].as_array().unwrap()
}

fn size(request: &Value) -> usize {
    request["messages"].to_string().len()
}

fn is_result(message: &Value) -> bool {
    message["role"] == "tool"
}

/// The results of tools in a request.
fn results(request: &Value) -> usize {
    messages(request).iter().filter(|it| is_result(it)).count()
}

/// The call of the `n`th step: it reads the file from a line on, a piece of it.
fn step(n: usize) -> Vec<Act> {
    let arguments = json!({"path": "words.txt", "offset": n * 100 + 1, "limit": 100});
    vec![Act::Say(head() + &call("read", &arguments.to_string()) + &finish("tool_calls"))]
}

/// A house whose file has 100 words, each in its line, for each of `steps`.
fn house(stub: &Stub, more: &str, steps: usize, limits: &str) -> House {
    let house = asking(stub, "", more);
    let words: Vec<_> = (0..steps * 100).map(|n| format!("step{} word\n", n / 100)).collect();
    let words = words.concat();
    house.write("words.txt", &words);
    house.job(
        "j",
        &format!(
            "[agent]\nprompt = \"count the zebras\"\ntools = [\"read\"]\nworkdir = \"..\"\n\
             [limits]\nmax_turns = 99\n{limits}\n"
        ),
    );
    house
}

/// What every request has to be, whatever was shortened: the prompt is in it, and each result
/// follows its call.
fn assert_whole(request: &Value) {
    let all = messages(request);
    let prompts = all.iter().filter(|it| it.to_string().contains("count the zebras")).count();
    assert_eq!(prompts, 1, "{request:#}");
    for pair in all.windows(2) {
        let calls = pair[0].get("tool_calls").is_some();
        assert_eq!(calls, is_result(&pair[1]), "{:#} then {:#}", pair[0], pair[1]);
    }
}

fn compactions(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|it| it["stream"] == "compaction").collect()
}

fn transcript(house: &House, run: &Value) -> Vec<Value> {
    let session = run["session_id"].as_str().unwrap();
    let text = std::fs::read_to_string(house.path(&format!("state/sessions/{session}.jsonl")));
    text.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A model that goes `steps` steps and then answers; its summaries say that they are.
fn walking(steps: usize) -> Stub {
    let done = std::sync::atomic::AtomicUsize::new(0);
    Stub::answering(move |request| {
        if wants_summary(request) {
            return vec![Act::Say(reply("SO FAR: no zebra"))];
        }
        match done.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            n if n < steps => step(n),
            _ => vec![Act::Say(reply("no zebras"))],
        }
    })
}

// semantics §7: context tokens > window − reserve; keeps what is recent; a call and its result are
// never split; it emits `compaction` events. limits.max_turns counts answers, and a summary is none.
// It needs no lane of its own, with a width of 1 everywhere.
#[test]
fn a_long_tool_loop_is_summarised_on_the_way() {
    let stub = walking(20);
    let lanes = "[scheduler]\nmax_concurrent_runs = 1\n[lanes]\nw = 1\n";
    let house = house(&stub, &format!("{SMALL}{lanes}"), 20, "");
    let job = std::fs::read_to_string(house.path("jobs/j.toml")).unwrap();
    house.job("j", &format!("lane = \"w\"\n{}", job.replace("max_turns = 99", "max_turns = 21")));
    let serve = house.serve();
    let events = house.follow("j");
    assert_eq!(serve.stop().code, Some(0));
    let run = house.say(&["show", "j", "--json"]).json();
    let run_id = house.value("SELECT run_id FROM v1_runs");
    let run = if run["run_id"].is_null() {
        house.say(&["show", run_id.as_str().unwrap(), "--json"]).json()
    } else {
        run
    };
    assert_run(
        &run,
        &json!({"/state": "succeeded", "/reply": "no zebras", "/tools/calls": 20, "/tools/errors": 0}),
    );
    let requests = stub.requests();
    let (summaries, turns): (Vec<_>, Vec<_>) = requests.iter().partition(|it| wants_summary(it));
    assert!((2..8).contains(&summaries.len()), "{} summaries", summaries.len());
    assert_eq!(turns.len(), 21);
    for request in &turns {
        assert_whole(request);
    }
    // Never more than the window, and after a summary only it and what came last.
    assert!(
        turns.iter().all(|it| size(it) < 8000 * 4),
        "{:?}",
        turns.iter().map(|it| size(it)).collect::<Vec<_>>()
    );
    let last = turns.last().unwrap();
    let prompt = messages(last)[1]["content"].as_str().unwrap();
    assert!(prompt.starts_with("count the zebras\n\n[") && prompt.contains("SO FAR: no zebra"));
    assert!((1..10).contains(&results(last)), "{}", results(last));
    // What is summarised is told, with the summary before it.
    let told = messages(summaries[1])[1]["content"].as_str().unwrap();
    assert!(told.contains("<task>\ncount the zebras\n</task>"), "{told}");
    assert!(told.contains("SO FAR: no zebra") && told.contains("read gave:"), "{told}");
    assert!(summaries[1].get("tools").is_none());

    let told = compactions(&events);
    let phases: Vec<_> = told.iter().map(|it| it["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["start", "end"].repeat(summaries.len()));
    assert_eq!(told[0]["cause"], "threshold");
    assert!(told[1]["tokens_before"].as_u64() > told[1]["tokens_after"].as_u64());
    assert!(
        !events.iter().any(|it| it["stream"] == "assistant" && it.to_string().contains("SO FAR"))
    );

    let entries = transcript(&house, &run);
    let compaction = entries.iter().rfind(|it| it["type"] == "compaction").unwrap();
    assert!(compaction["summary"].as_str().unwrap().contains("SO FAR: no zebra"));
    assert_eq!(compaction["tokensBefore"], told[told.len() - 2]["tokens"]);
    let first_kept = entries.iter().find(|it| it["id"] == compaction["firstKeptId"]).unwrap();
    assert_eq!(first_kept["message"]["role"], "assistant");
}

fn too_long() -> Vec<Act> {
    let error = json!({"error": {
        "message": "This model's maximum context length is 4000 tokens.",
        "type": "invalid_request_error", "code": "context_length_exceeded",
    }});
    vec![Act::Say(refusal("400 Bad Request", &error))]
}

// semantics §7: and after a provider's overflow error; a retry starts with empty buffers, so that
// nothing is said twice.
#[test]
fn what_a_provider_finds_too_long_is_summarised_and_asked_again() {
    let stub = Stub::answering(|request| match results(request) {
        _ if wants_summary(request) => vec![Act::Say(reply("SO FAR: no zebra"))],
        n if messages(request)[1].to_string().contains("SO FAR") => {
            assert!(n < 6);
            vec![Act::Say(reply("no zebras"))]
        }
        6 => {
            // In the middle of an answer.
            let error =
                event(&json!({"error": {"message": "context length exceeded", "code": 400}}));
            vec![Act::Say(head() + &text("there are") + &error)]
        }
        n => step(n),
    });
    let house = house(&stub, "", 6, "");
    let serve = house.serve();
    let events = house.follow("j");
    assert_eq!(serve.stop().code, Some(0));
    let told = compactions(&events);
    assert_eq!(told.len(), 2, "{told:#?}");
    assert_eq!((&told[0]["cause"], &told[1]["phase"]), (&json!("overflow"), &json!("end")));
    let runs = house.rows("SELECT state, reply, partial_text FROM v1_runs");
    assert_eq!(runs, [json!(["succeeded", "no zebras", null])]);
    // It is one attempt, and what it used is all on its bill.
    assert_eq!(
        house.rows("SELECT n, state, output_tokens FROM v1_attempts"),
        [json!([1, "succeeded", 8 * 4])]
    );
}

// semantics §7: at most 3 per overflow, then oversized tool results are cut, then a clear error.
#[test]
fn what_stays_too_long_is_summarised_three_times_then_cut_then_an_error() {
    let steps = 50;
    let stub = Stub::answering(move |request| match results(request) {
        _ if wants_summary(request) => vec![Act::Say(reply("SO FAR: no zebra"))],
        n if n < steps && !request.to_string().contains("SO FAR") => step(n),
        _ => too_long(),
    });
    let large = "[models.providers.local.models.m]\ncontext_window = 200000\n";
    let house = house(&stub, large, steps, "max_tokens = 100000000");
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/error/kind": "context_overflow", "/error/retryable": false,
            "/error/message": "This model's maximum context length is 4000 tokens. (after 3 summaries \
                               and with the results of tools cut)",
        }),
    );
    let requests = stub.requests();
    let turns: Vec<_> = requests.iter().skip(steps).collect();
    let summaries = turns.iter().filter(|it| wants_summary(it)).count();
    assert_eq!((summaries, turns.len()), (3, 8));
    turns.iter().filter(|it| !wants_summary(it)).for_each(|it| assert_whole(it));
    let (cut, whole) = (turns[7], turns[6]);
    assert!(cut.to_string().contains("characters cut") && size(cut) < size(whole));
}

#[test]
fn a_summary_that_fails_is_followed_by_the_next_step_and_not_by_another() {
    // Nothing can be summarised; what is too long is cut.
    let stub = Stub::answering(|request| match results(request) {
        _ if wants_summary(request) => vec![Act::Say(refusal("500 Oh", &json!({"error": "no"})))],
        6 if !request.to_string().contains("characters cut") => too_long(),
        6 => vec![Act::Say(reply("no zebras"))],
        n => step(n),
    });
    let house = house(&stub, "[models.providers.local.models.m]\ncontext_window = 64000\n", 6, "");
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("no zebras")), "{run:#}");
    assert_eq!(stub.requests().iter().filter(|it| wants_summary(it)).count(), 1);

    // Before a request, what fails is no reason not to ask.
    let stub = Stub::answering(|request| match results(request) {
        _ if wants_summary(request) => vec![Act::Say(reply(" "))],
        14 => vec![Act::Say(reply("no zebras"))],
        n => step(n),
    });
    let house = self::house(&stub, SMALL, 14, "");
    let serve = house.serve();
    let events = house.follow("j");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.value("SELECT reply FROM v1_runs"), "no zebras");
    let told = compactions(&events);
    assert!((2..14).contains(&told.len()), "{told:#?}");
    assert_eq!(told[1]["phase"], "error");
}

#[test]
fn a_fallback_of_a_smaller_window_summarises_before_it_is_asked() {
    let stub = Stub::answering(|request| match (request["model"].as_str(), results(request)) {
        (Some("m"), n) if n < 12 => step(n),
        (Some("m"), _) => {
            vec![Act::Say(refusal("404 Not Found", &json!({"error": "model not found"})))]
        }
        _ if wants_summary(request) => vec![Act::Say(reply("SO FAR: no zebra"))],
        _ => vec![Act::Say(reply("no zebras"))],
    });
    let more = "[models.providers.local.models.m]\ncontext_window = 64000\n\
                [models.providers.local.models.small]\ncontext_window = 6000\n";
    let house = house(&stub, more, 12, "");
    let job = std::fs::read_to_string(house.path("jobs/j.toml")).unwrap();
    house.job("j", &job.replace("[agent]", "[agent]\nfallbacks = [\"local/small\"]"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("no zebras")), "{run:#}");
    let requests = stub.requests();
    let of_small: Vec<_> = requests.iter().filter(|it| it["model"] == "small").collect();
    assert_eq!(of_small.len(), 2);
    assert!(wants_summary(of_small[0]) && !wants_summary(of_small[1]));
    assert!(of_small.iter().all(|it| size(it) < 6000 * 4));
    assert_whole(of_small[1]);
}

#[test]
fn the_limits_of_a_run_hold_while_it_is_summarised() {
    // semantics §2: the deadline.
    let play = |request: &Value| match results(request) {
        _ if wants_summary(request) => vec![Act::Say(head() + &text("so")), Act::Hold],
        n => step(n),
    };
    let stub = Stub::answering(play);
    let house = house(&stub, SMALL, 20, "timeout = \"4s\"");
    let said = house.say(&["run", "j", "--json"]);
    assert_eq!(said.code, Some(124), "{said:?}");
    assert!(said.took < Duration::from_secs(15), "{:?}", said.took);
    assert_run(&said.json(), &json!({"/error/limit": "deadline", "/error/phase": "model_call"}));
    house.assert_nothing_is_left();

    // semantics §3: the idle window, which each piece of the summary restarts.
    let piece = || [Act::Say(text("so ")), Act::Wait(Duration::from_millis(700))];
    let stub = Stub::answering(move |request| match results(request) {
        _ if wants_summary(request) => {
            let pieces = (0..4).flat_map(|_| piece());
            std::iter::once(Act::Say(head()))
                .chain(pieces)
                .chain([Act::Say(finish("stop"))])
                .collect()
        }
        _ if request.to_string().contains("so so so so") => vec![Act::Say(reply("no zebras"))],
        n => step(n),
    });
    let house = self::house(&stub, SMALL, 20, "");
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    let timeout = "api = \"openai\"\ntimeout = \"2s\"";
    house.write("config.toml", &config.replace("api = \"openai\"", timeout));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("no zebras")), "{run:#}");

    // The budget.
    let stub = Stub::answering(|request| match results(request) {
        _ if wants_summary(request) => {
            let usage = json!({"prompt_tokens": 90_000, "completion_tokens": 1});
            let end = finish("stop").replace("data: [DONE]\n\n", "");
            let usage = event(&json!({"choices": [], "usage": usage}));
            vec![Act::Say(head() + &text("so far") + &end + &usage + "data: [DONE]\n\n")]
        }
        n => step(n),
    });
    let house = self::house(&stub, SMALL, 20, "max_tokens = 50000");
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(&run, &json!({"/error/kind": "budget", "/usage/output_tokens": 29}));
}

#[test]
fn a_run_that_was_summarised_can_be_played_again() {
    let stub = walking(12)
        .with_window("/v1/models", json!({"data": [{"id": "m", "max_model_len": 8000}]}));
    let house = house(&stub, "", 12, "");
    let said = house.say(&["test", "j", "--record"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let asked = stub.requests();
    assert!(asked.iter().any(wants_summary));
    stub.close_door();
    let said = house.say(&["test", "j"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(stub.requests().len(), asked.len());
}

// semantics §7: an unknown window is the provider's.
#[test]
fn a_server_is_asked_for_a_window_that_nobody_has_written() {
    let properties = json!({"default_generation_settings": {"n_ctx": 8000}});
    let stub = walking(12).with_window("/props", properties);
    let unknown = house(&stub, "", 12, "");
    let (code, run) = unknown.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("no zebras")), "{run:#}");
    assert!(stub.requests().iter().any(wants_summary));
    assert_eq!(stub.window_questions(), 2);

    let stub = walking(1);
    let known = house(&stub, SMALL, 1, "");
    assert_eq!(known.run("j").0, Some(0));
    assert_eq!(stub.window_questions(), 0);
    // Where it is not told, it is the usual one.
    let stub = walking(12);
    let untold = house(&stub, "", 12, "");
    assert_eq!(untold.run("j").0, Some(0));
    assert!(!stub.requests().iter().any(wants_summary));
    assert_eq!(stub.window_questions(), 2);

    // Ollama has to be told what it is counted with: what is longer loses its beginning.
    let line = json!({"message": {"content": "fine"}, "done": true, "done_reason": "stop"});
    let ollama = Stub::saying(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n{line}\n"
    ))
    .with_window("/v1/api/show", json!({"parameters": "temperature 1\nnum_ctx 7000"}));
    let house = house(&ollama, "", 1, "");
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &config.replace("\"openai\"", "\"ollama\""));
    assert_eq!(house.run("j").0, Some(0));
    let request = &ollama.requests()[0];
    assert_eq!(request["options"]["num_ctx"], 7000, "{request:#}");
    assert_eq!((&request["truncate"], &request["shift"]), (&json!(false), &json!(false)));
}
