//! What it costs to decide: a look with ten thousand jobs, and a year that nobody looked at.

use std::time::Duration;

use divan::{Bencher, black_box};
use jiff::Timestamp;
use punctual::clock::Now;
use punctual::job::{Catchup, JobId, Overlap, RetrySpec};
use punctual::plan::{Availability, JobView, Living, Memory, Planner, Reason, Rules, decide};
use punctual::schedule::{CronExpr, Fold, Gap, Schedule, Zone, ZoneChoice, Zones};

const JOBS: usize = 10_000;

fn main() {
    divan::main();
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("an instant of this file")
}

fn zone() -> Zone {
    let zones = Zones::open(ZoneChoice::Bundled).expect("the bundled database is always there");
    zones.get("Europe/Berlin").expect("a zone of the database")
}

fn rules(cron: &str, zone: &Zone) -> Rules {
    let expr = CronExpr::parse(cron).expect("an expression of this file");
    Rules {
        after: None,
        schedule: Some(Schedule::cron(expr, zone.clone(), Gap::Shift, Fold::Once)),
        catchup: Catchup::Latest,
        catchup_window: None,
        overlap: Overlap::Skip,
        retry: RetrySpec::default(),
        availability: Availability::Ready,
    }
}

/// `due` of ten thousand jobs are due at ten; the others next year.
fn planner(due: usize) -> Planner {
    let (zone, eight) = (zone(), at("2026-11-30T08:00:00Z"));
    let (soon, later) = (rules("0 11 30 11 *", &zone), rules("0 11 1 1 *", &zone));
    let mut planner = Planner::default();
    for n in 0..JOBS {
        let id: JobId = format!("job-{n:05}").parse().expect("a job's id");
        let rules = if n % (JOBS / due) == 0 { &soon } else { &later };
        planner.adopt(&id, rules.clone(), Memory::since(eight), eight);
    }
    planner
}

#[divan::bench(args = [50, 1000, 10_000], sample_count = 20)]
fn a_look_at_10_000_jobs_of_which_are_due(bencher: Bencher<'_, '_>, due: usize) {
    let now = Now { wall: at("2026-11-30T10:00:00Z"), since_boot: Duration::from_hours(2) };
    let planner = planner(due);
    bencher.with_inputs(|| planner.clone()).bench_refs(|planner| planner.look(black_box(now)));
}

#[divan::bench(sample_count = 5)]
fn taking_in_10_000_jobs() -> Planner {
    planner(50)
}

#[divan::bench(args = [Catchup::None, Catchup::Latest, Catchup::All], sample_count = 20)]
fn deciding_400_days_of_missed_seconds(bencher: Bencher<'_, '_>, catchup: Catchup) {
    let mut rules = rules("* * * * * *", &zone());
    rules.catchup = catchup;
    let memory = Memory::since(at("2026-01-01T00:00:00Z"));
    let view = JobView {
        schedule: rules.schedule.as_ref().expect("it has one"),
        rules: &rules,
        memory: &memory,
        living: Living::default(),
        unseen_because: Reason::Down,
        obstacle: None,
    };
    bencher.bench(|| decide(black_box(view), at("2027-02-05T00:00:00Z")));
}
