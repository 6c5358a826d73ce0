//! Days of several jobs in no time: what waits, what is replaced, where it stops.

use super::*;
use crate::job::{Catchup, Overlap};
use crate::plan::{Availability, Memory, Rules};
use crate::schedule::{CronExpr, Fold, Gap, Schedule, Zone};

const EIGHT: &str = "2026-11-30T08:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn planner(jobs: &[(&str, &str, Overlap)]) -> Planner {
    let mut planner = Planner::default();
    for (id, cron, overlap) in jobs {
        let expr = CronExpr::parse(cron).unwrap();
        let schedule = Schedule::cron(expr, Zone::utc(), Gap::Shift, Fold::Once);
        let mut rules = Rules::idle(Some(schedule), Availability::Ready);
        (rules.catchup, rules.overlap) = (Catchup::Latest, *overlap);
        let id = id.parse().unwrap();
        planner.adopt(&id, rules, Memory::since(at(EIGHT)), at(EIGHT));
    }
    planner
}

fn lanes(widths: &[(&str, usize)], of_job: &[(&str, &str)]) -> SimulatedLanes {
    let widths = widths.iter().map(|(lane, width)| ((*lane).to_owned(), *width)).collect();
    let named = |(job, lane): &(&str, &str)| (job.parse().unwrap(), (*lane).to_owned());
    SimulatedLanes { widths, of_job: of_job.iter().map(named).collect() }
}

fn run(
    planner: &mut Planner,
    until: &str,
    lanes: &SimulatedLanes,
    takes: Duration,
    decisions_max: usize,
) -> Simulation {
    let behave = |_: &JobId, _: &Start| Behaviour::succeeds_after(takes);
    simulate(planner, at(EIGHT), at(until), lanes, behave, decisions_max)
}

/// One line per result: seconds after eight, job, what.
fn lines(simulation: &Simulation) -> Vec<String> {
    let seconds = |instant: Timestamp| instant.duration_since(at(EIGHT)).as_secs();
    let line = |it: &Simulated| {
        let what = match &it.what {
            What::Slot(row) => match row.reason {
                Some(reason) => format!("{} {reason}", row.decision),
                None => row.decision.to_string(),
            },
            What::Turned { due_at, decision, .. } => format!("{} {decision}", seconds(*due_at)),
            What::Began { waited, ends_at, .. } => {
                format!("waited {} until {}", waited.as_secs(), seconds(*ends_at))
            }
            What::Replaced { chain } => format!("{} replaced", seconds(chain.due_at)),
            What::Held(words) => words.clone(),
        };
        format!("{} {} {what}", seconds(it.at), it.job)
    };
    simulation.results.iter().map(line).collect()
}

#[test]
fn what_finds_its_lane_full_waits_for_it() {
    let mut two = planner(&[("a", "1 8 * * *", Overlap::Skip), ("b", "1 8 * * *", Overlap::Skip)]);
    let narrow = lanes(&[("narrow", 1), (GLOBAL, 8)], &[("a", "narrow"), ("b", "narrow")]);
    let told = run(&mut two, "2026-11-30T09:00:00Z", &narrow, Duration::from_secs(90), 100);
    assert_eq!(
        lines(&told),
        ["60 a started", "60 b started", "60 a waited 0 until 150", "150 b waited 90 until 240"]
    );
    assert_eq!(told.peaks, BTreeMap::from([("narrow".into(), 1), (GLOBAL.into(), 1)]));
    assert_eq!(told.stopped_at, None);
}

#[test]
fn a_run_that_gives_way_says_so() {
    let mut one = planner(&[("a", "*/1 8 * * *", Overlap::CancelOther)]);
    let wide = lanes(&[], &[]);
    let told = run(&mut one, "2026-11-30T08:02:00Z", &wide, Duration::from_secs(90), 100);
    assert_eq!(
        lines(&told),
        [
            "60 a started",
            "60 a waited 0 until 150",
            "120 a buffered overlap",
            "120 a 60 replaced",
            "120 a 120 started",
            "120 a waited 0 until 210"
        ]
    );
}

#[test]
fn it_stops_at_the_first_decision_beyond_its_bound() {
    let every = [("a", "* * * * *", Overlap::Skip), ("b", "* * * * *", Overlap::Skip)];
    let wide = lanes(&[(GLOBAL, 8)], &[]);
    let told = run(&mut planner(&every), "2026-11-30T09:00:00Z", &wide, Duration::ZERO, 3);
    let decided = told.results.iter().filter(|it| it.what.is_decision()).count();
    assert_eq!((decided, told.stopped_at), (3, Some(at("2026-11-30T08:02:00Z"))));
    // Exactly as many as there are is no stop.
    let told = run(&mut planner(&every), "2026-11-30T08:02:00Z", &wide, Duration::ZERO, 4);
    assert_eq!((told.results.len(), told.stopped_at), (8, None));
}
