//! A month of a house, with the answers to every question that the README asks.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::House;
use super::past::{Past, days, minutes};

pub fn hours(count: i64) -> SignedDuration {
    SignedDuration::from_hours(count)
}

/// A month of four jobs: one is well, one fails, one is denied things and passed over, one is gone.
pub fn month(house: &House, now: Timestamp) -> Past {
    let past = Past::new(&house.path("state"), now);
    past.job("digest", &json!({}), &Value::Null);
    past.job("backup", &json!({"lane": "disk"}), &json!({"failed_slots": 2}));
    past.job("report", &json!({}), &Value::Null);
    past.job("gone", &json!({}), &json!({"removed_at": past.ago(days(40))}));
    for n in 1..=20_i64 {
        let more =
            json!({"duration_ms": n * 1000, "late_ms": n * 10, "usd": 0.01, "model": "cloud/m"});
        let id = format!("digest-{n:02}");
        past.run(&id, "digest", hours(n) + minutes(1), &more);
        past.slot("digest", hours(n) + minutes(1), Some(&id), &Value::Null);
    }
    let ended = |state, kind, limit, ms, phase| {
        json!({"state": state, "error_kind": kind, "limit_name": limit, "limit_ms": ms,
               "phase": phase, "duration_ms": ms, "cleanup_outcome": "forced", "model": "cloud/m"})
    };
    past.run(
        "backup-1",
        "backup",
        days(3),
        &ended("timed_out", "deadline", "deadline", 60_000, "tool"),
    );
    past.run(
        "backup-2",
        "backup",
        days(2),
        &ended("failed", "idle_timeout", "idle", 30_000, "model_call"),
    );
    past.run("backup-3", "backup", days(20), &json!({"duration_ms": 90_000}));
    past.run(
        "report-1",
        "report",
        days(1),
        &json!({"denied_calls": 3, "duration_ms": 500, "late_ms": 40}),
    );
    let unmet = json!({"state": "failed", "error_kind": "check_failed", "due_at": null,
                       "trigger": "manual", "duration_ms": 700, "late_ms": null});
    past.run("report-2", "report", hours(30), &unmet);
    what_they_did(&past);
    what_was_passed_over(&past);
    what_was_sent(&past);
    what_it_cost(&past);
    past
}

fn what_they_did(past: &Past) {
    for (run_id, step, outcome, detail) in [
        ("backup-1", "processes", "forced", "ended 3 processes"),
        ("backup-2", "model_stream", "forced", "closed before its end"),
        ("backup-2", "processes", "incomplete", "still alive: dd (77)"),
        ("backup-3", "processes", "clean", ""),
    ] {
        let started_at = past.ago(days(2));
        let n = i64::from(step == "processes") + 1;
        past.row(
            "cleanups",
            &json!({"run_id": run_id, "n": n, "step": step, "outcome": outcome,
            "started_at": started_at, "duration_ms": 5, "detail": detail}),
        );
    }
    let attempt = |run_id: &str, n: i64, model: &str, kind: Option<&str>| {
        let state = if kind.is_some() { "failed" } else { "succeeded" };
        past.row(
            "attempts",
            &json!({"run_id": run_id, "n": n, "model": model, "state": state,
            "error_kind": kind, "started_at": past.ago(days(1)), "idle_rule": "default"}),
        );
    };
    attempt("report-1", 1, "cloud/big", Some("rate_limit"));
    attempt("report-1", 2, "cloud/big", Some("rate_limit"));
    attempt("report-1", 3, "local/m", None);
    attempt("backup-1", 1, "cloud/m", Some("deadline"));
    attempt("backup-2", 1, "cloud/big", Some("rate_limit"));
    attempt("backup-2", 2, "cloud/m", Some("idle_timeout"));
    for (n, (tool, outcome)) in
        (1..).zip([("exec", "denied"), ("exec", "denied"), ("write", "denied"), ("read", "ok")])
    {
        past.row(
            "tool_calls",
            &json!({"run_id": "report-1", "n": n, "tool": tool,
            "outcome": outcome, "started_at": past.ago(days(1)), "duration_ms": 1,
            "output_bytes": 0}),
        );
    }
    for (run_id, passed, detail) in
        [("report-1", 1, Value::Null), ("report-2", 0, json!("out/report.md: is not there"))]
    {
        past.row(
            "checks",
            &json!({"run_id": run_id, "n": 1, "name": "report exists",
            "passed": passed, "detail": detail}),
        );
    }
}

fn what_was_sent(past: &Past) {
    for (n, run_id, target, state, settled, error) in [
        (1, "digest-01", "ops", "sent", days(1), ""),
        (2, "backup-1", "ops", "failed", days(3), "404 Not Found"),
        (3, "backup-2", "ops", "failed", days(2), "404 Not Found"),
        (4, "report-1", "chat", "unknown", days(1), "the answer was lost"),
    ] {
        let at = past.ago(settled);
        let error = if error.is_empty() { Value::Null } else { json!(error) };
        past.row(
            "deliveries",
            &json!({"delivery_id": format!("d{n}"), "run_id": run_id, "job": "any",
            "target": target, "state": state, "attempts": 1, "queued_at": at, "next_at": at,
            "last_error": error, "settled_at": at}),
        );
    }
}

fn what_it_cost(past: &Past) {
    for (ago, job, model, runs, usd, unpriced) in [
        (days(3), "digest", "cloud/m", 20, json!(1.25), 0),
        (days(200), "digest", "cloud/m", 29, json!(1.0), 0),
        (days(200), "backup", "cloud/m", 1, json!(1.0), 1),
        (days(200), "report", "local/m", 7, Value::Null, 7),
        (days(390), "report", "local/m", 99, json!(9.0), 0),
        (days(3), "load", "", 5, Value::Null, 0),
    ] {
        let day = past.ago(ago)[..10].to_owned();
        past.row(
            "costs",
            &json!({"day": day, "day_of_all": day, "job": job, "model": model, "runs": runs,
            "failed": 0, "usd": usd, "unpriced_runs": unpriced}),
        );
    }
}

fn what_was_passed_over(past: &Past) {
    let passed_over = |ago, decision, reason| {
        past.slot("report", ago, None, &json!({"decision": decision, "reason": reason}));
    };
    passed_over(hours(50), "skipped", "overlap");
    passed_over(hours(49), "skipped", "overlap");
    passed_over(hours(26), "held", "paused");
    let away = |job: &str, slots: i64| {
        past.slot(
            job,
            hours(12),
            None,
            &json!({"decision": "missed", "reason": "down",
            "slots": slots, "due_until": past.ago(hours(7)), "decided_at": past.ago(hours(6))}),
        );
    };
    away("report", 6);
    away("backup", 2);
    let person = |at: &str, kind: &str, result: &str| {
        past.row(
            "audit",
            &json!({"at": at, "actor": "person", "kind": kind, "name": "report",
            "result": result}),
        );
    };
    person("2026-11-03T02:10:00.000Z", "pause", "person");
    person("2026-11-03T02:40:00.000Z", "resume", "person");
    person("2026-11-03T03:00:00.000Z", "cancel", "requested");
    past.row(
        "slots",
        &json!({"job": "report", "due_at": "2026-11-03T02:30:00.000Z",
        "due_until": "2026-11-03T02:30:00.000Z", "slots": 1, "decision": "held",
        "reason": "paused", "decided_at": "2026-11-03T02:30:00.012Z", "late_ms": 12}),
    );
}
