//! A switch that watches a job is rung when a run begins and ends, and one that watches `serve`
//! for as long as its loop turns.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::Duration;

use nix::sys::signal::Signal;
use punctual::clock::{Clock as _, SystemClock};
use serde_json::json;
use support::scripts::{FINE, PLAIN, due, soon};
use support::stub::{Act, Stub, refusal, reply, retry_after};
use support::{House, asking, scripted, until};

/// A path below the stub's that nothing may ever show.
const KEY: &str = "zebra-5f0c2d1e-switch";

const ALLOWED: &str = "[security]\nallow_hosts = [\"127.0.0.1\"]\n";

fn switch(answer: &'static str) -> Stub {
    Stub::new(move |_| match answer {
        "hold" => vec![Act::Hold],
        status => vec![Act::Say(refusal(status, &json!({"said": "so"})))],
    })
}

fn url(stub: &Stub) -> String {
    format!("{}/{KEY}", stub.url())
}

/// A house whose jobs may name their switch as `SWITCH`.
fn house(script: &str, more: &str, stub: &Stub) -> House {
    scripted(script, &format!("{more}{ALLOWED}")).with_env("SWITCH", &url(stub))
}

/// A job with that switch.
fn watched(job: &str) -> String {
    format!("{job}\n[ping]\nurl_env = \"SWITCH\"\n")
}

/// What was rung, as path and id.
fn rung(stub: &Stub) -> Vec<(String, String)> {
    let of_head = |head: &String| {
        let target = head.split(' ').nth(1).unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.strip_prefix(&format!("/v1/{KEY}")).unwrap().to_owned();
        (path, query.strip_prefix("rid=").unwrap_or_default().to_owned())
    };
    stub.heads().iter().map(of_head).collect()
}

fn paths(stub: &Stub) -> Vec<String> {
    rung(stub).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn a_run_rings_when_it_begins_and_how_it_ended_under_one_id() {
    let script = "[[rule]]\nwhen = { contains = \"fail\" }\n\
                  step = [{ error = { status = 400, message = \"no\" } }]\n\
                  [[rule]]\nstep = [{ text = \"fine\" }]\n";
    let command = |script: &str| format!("[command]\nargv = [\"sh\", \"-c\", \"{script}\"]\n");
    let gated = format!("{PLAIN}[gate]\ncommand = [\"false\"]\n");
    let no = format!("{PLAIN}[gate]\ncommand = [\"sh\", \"-c\", \"exit 10\"]\n");
    for (job, expected) in [
        (PLAIN.to_owned(), &["/start", ""][..]),
        (PLAIN.replace("go", "fail"), &["/start", "/fail"]),
        (command("exit 3"), &["/start", "/3"]),
        (format!("{}ok_exit = [0, 3]\n", command("exit 3")), &["/start", ""]),
        (format!("{PLAIN}[[check]]\nregex = \"nowhere\"\n"), &["/start", "/fail"]),
        // It was looked at, and there was nothing to do.
        (no, &[""]),
        (gated, &["/fail"]),
    ] {
        let stub = switch("200 OK");
        let house = house(script, "", &stub);
        house.job("j", &watched(&job));
        let (_, run) = house.run("j");
        assert_eq!(paths(&stub), expected, "{job}: {run:#}");
        let ids: Vec<_> = rung(&stub).into_iter().map(|(_, id)| id).collect();
        assert!(ids.iter().all(|id| id.len() == 36 && *id == ids[0]), "{ids:?}");
        assert_eq!(house.files_with(KEY), Vec::<std::path::PathBuf>::new());
    }
}

#[test]
fn a_written_address_is_shown_to_nobody_and_another_one_is_another_definition() {
    let stub = switch("500 Internal Server Error");
    let house = house(FINE, "", &stub);
    let literal = |url: &str| format!("{PLAIN}[ping]\nurl = \"{url}\"\n");
    house.job("j", &literal(&url(&stub)));
    let said = house.say(&["run", "j", "--json"]);
    assert_eq!(said.code, Some(0), "how a ring went changes nothing about the run");
    assert!(said.took < Duration::from_secs(30));
    let shown = house.say(&["show", "j", "--effective"]);
    assert!(shown.stdout.contains("[secret "), "{shown:?}");
    let stored = house.value("SELECT definition_hash FROM v1_runs");
    for text in [&said.stdout, &said.stderr, &shown.stdout, &shown.stderr] {
        assert!(!text.contains(KEY), "{text}");
    }
    let job = house.path("jobs/j.toml");
    assert_eq!(house.files_with(KEY), [job]);
    house.job("j", &literal(&format!("{}-2", url(&stub))));
    house.say(&["run", "j", "--json"]);
    let hash = "SELECT definition_hash FROM v1_runs ORDER BY run_id DESC LIMIT 1";
    assert_ne!(house.value(hash), stored);
}

#[test]
fn a_failure_rings_once_nothing_follows_it_and_not_at_all_when_it_was_saved() {
    for (failures, last) in [(1, ""), (100, "/fail")] {
        let stub = switch("200 OK");
        // Each run asks up to three times.
        let model = Stub::new(move |n| {
            if n < failures * 3 {
                let busy = refusal("503 Service Unavailable", &json!({"error": "down"}));
                return vec![Act::Say(retry_after("0", &busy))];
            }
            vec![Act::Say(reply("at last"))]
        });
        let house = asking(&model, "", ALLOWED).with_env("SWITCH", &url(&stub));
        let job = due("", &format!("at = \"{:.3}\"\ncatchup_window = \"3500ms\"", soon()));
        let retry = "[retry]\nmax_attempts = 3\nbackoff = [\"1s\"]\n";
        house.job("j", &watched(&format!("{job}{retry}")));
        let serve = house.serve();
        until("it has rung for the end", || paths(&stub).iter().any(|path| *path == last));
        assert_eq!(serve.stop().code, Some(0));
        let runs = house.value("SELECT count(*) FROM v1_runs").as_u64().unwrap();
        assert!(runs >= 2, "{runs}");
        let mut expected = vec!["/start"; usize::try_from(runs).unwrap()];
        expected.push(last);
        assert_eq!(paths(&stub), expected);
        // The end is that of the last attempt.
        let ids: Vec<_> = rung(&stub).into_iter().map(|(_, id)| id).collect();
        assert_eq!(ids[ids.len() - 1], ids[ids.len() - 2]);
        assert_ne!(ids[ids.len() - 1], ids[0]);
    }
}

#[test]
fn what_a_dead_process_left_behind_rings_at_the_next_start_and_what_a_person_ends_does_not() {
    let stub = switch("200 OK");
    let house = house("[[rule]]\nstep = [{ hang = true }]\n", "", &stub);
    house.job("j", &watched(&due("", &format!("at = \"{:.3}\"", soon()))));
    house.job("by-hand", &watched(PLAIN));
    let serve = house.serve();
    until("it has begun", || paths(&stub) == ["/start"]);
    let run_id = house.detach("by-hand");
    until("the other one has begun", || paths(&stub) == ["/start", "/start"]);
    house.say(&["cancel", &run_id]);
    house.ended(&run_id);
    serve.kill();
    let serve = house.serve();
    until("the dead one rings", || paths(&stub).len() > 2);
    assert_eq!(serve.stop().code, Some(0));
    let rung = rung(&stub);
    assert_eq!(paths(&stub), ["/start", "/start", "/fail"]);
    assert_eq!(rung[2].1, rung[0].1, "of the run by schedule");
}

#[test]
fn a_switch_that_hangs_holds_up_neither_the_run_nor_the_exit() {
    let stub = switch("hold");
    let house = house(FINE, "", &stub);
    house.job("j", &watched(PLAIN));
    let said = house.say(&["run", "j", "--json"]);
    let (run, took) = (said.json(), said.took);
    assert_eq!(said.code, Some(0), "{run:#}");
    assert!(run["duration_ms"].as_u64().unwrap() < 3000, "{run:#}");
    assert!(took < Duration::from_secs(9), "{took:?}: it would have waited for the answer");
    assert_eq!(paths(&stub), ["/start"], "one after the other");
}

#[test]
fn a_switch_that_is_away_is_tried_again_and_then_a_line_in_the_log() {
    let stub = Stub::new(|n| {
        let status = if n == 0 { "503 Service Unavailable" } else { "200 OK" };
        vec![Act::Say(refusal(status, &json!({})))]
    });
    let house = house(FINE, "", &stub);
    house.job("j", &watched(PLAIN));
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(paths(&stub), ["/start", "/start", ""]);

    let stub = switch("404 Not Found");
    let house = self::house(FINE, "", &stub);
    house.job("j", &watched(PLAIN));
    let serve = house.serve();
    house.detach("j");
    serve.until_stderr("a ping did not arrive");
    let said = serve.stop();
    assert!(said.stderr.contains("answered 404 Not Found"), "{said:?}");
    assert!(!said.stderr.contains(KEY), "{said:?}");
}

#[test]
fn a_rehearsal_rings_nobody() {
    let stub = switch("200 OK");
    let model = Stub::saying(reply("fine"));
    let house = asking(&model, "", ALLOWED).with_env("SWITCH", &url(&stub));
    house.job("j", &watched(PLAIN));
    for arguments in [&["test", "j", "--record"][..], &["test", "j"]] {
        let said = house.say(arguments);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    assert_eq!(paths(&stub), [""; 0]);
    // The same job rings otherwise.
    house.run("j");
    assert_eq!(paths(&stub), ["/start", ""]);
}

#[test]
fn a_ping_without_an_address_is_an_error_of_its_job() {
    let stub = switch("200 OK");
    let house = house(FINE, "", &stub);
    house.job("unset", &format!("{PLAIN}[ping]\nurl_env = \"NO_SUCH_SWITCH\"\n"));
    house.job("none", &format!("{PLAIN}[ping]\n"));
    house.job("fine", &watched(PLAIN));
    let said = house.say(&["validate"]);
    let all = format!("{}{}", said.stdout, said.stderr);
    for words in [
        "the environment variable `NO_SUCH_SWITCH` is not set",
        "a ping needs `url`",
        "1 job valid, 2 files invalid",
    ] {
        assert!(all.contains(words), "{words}: {all}");
    }
}

#[test]
fn the_heart_beats_with_the_loop_and_stops_with_it() {
    let stub = switch("200 OK");
    let beats = || stub.heads().len();
    let heartbeat = "[heartbeat]\nurl_env = \"SWITCH\"\nevery = \"10s\"\n";
    let house = house(FINE, heartbeat, &stub);
    house.job("j", PLAIN);
    // Whoever is there for one run is not what is watched.
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(beats(), 0);
    let began = SystemClock.monotonic();
    let serve = house.serve();
    until("it says at once that it lives", || beats() == 1);
    assert!(SystemClock.monotonic() - began < Duration::from_secs(9));
    assert_eq!(paths(&stub), [""]);
    until("and says it again", || beats() == 2);
    serve.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(beats(), 2, "a scheduler that stands still says nothing");
    serve.signal(Signal::SIGCONT);
    until("it lives again", || beats() == 3);
    // Changed files change it: nobody is told any more.
    house.write(
        "config.toml",
        &std::fs::read_to_string(house.path("config.toml")).unwrap().replace(heartbeat, ""),
    );
    assert_eq!(house.say(&["reload"]).code, Some(0));
    std::thread::sleep(Duration::from_secs(11));
    assert_eq!(beats(), 3);
    assert_eq!(serve.stop().code, Some(0));
}
