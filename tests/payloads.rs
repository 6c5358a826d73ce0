//! What people are shown of a run: the reply, thoughts and tools where they are asked for, and one
//! word about a failure. `run`, `show`, deliveries and the history say the same.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::scripted;
use support::scripts::exec_job;
use support::stub::{Act, Stub, call, event, finish, head, reply};

/// A model that thinks, calls `command` and then says `last`.
fn thinking(command: &str, last: &str) -> Stub {
    let (arguments, last) = (json!({ "command": command }).to_string(), reply(last));
    Stub::new(move |n| {
        let thought = event(&json!({"choices": [{"delta": {"reasoning_content": "Look first."}}]}));
        let called = call("exec", &arguments);
        vec![Act::Say(match n % 2 {
            0 => head() + &thought + &called + &finish("tool_calls"),
            _ => last.clone(),
        })]
    })
}

fn payload(kind: &str, text: &str) -> Value {
    json!({"kind": kind, "text": text})
}

const TO_FILE: &str = "[targets.file]\nkind = \"file\"\npath = \"out.txt\"\n";
const DELIVER: &str = "[[deliver]]\nto = \"file\"\n";

// semantics §9, "Final payloads"; contract: `[agents.defaults] verbose, reasoning`, and the same
// keys of a job.
#[test]
fn thoughts_and_tools_are_shown_where_they_are_asked_for() {
    let thought = payload("reasoning", "Look first.");
    let tool = payload("tool_summary", "exec echo one: ok");
    let fine = payload("text", "fine");
    let table = [
        ("", "", json!([fine])),
        ("verbose = true", "", json!([tool, fine])),
        ("reasoning = \"stream\"", "", json!([fine])),
        ("reasoning = \"blocks\"\nverbose = true", "", json!([thought, tool, fine])),
        ("reasoning = \"blocks\"\nverbose = true", "verbose = false\n", json!([thought, fine])),
        ("", "reasoning = \"blocks\"\nverbose = true\n", json!([thought, tool, fine])),
    ];
    for (defaults, of_job, expected) in table {
        let stub = thinking("echo one", "fine");
        let house = support::House::new(&format!(
            "[agents.defaults]\nmodel = \"local/m\"\n{defaults}\n{TO_FILE}\
             [models.providers.local]\napi = \"openai\"\nbase_url = \"{}\"\n",
            stub.url()
        ));
        let job = exec_job("").replace("[limits]", &format!("{of_job}[limits]"));
        house.job("j", &format!("{job}{DELIVER}"));
        let (code, run) = house.run("j");
        assert_eq!(code, Some(0), "{run:#}");
        assert_eq!(run["payloads"], expected, "{defaults} / {of_job}");
        assert_eq!(run["reply"], "fine");
        let id = run["run_id"].as_str().unwrap();
        assert_eq!(house.say(&["show", id, "--json"]).json()["payloads"], expected);
        let texts: Vec<_> =
            expected.as_array().unwrap().iter().filter_map(|it| it["text"].as_str()).collect();
        let sent = std::fs::read_to_string(house.path("out.txt")).unwrap();
        assert_eq!(sent.trim(), texts.join("\n\n"), "{defaults} / {of_job}");
    }
}

// semantics §9: nothing left to show and a tool failed: one fallback error reply.
#[test]
fn silence_after_a_tool_that_failed_is_none() {
    let table = [
        (
            "exit 3",
            "NO_REPLY",
            json!([payload("error", "a tool failed: exec exit 3: error, exit code 3")]),
            "sent",
        ),
        ("exit 3", "fine", json!([payload("text", "fine")]), "sent"),
        ("true", "no_reply\n", json!([]), "suppressed"),
    ];
    for (command, last, expected, delivery) in table {
        let stub = thinking(command, last);
        let house = support::asking(&stub, "", TO_FILE);
        house.job("j", &format!("{}{DELIVER}", exec_job("")));
        let (code, run) = house.run("j");
        assert_eq!((code, &run["state"]), (Some(0), &json!("succeeded")), "{run:#}");
        assert_eq!(run["payloads"], expected, "{command} / {last}");
        assert_eq!(run["deliveries"][0]["state"], delivery, "{run:#}");
    }
}

// semantics §9: + the error text when the model failed; what the host refuses is no report.
#[test]
fn of_what_is_no_success_only_what_was_done_is_shown() {
    let stub = thinking("echo one", "fine");
    let house = support::asking(&stub, "", "");
    let job = exec_job("").replace("[limits]", "verbose = true\n[limits]");
    house.job("j", &format!("{job}[[check]]\nname = \"long\"\nregex = \"long\"\n"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("check_failed")), "{run:#}");
    let error = payload("error", run["error"]["message"].as_str().unwrap());
    assert_eq!(run["payloads"], json!([payload("tool_summary", "exec echo one: ok"), error]));
    assert_eq!(run["partial_text"], "fine");
}

#[test]
fn a_secret_in_a_summary_is_masked() {
    let stub = thinking("echo hunter22-hunter22 > /dev/null", "fine");
    let house = support::asking(&stub, "", "").with_secret("PW", "hunter22-hunter22");
    let job = exec_job("").replace("[limits]", "verbose = true\nreasoning = \"blocks\"\n[limits]");
    house.job("j", &format!("{job}[env]\nsecret = {{ PW = {{ env = \"PW\" }} }}\n"));
    let (_, run) = house.run("j");
    let shown = run["payloads"].to_string();
    assert!(shown.contains("exec echo [secret PW]"), "{shown}");
}

#[test]
fn a_row_that_is_older_than_its_payloads_has_them_all_the_same() {
    let house = scripted("[[rule]]\nstep = [{ text = \"fine\" }]\n", "");
    house.job("j", support::scripts::PLAIN);
    let (_, run) = house.run("j");
    house.writable().execute("UPDATE runs SET payloads = NULL", []).unwrap();
    let id = run["run_id"].as_str().unwrap();
    let shown = house.say(&["show", id, "--json"]).json();
    assert_eq!(shown["payloads"], json!([payload("text", "fine")]));
}
