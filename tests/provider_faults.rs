//! Whatever a provider or its model does wrong is told by its kind, and what it did say is kept.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::json;
use support::run_object::assert_run;
use support::scenes::against;
use support::scripts::{KEY, PLAIN, exec_job};
use support::stub::{Act, Stub, call, finish, head, refusal, retry_after, text};
use support::{House, asking, scripted, until};

// B80: nothing of it is delivered.
#[test]
fn a_stream_that_just_ends_is_no_answer() {
    let (code, run, _) = against(|| vec![Act::Say(head() + &text("half a rep"))], "");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/reply": null, "/partial_text": "half a rep",
            "/error/kind": "incomplete_stream", "/error/phase": "model_call",
        }),
    );
}

#[test]
fn an_answer_cut_by_its_length_is_kept_and_is_no_report() {
    let cut = || vec![Act::Say(head() + &text("half a rep") + &finish("length"))];
    let (code, run, _) = against(cut, "");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/reply": null, "/partial_text": "half a rep",
            "/error/kind": "truncated_reply", "/usage/output_tokens": 4,
        }),
    );
}

// B88.
#[test]
fn a_tool_call_cut_by_the_length_starts_nothing() {
    let stub =
        Stub::saying(head() + &call("exec", "{\"command\": \"touch mark\"}") + &finish("length"));
    let house = asking(&stub, "", "");
    house.job("j", &exec_job("").replace("[limits]", "workdir = \"..\"\n[limits]"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/error/kind": "truncated_tool_call",
            "/tools": {"calls": 0, "errors": 0, "denied": 0}, "/cleanup/killed_processes": 0,
        }),
    );
    assert!(!house.path("mark").exists());
    assert_eq!(stub.requests().len(), 1);
}

#[test]
fn nobody_listens() {
    let url = Stub::saying("").url();
    let house = House::new(&format!(
        "[agents.defaults]\nmodel = \"local/m\"\n\
         [models.providers.local]\napi = \"openai\"\nbase_url = \"{url}\"\n"
    ));
    // The stub's door closes a moment after it was dropped.
    let address = url.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    until("the door is closed", || std::net::TcpStream::connect(&address).is_err());
    house.job("j", PLAIN);
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({"/error/kind": "model_unreachable", "/error/phase": "model_call", "/reply": null}),
    );
    assert!(run["error"]["message"].as_str().unwrap().contains("127.0.0.1"), "{run:#}");
}

#[test]
fn refusals_keep_the_servers_words_and_never_the_key() {
    let table = [
        ("401 Unauthorized", "auth", "invalid_request_error", "No such key here"),
        ("404 Not Found", "model_not_found", "model_not_found", "The model `m` does not exist"),
        ("400 Bad Request", "bad_request", "invalid_request_error", "temperature: must be ≤ 2"),
        ("429 Too Many Requests", "rate_limit", "rate_limit_error", "Slow down, please"),
        ("500 Internal Server Error", "server_error", "server_error", "The cat sat on it"),
        ("402 Payment Required", "billing", "insufficient_quota", "Your card was declined"),
        ("504 Gateway Timeout", "provider_timeout", "timeout", "Nobody upstream"),
        ("529 Too Busy", "overloaded", "overloaded_error", "All seats are taken"),
    ];
    for (status, kind, name, words) in table {
        let message = format!("{words} ({KEY}, or sk-zebra-01****ghij)");
        let body = json!({"error": {"message": message, "type": name, "code": name}});
        let stub = Stub::saying(retry_after("0", &refusal(status, &body)));
        let house = asking(&stub, "api_key_env = \"MODEL_KEY\"", "").with_secret("MODEL_KEY", KEY);
        house.job("j", PLAIN);
        let (code, run) = house.run("j");
        assert_eq!(code, Some(1));
        assert_run(&run, &json!({"/state": "failed", "/error/kind": kind}));
        let stored = run["error"]["message"].as_str().unwrap();
        assert!(stored.starts_with(words), "{stored}");
        house.say(&["run", "j"]);
        house.say(&["logs", "j"]);
        for secret in [KEY, &KEY[..8]] {
            assert_eq!(house.files_with(secret), Vec::<std::path::PathBuf>::new(), "{status}");
        }
    }
}

#[test]
fn an_unknown_tool_and_a_denied_command_go_back_to_the_model() {
    let house = scripted(
        r#"
        [[rule]]
        when = { turn = 0 }
        [[rule.step]]
        tool = { name = "fly", arguments = { to = "the moon" } }
        [[rule.step]]
        tool = { name = "exec", arguments = { command = "touch mark" } }
        [[rule.step]]
        tool = { name = "exec", arguments = { command = "false" } }
        [[rule.step]]
        tool = { name = "exec", arguments = { command = "echo fine" } }
        [[rule]]
        step = [{ text = "{% for it in results %}{{ it.is_error }} {{ it.content }};{% endfor %}" }]
        "#,
        "",
    );
    house.job(
        "j",
        "[agent]\nprompt = \"go\"\ntools = [\"exec\"]\nexec_allow = [\"echo *\", \"false\"]\n\
         workdir = \"..\"\n",
    );
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    assert_run(
        &run,
        &json!({
            "/state": "succeeded", "/tools": {"calls": 4, "errors": 1, "denied": 2},
            "/cleanup/outcome": "clean",
        }),
    );
    let told = run["reply"].as_str().unwrap();
    assert!(told.contains("`fly`") && told.contains("`touch mark` is not allowed"), "{told}");
    assert!(told.ends_with(";False fine\n;"), "{told}");
    assert!(!house.path("mark").exists());
    until("all calls are stored", || house.rows("SELECT n FROM v1_tool_calls").len() == 4);
    assert_eq!(
        house.rows("SELECT tool, outcome, exit_code FROM v1_tool_calls ORDER BY n"),
        [
            json!(["fly", "denied", null]),
            json!(["exec", "denied", null]),
            json!(["exec", "error", 1]),
            json!(["exec", "ok", 0]),
        ]
    );
}

#[test]
fn the_same_call_over_and_over_is_a_loop() {
    let house = scripted(
        r#"
        [[rule]]
        step = [{ tool = { name = "exec", arguments = { command = "echo again" } } }]
        "#,
        "",
    );
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({"/state": "failed", "/error/kind": "tool_loop", "/error/phase": "tool"}),
    );
}
