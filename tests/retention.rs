//! What is old goes, all of it and nothing else: rows and files in step, whenever the process dies.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use punctual::config::Retention;
use punctual::daemon::{Pruned, prune};
use punctual::store::{QueryLimits, Store, database_in};
use serde_json::{Value, json};
use support::past::{Past, days, minutes, owner};
use support::scripts::FINE;
use support::{House, rows};

fn now() -> Timestamp {
    "2026-11-30T09:00:00Z".parse().unwrap()
}

/// The first column of every row.
fn column(dir: &Path, sql: &str) -> BTreeSet<String> {
    let text = |row: Value| row[0].as_str().unwrap().to_owned();
    rows(&support::open(&database_in(dir)), sql).into_iter().map(text).collect()
}

/// The sessions that have a file, by their names.
fn transcripts(dir: &Path) -> BTreeSet<String> {
    files_in(dir, "sessions")
}

fn files_in(dir: &Path, folder: &str) -> BTreeSet<String> {
    let stem = |path: std::path::PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    support::files_below(&dir.join(folder)).into_iter().map(stem).collect()
}

fn write_files_of(dir: &Path, run_id: &str) {
    fs::write(dir.join(format!("sessions/{run_id}.jsonl")), "{}\n").unwrap();
    fs::create_dir_all(dir.join("traces")).unwrap();
    fs::write(dir.join(format!("traces/{run_id}.jsonl")), "{}\n").unwrap();
    let workspace = dir.join("workspaces").join(run_id);
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("left"), "over").unwrap();
}

async fn pass(dir: &Path, kept: Retention) -> Pruned {
    let store = Store::open(dir, owner()).unwrap();
    prune(&store, dir, kept, now()).await.unwrap()
}

const ALL: Retention = Retention { runs: None, days: None };

/// B119 of the catalogue: ten thousand rows over 400 days; 30 days and 100 runs a job are kept, by
/// a daemon in a zone far from UTC. The file gets smaller with them.
#[test]
fn ten_thousand_rows_of_400_days_are_pruned_to_the_row() {
    let house = House::new(
        "timezone = \"Pacific/Auckland\"\n[retention]\nruns = 100\ndays = 30\n\
         [agents.defaults]\nmodel = \"local/m\"\n\
         [models.providers.local]\napi = \"script\"\nscript = \"model.toml\"\n",
    )
    .with_env("TZ", "Pacific/Auckland");
    house.write("model.toml", FINE);
    #[expect(clippy::disallowed_methods, reason = "the program has the same clock")]
    let past = Past::new(&house.path("state"), Timestamp::now());
    past.together(|| {
        for (job, count, every) in [("often", 9850, 57), ("rarely", 150, 3836)] {
            past.job(job, &json!({}), &Value::Null);
            for n in 0..count {
                let (ago, run_id) = (minutes(every * n + 1), format!("{job}-{n:05}"));
                past.run(&run_id, job, ago, &json!({"reply": "x".repeat(500)}));
                past.slot(job, ago, Some(&run_id), &Value::Null);
            }
        }
    });
    drop(past);
    let bytes = || house.path("state/punctual.db").metadata().unwrap().len();
    let before = bytes();
    let serve = house.serve();
    serve.until_stderr("pruned the history");
    assert_eq!(serve.stop().code, Some(0));
    let kept = house.rows(
        "SELECT job, count(*), (SELECT count(*) FROM v1_slots s WHERE s.job = r.job), min(run_id),
                max(run_id), min(finished_at) >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-30 days')
         FROM v1_runs r GROUP BY job ORDER BY job",
    );
    // 30 days are 43,200 minutes: 758 times 57, 12 times 3,836. Slots are kept for their time, also
    // those whose runs are beyond the 100.
    let often = json!(["often", 100, 758, "often-00000", "often-00099", 1]);
    let rarely = json!(["rarely", 12, 12, "rarely-00000", "rarely-00011", 1]);
    assert_eq!(kept, [often, rarely]);
    support::ledger::assert_sound(&house);
    assert!(bytes() < before / 2, "{} of {before}", bytes());
}

/// B113 of the catalogue: of each job the five newest runs stay, however they ended and whatever has
/// become of the job, with their files and no others; what runs is never removed.
#[tokio::test]
async fn rows_and_files_agree_whatever_has_become_of_a_run_or_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let past = Past::new(dir, now());
    let removed = json!({"removed_at": past.ago(days(1))});
    let disabled = json!({"enabled": 0});
    let five = json!({"retention": {"runs": 5}});
    past.job("plain", &five, &Value::Null);
    past.job("disabled", &five, &disabled);
    past.job("deleted", &five, &removed);
    past.job("unlimited", &json!({}), &Value::Null);
    let states = ["succeeded", "failed", "timed_out", "cancelled", "interrupted"];
    for job in ["plain", "disabled", "deleted", "unlimited"] {
        for n in 0..20_i64 {
            let run_id = format!("{job}-{n:02}");
            let state = states[usize::try_from(n).unwrap() % states.len()];
            let mut more = json!({"state": state});
            if n % 3 == 0 {
                more["trigger"] = "manual".into();
                more["due_at"] = Value::Null;
            }
            past.run(&run_id, job, minutes(n), &more);
            if n % 3 != 0 {
                past.slot(job, minutes(n), Some(&run_id), &Value::Null);
            }
            past.row(
                "cleanups",
                &json!({"run_id": run_id, "n": 1, "step": "lane",
                "outcome": "clean", "started_at": past.ago(minutes(n)), "duration_ms": 1}),
            );
            write_files_of(dir, &run_id);
        }
    }
    let running = json!({"state": "running", "finished_at": null, "settled": 0});
    past.run("plain-runs", "plain", minutes(50), &running);
    write_files_of(dir, "plain-runs");

    let pruned = pass(dir, ALL).await;
    assert_eq!(pruned, Pruned { runs: 45, slots: 0, definitions: 0, sessions: 0 });
    let mut expected: BTreeSet<String> = ["plain", "disabled", "deleted"]
        .iter()
        .flat_map(|job| (0..5).map(move |n| format!("{job}-{n:02}")))
        .chain((0..20).map(|n| format!("unlimited-{n:02}")))
        .collect();
    expected.insert("plain-runs".into());
    assert_eq!(column(dir, "SELECT run_id FROM v1_runs"), expected);
    assert_eq!(transcripts(dir), expected);
    let workspaces = fs::read_dir(dir.join("workspaces")).unwrap();
    let workspaces = workspaces.map(|it| it.unwrap().file_name().into_string().unwrap());
    assert_eq!(workspaces.collect::<BTreeSet<_>>(), expected);
    assert_eq!(files_in(dir, "traces"), expected);
    expected.remove("plain-runs");
    assert_eq!(column(dir, "SELECT run_id FROM v1_cleanups"), expected);
    assert_eq!(pass(dir, ALL).await, Pruned::default());
}

/// Whatever still has consequences is there, however old it is.
#[tokio::test]
async fn what_is_not_over_stays() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let past = Past::new(dir, now());
    past.job("job", &json!({}), &Value::Null);
    let old = |hours: i64| days(400) - SignedDuration::from_hours(hours);
    let of_slot = |ago| json!({"due_at": past.ago(ago), "state": "failed"});
    past.run("attempt-1", "job", old(1), &of_slot(old(1)));
    let mut second = of_slot(old(1));
    second["attempt"] = 2.into();
    second["settled"] = 0.into();
    past.run("attempt-2", "job", old(2), &second);
    let queued = json!({"state": "queued", "started_at": null, "finished_at": null, "settled": 0});
    past.run("queued", "job", old(3), &queued);
    past.run("ended-late", "job", old(4), &json!({"finished_at": past.ago(days(2))}));
    past.run("over", "job", old(5), &Value::Null);
    past.slot("job", old(1), Some("attempt-1"), &Value::Null);
    past.slot("job", old(5), Some("over"), &Value::Null);
    let range = json!({"due_until": past.ago(days(3)), "slots": 9, "decision": "missed"});
    past.slot("job", old(6), None, &range);
    past.slot("job", old(7), None, &json!({"decision": "buffered"}));
    let waits = json!({"decision": "held", "reason": "model_unreachable"});
    past.slot("job", old(8), None, &waits);
    past.slot("job", old(9), None, &json!({"decision": "skipped", "reason": "overlap"}));
    past.slot("job", days(10), None, &json!({"decision": "skipped", "reason": "overlap"}));
    // Nothing of this one has happened for a year; where it stands is known all the same.
    past.job("done", &json!({}), &json!({"schedule": "at 2025-11-01T09:00"}));
    past.slot("done", days(390), None, &json!({"decision": "missed", "reason": "too_late"}));

    let kept = Retention { days: Some(30), ..ALL };
    assert_eq!(pass(dir, kept).await, Pruned { runs: 1, slots: 2, definitions: 0, sessions: 0 });
    let runs = ["attempt-1", "attempt-2", "queued", "ended-late"].map(String::from);
    assert_eq!(column(dir, "SELECT run_id FROM v1_runs"), BTreeSet::from(runs));
    let slots = [old(1), old(6), old(7), old(8), days(10), days(390)].map(|ago| past.ago(ago));
    assert_eq!(column(dir, "SELECT due_at FROM v1_slots"), BTreeSet::from(slots));
    let state = column(dir, "SELECT state FROM v1_jobs WHERE job = 'done'");
    assert_eq!(state, BTreeSet::from(["done".to_owned()]));
}

/// Between the rows and their files the process may die, or the disk refuse.
#[tokio::test]
async fn a_pass_that_was_cut_is_finished_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let past = Past::new(dir, now());
    past.job("job", &json!({}), &Value::Null);
    for n in 0..1000 {
        let run_id = format!("run-{n:04}");
        past.together(|| past.run(&run_id, "job", minutes(n), &Value::Null));
        fs::write(dir.join(format!("sessions/{run_id}.jsonl")), "{}\n").unwrap();
    }
    let kept = Retention { runs: Some(10), days: None };
    // Rows go, and then nothing more happens.
    let store = Store::open(dir, owner()).unwrap();
    let overdue = store.reader().unwrap().overdue(kept, now()).unwrap();
    let begun = store.prune_runs(&overdue[0]).await.unwrap().len();
    assert!((1..990).contains(&begun), "{begun}");
    drop(store);
    // One of their files is gone too, the others are not.
    fs::remove_file(dir.join("sessions/run-0999.jsonl")).unwrap();
    assert_eq!(transcripts(dir).len(), 999);

    let pruned = pass(dir, kept).await;
    assert_eq!(pruned.runs, 990 - begun);
    assert_eq!(column(dir, "SELECT run_id FROM v1_runs"), transcripts(dir));
    assert_eq!(transcripts(dir).len(), 10);
    assert_eq!(column(dir, "SELECT run_id FROM pruned"), BTreeSet::new());
}

/// A version of a job is kept for as long as a run of it is, or it is the job's own.
#[tokio::test]
async fn definitions_go_with_their_last_run() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let past = Past::new(dir, now());
    past.job("job", &json!({"retention": {"days": 30}}), &Value::Null);
    for hash in ["gone", "used", "never"] {
        past.definition(hash, "job", &json!({}));
    }
    past.run("old", "job", days(40), &json!({"definition_hash": "gone"}));
    past.run("older", "job", days(50), &json!({"definition_hash": "used"}));
    past.run("new", "job", days(20), &json!({"definition_hash": "used"}));
    assert_eq!(pass(dir, ALL).await, Pruned { runs: 2, slots: 0, definitions: 2, sessions: 0 });
    let left = column(dir, "SELECT definition_hash FROM v1_definitions");
    assert_eq!(left, BTreeSet::from(["hash-job", "used"].map(String::from)));
    let broken = rows(&support::open(&database_in(dir)), "PRAGMA foreign_key_check");
    assert_eq!(broken, Vec::<Value>::new());
}

/// Results are written between the steps of a pass, so each of them is small.
#[tokio::test]
async fn a_pass_deletes_in_small_steps() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let past = Past::new(dir, now());
    past.job("job", &json!({}), &Value::Null);
    past.together(|| {
        for n in 0..5000 {
            past.run(&format!("run-{n:05}"), "job", minutes(n), &Value::Null);
        }
    });
    let store = Store::open(dir, owner()).unwrap();
    let overdue = store.reader().unwrap().overdue(Retention { runs: Some(1), ..ALL }, now());
    let overdue = overdue.unwrap();
    let mut steps = 0;
    while !store.prune_runs(&overdue[0]).await.unwrap().is_empty() {
        steps += 1;
    }
    assert_eq!(steps, 4999_usize.div_ceil(200));
    let left = store.reader().unwrap().query("SELECT run_id FROM v1_runs", QueryLimits::default());
    assert_eq!(left.unwrap().rows, [[json!("run-00000")]]);
}

/// A database that was made before it could be shrunk learns it when it is opened.
#[test]
fn an_old_database_learns_to_shrink() {
    let dir = tempfile::tempdir().unwrap();
    let path = database_in(dir.path());
    let flags =
        rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE | rusqlite::OpenFlags::SQLITE_OPEN_CREATE;
    let old = rusqlite::Connection::open_with_flags(&path, flags).unwrap();
    old.execute_batch(include_str!("cases/schema_1.sql")).unwrap();
    drop(old);
    let kind = || rows(&support::open(&path), "PRAGMA auto_vacuum");
    assert_eq!(kind(), [json!([0])]);
    drop(Store::open(dir.path(), owner()).unwrap());
    assert_eq!(kind(), [json!([2])]);
}
