//! Incidents: what is wrong, from when to when, and who was told.
//!
//! They are derived, not noted: a look at a job's rows says what is wrong with it now
//! (`condition.rs`), opens an incident where there is none, closes one whose cause is gone, and puts
//! the message into the outbox, all of it in one transaction. What has happened to which job is
//! written with what has happened (`stirred`), and taken away by the look: whatever dies when, each
//! incident is told once when it begins and once when it is over.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;

use super::condition::{Condition, Wrong, conditions, stale_at};
use super::error::StoreError;
use super::{Reader, Store, instant};
use crate::job::{AlertSpec, JobId};
use crate::run::IncidentId;
use crate::schedule::Schedule;

/// Who is told of what about a job.
#[derive(Debug, Clone)]
pub struct AlertRule {
    /// The job.
    pub job: JobId,
    /// What its file says.
    pub alert: AlertSpec,
    /// The provider of its model.
    pub provider: Option<String>,
    /// When it is due, for whoever counts periods.
    pub schedule: Option<Schedule>,
    /// Targets that its results have to reach.
    pub targets: Vec<String>,
}

impl AlertRule {
    /// Slots in a row.
    pub(super) fn after(&self) -> usize {
        usize::try_from(self.alert.after).unwrap_or(usize::MAX)
    }

    /// Whose fault it is when a request to `model` fails.
    pub(super) fn provider_of(&self, model: Option<&str>) -> String {
        let of_model = model.and_then(|model| model.split('/').next());
        of_model.or(self.provider.as_deref()).unwrap_or("?").to_owned()
    }
}

/// Which jobs are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// Those of which something has happened, and these.
    Stirred(Vec<JobId>),
}

/// What a look has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked {
    /// When these become stale, if nothing succeeds before.
    pub stale_at: Vec<(JobId, Option<Timestamp>)>,
    /// When somebody is to be told of what is held back now.
    pub tell_at: Option<Timestamp>,
}

/// What a message about an incident says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncidentEvent {
    /// It has begun.
    Opened,
    /// It is over.
    Over,
}

impl IncidentEvent {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Over => "over",
        }
    }
}

/// An incident, with the columns of its view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IncidentRecord {
    /// Its id.
    pub incident: String,
    /// What is wrong.
    pub cause: String,
    /// Whose it is, if it is a job's.
    pub job: Option<String>,
    /// Whose it is, if it is a provider's.
    pub provider: Option<String>,
    /// The jobs that suffer from it.
    pub jobs: Vec<String>,
    /// `open`, `acked` or `over`.
    pub state: String,
    /// Who is told.
    pub target: String,
    /// When it was seen.
    pub opened_at: String,
    /// When somebody was told.
    pub told_at: Option<String>,
    /// When somebody said that it is known.
    pub acked_at: Option<String>,
    /// When it was over.
    pub over_at: Option<String>,
    /// The run that showed it.
    pub run_id: Option<String>,
    /// In words.
    pub detail: String,
}

impl Store {
    /// Looks at jobs under `rules`: opens, closes, and puts messages into the outbox. Messages about
    /// a provider wait for `gather`, so that one names all of its jobs.
    pub async fn look_at_incidents(
        &self,
        rules: Arc<Vec<AlertRule>>,
        scope: Scope,
        gather: Duration,
        now: Timestamp,
    ) -> Result<Looked, StoreError> {
        self.writer.transaction(move |db| look(db, &rules, &scope, gather, now)).await
    }

    /// Says that an incident is known: nobody is told of it any more until it is over. Returns its
    /// id, unless there is no open one, or more than one, that begins with `prefix`.
    pub async fn ack_incident(
        &self,
        prefix: &str,
        now: Timestamp,
    ) -> Result<Option<String>, StoreError> {
        let prefix = prefix.to_owned();
        self.writer
            .transaction(move |db| {
                let ids: Vec<String> = db
                    .prepare_cached(
                        "SELECT incident FROM incidents
                         WHERE over_at IS NULL AND substr(incident, 1, length(?1)) = ?1",
                    )?
                    .query_map([&prefix], |row| row.get(0))?
                    .collect::<Result<_, _>>()?;
                let [id] = &ids[..] else { return Ok(None) };
                db.prepare_cached(
                    "UPDATE incidents SET acked_at = coalesce(acked_at, ?2) WHERE incident = ?1",
                )?
                .execute([id, &instant::text(now)])?;
                Ok(Some(id.clone()))
            })
            .await
    }
}

const COLUMNS: &str = "incident, cause, job, provider, jobs, state, target, opened_at, told_at,
     acked_at, over_at, run_id, detail";

impl Reader {
    /// Incidents, newest first; only those that are not over unless `all` is asked for.
    pub fn incidents(
        &self,
        which: Incidents,
        limit: u32,
    ) -> Result<Vec<IncidentRecord>, StoreError> {
        let open = match which {
            Incidents::All => "",
            Incidents::NotOver => "WHERE over_at IS NULL",
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM v1_incidents {open} ORDER BY opened_at DESC, incident LIMIT ?1"
        );
        Ok(self.0.prepare(&sql)?.query_map([limit], incident_from)?.collect::<Result<_, _>>()?)
    }

    /// One incident.
    pub fn incident(&self, id: &str) -> Result<Option<IncidentRecord>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM v1_incidents WHERE incident = ?1");
        Ok(self.0.prepare_cached(&sql)?.query_row([id], incident_from).optional()?)
    }
}

/// Which incidents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incidents {
    /// Those that are not over.
    NotOver,
    /// All that there ever were.
    All,
}

fn incident_from(row: &Row<'_>) -> rusqlite::Result<IncidentRecord> {
    let jobs: String = row.get(4)?;
    Ok(IncidentRecord {
        incident: row.get(0)?,
        cause: row.get(1)?,
        job: row.get(2)?,
        provider: row.get(3)?,
        jobs: serde_json::from_str(&jobs).unwrap_or_default(),
        state: row.get(5)?,
        target: row.get(6)?,
        opened_at: row.get(7)?,
        told_at: row.get(8)?,
        acked_at: row.get(9)?,
        over_at: row.get(10)?,
        run_id: row.get(11)?,
        detail: row.get(12)?,
    })
}

fn look(
    db: &Connection,
    rules: &[AlertRule],
    scope: &Scope,
    gather: Duration,
    now: Timestamp,
) -> rusqlite::Result<Looked> {
    let stirred: Vec<String> = db
        .prepare_cached("DELETE FROM stirred RETURNING job")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let is_meant = |job: &JobId| match scope {
        Scope::All => true,
        Scope::Stirred(more) => more.contains(job) || stirred.iter().any(|it| it == job.as_str()),
    };
    let mut looked = Looked::default();
    for rule in rules.iter().filter(|rule| is_meant(&rule.job)) {
        let stale_at = stale_at(db, rule)?;
        let wrong = conditions(db, rule, stale_at, now)?;
        reconcile(db, rule, wrong, gather, now)?;
        looked.stale_at.push((rule.job.clone(), stale_at.filter(|at| *at > now)));
    }
    if *scope == Scope::All {
        forget_others(db, rules, now)?;
    }
    tell(db, now)?;
    let next: Option<String> = db.query_row(
        "SELECT min(notify_at) FROM incidents
         WHERE over_at IS NULL AND told_at IS NULL AND acked_at IS NULL",
        [],
        |row| row.get(0),
    )?;
    looked.tell_at = next.as_deref().map(instant::parse).transpose()?;
    Ok(looked)
}

/// Makes the incidents of a job what is wrong with it.
fn reconcile(
    db: &Connection,
    rule: &AlertRule,
    mut wrong: Vec<Condition>,
    gather: Duration,
    now: Timestamp,
) -> rusqlite::Result<()> {
    wrong.retain(|condition| condition.what.is_told(rule));
    for what in Wrong::ALL {
        let known: Option<String> = db
            .prepare_cached(
                "SELECT i.incident FROM incident_jobs j JOIN incidents i USING (incident)
                 WHERE j.job = ?1 AND j.until IS NULL AND i.cause = ?2",
            )?
            .query_row([rule.job.as_str(), what.as_str()], |row| row.get(0))
            .optional()?;
        let condition = wrong.iter().find(|condition| condition.what == what);
        match (known, condition) {
            (None, Some(condition)) => open(db, rule, condition, gather, now)?,
            (Some(id), None) => {
                let news = if what.is_told(rule) { News::Told } else { News::Silent };
                leave(db, &id, rule.job.as_str(), news, now)?;
            }
            (Some(id), Some(condition)) => {
                // Before somebody is told, it is the newest that is told.
                db.prepare_cached(
                    "UPDATE incidents SET detail = ?2, run_id = coalesce(?3, run_id)
                     WHERE incident = ?1 AND told_at IS NULL",
                )?
                .execute(params![id, condition.detail, condition.run_id])?;
            }
            (None, None) => {}
        }
    }
    Ok(())
}

/// The job joins an open incident of its kind, or begins one.
fn open(
    db: &Connection,
    rule: &AlertRule,
    condition: &Condition,
    gather: Duration,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (cause, to) = (condition.what.as_str(), &rule.alert.to);
    let (job, provider) = whose(rule, condition);
    let known: Option<String> = db
        .prepare_cached(
            "SELECT incident FROM incidents
             WHERE over_at IS NULL AND cause = ?1 AND job IS ?2 AND provider IS ?3 AND target = ?4",
        )?
        .query_row(params![cause, job, provider, to], |row| row.get(0))
        .optional()?;
    let id = match known {
        Some(id) => id,
        None => begin(db, rule, condition, gather, now)?,
    };
    db.prepare_cached(
        "INSERT INTO incident_jobs (incident, job, since) VALUES (?1, ?2, ?3)
         ON CONFLICT (incident, job) DO UPDATE SET until = NULL",
    )?
    .execute(params![id, rule.job.as_str(), instant::text(now)])
    .map(drop)
}

/// Begins an incident: somebody is told once its kind has been calm for long enough, and once all
/// jobs of a provider had the time to join.
fn begin(
    db: &Connection,
    rule: &AlertRule,
    condition: &Condition,
    gather: Duration,
    now: Timestamp,
) -> rusqlite::Result<String> {
    let (cause, to) = (condition.what.as_str(), &rule.alert.to);
    let (job, provider) = whose(rule, condition);
    let id = IncidentId::new(now).to_string();
    let last: Option<String> = db
        .prepare_cached(
            "SELECT max(told_at) FROM incidents
             WHERE cause = ?1 AND job IS ?2 AND provider IS ?3 AND target = ?4",
        )?
        .query_row(params![cause, job, provider, to], |row| row.get(0))?;
    let calm = match last {
        Some(last) => instant::parse(&last)? + rule.alert.cooldown,
        None => now,
    };
    let gathered = if provider.is_some() { now + gather } else { now };
    db.prepare_cached(
        "INSERT INTO incidents (incident, cause, job, provider, target, opened_at, notify_at,
                                run_id, detail)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        id,
        cause,
        job,
        provider,
        to,
        instant::text(now),
        instant::text(calm.max(gathered)),
        condition.run_id,
        condition.detail,
    ])?;
    Ok(id)
}

/// The job that it is laid to, or the provider.
fn whose<'a>(rule: &'a AlertRule, condition: &'a Condition) -> (Option<&'a str>, Option<&'a str>) {
    match &condition.provider {
        Some(provider) => (None, Some(provider)),
        None => (Some(rule.job.as_str()), None),
    }
}

/// Whether somebody is told that something is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// Whoever was told of it.
    Told,
    /// Nobody: it is not well, it is only nobody's business any more.
    Silent,
}

/// The job is well again; with the last of its jobs the incident is over.
fn leave(db: &Connection, id: &str, job: &str, news: News, now: Timestamp) -> rusqlite::Result<()> {
    let now = instant::text(now);
    db.prepare_cached("UPDATE incident_jobs SET until = ?3 WHERE incident = ?1 AND job = ?2")?
        .execute([id, job, &now])?;
    let over = db
        .prepare_cached(
            "UPDATE incidents SET over_at = ?2 WHERE incident = ?1 AND over_at IS NULL
                AND NOT EXISTS (SELECT 1 FROM incident_jobs
                                 WHERE incident = ?1 AND until IS NULL)",
        )?
        .execute([id, &now])?;
    if over == 1 && news == News::Told {
        db.prepare_cached(&put("over", "told_at IS NOT NULL AND incident = ?2"))?
            .execute([&now, id])?;
    }
    Ok(())
}

/// Jobs that are gone, or that nobody wants to hear of any more. One whose file is broken is neither.
fn forget_others(db: &Connection, rules: &[AlertRule], now: Timestamp) -> rusqlite::Result<()> {
    let open: Vec<(String, String)> = db
        .prepare_cached(
            "SELECT m.incident, m.job FROM incident_jobs m LEFT JOIN jobs j USING (job)
             WHERE m.until IS NULL AND (j.removed_at IS NOT NULL OR j.invalid_reason IS NULL)",
        )?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (id, job) in open {
        if !rules.iter().any(|rule| rule.job.as_str() == job) {
            leave(db, &id, &job, News::Silent, now)?;
        }
    }
    Ok(())
}

/// Tells of what has been open long enough.
fn tell(db: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    const UNTOLD: &str =
        "over_at IS NULL AND told_at IS NULL AND acked_at IS NULL AND notify_at <= ?1";
    let now = instant::text(now);
    let put = db.prepare_cached(&put("opened", UNTOLD))?.execute([&now])?;
    if put > 0 {
        db.prepare_cached(&format!("UPDATE incidents SET told_at = ?1 WHERE {UNTOLD}"))?
            .execute([&now])?;
    }
    Ok(())
}

/// Puts a message into the outbox for each of these incidents; `?1` is now.
fn put(event: &str, which: &str) -> String {
    format!(
        "INSERT INTO deliveries (delivery_id, job, target, state, queued_at, next_at, incident, event)
         SELECT incident || '-{event}', job, target, 'queued', ?1, ?1, incident, '{event}'
         FROM incidents WHERE {which}
         ORDER BY opened_at ON CONFLICT (delivery_id) DO NOTHING"
    )
}
