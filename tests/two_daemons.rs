//! Two daemons on one state folder: the second leaves; and if it is made to stay, no slot runs
//! twice all the same.

#![expect(clippy::disallowed_methods, reason = "these tests time the program from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::ledger::{Grid, assert_all_ended, assert_covers, assert_once, assert_sound};
use support::scripts::{EVERY_SECOND, MANY, by_hand};
use support::{scripted, until};

/// Two runs of a job that is due each second meet.
const MODEL: &str = r#"
[[rule]]
when = { contains = "second" }
step = [{ delay = "1300ms" }, { text = "done" }]
[[rule]]
when = { contains = "sleep", turn = 0 }
step = [{ tool = { name = "exec", arguments = { command = "sleep 60" } } }]
[[rule]]
step = [{ text = "fine" }]
"#;

#[test]
fn a_second_daemon_leaves_whatever_the_folder_is_called() {
    let house = scripted(MANY, "");
    house.job("tick", EVERY_SECOND);
    let first = house.serve();
    std::os::unix::fs::symlink(house.path("state"), house.path("link")).unwrap();
    std::os::unix::fs::symlink(house.path("."), house.path("jobs/home")).unwrap();
    let words = format!("in use by `punctual serve` (pid {})", first.pid());
    for folder in ["state", "link", "jobs/../state", "jobs/home/link/../state"] {
        let start = Instant::now();
        let said = house.say(&["serve", "--state-dir", folder]);
        assert!(start.elapsed() < Duration::from_secs(5), "{said:?}");
        assert_eq!((said.code, said.stdout.as_str()), (Some(3), ""), "{said:?}");
        assert!(said.stderr.contains(&words), "{said:?}");
    }
    // Nobody has to clean up after a power cut.
    first.kill();
    let start = Instant::now();
    let serve = house.serve();
    assert!(start.elapsed() < Duration::from_secs(10));
    house.until("SELECT count(*) >= 2 FROM v1_runs WHERE state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    assert_once(&house);
}

#[test]
fn of_many_that_start_at_once_one_stays() {
    let house = scripted(MANY, "");
    house.job("tick", EVERY_SECOND);
    let mut all: Vec<_> = (0..5).map(|_| house.start(&["serve"])).collect();
    until("all but one have left", || {
        all.iter_mut().filter_map(|it| it.is_running().then_some(())).count() == 1
    });
    let (mut staying, mut left) = (Vec::new(), Vec::new());
    for mut serve in all {
        if serve.is_running() { staying.push(serve) } else { left.push(serve.end()) }
    }
    assert!(left.iter().all(|said| said.code == Some(3)), "{left:?}");
    house.until("SELECT count(*) >= 2 FROM v1_runs WHERE state = 'succeeded'");
    assert_eq!(staying.remove(0).stop().code, Some(0));
    assert_once(&house);
    assert_covers(&house, "tick", Grid::seconds(&house, "tick", 1));
}

#[test]
fn two_that_are_forced_upon_one_folder_run_no_slot_twice() {
    let house = scripted(MODEL, "[scheduler]\nshutdown_grace = \"2s\"\n");
    for job in ["one", "two"] {
        house.job(job, EVERY_SECOND);
    }
    for (job, overlap) in
        [("all", "allow_all"), ("buffers", "buffer_one"), ("replaces", "cancel_other")]
    {
        house.job(
            job,
            &format!(
                "[schedule]\ncron = \"* * * * * *\"\noverlap = \"{overlap}\"\n\
                 [agent]\nprompt = \"second\"\ntools = []\n"
            ),
        );
    }
    house.job("works", &by_hand("sleep", "", ""));
    let first = house.serve();
    let run_id = house.detach("works");
    until("the tool works", || house.living("sleep 60") == 1);

    // Whoever does this has been warned: the lock is the file's, and this is another file.
    std::fs::remove_file(house.path("state/punctual.lock")).unwrap();
    let second = house.serve();
    second.until_stderr("punctual ");
    let owners = "SELECT count(DISTINCT owner_pid) = 2 FROM runs WHERE trigger <> 'manual'";
    house.until(owners);
    let so_far = house.value("SELECT max(due_at) FROM v1_slots");
    house.until(&format!(
        "SELECT count(DISTINCT due_at) >= 5 FROM v1_slots WHERE due_at > '{}'",
        so_far.as_str().unwrap()
    ));
    // What the first does goes on, and nobody has tidied up under it.
    let works = format!("SELECT state, finished_at FROM v1_runs WHERE run_id = '{run_id}'");
    assert_eq!(house.rows(&works), [json!(["running", null])]);
    assert!(house.path(&format!("state/workspaces/{run_id}")).is_dir());
    assert_eq!(house.living("sleep 60"), 1);
    // When the second dies, the first is none the worse; and the other way round.
    second.kill();
    assert_eq!(house.rows(&works), [json!(["running", null])]);
    let second = house.serve();
    assert_eq!(house.rows(&works), [json!(["running", null])]);
    assert_eq!(first.stop().code, Some(0));
    assert_eq!(house.rows(&works)[0][0], "interrupted");
    assert_eq!(second.stop().code, Some(0));

    assert_once(&house);
    assert_all_ended(&house);
    assert_sound(&house);
    for job in ["one", "two", "all", "buffers", "replaces"] {
        assert_covers(&house, job, Grid::seconds(&house, job, 1));
    }
    let requests = "SELECT run_id, count(*) FROM v1_attempts GROUP BY 1 HAVING count(*) > 1";
    assert_eq!(house.rows(requests), Vec::<Value>::new());
    house.assert_nothing_is_left();
}
