//! A disk that is full, slow, or kept busy by somebody: no result is lost, and no deadline waits.

#![expect(clippy::disallowed_methods, reason = "the bad disk is compiled from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fmt::Write as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::ledger::{assert_all_ended, assert_no_gap, assert_once, assert_sound};
use support::scripts::{EVERY_SECOND, FINE, PLAIN, by_hand};
use support::stub::{Act, Stub, call, event, finish, head, refusal, reply, text};
use support::{House, Running, asking, scripted, until};

/// How late a limit may be on a loaded machine; what was waited for takes longer by far.
const SOON: Duration = Duration::from_secs(1);

const LIMIT: Duration = Duration::from_secs(2);

/// A house on a disk that can go bad, with a model that does what the prompt says.
struct Scene {
    house: House,
    stub: Stub,
    go: std::sync::mpsc::Sender<()>,
}

/// The same house with a disk that goes bad when a file in `disk` says so.
fn on_a_bad_disk(house: House) -> House {
    let library = house.path("disk.so");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/disk.c"))
        .args(["-ldl"])
        .status();
    assert!(made.unwrap().success());
    let folder = house.path("disk");
    std::fs::create_dir(&folder).unwrap();
    house
        .with_env("LD_PRELOAD", library.to_str().unwrap())
        .with_env("BAD_DISK", folder.to_str().unwrap())
}

/// A job `answers` whose answer comes when it is told to, a job `stalls` and a job `works` with
/// limits, and one that is due every second.
fn scene() -> Scene {
    let (go, told) = channel();
    let told: Mutex<Receiver<()>> = Mutex::new(told);
    let stub = Stub::answering(move |request| {
        let prompt = request["messages"][1]["content"].as_str().unwrap_or_default();
        match prompt {
            "answer" => {
                let _ = told.lock().unwrap().recv_timeout(support::LONG);
                vec![Act::Say(reply("the result"))]
            }
            "stall" => vec![Act::Say(head() + &text("half")), Act::Hold],
            "work" => vec![Act::Say(
                head() + &call("exec", "{\"command\": \"sleep 60\"}") + &finish("tool_calls"),
            )],
            _ => vec![Act::Say(reply("fine"))],
        }
    });
    let house = on_a_bad_disk(asking(&stub, "", ""));
    house.job("answers", &PLAIN.replace("go", "answer"));
    let limit = format!("timeout = \"{}ms\"", LIMIT.as_millis());
    house.job("stalls", &format!("{}[limits]\n{limit}\n", PLAIN.replace("go", "stall")));
    house.job("works", &by_hand("work", "", &limit));
    house.job("ticks", EVERY_SECOND);
    Scene { house, stub, go }
}

/// Starts the runs and makes the disk bad while they work. Returns them with the moment from which
/// on both limits count at the latest.
fn begin(scene: &Scene, makes_bad: impl FnOnce(&House)) -> (Running, [String; 3], Instant) {
    let house = &scene.house;
    let serve = house.serve();
    let answers = house.detach("answers");
    let stalls = house.detach("stalls");
    let works = house.detach("works");
    until("both work", || {
        let asks = |prompt: &str| {
            let asked = scene.stub.requests();
            asked.iter().any(|it| it["messages"][1]["content"] == prompt)
        };
        asks("answer") && asks("stall") && house.living("sleep 60") == 1
    });
    let begun = Instant::now();
    makes_bad(house);
    (serve, [answers, stalls, works], begun)
}

/// Both limits come in time, whatever the disk does.
fn limits_hold(scene: &Scene, begun: Instant) {
    until("the stream is cut", || scene.stub.clients_gone() == 1);
    until("the tool is ended", || scene.house.living("sleep 60") == 0);
    let took = begun.elapsed();
    assert!(took < LIMIT + SOON, "{took:?}");
}

fn nothing_is_lost(scene: &Scene, runs: &[String; 3]) {
    let house = &scene.house;
    let [answers, stalls, works] = runs.each_ref().map(|run| house.ended(run));
    assert_eq!((&answers["state"], &answers["reply"]), (&json!("succeeded"), &json!("the result")));
    assert_eq!((&stalls["state"], &stalls["partial_text"]), (&json!("timed_out"), &json!("half")));
    assert_eq!((&works["state"], &works["error"]["phase"]), (&json!("timed_out"), &json!("tool")));
    for run in [&answers, &stalls, &works] {
        assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{run:#}");
    }
    let after = "SELECT count(*) > 1 FROM v1_runs WHERE job = 'ticks' AND state = 'succeeded'
                 AND queued_at > (SELECT max(finished_at) FROM v1_runs WHERE job <> 'ticks')";
    house.until(after);
}

fn ends_well(scene: &Scene, serve: Running) {
    assert_eq!(serve.stop().code, Some(0));
    assert_once(&scene.house);
    assert_no_gap(&scene.house, "ticks");
    assert_sound(&scene.house);
    scene.house.assert_nothing_is_left();
}

#[test]
fn a_full_disk_keeps_what_is_known_until_there_is_room() {
    let scene = scene();
    let full = scene.house.path("disk/full");
    let (serve, runs, begun) =
        begin(&scene, |house| std::fs::write(house.path("disk/full"), "").unwrap());
    limits_hold(&scene, begun);
    scene.go.send(()).unwrap();
    serve.until_stderr("the ledger cannot be written");
    // Whoever asks is answered, and nobody holds a lane any more.
    until("the lanes are free", || {
        let status = scene.house.say(&["status", "--json"]).json();
        status["running"]["lanes"][0]["held"] == 0
    });
    let open = "SELECT count(*) = 3 FROM v1_runs WHERE job <> 'ticks' AND state = 'running'";
    assert_eq!(scene.house.value(open), 1);
    std::fs::remove_file(full).unwrap();
    nothing_is_lost(&scene, &runs);
    ends_well(&scene, serve);
}

#[test]
fn a_slow_disk_delays_rows_and_nothing_else() {
    let scene = scene();
    let (serve, runs, begun) =
        begin(&scene, |house| std::fs::write(house.path("disk/slow"), "").unwrap());
    limits_hold(&scene, begun);
    scene.go.send(()).unwrap();
    scene.house.ended(&runs[0]);
    std::fs::remove_file(scene.house.path("disk/slow")).unwrap();
    nothing_is_lost(&scene, &runs);
    ends_well(&scene, serve);
}

#[test]
fn a_database_that_somebody_locks_delays_rows_and_nothing_else() {
    let scene = scene();
    let mut lock = None;
    let (serve, runs, begun) = begin(&scene, |house| {
        let db = house.writable();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        lock = Some(db);
    });
    limits_hold(&scene, begun);
    scene.go.send(()).unwrap();
    until("longer than the store itself waits", || begun.elapsed() > Duration::from_secs(6));
    drop(lock);
    nothing_is_lost(&scene, &runs);
    ends_well(&scene, serve);
}

#[test]
fn ten_runs_that_end_together_under_somebodys_lock_are_stored_once_each() {
    let go = Arc::new(AtomicBool::new(false));
    let stub = Stub::answering({
        let go = Arc::clone(&go);
        move |request| {
            until("the lock is held", || go.load(Ordering::SeqCst));
            let prompt = request["messages"][1]["content"].as_str().unwrap();
            vec![Act::Say(reply(&format!("answer to {prompt}")))]
        }
    });
    let jobs: Vec<_> = (0..10).map(|n| format!("j{n}")).collect();
    let mut lanes = "[scheduler]\nmax_concurrent_runs = 0\n[lanes]\n".to_owned();
    for job in &jobs {
        writeln!(lanes, "{job} = 1").unwrap();
    }
    let house = asking(&stub, "", &lanes);
    for job in &jobs {
        house.job(job, &format!("lane = \"{job}\"\n{}", PLAIN.replace("go", job)));
    }
    let serve = house.serve();
    let runs: Vec<_> = jobs.iter().map(|job| house.detach(job)).collect();
    until("all work", || stub.requests().len() == jobs.len());
    house.until("SELECT count(*) = 10 FROM v1_attempts WHERE state = 'running'");
    let db = house.writable();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let locked = Instant::now();
    go.store(true, Ordering::SeqCst);
    until("the lanes are free", || {
        let status = house.say(&["status", "--json"]).json();
        status["running"]["lanes"].as_array().unwrap().iter().all(|lane| lane["held"] == 0)
    });
    until("it has been held for a while", || locked.elapsed() > Duration::from_secs(3));
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE state = 'running'"), 10);
    drop(db);
    for (run_id, job) in runs.iter().zip(&jobs) {
        let run = house.ended(run_id);
        assert_eq!((&run["state"], &run["job"]), (&json!("succeeded"), &json!(job)));
        assert_eq!(run["reply"], format!("answer to {job}"));
    }
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(
        house.rows("SELECT count(*), count(DISTINCT run_id), count(DISTINCT job) FROM v1_runs"),
        [json!([10, 10, 10])]
    );
    let twice = "SELECT run_id, step FROM v1_cleanups GROUP BY 1, 2 HAVING count(*) > 1";
    assert_eq!(house.rows(twice), Vec::<Value>::new());
    assert_eq!(house.rows("SELECT n, state FROM v1_attempts"), vec![json!([1, "succeeded"]); 10]);
    assert_all_ended(&house);
    assert_once(&house);
    assert_sound(&house);
}

#[test]
fn a_clean_up_that_hangs_is_left_behind_and_the_next_slot_comes_in_time() {
    let limits =
        "[scheduler]\ncleanup_timeout = \"1s\"\nshutdown_grace = \"1s\"\n[lanes]\nnarrow = 1\n";
    let house = on_a_bad_disk(scripted(FINE, limits));
    std::fs::write(house.path("disk/stuck"), "").unwrap();
    let job = EVERY_SECOND.replace("* * * * * *", "*/3 * * * * *");
    house.job("ticks", &format!("lane = \"narrow\"\n{job}"));
    let serve = house.serve();
    house.until("SELECT count(*) = 3 FROM v1_runs WHERE finished_at IS NOT NULL");
    let said = serve.stop();
    assert_eq!(said.code, Some(0));
    assert!(said.took < Duration::from_mins(1));
    let ends = "SELECT DISTINCT r.state, r.cleanup_outcome, c.outcome, c.detail
                FROM v1_runs r JOIN v1_cleanups c USING (run_id) WHERE c.step = 'workspace'";
    let left = json!(["succeeded", "timed_out", "timed_out", "cut by the clean-up's budget"]);
    assert_eq!(house.rows(ends), [left]);
    let late = "SELECT DISTINCT decision, late_ms < 1500 FROM v1_slots";
    assert_eq!(house.rows(late), [json!(["started", 1])]);
    let freed = "SELECT DISTINCT outcome FROM v1_cleanups WHERE step IN ('lane', 'session_lock')";
    assert_eq!(house.rows(freed), [json!(["clean"])]);
    let run_id = house.value("SELECT run_id FROM v1_runs");
    let run = house.say(&["show", run_id.as_str().unwrap(), "--json"]).json();
    let leaked = run["cleanup"]["leaked"].to_string();
    assert!(leaked.contains("workspace ") && leaked.contains(run_id.as_str().unwrap()), "{leaked}");

    // The next start tidies what was left.
    std::fs::remove_file(house.path("disk/stuck")).unwrap();
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(std::fs::read_dir(house.path("state/workspaces")).unwrap().count(), 0);
}

#[test]
fn a_run_whose_start_cannot_be_recorded_gives_its_lane_back() {
    let (go, told) = channel();
    let told: Mutex<Receiver<()>> = Mutex::new(told);
    let stub = Stub::new(move |_| {
        let _ = told.lock().unwrap().recv_timeout(support::LONG);
        vec![Act::Say(reply("fine"))]
    });
    let house = asking(&stub, "", "[scheduler]\nsetup_timeout = \"2s\"\n[lanes]\nnarrow = 1\n");
    let job = format!("lane = \"narrow\"\n{PLAIN}");
    house.job("first", &job);
    house.job("second", &job);
    let serve = house.serve();
    let first = house.detach("first");
    let second = house.detach("second");
    until("the model is asked", || stub.requests().len() == 1);
    let lock = house.writable();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    go.send(()).unwrap();
    let held = |holders: &[&str]| {
        let status = house.say(&["status", "--json"]).json();
        let lanes = status["running"]["lanes"].as_array().unwrap().clone();
        lanes.iter().any(|it| it["lane"] == "narrow" && it["holders"] == json!(holders))
    };
    until("the second has the lane", || held(&[&second]));
    until("it has given it back", || held(&[]));
    drop(lock);
    assert_eq!(house.ended(&first)["state"], "succeeded");
    let run = house.ended(&second);
    assert_eq!(
        (&run["state"], &run["error"]),
        (
            &json!("failed"),
            &json!({
                "kind": "setup_timeout", "message": "it was not set up within 2s", "limit": "setup",
                "limit_ms": 2000, "phase": null, "retryable": false,
            })
        )
    );
    assert_eq!(stub.requests().len(), 1);
    assert_eq!(serve.stop().code, Some(0));
}

/// An answer that calls so many tools that there are none of.
fn chatter(calls: usize) -> Vec<Act> {
    let call = |n| {
        let function = json!({"name": format!("none_{n}"), "arguments": "{}"});
        let call = json!({"index": n, "id": format!("call_{n}"), "type": "function", "function": function});
        event(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    };
    let calls: String = (0..calls).map(call).collect();
    vec![Act::Say(head() + &calls + &finish("tool_calls"))]
}

/// A house with a job `chats` that makes so many calls once it is told to, and then ends. Whoever
/// asks to `fail` is refused once that is told, too.
fn chatty(calls: usize, more: &str) -> (House, Stub, [std::sync::mpsc::Sender<()>; 2]) {
    let (go, told) = channel();
    let (fail, failing) = channel();
    let (told, failing): (Mutex<Receiver<()>>, Mutex<Receiver<()>>) =
        (Mutex::new(told), Mutex::new(failing));
    let stub = Stub::answering(move |request| {
        let messages = request["messages"].as_array().unwrap();
        match (messages[1]["content"].as_str(), messages.len()) {
            (Some("chat"), 2) => {
                let _ = told.lock().unwrap().recv_timeout(support::LONG);
                chatter(calls)
            }
            (Some("fail"), _) => {
                let _ = failing.lock().unwrap().recv_timeout(support::LONG);
                vec![Act::Say(refusal("503 Service Unavailable", &json!({"error": "no"})))]
            }
            _ => vec![Act::Say(reply("fine"))],
        }
    });
    let house = on_a_bad_disk(asking(&stub, "", more));
    house.job("chats", &by_hand("chat", "", ""));
    (house, stub, [go, fail])
}

#[test]
fn whoever_asks_while_the_disk_is_full_is_told_so_and_no_call_is_lost() {
    let (house, stub, [go, _]) = chatty(600, "");
    let serve = house.serve();
    let chats = house.detach("chats");
    until("the model is asked", || stub.requests().len() == 1);
    std::fs::write(house.path("disk/full"), "").unwrap();
    go.send(()).unwrap();
    until("the calls are made", || stub.requests().len() == 2);
    let said = house.say(&["pause", "chats"]);
    assert_ne!(said.code, Some(0), "{said:?}");
    assert!(said.stderr.contains("could not be recorded"), "{said:?}");
    std::fs::remove_file(house.path("disk/full")).unwrap();
    let run = house.ended(&chats);
    assert_eq!((&run["state"], &run["tools"]["denied"]), (&json!("succeeded"), &json!(600)));
    assert_eq!(house.value("SELECT count(*) FROM v1_tool_calls"), 600);
    assert_eq!(house.value("SELECT paused_reason FROM v1_jobs"), json!(null));
    assert_eq!(serve.stop().code, Some(0));
    assert_sound(&house);
}

#[test]
fn a_full_queue_of_the_ledger_stops_no_limit() {
    const LIMIT: Duration = Duration::from_secs(12);
    let (house, stub, [go, fail]) = chatty(4500, "[lanes]\nnarrow = 1\n");
    let job = PLAIN.replace("go", "fail");
    let limit = format!("timeout = \"{}s\"", LIMIT.as_secs());
    house.job("fails", &format!("lane = \"narrow\"\n{job}[limits]\n{limit}\n"));
    let serve = house.serve();
    let chats = house.detach("chats");
    let fails = house.detach("fails");
    until("both are asked", || stub.requests().len() == 2);
    let begun = Instant::now();
    let lock = house.writable();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    go.send(()).unwrap();
    // All calls are made: what is to be recorded of the other one finds no room.
    until("the queue is full", || stub.requests().len() == 3);
    fail.send(()).unwrap();
    until("its lane is free", || {
        let status = house.say(&["status", "--json"]).json();
        let lanes = status["running"]["lanes"].as_array().unwrap().clone();
        lanes.iter().any(|lane| lane["lane"] == "narrow" && lane["held"] == 0)
    });
    let took = begun.elapsed();
    assert!(took < LIMIT + 2 * SOON, "{took:?}");
    drop(lock);
    let run = house.ended(&fails);
    assert_eq!((&run["state"], &run["error"]["kind"]), (&json!("timed_out"), &json!("deadline")));
    // What it took is what it took, whenever the ledger heard of it.
    let took = run["duration_ms"].as_u64().unwrap();
    assert!((12_000..14_000).contains(&took), "{took}");
    assert_eq!(house.ended(&chats)["state"], "succeeded");
    assert_eq!(house.value("SELECT count(*) FROM v1_tool_calls"), 4500);
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_delivery_into_a_folder_without_room_has_failed_and_leaves_nothing_half_written() {
    let target = "[targets.ops]\nkind = \"file\"\npath = \"out/{{ job }}.txt\"\n";
    let house = on_a_bad_disk(scripted(FINE, target));
    house.job("j", &format!("{PLAIN}[[deliver]]\nto = \"ops\"\n"));
    std::fs::create_dir(house.path("out")).unwrap();
    house.write("out/j.txt", "the one before\n");
    std::fs::write(house.path("disk/full-out"), "").unwrap();
    let (code, run) = house.run("j");
    assert_eq!((code, &run["deliveries"][0]["state"]), (Some(0), &json!("failed")), "{run:#}");
    let why = run["deliveries"][0]["error"].as_str().unwrap();
    assert!(why.contains("out/j.txt: No space left on device"), "{why}");
    let read = || std::fs::read_to_string(house.path("out/j.txt")).unwrap();
    assert_eq!(read(), "the one before\n");
    assert_eq!(std::fs::read_dir(house.path("out")).unwrap().count(), 1);
    std::fs::remove_file(house.path("disk/full-out")).unwrap();
    assert_eq!(house.run("j").1["deliveries"][0]["state"], "sent");
    assert_eq!(read(), "fine\n");
}
