//! Sessions that do not move, under a clock that is moved by hand.

use super::*;
use crate::config::Thresholds;
use crate::daemon::event::{Drain, RecoveryEnd};
use crate::daemon::protocol::{RecoveryAct, RecoveryResult, Status};
use crate::executor::{RunLimits, Tripped};
use crate::job::Usd;
use crate::run::Phase as RunPhase;
use crate::session::{Generation, Liveness};
use crate::store::{AuditKind, AuditRow};

const WARN: Duration = Duration::from_mins(2);
const ABORT: Duration = Duration::from_mins(6);
const BY_HAND: &str = "";

/// A dispatcher with one run, which waits for its start, and the commands that hold it.
fn one_run() -> (Dispatcher, Arc<ManualClock>, Vec<Command>) {
    let mut dispatcher = dispatcher(&[("a", BY_HAND)], Scheduling::On);
    let clock = Arc::new(ManualClock::new(at("2026-11-30T08:00:00Z")));
    dispatcher.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    dispatcher.patrol.thresholds = Some(Thresholds { warn: WARN, abort: ABORT });
    let commands = dispatcher.step(wanted("a", false), clock.now());
    (dispatcher, clock, commands)
}

/// The watchdog of a run, without keeping it alive.
fn watchdog(dispatcher: &Dispatcher) -> &Watchdog {
    &dispatcher.active.values().next().unwrap().watchdog
}

fn asks_a_model(dispatcher: &Dispatcher) {
    watchdog(dispatcher).start(RunLimits::default());
    watchdog(dispatcher).entered(RunPhase::ModelCall);
}

fn patrol(dispatcher: &mut Dispatcher, clock: &ManualClock) -> Vec<Command> {
    dispatcher.step(Event::Patrol, clock.now())
}

/// What is written into the audit ledger.
fn audited(commands: &[Command]) -> Vec<(AuditKind, &'static str)> {
    let row = |command: &Command| match command {
        Command::Audit(AuditRow { kind, result, .. }) => Some((*kind, result.unwrap())),
        _ => None,
    };
    commands.iter().filter_map(row).collect()
}

fn drains(commands: &[Command]) -> Vec<Drain> {
    let drain = |command: &Command| match command {
        Command::Rescue(rescue) => Some(rescue.drain),
        _ => None,
    };
    commands.iter().filter_map(drain).collect()
}

fn status(dispatcher: &mut Dispatcher, clock: &ManualClock) -> Status {
    let (answer, answered) = tokio::sync::oneshot::channel();
    let commands = dispatcher.step(Event::StatusWanted(answer), clock.now());
    for command in commands {
        if let Command::Answer(answer, reply) = command {
            answer.send(*reply).unwrap();
        }
    }
    match answered.now_or_never().unwrap().unwrap() {
        Reply::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn liveness(dispatcher: &mut Dispatcher, clock: &ManualClock) -> Option<Liveness> {
    status(dispatcher, clock).runs[0].attention.map(|attention| attention.liveness)
}

fn results(dispatcher: &mut Dispatcher, clock: &ManualClock) -> Vec<Option<RecoveryResult>> {
    status(dispatcher, clock).recoveries.iter().map(|it| it.result).collect()
}

fn stuck() -> RunEnd {
    let at = at("2026-11-30T08:07:00Z");
    RunEnd { state: State::Failed, kind: Some(ErrorKind::Stuck), tool_calls: 0, usd: Usd::ZERO, at }
}

#[test]
fn a_silent_model_call_is_reported_and_then_ended_once() {
    let (mut dispatcher, clock, started) = one_run();
    let run_id = run_of(&started);
    asks_a_model(&dispatcher);
    clock.advance(WARN);
    assert_eq!(patrol(&mut dispatcher, &clock).len(), 0);
    assert_eq!(liveness(&mut dispatcher, &clock), Some(Liveness::LongRunning));
    assert_eq!(watchdog(&dispatcher).tripped().now_or_never(), None);

    clock.advance(ABORT.saturating_sub(WARN));
    let commands = patrol(&mut dispatcher, &clock);
    assert_eq!(audited(&commands), [(AuditKind::StuckRequested, "abort")]);
    let cut = Tripped::Cancelled(CancelReason::Stuck(ABORT));
    assert_eq!(watchdog(&dispatcher).tripped().now_or_never(), Some(cut));
    assert_eq!(liveness(&mut dispatcher, &clock), Some(Liveness::Stalled));
    assert_eq!(results(&mut dispatcher, &clock), [None]);

    // One recovery at a time, and none of what ends already.
    clock.advance(WARN);
    assert_eq!(patrol(&mut dispatcher, &clock).len(), 0);
    let ended = Event::RunEnded { run_id, end: Some(stuck()) };
    let commands = dispatcher.step(ended, clock.now());
    assert_eq!(audited(&commands), [(AuditKind::StuckCompleted, "drained")]);
    let shown = status(&mut dispatcher, &clock).recoveries;
    let shown: Vec<_> = shown.iter().map(|it| (it.act, it.result)).collect();
    assert_eq!(shown, [(RecoveryAct::Abort, Some(RecoveryResult::Drained))]);
}

#[test]
fn a_run_that_moves_now_and_then_is_left_alone_for_hours() {
    let (mut dispatcher, clock, started) = one_run();
    asks_a_model(&dispatcher);
    for minute in 0..600 {
        clock.advance(Duration::from_mins(1));
        assert_eq!(patrol(&mut dispatcher, &clock).len(), 0, "{minute}");
        assert_eq!(liveness(&mut dispatcher, &clock), None);
        watchdog(&dispatcher).pulse();
    }
    // Neither is one that waits for its lane, or whose tool may take as long as this.
    let (mut dispatcher, clock, waits) = one_run();
    clock.advance(Duration::from_hours(9));
    assert_eq!(patrol(&mut dispatcher, &clock).len(), 0);
    asks_a_model(&dispatcher);
    watchdog(&dispatcher).entered(RunPhase::Tool);
    clock.advance(Duration::from_mins(10));
    assert_eq!(patrol(&mut dispatcher, &clock).len(), 0);
    assert_eq!(liveness(&mut dispatcher, &clock), Some(Liveness::LongRunning));
    drop((started, waits));
}

#[test]
fn a_run_that_ends_by_itself_first_says_so() {
    let (mut dispatcher, clock, started) = one_run();
    let run_id = run_of(&started);
    asks_a_model(&dispatcher);
    clock.advance(ABORT);
    patrol(&mut dispatcher, &clock);
    let commands = dispatcher.step(ended(run_id, State::Succeeded), clock.now());
    assert_eq!(audited(&commands), [(AuditKind::StuckCompleted, "ended_by_itself")]);
}

#[test]
fn a_run_that_nobody_drives_frees_its_lane_as_soon_as_nothing_of_it_lives() {
    let (mut dispatcher, clock, started) = one_run();
    let run_id = run_of(&started);
    let generation = dispatcher.active[&run_id].watch.generation();
    clock.advance(WARN);
    assert_eq!(patrol(&mut dispatcher, &clock).len(), 0, "somebody has it");

    drop(started);
    let commands = patrol(&mut dispatcher, &clock);
    assert_eq!(audited(&commands), [(AuditKind::StuckRequested, "release")]);
    assert_eq!(drains(&commands), [Drain::Nothing]);
    assert_eq!(liveness(&mut dispatcher, &clock), Some(Liveness::Stuck));
    assert_eq!(patrol(&mut dispatcher, &clock).len(), 0, "a recovery goes on already");

    // Something of it lives: not freed, and ended when it has been silent for too long.
    let alive = |run_id| Event::RecoveryEnded { run_id, generation, end: RecoveryEnd::Alive };
    let commands = dispatcher.step(alive(run_id.clone()), clock.now());
    assert_eq!(audited(&commands), [(AuditKind::StuckCompleted, "alive")]);
    assert_eq!(patrol(&mut dispatcher, &clock).len(), 0);
    assert_eq!(liveness(&mut dispatcher, &clock), Some(Liveness::Stalled));
    clock.advance(ABORT);
    assert_eq!(drains(&patrol(&mut dispatcher, &clock)), [Drain::Processes]);

    // What was found out about another generation decides nothing.
    let released = |generation| Event::RecoveryEnded {
        run_id: run_id.clone(),
        generation,
        end: RecoveryEnd::Released(stuck()),
    };
    assert_eq!(dispatcher.step(released(Generation::default()), clock.now()).len(), 0);
    assert_eq!(dispatcher.active(), 1);
    let commands = dispatcher.step(released(generation), clock.now());
    assert_eq!(audited(&commands), [(AuditKind::StuckCompleted, "released")]);
    assert_eq!(dispatcher.active(), 0);
    let commands = dispatcher.step(wanted("a", false), clock.now());
    assert_eq!(short(&commands), ["a:  starts manual"]);
}

#[test]
fn nobody_looks_while_nothing_is_active_or_when_it_is_switched_off() {
    let (mut dispatcher, clock, started) = one_run();
    let run_id = run_of(&started);
    asks_a_model(&dispatcher);
    assert_eq!(dispatcher.patrol_every(), Some(Duration::from_secs(30)));
    let warn = Duration::from_secs(3);
    dispatcher.patrol.thresholds = Some(Thresholds { warn, abort: ABORT });
    assert_eq!(dispatcher.patrol_every(), Some(warn));

    dispatcher.patrol.thresholds = None;
    clock.advance(ABORT);
    assert_eq!(dispatcher.patrol_every(), None);
    assert_eq!(patrol(&mut dispatcher, &clock).len(), 0);
    assert_eq!(liveness(&mut dispatcher, &clock), None);

    dispatcher.patrol.thresholds = Some(Thresholds::default());
    dispatcher.step(ended(run_id, State::Succeeded), clock.now());
    assert_eq!(dispatcher.patrol_every(), None);
}
