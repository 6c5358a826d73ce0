//! How much a model thinks: what it is told of that, what a refusal says, and what becomes of
//! thoughts when another provider goes on.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::House;
use support::run_object::assert_run;
use support::scripts::{PLAIN, exec_job};
use support::stub::{Act, Stub, call, event, finish, head, refusal, reply};

fn house(api: &str, model: &str, stub: &Stub, defaults: &str) -> House {
    House::new(&format!(
        "[agents.defaults]\nmodel = \"p/{model}\"\n{defaults}\n\
         [models.providers.p]\napi = \"{api}\"\nbase_url = \"{}\"\n",
        stub.url()
    ))
}

const ANTHROPIC: &str = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n\
    event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
    {\"type\":\"text_delta\",\"text\":\"fine\"}}\n\n\
    event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

// semantics §7: thinking levels, mapped per provider; contract: `[agents.defaults] thinking` and
// `[agent] thinking`, the job's word counting.
#[test]
fn a_job_thinks_as_it_says_or_as_the_configuration_does() {
    let ollama = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n\
                  {\"message\":{\"role\":\"assistant\",\"content\":\"fine\"},\"done\":true}\n";
    let budget = json!({"type": "enabled", "budget_tokens": 4096});
    let table = [
        (
            "openai",
            "m",
            reply("fine"),
            "reasoning_effort",
            Value::Null,
            json!("low"),
            json!("high"),
        ),
        (
            "anthropic",
            "claude-sonnet-4-5",
            head() + ANTHROPIC,
            "thinking",
            Value::Null,
            budget,
            json!({"type": "enabled", "budget_tokens": 20480}),
        ),
        ("ollama", "m", ollama.to_owned(), "think", json!(false), json!(true), json!(true)),
    ];
    for (api, model, answer, key, off, low, high) in table {
        let stub = Stub::saying(answer);
        let house = house(api, model, &stub, "thinking = \"low\"");
        house.job("usual", PLAIN);
        house.job("much", &format!("{PLAIN}thinking = \"high\"\n"));
        house.job("none", &format!("{PLAIN}thinking = \"off\"\n"));
        for (job, expected) in [("usual", low), ("much", high), ("none", off)] {
            let (code, run) = house.run(job);
            assert_eq!(code, Some(0), "{api} {job}: {run:#}");
            let asked = stub.requests().pop().unwrap();
            assert_eq!(asked[key], expected, "{api} {job}");
            let effective = house.say(&["show", job, "--effective", "--json"]).json();
            assert!(effective.to_string().contains("\"thinking\""), "{effective}");
        }
    }
}

#[test]
fn a_refusal_of_thinking_names_the_key() {
    let words = "Unrecognized request argument supplied: reasoning_effort";
    let stub = Stub::saying(refusal("400 Bad Request", &json!({"error": {"message": words}})));
    let house = house("openai", "m", &stub, "");
    house.job("j", &format!("{PLAIN}thinking = \"medium\"\n"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(&run, &json!({"/error/kind": "bad_request", "/error/retryable": false}));
    let message = run["error"]["message"].as_str().unwrap();
    assert!(message.contains(words) && message.contains("`thinking = \"medium\"`"), "{message}");
    assert_eq!(stub.requests().len(), 1);
}

// semantics §7, B90: thoughts are sent back to whom they came from, and to nobody else.
#[test]
fn thoughts_do_not_go_to_another_provider() {
    let first = Stub::new(|n| {
        let thought = event(&json!({"choices": [{"delta": {"reasoning_content": "zebra"}}]}));
        let called = call("exec", "{\"command\":\"echo one\"}");
        vec![Act::Say(match n {
            0 => head() + &thought + &called + &finish("tool_calls"),
            _ => refusal("401 Unauthorized", &json!({"error": {"message": "no"}})),
        })]
    });
    let second = Stub::saying(reply("fine"));
    let house = House::new(&format!(
        "[agents.defaults]\nmodel = \"a/m\"\nfallbacks = [\"b/m\"]\n\
         [models.providers.a]\napi = \"openai\"\nbase_url = \"{}\"\n\
         [models.providers.b]\napi = \"openai\"\nbase_url = \"{}\"\n",
        first.url(),
        second.url()
    ));
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    let again = &first.requests()[1]["messages"][2];
    assert_eq!(again["reasoning_content"], "zebra", "{again:#}");
    let asked = &second.requests()[0];
    assert_eq!(asked["messages"][3]["content"], "one\n", "{asked:#}");
    assert!(!asked.to_string().contains("zebra"), "{asked:#}");
}
