//! A job whose file is broken, as its last good version has it.

use jiff::Timestamp;

use super::output::{Failed, local};
use super::running;
use crate::config::Config;
use crate::job::ScheduleSpec;
use crate::schedule::Zone;
use crate::store::Reader;

/// What a running `serve` goes by in place of a broken file.
pub(super) struct LastGood {
    spec: Option<ScheduleSpec>,
    /// As the ledger has it.
    pub(super) next_due: Option<Timestamp>,
}

impl LastGood {
    /// The last good version of `job`, if a running `serve` goes by it.
    pub(super) fn in_force(
        job: &str,
        config: &Config,
        history: Option<&Reader>,
    ) -> Result<Option<Self>, Failed> {
        let running = running::status(&config.state_dir).ok().flatten();
        if running.is_none_or(|it| it.last_good.iter().all(|it| it != job)) {
            return Ok(None);
        }
        Self::read(job, config, history)
    }

    /// The last good version of `job`, if the ledger has one.
    pub(super) fn read(
        job: &str,
        config: &Config,
        history: Option<&Reader>,
    ) -> Result<Option<Self>, Failed> {
        let (Some(reader), Ok(id)) = (history, job.parse()) else { return Ok(None) };
        let Some(memory) = reader.known_jobs()?.remove(job) else { return Ok(None) };
        let definition = match &memory.definition_hash {
            Some(hash) => reader.definition(hash)?,
            None => None,
        };
        let spec = definition.and_then(|definition| config.stored_spec(&id, &definition));
        Ok(Some(Self { spec, next_due: memory.next_due }))
    }

    /// The zone in which its times are shown.
    pub(super) fn zone<'a>(&'a self, config: &'a Config) -> &'a Zone {
        super::times::zone_of(self.spec.as_ref(), config)
    }

    /// When it is due next.
    pub(super) fn local(&self, config: &Config) -> Option<String> {
        Some(local(self.next_due?, self.zone(config).rules()))
    }

    /// For people: which version it is, and when it is due.
    pub(super) fn words(&self, job: &str, config: &Config) -> String {
        let due = match self.local(config) {
            Some(at) => format!("due {at}  {}", self.zone(config).name()),
            None => "due at no time by the clock".to_owned(),
        };
        format!("{job}: the last good version of its file is in force, {due}")
    }
}
