//! A history that was, written row by row as nobody has to live it.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use punctual::clock::rfc3339;
use punctual::store::{Owner, Store, database_in};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value, json};

/// The database of a state folder in which nothing runs.
pub struct Past {
    db: Connection,
    now: Timestamp,
}

pub fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

pub fn days(count: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * count)
}

pub fn owner() -> Owner {
    Owner { boot_id: "boot".into(), pid: 1, started: 2, host: "host".into() }
}

impl Past {
    /// Makes the database in `state_dir`, with the schema of this version.
    pub fn new(state_dir: &Path, now: Timestamp) -> Self {
        std::fs::create_dir_all(state_dir.join("sessions")).unwrap();
        std::fs::create_dir_all(state_dir.join("workspaces")).unwrap();
        drop(Store::open(state_dir, owner()).unwrap());
        let path = database_in(state_dir);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let db = Connection::open_with_flags(path, flags).unwrap();
        db.busy_timeout(super::LONG).unwrap();
        db.execute_batch("PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON").unwrap();
        Self { db, now }
    }

    /// So long ago.
    pub fn ago(&self, ago: SignedDuration) -> String {
        rfc3339(self.now - ago)
    }

    /// Many rows at once.
    pub fn together(&self, write: impl FnOnce()) {
        self.db.execute_batch("BEGIN").unwrap();
        write();
        self.db.execute_batch("COMMIT").unwrap();
    }

    pub fn sql(&self, statements: &str) {
        self.db.execute_batch(statements).unwrap();
    }

    /// A row of a table; what it does not say is the default.
    pub fn row(&self, table: &str, row: &Value) {
        let row = row.as_object().unwrap();
        let columns: Vec<_> = row.keys().map(String::as_str).collect();
        let places = vec!["?"; columns.len()].join(", ");
        let sql = format!("INSERT INTO {table} ({}) VALUES ({places})", columns.join(", "));
        let values = row.values().map(|value| match value {
            Value::Null => rusqlite::types::Value::Null,
            Value::Bool(is) => i64::from(*is).into(),
            Value::Number(number) => number
                .as_i64()
                .map_or_else(|| number.as_f64().unwrap().into(), rusqlite::types::Value::from),
            Value::String(text) => text.clone().into(),
            other => panic!("{other}"),
        });
        let mut insert = self.db.prepare_cached(&sql).unwrap();
        insert.execute(rusqlite::params_from_iter(values)).unwrap();
    }

    /// A job first seen 500 days ago, whose definition is `effective`; its hash is `hash-<job>`.
    pub fn job(&self, job: &str, effective: &Value, more: &Value) {
        self.definition(&format!("hash-{job}"), job, effective);
        let seen = self.ago(days(500));
        let usual = json!({
            "job": job, "file": format!("jobs/{job}.toml"), "schedule": "@hourly",
            "timezone": "UTC", "first_seen_at": seen, "decided_until": self.ago(minutes(0)),
            "definition_hash": format!("hash-{job}"),
        });
        self.row("jobs", &with(&usual, more));
    }

    pub fn definition(&self, hash: &str, job: &str, effective: &Value) {
        let seen = self.ago(days(500));
        self.row(
            "definitions",
            &json!({
                "definition_hash": hash, "job": job, "first_seen_at": seen, "last_seen_at": seen,
                "effective": effective.to_string(),
            }),
        );
    }

    /// A run of `job` that began `ago`, for the slot of that instant, and succeeded after a second;
    /// `more` says what is different. Its session is called as it is.
    pub fn run(&self, run_id: &str, job: &str, ago: SignedDuration, more: &Value) {
        let at = self.ago(ago);
        let usual = json!({
            "run_id": run_id, "job": job, "trigger": "schedule", "due_at": at, "attempt": 1,
            "state": "succeeded", "queued_at": at, "started_at": at, "start_at": at,
            "finished_at": self.ago(ago - SignedDuration::from_secs(1)), "duration_ms": 1000,
            "late_ms": 0, "session_id": run_id, "cleanup_outcome": "clean", "host": "host",
            "version": "0.1.0", "definition_hash": format!("hash-{job}"), "owner_boot_id": "boot",
            "owner_pid": 1, "owner_started": 2,
        });
        self.row("runs", &with(&usual, more));
    }

    /// The slot of that instant: started by a run of that name, or what `more` says.
    pub fn slot(&self, job: &str, ago: SignedDuration, run_id: Option<&str>, more: &Value) {
        let at = self.ago(ago);
        let usual = json!({
            "job": job, "due_at": at, "due_until": at, "slots": 1, "decision": "started",
            "run_id": run_id, "decided_at": at, "late_ms": 0,
        });
        self.row("slots", &with(&usual, more));
    }
}

fn with(usual: &Value, more: &Value) -> Value {
    let mut row: Map<String, Value> = usual.as_object().unwrap().clone();
    row.extend(more.as_object().cloned().unwrap_or_default());
    row.into()
}
