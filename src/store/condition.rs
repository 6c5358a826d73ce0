//! What is wrong with a job now, as far as the ledger tells.
//!
//! Read anew each time, never remembered: whatever was lost or is out of date elsewhere, the next
//! look sees what is so.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::incidents::AlertRule;
use super::instant;
use crate::job::Cause;
use crate::plan::is_provider_side;
use crate::run::{ErrorKind, State};

/// Rows that are looked at to count what happened in a row.
const ROWS_MAX: u32 = 1000;

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) what: Wrong,
    /// Whose fault it is, if it is a provider's.
    pub(super) provider: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) detail: String,
}

/// Of which kind it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    Cause(Cause),
    /// The job holds itself.
    Paused,
}

impl Wrong {
    pub(super) const ALL: [Self; 6] = [
        Self::Cause(Cause::Failed),
        Self::Cause(Cause::Missed),
        Self::Cause(Cause::OverBudget),
        Self::Cause(Cause::DeliveryFailed),
        Self::Cause(Cause::Stale),
        Self::Paused,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Cause(cause) => cause.as_str(),
            Self::Paused => "paused",
        }
    }

    /// Whether somebody is told of it: a job that pauses itself has failed.
    pub(super) fn is_told(self, rule: &AlertRule) -> bool {
        match self {
            Self::Cause(cause) => rule.alert.is_on(cause),
            Self::Paused => rule.alert.is_on(Cause::Failed),
        }
    }
}

/// All that is wrong with a job.
pub(super) fn conditions(
    db: &Connection,
    rule: &AlertRule,
    stale_at: Option<Timestamp>,
    now: Timestamp,
) -> rusqlite::Result<Vec<Condition>> {
    let mut all = Vec::new();
    all.extend(failed(db, rule)?);
    all.extend(slots(db, rule)?);
    all.extend(deliveries(db, rule)?);
    if let Some(at) = stale_at.filter(|at| *at <= now) {
        let periods = rule.alert.stale_after.unwrap_or(1);
        let detail = format!("no success for {periods} periods, up to {}", instant::text(at));
        let what = Wrong::Cause(Cause::Stale);
        all.push(Condition { what, provider: None, run_id: None, detail });
    }
    all.extend(paused(db, rule)?);
    Ok(all)
}

struct Ended {
    run_id: String,
    state: State,
    kind: Option<ErrorKind>,
    message: Option<String>,
    model: Option<String>,
}

/// The newest ends of the job, back to its last success. What past slots do is nobody's news.
fn failures(db: &Connection, job: &str) -> rusqlite::Result<Vec<Ended>> {
    let mut select = db.prepare_cached(
        "SELECT run_id, state, error_kind, error_message, model FROM runs
         WHERE job = ?1 AND settled = 1 AND trigger <> 'backfill'
           AND (state = 'succeeded'
                OR (state IN ('failed', 'timed_out', 'interrupted') AND unsent = 0))
         ORDER BY queued_at DESC, run_id DESC LIMIT ?2",
    )?;
    let mut rows = select.query(params![job, ROWS_MAX])?;
    let mut ends = Vec::new();
    while let Some(row) = rows.next()? {
        let state = row.get::<_, String>(1)?.parse().unwrap_or(State::Failed);
        if state == State::Succeeded {
            break;
        }
        let kind: Option<String> = row.get(2)?;
        ends.push(Ended {
            run_id: row.get(0)?,
            state,
            kind: kind.and_then(|kind| kind.parse().ok()),
            message: row.get(3)?,
            model: row.get(4)?,
        });
    }
    Ok(ends)
}

fn failed(db: &Connection, rule: &AlertRule) -> rusqlite::Result<Option<Condition>> {
    let ends = failures(db, rule.job.as_str())?;
    let Some(last) = ends.first() else { return Ok(None) };
    // Told of as what it is, where somebody wants to hear of that.
    let over_budget =
        |end: &Ended| end.kind == Some(ErrorKind::Budget) && rule.alert.is_on(Cause::OverBudget);
    let (what, count) = if over_budget(last) {
        (Cause::OverBudget, ends.iter().take_while(|end| over_budget(end)).count())
    } else {
        (Cause::Failed, ends.len())
    };
    if count < rule.after() {
        return Ok(None);
    }
    let is_theirs =
        |kind| is_provider_side(kind) || matches!(kind, ErrorKind::Auth | ErrorKind::Billing);
    let provider =
        last.kind.is_some_and(is_theirs).then(|| rule.provider_of(last.model.as_deref()));
    let kind = last.kind.map_or_else(|| last.state.to_string(), |kind| kind.to_string());
    let words = last.message.as_deref().unwrap_or_default();
    let detail = match count {
        1 => format!("{kind}: {words}"),
        _ => format!("{count} in a row, the last one {kind}: {words}"),
    };
    let run_id = Some(last.run_id.clone());
    Ok(Some(Condition { what: Wrong::Cause(what), provider, run_id, detail }))
}

/// What the newest slots say: missed, or held by a budget.
fn slots(db: &Connection, rule: &AlertRule) -> rusqlite::Result<Option<Condition>> {
    let mut select = db.prepare_cached(
        "SELECT decision, reason, slots, due_at, due_until FROM slots
         WHERE job = ?1 ORDER BY due_at DESC LIMIT ?2",
    )?;
    let mut rows = select.query(params![rule.job.as_str(), ROWS_MAX])?;
    let (mut what, mut count, mut told) = (None, 0_usize, None);
    while let Some(row) = rows.next()? {
        let (decision, reason): (String, Option<String>) = (row.get(0)?, row.get(1)?);
        let this = match (decision.as_str(), reason.as_deref()) {
            // A gate that says no has been asked: nobody was missing.
            ("started", _) | (_, Some("gate")) => break,
            (_, Some("budget")) => Cause::OverBudget,
            ("missed", _) => Cause::Missed,
            // Skipped, or waiting: it is neither well nor missed.
            _ => continue,
        };
        if *what.get_or_insert(this) != this {
            break;
        }
        let slots: i64 = row.get(2)?;
        count = count.saturating_add(usize::try_from(slots).unwrap_or(usize::MAX));
        if told.is_none() {
            told = Some((reason.unwrap_or_default(), row.get::<_, String>(4)?));
        }
    }
    let (Some(what), Some((reason, due_at))) = (what, told) else { return Ok(None) };
    let enough = if what == Cause::Missed { rule.after() } else { 1 };
    if count < enough {
        return Ok(None);
    }
    let provider = (reason == "model_unreachable").then(|| rule.provider_of(None));
    let slots = if count == 1 { "1 slot".to_owned() } else { format!("{count} slots in a row") };
    let detail = format!("{slots} not started, the last one due {due_at}: {reason}");
    Ok(Some(Condition { what: Wrong::Cause(what), provider, run_id: None, detail }))
}

/// The last delivery to one of the job's targets that has to arrive.
fn deliveries(db: &Connection, rule: &AlertRule) -> rusqlite::Result<Option<Condition>> {
    for target in &rule.targets {
        let last: Option<(String, Option<String>, Option<String>)> = db
            .prepare_cached(
                "SELECT state, last_error, run_id FROM deliveries
                 WHERE job = ?1 AND target = ?2 AND best_effort = 0 AND incident IS NULL
                   AND state IN ('sent', 'failed', 'unknown')
                 ORDER BY id DESC LIMIT 1",
            )?
            .query_row(params![rule.job.as_str(), target], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let Some((state, error, run_id)) = last.filter(|last| last.0 != "sent") else { continue };
        let detail = format!("to {target} {state}: {}", error.unwrap_or_default());
        let what = Wrong::Cause(Cause::DeliveryFailed);
        return Ok(Some(Condition { what, provider: None, run_id, detail }));
    }
    Ok(None)
}

fn paused(db: &Connection, rule: &AlertRule) -> rusqlite::Result<Option<Condition>> {
    let reason: Option<Option<String>> = db
        .prepare_cached(
            "SELECT paused_reason FROM jobs WHERE job = ?1
                AND paused_cause IN ('failures', 'interrupted_twice', 'schedule')",
        )?
        .query_row([rule.job.as_str()], |row| row.get(0))
        .optional()?;
    Ok(reason.map(|reason| Condition {
        what: Wrong::Paused,
        provider: None,
        run_id: None,
        detail: reason.unwrap_or_default(),
    }))
}

/// When the job becomes stale, as things are: so many whole periods after its last success, or after
/// its gate has last said no, from one due instant to the next. Nothing becomes stale while a person holds it.
pub(super) fn stale_at(db: &Connection, rule: &AlertRule) -> rusqlite::Result<Option<Timestamp>> {
    let (Some(schedule), Some(periods), true) =
        (&rule.schedule, rule.alert.stale_after, rule.alert.is_on(Cause::Stale))
    else {
        return Ok(None);
    };
    let first_seen: Option<String> = db
        .prepare_cached(
            "SELECT first_seen_at FROM jobs WHERE job = ?1 AND enabled = 1 AND removed_at IS NULL
                AND coalesce(paused_cause, '') <> 'person'",
        )?
        .query_row([rule.job.as_str()], |row| row.get(0))
        .optional()?;
    let Some(first_seen) = first_seen else { return Ok(None) };
    let succeeded: Option<String> = db
        .prepare_cached(
            "SELECT finished_at FROM runs WHERE job = ?1 AND state = 'succeeded'
             ORDER BY queued_at DESC LIMIT 1",
        )?
        .query_row([rule.job.as_str()], |row| row.get(0))
        .optional()?
        .flatten();
    let since = [succeeded, nothing_to_do(db, rule)?].into_iter().flatten().max();
    let since = instant::parse(&since.unwrap_or(first_seen))?;
    let mut at = since;
    for _ in 0..=periods {
        match schedule.next_after(at) {
            Some(due) => at = due.at,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// When the gate of the job has last said that there is nothing to do.
fn nothing_to_do(db: &Connection, rule: &AlertRule) -> rusqlite::Result<Option<String>> {
    let last: Option<Option<String>> = db
        .prepare_cached(
            "SELECT finished_at FROM runs WHERE job = ?1 AND state = 'cancelled'
               AND state IN ('failed', 'timed_out', 'cancelled', 'interrupted')
               AND error_kind = 'gate'
             ORDER BY queued_at DESC LIMIT 1",
        )?
        .query_row([rule.job.as_str()], |row| row.get(0))
        .optional()?;
    Ok(last.flatten())
}
