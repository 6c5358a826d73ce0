//! Hooks as commands of `[[hooks]]`, with real scripts: what they may do, and what becomes of a run
//! when they hang, crash, print garbage or megabytes, ignore TERM or leave daemons behind.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use support::ledger::assert_sound;
use support::scripts::{FINE, PLAIN, exec_job, exec_script};
use support::{House, scripted, until};

/// A model that says what it is asked.
const ECHO: &str = "[[rule]]\nstep = [{ text = \"{{ prompt }}\" }]\n";

/// A hook: where, what its script does, more keys.
type Hook<'a> = (&'a str, &'a str, &'a str);

/// A house with these hooks, named `h1`, `h2` … Each script has `$LOG`, a file of the house, and
/// `$IN`, what it was given.
fn hooked(model: &str, hooks: &[Hook<'_>], more: &str) -> House {
    let house = scripted(model, &format!("{more}\n{}", tables(hooks)));
    write_scripts(&house, hooks);
    house
}

fn tables(hooks: &[Hook<'_>]) -> String {
    let mut tables = String::new();
    for (n, (on, _, keys)) in (1..).zip(hooks) {
        let table = format!("[[hooks]]\non = \"{on}\"\ncommand = [\"./h{n}\"]\n{keys}\n");
        write!(tables, "{table}").unwrap();
    }
    tables
}

fn write_scripts(house: &House, hooks: &[Hook<'_>]) {
    let log = house.path("log");
    for (n, (_, script, _)) in (1..).zip(hooks) {
        let name = format!("h{n}");
        let head = format!("#!/bin/sh\nLOG={}\nIN=$(cat)\n", log.display());
        house.write(&name, &format!("{head}{script}\n"));
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(house.path(&name), mode).unwrap();
    }
}

fn log(house: &House) -> String {
    std::fs::read_to_string(house.path("log")).unwrap_or_default()
}

/// The lines of the log as JSON.
fn told(house: &House) -> Vec<Value> {
    log(house).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What `v1_hooks` has of each: hook, name, outcome, what it changed.
fn kept(house: &House) -> Vec<Value> {
    house.rows("SELECT hook, name, outcome, changed FROM v1_hooks ORDER BY run_id, n")
}

/// The custom entries that hooks have left in the transcript of the last run.
fn noted(house: &House) -> Vec<Value> {
    let path = house.value("SELECT session_id FROM v1_runs ORDER BY queued_at DESC LIMIT 1");
    let path = house.path(&format!("state/sessions/{}.jsonl", path.as_str().unwrap()));
    let text = std::fs::read_to_string(path).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries
        .filter(|it| it["type"] == "custom" && it["name"] == "hook")
        .map(|it| it["data"].clone())
        .collect()
}

#[test]
fn before_tool_call_may_change_the_arguments_and_refuse_the_call() {
    // semantics §8, row before_tool_call
    let change = r#"echo '{"arguments": {"command": "echo other"}}'"#;
    let see = r#"printf "%s\n" "$IN" >> $LOG; echo '{"block": false}'"#;
    let house = hooked(
        &exec_script("echo mine"),
        &[("before_tool_call", see, "priority = -1"), ("before_tool_call", change, "")],
        "",
    );
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!((code, run["reply"].as_str().unwrap().trim()), (Some(0), "other"));
    let given = &told(&house)[0];
    assert_eq!(given["hook"], "before_tool_call");
    assert_eq!(given["arguments"], json!({"command": "echo other"}), "lower sees what higher did");
    assert_eq!(given["run"]["job"], "j");
    assert_eq!(given["run"]["run_id"], run["run_id"]);
    let expected = [
        json!(["before_tool_call", "h2", "changed", "[\"arguments\"]"]),
        json!(["before_tool_call", "h1", "ok", "[]"]),
    ];
    assert_eq!(kept(&house), expected);
    let by = json!({"hook": "before_tool_call", "by": "h2", "changed": ["arguments"]});
    assert_eq!(noted(&house), [by]);

    let house = hooked(
        &exec_script("echo mine"),
        &[
            ("before_tool_call", "echo low >> $LOG", ""),
            (
                "before_tool_call",
                r#"echo '{"block": true, "reason": "not on Mondays"}'"#,
                "priority = 7",
            ),
        ],
        "",
    );
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    let reply = "`exec` was not called: the hook `h2` refuses it: not on Mondays";
    assert_eq!((code, &run["reply"], &run["tools"]["denied"]), (Some(0), &json!(reply), &json!(1)));
    assert_eq!(log(&house), "", "block stops lower priorities");
    assert_eq!(kept(&house), [json!(["before_tool_call", "h2", "blocked", "[]"])]);
    assert_sound(&house);
}

#[test]
fn a_gate_that_gives_no_answer_closes_whatever_it_does() {
    // semantics §8: gates 15s, and they fail closed
    let table = [
        ("hangs", "sleep 60", "it took longer than 1s", "timed_out"),
        (
            "is deaf",
            "trap '' TERM; while :; do sleep 0.1; done",
            "it took longer than 1s",
            "timed_out",
        ),
        ("crashes", "kill -SEGV $$", "signal 11 ended it", "failed"),
        ("exits", "echo '{\"block\": false}'; exit 3", "it exited with 3", "failed"),
        ("prints garbage", "head -c 4000 /dev/urandom", "what it printed is no answer", "failed"),
        ("prints prose", "echo fine by me", "what it printed is no answer", "failed"),
        (
            "prints megabytes",
            "head -c 5000000 /dev/zero | tr '\\0' 'x'",
            "it printed 5000000 bytes",
            "failed",
        ),
        (
            "prints a wrong type",
            "echo '{\"block\": \"no\"}'",
            "what it printed is no answer",
            "failed",
        ),
        ("misspells", "echo '{\"blok\": true}'", "what it printed is no answer", "failed"),
        ("says it twice", "echo '{} {}'", "what it printed is no answer", "failed"),
    ];
    for (what, script, words, outcome) in table {
        let hooks = [("before_tool_call", script, "timeout = \"1s\"")];
        let house = hooked(&exec_script("touch $HOME/made"), &hooks, "");
        house.job("j", &exec_job(""));
        let (code, run) = house.run("j");
        let reply = run["reply"].as_str().unwrap();
        assert_eq!(code, Some(0), "{what}: {run}");
        assert!(reply.contains("which has to agree, gave no answer"), "{what}: {reply}");
        assert!(reply.contains(words), "{what}: {reply}");
        assert!(!house.path("made").exists(), "{what}");
        assert_eq!(kept(&house), [json!(["before_tool_call", "h1", outcome, "[]"])], "{what}");
        house.assert_nothing_is_left();
    }
    // A program that is not there.
    let house = scripted(
        &exec_script("echo mine"),
        "[[hooks]]\non = \"before_tool_call\"\ncommand = [\"./nobody\"]\n",
    );
    house.job("j", &exec_job(""));
    let (_, run) = house.run("j");
    assert!(run["reply"].as_str().unwrap().contains("no such command"), "{run}");
}

#[test]
fn what_a_hook_leaves_behind_is_ended_when_it_has_answered() {
    let daemon = "(trap '' TERM; exec setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done') >/dev/null 2>&1 &\necho '{}'";
    let model = exec_script(
        "cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'while :; do slee[p]'",
    );
    let house = hooked(&model, &[("before_tool_call", daemon, "")], "");
    house.job("j", &exec_job(""));
    let (code, _) = house.run("j");
    assert_eq!(code, Some(0));
    house.assert_nothing_is_left();
}

#[test]
fn a_hook_may_end_the_run() {
    let no = r#"echo '{"block": true, "end_run": true, "reason": "enough"}'"#;
    let house = hooked(&exec_script("echo mine"), &[("before_tool_call", no, "")], "");
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("hook_blocked")));
    assert_eq!(run["error"]["message"], "the hook `h1` refuses it: enough");
    assert_eq!(run["error"]["phase"], "tool");
    assert_sound(&house);
}

#[test]
fn before_model_resolve_chooses_the_model_and_the_first_one_wins() {
    // semantics §8, row before_model_resolve
    let other = "[models.providers.other]\napi = \"script\"\nscript = \"other.toml\"\n";
    let hooks = [
        ("before_model_resolve", r#"echo '{"model": "lost"}'"#, ""),
        (
            "before_model_resolve",
            r#"printf "%s\n" "$IN" >> $LOG; echo '{"provider": "other", "model": "n"}'"#,
            "priority = 1",
        ),
    ];
    let house = hooked(FINE, &hooks, other);
    house.write("other.toml", "[[rule]]\nstep = [{ text = \"from the other\" }]\n");
    house.job("j", PLAIN);
    let (_, run) = house.run("j");
    assert_eq!((&run["reply"], &run["model"]), (&json!("from the other"), &json!("other/n")));
    let given = &told(&house)[0];
    assert_eq!((&given["provider"], &given["model"]), (&json!("local"), &json!("m")));
    assert_eq!(given.get("messages"), None, "before the session is loaded");

    let nobody = [("before_model_resolve", r#"echo '{"provider": "nobody"}'"#, "")];
    let house = hooked(FINE, &nobody, "");
    house.job("j", PLAIN);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("validation")));
    assert!(
        run["error"]["message"].as_str().unwrap().contains("a hook has chosen a model"),
        "{run}"
    );
}

#[test]
fn prompt_hooks_add_to_the_prompt_and_are_passed_over_when_they_fail() {
    // semantics §8, rows before_prompt_build and before_agent_start
    let hooks = [
        ("before_prompt_build", r#"echo '{"prepend_context": "second"}'"#, ""),
        (
            "before_prompt_build",
            r#"printf "%s\n" "$IN" >> $LOG; echo '{"prepend_context": "first"}'"#,
            "priority = 5",
        ),
        ("before_prompt_build", "echo nonsense", "priority = 4"),
        ("before_prompt_build", "sleep 60", "priority = 3\ntimeout = \"500ms\""),
        ("before_agent_start", r#"echo '{"prepend_context": "legacy"}'"#, ""),
    ];
    let house = hooked(ECHO, &hooks, "");
    house.job("j", PLAIN);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("first\n\nsecond\n\nlegacy\n\ngo")));
    assert_eq!(told(&house)[0]["prompt"], "go");
    let expected = [
        json!(["before_agent_start", "h5", "changed", "[\"prepend_context\"]"]),
        json!(["before_prompt_build", "h2", "changed", "[\"prepend_context\"]"]),
        json!(["before_prompt_build", "h3", "failed", "[]"]),
        json!(["before_prompt_build", "h4", "timed_out", "[]"]),
        json!(["before_prompt_build", "h1", "changed", "[\"prepend_context\"]"]),
    ];
    assert_eq!(kept(&house), expected);
    assert_eq!(noted(&house).len(), 3);
    house.assert_nothing_is_left();
}

#[test]
fn hooks_that_hang_before_the_execution_do_not_make_a_run_stall() {
    let hang = ("before_prompt_build", "sleep 60", "");
    let house = hooked(FINE, &[hang, hang, ("session_start", "sleep 60", "")], "");
    house.job("j", &format!("{PLAIN}[limits]\ntimeout = \"8s\"\n"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run}");
    house.assert_nothing_is_left();
}

#[test]
fn before_agent_reply_answers_or_silences_in_the_place_of_the_model() {
    // semantics §8, row before_agent_reply
    let model = "[[rule]]\nstep = [{ error = { status = 401 } }]\n";
    let hooks = [(
        "before_agent_reply",
        r#"printf "%s\n" "$IN" >> $LOG; echo '{"reply": "from a hook"}'"#,
        "",
    )];
    let house = hooked(model, &hooks, "");
    house.job("j", PLAIN);
    let (code, run) = house.run("j");
    assert_eq!(
        (code, &run["reply"], &run["attempts"]),
        (Some(0), &json!("from a hook"), &json!([]))
    );
    assert_eq!(
        (&told(&house)[0]["prompt"], &told(&house)[0]["model"]),
        (&json!("go"), &json!("local/m"))
    );
    assert_eq!(kept(&house), [json!(["before_agent_reply", "h1", "claimed", "[]"])]);
    assert_eq!(noted(&house)[0]["claimed"], true);
    assert_sound(&house);

    let target = "[targets.out]\nkind = \"file\"\npath = \"out.txt\"\n";
    let house = hooked(model, &[("before_agent_reply", r#"echo '{"silence": true}'"#, "")], target);
    house.job("j", &format!("{PLAIN}[[deliver]]\nto = \"out\"\n"));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["payloads"]), (Some(0), &json!([])), "{run}");
    assert_eq!(run["deliveries"][0]["state"], "suppressed");

    // A claim that fails is none.
    let house = hooked(FINE, &[("before_agent_reply", "exit 1", "")], "");
    house.job("j", PLAIN);
    assert_eq!(house.run("j").1["reply"], "fine");
}

#[test]
fn tool_result_persist_changes_what_is_kept_and_what_the_model_sees() {
    // semantics §8, rows tool_result_persist and after_tool_call
    let hooks = [
        ("tool_result_persist", r#"echo '{"content": "[withheld]"}'"#, ""),
        ("after_tool_call", r#"printf "%s\n" "$IN" >> $LOG; echo '{"content": "mine"}'"#, ""),
    ];
    let house = hooked(&exec_script("echo classified"), &hooks, "");
    house.job("j", &exec_job(""));
    let (_, run) = house.run("j");
    assert_eq!(run["reply"], "[withheld]");
    let session = run["session_id"].as_str().unwrap();
    let transcript = house.path(&format!("state/sessions/{session}.jsonl"));
    let transcript = std::fs::read_to_string(transcript).unwrap();
    assert!(
        transcript.contains("[withheld]") && !transcript.contains("classified\\n"),
        "{transcript}"
    );
    let call = &told(&house)[0];
    assert_eq!(
        (&call["tool"], &call["outcome"], &call["content"]),
        (&json!("exec"), &json!("ok"), &json!("classified\n"))
    );
    let expected = [
        json!(["after_tool_call", "h2", "ok", "[]"]),
        json!(["tool_result_persist", "h1", "changed", "[\"content\"]"]),
    ];
    assert_eq!(kept(&house), expected);
}

#[test]
fn observers_are_told_and_none_of_their_failures_loses_a_result() {
    // semantics §8, rows agent_end, session_start and session_end
    let log = "printf '%s\\n' \"$IN\" >> $LOG";
    let hooks = [
        ("session_start", log, ""),
        ("agent_end", log, ""),
        ("agent_end", "sleep 60", "timeout = \"500ms\""),
        ("agent_end", "exit 9", ""),
        ("agent_end", "trap '' TERM; sleep 60 & echo garbage", ""),
        ("session_end", log, ""),
    ];
    let house = hooked(&exec_script("echo hi"), &hooks, "");
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!(
        (code, &run["state"], &run["reply"]),
        (Some(0), &json!("succeeded"), &json!("hi\n"))
    );
    let told = told(&house);
    let points: Vec<_> = told.iter().map(|it| it["hook"].as_str().unwrap()).collect();
    assert_eq!(points, ["session_start", "agent_end", "session_end"]);
    assert_eq!((&told[1]["state"], &told[1]["reply"]), (&json!("succeeded"), &json!("hi\n")));
    let roles: Vec<_> = told[1]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool_result", "assistant"]);
    assert_eq!(told[2]["session_id"], run["session_id"]);
    let outcomes =
        house.rows("SELECT name, outcome FROM v1_hooks WHERE hook = 'agent_end' ORDER BY name");
    let expected = [
        json!(["h2", "ok"]),
        json!(["h3", "timed_out"]),
        json!(["h4", "failed"]),
        json!(["h5", "ok"]),
    ];
    assert_eq!(outcomes, expected);
    house.assert_nothing_is_left();
    assert_sound(&house);
}

#[test]
fn a_run_that_is_cut_tells_its_observers_too_and_is_not_longer_for_it() {
    let model = "[[rule]]\nstep = [{ text = \"so far\" }, { hang = true }]\n";
    let hooks =
        [("agent_end", "printf '%s\\n' \"$IN\" >> $LOG", ""), ("agent_end", "sleep 60", "")];
    let house = hooked(model, &hooks, "");
    house.job("j", &format!("{PLAIN}[limits]\ntimeout = \"2s\"\n"));
    let (code, run) = house.run("j");
    assert_eq!(
        (code, &run["state"], &run["partial_text"]),
        (Some(124), &json!("timed_out"), &json!("so far"))
    );
    assert_eq!(told(&house)[0]["error_kind"], "deadline");
    assert!(run["duration_ms"].as_i64().unwrap() < 20_000, "{run}");
    house.assert_nothing_is_left();
}

#[test]
fn hook_time_is_time_of_the_run_and_its_deadline_cuts_a_hook() {
    let hooks = [("before_tool_call", "trap '' TERM; sleep 60", "")];
    let house = hooked(&exec_script("echo hi"), &hooks, "");
    house.job("j", &exec_job("timeout = \"2s\"\nstop_grace = \"500ms\""));
    let (code, run) = house.run("j");
    assert_eq!(
        (code, &run["error"]["limit"], &run["error"]["phase"]),
        (Some(124), &json!("deadline"), &json!("tool"))
    );
    house.assert_nothing_is_left();
    assert_sound(&house);
}

#[test]
fn message_sending_keeps_a_delivery_back_and_message_sent_hears_of_those_that_went() {
    // semantics §8, rows message_sending and message_sent
    let targets = "[targets.out]\nkind = \"file\"\npath = \"out.txt\"\n[targets.log]\nkind = \"file\"\npath = \"log.txt\"\n";
    let hooks = [
        (
            "message_sending",
            r#"case "$IN" in *'"target":"out"'*) echo '{"cancel": true, "reason": "too long"}';; *) echo '{"cancel": false}';; esac"#,
            "priority = 1",
        ),
        (
            "message_sending",
            r#"case "$IN" in *'"target":"out"'*) echo asked >> $LOG;; esac; echo '{"cancel": false}'"#,
            "",
        ),
        ("message_sent", "printf '%s\\n' \"$IN\" >> $LOG", ""),
    ];
    let house = hooked(FINE, &hooks, targets);
    house.job("j", &format!("{PLAIN}[[deliver]]\nto = \"out\"\n[[deliver]]\nto = \"log\"\n"));
    let (code, _) = house.run("j");
    assert_eq!(code, Some(0));
    let rows = house.rows("SELECT target, state, last_error FROM v1_deliveries ORDER BY target");
    let expected = [
        json!(["log", "sent", null]),
        json!(["out", "suppressed", "the hook `h1` refuses it: too long"]),
    ];
    assert_eq!(rows, expected);
    assert!(!house.path("out.txt").exists() && house.path("log.txt").exists());
    let told = told(&house);
    assert_eq!(told.len(), 1, "cancel stops lower priorities, and what was not sent is not told");
    assert_eq!((&told[0]["target"], &told[0]["state"]), (&json!("log"), &json!("sent")));
    house.assert_nothing_is_left();
}

#[test]
fn a_delivery_waits_for_a_gate_that_gives_no_answer() {
    let targets = "[targets.out]\nkind = \"file\"\npath = \"out.txt\"\n";
    let house = hooked(FINE, &[("message_sending", "exit 1", "")], targets);
    house.job("j", &format!("{PLAIN}[[deliver]]\nto = \"out\"\n"));
    let serve = house.serve();
    house.detach("j");
    let waits = "SELECT count(*) > 0 FROM v1_deliveries WHERE state = 'queued' AND last_error LIKE '%gave no answer%'";
    house.until(waits);
    assert!(!house.path("out.txt").exists(), "nothing leaves without its word");
    write_scripts(&house, &[("message_sending", "echo '{}'", "")]);
    house.until("SELECT count(*) > 0 FROM v1_deliveries WHERE state = 'sent'");
    serve.stop();
}

#[test]
fn gateway_hooks_hear_of_the_start_and_the_stop_of_serve_and_reload_takes_new_ones() {
    // semantics §8, row gateway_start, gateway_stop; internal gateway:startup, gateway:shutdown
    let points = ["gateway_start", "gateway_stop", "gateway:startup", "gateway:shutdown"];
    let log_it = "printf '%s\\n' \"$IN\" >> $LOG";
    let hooks: Vec<Hook<'_>> = points.iter().map(|&on| (on, log_it, "")).collect();
    let house = hooked(FINE, &hooks, "");
    house.job("j", PLAIN);
    let serve = house.serve();
    until("both starts are told", || log(&house).lines().count() == 2);
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    let more = "[[hooks]]\non = \"before_agent_reply\"\ncommand = [\"sh\", \"-c\", \"echo '{\\\"reply\\\": \\\"new\\\"}'\"]\n";
    house.write("config.toml", &format!("{config}{more}"));
    assert_eq!(house.say(&["reload"]).code, Some(0));
    let run_id = house.detach("j");
    assert_eq!(house.ended(&run_id)["reply"], "new");
    serve.stop();
    let mut told: Vec<_> =
        told(&house).iter().map(|it| it["hook"].as_str().unwrap().to_owned()).collect();
    told[..2].sort();
    told[2..].sort();
    assert_eq!(told, ["gateway:startup", "gateway_start", "gateway:shutdown", "gateway_stop"]);
    let rows = house.value("SELECT count(*) FROM v1_hooks WHERE run_id IS NULL AND outcome = 'ok'");
    assert_eq!(rows, 4);
    house.assert_nothing_is_left();
}

#[test]
fn a_hook_sees_little_of_the_environment_and_nothing_of_a_secret() {
    let hooks =
        [("before_tool_call", "env >> $LOG; printf '%s\\n' \"$IN\" >> $LOG; pwd >> $LOG", "")];
    let house = hooked(&exec_script("echo $T"), &hooks, "").with_env("PROVIDER_KEY", "sk-hidden");
    let house = house.with_secret("T", "hunter2-long");
    house.job("j", &format!("{}[env.secret]\nT = {{ env = \"T\" }}\n", exec_job("")));
    assert_eq!(house.run("j").0, Some(0));
    let log = log(&house);
    assert!(
        log.contains("PUNCTUAL_HOOK=before_tool_call") && log.contains("PUNCTUAL_JOB=j"),
        "{log}"
    );
    assert!(!log.contains("sk-hidden"), "{log}");
    assert!(log.trim_end().lines().last().unwrap().contains("/workspaces/"), "{log}");
    assert_eq!(std::fs::read_dir(house.path("state/hooks")).unwrap().count(), 0);
}

#[test]
fn agent_bootstrap_adds_drops_and_replaces_the_files_of_a_prompt() {
    // semantics §8: agent:bootstrap
    let change = r#"printf "%s\n" "$IN" >> $LOG
echo '{"drop": ["USER.md"], "files": [{"name": "AGENTS.md", "content": "be brief"}, {"name": "TODAY.md", "content": "it rains"}]}'"#;
    let house = hooked(FINE, &[("agent:bootstrap", change, "")], "");
    std::fs::create_dir(house.path("work")).unwrap();
    house.write("work/AGENTS.md", "be long");
    house.write("work/SOUL.md", "be kind");
    house.write("work/USER.md", "somebody");
    house.job("j", &format!("{PLAIN}workdir = \"../work\"\n"));
    assert_eq!(house.run("j").0, Some(0));
    let names = |files: &Value| -> Vec<String> {
        files.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().into()).collect()
    };
    assert_eq!(names(&told(&house)[0]["files"]), ["AGENTS.md", "SOUL.md", "USER.md"]);
    let parts = house
        .rows("SELECT name, characters FROM v1_prompt_parts WHERE name LIKE '%.md' ORDER BY n");
    let parts: Vec<_> = parts.iter().map(|it| it[0].clone()).collect();
    assert_eq!(parts, ["AGENTS.md", "SOUL.md", "TODAY.md"]);
    let changed = "[\"dropped\",\"replaced\",\"added\"]";
    assert_eq!(kept(&house), [json!(["agent:bootstrap", "h1", "changed", changed])]);
}

// semantics §8, rows message_received, session_start and the internal hooks `command:*`: of what
// people say into a session.
#[test]
fn what_is_said_into_a_session_and_what_is_commanded_there_is_told() {
    let log = "echo \"$IN\" >>\"$LOG\"";
    let hooks =
        [("message_received", log, ""), ("command:new", log, ""), ("session_start", log, "")];
    let house = hooked(FINE, &hooks, "");
    let serve = house.serve();
    let said = house.say(&["agent", "--session", "ops", "-m", "hello", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let said = house.say(&["agent", "--session", "ops", "-m", "/new and so on"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    until("all is told", || told(&house).len() == 5);
    let mut heard: Vec<_> = told(&house)
        .iter()
        .map(|it| {
            let what = it["text"].as_str().or(it["arguments"].as_str()).unwrap_or_default();
            (it["hook"].clone(), it["session_key"].clone(), what.to_owned())
        })
        .collect();
    heard.sort_by_key(|(hook, _, what)| (hook.to_string(), what.clone()));
    let of = |hook: &str, what: &str| (json!(hook), json!("ops"), what.to_owned());
    let want = [
        of("command", "and so on"),
        of("message_received", "/new and so on"),
        of("message_received", "hello"),
        of("session_start", ""),
        // What comes after `/new` is the first message of the new one.
        of("session_start", ""),
    ];
    assert_eq!(heard, want);
    assert_eq!(serve.stop().code, Some(0));
}
