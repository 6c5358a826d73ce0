//! What runs have cost, by day, job and model: a sum that is kept with each run's end.

use jiff::Timestamp;
use jiff::civil::Date;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;

use super::error::StoreError;
use super::{Reader, Store};
use crate::job::{JobId, Usd};
use crate::plan::{Spent, day_in};
use crate::run::RunId;
use crate::schedule::{Zone, Zones};

/// For so long costs are kept, whatever becomes of the runs.
const DAYS_KEPT: i32 = 400;

/// On which day a cost counts.
#[derive(Debug, Clone)]
pub struct Days {
    /// The zones of the jobs; none: they are UTC.
    zones: Option<Zones>,
    /// The zone of jobs that name none, and of all together.
    of_all: Zone,
}

impl Default for Days {
    /// Days of UTC.
    fn default() -> Self {
        Self { zones: None, of_all: Zone::utc() }
    }
}

impl Days {
    /// Days of jobs in their own zones, and in `of_all` where they have none.
    pub fn new(zones: &Zones, of_all: &Zone) -> Self {
        Self { zones: Some(zones.clone()), of_all: of_all.clone() }
    }

    fn of_job(&self, zone: Option<&str>, at: Timestamp) -> Date {
        let own = zone.and_then(|name| self.zones.as_ref()?.get(name).ok());
        day_in(own.as_ref().unwrap_or(&self.of_all), at)
    }
}

/// One row of `v1_costs`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CostRow {
    /// The day on which the runs ended, in the job's zone.
    pub day: String,
    /// The job.
    pub job: String,
    /// `provider/model`; none was asked where there is none.
    pub model: Option<String>,
    /// Runs that ended with this model.
    pub runs: i64,
    /// Those among them that did not succeed, and were not cancelled.
    pub failed: i64,
    /// Prompt tokens.
    pub input_tokens: Option<i64>,
    /// Answer tokens.
    pub output_tokens: Option<i64>,
    /// What is known of the cost; none where nothing is.
    pub usd: Option<f64>,
    /// Runs of which not all of it is known.
    pub unpriced_runs: i64,
}

/// Adds a run that has just ended, at `now`, to the costs of its day.
pub(super) fn count(
    db: &Connection,
    run_id: &RunId,
    days: &Days,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let zone: Option<Option<String>> = db
        .prepare_cached(
            "SELECT j.timezone FROM runs r JOIN jobs j USING (job)
             WHERE r.run_id = ?1 AND r.started_at IS NOT NULL",
        )?
        .query_row([run_id.as_str()], |row| row.get(0))
        .optional()?;
    // What has never begun has cost nothing and is no run of a day.
    let Some(zone) = zone else { return Ok(()) };
    let (day, day_of_all) = (days.of_job(zone.as_deref(), now), day_in(&days.of_all, now));
    db.prepare_cached(
        "INSERT INTO costs (day, day_of_all, job, model, runs, failed, input_tokens, output_tokens,
                            usd, unpriced_runs)
         SELECT ?2, ?3, r.job, coalesce(a.model, ''), a.model IS r.model,
                a.model IS r.model AND r.state IN ('failed', 'timed_out', 'interrupted'),
                sum(a.input_tokens), sum(a.output_tokens), sum(a.usd),
                max(a.run_id IS NOT NULL AND a.usd IS NULL)
         FROM runs r LEFT JOIN attempts a USING (run_id)
         WHERE r.run_id = ?1 GROUP BY a.model
         ON CONFLICT DO UPDATE SET
             runs = runs + excluded.runs,
             failed = failed + excluded.failed,
             input_tokens = coalesce(input_tokens + excluded.input_tokens,
                                     input_tokens, excluded.input_tokens),
             output_tokens = coalesce(output_tokens + excluded.output_tokens,
                                      output_tokens, excluded.output_tokens),
             usd = coalesce(usd + excluded.usd, usd, excluded.usd),
             unpriced_runs = unpriced_runs + excluded.unpriced_runs",
    )?
    .execute(params![run_id.as_str(), day.to_string(), day_of_all.to_string()])
    .map(drop)
}

impl Store {
    /// Forgets what was spent longer ago than anybody asks for.
    pub async fn prune_costs(&self, now: Timestamp) -> Result<(), StoreError> {
        let kept = days_before(now, DAYS_KEPT);
        self.writer
            .transaction(move |db| {
                db.execute("DELETE FROM costs WHERE day < ?1", [kept.to_string()]).map(drop)
            })
            .await
    }
}

impl Reader {
    /// What was spent on this day and the one before, wherever that is the day.
    pub fn spent(&self, now: Timestamp) -> Result<Spent, StoreError> {
        let since = days_before(now, 2).to_string();
        let mut spent = Spent::default();
        let mut of_jobs = self.0.prepare(
            "SELECT job, day, sum(usd) FROM costs WHERE day >= ?1 AND usd > 0 GROUP BY job, day",
        )?;
        let mut rows = of_jobs.query([&since])?;
        while let Some(row) = rows.next()? {
            let job: Result<JobId, _> = row.get::<_, String>(0)?.parse();
            let day: Result<Date, _> = row.get::<_, String>(1)?.parse();
            if let (Ok(job), Ok(day)) = (job, day) {
                spent.know_job(job, day, Usd::from_dollars(row.get(2)?));
            }
        }
        let mut of_all = self.0.prepare(
            "SELECT day_of_all, sum(usd) FROM costs WHERE day_of_all >= ?1 AND usd > 0 GROUP BY 1",
        )?;
        let mut rows = of_all.query([&since])?;
        while let Some(row) = rows.next()? {
            if let Ok(day) = row.get::<_, String>(0)?.parse::<Date>() {
                spent.know_all(day, Usd::from_dollars(row.get(1)?));
            }
        }
        Ok(spent)
    }

    /// The costs from one day to another, both included, oldest first.
    pub fn costs(&self, from: Date, to: Date) -> Result<Vec<CostRow>, StoreError> {
        Ok(self
            .0
            .prepare("SELECT * FROM v1_costs WHERE day BETWEEN ?1 AND ?2 ORDER BY day, job, model")?
            .query_map([from.to_string(), to.to_string()], |row| {
                Ok(CostRow {
                    day: row.get("day")?,
                    job: row.get("job")?,
                    model: row.get("model")?,
                    runs: row.get("runs")?,
                    failed: row.get("failed")?,
                    input_tokens: row.get("input_tokens")?,
                    output_tokens: row.get("output_tokens")?,
                    usd: row.get("usd")?,
                    unpriced_runs: row.get("unpriced_runs")?,
                })
            })?
            .collect::<Result<_, _>>()?)
    }
}

fn days_before(now: Timestamp, days: i32) -> Date {
    day_in(&Zone::utc(), now).saturating_sub(jiff::Span::new().days(days))
}
