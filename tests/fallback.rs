//! What one model cannot, its next request, its next key or the next model may.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use support::run_object::assert_run;
use support::scripts::{PLAIN, by_hand};
use support::stub::{Act, Stub, call, event, finish, head, refusal, reply, retry_after, text};
use support::{House, until};

/// A house with a provider for each name; the first answers, the others are its fallbacks.
fn house(providers: &[(&str, &Stub, &str)]) -> House {
    let model = |(name, _, _): &(&str, &Stub, &str)| format!("\"{name}/m\"");
    let fallbacks: Vec<_> = providers[1..].iter().map(model).collect();
    let mut config = format!(
        "[agents.defaults]\nmodel = {}\nfallbacks = [{}]\n",
        model(&providers[0]),
        fallbacks.join(", ")
    );
    for (name, stub, keys) in providers {
        let url = stub.url();
        write!(
            config,
            "[models.providers.{name}]\napi = \"openai\"\nbase_url = \"{url}\"\n{keys}\n"
        )
        .unwrap();
    }
    House::new(&config)
}

fn limited(timeout: &str) -> String {
    format!("{PLAIN}[limits]\ntimeout = \"{timeout}\"\n")
}

fn strict() -> String {
    PLAIN.replace("tools = []", "tools = []\nfallbacks = []")
}

/// A refusal that says why, and when to come back.
fn refused(status: &str, wait: &str) -> String {
    retry_after(wait, &refusal(status, &json!({"error": {"message": "not now"}})))
}

/// Model and kind of error of each attempt, in their order.
fn attempts(run: &Value) -> Value {
    let attempts = run["attempts"].as_array().unwrap().iter();
    attempts.map(|attempt| json!([attempt["model"], attempt["error_kind"]])).collect()
}

fn asked(stubs: &[&Stub]) -> Vec<usize> {
    stubs.iter().map(|stub| stub.requests().len()).collect()
}

/// Who said what in a request.
fn roles(request: &Value) -> Vec<&str> {
    let messages = request["messages"].as_array().unwrap().iter();
    messages.map(|message| message["role"].as_str().unwrap()).collect()
}

#[test]
fn what_may_pass_is_asked_twice_more_and_then_another_model() {
    let table = [
        ("429 Too Many Requests", "rate_limit"),
        ("529 Too Busy", "overloaded"),
        ("503 Service Unavailable", "server_error"),
    ];
    for (status, kind) in table {
        let first = Stub::saying(refused(status, "0"));
        let second = Stub::saying(reply("from b"));
        let house = house(&[("a", &first, ""), ("b", &second, "")]);
        house.job("j", PLAIN);
        let (code, run) = house.run("j");
        assert_eq!((code, asked(&[&first, &second])), (Some(0), vec![3, 1]), "{status}");
        assert_run(&run, &json!({"/reply": "from b", "/model": "b/m", "/error": null}));
        let expected = json!([["a/m", kind], ["a/m", kind], ["a/m", kind], ["b/m", null]]);
        assert_eq!(attempts(&run), expected);
        let (code, run) = {
            house.job("strict", &strict());
            house.run("strict")
        };
        assert_eq!((code, asked(&[&first, &second])), (Some(1), vec![6, 1]), "{status}");
        let message = "not now (after 3 attempts)";
        assert_run(&run, &json!({"/error/kind": kind, "/error/message": message}));
    }
}

#[test]
fn without_a_word_from_the_server_the_waits_are_one_second_and_four() {
    let first = Stub::new(|n| if n < 2 { vec![] } else { vec![Act::Say(reply("back"))] });
    let second = Stub::saying(reply("from b"));
    let house = house(&[("a", &first, ""), ("b", &second, "")]);
    house.job("j", PLAIN);
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&first, &second])), (Some(0), vec![3, 0]));
    assert_eq!(attempts(&run), json!([["a/m", "network"], ["a/m", "network"], ["a/m", null]]));
    let waits = "SELECT round(86400000 * (julianday(b.started_at) - julianday(a.started_at)))
                   - a.duration_ms >= ?
                 FROM v1_attempts a JOIN v1_attempts b ON b.n = a.n + 1 WHERE a.n = ?";
    for (n, wait) in [("1", "995"), ("2", "3995")] {
        let sql = waits.replacen('?', wait, 1).replacen('?', n, 1);
        assert_eq!(house.value(&sql), 1, "{wait} {run:#}");
    }
    assert!(run["duration_ms"].as_u64().unwrap() < 30_000, "{run:#}");
}

#[test]
fn a_server_that_names_a_wait_is_waited_for_unless_the_deadline_comes_first() {
    let first = Stub::new(|n| {
        vec![Act::Say(if n == 0 { refused("429 Too Many", "2") } else { reply("back") })]
    });
    let second = Stub::saying(reply("from b"));
    let house = house(&[("a", &first, ""), ("b", &second, "")]);
    house.job("j", &limited("2m"));
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&first, &second])), (Some(0), vec![2, 0]));
    assert!(run["duration_ms"].as_u64().unwrap() >= 2000, "{run:#}");

    let far = Stub::saying(refused("429 Too Many", "3600"));
    let house = self::house(&[("a", &far, ""), ("b", &second, "")]);
    house.job("j", &limited("2m"));
    house.job("strict", &(strict() + "[limits]\ntimeout = \"2m\"\n"));
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&far, &second])), (Some(0), vec![1, 1]));
    assert_eq!(attempts(&run), json!([["a/m", "rate_limit"], ["b/m", null]]));
    let (code, run) = house.run("strict");
    assert_eq!((code, asked(&[&far, &second])), (Some(1), vec![2, 1]));
    assert_run(&run, &json!({"/error/kind": "rate_limit", "/error/message": "not now"}));
    assert!(run["duration_ms"].as_u64().unwrap() < 60_000, "{run:#}");
}

const PROFILES: &str = "[[models.providers.a.auth]]\nname = \"work\"\napi_key_env = \"WORK\"\n\
                        [[models.providers.a.auth]]\nname = \"home\"\napi_key_env = \"HOME_KEY\"\n";
const KEYS: [&str; 2] = ["sk-work-0123456789-aardvark", "sk-home-0123456789-buffalo"];

#[test]
fn a_refused_key_is_followed_by_the_next_one_and_then_by_the_next_model() {
    let table = [
        ("401 Unauthorized", "auth"),
        ("403 Forbidden", "auth"),
        ("402 Payment Required", "billing"),
    ];
    for (status, kind) in table {
        let words = format!("not with {} or {}", KEYS[0], KEYS[1]);
        let first = Stub::saying(refusal(status, &json!({"error": {"message": words}})));
        let second = Stub::saying(reply("from b"));
        let house = house(&[("a", &first, PROFILES), ("b", &second, "")])
            .with_secret("WORK", KEYS[0])
            .with_secret("HOME_KEY", KEYS[1]);
        house.job("j", PLAIN);
        house.job("strict", &strict());
        let (code, run) = house.run("j");
        assert_eq!((code, asked(&[&first, &second])), (Some(0), vec![2, 1]), "{run:#}");
        for (head, key) in first.heads().iter().zip(KEYS) {
            assert!(head.contains(&format!("authorization: Bearer {key}")), "{head}");
        }
        let (code, _) = house.run("strict");
        assert_eq!((code, asked(&[&first, &second])), (Some(1), vec![4, 1]));
        assert_eq!(
            house.rows(
                "SELECT n, model, auth_profile, state, error_kind
                 FROM v1_attempts NATURAL JOIN (SELECT run_id, job FROM v1_runs)
                 ORDER BY job, n"
            ),
            [
                json!([1, "a/m", "work", "failed", kind]),
                json!([2, "a/m", "home", "failed", kind]),
                json!([3, "b/m", null, "succeeded", null]),
                json!([1, "a/m", "work", "failed", kind]),
                json!([2, "a/m", "home", "failed", kind]),
            ]
        );
        house.say(&["logs", "strict"]);
        for key in KEYS {
            assert_eq!(house.files_with(key), Vec::<std::path::PathBuf>::new(), "{status}");
        }
    }
}

#[test]
fn a_full_key_is_not_waited_for_while_there_is_another() {
    let first = Stub::new(|n| {
        vec![Act::Say(if n == 0 { refused("429 Too Many", "600") } else { reply("room") })]
    });
    let house = house(&[("a", &first, PROFILES)])
        .with_secret("WORK", KEYS[0])
        .with_secret("HOME_KEY", KEYS[1]);
    house.job("j", PLAIN);
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&first])), (Some(0), vec![2]));
    assert_eq!(
        house.rows("SELECT auth_profile, error_kind FROM v1_attempts ORDER BY n"),
        [json!(["work", "rate_limit"]), json!(["home", null])]
    );
    assert!(run["duration_ms"].as_u64().unwrap() < 60_000, "{run:#}");
}

// B81: an error inside a stream that says 400 is asked once; B92: a wrong model name is named.
#[test]
fn a_model_that_is_not_there_is_asked_once_and_a_wrong_request_is_everybodys() {
    let missing =
        refusal("404 Not Found", &json!({"error": {"message": "the model `m` does not exist"}}));
    let wrong = refusal("400 Bad Request", &json!({"error": {"message": "wrong"}}));
    let html = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<p>hello";
    let broken = head() + &call("exec", "{\"command\": ") + &finish("tool_calls");
    let error = head() + "data: {\"error\": {\"message\": \"bad\", \"code\": 400}}\n\n";
    let table = [
        (missing, "model_not_found", Some(0), [1, 1]),
        (html.to_owned(), "not_a_stream", Some(0), [1, 1]),
        (broken, "malformed_tool_call", Some(0), [1, 1]),
        (wrong, "bad_request", Some(1), [1, 0]),
        (error, "bad_request", Some(1), [1, 0]),
    ];
    for (response, kind, expected, requests) in table {
        let first = Stub::saying(response);
        let second = Stub::saying(reply("from b"));
        let house = house(&[("a", &first, ""), ("b", &second, "")]);
        house.job("j", PLAIN);
        let (code, run) = house.run("j");
        assert_eq!((code, asked(&[&first, &second])), (expected, requests.to_vec()), "{run:#}");
        assert_run(&run, &json!({"/attempts/0/error_kind": kind}));
        let words = run["error"]["message"].as_str().unwrap_or_default();
        assert!(!words.contains("attempts"), "{words}");
    }
}

#[test]
fn a_silent_model_leaves_time_for_the_next_one_and_its_stream_is_closed_before() {
    for first_words in [None, Some(head()), Some(head() + &text("so far"))] {
        let first = Arc::new(Stub::new(move |_| {
            first_words.iter().cloned().map(Act::Say).chain([Act::Hold]).collect()
        }));
        let silent = Arc::clone(&first);
        let second = Stub::new(move |_| {
            // Both ends of every earlier connection are closed while this one is open.
            until("no other stream", || silent.clients_gone() == silent.requests().len());
            vec![Act::Say(reply("from b"))]
        });
        let house = house(&[("a", &first, "timeout = \"1s\""), ("b", &second, "")]);
        house.job("j", &limited("8s"));
        let (code, run) = house.run("j");
        assert_eq!((code, asked(&[&second])), (Some(0), vec![1]), "{run:#}");
        assert!([1, 2].contains(&first.requests().len()));
        assert_run(&run, &json!({"/reply": "from b", "/partial_text": null, "/error": null}));
        assert_eq!(roles(&second.requests()[0]), ["system", "user"]);
    }
}

#[test]
fn five_silences_in_a_row_end_the_run() {
    let stubs: Vec<_> = (0..4).map(|_| Stub::new(|_| vec![Act::Say(head()), Act::Hold])).collect();
    let keys = "timeout = \"300ms\"";
    let house = house(&[
        ("a", &stubs[0], keys),
        ("b", &stubs[1], keys),
        ("c", &stubs[2], keys),
        ("d", &stubs[3], keys),
    ]);
    house.job("j", &limited("2m"));
    let (code, run) = house.run("j");
    let requests: Vec<_> = stubs.iter().map(|stub| stub.requests().len()).collect();
    assert_eq!((code, requests), (Some(1), vec![2, 2, 1, 0]));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/model": "c/m", "/cleanup/outcome": "forced",
            "/error/kind": "idle_timeout", "/error/limit": "idle", "/error/limit_ms": 300,
            "/error/phase": "model_call", "/error/retryable": true,
            "/error/message": "no model output for 300ms (after 5 attempts)",
        }),
    );
}

#[test]
fn what_a_failed_attempt_said_is_kept_for_the_record_and_told_to_nobody() {
    let first = Stub::new(|_| vec![Act::Say(head() + &text("so far a")), Act::Hold]);
    let second = Stub::new(|_| vec![Act::Say(head() + &text("so far b")), Act::Hold]);
    let keys = "timeout = \"500ms\"";
    let house = house(&[("a", &first, keys), ("b", &second, keys)]);
    house.job("j", &limited("2m"));
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&first, &second])), (Some(1), vec![2, 2]));
    assert_run(&run, &json!({"/reply": null, "/partial_text": "so far b"}));
    for request in first.requests().iter().chain(&second.requests()) {
        assert_eq!(roles(request), ["system", "user"]);
    }
}

#[test]
fn nothing_begins_in_the_last_quarter() {
    let first = Stub::new(|_| {
        std::thread::sleep(Duration::from_secs(10));
        vec![Act::Say(refused("503 Not Now", "0"))]
    });
    let second = Stub::saying(reply("from b"));
    let house = house(&[("a", &first, ""), ("b", &second, "")]);
    house.job("j", &limited("12s"));
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&first, &second])), (Some(1), vec![1, 0]), "{run:#}");
    assert_run(&run, &json!({"/state": "failed", "/error/kind": "server_error"}));
}

#[test]
fn what_tools_have_said_survives_a_fallback() {
    let first = Stub::new(|n| {
        let thought = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]});
        let call = call("exec", "{\"command\": \"echo x >> mark\"}");
        let call = head() + &event(&thought) + &call;
        vec![Act::Say(match n {
            0 => call + &finish("tool_calls"),
            _ => refusal("404 Not Found", &json!({"error": {"message": "no such model"}})),
        })]
    });
    let second = Stub::saying(reply("from b"));
    let price = "[models.providers.a.models.m]\nprice = { input = 1, output = 10 }\n";
    let other = "[models.providers.b.models.m]\nprice = { input = 2, output = 20 }\n";
    let house = house(&[("a", &first, price), ("b", &second, other)]);
    house.job(
        "j",
        &by_hand("go", "", "max_turns = 2").replace("[limits]", "workdir = \"..\"\n[limits]"),
    );
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&first, &second])), (Some(0), vec![2, 1]), "{run:#}");
    assert_eq!(std::fs::read_to_string(house.path("mark")).unwrap(), "x\n");
    let request = &second.requests()[0];
    assert_eq!(roles(request), ["system", "user", "assistant", "tool"]);
    // All the same, but for the thoughts of another provider's model.
    let mut expected = first.requests()[1]["messages"].clone();
    let thought = expected[2].as_object_mut().unwrap().remove("reasoning_content");
    assert_eq!(thought, Some(json!("hm")));
    assert_eq!(request["messages"], expected);
    assert_run(
        &run,
        &json!({
            "/reply": "from b", "/tools/calls": 1,
            "/usage/input_tokens": 24, "/usage/output_tokens": 8,
        }),
    );
    assert_eq!(
        house.rows(
            "SELECT model, error_kind, input_tokens, output_tokens, round(usd * 1e6)
             FROM v1_attempts ORDER BY n"
        ),
        [json!(["a/m", "model_not_found", 12, 4, 52.0]), json!(["b/m", null, 12, 4, 104.0])]
    );
    assert_eq!(house.value("SELECT round(usd * 1e6) FROM v1_runs"), 156.0);
}

#[test]
fn half_a_tool_call_is_never_run_and_its_tokens_count() {
    let whole = "{\"command\": \"touch mark\"}";
    let cut = Stub::saying(head() + &call("exec", whole) + &finish("length"));
    let second = Stub::saying(reply("from b"));
    let job = by_hand("go", "", "").replace("[limits]", "workdir = \"..\"\n[limits]");
    let house = house(&[("a", &cut, ""), ("b", &second, "")]);
    house.job("j", &job);
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&cut, &second])), (Some(0), vec![1, 1]), "{run:#}");
    assert_run(
        &run,
        &json!({
            "/attempts/0/error_kind": "truncated_tool_call", "/tools/calls": 0,
            "/usage/input_tokens": 24, "/usage/output_tokens": 8,
        }),
    );
    assert_eq!(roles(&second.requests()[0]), ["system", "user"]);
    assert!(!house.path("mark").exists());

    // The connection ends behind a call that is whole, but the answer is not.
    let broken = Stub::new(move |n| {
        vec![Act::Say(if n == 0 { head() + &call("exec", whole) } else { reply("no call") })]
    });
    let house = self::house(&[("a", &broken, "")]);
    house.job("j", &job);
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&broken])), (Some(0), vec![2]), "{run:#}");
    assert_run(
        &run,
        &json!({"/attempts/0/error_kind": "incomplete_stream", "/tools/calls": 0, "/reply": "no call"}),
    );
    assert_eq!(roles(&broken.requests()[1]), ["system", "user"]);
    assert!(!house.path("mark").exists());
}

#[test]
fn requests_that_failed_use_up_no_turn_and_cost_nothing() {
    let first = Stub::new(|n| {
        vec![Act::Say(if n < 2 { refused("503 Not Now", "0") } else { reply("at last") })]
    });
    let price = "[models.providers.a.models.m]\nprice = { input = 1, output = 10 }\n";
    let house = house(&[("a", &first, price)]);
    house.job("j", &format!("{PLAIN}[limits]\nmax_turns = 1\n"));
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&first])), (Some(0), vec![3]));
    assert_run(&run, &json!({"/reply": "at last", "/usage/input_tokens": 12}));
    assert_eq!(
        house.rows("SELECT input_tokens, round(usd * 1e6) FROM v1_attempts ORDER BY n"),
        [json!([null, 0.0]), json!([null, 0.0]), json!([12, 52.0])]
    );
}

#[test]
fn a_complete_answer_makes_up_for_the_failures_before_it() {
    let first = Stub::new(|n| {
        vec![Act::Say(match n {
            2 => head() + &call("exec", "{\"command\": \"echo x\"}") + &finish("tool_calls"),
            5 => reply("at last"),
            _ => refused("503 Not Now", "0"),
        })]
    });
    let second = Stub::saying(reply("from b"));
    let house = house(&[("a", &first, ""), ("b", &second, "")]);
    house.job("j", &by_hand("go", "", ""));
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&first, &second])), (Some(0), vec![6, 0]), "{run:#}");
    let failed = json!(["a/m", "server_error"]);
    let expected = [&failed, &failed, &failed, &failed, &json!(["a/m", null])];
    assert_eq!(attempts(&run), json!(expected));
}

#[test]
fn the_deadline_ends_whichever_attempt_is_on() {
    let first =
        Stub::new(|n| vec![if n == 0 { Act::Say(refused("503 Not Now", "0")) } else { Act::Hold }]);
    let house = house(&[("a", &first, "")]);
    house.job("j", &limited("2s"));
    let (code, run) = house.run("j");
    assert_eq!((code, asked(&[&first])), (Some(124), vec![2]));
    assert_eq!(attempts(&run), json!([["a/m", "server_error"], ["a/m", "deadline"]]));
    assert_run(
        &run,
        &json!({
            "/state": "timed_out", "/error/kind": "deadline", "/error/limit_ms": 2000,
            "/error/message": "the run reached its time limit of 2s (after 2 attempts)",
            "/attempts/1/state": "timed_out", "/cleanup/outcome": "forced",
        }),
    );
}

#[test]
fn a_cancel_ends_the_wait_for_the_next_attempt() {
    let first = Stub::saying(refused("503 Not Now", "600"));
    let second = Stub::saying(reply("from b"));
    let house = house(&[("a", &first, ""), ("b", &second, "")]);
    house.job("j", PLAIN);
    let serve = house.serve();
    let run_id = house.detach("j");
    // The attempt's end is stored when it ends.
    house.until("SELECT error_kind = 'server_error' AND duration_ms >= 0 FROM v1_attempts");
    assert_eq!(house.value("SELECT state FROM v1_runs"), "running");
    assert_eq!(house.say(&["cancel", &run_id]).code, Some(0));
    let run = house.ended(&run_id);
    assert_run(
        &run,
        &json!({
            "/state": "cancelled", "/error/kind": "cancelled", "/cleanup/outcome": "clean",
        }),
    );
    assert_eq!(attempts(&run), json!([["a/m", "server_error"]]));
    assert_eq!(asked(&[&first, &second]), [1, 0]);
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn each_new_attempt_is_told_to_whoever_listens() {
    let missing =
        refusal("404 Not Found", &json!({"error": {"message": "the model `m` does not exist"}}));
    let (first, second) = (Stub::saying(missing), Stub::saying(reply("from b")));
    let house = house(&[("a", &first, ""), ("b", &second, "")]);
    house.job("j", PLAIN);
    let serve = house.serve();
    let told = house.follow("j");
    let news = told.iter().find(|it| it["stream"] == "lifecycle" && it["phase"] == "update");
    assert_run(
        news.unwrap(),
        &json!({
            "/attempt": 2, "/model": "b/m", "/auth_profile": null, "/after": "model_not_found",
        }),
    );
    serve.until_stderr("model attempt failed");
    let log = serve.stderr();
    let line = log.lines().find(|line| line.contains("model attempt failed")).unwrap();
    for words in ["a/m", "model_not_found", "the next model"] {
        assert!(line.contains(words), "{line}");
    }
    assert_eq!(serve.stop().code, Some(0));
}
