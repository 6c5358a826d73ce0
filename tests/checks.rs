//! The host decides whether a run has succeeded, whatever its model says.

#![expect(clippy::disallowed_methods, reason = "a file is made to look old from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::ledger::assert_sound;
use support::scripts::{exec_job, exec_script};
use support::{House, scripted, until};

/// A job whose tool runs `command`, and these checks.
fn house(command: &str, checks: &str) -> House {
    let house = scripted(&exec_script(command), "");
    house.job("j", &format!("{}\n{checks}", exec_job("")));
    house
}

/// What becomes of it: exit code, state, kind of error, and each check with whether it passed.
fn ends(house: &House) -> (Option<i32>, Value) {
    let (code, run) = house.run("j");
    let checks: Vec<_> = run["checks"].as_array().unwrap().iter().collect();
    let passed: Vec<_> = checks.iter().map(|it| json!([it["name"], it["passed"]])).collect();
    (code, json!([run["state"], run["error"]["kind"], passed]))
}

fn detail(house: &House) -> String {
    let detail = house.value("SELECT detail FROM v1_checks WHERE passed = 0");
    detail.as_str().unwrap_or_else(|| panic!("nothing has failed")).to_owned()
}

#[test]
fn what_it_says_is_not_what_counts() {
    let missing = "[[check]]\nname = \"report\"\nfile = \"out/report.md\"\nmin_bytes = 6\n";
    let failed = json!(["failed", "check_failed", [["report", false]]]);
    let red = house("echo the report is written", missing);
    assert_eq!(ends(&red), (Some(1), failed.clone()));
    assert_eq!(detail(&red), "there is no file `out/report.md`");
    let run = red.rows("SELECT reply, partial_text, error_message, cleanup_outcome FROM v1_runs");
    let words = "report: there is no file `out/report.md`";
    assert_eq!(run, [json!([null, "the report is written\n", words, "clean"])]);

    let small = house("mkdir out && echo hi > out/report.md; echo done", missing);
    assert_eq!(ends(&small), (Some(1), failed));
    assert_eq!(detail(&small), "`out/report.md` has 3 bytes, at least 6 are expected");

    let green = house("mkdir out && echo report > out/report.md; echo done", missing);
    assert_eq!(ends(&green), (Some(0), json!(["succeeded", null, [["report", true]]])));
    assert_sound(&green);
}

#[test]
fn a_file_of_yesterday_is_no_report_of_today() {
    for (more, state) in [("", "failed"), ("fresh = false\n", "succeeded")] {
        let house = scripted(&exec_script("cat data/old.txt"), "");
        std::fs::create_dir(house.path("data")).unwrap();
        house.write("data/old.txt", "old");
        let old = std::time::SystemTime::now() - std::time::Duration::from_hours(24);
        std::fs::File::options()
            .write(true)
            .open(house.path("data/old.txt"))
            .unwrap()
            .set_modified(old)
            .unwrap();
        let job = exec_job("").replace("[agent]", "[agent]\nworkdir = \"..\"");
        house.job("j", &format!("{job}\n[[check]]\nfile = \"data/old.txt\"\n{more}"));
        let (_, run) = house.run("j");
        assert_eq!(run["state"], state, "{run:#}");
        assert_eq!(run["checks"][0]["name"], "file data/old.txt");
    }
}

#[test]
fn replies_are_matched_commands_run_and_the_history_is_asked() {
    let checks = r#"
[[check]]
name = "says total"
regex = "(?i)total: \\d+"
[[check]]
name = "is no excuse"
not_regex = "(?i)i cannot"
[[check]]
name = "leaves a sum"
command = ["sh", "-c", "test -s sum.txt && test \"$LANG\" = C.UTF-8"]
[[check]]
name = "is the only one"
sql = "SELECT count(*) = 1 FROM v1_runs WHERE run_id = :run_id AND job = :job"
[[check]]
name = "asks for nothing else"
tools = "none_denied"
"#;
    let names =
        ["says total", "is no excuse", "leaves a sum", "is the only one", "asks for nothing else"];
    let all = |passed: bool| names.map(|name| json!([name, passed]));
    let good = house("echo 5 > sum.txt; echo Total: 5", checks);
    assert_eq!(ends(&good), (Some(0), json!(["succeeded", null, all(true)])));

    let bad = house("echo I cannot find the files", checks);
    let (code, run) = bad.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("check_failed")));
    let failed = "SELECT name, detail FROM v1_checks WHERE passed = 0 ORDER BY n";
    assert_eq!(
        bad.rows(failed),
        [
            json!(["says total", "the reply does not match `(?i)total: \\d+`"]),
            json!(["is no excuse", "the reply matches `(?i)i cannot`: `I cannot`"]),
            json!(["leaves a sum", "it exited with 1"]),
        ]
    );
    let message = run["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("(and 2 more of 5 checks)"), "{message}");
    let shown = bad.say(&["show", run["run_id"].as_str().unwrap()]).stdout;
    assert!(shown.contains("  check     is the only one passed"), "{shown}");
    assert!(shown.contains("  check     leaves a sum failed: it exited with 1"), "{shown}");
}

#[test]
fn a_reply_has_the_shape_that_was_asked_for() {
    let schema = r#"{"type": "object", "required": ["total"],
                     "properties": {"total": {"type": "integer"}}}"#;
    for (reply, state, kind) in [
        ("{\"total\": 5}", "succeeded", Value::Null),
        ("{\"total\": \"five\"}", "failed", json!("output_invalid")),
        ("{}", "failed", json!("output_invalid")),
        ("about five", "failed", json!("output_invalid")),
    ] {
        let house = scripted(&exec_script(&format!("echo '{reply}'")), "");
        house.write("jobs/report.schema.json", schema);
        house.job("j", &format!("{}\n[output]\nschema = \"report.schema.json\"\n", exec_job("")));
        let (_, run) = house.run("j");
        assert_eq!((&run["state"], &run["error"]["kind"]), (&json!(state), &kind), "{run:#}");
        let message = run["error"]["message"].as_str().unwrap_or("output.schema: ");
        assert!(message.starts_with("output.schema: "), "{message}");
    }
}

#[test]
fn what_a_check_leaves_is_ended_and_a_query_cannot_write() {
    let checks = r#"
[[check]]
name = "leaves something"
command = ["sh", "-c", "setsid sleep 60 & echo begun"]
[[check]]
name = "writes"
sql = "DELETE FROM runs"
[[check]]
name = "has no program"
command = ["no-such-program"]
"#;
    let house = house("echo fine", checks);
    let passed = json!([["leaves something", true], ["writes", false], ["has no program", false]]);
    assert_eq!(ends(&house), (Some(1), json!(["failed", "check_failed", passed])));
    house.assert_nothing_is_left();
    assert_eq!(house.value("SELECT count(*) FROM v1_runs"), 1);
    let details = house.rows("SELECT detail FROM v1_checks WHERE passed = 0 ORDER BY n");
    assert_eq!(details[0], json!(["only reading is allowed here, not writing to runs"]));
    assert!(details[1][0].as_str().unwrap().contains("no such command"), "{details:?}");
}

#[test]
fn the_grace_of_a_job_takes_no_time_from_its_checks() {
    let house = scripted(&exec_script("echo fine"), "");
    let check = "[[check]]\nname = \"sleeps\"\ncommand = [\"sleep\", \"0.3\"]\n";
    house.job("j", &format!("{}\n{check}", exec_job("stop_grace = \"1m\"")));
    assert_eq!(ends(&house), (Some(0), json!(["succeeded", null, [["sleeps", true]]])));
}

#[test]
fn a_run_that_did_not_end_by_itself_is_not_looked_at() {
    let house = house("sleep 60", "[[check]]\nfile = \"x\"\n");
    house.job("j", &format!("{}\n[[check]]\nfile = \"x\"\n", exec_job("timeout = \"1s\"")));
    assert_eq!(ends(&house), (Some(124), json!(["timed_out", "deadline", []])));
}

#[test]
fn nobody_takes_a_run_for_a_success_that_nobody_has_checked() {
    let house = house("echo fine", "[[check]]\ncommand = [\"sleep\", \"50\"]\n");
    let serve = house.serve();
    house.detach("j");
    until("the check runs", || house.living("sleep 50") == 1);
    serve.kill();
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(
        house.rows("SELECT state, error_kind, error_message, reply, partial_text FROM v1_runs"),
        [json!(["failed", "check_failed", "nobody was left to check its success", null, "fine\n"])]
    );
    house.assert_nothing_is_left();
    assert_sound(&house);
}

#[test]
fn wrong_checks_are_refused_with_their_place() {
    for (check, words) in [
        (
            "name = \"x\"\n",
            "a check has one of file, command, regex, not_regex, sql, schema, tools: here none",
        ),
        ("file = \"x\"\nregex = \"y\"\n", "here file, regex"),
        ("regex = \"(\"\n", "no regular expression"),
        ("regex = \"x\"\nmin_bytes = 3\n", "`min_bytes` belongs to a check of a `file`"),
        ("file = \"\"\n", "`file` is empty"),
        ("command = []\n", "the command names no program"),
        ("schema = \"none.json\"\n", "No such file"),
        ("tools = \"all\"\n", "none_denied"),
        ("fil = \"x\"\n", "did you mean `file`"),
    ] {
        let house = house("echo fine", &format!("[[check]]\n{check}"));
        let said = house.say(&["validate"]);
        assert_eq!(said.code, Some(2), "{check}: {said:?}");
        assert!(said.stderr.contains(words) || said.stdout.contains(words), "{check}: {said:?}");
    }
}

/// Two models in one script: what the first does, and what the second does.
fn two_models(first: &str, second: &str, checks: &str) -> House {
    let rule =
        |model: &str, step: &str| format!("[[rule]]\nwhen = {{ model = \"{model}\", {step}\n");
    let script = rule("weak", first) + &rule("strong", second);
    let house = House::new(
        "[agents.defaults]\nmodel = \"local/weak\"\nfallbacks = [\"local/strong\"]\n\
         [models.providers.local]\napi = \"script\"\nscript = \"model.toml\"\n",
    );
    house.write("model.toml", &script);
    let job = exec_job("").replace("[agent]", "[agent]\nescalate_on = \"check_failed\"");
    house.job("j", &format!("{job}\n{checks}"));
    house
}

const WRITES: &str = "turn = 1 }\nstep = [{ tool = { name = \"exec\", arguments = { command = \"echo report > out.md\" } } }]\n\
    [[rule]]\nwhen = { model = \"strong\", turn = 2 }\nstep = [{ text = \"it is written\" }]";

#[test]
fn the_next_model_puts_right_what_the_host_does_not_accept() {
    let check = "[[check]]\nname = \"report\"\nfile = \"out.md\"\n";
    let house = two_models("turn = 0 }\nstep = [{ text = \"done\" }]", WRITES, check);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("it is written")), "{run:#}");
    let attempts = house.rows("SELECT model, state, error_kind FROM v1_attempts ORDER BY n");
    assert_eq!(
        attempts,
        [
            json!(["local/weak", "failed", "check_failed"]),
            json!(["local/strong", "succeeded", null])
        ]
    );
    assert_eq!(house.rows("SELECT name, passed FROM v1_checks"), [json!(["report", 1])]);
    let session = run["session_id"].as_str().unwrap();
    let said =
        std::fs::read_to_string(house.path(&format!("state/sessions/{session}.jsonl"))).unwrap();
    assert!(said.contains("is not accepted:\\n- report: there is no file `out.md`"), "{said}");
    assert_sound(&house);
}

#[test]
fn every_model_is_asked_once_and_the_last_failure_counts() {
    let check = "[[check]]\nname = \"report\"\nfile = \"out.md\"\n";
    let says = |turn: u32| format!("turn = {turn} }}\nstep = [{{ text = \"done {turn}\" }}]");
    let house = two_models(&says(0), &says(1), check);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("check_failed")), "{run:#}");
    assert_eq!(run["partial_text"], "done 1");
    assert_eq!(house.value("SELECT count(*) FROM v1_attempts"), 2);
    assert_eq!(house.rows("SELECT name, passed FROM v1_checks"), [json!(["report", 0])]);
}

#[test]
fn what_a_model_leaves_running_ends_before_the_next_one_goes_on() {
    let check = "[[check]]\nname = \"report\"\nfile = \"out.md\"\n";
    let first = "turn = 0 }\nstep = [{ tool = { name = \"exec\", arguments = { command = \"(sleep 300; echo late > out.md) & echo begun\" } } }]\n\
        [[rule]]\nwhen = { model = \"weak\", turn = 1 }\nstep = [{ text = \"done\" }]";
    let second = WRITES.replace("turn = 2", "turn = 3").replace("turn = 1", "turn = 2");
    let house = two_models(first, &second, check);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("it is written")), "{run:#}");
    assert_eq!(run["cleanup"]["outcome"], "forced");
    assert_sound(&house);
}

#[test]
fn a_reply_that_only_announces_work_is_no_report() {
    let announces = "echo \"I'll start by looking at the logs.\"";
    let red = house(announces, "");
    let (code, run) = red.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("check_failed")), "{run:#}");
    assert_eq!(run["error"]["message"], "the reply only announces work");
    assert_eq!(run["partial_text"], "I'll start by looking at the logs.\n");
    // Who has no tools can do nothing else.
    let plain = scripted("[[rule]]\nstep = [{ text = \"I will wait.\" }]\n", "");
    plain.job("j", "[agent]\nprompt = \"what will you do?\"\ntools = []\n");
    assert_eq!(plain.run("j").0, Some(0));
}

#[test]
fn artifacts_are_kept_and_a_missing_one_is_no_success() {
    let output = "[output]\nartifacts = [\"out/*.pdf\", \"sum.txt\"]\n";
    let made = house(
        "mkdir -p out/deep && echo a > out/a.pdf && echo b > out/deep/b.pdf && echo 5 > sum.txt; ln -s /etc/passwd out/p.pdf; echo done",
        output,
    );
    let (code, run) = made.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    let kept = made.rows("SELECT path, bytes, file FROM v1_artifacts ORDER BY path");
    let run_id = run["run_id"].as_str().unwrap();
    assert_eq!(
        kept,
        [
            json!(["out/a.pdf", 2, format!("artifacts/{run_id}/out/a.pdf")]),
            json!(["sum.txt", 2, format!("artifacts/{run_id}/sum.txt")]),
        ]
    );
    let copy = made.path(&format!("state/artifacts/{run_id}/out/a.pdf"));
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "a\n");
    assert!(made.say(&["show", run_id]).stdout.contains("out/a.pdf"));
    assert_eq!(made.say(&["backup", "copy"]).code, Some(0));
    let copy = made.path(&format!("copy/artifacts/{run_id}/out/a.pdf"));
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "a\n");

    let missing = house("echo 5 > sum.txt; echo done", output);
    let (code, run) = missing.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("check_failed")), "{run:#}");
    assert_eq!(detail(&missing), "no file `out/*.pdf` was written");
    assert_sound(&missing);

    let large = house(
        "for n in 1 2 3; do truncate -s 40M $n.bin; done; echo done",
        "[output]\nartifacts = [\"*.bin\"]\n",
    );
    let (_, run) = large.run("j");
    assert_eq!(run["error"]["kind"], "check_failed", "{run:#}");
    assert!(detail(&large).contains("at most 100 MiB"), "{}", detail(&large));
    assert!(!large.path("state/artifacts").exists());
}
