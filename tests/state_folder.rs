//! Who may use a state folder, and how those who meet there get along.

#![expect(clippy::disallowed_methods, reason = "these tests time the program from outside")]

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use support::ledger::{assert_all_ended, assert_no_gap, assert_sound};
use support::scripts::{EVERY_SECOND, FINE, MANY, by_hand};
use support::{House, scripted, until};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_second_serve_on_the_same_folder_is_refused() {
    let house = scripted(FINE, "");
    let serve = house.serve();
    std::os::unix::fs::symlink(house.path("state"), house.path("link")).unwrap();
    let started = Instant::now();
    for arguments in [&["serve"][..], &["serve", "--state-dir", "link"]] {
        let said = house.say(arguments);
        assert_eq!(said.code, Some(3), "{said:?}");
        let words = format!("in use by `punctual serve` (pid {})", serve.pid());
        assert!(said.stderr.contains(&words), "{said:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(house.serve().stop().code, Some(0));
}

#[test]
fn a_run_goes_through_the_serve_that_is_there() {
    let house = scripted(FINE, "");
    house.job("j", &by_hand("go", "", ""));
    let serve = house.serve();
    let (code, run) = house.run("j");
    assert_eq!((code, &run["state"]), (Some(0), &json!("succeeded")));
    assert_eq!(house.value("SELECT owner_pid FROM runs"), serve.pid());
    let said = house.say(&["run", "j"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "fine\n"));
    assert!(said.stderr.contains("started by manual with local/m"), "{said:?}");
    assert_eq!(serve.stop().code, Some(0));
    // And never moves the schedule.
    assert_eq!(house.value("SELECT count(*) FROM v1_slots"), 0);
}

#[test]
fn a_client_that_goes_away_ends_nothing() {
    let house = scripted(MANY, "");
    house.job("brief", &by_hand("brief", "", ""));
    let serve = house.serve();
    let client = house.start(&["run", "brief"]);
    house.until("SELECT count(*) FROM v1_attempts");
    client.kill();
    house.until("SELECT state = 'succeeded' FROM v1_runs");
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_run_without_a_serve_is_one_for_a_while() {
    let house = scripted(MANY, "");
    house.job("hangs", &by_hand("hang", "", "timeout = \"0s\""));
    house.job("other", &by_hand("go", "", ""));
    house.job("tick", EVERY_SECOND);
    assert_eq!(house.say(&["run", "other", "--detach"]).code, Some(3));
    let first = house.start(&["run", "hangs", "--json"]);
    house.until("SELECT count(*) FROM v1_attempts WHERE state = 'running'");
    let status = house.say(&["status", "--json"]).json();
    assert_eq!(status["running"]["pid"], first.pid());
    assert_eq!(status["running"]["runs"][0]["job"], "hangs");
    let (code, _) = house.run("other");
    assert_eq!(code, Some(0));
    assert_eq!(house.value("SELECT count(DISTINCT owner_pid) FROM runs"), 1);

    let serve = house.start(&["serve"]);
    serve.until_stderr(&format!("standing by until `punctual run` (pid {})", first.pid()));
    // What is due meanwhile is not started by the run.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE job = 'tick'"), 0);
    let said = house.say(&["cancel", "hangs"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = first.end();
    assert_eq!((said.code, &said.json()["state"]), (Some(130), &json!("cancelled")));
    house.until("SELECT count(*) >= 1 FROM v1_runs WHERE job = 'tick' AND state = 'succeeded'");
    assert_eq!(house.say(&["status", "--json"]).json()["running"]["pid"], serve.pid());
    assert_eq!(serve.stop().code, Some(0));
    assert_no_gap(&house, "tick");
    house.assert_nothing_is_left();
}

#[test]
fn runs_that_start_at_the_same_moment_all_find_a_home() {
    let house = scripted(MANY, "");
    let jobs = ["a", "b", "c", "d"];
    for job in jobs {
        house.job(job, &by_hand("brief", "", ""));
    }
    for _ in 0..3 {
        let started: Vec<_> = jobs.iter().map(|job| house.start(&["run", job])).collect();
        for run in started {
            let said = run.end();
            assert_eq!(said.code, Some(0), "{said:?}");
        }
    }
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE state = 'succeeded'"), 12);
}

#[test]
fn a_run_that_comes_when_another_is_just_leaving_runs_all_the_same() {
    let house = scripted(FINE, "");
    house.job("a", &by_hand("go", "", ""));
    house.job("b", &by_hand("go", "", ""));
    for round in 0..12 {
        let first = house.start(&["run", "a"]);
        std::thread::sleep(Duration::from_millis(8 * round));
        let second = house.start(&["run", "b"]);
        for run in [first, second] {
            let said = run.end();
            assert_eq!(said.code, Some(0), "{said:?}");
        }
    }
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE state = 'succeeded'"), 24);
}

#[test]
fn a_deep_state_folder_works_too() {
    let house = scripted(MANY, "");
    let deep = format!("{}/{}", "d".repeat(120), "e".repeat(120));
    std::fs::create_dir_all(house.path(&deep)).unwrap();
    house.job("hangs", &by_hand("hang", "", "timeout = \"0s\""));
    let with = |arguments: &[&str]| [arguments, &["--state-dir", &deep]].concat().join("\n");
    let say = |arguments: &[&str]| house.say(&with(arguments).split('\n').collect::<Vec<_>>());
    let mut serve = house.start(&with(&["serve"]).split('\n').collect::<Vec<_>>());
    until("serve answers", || {
        assert!(serve.is_running(), "{}", serve.stderr());
        !say(&["status", "--json"]).json()["running"].is_null()
    });
    let said = say(&["run", "hangs", "--detach"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    until("it runs", || say(&["runs", "--json"]).json()[0]["attempts"][0]["state"] == "running");
    assert_eq!(say(&["cancel", "hangs"]).code, Some(0));
    until("it ends", || say(&["runs", "--json"]).json()[0]["state"] == "cancelled");
    assert_eq!(say(&["serve"]).code, Some(3));
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn noise_on_the_socket_and_a_hangup_end_nothing() {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    let house = scripted(FINE, "");
    house.job("j", &by_hand("go", "", ""));
    let mut serve = house.serve();
    let connect = || UnixStream::connect(house.path("state/punctual.sock")).unwrap();
    let silent: Vec<_> = (0..50).map(|_| connect()).collect();
    let long = vec![b'x'; 200_000];
    for noise in [&b"\n"[..], b"{}\n", b"{\"verb\":\"dance\"}\n", b"\xff\xfe\n", &long] {
        let mut socket = connect();
        socket.set_read_timeout(Some(support::LONG)).unwrap();
        // It may hang up before it has heard all of it.
        drop(socket.write_all(noise));
        let mut answer = Vec::new();
        drop(socket.read_to_end(&mut answer));
    }
    serve.signal(Signal::SIGHUP);
    serve.until_stderr("files read again");
    assert_eq!(house.run("j").0, Some(0));
    drop(silent);
    assert!(serve.is_running());
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn a_newer_database_is_left_alone() {
    let house = scripted(FINE, "");
    house.job("j", &by_hand("go", "", ""));
    assert_eq!(house.run("j").0, Some(0));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let db = Connection::open_with_flags(house.path("state/punctual.db"), flags).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    for arguments in [&["serve"][..], &["run", "j"], &["runs"], &["query", "SELECT 1"]] {
        let said = house.say(arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
        let words = [" 99", env!("CARGO_PKG_VERSION")];
        assert!(words.iter().all(|word| said.stderr.contains(word)), "{said:?}");
    }
}

/// A house whose job has run a few times; a power cut has left the newest rows in the log.
fn with_a_history() -> House {
    let house = scripted(FINE, "");
    house.job("j", &by_hand("go", "", ""));
    assert_eq!(house.run("j").0, Some(0));
    let serve = house.serve();
    for _ in 0..3 {
        assert_eq!(house.run("j").0, Some(0));
    }
    serve.kill();
    assert!(std::fs::metadata(house.path("state/punctual.db-wal")).unwrap().len() > 0);
    house
}

const RUNS: &str = "SELECT run_id FROM v1_runs ORDER BY queued_at";

/// Whoever wants something of the database is refused, with its name.
#[track_caller]
fn assert_refused(house: &House, what: &str) {
    for arguments in [&["serve"][..], &["run", "j"], &["runs"], &["query", "SELECT 1"]] {
        let said = house.say(arguments);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{what}: {said:?}");
        assert!(said.stderr.contains("state/punctual.db"), "{what}: {said:?}");
    }
}

#[test]
fn a_damaged_database_is_refused_by_name_and_left_as_it_is() {
    let house = with_a_history();
    // Here all of it is in the file.
    let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
    house.writable().query_row(fold, [], |_| Ok(())).unwrap();
    let runs = house.rows(RUNS);
    assert_eq!(runs.len(), 4);
    let path = house.path("state/punctual.db");
    let whole = std::fs::read(&path).unwrap();
    assert!(whole.len() > 8192);
    let rubbish = b"not what it was ".repeat(1000);
    let no_header = [&rubbish[..100], &whole[100..]].concat();
    let table: [(&str, &[u8]); 5] = [
        ("half a header", &whole[..50]),
        ("the first page only", &whole[..4096]),
        ("half of it", &whole[..whole.len() / 2]),
        ("another header", &no_header),
        ("nothing", b""),
    ];
    for (what, bytes) in table {
        std::fs::write(&path, bytes).unwrap();
        assert_refused(&house, what);
        assert!(std::fs::read(&path).unwrap() == bytes, "{what}");
    }
    let said = house.say(&["serve"]);
    assert!(said.stderr.contains("put a copy of it back, or remove"), "{said:?}");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("mine"), "mine").unwrap();
    assert_refused(&house, "a folder");
    assert_eq!(std::fs::read_to_string(path.join("mine")).unwrap(), "mine");
    std::fs::remove_dir_all(&path).unwrap();
    // A copy that is put back is the history again.
    std::fs::write(&path, &whole).unwrap();
    if !geteuid().is_root() {
        std::fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
        assert_refused(&house, "closed to us");
        assert_eq!(mode(&path), 0);
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(std::fs::read(&path).unwrap() == whole);
    }
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(house.rows(RUNS), runs);
    assert_sound(&house);
}

#[test]
fn the_log_of_a_database_that_is_lost_is_kept_for_it() {
    let house = with_a_history();
    let (path, log) = (house.path("state/punctual.db"), house.path("state/punctual.db-wal"));
    let (bytes, logged) = (std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap());
    for bytes in [&b""[..], &bytes[..50]] {
        std::fs::write(&path, bytes).unwrap();
        assert_refused(&house, "hardly anything");
        assert!(std::fs::read(&path).unwrap() == bytes);
    }
    std::fs::remove_file(&path).unwrap();
    for arguments in [["serve", "--state-dir", "state"], ["run", "j", "--json"]] {
        let said = house.say(&arguments);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.stderr.contains("state/punctual.db"), "{said:?}");
        assert!(!path.exists());
    }
    assert!(std::fs::read(&log).unwrap() == logged);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(house.serve().stop().code, Some(0));
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE state = 'succeeded'"), 4);
    assert_sound(&house);
}

#[test]
fn a_log_that_is_cut_costs_its_last_rows_and_nothing_else() {
    let house = with_a_history();
    let (path, log) = (house.path("state/punctual.db"), house.path("state/punctual.db-wal"));
    let (bytes, logged) = (std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap());
    assert_eq!(house.serve().stop().code, Some(0));
    let runs = house.rows(RUNS);
    assert_eq!(runs.len(), 4);
    let mut kept = Vec::new();
    for length in [10, logged.len() / 2, logged.len() - 10] {
        std::fs::write(&path, &bytes).unwrap();
        std::fs::write(&log, &logged[..length]).unwrap();
        assert_eq!(house.serve().stop().code, Some(0));
        let left = house.rows(RUNS);
        assert_eq!(left, runs[..left.len()], "{length} bytes");
        kept.push(left.len());
        assert_all_ended(&house);
        assert_sound(&house);
    }
    assert!(kept.is_sorted() && kept[2] == 4, "{kept:?}");
}

#[test]
fn a_first_start_that_died_leaves_nothing_in_the_way_of_the_next_one() {
    let house = scripted(FINE, "");
    house.job("j", &by_hand("go", "", ""));
    for name in ["punctual.db.new", "punctual.db.new-wal", "punctual.db.new-journal"] {
        std::fs::create_dir_all(house.path("state")).unwrap();
        std::fs::write(house.path("state").join(name), "half of what was to be").unwrap();
    }
    assert!(house.say(&["query", "SELECT 1"]).stderr.contains("nothing has run"));
    assert_eq!(house.run("j").0, Some(0));
    assert_eq!(house.value("SELECT count(*) FROM v1_runs"), 1);
    assert_eq!(mode(&house.path("state/punctual.db")), 0o600);
    assert_sound(&house);
    let names = std::fs::read_dir(house.path("state")).unwrap().map(|it| it.unwrap().file_name());
    let left: Vec<_> = names.filter(|it| it.to_string_lossy().contains("new")).collect();
    assert_eq!(left, Vec::<std::ffi::OsString>::new());
}

#[test]
fn admins_read_the_database_while_it_is_served() {
    let house = scripted(FINE, "");
    house.job("tick", EVERY_SECOND);
    let serve = house.serve();
    let db = {
        house.until("SELECT count(*) >= 1 FROM v1_runs WHERE state = 'succeeded'");
        house.database()
    };
    for view in ["v1_jobs", "v1_definitions", "v1_slots", "v1_runs", "v1_attempts", "v1_cleanups"] {
        let rows = support::rows(&db, &format!("SELECT * FROM {view}"));
        assert!(!rows.is_empty(), "{view}");
    }
    assert_eq!(support::rows(&db, "PRAGMA journal_mode"), [json!(["wal"])]);
    // One connection sees what comes, and a long read holds nothing up.
    let reading = db.unchecked_transaction().unwrap();
    let count = "SELECT count(*) FROM v1_runs";
    let before = support::rows(&reading, count);
    house.until(&format!("SELECT count(*) >= 2 + {} FROM v1_runs", before[0][0]));
    assert_eq!(support::rows(&reading, count), before);
    drop(reading);
    assert_ne!(support::rows(&db, count), before);
    let said = house.say(&["query", "SELECT count(*) AS n FROM v1_runs", "--format", "json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.json()[0]["n"].as_u64().unwrap() >= 3, "{said:?}");
    let said = house.say(&["query", "DELETE FROM runs"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert_eq!(serve.stop().code, Some(0));
}

#[test]
fn only_the_owner_may_look_into_the_state_folder() {
    let house = scripted(MANY, "");
    house.job("sleeps", &by_hand("sleep", "", ""));
    let serve = house.serve();
    house.detach("sleeps");
    until("the tool works", || house.living("sleep 60") == 1);
    let state = house.path("state");
    let workspace = std::fs::read_dir(state.join("workspaces")).unwrap().next().unwrap().unwrap();
    for folder in
        [state.clone(), state.join("sessions"), state.join("workspaces"), workspace.path()]
    {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
    let files = support::files_below(&state);
    let names: Vec<_> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    for name in ["punctual.db", "punctual.db-wal", "punctual.lock", "punctual.sock"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    let is_transcript =
        |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "jsonl");
    assert!(files.iter().any(is_transcript), "{names:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    assert_eq!(house.say(&["cancel", "sleeps"]).code, Some(0));
    house.until("SELECT state = 'cancelled' FROM v1_runs");
    house.assert_nothing_is_left();
    assert_eq!(serve.stop().code, Some(0));
}
