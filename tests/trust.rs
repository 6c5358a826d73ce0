//! What a run must not get, tell or change: provider keys, secrets, other jobs, and what its job
//! does not allow. With the real binary, from outside.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use support::scripts::{KEY, PLAIN, exec_job, exec_script};
use support::stub::{Act, Stub, call, finish, head, refusal, text};
use support::{House, asking, scripted};

/// Tool, outcome and count of every call of the newest run.
fn verdicts(house: &House) -> Vec<Value> {
    house.rows("SELECT tool, outcome FROM v1_tool_calls ORDER BY run_id, n")
}

// B141
#[test]
fn no_key_of_the_process_reaches_a_command() {
    let look = "env; echo ---; tr '\\0' '\\n' < /proc/$PPID/environ; echo ---; \
                for n in 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28; \
                do if [ -e /proc/self/fd/$n ]; then echo open $n; fi; done; ls /proc/self/fd | wc -l";
    let keys = [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "SSH_AUTH_SOCK",
        "PUNCTUAL_TOKEN",
    ];
    let house = keys.iter().zip(1..).fold(scripted(&exec_script(look), ""), |house, (name, n)| {
        house.with_secret(name, &format!("zq{n}-heron-0123456789"))
    });
    house.job("j", &exec_job(""));
    let seen = |run: &Value| {
        assert_eq!(run["state"], "succeeded", "{run:#}");
        let reply = run["reply"].as_str().unwrap();
        for name in keys {
            assert!(!reply.contains(name) && !reply.contains("-heron-"), "{reply}");
        }
        let parts: Vec<_> = reply.split("---\n").collect();
        // Of the supervisor nothing can be read, and nothing is open but `ls`'s own look.
        let shut = parts[1].is_empty() || parts[1].ends_with("environ: Permission denied\n");
        assert!(shut && parts[2].trim() == "4", "{reply}");
    };
    seen(&house.run("j").1);
    let serve = house.serve();
    seen(&house.run("j").1);
    assert_eq!(serve.stop().code, Some(0));
}

// B142
#[test]
fn a_key_is_in_nothing_that_is_kept_or_said_however_it_comes() {
    let words = format!(
        "Incorrect API key provided: {KEY}. Request: POST /v1/chat?key={KEY} \
         headers={{\"authorization\": \"Bearer {KEY}\", \"x-api-key\": \"{KEY}\"}}"
    );
    let refused = refusal("401 Unauthorized", &json!({"error": {"message": words, "code": KEY}}));
    let stub = Stub::new(move |n| {
        vec![Act::Say(match n {
            0 => refused.clone(),
            // A tool prints it, whole and in two pieces that come apart.
            1 => {
                let script = "printf %s \"$TOKEN\"; echo; printf %s \"${TOKEN%abcdefghij}\"; \
                              sleep 0.3; printf %s abcdefghij; echo \"$TOKEN\" >&2";
                let arguments = json!({"command": script}).to_string();
                head() + &call("exec", &arguments) + &finish("tool_calls")
            }
            2 => return split(),
            _ => unreachable!("three requests"),
        })]
    });
    let keys = "[[models.providers.local.auth]]\nname = \"one\"\napi_key_env = \"MODEL_KEY\"\n\
                [[models.providers.local.auth]]\nname = \"two\"\napi_key_env = \"SAME_KEY\"\n";
    let house = asking(&stub, "", keys)
        .with_secret("MODEL_KEY", KEY)
        .with_secret("SAME_KEY", KEY)
        .with_env("PUNCTUAL_LOG", "trace");
    house.job("j", &(exec_job("") + "[env]\nsecret = { TOKEN = { env = \"MODEL_KEY\" } }\n"));
    let serve = house.serve();
    let events = house.follow("j");
    house.write("events.json", &Value::from(events).to_string());
    for arguments in [&["logs", "j", "--json"][..], &["show", "j"], &["runs", "--json"]] {
        assert_eq!(house.say(arguments).code, Some(0));
    }
    let outputs = house.say(&["query", "SELECT * FROM v1_runs, v1_attempts"]);
    assert_eq!(outputs.code, Some(0), "{outputs:?}");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(stub.requests().len(), 3);
    // Neither does the model see what the tool printed.
    assert!(!stub.requests()[2]["messages"].to_string().contains(&KEY[..8]));
    // Where it was is said.
    assert!(house.files_with("[secret ").len() >= 3, "transcript, database, events");
    // The house looks for the key itself when it goes.
}

/// An answer with the key over two packets.
fn split() -> Vec<Act> {
    let (a, b) = KEY.split_at(6);
    vec![
        Act::Say(head() + &text(&format!("it is {a}"))),
        Act::Wait(std::time::Duration::from_millis(200)),
        Act::Say(text(b) + &finish("stop")),
    ]
}

// B144
#[test]
fn a_run_changes_no_other_job() {
    let edit = json!({"path": "jobs/prod-alert.toml", "old": "go", "new": "stop"});
    let write = |path: &str| json!({"path": path, "content": "enabled = false\n"});
    let stub = Stub::calling(&[
        ("edit", edit),
        ("write", write("jobs/prod-alert.toml")),
        ("write", write("jobs/fresh.toml")),
        ("write", write("jobs/../jobs/./a.toml")),
        ("write", write("link/fresh.toml")),
        ("write", write("config.toml")),
        ("write", write("state/x")),
        ("write", write("mine.txt")),
    ]);
    let house = asking(&stub, "", "");
    house.job("prod-alert", PLAIN);
    let a = "[agent]\nprompt = \"go\"\ntools = [\"read\", \"write\", \"edit\"]\nworkdir = \"..\"\n";
    house.job("a", a);
    symlink("jobs", house.path("link")).unwrap();
    let before = fs::read_to_string(house.path("config.toml")).unwrap();
    let (code, run) = house.run("a");
    assert_eq!(
        (code, &run["reply"], &run["tools"]["denied"]),
        (Some(0), &json!("fine"), &json!(7))
    );
    let outcomes: Vec<_> = verdicts(&house).iter().map(|row| row[1].clone()).collect();
    assert_eq!(outcomes[..7], vec![json!("denied"); 7]);
    assert_eq!(outcomes[7], "ok");
    let read = |name: &str| fs::read_to_string(house.path(name)).unwrap();
    assert_eq!((read("jobs/prod-alert.toml").as_str(), read("jobs/a.toml").as_str()), (PLAIN, a));
    assert_eq!(read("config.toml"), before);
    assert!(!house.path("jobs/fresh.toml").exists() && !house.path("state/x").exists());

    // Nor when it is recorded, with a state folder elsewhere.
    let said = house.say(&["test", "a", "--record"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(read("jobs/a.cassette").matches("verdict = \"denied\"").count(), 7);
    assert!(!house.path("jobs/fresh.toml").exists() && !house.path("state/x").exists());

    // No verb takes a part of a name, and none of them touches what it might have meant.
    let serve = house.serve();
    for verb in ["pause", "cancel", "run", "resume", "backfill"] {
        let period = ["--from", "2026-01-01", "--to", "2026-01-02"];
        let more = if verb == "backfill" { &period[..] } else { &[] };
        let said = house.say(&[&[verb, "prod"], more].concat());
        assert_eq!(said.code, Some(2), "{verb}: {said:?}");
    }
    assert_eq!(serve.stop().code, Some(0));
    let paused = "SELECT paused_reason FROM v1_jobs WHERE job = 'prod-alert'";
    assert_eq!(house.value(paused), Value::Null);
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE job = 'prod-alert'"), 0);
}

// B145
#[test]
fn what_a_job_does_not_allow_is_refused_whatever_the_words() {
    let asked: &[(&str, Value)] = &[
        ("exec", json!({"command": "id > made"})),
        ("shell", json!({"command": "id"})),
        ("write", json!({"path": "made", "content": "x"})),
        ("no_such_tool", json!({"please": "this once"})),
        ("read", json!({"path": "link/secret.txt"})),
        ("read", json!({"path": "../secret.txt"})),
        ("read", json!({"path": "inside/../../secret.txt"})),
        ("read", json!({"path": "/etc/hostname"})),
        ("read", json!({"path": "inside/fine.txt"})),
    ];
    // With the tools that are named, and with those of a job that names none.
    for tools in ["tools = [\"read\"]\n", ""] {
        let stub = Stub::calling(asked);
        let house = asking(&stub, "", "");
        house.write("secret.txt", "out of reach");
        fs::create_dir_all(house.path("work/inside")).unwrap();
        house.write("work/inside/fine.txt", "in reach");
        symlink("..", house.path("work/link")).unwrap();
        house.job("j", &format!("[agent]\nprompt = \"go\"\nworkdir = \"../work\"\n{tools}"));
        let (code, run) = house.run("j");
        assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#}");
        assert_eq!(run["tools"], json!({"calls": 9, "errors": 0, "denied": 8}));
        let found = verdicts(&house);
        let outcomes = std::iter::repeat_n("denied", 8).chain(["ok"]);
        let expected: Vec<_> =
            asked.iter().zip(outcomes).map(|((tool, _), it)| json!([tool, it])).collect();
        assert_eq!(found, expected);
        assert!(!house.path("work/made").exists());
        let told = stub.requests().last().unwrap()["messages"].to_string();
        assert!(told.contains("in reach") && !told.contains("out of reach"), "{told}");
        // A model that insists gets the same answer: there are no words for it.
        let offered: Vec<_> = stub.requests()[0]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["function"]["name"].clone())
            .collect();
        let usual =
            if tools.is_empty() { json!(["read", "list", "grep"]) } else { json!(["read"]) };
        assert_eq!(Value::from(offered), usual);
    }
}

// B103: a tool that looks and finds nothing fails no run; B105: nobody is asked, and a question is an
// answer like any other.
#[test]
fn a_failed_look_a_refused_call_and_a_question_at_the_end_are_a_run_that_succeeds() {
    let asked = [
        ("exec", json!({"command": "test -f nowhere"})),
        ("exec", json!({"command": "rm -rf /"})),
        ("exec", json!({"command": "test -d ."})),
    ];
    let answers: Vec<_> = asked
        .iter()
        .map(|(tool, arguments)| {
            head() + &call(tool, &arguments.to_string()) + &finish("tool_calls")
        })
        .collect();
    let stub = Stub::new(move |n| {
        let end = || head() + &text("Shall I go on?") + &finish("stop");
        vec![Act::Say(answers.get(n).cloned().unwrap_or_else(end))]
    });
    let house = asking(&stub, "", "");
    let allow = "tools = [\"exec\"]\nexec_allow = [\"test *\"]\n";
    house.job("j", &format!("[agent]\nprompt = \"go\"\n{allow}"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("Shall I go on?")), "{run:#}");
    assert_eq!(run["tools"], json!({"calls": 3, "errors": 1, "denied": 1}));
    let outcomes = [json!(["exec", "error"]), json!(["exec", "denied"]), json!(["exec", "ok"])];
    assert_eq!(verdicts(&house), outcomes);
    let slowest = "SELECT max(duration_ms) < 5000 FROM v1_tool_calls";
    assert_eq!(house.value(slowest), 1, "a refused call waits for nobody");
}
