//! What comes after what.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{EIGHT, at, cron, id};
use super::*;
use crate::job::{AfterSpec, Overlap, When};
use crate::plan::{Act, How, SlotEnd, Start};
use crate::run::{ErrorKind, State, Trigger};

/// Jobs that are due each five minutes from eight o'clock on, and what comes after them.
struct Scene {
    planner: Planner,
    now: Timestamp,
    live: Vec<(JobId, Start)>,
    rows: Vec<String>,
}

fn after(jobs: &[&str], when: When) -> Rules {
    let after = AfterSpec { jobs: jobs.iter().map(|job| id(job)).collect(), when };
    let overlap = Overlap::BufferAll;
    Rules { after: Some(after), overlap, ..Rules::idle(None, Availability::Ready) }
}

impl Scene {
    fn new(jobs: Vec<(&str, Rules)>) -> Self {
        let now = at(EIGHT);
        let mut planner = Planner::default();
        for (name, rules) in jobs {
            planner.adopt(&id(name), rules, Memory::since(now), now);
        }
        Self { planner, now, live: Vec::new(), rows: Vec::new() }
    }

    fn keep(&mut self, acts: Vec<Act>) {
        for act in acts {
            let Act::Record(record) = act else { continue };
            for row in &record.rows {
                let reason = row.reason.map_or("", Reason::as_str);
                let due = |at: Timestamp| at.strftime("%H:%M").to_string();
                let range = match row.slots {
                    1 => due(row.due_at),
                    slots => format!("{}..{}x{slots}", due(row.due_at), due(row.due_until)),
                };
                let told = format!("{} {range} {} {reason}", record.job, row.decision);
                self.rows.push(told.trim_end().to_owned());
            }
            for turned in &record.turned {
                self.rows.push(format!("{} turned {}", record.job, turned.decision));
            }
            if let Some(start) = record.start {
                self.live.push((record.job.clone(), start));
            }
        }
    }

    fn pass(&mut self, seconds: i64) -> Vec<String> {
        self.now += SignedDuration::from_secs(seconds);
        let since_boot = self.now.duration_since(at(EIGHT));
        let since_boot = Duration::try_from(since_boot).unwrap();
        let acts = self.planner.look(Now { wall: self.now, since_boot });
        self.keep(acts);
        std::mem::take(&mut self.rows)
    }

    /// The oldest living run of the job ends.
    fn end(&mut self, job: &str, state: State) -> Vec<String> {
        let index = self.live.iter().position(|(id, _)| id.as_str() == job);
        let (id, start) = self.live.remove(index.unwrap_or_else(|| panic!("{job} does not live")));
        let kind = match state {
            State::Succeeded => None,
            State::Cancelled => Some(ErrorKind::Cancelled),
            State::Interrupted => Some(ErrorKind::Interrupted),
            _ => Some(ErrorKind::Validation),
        };
        let end = RunEnd { state, kind, ..self.template() };
        let acts = self.planner.ended(&id, start.id, Some(&end), self.now);
        self.keep(acts);
        std::mem::take(&mut self.rows)
    }

    fn template(&self) -> RunEnd {
        RunEnd {
            state: State::Succeeded,
            kind: None,
            tool_calls: 0,
            usd: crate::job::Usd::ZERO,
            at: self.now,
        }
    }
}

fn five() -> Rules {
    cron("*/5 * * * *")
}

#[test]
fn what_comes_after_starts_for_the_slot_whose_run_has_ended_as_it_wants() {
    use State::{Cancelled, Failed, Interrupted, Succeeded, TimedOut};
    let table: [(When, &[(State, bool)]); 3] = [
        (When::Succeeded, &[(Succeeded, true), (Failed, false), (Cancelled, false)]),
        (
            When::Failed,
            &[
                (Succeeded, false),
                (Failed, true),
                (TimedOut, true),
                (Interrupted, true),
                (Cancelled, false),
            ],
        ),
        (
            When::Finished,
            &[(Succeeded, true), (Failed, true), (Interrupted, true), (Cancelled, false)],
        ),
    ];
    for (when, ends) in table {
        for &(state, starts) in ends {
            let mut scene = Scene::new(vec![("a", five()), ("d", after(&["a"], when))]);
            assert_eq!(scene.pass(300), ["a 08:05 started"]);
            let said = if starts { "d 08:05 started" } else { "d 08:05 skipped upstream" };
            let rows = scene.end("a", state);
            assert!(rows.contains(&said.to_owned()), "{when} {state}: {rows:?}");
            if starts {
                let (_, start) = scene.live.last().unwrap();
                assert_eq!((start.trigger, start.start_at), (Trigger::After, scene.now));
                assert_eq!(start.chain.due_at, at("2026-11-30T08:05:00Z"));
            }
        }
    }
}

#[test]
fn only_the_last_attempt_counts() {
    let rules = Rules { retry: crate::job::RetrySpec::default(), ..five() };
    let mut scene = Scene::new(vec![("a", rules), ("d", after(&["a"], When::Failed))]);
    scene.pass(300);
    let (id, start) = scene.live.remove(0);
    let failed =
        RunEnd { state: State::Failed, kind: Some(ErrorKind::CommandFailed), ..scene.template() };
    let acts = scene.planner.ended(&id, start.id, Some(&failed), scene.now);
    scene.keep(acts);
    assert_eq!(std::mem::take(&mut scene.rows), Vec::<String>::new());
    scene.pass(31);
    assert_eq!(scene.end("a", State::Succeeded), ["d 08:05 skipped upstream"]);
}

#[test]
fn several_meet_in_a_slot_and_the_first_that_fails_ends_the_wait() {
    let both = || after(&["a", "b"], When::Succeeded);
    let mut scene = Scene::new(vec![("a", five()), ("b", five()), ("d", both())]);
    scene.pass(300);
    assert_eq!(scene.end("a", State::Succeeded), Vec::<String>::new());
    assert_eq!(scene.end("b", State::Succeeded), ["d 08:05 started"]);
    scene.end("d", State::Succeeded);
    scene.pass(300);
    assert_eq!(scene.end("b", State::Failed), ["d 08:10 skipped upstream"]);
    assert_eq!(scene.end("a", State::Succeeded), Vec::<String>::new(), "it is decided");
}

#[test]
fn it_is_due_when_all_before_it_are() {
    let jobs =
        vec![("a", five()), ("b", cron("0 * * * *")), ("d", after(&["a", "b"], When::Succeeded))];
    let mut scene = Scene::new(jobs);
    scene.pass(300);
    assert_eq!(scene.end("a", State::Succeeded), Vec::<String>::new());
    for _ in 0..10 {
        scene.pass(300);
        assert_eq!(scene.end("a", State::Succeeded), Vec::<String>::new());
    }
    assert_eq!(scene.pass(300), ["a 09:00 started", "b 09:00 started"]);
    assert_eq!(scene.end("a", State::Succeeded), Vec::<String>::new());
    assert_eq!(scene.end("b", State::Succeeded), ["d 09:00 started"]);
    scene.end("d", State::Succeeded);
    // While nobody looked, what both were due for is one slot.
    let rows = scene.pass(3 * 3600 + 60);
    let of_d: Vec<_> = rows.iter().filter(|row| row.starts_with("d ")).collect();
    assert_eq!(of_d, ["d 10:00..11:00x2 skipped upstream"], "{rows:?}");
}

#[test]
fn chains_go_on_to_their_end_and_ranges_stay_ranges() {
    let jobs = vec![
        ("a", five()),
        ("b", after(&["a"], When::Succeeded)),
        ("c", after(&["b"], When::Finished)),
    ];
    let mut scene = Scene::new(jobs);
    scene.pass(300);
    assert_eq!(scene.end("a", State::Succeeded), ["b 08:05 started"]);
    assert_eq!(scene.end("b", State::Failed), ["c 08:05 started"]);
    scene.end("c", State::Succeeded);
    let rows = scene.pass(3600);
    let missed = ["b 08:10..09:00x11 skipped upstream", "c 08:10..09:00x11 skipped upstream"];
    for row in missed {
        assert!(rows.contains(&row.to_owned()), "{rows:?}");
    }
    assert_eq!(
        scene.end("a", State::Failed),
        ["b 09:05 skipped upstream", "c 09:05 skipped upstream"]
    );
}

#[test]
fn slots_wait_for_each_other_and_pauses_hold_them() {
    let mut scene = Scene::new(vec![("a", five()), ("d", after(&["a"], When::Succeeded))]);
    for _ in 0..3 {
        scene.pass(300);
        scene.end("a", State::Succeeded);
    }
    assert_eq!(scene.planner.waiting_of(&id("d")), 2);
    assert_eq!(scene.end("d", State::Succeeded), ["d turned started"]);
    let words = "later".to_owned();
    let pause = Pause { cause: PauseCause::Person, words, until: None };
    let acts = scene.planner.pause(&id("d"), pause, scene.now);
    scene.keep(acts);
    assert_eq!(std::mem::take(&mut scene.rows), ["d turned skipped"]);
    scene.pass(300);
    assert_eq!(scene.end("a", State::Succeeded), ["d 08:20 held paused"]);
}

#[test]
fn what_is_heard_late_or_twice_starts_nothing() {
    let mut scene = Scene::new(vec![("a", five()), ("d", after(&["a"], When::Succeeded))]);
    scene.pass(3 * 3600);
    scene.rows.clear();
    let due = |text: &str| at(&format!("2026-11-30T{text}:00Z"));
    let end = |first, last, ended| SlotEnd {
        job: id("a"),
        first: due(first),
        last: due(last),
        how: How::Succeeded,
        at: due(ended),
    };
    let mut scene = Scene::new(vec![("a", five()), ("d", after(&["a"], When::Succeeded))]);
    scene.now = due("12:00");
    let ends = vec![end("08:05", "08:05", "09:00"), end("08:10", "08:10", "11:30")];
    let acts = scene.planner.hear(ends.clone(), scene.now);
    scene.keep(acts);
    assert_eq!(std::mem::take(&mut scene.rows), ["d 08:05 missed too_late", "d 08:10 started"]);
    let acts = scene.planner.hear(ends, scene.now);
    assert_eq!(acts, []);
    // What was due before the job was there is not its own.
    let acts = scene.planner.hear(vec![end("07:55", "07:55", "11:30")], scene.now);
    assert_eq!(acts, []);
}

#[test]
fn a_backfill_starts_nothing_after_it() {
    let mut scene = Scene::new(vec![("a", five()), ("d", after(&["a"], When::Succeeded))]);
    let (_, acts) =
        scene.planner.run_past(&id("a"), vec![(at("2026-11-30T08:30:00Z"), 1)], scene.now);
    scene.keep(acts);
    assert_eq!(scene.end("a", State::Succeeded), Vec::<String>::new());
}

/// The rows of a job as counts of instants by their decision, and whether any instant has two.
fn instants(rows: &[String], job: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for row in rows.iter().filter(|row| row.starts_with(&format!("{job} "))) {
        let [_, range, decision, ..] = row.split(' ').collect::<Vec<_>>()[..] else { continue };
        if range == "turned" {
            continue;
        }
        let (first, last) = match range.split_once("..") {
            Some((first, rest)) => (first, rest.split('x').next().unwrap()),
            None => (range, range),
        };
        let minutes = |text: &str| {
            let (hours, minutes) = text.split_once(':').unwrap();
            hours.parse::<u32>().unwrap() * 60 + minutes.parse::<u32>().unwrap()
        };
        for at in (minutes(first)..=minutes(last)).step_by(5) {
            let key = format!("{:02}:{:02}", at / 60, at % 60);
            let known = all.insert(key, decision.to_owned());
            assert_eq!(known, None, "{at} of {job} is decided twice");
        }
    }
    all
}

proptest! {
    /// Whatever happens upstream, each of its slots is one of the job after it, once it has ended.
    #[test]
    fn no_slot_is_lost_on_the_way_down(
        steps in proptest::collection::vec((0..3_u8, 1..900_i64, 0..4_usize), 1..40),
    ) {
        let jobs = vec![
            ("a", five()),
            ("b", after(&["a"], When::Succeeded)),
            ("c", after(&["a", "b"], When::Finished)),
        ];
        let mut scene = Scene::new(jobs);
        let mut rows = Vec::new();
        let states = [State::Succeeded, State::Failed, State::Cancelled, State::Interrupted];
        for (what, seconds, which) in steps {
            if scene.now.strftime("%H").to_string().parse::<u32>().unwrap() >= 22 {
                break;
            }
            rows.extend(scene.pass(seconds));
            let job = ["a", "b", "c"][usize::from(what)];
            if scene.live.iter().any(|(id, _)| id.as_str() == job) {
                rows.extend(scene.end(job, states[which]));
            }
        }
        // All that lives comes to its end.
        for job in ["a", "b", "c"] {
            while scene.live.iter().any(|(id, _)| id.as_str() == job) {
                rows.extend(scene.end(job, State::Succeeded));
            }
        }
        let [a, b, c] = ["a", "b", "c"].map(|job| instants(&rows, job));
        let due = |rows: &BTreeMap<String, String>| rows.keys().cloned().collect::<Vec<_>>();
        prop_assert_eq!(due(&a), due(&b));
        prop_assert_eq!(due(&a), due(&c));
    }
}
