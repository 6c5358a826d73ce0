//! What the rest of a month will cost, if runs go on to cost what they have.

use jiff::Timestamp;
use serde::Serialize;

use super::costs::Month;
use super::ls::schedule;
use super::output::Failed;
use super::times::{before, zone_of};
use crate::config::{Config, JobSet};
use crate::executor::costs_nothing;
use crate::store::Reader;

/// All that is due in the rest of the month.
#[derive(Debug, Serialize)]
pub(super) struct ToCome {
    pub(super) jobs: Vec<JobToCome>,
    /// What is known of the sum; none where nothing is.
    pub(super) usd: Option<f64>,
    /// Jobs that nobody knows this of.
    pub(super) unknown_jobs: usize,
}

/// One job's part of it.
#[derive(Debug, Serialize)]
pub(super) struct JobToCome {
    pub(super) job: String,
    /// How often it is due.
    pub(super) due: u64,
    /// What its last successful runs have cost on the average.
    pub(super) usd_each: Option<f64>,
    pub(super) usd: Option<f64>,
}

/// From now on; what is disabled, paused or starts only by hand or after other jobs is left out.
pub(super) fn of_rest(
    month: Month,
    jobs: &JobSet,
    config: &Config,
    reader: &Reader,
    now: Timestamp,
) -> Result<ToCome, Failed> {
    let known = reader.jobs()?;
    let mut to_come = ToCome { jobs: Vec::new(), usd: None, unknown_jobs: 0 };
    for spec in jobs.jobs.values().filter(|spec| spec.enabled) {
        let known = known.iter().find(|it| it.job == spec.id.as_str());
        let is_paused = known.is_some_and(|it| it.paused_reason.is_some());
        let Some(schedule) = schedule(spec, known).filter(|_| !is_paused) else { continue };
        let zone = zone_of(spec.schedule.as_ref(), config);
        let last = month
            .last
            .tomorrow()
            .ok()
            .and_then(|it| it.to_zoned_datetime(zone.rules().clone()).ok());
        let Some(end) = last.map(|it| it.timestamp()) else { continue };
        let due = schedule.count_between(now, before(end));
        if due == 0 {
            continue;
        }
        let usd_each = if costs_nothing(spec, config) {
            Some(0.0)
        } else {
            reader.usual_cost(spec.id.as_str())?
        };
        #[expect(clippy::cast_precision_loss, reason = "a month has fewer instants")]
        let usd = usd_each.map(|each| each * due as f64);
        match usd {
            Some(usd) => to_come.usd = Some(to_come.usd.unwrap_or(0.0) + usd),
            None => to_come.unknown_jobs += 1,
        }
        to_come.jobs.push(JobToCome { job: spec.id.to_string(), due, usd_each, usd });
    }
    Ok(to_come)
}
