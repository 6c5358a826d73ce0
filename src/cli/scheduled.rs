//! A job of the files with what the ledger keeps about its due times.

use jiff::Timestamp;

use super::context::{Context, now};
use super::ls;
use super::output::{Failed, local};
use super::times::zone_of;
use crate::config::{Config, JobSet};
use crate::job::JobSpec;
use crate::schedule::{Schedule, Zone};
use crate::store::{JobSummary, Reader};

/// A job that can be asked about its due times.
pub(super) struct Scheduled<'a> {
    pub(super) spec: &'a JobSpec,
    pub(super) history: Option<Reader>,
    pub(super) known: Option<JobSummary>,
    /// With the grid of its `every`; `None`: only by hand.
    pub(super) schedule: Option<Schedule>,
    pub(super) zone: Zone,
}

impl<'a> Scheduled<'a> {
    /// The job `name`, or why there is none that can be used.
    pub(super) fn find(name: &str, config: &Config, jobs: &'a JobSet) -> Result<Self, Failed> {
        if let Some(problems) = jobs.invalid.get(name) {
            return Err(Failed::usage(super::context::report(problems)));
        }
        let Some(spec) = jobs.jobs.values().find(|spec| spec.id.as_str() == name) else {
            Context::named(name, jobs, None)?;
            return Err(Failed::usage(format!("there is no job `{name}`")));
        };
        let history = Context::history(config)?;
        let known = match &history {
            Some(reader) => reader.jobs()?.into_iter().find(|it| it.job == name),
            None => None,
        };
        let schedule = ls::schedule(spec, known.as_ref());
        let zone = zone_of(spec.schedule.as_ref(), config).clone();
        Ok(Self { spec, history, known, schedule, zone })
    }

    /// Why it is held and until when, if it is.
    pub(super) fn pause(&self) -> Option<String> {
        pause(self.known.as_ref(), &self.zone)
    }
}

/// Why a job is held and until when, in words. A pause that has run out while nobody looked holds
/// nothing.
pub(super) fn pause(known: Option<&JobSummary>, zone: &Zone) -> Option<String> {
    let known = known?;
    let reason = known.paused_reason.as_ref()?;
    let Some(until) = known.paused_until.as_ref().and_then(|at| at.parse::<Timestamp>().ok())
    else {
        return Some(reason.clone());
    };
    (until > now()).then(|| format!("{reason}, until {}", local(until, zone.rules())))
}
