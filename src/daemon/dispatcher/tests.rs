//! Events in, commands out, under a clock that stands still.

use super::*;
use crate::clock::ManualClock;
use crate::config::{Sources, load, load_jobs};
use crate::job::Environment;

const EVERY_MINUTE: &str = "[schedule]\ncron = \"* * * * *\"\n";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A dispatcher over jobs with these ids and schedule tables, first seen at 08:00.
fn dispatcher(jobs: &[(&str, &str)], scheduling: Scheduling) -> Dispatcher {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("jobs")).unwrap();
    std::fs::write(
        dir.path().join("config.toml"),
        "[agents.defaults]\nmodel = \"m/m\"\n[models.providers.m]\napi = \"openai\"\n",
    )
    .unwrap();
    for (id, text) in jobs {
        let text = format!("{text}\n[agent]\nprompt = \"x\"\n");
        std::fs::write(dir.path().join(format!("jobs/{id}.toml")), text).unwrap();
    }
    let sources = Sources {
        config_paths: vec![dir.path().join("config.toml")],
        state_dir: None,
        environment: Environment::fixed([]),
        current_dir: dir.path().to_owned(),
    };
    let set = load_jobs(&load(&sources).unwrap().0);
    assert!(set.invalid.is_empty(), "{:?}", set.invalid);
    let memory = JobMemory {
        first_seen_at: at("2026-11-30T08:00:00Z"),
        decided_until: at("2026-11-30T08:00:00Z"),
        every_anchor: Some(at("2026-11-30T08:00:00Z")),
        was_invalid: false,
    };
    let entries = set
        .jobs
        .into_iter()
        .map(|(id, spec)| (id, JobEntry::new(Arc::new(spec), &memory)))
        .collect();
    let clock = Arc::new(ManualClock::new(at("2026-11-30T08:00:00Z")));
    Dispatcher::new(clock, entries, BTreeMap::new(), scheduling)
}

/// What a step commands, in short.
fn short(commands: &[Command]) -> Vec<String> {
    commands
        .iter()
        .map(|command| match command {
            Command::Record { job, slots, launch, .. } => {
                let decisions: Vec<_> = slots.iter().map(|it| it.decision.as_str()).collect();
                let starts = launch.as_ref().map_or("nothing", |it| it.run.trigger.as_str());
                format!("{job}: {} starts {starts}", decisions.join("+"))
            }
            Command::Answer(_, reply) => match &**reply {
                Reply::Refused { reason, .. } => format!("refused {reason}"),
                Reply::Cancelled { run_ids } => format!("cancelled {}", run_ids.len()),
                other => format!("{other:?}"),
            },
            Command::Cancel(_, reason) => format!("cancel {reason:?}"),
            Command::Exit => "exit".into(),
        })
        .collect()
}

fn run_of(commands: &[Command]) -> RunId {
    let launch = commands.iter().find_map(|command| match command {
        Command::Record { launch: Some(launch), .. } => Some(launch),
        _ => None,
    });
    launch.expect("a run starts").ticket.run_id.clone()
}

fn wanted(job: &str, force: bool) -> Event {
    Event::RunWanted { job: job.into(), slot: None, force, answer: oneshot::channel().0 }
}

#[test]
fn all_that_is_due_is_taken_at_one_wake_up_and_never_before() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE), ("b", EVERY_MINUTE)], Scheduling::On);
    let early = at("2026-11-30T08:00:59.999Z");
    assert_eq!(short(&dispatcher.step(Event::Woke, early)), Vec::<String>::new());
    assert_eq!(dispatcher.next_due(), Some(at("2026-11-30T08:01:00Z")));
    assert_eq!(
        short(&dispatcher.step(Event::Woke, at("2026-11-30T08:01:00Z"))),
        ["a: started starts schedule", "b: started starts schedule"]
    );
}

#[test]
fn overlap_holds_by_the_clock_and_by_hand_until_the_run_has_ended() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
    let run = run_of(&dispatcher.step(Event::Woke, at("2026-11-30T08:01:00Z")));
    let second = at("2026-11-30T08:02:00Z");
    assert_eq!(short(&dispatcher.step(Event::Woke, second)), ["a: skipped starts nothing"]);
    assert_eq!(short(&dispatcher.step(wanted("a", true), second)), ["refused overlap"]);
    dispatcher.step(Event::RunEnded(run), second);
    assert_eq!(short(&dispatcher.step(wanted("a", false), second)), ["a:  starts manual"]);
}

#[test]
fn a_run_by_hand_does_not_move_the_schedule_and_gets_the_period_since_the_last_slot() {
    let mut dispatcher = dispatcher(&[("a", "[schedule]\ncron = \"0 * * * *\"\n")], Scheduling::On);
    let commands = dispatcher.step(wanted("a", false), at("2026-11-30T08:20:00Z"));
    match &commands[0] {
        Command::Record { launch: Some(launch), next_due, .. } => {
            let variables = &launch.ticket.variables;
            assert_eq!(variables.slot_start, at("2026-11-30T08:00:00Z"));
            assert_eq!(variables.slot_end, at("2026-11-30T08:20:00Z"));
            assert_eq!(launch.run.due_at, None);
            assert_eq!(*next_due, Some(at("2026-11-30T09:00:00Z")));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_disabled_job_is_recorded_and_runs_only_by_force() {
    let text = format!("enabled = false\n{EVERY_MINUTE}");
    let mut dispatcher = dispatcher(&[("a", &text)], Scheduling::On);
    let now = at("2026-11-30T08:01:00Z");
    assert_eq!(
        short(&dispatcher.step(wanted("a", false), now)),
        ["refused disabled", "a: skipped starts nothing"]
    );
    assert_eq!(short(&dispatcher.step(wanted("a", true), now)), ["a:  starts manual"]);
    assert_eq!(short(&dispatcher.step(wanted("b", true), now)), ["refused unknown"]);
}

#[test]
fn the_first_signal_ends_what_waits_and_the_grace_ends_the_rest() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE), ("b", EVERY_MINUTE)], Scheduling::On);
    let now = at("2026-11-30T08:01:00Z");
    let started = dispatcher.step(Event::Woke, now);
    let Command::Record { launch: Some(launch), .. } = &started[0] else { panic!() };
    launch.watchdog.start(crate::executor::RunLimits::default());
    assert_eq!(short(&dispatcher.step(Event::Stop, now)), ["cancel Shutdown"]);
    assert_eq!(dispatcher.next_due(), None, "it would be woken again and again for nothing");
    let later = at("2026-11-30T08:05:00Z");
    assert_eq!(short(&dispatcher.step(Event::Woke, later)), Vec::<String>::new());
    assert_eq!(
        short(&dispatcher.step(Event::GraceOver, later)),
        ["cancel Shutdown", "cancel Shutdown"]
    );
    let ids: Vec<_> = dispatcher.active.keys().cloned().collect();
    assert_eq!(short(&dispatcher.step(Event::RunEnded(ids[0].clone()), later)).len(), 0);
    assert_eq!(short(&dispatcher.step(Event::RunEnded(ids[1].clone()), later)), ["exit"]);
}

#[test]
fn without_a_schedule_the_daemon_goes_when_its_run_has_ended() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::Off);
    let now = at("2026-11-30T09:00:00Z");
    assert_eq!(short(&dispatcher.step(Event::Woke, now)), Vec::<String>::new());
    let commands = dispatcher.step(wanted("a", false), now);
    assert_eq!(short(&commands), ["a:  starts manual"]);
    let run = run_of(&commands);
    assert_eq!(short(&dispatcher.step(Event::RunEnded(run), now)), ["exit"]);
}

#[test]
fn cancel_names_what_it_hit() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
    let now = at("2026-11-30T08:01:00Z");
    let run = run_of(&dispatcher.step(Event::Woke, now));
    let cancel = |target| Event::CancelWanted { target, answer: oneshot::channel().0 };
    let by_run = dispatcher.step(cancel(Target::Run(run.to_string())), now);
    assert_eq!(short(&by_run), ["cancel Person", "cancelled 1"]);
    let by_job = dispatcher.step(cancel(Target::Job("a".into())), now);
    assert_eq!(short(&by_job), ["cancel Person", "cancelled 1"]);
    assert_eq!(short(&dispatcher.step(cancel(Target::Job("b".into())), now)), ["cancelled 0"]);
}
