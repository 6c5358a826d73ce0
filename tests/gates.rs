//! What decides before a model is called, and what runs without one.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::ledger::assert_sound;
use support::scripts::{FINE, PLAIN};
use support::{House, Stub, asking, scripted, until};

/// A model that says what it is asked.
const ECHO: &str = "[[rule]]\nstep = [{ text = \"{{ prompt }}\" }]\n";

fn gated(script: &str, run_if: &str) -> House {
    let house = scripted(ECHO, "");
    house.write("rows.txt", "3 rows\n");
    let gate = format!("[gate]\ncommand = [\"sh\", \"-c\", {script:?}]\nrun_if = \"{run_if}\"\n");
    let house_dir = house.path("").display().to_string();
    house.job("j", &format!("{PLAIN}\n{gate}[env]\nset = {{ HOUSE = {house_dir:?} }}\n"));
    house
}

/// Exit code and what is said about the run.
fn ends(house: &House) -> (Option<i32>, Value) {
    let (code, said) = house.run("j");
    match said.get("decision") {
        Some(_) => (code, json!([said["decision"], said["reason"]])),
        None => (code, json!([said["state"], said["error"]["kind"], said["reply"]])),
    }
}

#[test]
fn a_gate_that_says_no_costs_nothing_and_is_no_failure() {
    let stub = Stub::saying(support::stub::reply("fine"));
    let house = asking(&stub, "", "");
    for (name, script, run_if) in [
        ("ten", "exit 10", "exit_zero"),
        ("silent", "true", "output"),
        ("loud", "echo noise >&2", "output"),
    ] {
        house.job(
            name,
            &format!(
                "{PLAIN}\n[gate]\ncommand = [\"sh\", \"-c\", \"{script}\"]\nrun_if = \"{run_if}\"\n"
            ),
        );
        let (code, said) = house.run(name);
        assert_eq!(
            (code, &said["decision"], &said["reason"]),
            (Some(0), &json!("skipped"), &json!("gate"))
        );
        let said = house.say(&["run", name]);
        assert_eq!(said.code, Some(0));
        assert!(said.stderr.contains("gate: the gate says no"), "{}", said.stderr);
    }
    assert_eq!(stub.requests(), Vec::<Value>::new(), "no model was called");
    let rows = house.rows(
        "SELECT DISTINCT state, error_kind, phase, started_at, model, cleanup_outcome FROM v1_runs",
    );
    assert_eq!(rows, [json!(["cancelled", "gate", "gate", null, null, "clean"])]);
    assert_eq!(house.value("SELECT max(consecutive_failures) FROM v1_jobs"), 0);
    assert_eq!(house.value("SELECT count(*) FROM v1_attempts"), 0);
    assert_sound(&house);
}

#[test]
fn what_a_gate_prints_reaches_the_model() {
    let house = gated("cat $HOUSE/rows.txt", "output");
    let told = "go\n\nThe check before this run printed:\n\n3 rows";
    assert_eq!(ends(&house), (Some(0), json!(["succeeded", null, told])));

    let named = std::fs::read_to_string(house.path("jobs/j.toml")).unwrap();
    house.job("j", &named.replace("\"go\"", "\"found: {{ gate.output }}\""));
    assert_eq!(ends(&house).1[2], "found: 3 rows");

    house.job("j", &named.replace("[gate]", "[gate]\npass_output = false"));
    assert_eq!(ends(&house).1[2], "go");
}

#[test]
fn what_a_gate_prints_of_a_secret_reaches_no_model() {
    let stub = Stub::saying(support::stub::reply("fine"));
    let house = asking(&stub, "", "").with_env("T", "hunter2-long");
    let gate = "[gate]\ncommand = [\"sh\", \"-c\", \"echo $T\"]\n";
    house.job("j", &format!("{PLAIN}{gate}[env.secret]\nT = {{ env = \"T\" }}\n"));
    assert_eq!(house.run("j").0, Some(0));
    let asked = stub.requests()[0].to_string();
    assert!(asked.contains("[secret T]") && !asked.contains("hunter2"), "{asked}");
}

#[test]
fn changed_is_judged_against_the_last_success() {
    let house = gated("cat $HOUSE/rows.txt", "changed");
    let skipped = (Some(0), json!(["skipped", "gate"]));
    assert_eq!(ends(&house).1[0], "succeeded");
    assert_eq!(ends(&house), skipped);
    house.write("rows.txt", "4 rows\n");
    house.write("model.toml", "[[rule]]\nstep = [{ error = { status = 401 } }]\n");
    assert_eq!(ends(&house).1[0], "failed");
    // Nobody has dealt with it yet.
    house.write("model.toml", ECHO);
    assert_eq!(ends(&house).1[0], "succeeded");
    assert_eq!(ends(&house), skipped);
    house.write("rows.txt", "3 rows\n");
    assert_eq!(ends(&house).1[0], "succeeded");
}

#[test]
fn a_gate_that_breaks_fails_the_run_and_one_that_hangs_is_ended() {
    let table = [
        ("echo wrong >&2; exit 3", "the gate failed: it exited with 3: wrong", json!(null)),
        ("sleep 60 & sleep 60", "the gate failed: it took longer than 300ms", json!(300)),
        ("kill -9 $$", "the gate failed: signal 9 ended it", json!(null)),
    ];
    for (script, words, limit) in table {
        let house = gated(script, "exit_zero");
        let text = std::fs::read_to_string(house.path("jobs/j.toml")).unwrap();
        house.job("j", &text.replace("[gate]", "[gate]\ntimeout = \"300ms\""));
        let (code, run) = house.run("j");
        assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("gate_failed")), "{run:#}");
        assert_eq!(run["error"]["message"], words);
        assert_eq!((&run["error"]["limit_ms"], &run["error"]["phase"]), (&limit, &json!("gate")));
        assert_sound(&house);
    }
    let house = gated("true", "exit_zero");
    house.job("j", &format!("{PLAIN}\n[gate]\ncommand = [\"./none.sh\"]\n"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("gate_failed")), "{run:#}");
}

#[test]
fn a_slot_whose_gate_says_no_is_skipped_and_says_so() {
    let house = scripted(FINE, "");
    let job = format!(
        "{PLAIN}\n[schedule]\ncron = \"* * * * * *\"\n[gate]\ncommand = [\"sh\", \"-c\", \"exit 10\"]\n"
    );
    house.job("j", &job);
    let serve = house.serve();
    until("two slots are skipped", || {
        house.value("SELECT count(*) FROM v1_slots WHERE reason = 'gate'").as_i64() >= Some(2)
    });
    serve.stop();
    let rows = house.rows(
        "SELECT DISTINCT s.decision, s.reason, r.state, r.error_kind FROM v1_slots s
         JOIN v1_runs r USING (run_id) WHERE s.reason = 'gate'",
    );
    assert_eq!(rows, [json!(["skipped", "gate", "cancelled", "gate"])]);
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE attempt > 1"), 0);
    assert_sound(&house);
}

fn command(script: &str, more: &str) -> House {
    let house = scripted(FINE, "");
    house.job("j", &format!("[command]\nargv = [\"sh\", \"-c\", {script:?}]\n{more}"));
    house
}

#[test]
fn a_command_is_a_job_without_a_model() {
    let house = command("echo out; echo err >&2; echo $PUNCTUAL_JOB; pwd", "");
    let (code, run) = house.run("j");
    assert_eq!((code, &run["state"]), (Some(0), &json!("succeeded")), "{run:#}");
    let reply = run["reply"].as_str().unwrap();
    assert!(reply.starts_with("out\nj\n/") && reply.contains("workspaces"), "{reply}");
    let row = "SELECT model, exit_code, tool_calls, input_tokens, cleanup_outcome FROM v1_runs";
    assert_eq!(house.rows(row), [json!([null, 0, 0, null, "clean"])]);
    assert_sound(&house);

    let house = command("echo half; echo no rows >&2; exit 3", "");
    let (code, run) = house.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("command_failed")), "{run:#}");
    assert_eq!(run["error"]["message"], "the command failed: it exited with 3: no rows");
    assert_eq!((&run["reply"], &run["partial_text"]), (&json!(null), &json!("half\n")));
    assert_eq!(house.value("SELECT exit_code FROM v1_runs"), 3);

    let house = command("exit 3", "ok_exit = [0, 3]\n");
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(house.value("SELECT exit_code FROM v1_runs"), 3);
}

#[test]
fn a_command_has_limits_checks_and_a_gate_like_a_turn() {
    let house = command(
        "echo begun; sleep 60 & sleep 60",
        "[limits]\ntimeout = \"400ms\"\nstop_grace = \"100ms\"\n",
    );
    let (code, run) = house.run("j");
    assert_eq!((code, &run["error"]["limit"]), (Some(124), &json!("deadline")), "{run:#}");
    assert_eq!((&run["error"]["phase"], &run["partial_text"]), (&json!("tool"), &json!("begun\n")));
    assert_eq!(run["cleanup"]["outcome"], "forced");
    assert_sound(&house);

    let check = "[[check]]\nfile = \"report.txt\"\n";
    let house = command("true", check);
    assert_eq!(house.run("j").1["error"]["kind"], "check_failed");
    let house = command("echo x > report.txt", check);
    assert_eq!(house.run("j").0, Some(0));

    let house = command("echo never", "[gate]\ncommand = [\"sh\", \"-c\", \"exit 10\"]\n");
    assert_eq!(ends(&house), (Some(0), json!(["skipped", "gate"])));

    let house =
        command("echo $T", "[env.secret]\nT = { env = \"T\" }\n").with_secret("T", "hunter2-long");
    let (_, run) = house.run("j");
    assert_eq!(run["reply"], "[secret T]\n", "{run:#}");
}

#[test]
fn a_matrix_is_one_job_per_combination() {
    let house = scripted(ECHO, "");
    house.job(
        "report",
        "[agent]\nprompt = \"{{ matrix.region }} in {{ matrix.size }}\"\ntools = []\n\
         [matrix]\nregion = [\"eu\", \"us\"]\nsize = [\"s\", \"xl\"]\n",
    );
    let said = house.say(&["ls", "--json"]).json();
    let jobs: Vec<_> = said.as_array().unwrap().iter().map(|it| it["job"].clone()).collect();
    assert_eq!(jobs, ["report.eu.s", "report.eu.xl", "report.us.s", "report.us.xl"]);
    let (code, run) = house.run("report.us.xl");
    assert_eq!(
        (code, &run["job"], &run["reply"]),
        (Some(0), &json!("report.us.xl"), &json!("us in xl"))
    );
    assert_eq!(house.rows("SELECT job FROM v1_runs"), [json!(["report.us.xl"])]);
    let effective = "SELECT json_extract(effective, '$.matrix.size') FROM v1_definitions
                     WHERE job = 'report.us.xl'";
    assert_eq!(house.value(effective), "xl");
    assert_eq!(house.say(&["run", "report"]).code, Some(2));
    let said = house.say(&["next", "report"]);
    let words = "`report` is a matrix: name one of its jobs, such as `report.eu.s`";
    assert!(said.code == Some(2) && said.stderr.contains(words), "{said:?}");
}

#[test]
fn a_matrix_that_breaks_keeps_the_last_good_version_of_each_of_its_jobs() {
    let house = scripted(FINE, "");
    let good = format!("{PLAIN}[matrix]\nregion = [\"eu\", \"us\"]\n");
    house.job("report", &good);
    let serve = house.serve();
    house.job("report", &good.replace("prompt", "promt"));
    assert_eq!(house.say(&["reload"]).code, Some(0));
    let invalid = "SELECT job FROM v1_jobs WHERE invalid_reason IS NOT NULL AND removed_at IS NULL ORDER BY job";
    assert_eq!(house.rows(invalid), [json!(["report.eu"]), json!(["report.us"])]);
    assert_eq!(house.value("SELECT count(*) FROM v1_jobs"), 2);
    house.job("report", &good.replace("\"us\"", "\"asia\""));
    assert_eq!(house.say(&["reload"]).code, Some(0));
    let there =
        "SELECT job FROM v1_jobs WHERE removed_at IS NULL AND invalid_reason IS NULL ORDER BY job";
    assert_eq!(house.rows(there), [json!(["report.asia"]), json!(["report.eu"])]);
    serve.stop();
    // The same over a restart.
    house.job("report", &good.replace("prompt", "promt"));
    let serve = house.serve();
    assert_eq!(house.rows(invalid), [json!(["report.asia"]), json!(["report.eu"])]);
    serve.stop();
}

#[test]
fn a_prompt_may_name_what_was_said_before() {
    let house = scripted(ECHO, "");
    house.job("first-one", "[command]\nargv = [\"echo\", \"seven\"]\n");
    house.job("other", "[command]\nargv = [\"echo\", \"eight\"]\n");
    house.job(
        "j",
        "[agent]\ntools = []\nprompt = \"before: {{ previous.reply }}; {{ jobs['first-one'].reply | trim }}, {{ jobs.other.reply | trim }}\"\n",
    );
    let (_, run) = house.run("j");
    assert_eq!(run["error"]["kind"], "validation", "nobody has said anything: {run:#}");
    for job in ["first-one", "other"] {
        assert_eq!(house.run(job).0, Some(0));
    }
    assert_eq!(house.run("j").1["reply"], "before: ; seven, eight");
    assert_eq!(house.run("j").1["reply"], "before: before: ; seven, eight; seven, eight");
}
