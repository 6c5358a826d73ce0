//! What is wrong is told once when it begins and once when it is over.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::ledger::{assert_sound, rewrite};
use support::scripts::{FINE, PLAIN, due, exec_job, exec_script, soon};
use support::stub::{Stub, refusal};
use support::{scripted, until};

/// A model that fails for prompts that say so, and says something bad for others.
const MIXED: &str = "[[rule]]\nwhen = { contains = \"fail\" }\n\
                     step = [{ error = { status = 400, message = \"no such thing\" } }]\n\
                     [[rule]]\nwhen = { contains = \"down\" }\n\
                     step = [{ error = { status = 401, message = \"no such key\" } }]\n\
                     [[rule]]\nstep = [{ text = \"fine\" }]\n";

fn receiver() -> Stub {
    Stub::saying(refusal("200 OK", &json!({})))
}

fn hook(stub: &Stub) -> String {
    format!(
        "[targets.ops]\nkind = \"webhook\"\nurl = \"{}\"\n\
         [security]\nallow_hosts = [\"127.0.0.1\"]\n",
        stub.url()
    )
}

const ALERT: &str = "[alert]\nto = \"ops\"\n";

/// What was told so far: event, cause, whose, state of the run.
fn told(stub: &Stub) -> Vec<Value> {
    let one = |it: &Value| {
        let incident = &it["incident"];
        let whose =
            if incident["job"].is_null() { &incident["provider"] } else { &incident["job"] };
        json!([it["event"], incident["cause"], whose])
    };
    stub.requests().iter().map(one).collect()
}

/// Done when: the closing story of results that people can trust.
#[test]
fn a_success_that_is_none_is_red_told_once_and_well_again_after_the_fix() {
    let stub = receiver();
    let check = "[[check]]\nname = \"report\"\nfile = \"out/report.md\"\n";
    let claims = exec_script("echo The report is written.");
    let house = scripted(&claims, &hook(&stub));
    house.job("daily", &format!("{}{check}{ALERT}", exec_job("")));

    let (code, red) = house.run("daily");
    assert_eq!((code, &red["state"]), (Some(1), &json!("failed")), "{red:#}");
    assert_eq!(red["error"]["kind"], "check_failed");
    assert_eq!(told(&stub), [json!(["opened", "failed", "daily"])]);
    let message = &stub.requests()[0];
    assert_eq!(message["run"]["run_id"], red["run_id"]);
    let detail = message["incident"]["detail"].as_str().unwrap();
    assert_eq!(detail, "check_failed: report: there is no file `out/report.md`");

    // It stays red: nobody is told again, whoever runs it and however often.
    house.run("daily");
    let serve = house.serve();
    let run_id = house.detach("daily");
    house.ended(&run_id);
    serve.kill();
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(told(&stub).len(), 1);
    let open = house.say(&["incidents", "--json"]).json();
    assert_eq!(
        json!([open[0]["state"], open[0]["cause"], open[0]["job"]]),
        json!(["open", "failed", "daily"])
    );
    let shown = house.say(&["incidents"]).stdout;
    assert!(shown.contains("failed") && shown.contains("daily"), "{shown}");

    house.write("model.toml", &exec_script("mkdir out; echo all > out/report.md; echo done"));
    let (code, green) = house.run("daily");
    assert_eq!((code, &green["state"]), (Some(0), &json!("succeeded")), "{green:#}");
    let both = [json!(["opened", "failed", "daily"]), json!(["over", "failed", "daily"])];
    assert_eq!(told(&stub), both);
    house.run("daily");
    assert_eq!(told(&stub), both);
    assert_eq!(house.say(&["incidents", "--json"]).json(), json!([]));
    let all = house.say(&["incidents", "--all", "--json"]).json();
    assert_eq!((all.as_array().unwrap().len(), &all[0]["state"]), (1, &json!("over")));
    assert_sound(&house);
}

#[test]
fn so_many_in_a_row_are_needed_and_a_success_begins_the_count_anew() {
    let stub = receiver();
    let house = scripted(MIXED, &hook(&stub));
    let job = |prompt: &str| format!("{}{ALERT}after = 3\n", PLAIN.replace("go", prompt));
    for (prompt, expected) in [
        ("fail", 0),
        ("fail", 0),
        ("go", 0),
        ("fail", 0),
        ("fail", 0),
        ("fail", 1),
        ("fail", 1),
        ("go", 2),
    ] {
        house.job("j", &job(prompt));
        house.run("j");
        assert_eq!(told(&stub).len(), expected, "{prompt}");
    }
    let detail = stub.requests()[0]["incident"]["detail"].clone();
    assert_eq!(detail, "3 in a row, the last one bad_request: no such thing");
}

#[test]
fn a_provider_that_is_down_is_one_incident_with_its_jobs() {
    let stub = receiver();
    let house = scripted(MIXED, &hook(&stub));
    let job = |prompt: &str| format!("{}{ALERT}", PLAIN.replace("go", prompt));
    for id in ["a", "b", "c"] {
        house.job(id, &job("down"));
    }
    let serve = house.serve();
    for id in ["a", "b", "c"] {
        let run_id = house.detach(id);
        house.ended(&run_id);
    }
    until("somebody is told", || !told(&stub).is_empty());
    assert_eq!(told(&stub), [json!(["opened", "failed", "local"])]);
    assert_eq!(stub.requests()[0]["incident"]["jobs"], json!(["a", "b", "c"]));
    for id in ["a", "b", "c"] {
        assert_eq!(told(&stub).len(), 1);
        house.job(id, &job("go"));
        house.say(&["reload"]);
        let run_id = house.detach(id);
        house.ended(&run_id);
    }
    until("it is over", || told(&stub).len() == 2);
    assert_eq!(told(&stub)[1], json!(["over", "failed", "local"]));
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn what_comes_and_goes_is_told_no_oftener_than_its_cooldown_and_ack_silences_it() {
    let stub = receiver();
    let house = scripted(MIXED, &hook(&stub));
    let job = |prompt: &str| format!("{}{ALERT}cooldown = \"1h\"\n", PLAIN.replace("go", prompt));
    for prompt in ["fail", "go", "fail", "go", "fail"] {
        house.job("j", &job(prompt));
        house.run("j");
    }
    assert_eq!(told(&stub).len(), 2, "once, and that it was over");
    let open = house.say(&["incidents", "--json"]).json();
    assert_eq!((open.as_array().unwrap().len(), &open[0]["told_at"]), (1, &Value::Null));

    // An hour later it is told, unless somebody knows of it.
    let id = open[0]["incident"].as_str().unwrap();
    let said = house.say(&["incidents", "ack", "nothing-like-this"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    let said = house.say(&["incidents", "ack", &id[..20], "--json"]);
    assert_eq!((said.code, said.json()), (Some(0), json!({ "acked": id })));
    rewrite(&house, "UPDATE incidents SET notify_at = '2026-01-01T00:00:00.000Z'");
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(told(&stub).len(), 2);
    assert_eq!(house.say(&["incidents", "--json"]).json()[0]["state"], "acked");
    rewrite(&house, "UPDATE incidents SET acked_at = NULL");
    let serve = house.serve();
    until("somebody is told", || told(&stub).len() == 3);
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn missed_slots_are_told_and_so_is_a_job_that_never_succeeds() {
    let stub = receiver();
    let house = scripted(MIXED, &hook(&stub));
    // Half an hour away from any slot.
    let minute = (soon().as_second() / 60 + 30) % 60;
    let job = due("", &format!("cron = \"{minute} * * * *\"\ncatchup = \"none\""));
    house.job("missed", &format!("{job}{ALERT}on = [\"missed\"]\nafter = 3\n"));
    assert_eq!(house.serve().stop().code, Some(0));
    rewrite(
        &house,
        "UPDATE jobs SET decided_until = strftime('%Y-%m-%dT%H:%M:%fZ', decided_until, '-3 hours')",
    );
    let serve = house.serve();
    until("it is told", || told(&stub) == [json!(["opened", "missed", "missed"])]);
    assert_eq!(serve.stop().code, Some(0));
    let detail = stub.requests()[0]["incident"]["detail"].clone();
    assert!(detail.as_str().unwrap().starts_with("3 slots in a row not started"), "{detail}");

    let stale = receiver();
    let house = scripted(MIXED, &hook(&stale));
    let job = due("", "every = \"1s\"").replace("go", "fail");
    house.job(
        "stale",
        &format!("{job}[retry]\nmax_attempts = 1\n{ALERT}on = [\"stale\"]\nstale_after = 2\n"),
    );
    let serve = house.serve();
    until("it is told", || told(&stale) == [json!(["opened", "stale", "stale"])]);
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_delivery_that_fails_is_told_unless_it_does_not_matter() {
    let stub = receiver();
    let nowhere = "[targets.out]\nkind = \"file\"\npath = \"/dev/null/x\"\n";
    let house = scripted(FINE, &format!("{nowhere}{}", hook(&stub)));
    let deliver = "[[deliver]]\nto = \"out\"\n";
    house.job("matters", &format!("{PLAIN}{deliver}{ALERT}"));
    house.job("hardly", &format!("{PLAIN}{deliver}best_effort = true\n{ALERT}"));
    let serve = house.serve();
    for job in ["matters", "hardly"] {
        let run_id = house.detach(job);
        house.ended(&run_id);
    }
    house.until("SELECT count(*) = 2 FROM v1_deliveries WHERE state = 'failed' AND target = 'out'");
    until("it is told", || !told(&stub).is_empty());
    assert_eq!(told(&stub), [json!(["opened", "delivery_failed", "matters"])]);
    house.write(
        "config.toml",
        &std::fs::read_to_string(house.path("config.toml"))
            .unwrap()
            .replace("/dev/null/x", "out.txt"),
    );
    house.say(&["reload"]);
    let run_id = house.detach("matters");
    house.ended(&run_id);
    until("it is over", || told(&stub).len() == 2);
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(told(&stub)[1], json!(["over", "delivery_failed", "matters"]));
}

#[test]
fn a_job_that_is_gone_or_tells_nobody_any_more_is_forgotten_in_silence() {
    let stub = receiver();
    let house = scripted(MIXED, &hook(&stub));
    let job = PLAIN.replace("go", "fail");
    for id in ["gone", "quiet"] {
        house.job(id, &format!("{job}{ALERT}"));
        house.run(id);
    }
    assert_eq!(told(&stub).len(), 2);
    std::fs::remove_file(house.path("jobs/gone.toml")).unwrap();
    house.job("quiet", &job);
    let serve = house.serve();
    house.until("SELECT count(*) = 2 FROM v1_incidents WHERE state = 'over'");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(told(&stub).len(), 2);
}

#[test]
fn a_look_that_was_lost_in_a_crash_is_made_by_the_next_process() {
    let stub = receiver();
    let house = scripted(MIXED, &hook(&stub));
    house.job("j", &PLAIN.replace("go", "fail"));
    house.run("j");
    // As if it had died between the end of the run and the look.
    house.job("j", &format!("{}{ALERT}", PLAIN.replace("go", "fail")));
    let serve = house.serve();
    until("it is told", || told(&stub) == [json!(["opened", "failed", "j"])]);
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn status_and_validate_say_whose_failures_reach_nobody() {
    let stub = receiver();
    let house = scripted(MIXED, &hook(&stub));
    house.job("heard", &format!("{PLAIN}{ALERT}"));
    house.job("sent", &format!("{PLAIN}[[deliver]]\nto = \"ops\"\nwhen = \"failed\"\n"));
    house.job("quiet", &format!("{PLAIN}[[deliver]]\nto = \"ops\"\n"));
    for verb in ["validate", "status"] {
        let said = house.say(&[verb]).stdout;
        assert!(said.contains("failures of 1 of 3 jobs reach nobody: quiet"), "{said}");
    }
    house.job("quiet", &format!("{PLAIN}{ALERT}"));
    let said = house.say(&["validate"]).stdout;
    assert!(said.contains("failures of all 3 jobs reach somebody"), "{said}");
}

#[test]
fn money_that_is_used_up_is_told_once() {
    let stub = receiver();
    let price = "[models.providers.local.models.m]\nprice = { input = 1e6, output = 1e6 }\n";
    let house = scripted(MIXED, &format!("{}{price}", hook(&stub)));
    let alert = "[alert]\nto = \"ops\"\non = [\"over_budget\"]\n";
    let job = |usd: &str| format!("{PLAIN}{alert}[limits]\nmax_usd = {usd}\n");
    house.job("j", &job("0.5"));
    for _ in 0..2 {
        assert_eq!(house.run("j").1["error"]["kind"], "budget");
    }
    assert_eq!(told(&stub), [json!(["opened", "over_budget", "j"])]);
    house.job("j", &job("1_000_000.0"));
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(told(&stub)[1..], [json!(["over", "over_budget", "j"])]);
}

/// Neither slots that were missed before it nor the lack of a success are news then.
#[test]
fn a_gate_that_says_no_has_been_looked_at() {
    let stub = receiver();
    let house = scripted(MIXED, &hook(&stub));
    let gate = "[gate]\ncommand = [\"sh\", \"-c\", \"exit 10\"]\n";
    let alert = format!("{ALERT}on = [\"missed\", \"stale\"]\nstale_after = 2\n");
    let job = due("", "every = \"1s\"\ncatchup = \"none\"");
    house.job("j", &format!("{job}{gate}{alert}"));
    let serve = house.serve();
    house.until("SELECT count(*) > 5 FROM v1_slots WHERE reason = 'gate'");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(told(&stub), Vec::<Value>::new());
    let missed =
        "INSERT INTO slots (job, due_at, due_until, slots, decision, reason, decided_at, late_ms)
                  SELECT job, strftime('%Y-%m-%dT%H:%M:%fZ', first_seen_at, '-9 seconds'),
                         strftime('%Y-%m-%dT%H:%M:%fZ', first_seen_at, '-9 seconds'), 1, 'missed',
                         'down', first_seen_at, 0 FROM jobs";
    assert_eq!(house.writable().execute(missed, []).unwrap(), 1);
    let serve = house.serve();
    house.until("SELECT count(*) > 8 FROM v1_slots WHERE reason = 'gate'");
    assert_eq!(serve.stop().code, Some(0));
    // It looks at every job when it starts.
    assert_eq!(house.say(&["incidents", "--all", "--json"]).json(), json!([]));
}
