//! Every limit of a run ends what exceeds it, names itself, and leaves nothing behind.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use support::run_object::assert_run;
use support::scenes::{Acts, against};
use support::scripts::{PLAIN, exec_job, exec_script, soon, unconfined};
use support::stub::{Act, Stub, call, finish, head, reply, text};
use support::{asking, scripted, until};

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn number(run: &Value, pointer: &str) -> u64 {
    run.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} of {run:#}"))
}

fn step<'a>(run: &'a Value, name: &str) -> &'a Value {
    let steps = run["cleanup"]["steps"].as_array().unwrap();
    steps.iter().find(|step| step["step"] == name).unwrap_or_else(|| panic!("{name} in {run:#}"))
}

#[test]
fn the_deadline_cuts_a_stream_that_keeps_dripping() {
    let stub = Stub::new(|_| {
        let drips = (0..600).flat_map(|_| [Act::Say(text("drip ")), Act::Wait(ms(100))]);
        [Act::Say(head())].into_iter().chain(drips).collect()
    });
    let house = asking(&stub, "", "");
    house.job("slow", &format!("{PLAIN}[limits]\ntimeout = \"1s\"\n"));
    let (code, run) = house.run("slow");
    assert_eq!(code, Some(124));
    assert_run(
        &run,
        &json!({
            "/state": "timed_out", "/reply": null, "/trigger": "manual",
            "/error/kind": "deadline", "/error/limit": "deadline", "/error/limit_ms": 1000,
            "/error/phase": "model_call",
            "/attempts/0/state": "timed_out", "/attempts/0/error_kind": "deadline",
            "/attempts/0/idle_rule": "manual", "/attempts/0/idle_window_ms": 1000,
            "/cleanup/outcome": "forced", "/cleanup/killed_processes": 0, "/cleanup/leaked": [],
        }),
    );
    let partial = run["partial_text"].as_str().unwrap();
    assert!(partial.starts_with("drip drip "), "{partial}");
    assert!(number(&run, "/duration_ms") >= 1000);
    assert_eq!(step(&run, "model_stream")["outcome"], "forced");
    until("the client goes away", || stub.clients_gone() == 1);
    assert_eq!(stub.requests().len(), 1);
    house.assert_nothing_is_left();
}

#[test]
fn the_deadline_ends_the_tree_of_a_tool() {
    let house = scripted(&exec_script("sleep 60 & sleep 61"), "");
    house.job("j", &exec_job("timeout = \"1s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(124));
    assert_run(
        &run,
        &json!({
            "/state": "timed_out", "/error/limit": "deadline", "/error/phase": "tool",
            "/reply": null, "/cleanup/outcome": "forced", "/cleanup/leaked": [],
        }),
    );
    assert!(number(&run, "/cleanup/killed_processes") >= 2, "{run:#}");
    assert!(number(&run, "/duration_ms") < 20_000, "{run:#}");
    assert_eq!(step(&run, "processes")["outcome"], "forced");
    assert_eq!(step(&run, "transcript")["outcome"], "forced");
    house.assert_nothing_is_left();
    // The call that was cut has its one result all the same.
    let name = format!("state/sessions/{}.jsonl", run["session_id"].as_str().unwrap());
    let transcript = std::fs::read_to_string(house.path(&name)).unwrap();
    let entries = transcript.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages: Vec<_> = entries.filter(|entry| entry["type"] == "message").collect();
    let roles: Vec<_> = messages.iter().map(|entry| &entry["message"]["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool_result"]);
    let call = &messages[1]["message"]["tool_calls"][0]["id"];
    assert_eq!(&messages[2]["message"]["call_id"], call);
}

#[test]
fn the_clean_up_has_a_budget_that_no_grace_exceeds() {
    let house = scripted(
        &exec_script("(trap '' TERM; while :; do sleep 0.2; done) & echo begun"),
        "[scheduler]\ncleanup_timeout = \"6s\"\n",
    );
    house.job("j", &exec_job("stop_grace = \"1m\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    assert_run(
        &run,
        &json!({"/state": "succeeded", "/reply": "begun\n", "/cleanup/outcome": "forced"}),
    );
    let took = number(&run, "/cleanup/duration_ms");
    assert!((1900..20_000).contains(&took), "{run:#}");
    house.assert_nothing_is_left();

    // Also a small one: it is shared out among grace, killing and what comes after.
    house.write(
        "config.toml",
        &std::fs::read_to_string(house.path("config.toml")).unwrap().replace("6s", "2s"),
    );
    let (_, run) = house.run("j");
    assert_run(&run, &json!({"/state": "succeeded", "/cleanup/outcome": "forced"}));
    assert_eq!(step(&run, "processes")["outcome"], "forced", "{run:#}");
    house.assert_nothing_is_left();
}

#[test]
fn a_child_that_ignores_the_request_is_killed_after_the_grace() {
    let house = scripted(&exec_script("trap '' TERM; while :; do sleep 0.2; done"), "");
    house.job("j", &exec_job("timeout = \"1s\"\nstop_grace = \"1s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(124));
    assert_run(&run, &json!({"/state": "timed_out", "/cleanup/outcome": "forced"}));
    assert!(number(&run, "/cleanup/killed_processes") >= 1, "{run:#}");
    let took = number(step(&run, "processes"), "/duration_ms");
    assert!((1000..4000).contains(&took), "{run:#}");
    house.assert_nothing_is_left();
}

#[test]
fn a_tool_that_stops_its_supervisor_is_ended_like_any_other() {
    for (command, budget) in [
        ("kill -STOP $PPID; sleep 3005", "20s"),
        ("trap '' TERM; kill -STOP $PPID; while :; do sleep 1; done", "20s"),
        // Again and again, and with hardly any time to end it.
        (
            "s=$PPID; trap '' TERM; (trap '' TERM; while :; do kill -STOP $s; done) & \
             while :; do sleep 1; done",
            "2s",
        ),
    ] {
        let scheduler = format!("[scheduler]\ncleanup_timeout = \"{budget}\"\n");
        let house = scripted(&exec_script(command), &scheduler);
        house.job("j", &exec_job("timeout = \"1s\"\nstop_grace = \"1s\""));
        let (code, run) = house.run("j");
        assert_eq!(code, Some(124), "{command}: {run:#}");
        assert_eq!(run["cleanup"]["leaked"], json!([]), "{command}: {run:#}");
        let took = number(&run, "/cleanup/duration_ms");
        assert!(took < 10_000, "{command}: {run:#}");
        house.assert_nothing_is_left();
    }
}

#[test]
fn what_hides_and_kills_its_supervisor_is_ended_too() {
    let hides = "setsid env -i sh -c \"trap '' TERM; while :; do sleep 0.2; done\" >/dev/null 2>&1 & \
                 sleep 0.3; kill -9 $PPID; sleep 60";
    let house = scripted(&exec_script(hides), "");
    house.job("j", &unconfined(&exec_job("stop_grace = \"1s\"")));
    let hidden = || {
        let folders = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let reads = |path: &std::path::Path, file: &str| {
            String::from_utf8_lossy(&std::fs::read(path.join(file)).unwrap_or_default())
                .into_owned()
        };
        let marked = folders.filter(|path| {
            reads(path, "cmdline").contains("while :; do sleep 0.2; done\0")
                && reads(path, "environ").is_empty()
                && !reads(path, "status").contains("State:\tZ")
        });
        marked.count()
    };
    let before = hidden();
    let (_, run) = house.run("j");
    assert_eq!(run["cleanup"]["outcome"], "forced", "{run:#}");
    assert!(step(&run, "processes")["detail"].as_str().unwrap().ends_with("had been killed"));
    until("what hid is gone", || hidden() <= before);
    house.assert_nothing_is_left();
}

#[test]
fn children_that_leave_the_group_and_the_session_are_ended_too() {
    let house = scripted(&exec_script("setsid sleep 60 & setsid -f sleep 61; sleep 62"), "");
    house.job("j", &exec_job("timeout = \"2s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(124));
    assert_run(&run, &json!({"/cleanup/outcome": "forced", "/cleanup/leaked": []}));
    assert!(number(&run, "/cleanup/killed_processes") >= 3, "{run:#}");
    house.assert_nothing_is_left();
}

// B100: what is left over is ended at the end of the run, and counted.
#[test]
fn what_a_finished_turn_leaves_in_the_background_is_ended() {
    let house = scripted(&exec_script("sleep 60 & setsid -f sleep 61; echo started"), "");
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    assert_run(
        &run,
        &json!({"/state": "succeeded", "/reply": "started\n", "/cleanup/outcome": "forced"}),
    );
    assert!(number(&run, "/cleanup/killed_processes") >= 2, "{run:#}");
    // It holds the pipe open, and that holds up nothing.
    assert!(number(&run, "/duration_ms") < 20_000, "{run:#}");
    house.assert_nothing_is_left();
}

#[test]
fn a_busy_tree_is_ended_at_each_deadline_within_its_grace() {
    // One that never waits for anything, behind a shell that waits for it; one that is deaf.
    let command = "sh -c 'while :; do :; done' & \
                   sh -c \"trap '' TERM; while :; do sleep 0.2; done\" & wait";
    let house = scripted(&exec_script(command), "");
    let job = exec_job("timeout = \"2s\"\nstop_grace = \"1s\"");
    let retry = "[retry]\nmax_attempts = 2\nbackoff = [\"100ms\"]\n";
    house.job("j", &format!("{job}[schedule]\nat = \"{:.3}\"\n{retry}", soon()));
    let serve = house.serve();
    house.until("SELECT state = 'paused' FROM v1_jobs");
    house.assert_nothing_is_left();
    let runs = house.rows("SELECT run_id FROM v1_runs ORDER BY attempt");
    assert_eq!(runs.len(), 2);
    for run in runs {
        let run = house.ended(run[0].as_str().unwrap());
        assert_run(
            &run,
            &json!({"/state": "timed_out", "/cleanup/outcome": "forced", "/cleanup/leaked": []}),
        );
        assert!(number(&run, "/cleanup/killed_processes") >= 3, "{run:#}");
        // Two seconds to the deadline, one to the end of the grace, and a moment.
        let took = number(&run, "/duration_ms");
        assert!((3000..6000).contains(&took), "{run:#}");
    }
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn two_hundred_commands_that_leave_orphans_have_their_exit_codes_and_leave_no_zombie() {
    let orphan = "(sh -c 'sleep 0.05 &' &)";
    let command = format!("for i in 1 2 3 4 5; do {orphan}; done; exit {{{{ turn + 1 }}}}");
    let house = scripted(
        &format!(
            "[[rule]]\nwhen = {{ turn = 20 }}\nstep = [{{ text = \"fine\" }}]\n[[rule]]\nstep = \
             [{{ tool = {{ name = \"exec\", arguments = {{ command = \"{command}\" }} }} }}]\n"
        ),
        "",
    );
    house.job("j", &exec_job(""));
    let serve = house.serve();
    for _ in 0..10 {
        let (code, run) = house.run("j");
        assert_eq!((code, &run["tools"]["calls"]), (Some(0), &json!(20)), "{run:#}");
        until("no zombie is left", || zombies_below(serve.pid()).is_empty());
        house.assert_nothing_is_left();
    }
    let codes = "SELECT n, exit_code, count(*) FROM v1_tool_calls GROUP BY n, exit_code ORDER BY n";
    house.until("SELECT count(*) = 200 FROM v1_tool_calls");
    assert_eq!(house.rows(codes), (1..=20).map(|n| json!([n, n, 10])).collect::<Vec<_>>());
    assert_eq!(serve.stop().code, Some(0));
}

/// The dead children, near and far, of a process that nobody has taken off the table.
fn zombies_below(ancestor: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let tables = entries.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
    let processes: Vec<(u32, String, u32)> = tables
        .filter_map(|stat| {
            let (pid, rest) = stat.split_once(' ')?;
            let (state, rest) = rest.rsplit_once(") ")?.1.split_once(' ')?;
            let parent = rest.split(' ').next()?;
            Some((pid.parse().ok()?, state.to_owned(), parent.parse().ok()?))
        })
        .collect();
    let mut family = vec![ancestor];
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        family.extend(processes.iter().filter(|it| it.2 == parent).map(|it| it.0));
        at += 1;
    }
    let dead = processes.into_iter().filter(|it| it.1 == "Z" && family.contains(&it.0));
    dead.map(|it| it.0).collect()
}

// B73.
#[test]
fn a_silent_model_is_cut_by_the_window_of_its_provider() {
    let opened = || vec![Act::Say(head()), Act::Hold];
    let begun = || vec![Act::Say(head() + &text("so far")), Act::Hold];
    let comments = || {
        let pings = (0..600).flat_map(|_| [Act::Say(": ping\n\n".into()), Act::Wait(ms(100))]);
        [Act::Say(head())].into_iter().chain(pings).collect()
    };
    let table: [(Acts, &str, &str, Value); 4] = [
        (|| vec![Act::Hold], "provider_timeout", "provider", Value::Null),
        (opened, "idle_timeout", "idle", Value::Null),
        (begun, "idle_timeout", "idle", json!("so far")),
        (comments, "idle_timeout", "idle", Value::Null),
    ];
    for (acts, kind, limit, partial) in table {
        let (code, run, stub) = against(acts, "timeout = \"800ms\"");
        assert_eq!(code, Some(1));
        assert_run(
            &run,
            &json!({
                "/state": "failed", "/error/kind": kind, "/error/limit": limit,
                "/error/limit_ms": 800, "/error/phase": "model_call", "/error/retryable": true,
                "/partial_text": partial, "/reply": null,
                "/attempts/0/idle_window_ms": 800, "/attempts/0/idle_rule": "provider",
                "/attempts/0/error_kind": kind, "/attempts/1/error_kind": kind,
            }),
        );
        // It is asked once more, and that request has the whole window again.
        assert!(number(&run, "/duration_ms") >= 1600, "{run:#}");
        let message = run["error"]["message"].as_str().unwrap();
        assert!(message.ends_with(" (after 2 attempts)"), "{message}");
        until("both clients are gone", || stub.clients_gone() == 2);
        assert_eq!(stub.requests().len(), 2);
    }
}

// B76: the limit of the first token is named.
#[test]
fn the_first_token_has_a_limit_of_its_own_when_asked_for() {
    // It takes the place of the provider's timeout while the first token is awaited: longer ...
    let late = || vec![Act::Wait(ms(1500)), Act::Say(reply("awake"))];
    let keys = "timeout = \"500ms\"\nfirst_token_timeout = \"20s\"";
    let (code, run, _) = against(late, keys);
    assert_eq!(code, Some(0));
    assert_run(&run, &json!({"/reply": "awake", "/attempts/0/idle_window_ms": 500}));
    // ... and shorter, before the head and after it.
    let table: [Acts; 2] =
        [|| vec![Act::Hold], || vec![Act::Say(head() + ": ping\n\n"), Act::Hold]];
    for acts in table {
        let (code, run, _) = against(acts, "timeout = \"30s\"\nfirst_token_timeout = \"700ms\"");
        assert_eq!(code, Some(1));
        assert_run(
            &run,
            &json!({
                "/error/kind": "first_token_timeout", "/error/limit": "first_token",
                "/error/limit_ms": 700, "/attempts/0/idle_window_ms": 30_000,
            }),
        );
    }
}

// B74, B76.
#[test]
fn a_model_that_wakes_up_late_is_waited_for_behind_pings_and_after_a_tool() {
    let keys = "timeout = \"500ms\"\nfirst_token_timeout = \"20s\"";
    let pings = || {
        let pings = (0..10).flat_map(|_| [Act::Say(": ping\n\n".into()), Act::Wait(ms(200))]);
        let answer = Act::Say(text("awake") + &finish("stop"));
        [Act::Say(head())].into_iter().chain(pings).chain([answer]).collect()
    };
    let (code, run, stub) = against(pings, keys);
    assert_eq!((code, stub.requests().len()), (Some(0), 1), "{run:#}");
    assert_run(&run, &json!({"/reply": "awake", "/attempts/0/idle_window_ms": 500}));
    assert!(number(&run, "/duration_ms") >= 2000, "{run:#}");

    let tool = |late: Duration| {
        Stub::new(move |n| match n {
            0 => vec![Act::Say(
                head() + &call("exec", "{\"command\": \"echo hi\"}") + &finish("tool_calls"),
            )],
            _ => vec![Act::Wait(late), Act::Say(reply("awake"))],
        })
    };
    let stub = tool(ms(1500));
    let house = asking(&stub, keys, "");
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!((code, stub.requests().len()), (Some(0), 2), "{run:#}");
    assert_run(&run, &json!({"/reply": "awake", "/tools/calls": 1, "/error": null}));
    // The limit is that of each first token, not of the run's first one only.
    let stub = tool(ms(60_000));
    let house = asking(&stub, "timeout = \"30s\"\nfirst_token_timeout = \"700ms\"", "");
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1), "{run:#}");
    assert_run(&run, &json!({"/error/limit": "first_token", "/error/limit_ms": 700}));
}

// B77.
#[test]
fn a_long_stream_that_keeps_coming_outlives_the_timeout_of_its_provider() {
    let slow = || {
        let words = (0..12).flat_map(|_| [Act::Say(text("word ")), Act::Wait(ms(250))]);
        let end = Act::Say(finish("stop"));
        [Act::Say(head())].into_iter().chain(words).chain([end]).collect()
    };
    let (code, run, stub) = against(slow, "timeout = \"1500ms\"");
    assert_eq!(code, Some(0));
    assert_run(
        &run,
        &json!({
            "/state": "succeeded", "/reply": "word ".repeat(12), "/error": null,
            "/usage/input_tokens": 12, "/usage/output_tokens": 4, "/cleanup/outcome": "clean",
        }),
    );
    assert!(number(&run, "/duration_ms") >= 12 * 250, "{run:#}");
    assert_eq!(stub.clients_gone(), 0);
}

#[test]
fn a_tool_has_a_limit_and_the_model_is_told() {
    let house = scripted(&exec_script("echo begun; sleep 60"), "");
    house.job("j", &exec_job("tool_timeout = \"1s\""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    assert_run(
        &run,
        &json!({"/state": "succeeded", "/tools": {"calls": 1, "errors": 1, "denied": 0}}),
    );
    let told = run["reply"].as_str().unwrap();
    assert!(told.starts_with("begun\n") && told.contains("timed out after 1s"), "{told}");
    assert_eq!(
        house.rows("SELECT tool, outcome, exit_code, duration_ms >= 1000 FROM v1_tool_calls"),
        [json!(["exec", "timed_out", null, 1])]
    );
    house.assert_nothing_is_left();
}

#[test]
fn turns_are_counted() {
    let house = scripted(
        r#"
        [[rule]]
        step = [{ tool = { name = "exec", arguments = { command = "echo {{ turn }}" } } }]
        "#,
        "",
    );
    house.job("j", &exec_job("max_turns = 3"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/error/kind": "turn_limit", "/error/limit": "turns",
            "/error/phase": "tool", "/tools/calls": 3, "/reply": null,
        }),
    );
    assert!(run["error"]["message"].as_str().unwrap().contains('3'), "{run:#}");
}

#[test]
fn tokens_are_counted() {
    let house = scripted(
        r#"
        [[rule]]
        [[rule.step]]
        tool = { name = "exec", arguments = { command = "echo {{ turn }}" } }
        [[rule.step]]
        usage = { input = 400, output = 50 }
        "#,
        "",
    );
    house.job("j", &exec_job("max_tokens = 1000"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(1));
    assert_run(
        &run,
        &json!({
            "/state": "failed", "/error/kind": "budget", "/error/limit": "budget",
            "/usage/input_tokens": 1200, "/usage/output_tokens": 150,
        }),
    );
}

// B102: the true count of bytes is in the row.
#[test]
fn a_flood_of_output_is_bounded_and_its_size_is_known() {
    let house = scripted(&exec_script("echo head; yes | head -c 5000000; echo tail"), "");
    house.job("j", &exec_job(""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0));
    let reply = run["reply"].as_str().unwrap();
    assert!(reply.starts_with("head\n") && reply.ends_with("tail\n"), "{} bytes", reply.len());
    assert!(reply.len() < 20_000, "{} bytes", reply.len());
    house.until("SELECT count(*) FROM v1_tool_calls");
    assert_eq!(house.value("SELECT output_bytes FROM v1_tool_calls"), 5_000_010);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the model's end of the connection is timed")]
fn a_database_that_somebody_locks_delays_no_deadline_and_loses_no_result() {
    let stub = Stub::new(|_| vec![Act::Say(head() + &text("half")), Act::Hold]);
    let house = asking(&stub, "", "");
    house.job("cut", &format!("{PLAIN}[limits]\ntimeout = \"2s\"\n"));
    let serve = house.serve();
    let run_id = house.detach("cut");
    until("the model is asked", || stub.requests().len() == 1);
    let asked = Instant::now();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let db = Connection::open_with_flags(house.path("state/punctual.db"), flags).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    until("the stream is cut", || stub.clients_gone() == 1);
    let cut_after = asked.elapsed();
    assert!(cut_after < ms(3000), "{cut_after:?}: two seconds, a moment, and a slow machine");
    std::thread::sleep(ms(4000).saturating_sub(asked.elapsed()));
    db.execute_batch("ROLLBACK").unwrap();
    let run = house.ended(&run_id);
    assert_run(
        &run,
        &json!({
            "/state": "timed_out", "/error/kind": "deadline", "/partial_text": "half",
        }),
    );
    assert_eq!(serve.stop().code, Some(0));
}
