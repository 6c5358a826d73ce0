//! The tool `history` in whole runs: a job that reports on other jobs.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::scripts::PLAIN;
use support::stub::{Act, Stub, call, finish, head, text};
use support::{House, asking};

const REPORTER: &str = "[agent]\nprompt = \"report\"\ntools = [\"history\"]\n";

/// One question a turn, then `fine`; whoever has no `history` answers at once.
fn asked(questions: &'static [&'static str]) -> Stub {
    Stub::answering(move |request| {
        let said = |message: &&Value| message["role"] == "assistant";
        let turn = request["messages"].as_array().unwrap().iter().filter(said).count();
        let sql = questions.get(turn).filter(|_| request["tools"].is_array());
        let answer = match sql {
            Some(sql) => call("history", &json!({"sql": sql}).to_string()) + &finish("tool_calls"),
            None => text("fine") + &finish("stop"),
        };
        vec![Act::Say(head() + &answer)]
    })
}

/// What the tool has given, call by call.
fn given(stub: &Stub) -> Vec<String> {
    let requests = stub.requests();
    let messages = requests.last().unwrap()["messages"].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn verdicts(house: &House) -> Vec<Value> {
    let newest =
        "(SELECT run_id FROM v1_runs WHERE job = 'report' ORDER BY queued_at DESC LIMIT 1)";
    house.rows(&format!("SELECT outcome FROM v1_tool_calls WHERE run_id = {newest} ORDER BY n"))
}

#[test]
fn a_job_reports_on_others_and_reads_nothing_but_the_views() {
    let stub = asked(&[
        "SELECT job, state, reply FROM v1_runs WHERE job = 'other'",
        "SELECT owner_pid FROM runs",
        "DELETE FROM runs",
        "SELECT nonsense FROM v1_runs",
    ]);
    let house = asking(&stub, "", "");
    house.job("other", PLAIN);
    house.job("report", REPORTER);
    assert_eq!(house.run("other").0, Some(0));
    let (code, run) = house.run("report");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#}");
    let given = given(&stub);
    let rows = "[\"job\",\"state\",\"reply\"]\n[\"other\",\"succeeded\",\"fine\"]\n[end ";
    assert!(given[0].starts_with("1 row of the history\nWhat stands"), "{given:#?}");
    assert!(given[0].contains(rows), "{given:#?}");
    assert!(given[1].contains("only reading is allowed here, not runs: only the views v1_*"));
    assert!(given[2].contains("only reading is allowed here"), "{given:#?}");
    assert!(given[3].contains("no such column: nonsense"), "{given:#?}");
    let outcomes = [json!(["ok"]), json!(["error"]), json!(["error"]), json!(["error"])];
    assert_eq!(verdicts(&house), outcomes);
    assert_eq!(house.value("SELECT count(*) FROM v1_runs"), 2);
}

#[test]
fn an_endless_question_ends_with_the_call_and_the_run_goes_on() {
    let stub = asked(&[
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    ]);
    let house = asking(&stub, "", "");
    house.job("report", &format!("{REPORTER}[limits]\ntool_timeout = \"300ms\"\n"));
    let (code, run) = house.run("report");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#}");
    let outcome = verdicts(&house);
    assert!(outcome == [json!(["error"])] || outcome == [json!(["timed_out"])], "{outcome:?}");
}

#[test]
fn a_recorded_look_at_the_history_is_played_again_without_one() {
    let stub = asked(&["SELECT count(*) FROM v1_runs"]);
    let house = asking(&stub, "", "");
    house.job("other", PLAIN);
    house.job("report", REPORTER);
    assert_eq!(house.run("other").0, Some(0));
    let said = house.say(&["test", "report", "--record"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    // It looks at the history of the house, not at that of the recording.
    assert!(given(&stub)[0].contains("[\"count(*)\"]\n[1]\n"), "{:#?}", given(&stub));
    assert_eq!(house.run("other").0, Some(0));
    let said = house.say(&["test", "report"]);
    assert_eq!(said.code, Some(0), "{said:?}");
}
