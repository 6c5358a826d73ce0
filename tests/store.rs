//! The ledger on a real file: once, no gap, nothing lost, nothing written by readers.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use punctual::job::{JobId, Usd};
use punctual::plan::{
    Account, Chain, Claim, Pause, PauseCause, PauseChange, PlannedSlot, Reason, Record, RunEnd,
    Settled, SlotDecision, SlotStart, Then, Turned, WaitingSlot, Waits,
};
use punctual::provider::Usage;
use punctual::run::{
    Cleanup, CleanupStep, ErrorKind, Failure, Findings, Limit, Outcome, Payload, Phase, RunId,
    SessionId, State, StepOutcome, Trigger, Work,
};
use punctual::store::{
    AttemptEnd, AttemptStart, Definition, Ended, JobRow, NewRun, Owner, QueryLimits, Queued,
    Reader, Recorded, Recovered, RunFilter, RunSlot, Sending, SlotFilter, Store, StoreError,
    database_in,
};
use serde_json::{Value, json};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-11-30T09:00:00.250Z")
}

fn owner() -> Owner {
    Owner { boot_id: "boot".into(), pid: 1, started: 2, host: "host".into() }
}

/// The file in other hands than ours.
fn by_an_admin(dir: &Path) -> rusqlite::Connection {
    use rusqlite::OpenFlags;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    rusqlite::Connection::open_with_flags(database_in(dir), flags).unwrap()
}

fn job() -> JobId {
    "daily".parse().unwrap()
}

fn row(hash: &str) -> JobRow {
    JobRow {
        job: "daily".into(),
        file: "jobs/daily.toml".into(),
        description: Some("What changed".into()),
        owner: Some("ops".into()),
        labels: r#"{"tier":"gold"}"#.into(),
        enabled: true,
        invalid_reason: None,
        definition: Some(Definition {
            hash: hash.into(),
            effective: "{}".into(),
            timing: r#"{"cron":"0 9 * * *"}"#.into(),
            schedule: Some("0 9 * * *".into()),
            timezone: Some("UTC".into()),
            one_shot: None,
            sends: None,
        }),
    }
}

async fn store(dir: &Path) -> Store {
    let store = Store::open(dir, owner()).unwrap();
    store.adopt_jobs(vec![row("hash")], vec![], at("2026-11-30T08:00:00Z")).await.unwrap();
    store
}

fn slot(decision: SlotDecision) -> PlannedSlot {
    PlannedSlot {
        due_at: at("2026-11-30T09:00:00Z"),
        due_until: at("2026-11-30T09:00:00Z"),
        slots: 1,
        start_at: at("2026-11-30T09:00:00Z"),
        decision,
        reason: None,
        start: None,
    }
}

fn record(rows: Vec<PlannedSlot>) -> Record {
    Record { rows, ..Record::new(&job(), None) }
}

fn run(id: &str) -> NewRun {
    let due_at = at("2026-11-30T09:00:00Z");
    NewRun {
        run_id: RunId::from_stored(id),
        trigger: Trigger::Schedule,
        slot: Some(RunSlot { due_at, start_at: due_at, stands_for: 1, first_due: due_at }),
        attempt: 1,
        session_id: SessionId::from_stored("session"),
        definition_hash: "hash".into(),
        sending: Sending::Usual,
        session: None,
        letters: Vec::new(),
        ad_hoc: None,
    }
}

fn by_hand(id: &str) -> NewRun {
    NewRun { slot: None, trigger: Trigger::Manual, ..run(id) }
}

async fn write(store: &Store, record: Record, run: Option<NewRun>) -> Recorded {
    store.record(record, run, now()).await.unwrap().recorded().await.unwrap()
}

async fn start(store: &Store, id: &str) -> RunId {
    let started = record(vec![slot(SlotDecision::Started)]);
    assert_eq!(write(store, started, Some(run(id))).await, Recorded::New);
    let run_id = RunId::from_stored(id);
    store.start_run(&run_id, now()).await.unwrap();
    run_id
}

async fn start_by_hand(store: &Store, id: &str) -> RunId {
    assert_eq!(write(store, record(vec![]), Some(by_hand(id))).await, Recorded::New);
    let run_id = RunId::from_stored(id);
    store.start_run(&run_id, now()).await.unwrap();
    run_id
}

fn work(outcome: Outcome) -> Work {
    let error = outcome.failure().map(|failure| failure.message.as_str());
    let reply = match &outcome {
        Outcome::Succeeded { reply } => Some(reply.as_str()),
        Outcome::Ended { .. } => None,
    };
    Work {
        payloads: Payload::plain(reply, error, "NO_REPLY"),
        outcome,
        tool_calls: 3,
        tool_errors: 1,
        denied_calls: 1,
        unchecked: false,
        exit_code: None,
        gate_digest: None,
    }
}

fn succeeded() -> Work {
    work(Outcome::Succeeded { reply: "all good".into() })
}

fn cleanup() -> Cleanup {
    let step = |step, outcome, detail: Option<&str>| CleanupStep {
        step,
        outcome,
        started_at: now(),
        duration: Duration::from_millis(4),
        detail: detail.map(Into::into),
    };
    Cleanup {
        steps: vec![
            step("model_stream", StepOutcome::Clean, None),
            step("processes", StepOutcome::Forced, Some("ended 2 processes")),
        ],
        duration: Duration::from_millis(9),
        killed_processes: 2,
        leaked: vec![],
    }
}

#[tokio::test]
async fn a_slot_is_decided_once_whoever_decides_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    start(&store, "run1").await;
    // The same slot again, with another run: nothing of it is recorded.
    let again = record(vec![slot(SlotDecision::Started)]);
    assert_eq!(write(&store, again, Some(run("run2"))).await, Recorded::AlreadyDecided);
    // A second process with a second store is no different, whatever rows it brings.
    let other = Store::open(dir.path(), owner()).unwrap();
    assert_eq!(write(&other, record(vec![]), Some(run("run3"))).await, Recorded::AlreadyDecided);
    let range = PlannedSlot {
        due_at: at("2026-11-30T08:30:00Z"),
        due_until: at("2026-11-30T09:30:00Z"),
        slots: 3,
        ..slot(SlotDecision::Missed)
    };
    assert_eq!(write(&other, record(vec![range]), None).await, Recorded::AlreadyDecided);
    let reader = store.reader().unwrap();
    assert_eq!(reader.runs(&RunFilter { limit: 9, ..RunFilter::default() }).unwrap().len(), 1);
    assert_eq!(reader.slots(&SlotFilter { limit: 9, ..SlotFilter::default() }).unwrap().len(), 1);
}

#[tokio::test]
async fn the_whole_life_of_a_run_reads_back_as_the_contract_prints_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let run_id = start(&store, "run1").await;
    let attempt = AttemptStart {
        auth_profile: None,
        n: 1,
        model: "local/default".into(),
        idle_window: Some(Duration::from_mins(1)),
        idle_rule: "scheduled",
    };
    store.start_attempt(&run_id, attempt, now()).await.unwrap();
    let end = AttemptEnd {
        n: 1,
        state: State::Succeeded,
        error_kind: None,
        duration: Duration::from_millis(700),
        usage: Usage { input_tokens: Some(12), output_tokens: Some(4), ..Usage::default() },
        usd: None,
    };
    store.record_work(&run_id, succeeded(), Some(end)).await.unwrap().wait().await.unwrap();
    let between = store.reader().unwrap().run("run1").unwrap().unwrap();
    assert_eq!((between.state.as_str(), between.reply.as_deref()), ("running", Some("all good")));
    store
        .finish_run(&run_id, cleanup(), Findings::default(), None, at("2026-11-30T09:00:01.062Z"))
        .await
        .unwrap();

    let run = store.reader().unwrap().run("run1").unwrap().unwrap();
    assert_eq!(
        serde_json::to_value(run).unwrap(),
        json!({
            "run_id": "run1", "job": "daily", "trigger": "schedule",
            "due_at": "2026-11-30T09:00:00.000Z", "attempt": 1, "slots": 1, "state": "succeeded",
            "queued_at": "2026-11-30T09:00:00.250Z", "started_at": "2026-11-30T09:00:00.250Z",
            "finished_at": "2026-11-30T09:00:01.062Z", "duration_ms": 812, "late_ms": 250,
            "session_id": "session", "session_key": null, "model": "local/default", "reply": "all good",
            "partial_text": null, "payloads": [{"kind": "text", "text": "all good"}], "error": null,
            "attempts": [{
                "model": "local/default", "state": "succeeded", "error_kind": null,
                "started_at": "2026-11-30T09:00:00.250Z", "duration_ms": 700,
                "idle_window_ms": 60000, "idle_rule": "scheduled",
            }],
            "usage": {"input_tokens": 12, "output_tokens": 4, "usd": null},
            "tools": {"calls": 3, "errors": 1, "denied": 1},
            "cleanup": {
                "outcome": "forced", "duration_ms": 9, "killed_processes": 2, "leaked": [],
                "steps": [
                    {"step": "model_stream", "outcome": "clean", "duration_ms": 4, "detail": null},
                    {"step": "processes", "outcome": "forced", "duration_ms": 4, "detail": "ended 2 processes"},
                ],
            },
            "checks": [], "deliveries": [], "artifacts": [], "prompt": [], "exit_code": null, "definition_hash": "hash",
        })
    );
}

#[tokio::test]
async fn a_terminal_state_never_changes() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let run_id = start(&store, "run1").await;
    let late = Failure::new(ErrorKind::Deadline, "too late")
        .by_limit(Limit::Deadline, Some(Duration::from_secs(2)))
        .in_phase(Phase::ModelCall);
    let cut = Outcome::ended(late, Some("half an ans".into()));
    store.record_work(&run_id, work(cut), None).await.unwrap().wait().await.unwrap();
    // The answer of the abandoned turn comes after all.
    store.record_work(&run_id, succeeded(), None).await.unwrap().wait().await.unwrap();
    store.finish_run(&run_id, cleanup(), Findings::default(), None, now()).await.unwrap();
    store.record_work(&run_id, succeeded(), None).await.unwrap().wait().await.unwrap();
    store.finish_run(&run_id, cleanup(), Findings::default(), None, now()).await.unwrap();
    let run = store.reader().unwrap().run("run1").unwrap().unwrap();
    assert_eq!(
        (run.state.as_str(), run.reply, run.partial_text.as_deref()),
        ("timed_out", None, Some("half an ans"))
    );
    let error = run.error.unwrap();
    assert_eq!(
        (error.limit, error.limit_ms, error.phase),
        (Some(Limit::Deadline), Some(2000), Some(Phase::ModelCall))
    );
    assert_eq!(run.cleanup.unwrap().steps.len(), 2);
    // Not even by hand.
    let db = by_an_admin(dir.path());
    let refused = db.execute("UPDATE runs SET state = 'succeeded'", []).unwrap_err();
    assert!(refused.to_string().contains("a terminal state never changes"), "{refused}");
}

#[tokio::test]
async fn what_a_dead_process_left_open_is_closed_once() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path()).await;
    let unfinished = start(&first, "run1").await;
    let ended = start_by_hand(&first, "run2").await;
    first.record_work(&ended, succeeded(), None).await.unwrap().wait().await.unwrap();
    drop(first);

    let second = store(dir.path()).await;
    let everybody_lives = second.recover(|_| true, Queued::TakenOver, now()).await.unwrap();
    assert_eq!((everybody_lives.interrupted, everybody_lives.alive.len()), (0, 2));
    let later = at("2026-11-30T09:05:00Z");
    let recovered = second.recover(|_| false, Queued::TakenOver, later).await.unwrap();
    assert_eq!((recovered.finished, recovered.interrupted), (1, 1));
    let chain = Chain { ended: 0, ..Chain::new(Trigger::Schedule, at("2026-11-30T09:00:00Z"), 1) };
    let end = RunEnd {
        state: State::Interrupted,
        kind: Some(ErrorKind::Interrupted),
        tool_calls: 0,
        usd: Usd::ZERO,
        at: later,
    };
    assert_eq!(recovered.ended, [(job(), Ended { chain, end })]);
    let reader = second.reader().unwrap();
    let interrupted = reader.run(unfinished.as_str()).unwrap().unwrap();
    assert_eq!(interrupted.state, "interrupted");
    assert_eq!(interrupted.error.as_ref().map(|it| it.kind), Some(ErrorKind::Interrupted));
    assert_eq!(interrupted.finished_at.as_deref(), Some("2026-11-30T09:05:00.000Z"));
    let finished = reader.run("run2").unwrap().unwrap();
    assert_eq!(
        (finished.state.as_str(), finished.reply.as_deref()),
        ("succeeded", Some("all good"))
    );
    // Doing it again changes nothing; what has consequences says so until they are dealt with.
    let again =
        second.recover(|_| false, Queued::TakenOver, at("2026-11-30T10:00:00Z")).await.unwrap();
    assert_eq!(again, Recovered { ended: recovered.ended, ..Recovered::default() });
    assert_eq!(second.reader().unwrap().run("run1").unwrap().unwrap(), interrupted);
    let settled = vec![Settled { due_at: chain.due_at, attempt: 1, then: Then::Attempt }];
    write(&second, Record { settled, ..record(vec![]) }, None).await;
    assert_eq!(
        second.recover(|_| false, Queued::TakenOver, later).await.unwrap(),
        Recovered::default()
    );
}

#[tokio::test]
async fn a_run_that_never_began_is_taken_over_or_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path()).await;
    write(&first, record(vec![slot(SlotDecision::Started)]), Some(run("run1"))).await;
    let recovered = first.recover(|_| false, Queued::TakenOver, now()).await.unwrap();
    let [queued] = &recovered.queued[..] else { panic!("{recovered:?}") };
    assert_eq!((queued.run_id.as_str(), queued.chain.attempt), ("run1", 1));
    first.adopt_jobs(vec![row("edited")], vec![], now()).await.unwrap();
    first.redefine_queued(&queued.run_id, "edited").await.unwrap();
    let taken = first.reader().unwrap().run("run1").unwrap().unwrap();
    assert_eq!((taken.state.as_str(), taken.definition_hash.as_str()), ("queued", "edited"));
    first.give_up_queued(&queued.run_id, now()).await.unwrap();
    let given_up = first.reader().unwrap().run("run1").unwrap().unwrap();
    assert_eq!(given_up.state, "interrupted");
    assert_eq!(
        first.recover(|_| false, Queued::TakenOver, now()).await.unwrap(),
        Recovered::default()
    );
}

#[tokio::test]
async fn the_grid_and_what_is_decided_survive_a_restart_and_an_edit_of_anything_but_the_timing() {
    let dir = tempfile::tempdir().unwrap();
    let first = store(dir.path()).await;
    start(&first, "run1").await;
    drop(first);
    let second = Store::open(dir.path(), owner()).unwrap();
    let adopt = async |row: JobRow, time: &str| {
        let memories = second.adopt_jobs(vec![row], vec![], at(time)).await.unwrap();
        let it = memories["daily"].clone();
        (it.anchor.to_string(), it.memory.decided_until.to_string())
    };
    let words = |anchor: &str, until: &str| (anchor.to_owned(), until.to_owned());
    let kept = words("2026-11-30T08:00:00Z", "2026-11-30T09:00:00Z");
    assert_eq!(adopt(row("edited"), "2026-12-01T00:00:00Z").await, kept);
    let broken = JobRow { invalid_reason: Some("line 3".into()), definition: None, ..row("x") };
    assert_eq!(adopt(broken, "2026-12-02T00:00:00Z").await, kept);
    // Another timing begins anew, and so does the first one when it comes back.
    let timed = |timing: &str| {
        let mut row = row(timing);
        row.definition.as_mut().unwrap().timing = timing.into();
        row
    };
    let other = words("2026-12-03T00:00:00Z", "2026-12-03T00:00:00Z");
    assert_eq!(adopt(timed("B"), "2026-12-03T00:00:00Z").await, other);
    let back = words("2026-12-04T00:00:00Z", "2026-12-04T00:00:00Z");
    assert_eq!(adopt(row("hash"), "2026-12-04T00:00:00Z").await, back);
    // While it was gone it was due at no time; its grid is the same.
    second.adopt_jobs(vec![], vec!["daily".into()], at("2026-12-05T00:00:00Z")).await.unwrap();
    let returned = words("2026-12-04T00:00:00Z", "2026-12-06T00:00:00Z");
    assert_eq!(adopt(row("hash"), "2026-12-06T00:00:00Z").await, returned);
    let mut reader = second.reader().unwrap();
    let definitions = reader
        .query("SELECT definition_hash FROM v1_definitions ORDER BY 1", QueryLimits::default())
        .unwrap();
    let hashes: Vec<_> = ["B", "edited", "hash"].map(|it| vec![Value::from(it)]).into();
    assert_eq!(definitions.rows, hashes);
}

#[tokio::test]
async fn a_one_shot_in_the_past_is_decided_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), owner()).unwrap();
    let mut once = row("hash");
    once.definition.as_mut().unwrap().one_shot = Some(at("2026-11-30T09:00:00Z"));
    let adopt = async |once: &JobRow| {
        let time = at("2026-11-30T10:00:00Z");
        let memories = store.adopt_jobs(vec![once.clone()], vec![], time).await.unwrap();
        memories["daily"].memory.decided_until
    };
    assert_eq!(adopt(&once).await, at("2026-11-30T08:59:59.999Z"));
    start(&store, "run1").await;
    assert_eq!(adopt(&once).await, at("2026-11-30T09:00:00Z"));
    once.definition.as_mut().unwrap().timing = "edited and edited back".into();
    assert_eq!(adopt(&once).await, at("2026-11-30T10:00:00Z"), "its instant has a row");
}

#[tokio::test]
async fn a_clock_that_is_set_back_takes_back_what_was_counted_as_missed_and_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    start(&store, "run1").await;
    let range = PlannedSlot {
        due_at: at("2026-12-01T09:00:00Z"),
        due_until: at("2030-12-01T09:00:00Z"),
        slots: 1462,
        reason: Some(Reason::ClockStep),
        ..slot(SlotDecision::Missed)
    };
    let caught_up = PlannedSlot {
        due_at: at("2030-12-02T09:00:00Z"),
        due_until: at("2030-12-02T09:00:00Z"),
        ..slot(SlotDecision::Skipped)
    };
    assert_eq!(write(&store, record(vec![range, caught_up]), None).await, Recorded::New);
    let ahead = store.rewind(at("2026-12-01T12:00:00Z")).await.unwrap();
    let stays = (at("2030-12-02T09:00:00Z"), at("2030-12-02T09:00:00Z"));
    let begins = at("2026-12-01T08:59:59.999Z");
    assert_eq!(ahead, [(job(), (begins, vec![stays]))].into());
    let known = store.reader().unwrap().known_jobs().unwrap();
    assert_eq!(known["daily"].memory.decided_until, begins);
    assert_eq!(known["daily"].memory.ahead, [stays]);
    // Back behind a run: it stands.
    let ahead = store.rewind(at("2026-11-30T08:30:00Z")).await.unwrap();
    let run = (at("2026-11-30T09:00:00Z"), at("2026-11-30T09:00:00Z"));
    assert_eq!(ahead, [(job(), (at("2026-11-30T08:30:00Z"), vec![run, stays]))].into());
    let again = record(vec![slot(SlotDecision::Started)]);
    assert_eq!(write(&store, again, Some(run_again())).await, Recorded::AlreadyDecided);
}

fn run_again() -> NewRun {
    run("run2")
}

#[tokio::test]
async fn a_slot_that_waits_is_decided_for_good_once() {
    let held = PlannedSlot { reason: Some(Reason::ModelUnreachable), ..slot(SlotDecision::Held) };
    for (slot, waits) in [(slot(SlotDecision::Buffered), Waits::ForRun), (held, Waits::ForModel)] {
        starts_once(slot, waits).await;
    }
    // Behind a clock that was set back nobody waits yet, and it is due again; what has been decided
    // for good stays.
    let held = PlannedSlot { reason: Some(Reason::ModelUnreachable), ..slot(SlotDecision::Held) };
    let skipped = PlannedSlot { decision: SlotDecision::Skipped, ..held.clone() };
    for (slot, stays) in [(held, 0), (skipped, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        write(&store, record(vec![slot]), None).await;
        let ahead = store.rewind(at("2026-11-30T08:00:00Z")).await.unwrap();
        assert_eq!(ahead[&job()].1.len(), stays);
    }
    // What a pause holds waits for nothing.
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let paused = PlannedSlot { reason: Some(Reason::Paused), ..slot(SlotDecision::Held) };
    write(&store, record(vec![paused]), None).await;
    let recovered = store.recover(|_| false, Queued::TakenOver, now()).await.unwrap();
    assert_eq!(recovered.waiting, []);
}

async fn starts_once(slot: PlannedSlot, waits: Waits) {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    write(&store, record(vec![slot]), None).await;
    let recovered = store.recover(|_| false, Queued::TakenOver, now()).await.unwrap();
    let due_at = at("2026-11-30T09:00:00Z");
    let start = SlotStart::alone(Trigger::Catchup, due_at);
    assert_eq!(recovered.waiting, [(job(), WaitingSlot { due_at, waits, start })]);
    let decision = SlotDecision::Started;
    let turned = vec![Turned { due_at: at("2026-11-30T09:00:00Z"), decision, reason: None }];
    let turned = Record { turned, ..record(vec![]) };
    assert_eq!(write(&store, turned, Some(run("run1"))).await, Recorded::New);
    let filter = SlotFilter { limit: 9, ..SlotFilter::default() };
    let rows = store.reader().unwrap().slots(&filter).unwrap();
    assert_eq!(rows[0].decision, "started");
    assert_eq!(rows[0].run_id.as_deref(), Some("run1"));
    let db = by_an_admin(dir.path());
    let refused = db.execute("UPDATE slots SET decision = 'missed'", []).unwrap_err();
    assert!(refused.to_string().contains("a decision is final"), "{refused}");
}

#[tokio::test]
async fn a_buffered_slot_that_somebody_else_has_decided_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    write(&store, record(vec![slot(SlotDecision::Buffered)]), None).await;
    let turn = |decision, reason| {
        let turned = vec![Turned { due_at: at("2026-11-30T09:00:00Z"), decision, reason }];
        Record { turned, ..record(vec![]) }
    };
    let skipped = turn(SlotDecision::Skipped, Some(Reason::Superseded));
    assert_eq!(write(&store, skipped, None).await, Recorded::New);
    let started = turn(SlotDecision::Started, None);
    assert_eq!(write(&store, started, Some(run("run1"))).await, Recorded::AlreadyDecided);
    assert!(store.reader().unwrap().run("run1").unwrap().is_none());
}

#[tokio::test]
async fn a_pause_and_the_row_of_failures_are_remembered_and_who_paused_is_on_record() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let account = Account {
        failed_slots: 10,
        counted_failures: 10,
        backoff_until: Some(at("2026-11-30T11:00:00Z")),
    };
    let pause = Pause {
        cause: PauseCause::Failures,
        words: "10 slots in a row have failed".into(),
        until: None,
    };
    let change = Record {
        account: Some(account),
        pause: Some(PauseChange::Held(pause.clone())),
        ..record(vec![])
    };
    write(&store, change, None).await;
    let known = store.reader().unwrap().known_jobs().unwrap()["daily"].memory.clone();
    assert_eq!((known.account, known.pause), (account, Some(pause)));
    let lifted = Record { pause: Some(PauseChange::Lifted), ..record(vec![]) };
    write(&store, lifted, None).await;
    let mut reader = store.reader().unwrap();
    let audit = "SELECT actor, kind, name, result FROM v1_audit";
    let audit = reader.query(audit, QueryLimits::default()).unwrap();
    let row = |words: [&str; 4]| words.map(Value::from).to_vec();
    assert_eq!(
        audit.rows,
        [
            row(["punctual", "pause", "daily", "failures"]),
            row(["person", "resume", "daily", "failures"])
        ]
    );
    // A success ends the row of failures, in the same transaction as the run.
    let run_id = start(&store, "run1").await;
    store.record_work(&run_id, succeeded(), None).await.unwrap().wait().await.unwrap();
    store.finish_run(&run_id, cleanup(), Findings::default(), None, now()).await.unwrap();
    let known = store.reader().unwrap().known_jobs().unwrap()["daily"].memory.clone();
    assert_eq!((known.account, known.pause), (Account::default(), None));
}

/// A database that the first released schema wrote opens, and its history has no consequences.
#[tokio::test]
async fn a_database_of_the_first_schema_opens() {
    let dir = tempfile::tempdir().unwrap();
    let db = by_an_admin(dir.path());
    db.execute_batch(include_str!("cases/schema_1.sql")).unwrap();
    drop(db);
    let store = Store::open(dir.path(), owner()).unwrap();
    let reader = store.reader().unwrap();
    let run = reader.run("old1").unwrap().unwrap();
    assert_eq!((run.state.as_str(), run.reply.as_deref()), ("failed", None));
    let known = reader.known_jobs().unwrap()["daily"].clone();
    assert_eq!((known.timing, known.was_there), (None, true));
    assert_eq!(
        store.recover(|_| false, Queued::TakenOver, now()).await.unwrap(),
        Recovered::default()
    );
    let memories = store.adopt_jobs(vec![row("hash")], vec![], now()).await.unwrap();
    assert_eq!(memories["daily"].memory.decided_until, at("2026-11-30T07:00:00Z"));
}

#[tokio::test]
async fn many_writers_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..500 {
        let store = store.clone();
        writers.spawn(async move {
            let new = by_hand(&format!("run{n:03}"));
            store.record(record(vec![]), Some(new), now()).await.unwrap().recorded().await
        });
    }
    while let Some(written) = writers.join_next().await {
        assert_eq!(written.unwrap().unwrap(), Recorded::New);
    }
    let filter = RunFilter { limit: 1000, ..RunFilter::default() };
    assert_eq!(store.reader().unwrap().runs(&filter).unwrap().len(), 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_waits_out_another_process_that_holds_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let run_id = start(&store, "run1").await;
    let path = database_in(dir.path());
    let (locked, is_locked) = std::sync::mpsc::channel();
    let holder = std::thread::spawn(move || {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let db = rusqlite::Connection::open_with_flags(path, flags).unwrap();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        locked.send(()).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        db.execute_batch("COMMIT").unwrap();
    });
    is_locked.recv().unwrap();
    store.record_work(&run_id, succeeded(), None).await.unwrap().wait().await.unwrap();
    holder.join().unwrap();
    let run = store.reader().unwrap().run("run1").unwrap().unwrap();
    assert_eq!(run.reply.as_deref(), Some("all good"));
}

#[tokio::test]
async fn queries_read_and_do_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    start(&store, "run1").await;
    let mut reader = store.reader().unwrap();
    let limits = QueryLimits::default();
    for sql in [
        "DELETE FROM runs",
        "UPDATE runs SET state = 'failed'",
        "INSERT INTO slots SELECT * FROM slots",
        "DROP VIEW v1_runs",
        "CREATE TABLE t (x)",
        "ATTACH ':memory:' AS other",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version = 9",
        "VACUUM",
        "BEGIN IMMEDIATE",
        "SELECT load_extension('x')",
        "SELECT * FROM pragma_journal_mode()",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA writable_schema = ON",
        "REINDEX",
        "ANALYZE",
        "DETACH main",
        "SAVEPOINT x",
        "CREATE TEMP VIEW t AS SELECT 1",
        "WITH x AS (SELECT 1) DELETE FROM runs",
    ] {
        match reader.query(sql, limits) {
            Err(StoreError::Query(words)) => {
                assert!(words.contains("only reading"), "{sql}: {words}");
            }
            other => panic!("{sql}: {other:?}"),
        }
    }
    let mut words = |sql| reader.query(sql, limits).unwrap_err().to_string();
    assert_eq!(words("DELETE FROM runs"), "only reading is allowed here, not writing to runs");
    assert_eq!(
        words("PRAGMA journal_mode = DELETE"),
        "only reading is allowed here, not PRAGMA journal_mode"
    );
    let two = reader.query("SELECT 1; SELECT 2", limits);
    assert!(two.is_err(), "{two:?}");
    let endless =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";
    let short = QueryLimits { time_max: Duration::from_millis(100), ..limits };
    let stopped = reader.query(endless, short).unwrap_err();
    assert!(stopped.to_string().contains("stopped after"), "{stopped}");
    let few = QueryLimits { rows_max: 3, ..limits };
    assert!(reader.query("VALUES (1), (2), (3), (4)", few).is_err());
    let little = QueryLimits { bytes_max: 1 << 20, ..limits };
    let much = reader.query("SELECT zeroblob(1 << 20) UNION ALL SELECT 1", little).unwrap_err();
    assert_eq!(much.to_string(), "more than 1 MB: ask for less");
    assert!(reader.query("SELECT length(zeroblob(1 << 28))", limits).is_err());
    let misspelt = reader.query("SELECT nonsense FROM v1_runs", limits).unwrap_err().to_string();
    assert!(misspelt.contains("no such column: nonsense"), "{misspelt}");
    let answer = reader.query("SELECT run_id, usd, attempt FROM v1_runs", limits).unwrap();
    assert_eq!(answer.columns, ["run_id", "usd", "attempt"]);
    assert_eq!(answer.rows, [[Value::from("run1"), Value::Null, Value::from(1)]]);
}

#[tokio::test]
async fn every_view_has_the_columns_of_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let mut reader = store.reader().unwrap();
    let table = [
        (
            "v1_jobs",
            "job, description, owner, labels, enabled, paused_reason, invalid_reason, schedule, timezone, next_due_at, last_state, consecutive_failures, first_seen_at, definition_hash",
        ),
        ("v1_definitions", "definition_hash, job, first_seen_at, last_seen_at, effective"),
        (
            "v1_slots",
            "job, due_at, due_until, slots, decision, reason, run_id, decided_at, late_ms",
        ),
        (
            "v1_runs",
            "run_id, job, trigger, due_at, attempt, state, error_kind, error_message, limit_name, limit_ms, phase, model, queued_at, started_at, finished_at, duration_ms, late_ms, input_tokens, output_tokens, usd, tool_calls, tool_errors, denied_calls, reply, partial_text, session_id, cleanup_outcome, exit_code, host, version, definition_hash",
        ),
        (
            "v1_attempts",
            "run_id, n, model, auth_profile, state, error_kind, started_at, duration_ms, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, usd, idle_window_ms, idle_rule",
        ),
        (
            "v1_tool_calls",
            "run_id, n, tool, outcome, exit_code, started_at, duration_ms, output_bytes",
        ),
        ("v1_cleanups", "run_id, step, outcome, started_at, duration_ms, detail"),
        ("v1_checks", "run_id, name, passed, detail"),
        ("v1_hooks", "run_id, n, hook, name, outcome, changed, error, started_at, duration_ms"),
        ("v1_prompt_parts", "run_id, n, part, name, characters, tokens, characters_cut, note"),
        ("v1_audit", "at, actor, kind, run_id, session, name, result"),
    ];
    for (view, columns) in table {
        let sql = format!("SELECT {columns} FROM {view}");
        let answer = reader.query(&sql, QueryLimits::default()).unwrap();
        assert_eq!(answer.columns.join(", "), columns);
    }
}

#[test]
fn a_database_of_a_newer_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = database_in(dir.path());
    drop(Store::open(dir.path(), owner()).unwrap());
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let db = rusqlite::Connection::open_with_flags(&path, flags).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    for error in [
        Store::open(dir.path(), owner()).map(drop).unwrap_err(),
        Reader::open(&path).map(drop).unwrap_err(),
    ] {
        let words = error.to_string();
        assert!(
            words.contains("schema 99") && words.contains(env!("CARGO_PKG_VERSION")),
            "{words}"
        );
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_database_of_somebody_else_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = database_in(dir.path());
    let flags =
        rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE | rusqlite::OpenFlags::SQLITE_OPEN_CREATE;
    let db = rusqlite::Connection::open_with_flags(&path, flags).unwrap();
    db.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").unwrap();
    drop(db);
    let (bytes, mode) =
        (std::fs::read(&path).unwrap(), std::fs::metadata(&path).unwrap().permissions());
    assert!(matches!(Store::open(dir.path(), owner()), Err(StoreError::Foreign(_))));
    assert!(matches!(Reader::open(&path), Err(StoreError::Foreign(_))));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions(), mode);
}

#[tokio::test]
async fn a_wrong_file_is_named_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = database_in(dir.path());
    std::fs::write(&path, "this is not a database, and it is longer than a header of one").unwrap();
    let error = Store::open(dir.path(), owner()).map(drop).unwrap_err();
    assert!(error.to_string().contains("punctual.db"), "{error}");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("this is not"));
    assert!(matches!(Reader::open(&dir.path().join("none.db")), Err(StoreError::Missing(_))));
}

/// What was decided and did not reach the disk leaves a hole that nothing later is written over.
#[tokio::test]
async fn rows_are_taken_only_behind_the_ones_they_follow() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let at_ten = PlannedSlot {
        due_at: at("2026-11-30T10:00:00Z"),
        due_until: at("2026-11-30T10:00:00Z"),
        ..slot(SlotDecision::Skipped)
    };
    let later = Record { claim: Claim::After(at("2026-11-30T09:00:00Z")), ..record(vec![at_ten]) };
    assert_eq!(write(&store, later.clone(), None).await, Recorded::AlreadyDecided);
    let decided = store.reader().unwrap().decided(&job()).unwrap();
    assert_eq!(decided, Some((at("2026-11-30T08:00:00Z"), vec![])));
    write(&store, record(vec![slot(SlotDecision::Skipped)]), None).await;
    assert_eq!(write(&store, later, None).await, Recorded::New);
}
