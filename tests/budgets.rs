//! Money and tokens: what a run, a job and a day may cost, and what is known of what they did.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::run_object::assert_run;
use support::scripts::{PLAIN, exec_job};
use support::stub::{Act, Stub, call, event, finish, head, reply, text};
use support::{House, asking, until};

/// A dollar for a thousand tokens of input, ten for as many of output, a tenth of one from a cache.
const PRICE: &str =
    "price = { input = 1000, output = 10000, cache_read = 100, cache_write = 1250 }";

/// A house whose only model answers as `stub` does and has a price.
fn house(stub: &Stub, more: &str) -> House {
    asking(stub, "", &format!("[models.providers.local.models.m]\n{PRICE}\n{more}"))
}

fn limited(limits: &str) -> String {
    format!("{PLAIN}[limits]\n{limits}\n")
}

/// What an OpenAI server says of the tokens so far, in the middle of a stream or at its end.
fn usage(input: u64, output: u64, cached: u64) -> String {
    let details = json!({"cached_tokens": cached});
    let usage = json!({
        "prompt_tokens": input, "completion_tokens": output, "prompt_tokens_details": details,
    });
    event(&json!({"choices": [], "usage": usage}))
}

/// A whole answer with these tokens.
fn answer(words: &str, input: u64, output: u64) -> Vec<Act> {
    let end = finish("stop").replace("data: [DONE]\n\n", "");
    vec![Act::Say(head() + &text(words) + &end + &usage(input, output, 0) + "data: [DONE]\n\n")]
}

#[track_caller]
fn assert_usd(value: &Value, expected: f64) {
    let found = value.as_f64().unwrap_or_else(|| panic!("{value} is no amount"));
    assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
}

#[test]
fn a_stream_that_costs_too_much_is_cut_and_what_it_had_said_is_kept() {
    let stub = Stub::new(|_| {
        let begins = head() + &text("half an ") + &usage(100, 5, 0) + &text("answer");
        // A tenth of a dollar and a twentieth; then a tenth more than is allowed.
        vec![Act::Say(begins), Act::Say(usage(100, 45, 0)), Act::Hold]
    });
    let house = house(&stub, "");
    house.job("j", &limited("max_usd = 0.5"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/reply": null, "/partial_text": "half an answer",
            "/error/kind": "budget", "/error/limit": "budget", "/error/phase": "model_call",
            "/error/message": "0.55 USD spent of 0.5 USD (limits.max_usd)",
            "/error/retryable": false,
            "/usage/input_tokens": 100, "/usage/output_tokens": 45,
            "/attempts/0/state": "failed", "/attempts/0/error_kind": "budget",
        }),
    );
    assert_usd(&run["usage"]["usd"], 0.55);
    until("the client goes away", || stub.clients_gone() == 1);
    house.assert_nothing_is_left();

    // What is within is whole.
    let fine = Stub::new(|_| answer("fine", 100, 40));
    let house = self::house(&fine, "");
    house.job("j", &limited("max_usd = 0.5"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")));
    assert_usd(&run["usage"]["usd"], 0.5);
}

#[test]
fn the_last_answer_may_not_exceed_a_limit_either_and_no_call_of_it_runs() {
    let stub = Stub::new(|_| {
        let call = call("exec", &json!({"command": "touch mark"}).to_string());
        let end = finish("tool_calls").replace("data: [DONE]\n\n", "");
        vec![Act::Say(head() + &call + &end + &usage(100, 50, 0) + "data: [DONE]\n\n")]
    });
    for (limit, words) in [
        ("max_usd = 0.5", "0.6 USD spent of 0.5 USD (limits.max_usd)"),
        ("max_tokens = 149", "150 tokens used of 149 (limits.max_tokens)"),
    ] {
        let house = house(&stub, "");
        house.job("j", &exec_job(limit).replace("[limits]", "workdir = \"..\"\n[limits]"));
        let (code, run) = house.run("j");
        assert_eq!(code, Some(1));
        assert_run(
            &run,
            &json!({"/error/kind": "budget", "/error/message": words, "/tools/calls": 0}),
        );
        assert!(!house.path("mark").exists());
    }
}

#[test]
fn failed_attempts_fallbacks_and_caches_count_into_the_same_budget() {
    // A tenth of it each time, but for the last one, which would be free.
    let stub = Stub::answering(|request| {
        let words = head() + &text("so far") + &usage(1000, 4, 900);
        match request["model"].as_str() {
            Some("m") => vec![Act::Say(words), Act::Reset],
            _ => answer("from the fallback", 0, 0),
        }
    });
    let more = format!("[models.providers.local.models.spare]\n{PRICE}\n");
    let job =
        |limit: &str| limited(limit).replace("[agent]", "[agent]\nfallbacks = [\"local/spare\"]");
    let house = house(&stub, &more);
    // 100 tokens of input, 900 from the cache, 4 of output: 0.23 each of three times.
    house.job("enough", &job("max_usd = 0.7"));
    house.job("little", &job("max_usd = 0.69"));
    house.job("tokens", &job("max_tokens = 3012"));
    let (code, run) = house.run("enough");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("from the fallback")), "{run:#}");
    assert_usd(&run["usage"]["usd"], 0.69);
    assert_eq!(
        house.rows("SELECT n, model, input_tokens, cache_read_tokens, output_tokens, round(usd, 9) FROM v1_attempts"),
        [
            json!([1, "local/m", 1000, 900, 4, 0.23]),
            json!([2, "local/m", 1000, 900, 4, 0.23]),
            json!([3, "local/m", 1000, 900, 4, 0.23]),
            json!([4, "local/spare", 0, 0, 0, 0.0]),
        ]
    );
    let asked = stub.requests().len();
    for (job, words) in [
        ("little", "0.69 USD spent of 0.69 USD (limits.max_usd) (after 4 attempts)"),
        ("tokens", "3012 tokens used of 3012 (limits.max_tokens) (after 4 attempts)"),
    ] {
        let (code, run) = house.run(job);
        assert_eq!(code, Some(1));
        assert_run(&run, &json!({"/error/kind": "budget", "/error/message": words}));
    }
    // The fallback was not asked any more.
    assert_eq!(stub.requests().len(), asked + 6);
}

#[test]
fn each_api_says_in_its_way_what_a_cache_had_and_took() {
    let events = |events: &[Value]| events.iter().map(event).collect::<String>();
    let anthropic = events(&[
        json!({"type": "message_start", "message": {"usage": {
            "input_tokens": 100, "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 100, "output_tokens": 1,
        }}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "fine"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ]);
    let ollama = json!({
        "message": {"role": "assistant", "content": "fine"}, "done": true, "done_reason": "stop",
        "prompt_eval_count": 1000, "eval_count": 20,
    });
    let plain =
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n";
    let openai = head() + &text("fine") + &finish("stop").replace("data: [DONE]\n\n", "");
    let table = [
        (
            "openai",
            openai + &usage(1000, 20, 800) + "data: [DONE]\n\n",
            [json!(800), Value::Null],
            0.2 + 0.08 + 0.2,
        ),
        ("anthropic", head() + &anthropic, [json!(800), json!(100)], 0.1 + 0.08 + 0.125 + 0.2),
        ("ollama", format!("{plain}{ollama}\n"), [Value::Null, Value::Null], 1.0 + 0.2),
    ];
    for (api, answer, [read, written], usd) in table {
        let stub = Stub::saying(answer);
        let house = House::new(&format!(
            "[agents.defaults]\nmodel = \"p/m\"\n[models.providers.p]\napi = \"{api}\"\n\
             base_url = \"{}\"\n[models.providers.p.models.m]\n{PRICE}\n",
            stub.url()
        ));
        house.job("j", PLAIN);
        let (code, run) = house.run("j");
        assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{api}: {run:#}");
        assert_eq!(
            house.rows("SELECT input_tokens, output_tokens, cache_read_tokens, cache_write_tokens FROM v1_attempts"),
            [json!([1000, 20, read, written])],
            "{api}"
        );
        assert_usd(&run["usage"]["usd"], usd);
    }
}

#[test]
fn what_a_cut_stream_had_said_of_its_tokens_is_counted() {
    let begins = json!({"type": "message_start", "message": {"usage": {"input_tokens": 70, "output_tokens": 1}}});
    let stub = Stub::new(move |_| vec![Act::Say(head() + &event(&begins)), Act::Hold]);
    let house = House::new(&format!(
        "[agents.defaults]\nmodel = \"p/m\"\n[models.providers.p]\napi = \"anthropic\"\n\
         base_url = \"{}\"\n[models.providers.p.models.m]\n{PRICE}\n",
        stub.url()
    ));
    house.job("j", &limited("timeout = \"1s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(124));
    assert_run(&run, &json!({"/usage/input_tokens": 70, "/usage/output_tokens": 1}));
    assert_usd(&run["usage"]["usd"], 0.08);
}

#[test]
fn a_model_whose_price_nobody_knows_cannot_be_bounded() {
    let stub = Stub::new(|_| vec![Act::Say(reply("fine"))]);
    let house = asking(&stub, "", "[budget]\nmax_usd_per_day = 1\n");
    house.job("run", &limited("max_usd = 1"));
    house.job("day", &limited("timeout = \"5m\"\nmax_usd_per_day = 1"));
    house.job("free", PLAIN);
    let said = house.say(&["validate"]);
    assert_eq!(said.code, Some(2));
    for words in [
        "jobs/run.toml:5:11",
        "jobs/day.toml:6:19",
        "`local/m` has no price: what it costs cannot be bounded",
        "[models.providers.local.models.\"m\"] price = { input = …, output = … }, 0.0 for what is free",
        "`local/m` has no price: what it costs does not count against [budget] max_usd_per_day",
    ] {
        assert!((said.stdout.clone() + &said.stderr).contains(words), "{words}: {said:?}");
    }
    let (code, run) = house.run("free");
    assert_eq!((code, &run["usage"]["usd"]), (Some(0), &Value::Null));
}

#[test]
fn nothing_that_a_file_writes_is_above_the_ceilings_and_what_none_writes_is_bounded() {
    let stub = Stub::new(|_| answer("fine", 100, 50));
    let ceilings = "[ceilings]\nmax_usd = 0.5\nmax_tokens = 1000\ntimeout = \"10m\"\n\
                    tools = [\"read\", \"exec\"]\nexec_allow = [\"git log *\", \"ls\"]\n";
    let house = house(&stub, ceilings);
    let wide = "[agent]\nprompt = \"go\"\ntools = [\"read\", \"write\"]\nexec_allow = [\"git *\", \"ls\", \"*\"]\n\
                [limits]\nmax_usd = 0.51\nmax_tokens = 1001\ntimeout = \"0s\"\n";
    house.job("wide", wide);
    let said = house.say(&["validate", "--json"]);
    assert_eq!(said.code, Some(2));
    let problems: Vec<_> = said.json()["problems"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["severity"] == "error")
        .map(|it| json!([it["line"], it["column"], it["key"], it["message"], it["help"]]))
        .collect();
    let above = |line: u8, column: u8, key: &str, what: &str, help: &str| {
        let message = format!("{what} is above what [ceilings] allows");
        json!([line, column, key, message, format!("[ceilings] {help}")])
    };
    let patterns = "exec_allow = [\"git log *\",\"ls\"]";
    assert_eq!(
        problems,
        [
            above(3, 18, "agent.tools", "the tool `write`", "tools = [\"read\",\"exec\"]"),
            above(4, 15, "agent.exec_allow", "`git *`", patterns),
            above(4, 30, "agent.exec_allow", "`*`", patterns),
            above(6, 11, "limits.max_usd", "`max_usd`", "max_usd = 0.5"),
            above(7, 14, "limits.max_tokens", "`max_tokens`", "max_tokens = 1000"),
            above(8, 11, "limits.timeout", "`timeout`", "timeout = \"10m\""),
        ]
    );
    // Nothing written: as if the ceilings were the defaults.
    house.job("wide", "agent.prompt = \"go\"\n");
    let shown = house.say(&["show", "wide", "--effective"]).json();
    assert_eq!(shown["agent"]["tools"], json!(["read"]));
    assert_eq!(shown["limits"]["max_tokens"], 1000);
    assert_eq!(shown["limits"]["max_usd"], 0.5);
    let (code, run) = house.run("wide");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({"/error/kind": "budget", "/error/message": "0.6 USD spent of 0.5 USD (limits.max_usd)"}),
    );
    // Defaults of the configuration are no way around them.
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &(config + "[defaults.limits]\nmax_tokens = 5000\n"));
    let said = house.say(&["validate"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("config.toml:"), "{said:?}");
    assert!(said.stderr.contains("`max_tokens` is above what [ceilings] allows"), "{said:?}");
}
