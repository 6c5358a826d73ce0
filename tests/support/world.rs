//! A real daemon with a real ledger in this process, under a clock that is moved by hand.

use std::sync::Arc;

use jiff::Timestamp;
use punctual::clock::{Clock, ManualClock};
use punctual::config::{Sources, load};
use punctual::daemon::{Daemon, Kind};
use punctual::job::Environment;
use punctual::process::SupervisorPath;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::scripts::FINE;
use crate::support::{self, House, scripted};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A daemon in this process, whose clock is in our hands.
pub struct World {
    pub house: House,
    pub clock: Arc<ManualClock>,
    serving: Option<JoinHandle<()>>,
}

impl World {
    pub async fn new(jobs: &[(&str, &str)], start: &str) -> Self {
        Self::in_house(scripted(FINE, ""), jobs, start).await
    }

    pub async fn in_house(house: House, jobs: &[(&str, &str)], start: &str) -> Self {
        for (name, text) in jobs {
            house.job(name, text);
        }
        let clock = Arc::new(ManualClock::new(at(start)));
        let mut world = Self { house, clock, serving: None };
        world.start().await;
        world
    }

    pub async fn start(&mut self) {
        let sources = Sources {
            config_paths: vec![self.house.path("config.toml")],
            state_dir: Some(self.house.path("state")),
            environment: Environment::fixed([]),
            current_dir: self.house.path("."),
        };
        let config = load(&sources).unwrap().0;
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let supervisor = SupervisorPath::current_exe();
        let daemon = Daemon::open(config, Kind::Serve, clock, supervisor).await.unwrap();
        let listening = daemon.listen().unwrap();
        self.serving = Some(tokio::spawn(async move {
            daemon.serve(listening).await.unwrap();
        }));
    }

    /// The process is gone, as far as one can be without a process of its own.
    pub async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            drop(serving.await);
        }
    }

    /// Waits for a state of the ledger, away from the runtime's own threads.
    pub fn until(&self, sql: &str) {
        tokio::task::block_in_place(|| self.house.until(sql));
    }

    /// Both clocks go on to this time, and `job` runs for it.
    pub fn goes_to_and_runs(&self, job: &str, time: &str) {
        self.clock.advance(at(time).duration_since(self.clock.wall()).unsigned_abs());
        self.has_run(job, time);
    }

    pub fn has_run(&self, job: &str, time: &str) {
        let due = format!("{:.3}", at(time));
        self.until(&format!(
            "SELECT count(*) = 1 FROM v1_runs
             WHERE job = '{job}' AND due_at = '{due}' AND state = 'succeeded'"
        ));
    }

    /// The ends of all runs have reached everybody.
    pub fn is_idle(&self) {
        tokio::task::block_in_place(|| {
            support::until("nothing runs", || {
                let status = self.house.say(&["status", "--json"]).json();
                status["running"]["runs"] == json!([])
            });
        });
    }

    /// What was decided, in short.
    pub fn slots(&self, job: &str) -> Vec<serde_json::Value> {
        self.house.rows(&format!(
            "SELECT substr(due_at, 1, 16), substr(due_until, 1, 16), slots, decision, reason
             FROM v1_slots WHERE job = '{job}' ORDER BY due_at"
        ))
    }
}
