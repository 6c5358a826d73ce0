//! A turn that belongs to no job, as the configuration would have it.

use std::path::PathBuf;

use super::Config;
use crate::job::{self, JobId, JobSpec, Problem};

/// What a message is said in place of.
const TEXT: &str = "[agent]\nprompt = \"(what was said)\"\n";

impl Config {
    /// What a turn of no job is: `[agents.defaults]` and those of `[defaults]` that say how a turn
    /// is made and what bounds it, read like a job's. What says when a job runs, whether its result
    /// is good, and who hears of it is for jobs.
    pub fn ad_hoc(&self) -> Result<JobSpec, Vec<Problem>> {
        let file = self.files.last().cloned().unwrap_or_else(|| PathBuf::from("config.toml"));
        let parsed =
            self.with_surroundings(|around| job::parse(&JobId::ad_hoc(), &file, TEXT, around))?;
        let first = parsed.into_iter().next().ok_or_else(Vec::new)?;
        Ok(JobSpec {
            enabled: true,
            schedule: None,
            after: None,
            gate: None,
            checks: Vec::new(),
            reply_schema: None,
            delivers: Vec::new(),
            artifacts: Vec::new(),
            alert: None,
            ping: None,
            ..first.job
        })
    }
}
