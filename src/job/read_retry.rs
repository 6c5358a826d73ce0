//! `[retry]`: what follows a run that did not succeed.

use std::time::Duration;

use super::duration::parse_duration;
use super::keys;
use super::parse::Reader;
use super::spec::{AfterInterruption, RetrySpec};
use super::tree::Item;

/// Kinds that are not retried unless `retry.on` names them (semantics §4).
pub const PERMANENT: &[&str] = &[
    "auth",
    "billing",
    "model_not_found",
    "bad_request",
    "context_overflow",
    "content_filter",
    "truncated_reply",
    "truncated_tool_call",
    "tool_loop",
    "turn_limit",
    "hook_blocked",
    "validation",
    "check_failed",
    "output_invalid",
    "budget",
];

/// What is wrong is reported; what is missing is the default.
pub(super) fn retry(reader: &mut Reader<'_>) -> RetrySpec {
    let usual = RetrySpec::default();
    let node = reader.node;
    let interrupted = match node.bool("retry.interrupted") {
        Some(true) => AfterInterruption::RepeatOnce,
        Some(false) | None => AfterInterruption::Leave,
    };
    RetrySpec {
        max_attempts: node.integer("retry.max_attempts").unwrap_or(usual.max_attempts),
        backoff: backoff(reader).unwrap_or(usual.backoff),
        pause_after: node.integer("retry.pause_after").unwrap_or(usual.pause_after),
        interrupted,
        on: permanent_kinds(reader),
    }
}

fn backoff(reader: &mut Reader<'_>) -> Option<Vec<Duration>> {
    let list = reader.node.get("retry.backoff")?;
    let Item::List(items) = &list.item else { return None };
    if items.is_empty() {
        let help = "leave it out for 30s, 60s, 5m, or set max_attempts = 1".to_owned();
        reader.refuse("retry.backoff", "an empty list says nothing about the wait", help);
        return None;
    }
    let mut waits = Vec::new();
    for item in items {
        match parse_duration(item.as_text()?) {
            Ok(wait) if wait.is_zero() => {
                let words = "a wait of nothing would retry without end";
                reader.problems.push(item.error("retry.backoff", words));
            }
            Ok(wait) => waits.push(wait),
            Err(words) => reader.problems.push(item.error("retry.backoff", words)),
        }
    }
    (waits.len() == items.len()).then_some(waits)
}

fn permanent_kinds(reader: &mut Reader<'_>) -> Vec<String> {
    let kinds = reader.node.texts("retry.on").unwrap_or_default();
    let mut known = Vec::new();
    for (kind, place) in kinds {
        if PERMANENT.contains(&kind) {
            known.push(kind.to_owned());
            continue;
        }
        let help = keys::did_you_mean(kind, PERMANENT.iter().copied())
            .unwrap_or_else(|| format!("permanent kinds are {}", PERMANENT.join(", ")));
        let words = format!("`{kind}` is not a kind that needs naming here");
        reader.problems.push(place.error("retry.on", words).with_help(help));
    }
    known
}
