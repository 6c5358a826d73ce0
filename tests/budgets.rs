//! Money and tokens: what a run, a job and a day may cost, and what is known of what they did.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::ledger::{assert_once, assert_sound};
use support::run_object::assert_run;
use support::scripts::{EVERY_SECOND, PLAIN, exec_job, soon};
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

/// A zone in which it is about noon: no day turns while a test goes on.
fn at_noon() -> String {
    let hour = soon().as_second() / 3600 % 24;
    // The names of these zones have the sign the other way round.
    format!("timezone = \"Etc/GMT{:+}\"\n", hour - 12)
}

/// Two jobs whose model costs half a dollar each time; `top` are keys of the configuration.
fn costly(stub: &Stub, top: &str, more: &str) -> House {
    let house = house(stub, more);
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &format!("{}{top}{config}", at_noon()));
    house
}

#[test]
fn a_cap_of_the_day_refuses_people_and_nothing_lifts_it() {
    let stub = Stub::new(|_| answer("fine", 100, 40));
    let house = costly(&stub, "", "");
    house.job("j", &limited("max_usd_per_day = 1"));
    house.job("other", PLAIN);
    for _ in 0..2 {
        assert_eq!(house.run("j").0, Some(0));
    }
    for arguments in [&["run", "j"][..], &["run", "j", "--force"]] {
        let said = house.say(arguments);
        assert_eq!(said.code, Some(3), "{said:?}");
        let words = "1 USD of 1 USD are spent today (limits.max_usd_per_day): `j` may not run";
        assert!(said.stderr.contains(words), "{said:?}");
    }
    assert_eq!(house.run("other").0, Some(0));
    // The history may go: what was spent is known all the same.
    let db = house.writable();
    db.execute_batch("PRAGMA foreign_keys = ON; UPDATE slots SET run_id = NULL; DELETE FROM runs")
        .unwrap();
    assert_eq!(house.say(&["run", "j"]).code, Some(3));
    assert_eq!(
        house.rows("SELECT job, model, runs, failed, input_tokens, output_tokens, usd, unpriced_runs FROM v1_costs"),
        [json!(["j", "local/m", 2, 0, 200, 80, 1.0, 0]), json!(["other", "local/m", 1, 0, 100, 40, 0.5, 0])]
    );
    assert_eq!(stub.requests().len(), 3);
}

#[test]
fn two_jobs_share_the_cap_of_all_and_what_is_due_is_held() {
    let stub = Stub::new(|_| answer("fine", 100, 40));
    let house = costly(&stub, "", "[budget]\nmax_usd_per_day = 1.0\n");
    house.job("a", EVERY_SECOND);
    house.job("b", EVERY_SECOND);
    let serve = house.serve();
    house.until(
        "SELECT count(*) >= 4 FROM v1_slots WHERE (decision, reason) = ('missed', 'budget')",
    );
    assert_eq!(stub.requests().len(), 2);
    let why = house.say(&["why", "a"]).stdout;
    assert!(why.contains("a cap on its costs was reached") || why.contains("budget"), "{why}");
    serve.kill();
    // Whoever comes next knows.
    let serve = house.serve();
    let missed = "SELECT count(*) FROM v1_slots WHERE (decision, reason) = ('missed', 'budget')";
    let before = house.value(missed).as_i64().unwrap();
    house.until(&format!("SELECT ({missed}) > {before} + 4"));
    assert_eq!(house.say(&["run", "a"]).code, Some(3));
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(stub.requests().len(), 2);
    let held = "SELECT DISTINCT reason FROM v1_slots WHERE decision = 'held'";
    assert_eq!(house.rows(held), [json!(["budget"])]);
    assert_once(&house);
    assert_sound(&house);
}

#[test]
fn a_cap_that_others_reach_ends_the_run_that_goes_on() {
    let stub = Stub::answering(|request| match request["messages"][1]["content"].as_str() {
        // It has spent 0.2, and goes on when the other one has spent its half dollar.
        Some("slow") => vec![
            Act::Say(head() + &text("so far") + &usage(200, 0, 0)),
            Act::Wait(std::time::Duration::from_secs(4)),
            Act::Say(usage(200, 1, 0)),
            Act::Hold,
        ],
        _ => answer("fine", 100, 40),
    });
    let house = costly(&stub, "", "[budget]\nmax_usd_per_day = 0.7\n");
    house.job("slow", &PLAIN.replace("go", "slow"));
    house.job("quick", PLAIN);
    let serve = house.serve();
    let slow = house.detach("slow");
    until("it is asked", || stub.requests().len() == 1);
    let quick = house.detach("quick");
    assert_run(&house.ended(&quick), &json!({"/state": "succeeded"}));
    let run = house.ended(&slow);
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/partial_text": "so far", "/error/kind": "budget",
            "/error/message": "0.71 USD spent of 0.7 USD (budget.max_usd_per_day)",
        }),
    );
    assert_usd(&run["usage"]["usd"], 0.21);
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_job_that_costs_nothing_knows_no_cap() {
    let stub = Stub::new(|_| answer("fine", 100, 40));
    let free = "[models.providers.local.models.free]\nprice = {}\n";
    let house = costly(&stub, "", &format!("{free}[budget]\nmax_usd_per_day = 0.5\n"));
    house.job("dear", PLAIN);
    house.job(
        "free",
        &limited("max_usd = 0\nmax_usd_per_day = 0")
            .replace("[agent]", "[agent]\nmodel = \"local/free\""),
    );
    assert_eq!(house.run("dear").0, Some(0));
    assert_eq!(house.say(&["run", "dear"]).code, Some(3));
    let (code, run) = house.run("free");
    assert_eq!((code, &run["usage"]["usd"]), (Some(0), &json!(0.0)), "{run:#}");
}

#[test]
fn a_run_that_a_crash_ended_is_counted_once() {
    let stub = Stub::new(|n| match n {
        0 => answer("fine", 100, 40),
        _ => vec![Act::Say(head() + &text("half")), Act::Hold],
    });
    let house = costly(&stub, "", "");
    house.job("j", PLAIN);
    assert_eq!(house.run("j").0, Some(0));
    let serve = house.serve();
    house.detach("j");
    house.until("SELECT count(*) = 1 FROM v1_attempts WHERE state = 'running'");
    until("it is asked", || stub.requests().len() == 2);
    serve.kill();
    let costs = "SELECT runs, failed, input_tokens, usd, unpriced_runs FROM v1_costs";
    assert_eq!(house.rows(costs), [json!([1, 0, 100, 0.5, 0])]);
    for _ in 0..2 {
        assert_eq!(house.serve().stop().code, Some(0));
        assert_eq!(house.rows(costs), [json!([2, 1, 100, 0.5, 1])]);
    }
}

#[test]
fn costs_are_told_by_job_and_model_with_what_is_to_come_and_what_is_left() {
    let stub = Stub::answering(|request| match request["model"].as_str() {
        Some("m") => answer("fine", 100, 40),
        _ => answer("fine", 100, 50),
    });
    let house = costly(&stub, "", "[budget]\nmax_usd_per_day = 4\n");
    // Due at the end of this month only, and never again.
    house.job(
        "a",
        &format!("{}[schedule]\ncron = \"59 59 23 L * *\"\n", limited("max_usd_per_day = 1.5")),
    );
    house.job("b", &PLAIN.replace("[agent]", "[agent]\nmodel = \"local/unpriced\""));
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &format!("{config}[models.providers.local.models.unpriced]\n"));
    for job in ["a", "a", "b"] {
        assert_eq!(house.run(job).0, Some(0));
    }
    let costs = house.say(&["costs", "--json"]).json();
    assert_eq!(
        costs["costs"],
        json!([
            {"job": "a", "model": "local/m", "runs": 2, "failed": 0, "input_tokens": 200,
             "output_tokens": 80, "usd": 1.0, "unpriced_runs": 0},
            {"job": "b", "model": "local/unpriced", "runs": 1, "failed": 0, "input_tokens": 100,
             "output_tokens": 50, "usd": null, "unpriced_runs": 1},
        ])
    );
    assert_eq!(
        (&costs["total"]["usd"], &costs["total"]["unpriced_runs"]),
        (&json!(1.0), &json!(1))
    );
    assert_eq!(
        costs["to_come"]["jobs"],
        json!([{"job": "a", "due": 1, "usd_each": 0.5, "usd": 0.5}])
    );
    let caps: Vec<_> = costs["caps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| json!([it["cap"], it["job"], it["spent_usd"], it["left_usd"]]))
        .collect();
    assert_eq!(
        caps,
        [
            json!(["budget.max_usd_per_day", null, 1.0, 3.0]),
            json!(["limits.max_usd_per_day", "a", 1.0, 0.5]),
        ]
    );
    let by_model = house.say(&["costs", "--by", "model", "--json"]).json();
    assert_eq!(by_model["costs"][0]["model"], "local/m");
    assert_eq!(by_model["costs"][0].get("job"), None);
    let shown = house.say(&["costs"]).stdout;
    for words in ["b", "unknown", "COST UNKNOWN", "1.5000 USD", "CAP OF THE DAY"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let past = house.say(&["costs", "--month", "2020-02"]);
    assert!(past.stdout.contains("no run has ended in 2020-02"), "{past:?}");
    assert_eq!(house.say(&["costs", "--month", "feb"]).code, Some(2));
    // What cannot start any more today is held in a forecast, too.
    assert_eq!(house.run("a").0, Some(0));
    let status = house.say(&["status"]).stdout;
    assert!(status.contains("limits.max_usd_per_day of `a` is used up until "), "{status}");
    house.job(
        "a",
        &format!("{}[schedule]\ncron = \"* * * * *\"\n", limited("max_usd_per_day = 1.5")),
    );
    let from = soon();
    let to = from + std::time::Duration::from_mins(5);
    let arguments =
        ["simulate", "--from", &from.to_string(), "--to", &to.to_string(), "--job", "a", "--json"];
    let decisions = house.say(&arguments).json()["decisions"].clone();
    let decisions: Vec<_> = decisions
        .as_array()
        .unwrap()
        .iter()
        .map(|it| json!([it["decision"], it["reason"]]))
        .collect();
    let (held, missed) = (json!(["held", "budget"]), json!(["missed", "budget"]));
    assert!(
        decisions.len() > 6 && decisions[..4] == [held.clone(), missed.clone(), held, missed],
        "{decisions:?}"
    );
    let at = from + std::time::Duration::from_mins(2);
    let why = house.say(&["why", "a", "--at", &format!("{}:00Z", &at.to_string()[..16])]).stdout;
    assert!(why.contains("would be held, since a budget was used up"), "{why}");
}
