//! Sessions that do not move, seen from outside: what is said, what is ended, what is left alone.
//! And the audit ledger, which has all of it and nothing that was said.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::scripts::{KEY, PLAIN, by_hand, exec_script};
use support::stub::{Act, Stub, finish, head, text};
use support::{House, asking, scripted, until};

/// Thresholds in seconds, and a lane that only one may hold.
fn thresholds(warn: &str, abort: &str) -> String {
    format!(
        "[diagnostics]\nstuck_session_warn = \"{warn}\"\nstuck_session_abort = \"{abort}\"\n\
         [lanes]\nnarrow = 1\n"
    )
}

/// What the audit ledger has of a run, without the times.
fn audited(house: &House, run_id: &str) -> Vec<Value> {
    house.rows(&format!("SELECT actor, kind, name, result FROM v1_audit WHERE run_id = '{run_id}'"))
}

#[test]
fn a_silent_model_is_ended_so_that_what_waits_behind_it_goes_on() {
    // On this machine a model has no idle window of its own.
    let stub = Stub::new(|n| match n {
        0 => vec![Act::Say(head()), Act::Say(text("so far")), Act::Hold],
        _ => vec![Act::Say(support::stub::reply("fine"))],
    });
    let house = asking(&stub, "", &thresholds("1s", "3s"));
    for job in ["silent", "next"] {
        let limits = "[limits]\ntimeout = \"0s\"\n";
        house.job(job, &format!("lane = \"narrow\"\n{PLAIN}{limits}"));
    }
    let serve = house.serve();
    let silent = house.detach("silent");
    until("the model is asked", || stub.requests().len() == 1);
    let next = house.detach("next");
    serve.until_stderr("session.long_running");

    let run = house.ended(&silent);
    assert_eq!(
        run["error"],
        json!({
            "kind": "stuck", "message": "nothing has moved for 3s", "limit": "stuck",
            "limit_ms": 3000, "phase": "model_call", "retryable": true,
        })
    );
    assert_eq!((&run["state"], &run["partial_text"]), (&json!("failed"), &json!("so far")));
    assert_eq!(run["cleanup"]["outcome"], "forced");
    assert_eq!(house.ended(&next)["state"], "succeeded");

    serve.until_stderr("session.stalled");
    serve.until_stderr("session.recovery requested");
    serve.until_stderr("session.recovery completed");
    house.until("SELECT count(*) = 1 FROM v1_audit WHERE kind = 'stuck_completed'");
    // The end of the run and the completion of its recovery are written side by side.
    let mut rows = audited(&house, &silent);
    rows.sort_by_key(ToString::to_string);
    assert_eq!(
        rows,
        [
            json!(["person", "run_start", "silent", "running"]),
            json!(["punctual", "run_end", "silent", "failed:stuck"]),
            json!(["punctual", "stuck_completed", "silent", "drained"]),
            json!(["punctual", "stuck_requested", "silent", "abort"]),
        ]
    );
    let status = house.say(&["status", "--json"]).json();
    let recovery = &status["running"]["recoveries"][0];
    assert_eq!(
        (&recovery["run_id"], &recovery["act"], &recovery["result"]),
        (&json!(silent), &json!("abort"), &json!("drained"))
    );
    assert!(house.say(&["status"]).stdout.contains("did not move: abort requested at"));
    assert_eq!(serve.stop().code, Some(0));
    house.assert_nothing_is_left();
}

#[test]
fn what_is_merely_slow_is_left_alone() {
    // A drip that never pauses for long, and a tool that says nothing, both for longer than the
    // threshold.
    let stub = Stub::new(|_| {
        let drips = (0..65).flat_map(|_| [Act::Say(text("drip ")), Act::Wait(ms(100))]);
        let end = [Act::Say(finish("stop"))];
        [Act::Say(head())].into_iter().chain(drips).chain(end).collect()
    });
    let house = asking(&stub, "", &thresholds("4s", "5s"));
    house.job("drips", PLAIN);
    let dripping = house.start(&["run", "drips", "--json"]);

    let tools = scripted(&exec_script("sleep 4; echo done"), &thresholds("500ms", "1s"));
    tools.job("works", &by_hand("go", "", ""));
    let (code, run) = tools.run("works");
    assert_eq!((code, &run["state"]), (Some(0), &json!("succeeded")));
    let said = dripping.end();
    assert_eq!((said.code, &said.json()["state"]), (Some(0), &json!("succeeded")));
    for house in [&house, &tools] {
        assert_eq!(house.value("SELECT count(*) FROM v1_audit WHERE kind LIKE 'stuck%'"), 0);
    }
}

#[test]
fn switched_off_it_ends_nothing() {
    let stub = Stub::new(|_| vec![Act::Say(head()), Act::Hold]);
    let off = "enabled = false\nstuck_session_warn = \"100ms\"\nstuck_session_abort = \"200ms\"\n";
    let house = asking(&stub, "", &format!("[diagnostics]\n{off}"));
    house.job("silent", &format!("{PLAIN}[limits]\ntimeout = \"2s\"\n"));
    let (code, run) = house.run("silent");
    assert_eq!((code, &run["error"]["kind"]), (Some(124), &json!("deadline")));
}

#[test]
fn the_audit_ledger_says_who_did_what_and_nothing_that_was_said() {
    let script = format!(
        "[[rule]]\nwhen = {{ turn = 0 }}\n\
         step = [{{ tool = {{ name = \"exec\", arguments = {{ command = \"echo {KEY}\" }} }} }}]\n\
         [[rule]]\nstep = [{{ text = \"{KEY}\" }}, {{ hang = true }}]\n"
    );
    let house = scripted(&script, "");
    house.job("j", &by_hand(KEY, "", "timeout = \"0s\""));
    let serve = house.serve();
    let run_id = house.detach("j");
    house.until("SELECT count(*) = 1 FROM v1_audit WHERE kind = 'tool_end'");
    assert_eq!(house.say(&["cancel", "j"]).code, Some(0));
    house.ended(&run_id);
    house.until("SELECT count(*) = 5 FROM v1_audit");
    assert_eq!(
        audited(&house, &run_id),
        [
            json!(["person", "run_start", "j", "running"]),
            json!(["model", "tool_start", "exec", null]),
            json!(["model", "tool_end", "exec", "ok"]),
            json!(["person", "cancel", "j", "requested"]),
            json!(["punctual", "run_end", "j", "cancelled:cancelled"]),
        ]
    );
    let odd = "SELECT count(*) FROM v1_audit a JOIN v1_runs r USING (run_id)
               WHERE a.session IS NOT r.session_id OR a.at < r.started_at OR length(a.at) <> 24
                  OR a.at || a.actor || a.kind || coalesce(a.result, '') LIKE '%zebra%'";
    assert_eq!(house.value(odd), 0);
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_run_that_a_power_cut_ended_has_its_end_in_the_audit_ledger() {
    let house = scripted("[[rule]]\nstep = [{ hang = true }]\n", "");
    house.job("hangs", &by_hand("go", "", "timeout = \"0s\""));
    let serve = house.serve();
    let run_id = house.detach("hangs");
    house.until("SELECT count(*) = 1 FROM v1_attempts");
    serve.kill();
    let locks = || {
        let all = support::files_below(&house.path("state/sessions"));
        all.into_iter().filter(|it| it.extension().is_some_and(|it| it == "lock")).count()
    };
    assert_eq!(locks(), 1, "nobody was there to remove it");
    let serve = house.serve();
    house.ended(&run_id);
    assert_eq!(
        audited(&house, &run_id),
        [
            json!(["person", "run_start", "hangs", "running"]),
            json!(["punctual", "run_end", "hangs", "interrupted:interrupted"]),
        ]
    );
    assert_eq!(locks(), 0);
    assert_eq!(serve.stop().code, Some(0));
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
