//! A history of a million runs: pages, questions, and what is old going.
//!
//! `cargo bench --bench history`. Seeding takes a minute or two and a gigabyte of the temporary
//! folder.

#![expect(clippy::disallowed_methods, reason = "a benchmark takes the time")]

#[expect(dead_code, reason = "the benchmarks of the whole program use the rest")]
mod support;

#[path = "../tests/support/questions.rs"]
mod questions;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual::clock::rfc3339;
use punctual::config::Retention;
use punctual::daemon::prune;
use punctual::run::State;
use punctual::store::{
    Owner, QueryLimits, Reader, RunFilter, SlotFilter, Store, database_in, export,
};
use rusqlite::{Connection, OpenFlags};
use support::report;

const RUNS: i64 = 1_000_000;
const JOBS: i64 = 1_000;

/// A run a minute, so that a day has 1,440 and all of them are 694 days.
const SEED: &str = "
    INSERT INTO definitions (definition_hash, job, first_seen_at, last_seen_at, effective)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :jobs - 1)
    SELECT 'hash-' || i, printf('job-%04d', i), :first, :first, '{}' FROM n;
    INSERT INTO jobs (job, file, schedule, timezone, first_seen_at, decided_until, definition_hash)
    SELECT job, 'jobs/' || job || '.toml', iif(rowid % 10 = 0, NULL, '@hourly'), 'UTC', :first,
           :first, definition_hash FROM definitions;
    CREATE TEMP TABLE seed AS
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :runs - 1)
    SELECT i, printf('01%024d', i) AS id, printf('job-%04d', i % :jobs) AS job,
           strftime('%Y-%m-%dT%H:%M:%fZ', :first, '+' || i || ' minutes') AS at,
           CASE i % 97 WHEN 0 THEN 'failed' WHEN 1 THEN 'timed_out' ELSE 'succeeded' END AS state
    FROM n;
    INSERT INTO runs (run_id, job, trigger, due_at, attempt, state, error_kind, limit_name,
                      limit_ms, phase, model, queued_at, started_at, start_at, finished_at,
                      duration_ms, late_ms, input_tokens, output_tokens, usd, tool_calls,
                      denied_calls, reply, session_id, cleanup_outcome, host, version,
                      definition_hash, owner_boot_id, owner_pid, owner_started)
    SELECT id, job, 'schedule', at, 1, state,
           CASE state WHEN 'failed' THEN 'network' WHEN 'timed_out' THEN 'deadline' END,
           CASE state WHEN 'timed_out' THEN 'deadline' END,
           CASE state WHEN 'timed_out' THEN 60000 END,
           CASE state WHEN 'timed_out' THEN 'tool' END, 'cloud/m', at, at, at, at,
           1000 + i * 7919 % 60000, i * 31 % 500, 700, 50, 0.001, 2, i % 211 = 0,
           'Nothing is over the limit; 5 file systems are below it.', id,
           iif(i % 89 = 0, 'forced', 'clean'), 'host', '0.1.0', 'hash-' || (i % :jobs), 'boot', 1, 2
    FROM seed;
    INSERT INTO slots (job, due_at, due_until, slots, decision, run_id, decided_at, late_ms)
    SELECT job, at, at, 1, 'started', id, at, 5 FROM seed;
    INSERT INTO slots (job, due_at, due_until, slots, decision, reason, decided_at, late_ms)
    SELECT job, substr(at, 1, 17) || '30.000Z', substr(at, 1, 17) || '30.000Z', 1, 'missed',
           'down', at, 5 FROM seed WHERE i % 50 = 0;
    INSERT INTO attempts (run_id, n, model, state, error_kind, started_at, duration_ms, idle_rule)
    SELECT id, 1, 'cloud/m', state, iif(state = 'succeeded', NULL, 'network'), at, 900, 'default'
    FROM seed;
    INSERT INTO cleanups (run_id, n, step, outcome, started_at, duration_ms, detail)
    SELECT id, 1, 'processes', iif(i % 89 = 0, 'forced', 'clean'), at, 3, NULL FROM seed;
    INSERT INTO tool_calls (run_id, n, tool, outcome, started_at, duration_ms, output_bytes)
    SELECT id, 1, 'exec', iif(i % 211 = 0, 'denied', 'ok'), at, 3, 100 FROM seed WHERE i % 10 < 2;
    INSERT INTO checks (run_id, n, name, passed)
    SELECT id, 1, 'report exists', i % 97 <> 0 FROM seed WHERE i % 10 < 2;
    DROP TABLE seed;
";

fn owner() -> Owner {
    Owner { boot_id: "boot".into(), pid: 1, started: 2, host: "host".into() }
}

fn seed(dir: &Path, first: Timestamp) {
    drop(Store::open(dir, owner()).expect("a database can be made"));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let db = Connection::open_with_flags(database_in(dir), flags).expect("it is there");
    // The rows of tool calls would write a million audit rows, which no history keeps.
    db.execute_batch(
        "PRAGMA synchronous = OFF; PRAGMA cache_size = -400000; DROP TRIGGER audit_tool_end;",
    )
    .expect("it can be written");
    let values = [(":jobs", JOBS.to_string()), (":runs", RUNS.to_string())];
    let first = format!("'{}'", rfc3339(first));
    let sql = values
        .iter()
        .fold(SEED.replace(":first", &first), |sql, (name, value)| sql.replace(name, value));
    db.execute_batch(&format!("BEGIN; {sql} COMMIT; PRAGMA wal_checkpoint(TRUNCATE)"))
        .expect("the rows are valid");
}

/// Milliseconds of each of `count` calls.
fn timed(count: usize, mut work: impl FnMut(usize)) -> Vec<f64> {
    let time = |n| {
        let start = Instant::now();
        work(n);
        start.elapsed().as_secs_f64() * 1000.0
    };
    (0..count).map(time).collect()
}

fn pages(reader: &Reader, now: Timestamp) {
    let job = |n: usize| Some(format!("job-{:04}", n * 7919 % 1000));
    let page = RunFilter { limit: 50, ..RunFilter::default() };
    let runs = |filter: &RunFilter| reader.runs(filter).expect("it is sound").len();
    let day = Some(now - SignedDuration::from_hours(24));
    report(
        "`runs --job`, ms",
        timed(1000, |n| {
            assert_eq!(runs(&RunFilter { job: job(n), ..page.clone() }), 50);
        }),
    );
    report("`runs`, ms", timed(1000, |_| assert_eq!(runs(&page), 50)));
    report(
        "`runs --since 24h`, ms",
        timed(1000, |_| {
            assert_eq!(runs(&RunFilter { since: day, ..page.clone() }), 50);
        }),
    );
    report(
        "`runs --state failed`, ms",
        timed(1000, |_| {
            assert_eq!(runs(&RunFilter { state: Some(State::Failed), ..page.clone() }), 50);
        }),
    );
    report(
        "`runs --job --state failed`, ms",
        timed(200, |n| {
            runs(&RunFilter { job: job(n), state: Some(State::Failed), ..page.clone() });
        }),
    );
    let slots = |filter: &SlotFilter| reader.slots(filter).expect("it is sound").len();
    report(
        "`slots --job`, ms",
        timed(1000, |n| {
            assert_eq!(slots(&SlotFilter { job: job(n), since: None, limit: 50 }), 50);
        }),
    );
    report(
        "`slots --since 24h`, ms",
        timed(1000, |_| {
            assert_eq!(slots(&SlotFilter { job: None, since: day, limit: 50 }), 50);
        }),
    );
    report(
        "v1_jobs of 1,000 jobs (`ls`), ms",
        timed(50, |_| {
            assert_eq!(reader.jobs().expect("it is sound").len(), 1000);
        }),
    );
}

fn answers(reader: &mut Reader) {
    for (question, sql) in questions::questions() {
        let times = timed(10, |_| {
            reader.query(&sql, QueryLimits::default()).expect("the README is right");
        });
        report(&format!("{question} ms"), times);
    }
}

/// The oldest tenth goes, and what else is written meanwhile waits as long as it says.
async fn retention(dir: &Path, now: Timestamp) {
    let store = Store::open(dir, owner()).expect("it is there");
    let bytes = || database_in(dir).metadata().map_or(0, |it| it.len());
    let before = bytes();
    let (other, stop) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let asked = Arc::clone(&stop);
    let writing = tokio::spawn(async move {
        let mut waits = Vec::new();
        while !asked.load(Ordering::Relaxed) {
            let start = Instant::now();
            other.forget_pruned(Vec::new()).await.expect("it can be written");
            waits.push(start.elapsed().as_secs_f64() * 1000.0);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        waits
    });
    let days = u32::try_from(RUNS * 9 / 10 / 1440).expect("some years");
    let start = Instant::now();
    let kept = Retention { runs: None, days: Some(days) };
    let pruned = prune(&store, dir, kept, now).await.expect("it can be pruned");
    let took = start.elapsed();
    stop.store(true, Ordering::Relaxed);
    println!("retention: {pruned:?} in {took:.1?}");
    report("a write meanwhile, ms", writing.await.expect("it does not panic"));
    store.checkpoint().await.expect("it can be folded back");
    println!("the file: {} MB before, {} MB after", before >> 20, bytes() >> 20);
}

fn main() {
    // The test runner only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--list" || argument == "--test") {
        return;
    }
    let dir = tempfile::tempdir().expect("there is room");
    let now = Timestamp::now();
    let first = now - SignedDuration::from_mins(RUNS);
    let start = Instant::now();
    seed(dir.path(), first);
    let path = database_in(dir.path());
    let megabytes = path.metadata().map_or(0, |it| it.len() >> 20);
    println!("{RUNS} runs of {JOBS} jobs in {:.0?}: {megabytes} MB", start.elapsed());
    let mut reader = Reader::open(&path).expect("it is there");
    pages(&reader, now);
    answers(&mut reader);
    let start = Instant::now();
    export(&path, &dir.path().join("out"), now).expect("there is room");
    println!("export: {:.1?}", start.elapsed());
    drop(reader);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("threads can be started").block_on(retention(dir.path(), now));
}
