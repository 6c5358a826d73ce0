//! Slots that wait for a model: asked, held, started, missed.

use super::tests::{EIGHT, alone, at, cron, end, id, now, planner, short, start_of};
use super::*;
use crate::job::{Catchup, Overlap};
use crate::run::{ErrorKind, State};

fn servers(names: &[&str]) -> Arc<[Server]> {
    names.iter().map(|name| Server((*name).into())).collect()
}

/// A job each hour that asks server `s` first.
fn hourly() -> Planner {
    asking("0 * * * *", &["s"])
}

fn asking(text: &str, names: &[&str]) -> Planner {
    let mut planner = planner(&[("a", cron(text))], EIGHT);
    planner.use_servers(&id("a"), servers(names), at(EIGHT));
    planner
}

fn answers(planner: &mut Planner, name: &str, reachable: bool, when: &str) -> Vec<String> {
    short(&planner.probed(&Server(name.into()), reachable, at(when)))
}

#[test]
fn a_slot_is_held_until_a_server_answers_and_the_answer_holds_for_five_minutes() {
    let mut planner = asking("*/4 * * * *", &["s"]);
    let acts = short(&planner.look(now("2026-11-30T08:04:00Z")));
    assert_eq!(acts, ["08:04:00Z held model_unreachable", "ask s"]);
    assert_eq!(planner.wake(), Some(at("2026-11-30T08:04:30Z")));
    let acts = planner.probed(&Server("s".into()), true, at("2026-11-30T08:04:00.020Z"));
    assert_eq!(short(&acts), ["08:04:00Z turned started", "start 08:04:00Z #1 by schedule"]);
    let done = end(State::Succeeded, None, "2026-11-30T08:05:00Z");
    let living = start_of(&acts).id;
    assert_eq!(planner.ended(&id("a"), living, Some(&done), at("2026-11-30T08:05:00Z")), []);

    let acts = planner.look(now("2026-11-30T08:08:00Z"));
    assert_eq!(short(&acts), ["08:08:00Z started", "start 08:08:00Z #1 by schedule"]);
    // A run that found nobody there ends what was known.
    let failed = end(State::Failed, Some(ErrorKind::ModelUnreachable), "2026-11-30T08:08:06Z");
    let living = start_of(&acts).id;
    assert_eq!(planner.ended(&id("a"), living, Some(&failed), at("2026-11-30T08:08:06Z")), []);
    assert_eq!(short(&planner.look(now("2026-11-30T08:08:36Z"))), ["ask s"]);
}

#[test]
fn servers_are_asked_at_half_a_minute_a_minute_and_each_five_until_the_window_is_over() {
    let mut planner = hourly();
    let mut asked = Vec::new();
    let mut told = Vec::new();
    while let Some(wake) = planner.wake().filter(|&wake| wake < at("2026-11-30T10:00:00Z")) {
        let since_boot = wake.duration_since(at("2026-11-30T00:00:00Z")).unsigned_abs();
        for word in short(&planner.look(Now { wall: wake, since_boot })) {
            let time = format!("{wake:.0}")[11..19].to_owned();
            if word.starts_with("ask") { asked.push(time) } else { told.push((time, word)) }
        }
        assert_eq!(answers(&mut planner, "s", false, &wake.to_string()), Vec::<String>::new());
    }
    assert_eq!(
        asked,
        [
            "09:00:00", "09:00:30", "09:01:00", "09:06:00", "09:11:00", "09:16:00", "09:21:00",
            "09:26:00"
        ]
    );
    // Half the distance to the next due instant is the window.
    let expected = [
        ("09:00:00", "09:00:00Z held model_unreachable"),
        ("09:30:00", "09:00:00Z turned missed model_unreachable"),
    ];
    assert_eq!(told, expected.map(|(time, word)| (time.to_owned(), word.to_owned())));
}

#[test]
fn the_next_due_instant_ends_the_waiting_and_begins_its_own() {
    let mut planner = asking("* * * * *", &["s"]);
    let acts = short(&planner.look(now("2026-11-30T08:01:00Z")));
    assert_eq!(acts, ["08:01:00Z held model_unreachable", "ask s"]);
    assert_eq!(short(&planner.look(now("2026-11-30T08:01:30Z"))), ["ask s"]);
    let acts = short(&planner.look(now("2026-11-30T08:02:00Z")));
    assert_eq!(
        acts,
        ["08:01:00Z turned missed model_unreachable", "08:02:00Z held model_unreachable", "ask s"]
    );
    // Several that come at once: the newest waits.
    let mut planner = asking("* * * * * *", &["s"]);
    assert_eq!(
        short(&planner.look(now("2026-11-30T08:00:03Z"))),
        [
            "08:00:01Z missed model_unreachable",
            "08:00:02Z missed model_unreachable",
            "08:00:03Z held model_unreachable",
            "ask s"
        ]
    );
}

#[test]
fn the_first_good_answer_of_any_server_starts_every_job_that_waits_for_it() {
    let mut planner = planner(&[("a", cron("0 * * * *")), ("b", cron("0 * * * *"))], EIGHT);
    planner.use_servers(&id("a"), servers(&["s", "t"]), at(EIGHT));
    planner.use_servers(&id("b"), servers(&["t"]), at(EIGHT));
    let acts = short(&planner.look(now("2026-11-30T09:00:00Z")));
    let held = "09:00:00Z held model_unreachable";
    assert_eq!(acts, [held, "ask s", "ask t", held]);
    let soon = "2026-11-30T09:00:00.100Z";
    assert_eq!(answers(&mut planner, "s", false, soon), Vec::<String>::new());
    let started = ["09:00:00Z turned started", "start 09:00:00Z #1 by schedule"];
    assert_eq!(answers(&mut planner, "t", true, soon), [started, started].concat());
}

#[test]
fn missed_slots_that_wait_one_after_the_other_are_asked_about_once_and_given_up_together() {
    let mut rules = cron("*/10 * * * *");
    (rules.catchup, rules.catchup_window) = (Catchup::All, Some(Duration::from_hours(1)));
    let mut planner = planner(&[("a", rules)], EIGHT);
    planner.use_servers(&id("a"), servers(&["s"]), at(EIGHT));
    let acts = short(&planner.look(now("2026-11-30T08:35:00Z")));
    assert_eq!(
        acts,
        [
            "08:10:00Z held model_unreachable",
            "08:20:00Z buffered overlap",
            "08:30:00Z buffered overlap",
            "ask s"
        ]
    );
    let acts = short(&planner.look(now("2026-11-30T08:40:00Z")));
    assert_eq!(
        acts,
        [
            "08:10:00Z turned missed model_unreachable",
            "08:20:00Z turned skipped model_unreachable",
            "08:30:00Z turned skipped model_unreachable",
            "08:40:00Z held model_unreachable",
            "ask s"
        ]
    );
}

#[test]
fn a_further_attempt_waits_for_a_model_and_begins_all_the_same_when_its_time_is_over() {
    let mut planner = hourly();
    planner.look(now("2026-11-30T09:00:00Z"));
    let acts = planner.probed(&Server("s".into()), true, at("2026-11-30T09:00:00Z"));
    let failed = end(State::Failed, Some(ErrorKind::Network), "2026-11-30T09:00:05Z");
    let living = start_of(&acts).id;
    assert_eq!(planner.ended(&id("a"), living, Some(&failed), at("2026-11-30T09:00:05Z")), []);
    assert_eq!(short(&planner.look(now("2026-11-30T09:00:35Z"))), ["ask s"]);
    assert_eq!(short(&planner.look(now("2026-11-30T09:01:05Z"))), ["ask s"]);
    let started = ["start 09:00:00Z #2 by retry", "settled 09:00:00Z #1"];
    let mut reached = planner.clone();
    assert_eq!(answers(&mut reached, "s", true, "2026-11-30T09:01:05Z"), started);
    let acts = short(&planner.look(now("2026-11-30T09:30:00Z")));
    assert_eq!(acts, [&["ask s"], &started[..]].concat());
}

#[test]
fn what_people_ask_for_is_not_asked_about() {
    let mut planner = hourly();
    assert!(matches!(planner.by_hand(&id("a"), at(EIGHT)).0, ByHand::Starts(_)));
    let mut planner = hourly();
    let past = vec![(at("2026-11-30T07:00:00Z"), 1)];
    let acts = planner.run_past(&id("a"), past, at(EIGHT)).1;
    assert_eq!(short(&acts), ["start 07:00:00Z #1 by backfill"]);
}

#[test]
fn a_run_by_hand_goes_before_a_slot_that_is_held_and_a_pause_ends_the_waiting() {
    let mut held = hourly();
    held.look(now("2026-11-30T09:00:00Z"));
    let (ByHand::Starts(living), _) = held.by_hand(&id("a"), at("2026-11-30T09:00:10Z")) else {
        panic!("nothing of the job lives");
    };
    assert_eq!(answers(&mut held, "s", true, "2026-11-30T09:00:30Z"), Vec::<String>::new());
    let done = end(State::Succeeded, None, "2026-11-30T09:01:00Z");
    let acts = held.ended(&id("a"), living, Some(&done), at("2026-11-30T09:01:00Z"));
    assert_eq!(short(&acts), ["09:00:00Z turned started", "start 09:00:00Z #1 by schedule"]);

    // Also one that waited in line behind the slot.
    let mut rules = cron("0 * * * *");
    rules.overlap = Overlap::BufferAll;
    let mut line = planner(&[("a", rules)], EIGHT);
    line.use_servers(&id("a"), servers(&["s"]), at(EIGHT));
    line.look(now("2026-11-30T09:00:00Z"));
    let (ByHand::Starts(living), _) = line.by_hand(&id("a"), at("2026-11-30T09:00:10Z")) else {
        panic!("nothing of the job lives");
    };
    assert!(matches!(line.by_hand(&id("a"), at("2026-11-30T09:00:11Z")).0, ByHand::Waits(_)));
    let acts = line.ended(&id("a"), living, Some(&done), at("2026-11-30T09:01:00Z"));
    assert_eq!(short(&acts), ["ask s", "release"]);

    let mut planner = hourly();
    planner.look(now("2026-11-30T09:00:00Z"));
    let words = "so".to_owned();
    let pause = Pause { cause: PauseCause::Person, words, until: None };
    let acts = short(&planner.pause(&id("a"), pause, at("2026-11-30T09:00:10Z")));
    assert_eq!(acts, ["09:00:00Z turned missed paused", "held: person"]);
}

#[test]
fn a_slot_that_a_dead_process_held_waits_on_or_is_missed() {
    let nine = at("2026-11-30T09:00:00Z");
    let restarted = |when: &str| {
        let mut planner = Planner::default();
        let memory = Memory { decided_until: nine, ..Memory::since(nine) };
        planner.adopt(&id("a"), cron("0 * * * *"), memory, at(when));
        planner.use_servers(&id("a"), servers(&["s"]), at(when));
        let mut acts =
            short(&planner.waits_again(&id("a"), alone(nine, Waits::ForModel), at(when)));
        acts.extend(short(&planner.look(now(when))));
        acts
    };
    assert_eq!(restarted("2026-11-30T09:29:59Z"), ["ask s"]);
    assert_eq!(restarted("2026-11-30T09:30:00Z"), ["09:00:00Z turned missed model_unreachable"]);
    let mut gone = Planner::default();
    let acts = gone.waits_again(&id("a"), alone(nine, Waits::ForModel), at("2026-11-30T09:10:00Z"));
    assert_eq!(short(&acts), ["09:00:00Z turned missed disabled"]);
}

#[test]
fn servers_that_are_named_no_longer_hold_nothing() {
    let mut planner = hourly();
    planner.look(now("2026-11-30T09:00:00Z"));
    planner.use_servers(&id("a"), servers(&[]), at("2026-11-30T09:00:10Z"));
    let acts = short(&planner.look(now("2026-11-30T09:00:10Z")));
    assert_eq!(acts, ["09:00:00Z turned started", "start 09:00:00Z #1 by schedule"]);
}

#[test]
fn a_slot_of_another_time_is_given_up_and_another_window_holds_it_for_as_long() {
    let mut planner = hourly();
    planner.look(now("2026-11-30T09:00:00Z"));
    let acts = planner.close(&id("a"), at("2026-11-30T09:00:10Z"), Reason::Superseded);
    assert_eq!(short(&acts), ["09:00:00Z turned missed superseded"]);
    let begins = Some(at("2026-11-30T09:00:10Z"));
    let soon = at("2026-11-30T09:00:10Z");
    assert_eq!(planner.replace(&id("a"), cron("* * * * *"), begins, soon), []);
    let acts = short(&planner.look(now("2026-11-30T09:01:00Z")));
    assert_eq!(acts, ["09:01:00Z held model_unreachable", "ask s"]);

    let mut planner = hourly();
    planner.look(now("2026-11-30T09:00:00Z"));
    let mut rules = cron("0 * * * *");
    rules.catchup_window = Some(Duration::from_mins(3));
    assert_eq!(planner.replace(&id("a"), rules, None, soon), []);
    assert_eq!(short(&planner.look(now("2026-11-30T09:02:59Z"))), ["ask s"]);
    let acts = short(&planner.look(now("2026-11-30T09:03:00Z")));
    assert_eq!(acts, ["09:00:00Z turned missed model_unreachable"]);
}

#[test]
fn what_is_held_ahead_of_a_clock_that_was_set_back_is_due_again_at_its_time() {
    let mut planner = hourly();
    planner.look(now("2026-11-30T09:00:00Z"));
    let back = Now { wall: at("2026-11-30T08:30:00Z"), ..now("2026-11-30T09:00:10Z") };
    assert_eq!(short(&planner.look(back)), ["rewind"]);
    let ahead = [(id("a"), (at("2026-11-30T08:30:00Z"), Vec::new()))].into();
    planner.rewound(Some(ahead), at("2026-11-30T08:30:00Z"));
    assert_eq!(answers(&mut planner, "s", false, "2026-11-30T08:30:01Z"), Vec::<String>::new());
    assert_eq!(planner.wake(), Some(at("2026-11-30T09:00:00Z")));
    let again = Now { wall: at("2026-11-30T09:00:00Z"), ..now("2026-11-30T09:30:10Z") };
    assert_eq!(short(&planner.look(again)), ["09:00:00Z held model_unreachable", "ask s"]);
}

#[test]
fn a_slot_that_waits_again_stands_for_what_it_stood_for() {
    let nine = at("2026-11-30T09:00:00Z");
    let mut planner = Planner::default();
    planner.adopt(&id("a"), cron("0 * * * *"), Memory::since(nine), nine);
    planner.use_servers(&id("a"), servers(&["s"]), nine);
    let mut slot = alone(nine, Waits::ForModel);
    (slot.start.stands_for, slot.start.first_due) = (3, at("2026-11-30T07:00:00Z"));
    assert_eq!(planner.waits_again(&id("a"), slot, at("2026-11-30T09:01:00Z")), []);
    let acts = planner.probed(&Server("s".into()), true, at("2026-11-30T09:01:00Z"));
    assert_eq!(acts, [], "it has not asked yet");
    let start = start_of(&planner.look(now("2026-11-30T09:01:00Z")));
    assert_eq!((start.chain.stands_for, start.chain.first_due), (3, at("2026-11-30T07:00:00Z")));
}
