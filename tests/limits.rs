//! Every limit of a run and every way in which a model, a tool or a command can misbehave, with
//! the real program, real sockets and real processes: what is stored, what is left, which exit code.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::stub::{Act, Stub, call, event, finish, head, refusal, reply, text};
use support::{House, LONG, asking, scripted, until};

/// A job without tools.
const PLAIN: &str = "[agent]\nprompt = \"go\"\ntools = []\n";

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A job whose only tool is `exec`, without a bound on what it runs.
fn exec_job(limits: &str) -> String {
    format!(
        "[agent]\nprompt = \"go\"\ntools = [\"exec\"]\nexec_allow = [\"*\"]\n[limits]\n{limits}\n"
    )
}

/// A script that runs `command` and then says what came of it.
fn exec_script(command: &str) -> String {
    let arguments = toml_text(command);
    format!(
        "[[rule]]\nwhen = {{ turn = 0 }}\n\
         step = [{{ tool = {{ name = \"exec\", arguments = {{ command = {arguments} }} }} }}]\n\
         [[rule]]\nstep = [{{ text = \"{{{{ results[-1].content }}}}\" }}]\n"
    )
}

/// JSON and TOML quote what is used here in the same way.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

/// The parts of a run object that `expected` names.
#[track_caller]
fn assert_run(run: &Value, expected: &Value) {
    for (pointer, value) in expected.as_object().unwrap() {
        assert_eq!(run.pointer(pointer), Some(value), "{pointer} of {run:#}");
    }
}

fn number(run: &Value, pointer: &str) -> u64 {
    run.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} of {run:#}"))
}

fn step<'a>(run: &'a Value, name: &str) -> &'a Value {
    let steps = run["cleanup"]["steps"].as_array().unwrap();
    steps.iter().find(|step| step["step"] == name).unwrap_or_else(|| panic!("{name} in {run:#}"))
}

// The run's own deadline.

#[test]
fn the_deadline_cuts_a_stream_that_keeps_dripping() {
    let stub = Stub::new(|_| {
        let drips = (0..600).flat_map(|_| [Act::Say(text("drip ")), Act::Wait(ms(100))]);
        [Act::Say(head())].into_iter().chain(drips).collect()
    });
    let house = asking(&stub, "", "");
    house.job("slow", &format!("{PLAIN}[limits]\ntimeout = \"1s\"\n"));
    let (code, run) = house.run("slow");
    assert_eq!(code, Some(124));
    assert_run(
        &run,
        &json!({
            "/state": "timed_out", "/reply": null, "/trigger": "manual",
            "/error/kind": "deadline", "/error/limit": "deadline", "/error/limit_ms": 1000,
            "/error/phase": "model_call",
            "/attempts/0/state": "timed_out", "/attempts/0/error_kind": "deadline",
            "/attempts/0/idle_rule": "manual", "/attempts/0/idle_window_ms": 1000,
            "/cleanup/outcome": "forced", "/cleanup/killed_processes": 0, "/cleanup/leaked": [],
        }),
    );
    let partial = run["partial_text"].as_str().unwrap();
    assert!(partial.starts_with("drip drip "), "{partial}");
    assert!(number(&run, "/duration_ms") >= 1000);
    assert_eq!(step(&run, "model_stream")["outcome"], "forced");
    until("the client goes away", || stub.clients_gone() == 1);
    assert_eq!(stub.requests().len(), 1);
    house.assert_nothing_is_left();
}

#[test]
fn the_deadline_ends_the_tree_of_a_tool() {
    let house = scripted(&exec_script("sleep 60 & sleep 61"), "");
    house.job("j", &exec_job("timeout = \"1s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(124));
    assert_run(
        &run,
        &json!({
            "/state": "timed_out", "/error/limit": "deadline", "/error/phase": "tool",
            "/reply": null, "/cleanup/outcome": "forced", "/cleanup/leaked": [],
        }),
    );
    assert!(number(&run, "/cleanup/killed_processes") >= 2, "{run:#}");
    assert!(number(&run, "/duration_ms") < 20_000, "{run:#}");
    assert_eq!(step(&run, "processes")["outcome"], "forced");
    assert_eq!(step(&run, "transcript")["outcome"], "forced");
    house.assert_nothing_is_left();
    // The call that was cut has its one result all the same.
    let name = format!("state/sessions/{}.jsonl", run["session_id"].as_str().unwrap());
    let transcript = std::fs::read_to_string(house.path(&name)).unwrap();
    let entries = transcript.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages: Vec<_> = entries.filter(|entry| entry["type"] == "message").collect();
    let roles: Vec<_> = messages.iter().map(|entry| &entry["message"]["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool_result"]);
    let call = &messages[1]["message"]["tool_calls"][0]["id"];
    assert_eq!(&messages[2]["message"]["call_id"], call);
}

#[test]
fn the_clean_up_has_a_budget_that_no_grace_exceeds() {
    let house = scripted(
        &exec_script("(trap '' TERM; while :; do sleep 0.2; done) & echo begun"),
        "[scheduler]\ncleanup_timeout = \"6s\"\n",
    );
    house.job("j", &exec_job("stop_grace = \"1m\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    assert_run(
        &run,
        &json!({"/state": "succeeded", "/reply": "begun\n", "/cleanup/outcome": "forced"}),
    );
    let took = number(&run, "/cleanup/duration_ms");
    assert!((1900..20_000).contains(&took), "{run:#}");
    house.assert_nothing_is_left();
}

#[test]
fn a_child_that_ignores_the_request_is_killed_after_the_grace() {
    let house = scripted(&exec_script("trap '' TERM; while :; do sleep 0.2; done"), "");
    house.job("j", &exec_job("timeout = \"1s\"\nstop_grace = \"1s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(124));
    assert_run(&run, &json!({"/state": "timed_out", "/cleanup/outcome": "forced"}));
    assert!(number(&run, "/cleanup/killed_processes") >= 1, "{run:#}");
    let took = number(step(&run, "processes"), "/duration_ms");
    assert!((1000..20_000).contains(&took), "{run:#}");
    house.assert_nothing_is_left();
}

#[test]
fn children_that_leave_the_group_and_the_session_are_ended_too() {
    let house = scripted(&exec_script("setsid sleep 60 & setsid -f sleep 61; sleep 62"), "");
    house.job("j", &exec_job("timeout = \"2s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(124));
    assert_run(&run, &json!({"/cleanup/outcome": "forced", "/cleanup/leaked": []}));
    assert!(number(&run, "/cleanup/killed_processes") >= 3, "{run:#}");
    house.assert_nothing_is_left();
}

#[test]
fn what_a_finished_turn_leaves_in_the_background_is_ended() {
    let house = scripted(&exec_script("sleep 60 & setsid -f sleep 61; echo started"), "");
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    assert_run(
        &run,
        &json!({"/state": "succeeded", "/reply": "started\n", "/cleanup/outcome": "forced"}),
    );
    assert!(number(&run, "/cleanup/killed_processes") >= 2, "{run:#}");
    // It holds the pipe open, and that holds up nothing.
    assert!(number(&run, "/duration_ms") < 20_000, "{run:#}");
    house.assert_nothing_is_left();
}

// What a model can do to its stream.

/// What a model does with a request.
type Acts = fn() -> Vec<Act>;

/// Runs a job against a model that plays `acts`, with these keys of the provider.
fn against(acts: Acts, provider: &str) -> (Option<i32>, Value, Stub) {
    let stub = Stub::new(move |_| acts());
    let house = asking(&stub, provider, "");
    house.job("j", PLAIN);
    let (code, run) = house.run("j");
    house.assert_nothing_is_left();
    // What is printed is what is stored.
    let stored = house.say(&["show", run["run_id"].as_str().unwrap(), "--json"]).json();
    assert_eq!(stored, run);
    (code, run, stub)
}

#[test]
fn a_silent_model_is_cut_by_the_window_of_its_provider() {
    let opened = || vec![Act::Say(head()), Act::Hold];
    let begun = || vec![Act::Say(head() + &text("so far")), Act::Hold];
    let comments = || {
        let pings = (0..600).flat_map(|_| [Act::Say(": ping\n\n".into()), Act::Wait(ms(100))]);
        [Act::Say(head())].into_iter().chain(pings).collect()
    };
    let table: [(Acts, &str, &str, Value); 4] = [
        (|| vec![Act::Hold], "provider_timeout", "provider", Value::Null),
        (opened, "idle_timeout", "idle", Value::Null),
        (begun, "idle_timeout", "idle", json!("so far")),
        (comments, "idle_timeout", "idle", Value::Null),
    ];
    for (acts, kind, limit, partial) in table {
        let (code, run, stub) = against(acts, "timeout = \"800ms\"");
        assert_eq!(code, Some(1));
        assert_run(
            &run,
            &json!({
                "/state": "failed", "/error/kind": kind, "/error/limit": limit,
                "/error/limit_ms": 800, "/error/phase": "model_call", "/error/retryable": true,
                "/partial_text": partial, "/reply": null,
                "/attempts/0/idle_window_ms": 800, "/attempts/0/idle_rule": "provider",
                "/attempts/0/error_kind": kind,
            }),
        );
        assert!(number(&run, "/duration_ms") >= 800, "{run:#}");
        until("the client goes away", || stub.clients_gone() == 1);
    }
}

#[test]
fn the_first_token_has_a_limit_of_its_own_when_asked_for() {
    // It takes the place of the provider's timeout while the first token is awaited: longer ...
    let late = || vec![Act::Wait(ms(1500)), Act::Say(reply("awake"))];
    let keys = "timeout = \"500ms\"\nfirst_token_timeout = \"20s\"";
    let (code, run, _) = against(late, keys);
    assert_eq!(code, Some(0));
    assert_run(&run, &json!({"/reply": "awake", "/attempts/0/idle_window_ms": 500}));
    // ... and shorter, before the head and after it.
    let table: [Acts; 2] =
        [|| vec![Act::Hold], || vec![Act::Say(head() + ": ping\n\n"), Act::Hold]];
    for acts in table {
        let (code, run, _) = against(acts, "timeout = \"30s\"\nfirst_token_timeout = \"700ms\"");
        assert_eq!(code, Some(1));
        assert_run(
            &run,
            &json!({
                "/error/kind": "first_token_timeout", "/error/limit": "first_token",
                "/error/limit_ms": 700, "/attempts/0/idle_window_ms": 30_000,
            }),
        );
    }
}

#[test]
fn a_long_stream_that_keeps_coming_outlives_the_timeout_of_its_provider() {
    let slow = || {
        let words = (0..12).flat_map(|_| [Act::Say(text("word ")), Act::Wait(ms(250))]);
        let end = Act::Say(finish("stop"));
        [Act::Say(head())].into_iter().chain(words).chain([end]).collect()
    };
    let (code, run, stub) = against(slow, "timeout = \"1500ms\"");
    assert_eq!(code, Some(0));
    assert_run(
        &run,
        &json!({
            "/state": "succeeded", "/reply": "word ".repeat(12), "/error": null,
            "/usage/input_tokens": 12, "/usage/output_tokens": 4, "/cleanup/outcome": "clean",
        }),
    );
    assert!(number(&run, "/duration_ms") >= 12 * 250, "{run:#}");
    assert_eq!(stub.clients_gone(), 0);
}

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

/// A key with a beginning that occurs nowhere else.
const KEY: &str = "sk-zebra-0123456789-abcdefghij";

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
        let stub = Stub::saying(refusal(status, &body));
        let house = asking(&stub, "api_key_env = \"MODEL_KEY\"", "").with_env("MODEL_KEY", KEY);
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
fn a_key_that_the_model_repeats_is_masked_everywhere() {
    let stub = Stub::new(|n| {
        if n == 0 {
            let thought = event(&json!({
                "choices": [{"index": 0, "delta": {"reasoning_content": format!("it is {KEY}")}}],
            }));
            let call = call("exec", &json!({"command": format!("echo {KEY}")}).to_string());
            return vec![Act::Say(head() + &thought + &call + &finish("tool_calls"))];
        }
        let (a, b) = (text("the key is sk-zeb"), text("ra-0123456789-abcdefghij, keep it"));
        vec![Act::Say(head() + &a), Act::Wait(ms(300)), Act::Say(b + &finish("stop"))]
    });
    let house = asking(&stub, "api_key_env = \"MODEL_KEY\"", "").with_env("MODEL_KEY", KEY);
    house.job("j", &exec_job(""));
    let serve = house.serve();
    let events = house.follow("j");
    assert_eq!(serve.stop().code, Some(0));
    let said = |key: &str| {
        let pieces = events.iter().filter(|event| event["phase"] == "update");
        pieces.filter_map(|event| event[key].as_str()).collect::<String>()
    };
    assert_eq!(said("text"), "the key is [secret key of local], keep it");
    assert_eq!(said("reasoning"), "it is [secret key of local]");
    house.write("events.json", &Value::from(events.clone()).to_string());

    assert_eq!(
        house.value("SELECT reply FROM v1_runs"),
        "the key is [secret key of local], keep it"
    );
    house.say(&["logs", "j"]);
    house.say(&["logs", "j", "--json"]);
    house.say(&["runs", "--json"]);
    for secret in [KEY, &KEY[..8], "sk-zeb"] {
        assert_eq!(house.files_with(secret), Vec::<std::path::PathBuf>::new());
    }
}

// Tools.

#[test]
fn a_tool_has_a_limit_and_the_model_is_told() {
    let house = scripted(&exec_script("echo begun; sleep 60"), "");
    house.job("j", &exec_job("tool_timeout = \"1s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    assert_run(
        &run,
        &json!({"/state": "succeeded", "/tools": {"calls": 1, "errors": 1, "denied": 0}}),
    );
    let told = run["reply"].as_str().unwrap();
    assert!(told.starts_with("begun\n") && told.contains("timed out after 1s"), "{told}");
    assert_eq!(
        house.rows("SELECT tool, outcome, exit_code, duration_ms >= 1000 FROM v1_tool_calls"),
        [json!(["exec", "timed_out", null, 1])]
    );
    house.assert_nothing_is_left();
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
fn turns_are_counted() {
    let house = scripted(
        r#"
        [[rule]]
        step = [{ tool = { name = "exec", arguments = { command = "echo {{ turn }}" } } }]
        "#,
        "",
    );
    house.job("j", &exec_job("max_turns = 3"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/error/kind": "turn_limit", "/error/limit": "turns",
            "/error/phase": "tool", "/tools/calls": 3, "/reply": null,
        }),
    );
    assert!(run["error"]["message"].as_str().unwrap().contains('3'), "{run:#}");
}

#[test]
fn tokens_are_counted() {
    let house = scripted(
        r#"
        [[rule]]
        [[rule.step]]
        tool = { name = "exec", arguments = { command = "echo {{ turn }}" } }
        [[rule.step]]
        usage = { input = 400, output = 50 }
        "#,
        "",
    );
    house.job("j", &exec_job("max_tokens = 1000"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/error/kind": "budget", "/error/limit": "budget",
            "/usage/input_tokens": 1200, "/usage/output_tokens": 150,
        }),
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

// What a run sees.

#[test]
fn secrets_reach_the_commands_and_nothing_that_is_stored() {
    const SECRET: &str = "hunter2-correct-horse";
    let check = format!("test \"$TOKEN\" = {SECRET} && echo right; echo \"$TOKEN\"");
    // Written in pieces: the script file itself must not hold it.
    let check = check.replace(SECRET, "\"$(printf %s%s hunt er2-correct-horse)\"");
    let house = scripted(&exec_script(&check), "").with_env("HOUSE_TOKEN", SECRET);
    house.job(
        "j",
        &format!("{}[env]\nsecret = {{ TOKEN = {{ env = \"HOUSE_TOKEN\" }} }}\n", exec_job("")),
    );
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    assert_eq!(run["reply"], "right\n[secret TOKEN]\n");
    house.say(&["logs", "j"]);
    house.say(&["show", "j", "--effective"]);
    for secret in [SECRET, &SECRET[..8]] {
        assert_eq!(house.files_with(secret), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn commands_see_an_allow_list_of_the_environment() {
    let house = scripted(&exec_script("env | cut -d= -f1 | sort"), "")
        .with_env("MODEL_KEY", KEY)
        .with_env("SSH_AUTH_SOCK", "/nowhere")
        .with_env("PGHOST", "db");
    house.job(
        "j",
        &format!("{}[env]\nset = {{ COLOR = \"red\" }}\npass = [\"PGHOST\"]\n", exec_job("")),
    );
    let (_, run) = house.run("j");
    let names: BTreeSet<_> = run["reply"].as_str().unwrap().lines().collect();
    // What a shell sets by itself says nothing about us.
    let of_the_shell = ["_", "OLDPWD", "PWD", "SHLVL"];
    let names: Vec<_> = names.into_iter().filter(|name| !of_the_shell.contains(name)).collect();
    assert_eq!(names, ["COLOR", "HOME", "LANG", "PATH", "PGHOST", "PUNCTUAL_RUN_ID"]);
}

#[test]
fn commands_have_an_empty_standard_input() {
    let house = scripted(&exec_script("cat; echo over"), "");
    house.job("j", &exec_job("tool_timeout = \"20s\""));
    assert_eq!(house.run("j").1["reply"], "over\n");
}

#[test]
fn a_flood_of_output_is_bounded_and_its_size_is_known() {
    let house = scripted(&exec_script("echo head; yes | head -c 5000000; echo tail"), "");
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    let reply = run["reply"].as_str().unwrap();
    assert!(reply.starts_with("head\n") && reply.ends_with("tail\n"), "{} bytes", reply.len());
    assert!(reply.len() < 20_000, "{} bytes", reply.len());
    house.until("SELECT count(*) FROM v1_tool_calls");
    assert_eq!(house.value("SELECT output_bytes FROM v1_tool_calls"), 5_000_010);
}

#[test]
fn the_prompt_is_filled_in() {
    let house = scripted("[[rule]]\nstep = [{ text = \"{{ prompt }}\" }]\n", "");
    house.job(
        "j",
        "[schedule]\ncron = \"0 9 * * *\"\ntimezone = \"Europe/Berlin\"\n[agent]\n\
         prompt = \"{{ vars.region }} {{ slot.start }} {{ slot.end }} {{ due_at }}\"\n\
         vars = { region = \"EU\" }\ntools = []\n",
    );
    let said = house.say(&["run", "j", "--slot", "2026-03-29T07:00:00Z", "--json"]);
    // Nine in the morning, on both sides of the change to summer time.
    assert_eq!(
        said.json()["reply"],
        "EU 2026-03-28T08:00:00.000Z 2026-03-29T07:00:00.000Z 2026-03-29T07:00:00.000Z"
    );
    // By hand: from the last due instant until now.
    let (_, run) = house.run("j");
    let words: Vec<_> = run["reply"].as_str().unwrap().split(' ').collect();
    assert!(words[1] < words[2] && words[2] == words[3], "{words:?}");
    assert!(words[2] <= run["started_at"].as_str().unwrap(), "{run:#}");
    assert_eq!(run["due_at"], Value::Null);
}

#[test]
fn the_prompt_can_be_a_file_beside_the_job() {
    let house = scripted("[[rule]]\nstep = [{ text = \"{{ prompt }}\" }]\n", "");
    house.write("jobs/prompt.md", "say {{ vars.what }}");
    house.job("j", "[agent]\nprompt_file = \"prompt.md\"\nvars = { what = \"hi\" }\ntools = []\n");
    assert_eq!(house.run("j").1["reply"], "say hi");
}

#[test]
fn a_workdir_is_the_jobs_and_a_fresh_workspace_is_gone_afterwards() {
    let house = scripted(&exec_script("touch mark; pwd"), "");
    std::fs::create_dir(house.path("work")).unwrap();
    house.job("named", &exec_job("").replace("[limits]", "workdir = \"../work\"\n[limits]"));
    house.job("fresh", &exec_job(""));
    let place = |job| house.run(job).1["reply"].as_str().unwrap().trim().to_owned();
    assert_eq!(place("named"), house.path("work").canonicalize().unwrap().to_str().unwrap());
    assert!(house.path("work/mark").exists());
    let fresh = place("fresh");
    let workspaces = house.path("state/workspaces").canonicalize().unwrap();
    assert!(fresh.starts_with(workspaces.to_str().unwrap()), "{fresh}");
    assert!(!std::path::Path::new(&fresh).exists());
    assert_eq!(std::fs::read_dir(workspaces).unwrap().count(), 0);
}

// What `run` says.

#[test]
fn run_has_an_exit_code_for_every_end() {
    let house = scripted(
        r#"
        [[rule]]
        when = { contains = "fail" }
        step = [{ error = { status = 500, message = "no" } }]
        [[rule]]
        when = { contains = "hang" }
        step = [{ text = "so far" }, { hang = true }]
        [[rule]]
        step = [{ text = "fine" }]
        "#,
        "",
    );
    let job =
        |prompt: &str, more: &str| format!("{more}\n[agent]\nprompt = \"{prompt}\"\ntools = []\n");
    house.job("good", &job("go", ""));
    house.job("bad", &job("fail", ""));
    house.job("off", &job("go", "enabled = false"));
    house.job("broken", "[agent]\npromt = \"go\"\n");
    house.job("slow", &(job("hang", "") + "[limits]\ntimeout = \"1s\"\n"));
    house.job("long", &(job("hang", "") + "[limits]\ntimeout = \"0s\"\n"));
    let table: [(&[&str], _, _); 9] = [
        (&["run", "good"], 0, "succeeded"),
        (&["run", "bad"], 1, "server_error"),
        (&["run", "nobody"], 2, "there is no job `nobody`"),
        (&["run", "god"], 2, "did you mean `good`?"),
        (&["run", "broken"], 2, "promt"),
        (&["run", "good", "--wings"], 2, "--wings"),
        (&["run", "off"], 3, "disabled"),
        (&["run", "off", "--force"], 0, "succeeded"),
        (&["run", "slow"], 124, "timed_out"),
    ];
    for (arguments, code, words) in table {
        let said = house.say(arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(said.stderr.contains(words), "{arguments:?}: {said:?}");
    }

    // Already running; and then cancelled, by a verb and by Ctrl-C.
    let running = "SELECT count(*) FROM v1_runs WHERE job = 'long' AND state = 'running'";
    let first = house.start(&["run", "long", "--json"]);
    house.until(running);
    let said = house.say(&["run", "long"]);
    assert_eq!((said.code, said.stderr.contains("already running")), (Some(3), true), "{said:?}");
    assert_eq!(house.say(&["cancel", "long"]).code, Some(0));
    let said = first.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    assert_run(
        &said.json(),
        &json!({"/state": "cancelled", "/error/kind": "cancelled", "/partial_text": "so far"}),
    );
    let second = house.start(&["run", "long", "--json"]);
    house.until(running);
    second.signal(Signal::SIGINT);
    let said = second.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    assert_eq!(said.json()["error"]["kind"], "cancelled");
    assert!(said.took < LONG);
    // Nothing is left to cancel.
    assert_eq!(house.say(&["cancel", "long"]).code, Some(3));
}

#[test]
fn the_run_object_has_every_key_and_standard_output_nothing_else() {
    let house = scripted(&exec_script("echo hi"), "");
    house.job("j", &exec_job(""));
    let said = house.say(&["run", "j", "--json"]);
    let run = said.json();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let contract = [
        "run_id",
        "job",
        "trigger",
        "due_at",
        "attempt",
        "state",
        "queued_at",
        "started_at",
        "finished_at",
        "duration_ms",
        "late_ms",
        "session_id",
        "model",
        "reply",
        "partial_text",
        "payloads",
        "error",
        "attempts",
        "usage",
        "tools",
        "cleanup",
        "checks",
        "deliveries",
    ];
    let found = keys(&run);
    let missing: Vec<_> =
        contract.iter().filter(|key| !found.iter().any(|it| it == *key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(keys(&run["usage"]), ["input_tokens", "output_tokens", "usd"]);
    assert_eq!(run["tools"], json!({"calls": 1, "errors": 0, "denied": 0}));
    assert_eq!(run["payloads"], json!([{"kind": "text", "text": "hi\n"}]));
    assert_eq!((&run["checks"], &run["deliveries"]), (&json!([]), &json!([])));
    assert_eq!(run["late_ms"], Value::Null);
    for key in ["outcome", "duration_ms", "steps", "killed_processes", "leaked"] {
        assert!(run["cleanup"].get(key).is_some(), "{key}");
    }
    assert_eq!(keys(&run["cleanup"]["steps"][0]), ["step", "outcome", "duration_ms", "detail"]);
    for key in ["model", "state", "error_kind", "started_at", "duration_ms"] {
        assert!(run["attempts"][0].get(key).is_some(), "{key}");
    }
    // A failed run has the same keys, and its error has all of its own.
    house.write("model.toml", "[[rule]]\nstep = [{ error = { status = 500 } }]\n");
    let failed = house.run("j").1;
    assert_eq!(keys(&failed), found);
    let error = ["kind", "message", "limit", "limit_ms", "phase", "retryable"];
    assert_eq!(keys(&failed["error"]), error);
    // The list is of the same objects.
    let list = house.say(&["runs", "--json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(keys(&list[0]), found);
}

#[test]
fn the_request_is_small_and_says_what_it_must() {
    let stub = Stub::saying(reply("fine"));
    let house = asking(&stub, "", "");
    house.job("j", PLAIN);
    assert_eq!(house.run("j").0, Some(0));
    let request = &stub.requests()[0];
    assert_eq!((&request["model"], &request["stream"]), (&json!("m"), &json!(true)));
    let messages = request["messages"].as_array().unwrap();
    assert_eq!(messages.last().unwrap()["content"], "go");
    assert_eq!(request.get("tools"), None);
    assert!(request.to_string().len() < 4096);
}
