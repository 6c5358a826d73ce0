//! What the runs of this process spend on a day, while they do.
//!
//! The ledger knows what ended runs have cost; a cap also has to hold while several runs go on at
//! once. So each tells what it has spent so far, and hears how the caps stand that it shares.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::clock::Clock;
use crate::config::{Config, Price};
use crate::job::{JobId, JobSpec, Usd};
use crate::plan::{Cap, Caps, Spent, Standing};
use crate::run::RunId;
use crate::turn;

/// Whether a job asks no model that costs anything. What has no price may cost anything.
pub fn costs_nothing(spec: &JobSpec, config: &Config) -> bool {
    let agent = spec.agent().into_iter();
    let mut models = agent.flat_map(|it| std::iter::once(&it.model).chain(&it.fallbacks));
    models.all(|model| config.price_of(model).is_some_and(Price::is_free))
}

/// The caps that hold for a job's days under `config`.
pub fn caps_of(spec: &JobSpec, config: &Config) -> Caps {
    let costs = !costs_nothing(spec, config);
    Caps {
        zone: spec.schedule.as_ref().map_or(&config.timezone, |it| &it.zone).clone(),
        own: spec.limits.max_usd_per_day.filter(|_| costs),
        zone_of_all: config.timezone.clone(),
        all: config.max_usd_per_day.filter(|_| costs),
    }
}

/// What all runs of a process spend.
#[derive(Debug, Clone, Default)]
pub struct Purse(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    /// By runs that are over.
    spent: Spent,
    /// By those that go on.
    live: HashMap<RunId, (JobId, Usd)>,
}

impl Purse {
    /// With what was spent before.
    pub fn new(spent: Spent) -> Self {
        Self(Arc::new(Mutex::new(Book { spent, live: HashMap::new() })))
    }

    /// The part of a run, to the end of the run.
    pub(super) fn open(
        &self,
        run_id: &RunId,
        spec: &JobSpec,
        config: &Config,
        clock: &Arc<dyn Clock>,
    ) -> Arc<dyn turn::Purse> {
        self.book().live.insert(run_id.clone(), (spec.id.clone(), Usd::ZERO));
        Arc::new(Part {
            purse: self.clone(),
            run_id: run_id.clone(),
            job: spec.id.clone(),
            caps: caps_of(spec, config),
            clock: Arc::clone(clock),
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().expect("no holder of this lock can panic")
    }
}

/// What one run spends of it.
#[derive(Debug)]
struct Part {
    purse: Purse,
    run_id: RunId,
    job: JobId,
    caps: Caps,
    clock: Arc<dyn Clock>,
}

impl turn::Purse for Part {
    fn after(&self, usd: Usd) -> Vec<Standing> {
        let mut book = self.purse.book();
        book.live.insert(self.run_id.clone(), (self.job.clone(), usd));
        let mut standings = book.spent.standings(&self.job, &self.caps, self.clock.wall());
        for standing in &mut standings {
            let counts = |job: &JobId| match standing.cap {
                Cap::Run | Cap::Job => *job == self.job,
                Cap::All => true,
            };
            let live = book.live.values().filter(|(job, _)| counts(job)).map(|(_, usd)| *usd);
            standing.spent = standing.spent + live.sum();
        }
        standings
    }
}

impl Drop for Part {
    /// The run is over: what it has spent counts on this day.
    fn drop(&mut self) {
        let mut book = self.purse.book();
        if let Some((_, usd)) = book.live.remove(&self.run_id) {
            book.spent.add(&self.job, &self.caps, self.clock.wall(), usd);
        }
    }
}
