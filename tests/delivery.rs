//! What comes of a run leaves the house: once, in the right words, whatever the receiver does.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use serde_json::{Value, json};
use support::ledger::assert_sound;
use support::scripts::{EVERY_SECOND, FINE, PLAIN, due};
use support::stub::{Act, Stub, refusal, reply};
use support::{House, asking, scripted, until};

/// A receiver that answers its `n`th request with the `n`th of these, and the last one to all later.
fn receiver(answers: &'static [&'static str]) -> Stub {
    Stub::new(move |n| match answers[n.min(answers.len() - 1)] {
        "hold" => vec![Act::Hold],
        "drop" => vec![],
        "reset" => vec![Act::Reset],
        status => vec![Act::Say(refusal(status, &json!({"said": "so"})))],
    })
}

fn hook(stub: &Stub, more: &str) -> String {
    format!(
        "[targets.ops]\nkind = \"webhook\"\nurl = \"{}\"\n{more}\n\
         [security]\nallow_hosts = [\"127.0.0.1\"]\n",
        stub.url()
    )
}

/// A job without tools that delivers to `ops`.
fn delivering(more: &str) -> String {
    format!("{PLAIN}[[deliver]]\nto = \"ops\"\n{more}\n")
}

fn deliveries(house: &House) -> Vec<Value> {
    house.rows("SELECT target, state, attempts, last_error FROM v1_deliveries ORDER BY queued_at")
}

#[test]
fn a_run_arrives_signed_and_with_its_id_before_run_ends() {
    const SECRET: &str = "zebra-crossing-signature-key";
    let stub = receiver(&["200 OK"]);
    let more = "secret_env = \"HOOK_SECRET\"\nheaders = { X-Team = \"payments-and-more\" }";
    let house = scripted(FINE, &hook(&stub, more)).with_env("HOOK_SECRET", SECRET);
    house.job("j", &delivering(""));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    let id = format!("{}-1", run["run_id"].as_str().unwrap());
    let delivery = &run["deliveries"][0];
    assert_eq!(
        json!([delivery["target"], delivery["state"], delivery["attempts"], delivery["error"]]),
        json!(["ops", "sent", 1, null])
    );
    assert_eq!(delivery["delivery_id"], id.as_str());
    let (requests, heads) = (stub.requests(), stub.heads());
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0]["reply"], "fine");
    assert_eq!(requests[0]["state"], "succeeded");
    support::run_object::assert_has_every_key(&requests[0]);
    let head = heads[0].to_lowercase();
    for line in [
        format!("idempotency-key: {id}"),
        "content-type: application/json".into(),
        "x-team: payments-and-more".into(),
    ] {
        assert!(head.contains(&line), "{line}: {head}");
    }
    assert!(head.contains("x-punctual-signature: sha256="), "{head}");
    let shown = house.say(&["show", run["run_id"].as_str().unwrap()]).stdout;
    assert!(shown.contains("  delivery  to ops sent\n"), "{shown}");
    assert_sound(&house);
    for secret in [SECRET, &SECRET[..8]] {
        assert_eq!(house.files_with(secret), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn what_was_refused_for_now_is_tried_again_and_what_was_refused_for_good_is_not() {
    for (answers, expected) in [
        (
            &["503 Service Unavailable", "429 Too Many Requests", "200 OK"][..],
            json!(["sent", 3, null]),
        ),
        (&["400 Bad Request"], json!(["failed", 1, "answered 400 Bad Request: {\"said\":\"so\"}"])),
        (&["302 Found"], json!(["failed", 1, "answered 302 Found: redirects are not followed"])),
    ] {
        let stub = receiver(answers);
        let house = scripted(FINE, &hook(&stub, ""));
        house.job("j", &delivering(""));
        let (code, run) = house.run("j");
        // How the sending went changes nothing about the run.
        assert_eq!((code, &run["state"]), (Some(0), &json!("succeeded")), "{run:#}");
        let delivery = &run["deliveries"][0];
        assert_eq!(json!([delivery["state"], delivery["attempts"], delivery["error"]]), expected);
        let tries = usize::try_from(expected[1].as_u64().unwrap()).unwrap();
        assert_eq!(stub.requests().len(), tries);
        let ids = "SELECT count(DISTINCT delivery_id) FROM v1_deliveries";
        assert_eq!(house.value(ids), 1);
        assert_eq!(house.value("SELECT count(*) FROM v1_runs"), 1);
    }
}

#[test]
fn an_answer_that_is_lost_is_never_asked_for_again() {
    for fate in ["drop", "reset", "hold"] {
        let stub = receiver(match fate {
            "drop" => &["drop"],
            "reset" => &["reset"],
            _ => &["hold"],
        });
        let house = scripted(FINE, &hook(&stub, "timeout = \"1s\""));
        house.job("j", &delivering(""));
        let (code, run) = house.run("j");
        let delivery = &run["deliveries"][0];
        assert_eq!((code, &delivery["state"]), (Some(0), &json!("unknown")), "{fate}: {run:#}");
        assert!(delivery["error"].as_str().unwrap().starts_with("no answer came"), "{run:#}");
        // Whoever comes next leaves it as it is.
        assert_eq!(house.serve().stop().code, Some(0));
        assert_eq!(stub.requests().len(), 1, "{fate}");
        assert_eq!(house.value("SELECT state FROM v1_deliveries"), "unknown");
    }
}

#[test]
fn a_receiver_that_is_away_is_waited_for_by_whoever_comes_next() {
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = away.local_addr().unwrap();
    drop(away);
    let config = format!(
        "[targets.ops]\nkind = \"webhook\"\nurl = \"http://{address}/\"\n\
         [security]\nallow_hosts = [\"127.0.0.1\"]\n"
    );
    let house = scripted(FINE, &config);
    house.job("j", &delivering(""));
    let serve = house.serve();
    house.detach("j");
    house.until("SELECT attempts >= 2 FROM v1_deliveries");
    let row = deliveries(&house)[0].clone();
    assert_eq!(row[1], "queued", "{row}");
    assert!(row[3].as_str().unwrap().contains("refused"), "{row}");
    serve.kill();
    let stub = Stub::on(address, |_| vec![Act::Say(refusal("200 OK", &json!({})))]);
    let serve = house.serve();
    house.until("SELECT state = 'sent' FROM v1_deliveries");
    assert_eq!(stub.requests().len(), 1);
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.value("SELECT count(*) FROM v1_runs"), 1);
}

#[test]
fn a_crash_between_sending_and_marking_makes_one_repetition_with_the_same_id() {
    let stub = receiver(&["hold", "200 OK"]);
    let house = scripted(FINE, &hook(&stub, ""));
    house.job("j", &delivering(""));
    let serve = house.serve();
    house.detach("j");
    until("it has been sent", || stub.requests().len() == 1);
    serve.kill();
    assert_eq!(house.value("SELECT state FROM v1_deliveries"), "queued");
    let serve = house.serve();
    house.until("SELECT state = 'sent' FROM v1_deliveries");
    assert_eq!(serve.stop().code, Some(0));
    let key = |head: &String| {
        head.lines().find(|it| it.starts_with("idempotency-key")).map(str::to_owned)
    };
    let keys: Vec<_> = stub.heads().iter().map(key).collect();
    assert_eq!(keys.len(), 2);
    assert!(keys[0].is_some() && keys[0] == keys[1], "{keys:?}");

    // A second crash is one too many.
    let stub = receiver(&["hold"]);
    let house = scripted(FINE, &hook(&stub, ""));
    house.job("j", &delivering(""));
    let serve = house.serve();
    house.detach("j");
    until("it has been sent", || stub.requests().len() == 1);
    serve.kill();
    let serve = house.serve();
    until("it has been sent again", || stub.requests().len() == 2);
    serve.kill();
    let serve = house.serve();
    house.until("SELECT state = 'unknown' FROM v1_deliveries");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(stub.requests().len(), 2);
    let row = &deliveries(&house)[0];
    assert_eq!(*row, json!(["ops", "unknown", 2, "the process that sent it died"]));
}

/// B126.
#[test]
fn a_failure_is_told_once_and_only_when_no_attempt_follows() {
    for (failures, states) in [(2, vec![]), (100, vec![json!("failed")])] {
        let stub = receiver(&["200 OK"]);
        // Each run asks up to three times.
        let model = Stub::new(move |n| {
            if n < failures * 3 {
                let busy = refusal("503 Service Unavailable", &json!({"error": "down"}));
                return vec![Act::Say(support::stub::retry_after("0", &busy))];
            }
            vec![Act::Say(reply("at last"))]
        });
        let house = asking(&model, "", &hook(&stub, ""));
        let retry = "[retry]\nmax_attempts = 3\nbackoff = [\"1s\"]\n";
        let soon = support::scripts::soon();
        let job = due("", &format!("at = \"{soon:.3}\"\ncatchup_window = \"3500ms\""));
        house.job("j", &format!("{job}{retry}[[deliver]]\nto = \"ops\"\nwhen = \"failed\"\n"));
        let serve = house.serve();
        if failures == 2 {
            house.until("SELECT count(*) = 1 FROM v1_runs WHERE state = 'succeeded'");
        } else {
            house.until("SELECT paused_cause = 'one_shot_failed' FROM v1_jobs");
            house.until("SELECT count(*) = 1 FROM v1_deliveries WHERE state = 'sent'");
        }
        assert_eq!(serve.stop().code, Some(0));
        assert!(house.value("SELECT count(*) FROM v1_runs").as_u64() >= Some(3));
        let told: Vec<_> = stub.requests().iter().map(|run| run["state"].clone()).collect();
        assert_eq!(told, states, "{:#?}", house.rows("SELECT state, attempt FROM v1_runs"));
    }
}

#[test]
fn each_end_goes_where_it_is_wanted_and_a_cancelled_run_goes_nowhere() {
    let script = "[[rule]]\nwhen = { contains = \"hang\" }\nstep = [{ hang = true }]\n\
                  [[rule]]\nwhen = { contains = \"fail\" }\nstep = [{ error = { status = 400, message = \"no\" } }]\n\
                  [[rule]]\nstep = [{ text = \"fine\" }]\n";
    let targets: String = ["succeeded", "failed", "always"]
        .map(|it| {
            format!("[targets.{it}]\nkind = \"file\"\npath = \"out/{it}-{{{{ job }}}}.txt\"\n")
        })
        .concat();
    let house = scripted(script, &targets);
    let delivers: String = ["succeeded", "failed", "always"]
        .map(|it| format!("[[deliver]]\nto = \"{it}\"\nwhen = \"{it}\"\n"))
        .concat();
    for (job, prompt) in [("good", "go"), ("bad", "fail"), ("late", "hang"), ("ended", "hang")] {
        let limits = if job == "late" { "[limits]\ntimeout = \"1s\"\n" } else { "" };
        house.job(job, &format!("{}{limits}{delivers}", PLAIN.replace("go", prompt)));
    }
    for job in ["good", "bad", "late"] {
        house.run(job);
    }
    let serve = house.serve();
    let run_id = house.detach("ended");
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE state = 'running'");
    house.say(&["cancel", &run_id]);
    house.ended(&run_id);
    assert_eq!(serve.stop().code, Some(0));
    let rows = house.rows(
        "SELECT job, group_concat(target, ' ') FROM v1_deliveries JOIN v1_runs USING (run_id)
         WHERE v1_deliveries.state = 'sent' GROUP BY job ORDER BY job",
    );
    let expected = [
        json!(["bad", "failed always"]),
        json!(["good", "succeeded always"]),
        json!(["late", "failed always"]),
    ];
    assert_eq!(rows, expected);
    let text = |name: &str| std::fs::read_to_string(house.path(name)).unwrap();
    assert_eq!(text("out/succeeded-good.txt"), "fine\n");
    let late = text("out/failed-late.txt");
    let run_id = house.value("SELECT run_id FROM v1_runs WHERE job = 'late'");
    for line in [
        "late timed out: deadline",
        "job          late",
        "due          by hand",
        "error kind   deadline",
        "limit        deadline of 1s",
        "next attempt none",
        &format!("run id       {}", run_id.as_str().unwrap()),
    ] {
        assert!(late.contains(line), "{line}: {late}");
    }
}

/// B123.
#[test]
fn nothing_to_report_is_nothing_sent_and_anything_else_is_sent_whole() {
    let kinds = ["file", "webhook", "command"];
    let stub = receiver(&["200 OK"]);
    let targets = format!(
        "[targets.file]\nkind = \"file\"\npath = \"out.txt\"\n\
         [targets.command]\nkind = \"command\"\nargv = [\"sh\", \"-c\", \"cat > command.json\"]\n{}",
        hook(&stub, "").replace("targets.ops", "targets.webhook")
    );
    for (answer, token, is_silent) in [
        ("NO_REPLY", "", true),
        ("NO_REPLY\\n", "", true),
        ("  no_reply  ", "", true),
        ("Nothing, so NO_REPLY it is", "", false),
        ("The report\\n\\nNO_REPLY", "", false),
        ("```\\nNO_REPLY\\n```", "", false),
        ("NO_REPLY", "[output]\nsilent_token = \"HUSH\"\n", false),
        ("hush", "[output]\nsilent_token = \"HUSH\"\n", true),
    ] {
        let script = format!("[[rule]]\nstep = [{{ text = \"{answer}\" }}]\n");
        let house = scripted(&script, &targets);
        let delivers = kinds.map(|kind| format!("[[deliver]]\nto = \"{kind}\"\n")).concat();
        house.job("j", &format!("{PLAIN}{token}{delivers}"));
        let before = stub.requests().len();
        let (code, run) = house.run("j");
        assert_eq!((code, &run["state"]), (Some(0), &json!("succeeded")), "{run:#}");
        let state = if is_silent { "suppressed" } else { "sent" };
        let states: Vec<_> =
            run["deliveries"].as_array().unwrap().iter().map(|it| &it["state"]).collect();
        assert_eq!(states, [state, state, state], "{answer:?}: {run:#}");
        let whole = answer.replace("\\n", "\n");
        let payloads = if is_silent { json!([]) } else { json!([{"kind": "text", "text": whole}]) };
        assert_eq!(run["payloads"], payloads, "{answer:?}");
        assert_eq!(stub.requests().len() - before, usize::from(!is_silent));
        assert_eq!(house.path("out.txt").exists(), !is_silent);
        assert_eq!(house.path("command.json").exists(), !is_silent);
        // The words of a person at a terminal are the same.
        let said = house.say(&["run", "j", "--no-deliver"]);
        assert_eq!(said.stdout.is_empty(), is_silent, "{said:?}");
        if !is_silent {
            assert_eq!(
                std::fs::read_to_string(house.path("out.txt")).unwrap().trim(),
                whole.trim()
            );
            let read = std::fs::read_to_string(house.path("command.json")).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&read).unwrap()["reply"], whole.as_str());
        }
    }
}

#[test]
fn a_run_without_deliveries_says_so_in_the_history() {
    let stub = receiver(&["200 OK"]);
    let house = scripted(FINE, &hook(&stub, ""));
    house.job("j", &delivering(""));
    let said = house.say(&["run", "j", "--no-deliver", "--json"]);
    assert_eq!(said.code, Some(0));
    let delivery = &said.json()["deliveries"][0];
    assert_eq!(
        json!([delivery["state"], delivery["attempts"], delivery["error"]]),
        json!(["suppressed", 0, "asked for without deliveries"])
    );
    assert_eq!(stub.requests().len(), 0);
}

#[test]
fn a_place_that_cannot_be_written_is_a_failed_delivery_with_its_reason() {
    let target = "[targets.ops]\nkind = \"file\"\npath = \"/dev/null/{{ job }}.txt\"\n";
    let house = scripted(FINE, target);
    house.job("j", &delivering(""));
    let (code, run) = house.run("j");
    assert_eq!((code, &run["deliveries"][0]["state"]), (Some(0), &json!("failed")), "{run:#}");
    let why = run["deliveries"][0]["error"].as_str().unwrap();
    assert!(why.starts_with("write /dev/null/j.txt: "), "{why}");
}

#[test]
fn programs_get_the_run_and_their_exit_code_says_what_came_of_it() {
    let argv =
        r#"["sh", "-c", "cat > seen.json; echo out of ink; setsid sleep 60 & exit $(cat code)"]"#;
    let house = scripted(FINE, &format!("[targets.ops]\nkind = \"command\"\nargv = {argv}\n"));
    house.job("j", &delivering(""));
    for (code, expected) in
        [("0", json!(["sent", 1, null])), ("3", json!(["failed", 1, "exit code 3: out of ink"]))]
    {
        house.write("code", code);
        let (_, run) = house.run("j");
        let delivery = &run["deliveries"][0];
        assert_eq!(json!([delivery["state"], delivery["attempts"], delivery["error"]]), expected);
        let seen: Value =
            serde_json::from_str(&std::fs::read_to_string(house.path("seen.json")).unwrap())
                .unwrap();
        assert_eq!(seen["run_id"], run["run_id"]);
        house.assert_nothing_is_left();
    }
    assert_eq!(std::fs::read_dir(house.path("state/outbox")).unwrap().count(), 0);
    house.write("code", "75");
    let (_, run) = house.run("j");
    assert!(run["deliveries"][0]["attempts"].as_u64() >= Some(2), "{run:#}");
    assert_eq!(run["deliveries"][0]["state"], "queued");
}

#[test]
fn a_private_receiver_is_refused_unless_it_is_allowed() {
    let stub = receiver(&["200 OK"]);
    let config = hook(&stub, "");
    let house = scripted(FINE, config.split("[security]").next().unwrap());
    house.job("j", &delivering(""));
    let (_, run) = house.run("j");
    assert_eq!(run["deliveries"][0]["state"], "failed");
    assert_eq!(
        run["deliveries"][0]["error"],
        "`127.0.0.1` is a private address and not in `security.allow_hosts`"
    );
    assert_eq!(stub.requests().len(), 0);
}

#[test]
fn targets_that_cannot_be_used_stop_the_jobs_that_name_them() {
    let config = "[targets.ops]\nkind = \"webhook\"\nurl_env = \"NO_SUCH_HOOK\"\n\
                  [targets.out]\nkind = \"file\"\npath = \"x\"\n";
    let house = scripted(FINE, config);
    house.job("fine", &delivering("").replace("ops", "out"));
    house.job("unset", &delivering(""));
    house.job("unknown", &delivering("").replace("ops", "ouut"));
    house.job("template", &delivering("subject = \"{{ jbo }}\"").replace("ops", "out"));
    let said = house.say(&["validate"]);
    assert_eq!(said.code, Some(2));
    for words in [
        "the target `ops` cannot be used: `url`: the environment variable `NO_SUCH_HOOK` is not set",
        "there is no target `ouut`",
        "did you mean `out`?",
        "there is no `jbo` here",
        "1 job valid, 3 files invalid",
    ] {
        let all = format!("{}{}", said.stdout, said.stderr);
        assert!(all.contains(words), "{words}: {all}");
    }
    assert_eq!(house.run("fine").0, Some(0));
    assert_eq!(house.say(&["run", "unset"]).code, Some(2));
}

#[test]
fn deliveries_hold_up_no_run_and_no_lane() {
    let stub = receiver(&["hold"]);
    let config = hook(&stub, "timeout = \"1m\"");
    let house = scripted(FINE, &format!("[scheduler]\nmax_concurrent_runs = 1\n{config}"));
    house.job("j", &format!("{EVERY_SECOND}[[deliver]]\nto = \"ops\"\n"));
    let serve = house.serve();
    house.until("SELECT count(*) >= 6 FROM v1_runs WHERE state = 'succeeded'");
    let held = house.value("SELECT count(*) FROM v1_deliveries WHERE state = 'queued'");
    assert!(held.as_u64() >= Some(6), "{held}");
    assert!(stub.requests().len() <= 4, "a target has only a few places");
    assert_eq!(serve.stop().code, Some(0));
}

fn slack(stub: &Stub) -> String {
    hook(stub, "").replace("webhook", "slack")
}

#[test]
fn slack_is_told_in_its_own_marks_and_failures_have_one_form() {
    let stub = receiver(&["200 OK"]);
    let script = "[[rule]]\nwhen = { contains = \"fail\" }\n\
                  step = [{ error = { status = 400, message = \"no <such> thing\" } }]\n\
                  [[rule]]\nstep = [{ text = \"\"\"# Sales\n**Up** by 3 %, see [all](https://x.example/a)\n\n\
                  | Area | Sum |\n|---|---|\n| EU | 12 |\n\"\"\" }]\n";
    let house = scripted(script, &slack(&stub));
    house.job("good", &delivering("when = \"always\""));
    house.job("bad", &delivering("when = \"always\"").replace("go", "fail"));
    house.run("good");
    let (_, bad) = house.run("bad");
    assert_eq!(bad["deliveries"][0]["state"], "sent", "{bad:#}");
    let texts: Vec<_> = stub.requests().iter().map(|it| it["text"].clone()).collect();
    assert_eq!(
        texts[0],
        "*good*\n*Sales*\n*Up* by 3 %, see <https://x.example/a|all>\n\n```\nArea  Sum\n----  ---\nEU    12\n```"
    );
    let expected = format!(
        "*bad failed: bad_request*\nno &lt;such&gt; thing\n```\njob          bad\n\
         due          by hand\nlate by      none\nerror kind   bad_request\nlimit        none\n\
         next attempt none\nrun id       {}\n```",
        bad["run_id"].as_str().unwrap()
    );
    assert_eq!(texts[1], expected.as_str());
}

#[test]
fn a_long_reply_is_told_in_marked_parts_and_none_of_them_twice() {
    // The second part is refused once.
    let stub = receiver(&["200 OK", "503 Service Unavailable", "200 OK"]);
    let line = "a line of the report that goes on for a while\n".repeat(200);
    let script = format!("[[rule]]\nstep = [{{ text = \"\"\"\n{line}\"\"\" }}]\n");
    let house = scripted(&script, &slack(&stub));
    house.job("j", &delivering(""));
    let (_, run) = house.run("j");
    assert_eq!(run["deliveries"][0]["state"], "sent", "{run:#}");
    let marks: Vec<_> = stub
        .requests()
        .iter()
        .map(|it| it["text"].as_str().unwrap().lines().next().unwrap().to_owned())
        .collect();
    assert_eq!(marks, ["*j* (1/3)", "*j* (2/3)", "*j* (2/3)", "*j* (3/3)"]);
    let lines = |n: usize| stub.requests()[n]["text"].as_str().unwrap().lines().count() - 1;
    assert_eq!(lines(0) + lines(2) + lines(3), 200);
}

#[test]
fn what_slack_may_have_heard_when_the_sender_died_is_not_said_twice() {
    let stub = receiver(&["hold", "200 OK"]);
    let house = scripted(FINE, &slack(&stub));
    house.job("j", &delivering(""));
    let serve = house.serve();
    house.detach("j");
    until("it has been sent", || stub.requests().len() == 1);
    serve.kill();
    let serve = house.serve();
    house.until("SELECT state = 'unknown' FROM v1_deliveries");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(stub.requests().len(), 1);
}
