//! What must hold of the ledger, whatever has happened to the program.

use jiff::Timestamp;
use serde_json::Value;

use super::House;

/// Everything in the ledger that must never change by itself.
pub fn ledger(house: &House) -> Vec<Vec<Value>> {
    let tables = ["runs", "slots", "attempts", "tool_calls", "cleanups"];
    tables.iter().map(|table| house.rows(&format!("SELECT * FROM {table} ORDER BY 1, 2"))).collect()
}

/// The file is whole, and every row that another names is there.
pub fn assert_sound(house: &House) {
    assert_eq!(house.value("PRAGMA integrity_check"), "ok");
    assert_eq!(house.rows("PRAGMA foreign_key_check"), Vec::<Value>::new());
}

/// No instant of a job that is due each second is without its row, and none has two.
pub fn assert_no_gap(house: &House, job: &str) {
    let rows = house.rows(&format!(
        "SELECT due_at, due_until, slots FROM v1_slots WHERE job = '{job}' ORDER BY due_at"
    ));
    let at = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
    let mut next = at(&rows[0][0]);
    for row in &rows {
        assert_eq!(at(&row[0]), next, "{rows:#?}");
        let seconds = at(&row[1]) - at(&row[0]) + 1;
        assert_eq!(row[2], seconds, "{rows:#?}");
        next += seconds;
    }
}

/// The grid of a schedule, in whole milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    pub first_ms: i64,
    pub step_ms: i64,
}

impl Grid {
    /// Each whole second after the job was first seen, or each `step` of them.
    pub fn seconds(house: &House, job: &str, step: i64) -> Self {
        let step_ms = step * 1000;
        let seen = instant_ms(&of_job(house, job, "first_seen_at"));
        Self { first_ms: (seen / step_ms + 1) * step_ms, step_ms }
    }

    /// Each `step` seconds from the anchor that the ledger keeps, itself left out.
    pub fn every(house: &House, job: &str, step: i64) -> Self {
        let anchor = instant_ms(&of_job(house, job, "every_anchor"));
        Self { first_ms: anchor + step * 1000, step_ms: step * 1000 }
    }
}

/// The rows of a job cover the instants of its grid from the first one to the last decided one:
/// each instant once, none beside them, and every count right.
pub fn assert_covers(house: &House, job: &str, grid: Grid) {
    let next = assert_rows_follow(house, job, grid);
    let decided = instant_ms(&of_job(house, job, "decided_until"));
    assert!(next == grid.first_ms || decided == next - grid.step_ms, "{job}: {decided}, {next}");
}

/// The rows of a job follow each other on its grid. Returns the first instant without a row.
pub fn assert_rows_follow(house: &House, job: &str, grid: Grid) -> i64 {
    let rows = house.rows(&format!(
        "SELECT due_at, due_until, slots, decision, reason FROM v1_slots
         WHERE job = '{job}' ORDER BY due_at"
    ));
    let mut next = grid.first_ms;
    for row in &rows {
        let (first, last) = (instant_ms(&row[0]), instant_ms(&row[1]));
        assert_eq!(first, next, "{job}: {row} in {rows:#?}");
        assert_eq!((last - first) % grid.step_ms, 0, "{job}: {row}");
        assert_eq!(row[2], (last - first) / grid.step_ms + 1, "{job}: {row}");
        next = last + grid.step_ms;
    }
    next
}

/// A column of a job, also those that are nobody's promise.
fn of_job(house: &House, job: &str, column: &str) -> Value {
    house.value(&format!("SELECT {column} FROM jobs WHERE job = '{job}'"))
}

/// Milliseconds since the epoch of an instant in a row.
pub fn instant_ms(value: &Value) -> i64 {
    value.as_str().unwrap().parse::<Timestamp>().unwrap().as_millisecond()
}

/// Once: whatever happened, the scheduler started no attempt of a slot twice, and no slot has two
/// rows that say so.
pub fn assert_once(house: &House) {
    let twice = "SELECT job, due_at, attempt, count(*) FROM v1_runs
                 WHERE due_at IS NOT NULL GROUP BY 1, 2, 3 HAVING count(*) > 1";
    assert_eq!(house.rows(twice), Vec::<Value>::new());
    let overlapping = "SELECT a.job, a.due_at, b.due_at FROM v1_slots a JOIN v1_slots b USING (job)
                       WHERE a.due_at < b.due_at AND b.due_at <= a.due_until";
    assert_eq!(house.rows(overlapping), Vec::<Value>::new());
    let without_run = "SELECT s.job, s.due_at FROM v1_slots s LEFT JOIN v1_runs r USING (run_id)
                       WHERE s.decision = 'started' AND r.due_at IS NOT s.due_at";
    assert_eq!(house.rows(without_run), Vec::<Value>::new());
    let without_row = "SELECT r.job, r.due_at FROM v1_runs r
                       WHERE r.due_at IS NOT NULL AND r.trigger <> 'backfill' AND NOT EXISTS
                           (SELECT 1 FROM v1_slots s WHERE s.job = r.job AND s.due_at = r.due_at
                                                      AND s.decision = 'started')";
    assert_eq!(house.rows(without_row), Vec::<Value>::new());
}

/// Every run has ended and says when, with all that belongs to it.
pub fn assert_all_ended(house: &House) {
    let open = "SELECT run_id, job, state, finished_at FROM v1_runs
                WHERE state IN ('queued', 'running') OR finished_at IS NULL";
    assert_eq!(house.rows(open), Vec::<Value>::new());
    let attempts = "SELECT run_id, n, state FROM v1_attempts WHERE state = 'running'";
    assert_eq!(house.rows(attempts), Vec::<Value>::new());
}

/// No two runs of the job were under way at the same time.
pub fn assert_one_at_a_time(house: &House, job: &str) {
    let both = format!(
        "SELECT a.run_id, a.started_at, a.finished_at, b.run_id, b.started_at, b.finished_at
         FROM v1_runs a JOIN v1_runs b USING (job)
         WHERE job = '{job}' AND a.run_id <> b.run_id AND a.started_at <= b.started_at
           AND b.started_at < a.finished_at"
    );
    assert_eq!(house.rows(&both), Vec::<Value>::new());
}

/// Changes the ledger as nobody does, to make the past look different. Nothing may be running.
pub fn rewrite(house: &House, sql: &str) {
    assert!(house.writable().execute(sql, []).unwrap() > 0, "{sql}");
}

/// The runs of a job in their order: attempt, trigger, state and kind of error.
pub fn story(house: &House, job: &str) -> Vec<Value> {
    house.rows(&format!(
        "SELECT attempt, trigger, state, error_kind FROM v1_runs WHERE job = '{job}'
         ORDER BY due_at, attempt"
    ))
}
