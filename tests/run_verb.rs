//! What a run by hand asks the model and what it answers: exit codes, the run object, events.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::run_object::{assert_has_every_key, assert_run};
use support::scripts::{MANY, PLAIN, by_hand, exec_job, exec_script};
use support::stub::{Stub, reply};
use support::{LONG, asking, scripted};

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
fn programs_read_json_or_nothing_whatever_is_refused() {
    let house = scripted(
        "[[rule]]\nwhen = { contains = \"hang\" }\nstep = [{ text = \"so far\" }, { hang = true }]\n\
         [[rule]]\nwhen = { contains = \"fail\" }\n\
         step = [{ error = { status = 400, message = \"no\" } }]\n\
         [[rule]]\nstep = [{ text = \"fine\" }]\n",
        "",
    );
    house.job("bad", &PLAIN.replace("go", "fail"));
    house.job("off", &format!("enabled = false\n{PLAIN}"));
    house.job("broken", "[agent]\npromt = \"go\"\n");
    house.job("slow", &format!("{}[limits]\ntimeout = \"1s\"\n", PLAIN.replace("go", "hang")));
    house.job("long", &PLAIN.replace("go", "hang"));
    house.job("held", PLAIN);
    assert_eq!(house.say(&["pause", "held", "--reason", "moving"]).code, Some(0));
    // What is told as JSON is told there alone; of the others, nothing but words.
    let ended: [(&[&str], i32, &str); 2] =
        [(&["run", "bad"], 1, "failed"), (&["run", "slow"], 124, "timed_out")];
    let refused: [(&[&str], i32, &str); 15] = [
        (&["run", "nobody"], 2, "there is no job `nobody`"),
        (&["run", "broken"], 2, "promt"),
        (&["run", "held", "--slot", "2026-01-01"], 2, "no schedule"),
        (&["run", "held", "--wings"], 2, "--wings"),
        (&["run", "off"], 3, "disabled"),
        (&["run", "held"], 3, "moving"),
        (&["cancel", "nobody"], 2, "nobody"),
        (&["pause", "nobody"], 2, "nobody"),
        (&["resume", "nobody"], 2, "nobody"),
        (&["show", "nobody"], 2, "nobody"),
        (&["next", "nobody"], 2, "nobody"),
        (&["why", "nobody"], 2, "nobody"),
        (&["logs", "nobody"], 2, "nobody"),
        (&["runs", "--state", "flying"], 2, "flying"),
        (&["slots", "--since", "whenever"], 2, "whenever"),
    ];
    let check = |serve: &str| {
        for (arguments, code, state) in ended {
            let said = house.say(&[arguments, &["--json"]].concat());
            assert_eq!(said.code, Some(code), "{serve}: {arguments:?}: {said:?}");
            assert_eq!(said.json()["state"], state, "{serve}: {arguments:?}: {said:?}");
        }
        for (arguments, code, words) in refused {
            let said = house.say(&[arguments, &["--json"]].concat());
            let found = (said.code, said.stdout.as_str());
            assert_eq!(found, (Some(code), ""), "{serve}: {arguments:?}: {said:?}");
            let told = !said.stderr.trim().is_empty() && said.stderr.contains(words);
            assert!(told, "{serve}: {arguments:?}: {said:?}");
        }
        let said = house.say(&["cancel", "held", "--json"]);
        assert_eq!((said.code, said.json()), (Some(3), json!({"cancelled": []})), "{serve}");
    };
    check("without a serve");
    let serve = house.serve();
    check("with a serve");
    house.detach("long");
    house.until("SELECT state = 'running' FROM v1_runs WHERE job = 'long'");
    let said = house.say(&["run", "long", "--json"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(3), ""), "{said:?}");
    assert!(said.stderr.contains("already running"), "{said:?}");
    assert_eq!(house.say(&["cancel", "long"]).code, Some(0));
    assert_eq!(serve.stop().code, Some(0));
    // What is wrong with the files is the answer itself.
    let said = house.say(&["validate", "--json"]);
    assert_eq!((said.code, said.json().to_string().contains("promt")), (Some(2), true), "{said:?}");
}

#[test]
fn the_run_object_has_every_key_and_standard_output_nothing_else() {
    let house = scripted(&exec_script("echo hi"), "");
    house.job("j", &exec_job(""));
    let said = house.say(&["run", "j", "--json"]);
    let run = said.json();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_has_every_key(&run);
    let found = keys(&run);
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
fn one_terminal_event_ends_what_a_run_tells() {
    let house = scripted(MANY, "");
    house.job("brief", &by_hand("brief", "", ""));
    let serve = house.serve();
    let run_id = house.detach("brief");
    let said = house.say(&["logs", &run_id, "-f", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let events: Vec<Value> =
        said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let terminal = |event: &&Value| {
        event["stream"] == "lifecycle"
            && ["end", "error"].contains(&event["phase"].as_str().unwrap())
    };
    assert_eq!(events.iter().filter(terminal).count(), 1, "{events:#?}");
    assert!(terminal(&events.last().unwrap()), "{events:#?}");
    assert_eq!(serve.stop().code, Some(0));
}
