//! What a command gets from outside: secrets that nothing stored repeats, variables, a folder.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use support::scripts::{KEY, exec_job, exec_script};
use support::stub::{Act, Stub, call, event, finish, head, text};
use support::{asking, scripted};

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
        vec![
            Act::Say(head() + &a),
            Act::Wait(Duration::from_millis(300)),
            Act::Say(b + &finish("stop")),
        ]
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
