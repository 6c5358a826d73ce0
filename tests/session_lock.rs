//! The lock of a session against other processes: one that has it, one that is stopped, one that
//! is killed; and what it means for a run.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use punctual::clock::{Clock, SystemClock};
use punctual::config::{Config, Sources, load, load_jobs};
use punctual::executor::{Bus, Embedding, Executor, Lanes, Models, Purse, Ticket, Watchdog};
use punctual::job::{Environment, JobId, JobSpec};
use punctual::plan::{Record, RunEnd};
use punctual::process::{ProcessId, RUN_MARKER, SupervisorPath, boot_id};
use punctual::run::{ErrorKind, RunId, SessionId, State, Trigger};
use punctual::session::{
    Conversation, LockError, LockOwner, SessionLock, Taken, read_entries, transcript_path,
};
use punctual::store::{Definition, JobRow, NewRun, Owner, RunRecord, Sending, Store};
use punctual::turn::Variables;
use serde_json::json;

/// The transcript that the other process takes, and the test that does so.
const HOLD: &str = "PUNCTUAL_TEST_HOLD";
const TAKES: &str = "one_process_takes_it_and_gives_it_back";

/// How long anything may take that is only waited for.
const LONG: Duration = Duration::from_secs(30);

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// The other process: this program, asked to take a lock and to keep it.
struct Holder(Child);

impl Holder {
    #[expect(clippy::disallowed_methods, reason = "the holder is a process of this test's own")]
    fn of(transcript: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TAKES, "--nocapture"])
            .env(HOLD, transcript)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("holds")), "it holds it");
        Self(child)
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "the holder is a process of this test's own")]
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // After a failed assertion; otherwise it has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Started again by [`Holder`] it takes the transcript that it is given, and keeps it.
#[test]
fn one_process_takes_it_and_gives_it_back() {
    let given = std::env::var_os(HOLD).map(PathBuf::from);
    let dir = tempfile::tempdir().unwrap();
    let transcript = given.clone().unwrap_or_else(|| dir.path().join("s.jsonl"));
    let take = || SessionLock::try_take(&transcript, SystemClock.wall()).unwrap();
    let Taken::Ours(lock) = take() else { panic!("somebody has it") };
    if given.is_some() {
        println!("holds");
        std::thread::sleep(2 * LONG);
    }
    drop(lock);
    assert!(matches!(take(), Taken::Ours(_)), "it was given back");
}

/// What waiting for `within` comes to.
async fn take(transcript: &Path, within: Duration) -> Result<SessionLock, LockError> {
    SessionLock::take(transcript, within, &clock()).await
}

fn assert_busy(taken: Result<SessionLock, LockError>, by: &Holder) {
    match taken {
        Err(LockError::Busy { owner: Some(owner), .. }) => {
            assert_eq!(Some(owner.process), ProcessId::of(by.pid()));
            assert_eq!(owner.boot_id, boot_id());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn another_process_keeps_it_while_it_lives_and_loses_it_with_its_life() {
    let dir = tempfile::tempdir().unwrap();
    let transcript = dir.path().join("s.jsonl");
    let brief = Duration::from_millis(200);
    let holder = Holder::of(&transcript);
    assert_busy(take(&transcript, brief).await, &holder);

    // One that is stopped has it as before, however long.
    holder.signal(Signal::SIGSTOP);
    assert_busy(take(&transcript, brief).await, &holder);
    holder.signal(Signal::SIGCONT);
    assert_busy(take(&transcript, brief).await, &holder);

    // Whoever waits gets it as soon as the owner is dead.
    let waiting = tokio::spawn({
        let transcript = transcript.clone();
        async move { take(&transcript, LONG).await }
    });
    tokio::time::sleep(brief).await;
    assert!(!waiting.is_finished());
    let killed = SystemClock.monotonic();
    holder.kill();
    let lock = waiting.await.unwrap().unwrap();
    let waited = SystemClock.monotonic() - killed;
    assert!(waited < LONG / 2, "{waited:?}");
    drop(lock);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_killed_owner_that_was_stopped_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let transcript = dir.path().join("s.jsonl");
    let holder = Holder::of(&transcript);
    holder.signal(Signal::SIGSTOP);
    holder.kill();
    // What it had written is still there, and says nothing.
    let left = std::fs::read_to_string(dir.path().join("s.lock")).unwrap();
    assert!(serde_json::from_str::<LockOwner>(&left).is_ok(), "{left}");
    take(&transcript, Duration::from_secs(1)).await.unwrap();
}

#[tokio::test]
async fn a_linked_folder_is_the_same_lock_for_another_process() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sessions")).unwrap();
    std::os::unix::fs::symlink("sessions", dir.path().join("link")).unwrap();
    let real = dir.path().join("sessions/s.jsonl");
    let holder = Holder::of(&dir.path().join("link/s.jsonl"));
    assert_busy(take(&real, Duration::from_millis(100)).await, &holder);
    holder.kill();
    take(&real, Duration::from_secs(1)).await.unwrap();
}

/// A state folder with one job, and an executor over it.
struct House {
    dir: tempfile::TempDir,
    executor: Executor,
    spec: Arc<JobSpec>,
}

const CONFIG: &str = "
[agents.defaults]
model = \"local/m\"
[models.providers.local]
api = \"script\"
script = \"model.toml\"
";

impl House {
    async fn new(environment: Environment) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["jobs", "state", "state/sessions", "state/workspaces"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let files = [
            ("config.toml", CONFIG),
            ("model.toml", "[[rule]]\nstep = [{ text = \"fine\" }]\n"),
            ("jobs/j.toml", "[agent]\nprompt = \"go\"\ntools = []\n"),
        ];
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let config = config(dir.path(), environment);
        let spec = Arc::new(load_jobs(&config).jobs.remove(&job()).unwrap());
        let owner = Owner { boot_id: "boot".into(), pid: 1, started: 2, host: "host".into() };
        let store = Store::open(&config.state_dir, owner).unwrap();
        store.adopt_jobs(vec![row(&spec)], vec![], SystemClock.wall()).await.unwrap();
        let executor = Executor {
            hooks: Arc::default(),
            embedding: Embedding::default(),
            clock: clock(),
            models: Models::new(&config),
            store,
            lanes: Lanes::new(None, &config.lanes),
            bus: Bus::new(clock()),
            purse: Purse::default(),
            supervisor: SupervisorPath::current_exe(),
            config: Arc::new(config),
            deck: None,
            milestones: None,
        };
        Self { dir, executor, spec }
    }

    fn transcript(&self) -> PathBuf {
        transcript_path(&self.dir.path().join("state"), "the-session")
    }

    /// Drives a run of the session to its end.
    async fn run(&self, run_id: &str) -> (RunEnd, RunRecord) {
        let ticket = self.ticket(run_id).await;
        let end = self.executor.drive(&ticket, &Watchdog::new(clock(), None)).await;
        (end, self.row(run_id))
    }

    fn row(&self, run_id: &str) -> RunRecord {
        self.executor.store.reader().unwrap().run(run_id).unwrap().unwrap()
    }

    /// A run of the session that is recorded and has not begun.
    async fn ticket(&self, run_id: &str) -> Ticket {
        let now = SystemClock.wall();
        let (run_id, session_id) =
            (RunId::from_stored(run_id), SessionId::from_stored("the-session"));
        let run = NewRun {
            run_id: run_id.clone(),
            trigger: Trigger::Manual,
            slot: None,
            attempt: 1,
            session_id: session_id.clone(),
            definition_hash: self.spec.definition_hash.clone(),
            sending: Sending::Usual,
            session: None,
            letters: Vec::new(),
            ad_hoc: None,
        };
        let store = &self.executor.store;
        let receipt = store.record(Record::new(&job(), None), Some(run), now).await.unwrap();
        receipt.recorded().await.unwrap();
        Ticket {
            run_id,
            session_id,
            session_key: None,
            conversation: Conversation::Own,
            spec: Arc::clone(&self.spec),
            trigger: Trigger::Manual,
            due_at: None,
            turn: None,
            variables: Variables {
                due_at: now,
                slot_start: now,
                slot_end: now,
                vars: self.spec.agent().unwrap().vars.clone(),
                matrix: self.spec.matrix.clone(),
            },
        }
    }
}

fn job() -> JobId {
    "j".parse().unwrap()
}

fn config(dir: &Path, environment: Environment) -> Config {
    let sources = Sources {
        config_paths: vec![dir.join("config.toml")],
        state_dir: None,
        environment,
        current_dir: dir.to_owned(),
    };
    load(&sources).unwrap().0
}

fn row(spec: &JobSpec) -> JobRow {
    JobRow {
        job: spec.id.to_string(),
        file: spec.file.display().to_string(),
        description: None,
        owner: None,
        labels: "{}".into(),
        enabled: true,
        invalid_reason: None,
        definition: Some(Definition {
            hash: spec.definition_hash.clone(),
            effective: "{}".into(),
            timing: spec.timing(),
            schedule: None,
            timezone: None,
            one_shot: None,
            sends: None,
        }),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_session_is_in_use_fails_by_its_own_limit_and_writes_nothing() {
    let limit = ("PUNCTUAL_SESSION_WRITE_LOCK_ACQUIRE_TIMEOUT_MS", "300");
    let house = House::new(Environment::fixed([limit])).await;
    let holder = Holder::of(&house.transcript());
    let (end, run) = house.run("first").await;
    assert_eq!((end.state, end.kind), (State::Failed, Some(ErrorKind::SessionBusy)));
    let mut error = serde_json::to_value(run.error.unwrap()).unwrap();
    let message = error.as_object_mut().unwrap().remove("message").unwrap();
    let message = message.as_str().unwrap();
    let words = format!("the session is in use by process {} since ", holder.pid());
    assert!(message.starts_with(&words), "{message}");
    assert!(message.ends_with(", waited 300ms for it"), "{message}");
    assert_eq!(
        error,
        json!({
            "kind": "session_busy", "limit": "session_lock", "limit_ms": 300, "phase": "context",
            "retryable": true,
        })
    );
    assert_eq!(run.attempts.len(), 0, "nothing was asked");
    assert!(!house.transcript().exists());
    // It holds no lock, so there is none to give back.
    let steps: Vec<_> = run.cleanup.unwrap().steps.into_iter().map(|it| it.step).collect();
    assert_eq!(steps, ["model_stream", "processes", "workspace", "lane"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_takes_over_from_a_killed_one_and_gives_the_lock_back() {
    let house = House::new(Environment::fixed([])).await;
    let holder = Holder::of(&house.transcript());
    let house = Arc::new(house);
    let running = tokio::spawn({
        let house = Arc::clone(&house);
        async move { house.run("first").await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!running.is_finished(), "it waits");
    holder.kill();
    let (end, run) = tokio::time::timeout(LONG, running).await.unwrap().unwrap();
    assert_eq!(end.state, State::Succeeded);
    let steps = run.cleanup.unwrap().steps;
    let outcomes: Vec<_> = steps.iter().map(|it| (it.step.as_str(), it.outcome.as_str())).collect();
    let clean = ["model_stream", "processes", "transcript", "session_lock", "workspace", "lane"]
        .map(|step| (step, "clean"));
    assert_eq!(outcomes, clean);
    assert!(!house.transcript().with_extension("lock").exists());
    let text = std::fs::read_to_string(house.transcript()).unwrap();
    assert_eq!(read_entries(text.as_bytes()).len(), 2, "{text}");
    // The next one finds it free.
    let (end, _) = house.run("second").await;
    assert_eq!(end.state, State::Succeeded);
}

/// What the look-out for stuck sessions does with such a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_nobody_drives_is_closed_when_its_processes_are_gone() {
    let house = House::new(Environment::fixed([])).await;
    let ticket = house.ticket("orphan").await;
    let executor = &house.executor;
    executor.store.start_run(&ticket.run_id, SystemClock.wall()).await.unwrap();
    assert!(!executor.has_processes(&ticket).await);
    #[expect(clippy::disallowed_methods, reason = "one that no household knows")]
    let mut left = Command::new("sleep").arg("60").env(RUN_MARKER, "orphan").spawn().unwrap();
    assert!(executor.has_processes(&ticket).await);
    executor.drain(&ticket).await;
    assert!(!executor.has_processes(&ticket).await);
    // It is dead, whoever was quicker to ask for its end.
    drop(left.kill());
    drop(left.wait());

    let end = executor.release(&ticket, Duration::from_mins(2)).await;
    assert_eq!((end.state, end.kind), (State::Failed, Some(ErrorKind::Stuck)));
    let run = house.row("orphan");
    assert_eq!((run.state.as_str(), run.cleanup.unwrap().outcome.as_str()), ("failed", "clean"));
    assert_eq!(
        serde_json::to_value(run.error).unwrap(),
        json!({
            "kind": "stuck", "message": "nobody drove the run any more; nothing has moved for 2m",
            "limit": "stuck", "limit_ms": 120_000, "phase": null, "retryable": true,
        })
    );
}
