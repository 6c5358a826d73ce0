//! What a run's tools reach beyond its workspace.

use super::run::Executor;
use crate::tools::Beyond;

impl Executor {
    /// What the configuration lets the tools of a run reach.
    pub(super) fn beyond(&self) -> Beyond {
        Beyond { allow_hosts: self.config.allow_hosts.clone() }
    }
}
