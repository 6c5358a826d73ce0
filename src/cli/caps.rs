//! The caps of the day, and what is left of them.

use jiff::Timestamp;
use serde::Serialize;

use super::output::Failed;
use crate::clock::serialize_rfc3339;
use crate::config::{Config, JobSet};
use crate::executor::caps_of;
use crate::plan::{Cap, Caps, Spent, Standing, day_after};
use crate::store::Reader;

/// A cap, today.
#[derive(Debug, Serialize)]
pub(super) struct CapToday {
    pub(super) cap: Cap,
    /// Whose; none: that of all jobs.
    pub(super) job: Option<String>,
    pub(super) spent_usd: f64,
    pub(super) allowed_usd: f64,
    pub(super) left_usd: f64,
    /// When its day is over.
    #[serde(serialize_with = "serialize_rfc3339")]
    pub(super) until: Timestamp,
}

/// That of all jobs, then those of jobs. What runs at this moment is not counted yet.
pub(super) fn today(
    jobs: &JobSet,
    config: &Config,
    history: Option<&Reader>,
    now: Timestamp,
) -> Result<Vec<CapToday>, Failed> {
    let spent = match history {
        Some(reader) => reader.spent(now)?,
        None => Spent::default(),
    };
    let mut caps = Vec::new();
    for spec in jobs.jobs.values() {
        let of_job = caps_of(spec, config);
        for standing in spent.standings(&spec.id, &of_job, now) {
            let job = match standing.cap {
                // The same for all.
                Cap::All if caps.iter().any(|it: &CapToday| it.job.is_none()) => continue,
                Cap::All => None,
                Cap::Run | Cap::Job => Some(spec.id.to_string()),
            };
            caps.push(cap_today(standing, job, &of_job, now));
        }
    }
    caps.sort_by(|a, b| a.job.cmp(&b.job));
    Ok(caps)
}

fn cap_today(standing: Standing, job: Option<String>, caps: &Caps, now: Timestamp) -> CapToday {
    let Standing { cap, spent, allowed } = standing;
    let zone = if job.is_some() { &caps.zone } else { &caps.zone_of_all };
    CapToday {
        cap,
        job,
        spent_usd: spent.dollars(),
        allowed_usd: allowed.dollars(),
        left_usd: allowed.less(spent).dollars(),
        until: day_after(zone, now),
    }
}

impl CapToday {
    /// Whether nothing is left.
    pub(super) fn is_used_up(&self) -> bool {
        self.spent_usd >= self.allowed_usd
    }
}
