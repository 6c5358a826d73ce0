//! Looks at the object that describes a run, as the program prints it.

use serde_json::Value;

/// What the contract promises of every run.
const KEYS: [&str; 23] = [
    "run_id",
    "job",
    "trigger",
    "due_at",
    "attempt",
    "state",
    "queued_at",
    "started_at",
    "finished_at",
    "duration_ms",
    "late_ms",
    "session_id",
    "model",
    "reply",
    "partial_text",
    "payloads",
    "error",
    "attempts",
    "usage",
    "tools",
    "cleanup",
    "checks",
    "deliveries",
];

/// The parts of a run object that `expected` names.
#[track_caller]
pub fn assert_run(run: &Value, expected: &Value) {
    for (pointer, value) in expected.as_object().unwrap() {
        assert_eq!(run.pointer(pointer), Some(value), "{pointer} of {run:#}");
    }
}

/// Nothing of what the contract promises is left out.
#[track_caller]
pub fn assert_has_every_key(run: &Value) {
    let missing: Vec<_> = KEYS.iter().filter(|key| run.get(**key).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?} of {run:#}");
}
