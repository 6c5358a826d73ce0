//! Events in, commands out, under a clock that stands still.

mod patrol;

use super::*;
use crate::daemon::protocol::Target;
use futures_util::FutureExt as _;

use crate::clock::ManualClock;
use crate::config::{Config, JobSet, Sources, load, load_jobs};
use crate::daemon::event::Files;
use crate::job::{Environment, Usd};
use crate::plan::{Memory, Pause, PauseCause, Rules, SlotDecision};
use crate::run::{ErrorKind, State};

const EVERY_MINUTE: &str = "[schedule]\ncron = \"* * * * *\"\n";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A configuration, and jobs with these ids and schedule tables.
fn read(jobs: &[(&str, &str)]) -> (Config, JobSet) {
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
    let config = load(&sources).unwrap().0;
    let set = load_jobs(&config);
    assert!(set.invalid.is_empty(), "{:?}", set.invalid);
    (config, set)
}

/// A dispatcher over these jobs, first seen at 08:00.
fn dispatcher(jobs: &[(&str, &str)], scheduling: Scheduling) -> Dispatcher {
    let set = read(jobs).1;
    let first_seen = at("2026-11-30T08:00:00Z");
    let (mut planner, mut specs) = (Planner::default(), BTreeMap::new());
    for (id, spec) in set.jobs {
        planner.adopt(&id, Rules::of(&spec, first_seen), Memory::since(first_seen), first_seen);
        specs.insert(id, Arc::new(spec));
    }
    let clock = Arc::new(ManualClock::new(first_seen));
    Dispatcher::new(clock, planner, specs, BTreeMap::new(), scheduling)
}

/// That time, on a machine that never sleeps and whose clock is never set.
fn moment(text: &str) -> Now {
    let wall = at(text);
    let since = wall.duration_since(at("2026-11-30T00:00:00Z"));
    Now { wall, since_boot: since.unsigned_abs() }
}

fn ended(run_id: RunId, state: State) -> Event {
    let kind = match state {
        State::Succeeded => None,
        State::Cancelled => Some(ErrorKind::Cancelled),
        _ => Some(ErrorKind::IncompleteStream),
    };
    let end = RunEnd { state, kind, tool_calls: 0, usd: Usd::ZERO, at: at("2026-11-30T08:01:01Z") };
    Event::RunEnded { run_id, end: Some(end) }
}

/// What a step commands, in short.
fn short(commands: &[Command]) -> Vec<String> {
    commands
        .iter()
        .map(|command| match command {
            Command::Record { record, launch, .. } => {
                let rows = record.rows.iter().map(|it| it.decision);
                let turned = record.turned.iter().map(|it| it.decision);
                let decisions: Vec<_> = rows.chain(turned).map(SlotDecision::as_str).collect();
                let starts = launch.as_ref().map_or("nothing", |it| it.run.trigger.as_str());
                format!("{}: {} starts {starts}", record.job, decisions.join("+"))
            }
            Command::Answer(_, reply) => match &**reply {
                Reply::Refused { reason, .. } => format!("refused {reason}"),
                Reply::Cancelled { run_ids } => format!("cancelled {}", run_ids.len()),
                other => format!("{other:?}"),
            },
            Command::Cancel(_, reason) => format!("cancel {reason:?}"),
            Command::Exit => "exit".into(),
            other => format!("{other:?}"),
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
    Event::RunWanted {
        job: job.into(),
        slot: None,
        force,
        sending: crate::store::Sending::Usual,
        answer: tokio::sync::oneshot::channel().0,
    }
}

#[test]
fn all_that_is_due_is_taken_at_one_wake_up_and_never_before() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE), ("b", EVERY_MINUTE)], Scheduling::On);
    let early = moment("2026-11-30T08:00:59.999Z");
    assert_eq!(short(&dispatcher.step(Event::Woke, early)), Vec::<String>::new());
    assert_eq!(dispatcher.wake(), Some(at("2026-11-30T08:01:00Z")));
    assert_eq!(
        short(&dispatcher.step(Event::Woke, moment("2026-11-30T08:01:00Z"))),
        ["a: started starts schedule", "b: started starts schedule"]
    );
}

#[test]
fn overlap_holds_by_the_clock_and_by_hand_until_the_run_has_ended() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
    let run = run_of(&dispatcher.step(Event::Woke, moment("2026-11-30T08:01:00Z")));
    let second = moment("2026-11-30T08:02:00Z");
    assert_eq!(short(&dispatcher.step(Event::Woke, second)), ["a: skipped starts nothing"]);
    assert_eq!(short(&dispatcher.step(wanted("a", true), second)), ["refused overlap"]);
    dispatcher.step(ended(run, State::Succeeded), second);
    assert_eq!(short(&dispatcher.step(wanted("a", false), second)), ["a:  starts manual"]);
}

#[test]
fn a_run_by_hand_does_not_move_the_schedule_and_gets_the_period_since_the_last_slot() {
    let mut dispatcher = dispatcher(&[("a", "[schedule]\ncron = \"0 * * * *\"\n")], Scheduling::On);
    let commands = dispatcher.step(wanted("a", false), moment("2026-11-30T08:20:00Z"));
    match &commands[0] {
        Command::Record { record, launch: Some(launch), .. } => {
            let variables = &launch.ticket.variables;
            assert_eq!(variables.slot_start, at("2026-11-30T08:00:00Z"));
            assert_eq!(variables.slot_end, at("2026-11-30T08:20:00Z"));
            assert_eq!(launch.run.slot, None);
            assert_eq!(record.next_due, Some(at("2026-11-30T09:00:00Z")));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_disabled_job_is_recorded_and_runs_only_by_force() {
    let text = format!("enabled = false\n{EVERY_MINUTE}");
    let mut dispatcher = dispatcher(&[("a", &text)], Scheduling::On);
    let now = moment("2026-11-30T08:01:00Z");
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
    let now = moment("2026-11-30T08:01:00Z");
    let started = dispatcher.step(Event::Woke, now);
    let Command::Record { launch: Some(launch), .. } = &started[0] else { panic!() };
    launch.watchdog.start(crate::executor::RunLimits::default());
    assert_eq!(short(&dispatcher.step(Event::Stop, now)), ["cancel Shutdown"]);
    assert_eq!(dispatcher.wake(), None, "it would be woken again and again for nothing");
    let later = moment("2026-11-30T08:05:00Z");
    assert_eq!(short(&dispatcher.step(Event::Woke, later)), Vec::<String>::new());
    assert_eq!(
        short(&dispatcher.step(Event::GraceOver, later)),
        ["cancel Shutdown", "cancel Shutdown"]
    );
    let ids: Vec<_> = dispatcher.active.keys().cloned().collect();
    assert_eq!(short(&dispatcher.step(ended(ids[0].clone(), State::Succeeded), later)).len(), 0);
    assert_eq!(short(&dispatcher.step(ended(ids[1].clone(), State::Succeeded), later)), ["exit"]);
}

#[test]
fn without_a_schedule_the_daemon_goes_when_its_run_has_ended() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::Off);
    let now = moment("2026-11-30T09:00:00Z");
    assert_eq!(short(&dispatcher.step(Event::Woke, now)), Vec::<String>::new());
    let commands = dispatcher.step(wanted("a", false), now);
    assert_eq!(short(&commands), ["a:  starts manual"]);
    let run = run_of(&commands);
    assert_eq!(short(&dispatcher.step(ended(run, State::Succeeded), now)), ["exit"]);
}

#[test]
fn cancel_names_what_it_hit() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
    let now = moment("2026-11-30T08:01:00Z");
    let run = run_of(&dispatcher.step(Event::Woke, now));
    let cancel = |target| Event::CancelWanted { target, answer: tokio::sync::oneshot::channel().0 };
    let by_run = dispatcher.step(cancel(Target::Run(run.to_string())), now);
    assert_eq!(short(&by_run), ["cancel Person", "cancelled 1"]);
    let by_job = dispatcher.step(cancel(Target::Job("a".into())), now);
    assert_eq!(short(&by_job), ["cancel Person", "cancelled 1"]);
    assert_eq!(short(&dispatcher.step(cancel(Target::Job("b".into())), now)), ["cancelled 0"]);
}

#[test]
fn a_paused_job_is_held_and_runs_only_by_force_until_it_is_resumed() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
    let pause = Pause { cause: PauseCause::Person, words: "moving house".into(), until: None };
    let answer = || tokio::sync::oneshot::channel().0;
    let all = Event::PauseWanted { job: None, pause, answer: answer() };
    assert_eq!(
        short(&dispatcher.step(all, moment("2026-11-30T08:00:30Z"))),
        ["a:  starts nothing"]
    );
    let minute = moment("2026-11-30T08:01:00Z");
    assert_eq!(
        short(&dispatcher.step(wanted("a", false), minute)),
        ["refused paused", "a: held starts nothing"]
    );
    assert_eq!(short(&dispatcher.step(wanted("a", true), minute)), ["a:  starts manual"]);
    let resume = Event::ResumeWanted { job: Some("a".into()), answer: answer() };
    let later = moment("2026-11-30T08:03:00Z");
    assert_eq!(
        short(&dispatcher.step(resume, later)),
        ["a: held+held starts nothing", "a:  starts nothing"],
        "what was due before it was resumed stays held"
    );
}

#[test]
fn a_waiting_run_by_hand_is_woken_when_the_job_is_free() {
    let text = "[schedule]\ncron = \"0 * * * *\"\noverlap = \"buffer_one\"\n";
    let mut dispatcher = dispatcher(&[("a", text)], Scheduling::On);
    let now = moment("2026-11-30T08:01:00Z");
    let first = run_of(&dispatcher.step(wanted("a", false), now));
    let second = dispatcher.step(wanted("a", false), now);
    assert_eq!(short(&second), ["a:  starts manual"], "its row is there while it waits");
    assert_eq!(short(&dispatcher.step(wanted("a", false), now)), ["refused overlap"]);
    let Command::Record { launch: Some(waiting), .. } = &second[0] else { panic!() };
    let turn = waiting.ticket.turn.clone().expect("it waits for the first");
    dispatcher.step(ended(first, State::Succeeded), now);
    assert!(turn.notified().now_or_never().is_some());
}

#[test]
fn a_replaced_run_is_told_so_and_its_successor_waits_for_its_end() {
    let text = "[schedule]\ncron = \"* * * * *\"\noverlap = \"cancel_other\"\n";
    let mut dispatcher = dispatcher(&[("a", text)], Scheduling::On);
    let first = run_of(&dispatcher.step(Event::Woke, moment("2026-11-30T08:01:00Z")));
    let second = moment("2026-11-30T08:02:00Z");
    assert_eq!(
        short(&dispatcher.step(Event::Woke, second)),
        ["a: buffered starts nothing", "cancel Replaced"]
    );
    assert_eq!(
        short(&dispatcher.step(ended(first, State::Cancelled), second)),
        ["a:  starts nothing", "a: started starts schedule"],
        "the end of the first is dealt with, and the second begins"
    );
}

#[test]
fn a_clock_that_was_set_back_is_asked_about_before_anything_else_is_decided() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
    let run = run_of(&dispatcher.step(Event::Woke, moment("2026-11-30T08:01:00Z")));
    dispatcher.step(ended(run, State::Succeeded), moment("2026-11-30T08:01:01Z"));
    let back = Now { wall: at("2026-11-30T07:30:00Z"), ..moment("2026-11-30T08:01:02Z") };
    let commands = dispatcher.step(Event::Woke, back);
    assert!(matches!(commands[..], [Command::Rewind(to)] if to < back.wall), "{commands:?}");
    let minute = Now { wall: at("2026-11-30T07:31:00Z"), ..moment("2026-11-30T08:02:02Z") };
    assert_eq!(short(&dispatcher.step(Event::Woke, minute)).len(), 0);
    let ahead = [("a".parse().unwrap(), (back.wall, Vec::new()))].into();
    assert_eq!(
        short(&dispatcher.step(Event::Rewound(Some(ahead)), minute)),
        ["a: started starts schedule"]
    );
}

/// The files are read, and say that `a` is due each hour.
fn hourly_now() -> Event {
    let (config, jobs) = read(&[("a", "[schedule]\ncron = \"0 * * * *\"\n")]);
    Event::FilesRead(Box::new(Files { config: Ok(Arc::new(config)), jobs, gone: Vec::new() }))
}

#[test]
fn changed_files_hold_from_where_everything_has_been_decided() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
    let minute = moment("2026-11-30T08:01:00Z");
    let commands = dispatcher.step(hourly_now(), minute);
    let Command::Record { record, launch: Some(_), .. } = &commands[0] else { panic!() };
    assert_eq!(record.rows[0].due_at, minute.wall, "what is due is decided as it was");
    let Command::Adopt { at, rows, .. } = &commands[1] else { panic!("{commands:?}") };
    assert_eq!((*at, rows.len()), (minute.wall, 1), "however long the ledger takes");
}

#[test]
fn while_it_stops_no_changed_files_are_taken_over() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
    let minute = moment("2026-11-30T08:01:00Z");
    dispatcher.step(Event::Woke, minute);
    let answer = || Some(tokio::sync::oneshot::channel().0);
    let asked = dispatcher.step(Event::ReloadWanted(answer()), minute);
    assert!(matches!(asked[..], [Command::ReadFiles]), "{asked:?}");
    dispatcher.step(Event::Stop, minute);
    let later = moment("2026-11-30T08:03:00Z");
    assert_eq!(short(&dispatcher.step(hourly_now(), later)), ["refused stopping"]);
    let again = dispatcher.step(Event::ReloadWanted(answer()), later);
    assert_eq!(short(&again), ["refused stopping"]);
    assert_eq!(short(&dispatcher.step(Event::ReloadWanted(None), later)), Vec::<String>::new());
}

#[test]
fn a_job_that_is_back_is_not_decided_again_where_it_has_been() {
    let mut dispatcher = dispatcher(&[("a", EVERY_MINUTE)], Scheduling::On);
    let first = moment("2026-11-30T08:01:00Z");
    let run = run_of(&dispatcher.step(Event::Woke, first));
    dispatcher.step(ended(run, State::Succeeded), first);
    // As the ledger remembered it just before.
    let id: JobId = "a".parse().unwrap();
    let rules = dispatcher.planner.rules_of(&id).unwrap().clone();
    let memory = Memory::since(at("2026-11-30T08:00:00Z"));
    dispatcher.planner.adopt(&id, rules, memory, first.wall);
    let second = moment("2026-11-30T08:02:00Z");
    assert_eq!(short(&dispatcher.step(Event::Woke, second)), ["a: started starts schedule"]);
}
