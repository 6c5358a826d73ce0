//! The whole journey with a model that really generates: `contrib/local-model` serves it, real log
//! lines go in, and what comes out is asked for by its structure, never by its prose.
//!
//! It runs when `PUNCTUAL_REAL_MODEL` is set, and then whatever is missing is a failure.

#![expect(clippy::disallowed_methods, reason = "these tests start, stop and time from outside")]

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

const SERVE_SH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/local-model/serve.sh");

/// The first start downloads 130 MB.
const SERVER_STARTS_WITHIN: Duration = Duration::from_mins(5);
/// A reply takes about five seconds on one idle core.
const RUN_SUCCEEDS_WITHIN: Duration = Duration::from_mins(2);
/// The grace of `serve` is 30 seconds, the clean-up's budget 20.
const PROCESS_ENDS_WITHIN: Duration = Duration::from_mins(1);
/// The model notices a closed connection before its next token; the rest of the story that is
/// cancelled would take it more than a minute.
const MODEL_IS_FREE_WITHIN: Duration = Duration::from_secs(10);

/// From the logs of a small web server: cron, sshd, the kernel, nginx.
const LOG: &str = r#"Mar 03 06:25:01 web1 CRON[21877]: pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)
Mar 03 06:25:14 web1 sshd[21902]: Failed password for invalid user admin from 203.0.113.7 port 51234 ssh2
Mar 03 06:25:16 web1 kernel: EXT4-fs (vda1): mounted filesystem with ordered data mode
203.0.113.9 - - [03/Mar/2026:06:25:18 +0000] "GET /report HTTP/1.1" 502 157 "-" "Mozilla/5.0""#;

#[test]
fn a_scheduled_run_with_a_real_model_is_stored_and_can_be_asked_for() {
    let Some(model) = Model::start() else { return };
    let house = House::new(&model, "");
    // The due time in the prompt makes every run another question for a model without chance.
    house.write_job(
        "log-digest",
        &format!(
            "[schedule]\ncron = \"* * * * * *\"\noverlap = \"skip\"\n\n[agent]\ntools = []\n\
             prompt = '''\nThese lines are from a server's log until {{{{ due_at }}}}:\n\n{LOG}\n\n\
             Which line tells of a problem? Answer in one short sentence.'''\n\n\
             [limits]\ntimeout = \"2m\"\n"
        ),
    );

    let mut serve = house.start(&["serve"], "serve");
    let run = until("a run that succeeded", RUN_SUCCEEDS_WITHIN, || {
        serve.assert_runs();
        house.json(&["runs", "--state", "succeeded", "--limit", "1", "--json"])[0]
            .as_object()
            .map(|run| Value::Object(run.clone()))
    });
    assert_scheduled_success(&run);
    house.assert_same_in_the_views(&run);
    house.assert_transcript_holds(&run);

    serve.signal(Signal::SIGTERM);
    assert_eq!(serve.end().code(), Some(0), "one signal and a run within the grace");
    let open = "SELECT run_id, state FROM v1_runs WHERE finished_at IS NULL";
    assert_eq!(house.query(open), json!([]), "serve leaves no run open");
}

#[test]
fn a_cancelled_run_lets_go_of_a_real_model_in_mid_stream() {
    let Some(model) = Model::start() else { return };
    let house =
        House::new(&model, "[models.providers.local.models.default]\nmax_output_tokens = 4096\n");
    house.write_job(
        "story",
        "[agent]\ntools = []\nprompt = \"Write a very long story about a lighthouse keeper. \
         Write at least two thousand words.\"\n\n[limits]\ntimeout = \"5m\"\n",
    );

    let mut by_hand = house.start(&["run", "story", "--json"], "run");
    until("a reply in mid-stream", RUN_SUCCEEDS_WITHIN, || {
        by_hand.assert_runs();
        let slot = model.slot();
        let written = slot["next_token"][0]["n_decoded"].as_u64().unwrap_or(0);
        (slot["is_processing"] == true && written >= 20).then_some(())
    });
    let active = house.json(&["runs", "--state", "running", "--json"]);
    let run_id = active[0]["run_id"].as_str().expect("one run is running").to_owned();

    let cancelled = house.json(&["cancel", &run_id, "--json"]);
    assert_eq!(cancelled, json!({ "cancelled": [run_id] }));
    until("a model that is free again", MODEL_IS_FREE_WITHIN, || {
        (model.slot()["is_processing"] == false).then_some(())
    });
    assert_eq!(by_hand.end().code(), Some(130), "the contract's exit code of a cancelled run");

    let run = by_hand.printed_json();
    assert_eq!(run["run_id"], run_id.as_str());
    assert_cancelled_in_mid_stream(&run);
    assert_eq!(house.json(&["show", &run_id, "--json"]), run);
}

fn assert_scheduled_success(run: &Value) {
    assert_eq!(run["job"], "log-digest");
    assert_eq!(run["trigger"], "schedule");
    assert_eq!(run["error"], Value::Null);
    assert_eq!(run["model"], "local/default");
    let reply = run["reply"].as_str().unwrap_or_default();
    assert!(!reply.trim().is_empty(), "{run:#}");
    assert_eq!(run["payloads"], json!([{ "kind": "text", "text": reply }]));
    for count in ["input_tokens", "output_tokens"] {
        assert!(run["usage"][count].as_i64().is_some_and(|tokens| tokens > 0), "{count}: {run:#}");
    }
    // Punctual never starts early.
    assert!(run["late_ms"].as_i64().is_some_and(|late| late >= 0), "{run:#}");
    for key in ["due_at", "queued_at", "started_at", "finished_at"] {
        let at = run[key].as_str().unwrap_or_default();
        assert!(at.parse::<jiff::Timestamp>().is_ok(), "{key} of {run:#}");
    }
    assert_eq!(run["cleanup"]["outcome"], "clean", "{run:#}");
    assert_eq!(run["cleanup"]["leaked"], json!([]));

    // Scheduled, on loopback, with a configured limit: the window is that limit.
    assert_eq!(run["attempts"].as_array().map(Vec::len), Some(1), "{run:#}");
    let attempt = &run["attempts"][0];
    assert_eq!(
        [&attempt["model"], &attempt["state"], &attempt["idle_rule"], &attempt["idle_window_ms"]],
        [&json!("local/default"), &json!("succeeded"), &json!("scheduled"), &json!(120_000)],
    );
}

fn assert_cancelled_in_mid_stream(run: &Value) {
    assert_eq!(run["state"], "cancelled", "{run:#}");
    assert_eq!(run["trigger"], "manual");
    assert_eq!(run["error"]["kind"], "cancelled");
    assert_eq!(run["error"]["phase"], "model_call");
    assert_eq!(run["reply"], Value::Null);
    assert!(run["partial_text"].as_str().is_some_and(|text| !text.is_empty()), "{run:#}");
    // The server counts in its last chunk, which never came: unknown, not zero.
    assert_eq!(run["usage"]["output_tokens"], Value::Null);
    assert_eq!(run["attempts"][0]["state"], "cancelled");
    assert_eq!(run["attempts"][0]["idle_rule"], "manual");

    assert_eq!(run["cleanup"]["outcome"], "forced", "{run:#}");
    assert_eq!(run["cleanup"]["leaked"], json!([]));
    let steps = run["cleanup"]["steps"].as_array().expect("steps are a list");
    let forced = steps.iter().filter(|step| step["outcome"] != "clean");
    let forced: Vec<_> = forced.map(|step| (&step["step"], &step["outcome"])).collect();
    assert_eq!(forced, [(&json!("model_stream"), &json!("forced"))]);
}

/// A folder with a configuration and jobs, and the program run in it.
struct House {
    dir: TempDir,
}

impl House {
    fn new(model: &Model, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("jobs")).unwrap();
        let config = format!(
            "jobs_dir = \"jobs\"\nstate_dir = \"state\"\n\n[agents.defaults]\n\
             model = \"local/default\"\n\n[models.providers.local]\napi = \"openai\"\n\
             base_url = \"{}\"\n\n{more}",
            model.base_url
        );
        fs::write(dir.path().join("config.toml"), config).unwrap();
        Self { dir }
    }

    fn write_job(&self, id: &str, text: &str) {
        fs::write(self.dir.path().join(format!("jobs/{id}.toml")), text).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(words).args(["--config", "config.toml"]).current_dir(self.dir.path());
        command
    }

    fn start(&self, words: &[&str], name: &str) -> Running {
        Running::start(self.command(words), self.dir.path(), name)
    }

    /// What a verb that ends at once and well prints.
    fn json(&self, words: &[&str]) -> Value {
        let output = without_our_variables(&mut self.command(words)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {}\n{said}", output.status);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn query(&self, sql: &str) -> Value {
        self.json(&["query", sql, "--json"])
    }

    /// The run, its slot and its attempt, in the views that admins query.
    fn assert_same_in_the_views(&self, run: &Value) {
        let run_id = run["run_id"].as_str().unwrap();
        let of_run = |view: &str, columns: &str| {
            self.query(&format!("SELECT {columns} FROM {view} WHERE run_id = '{run_id}'"))
        };
        let columns = "run_id, job, trigger, due_at, attempt, state, error_kind, model, queued_at, \
                       started_at, finished_at, duration_ms, late_ms, input_tokens, \
                       output_tokens, reply, session_id, cleanup_outcome, definition_hash";
        let mut expected = run.clone();
        expected["error_kind"] = run["error"].clone();
        expected["input_tokens"] = run["usage"]["input_tokens"].clone();
        expected["output_tokens"] = run["usage"]["output_tokens"].clone();
        expected["cleanup_outcome"] = run["cleanup"]["outcome"].clone();
        assert_eq!(of_run("v1_runs", columns), json!([only(columns, &expected)]));

        let columns = "run_id, model, state, error_kind, started_at, duration_ms, input_tokens, \
                       output_tokens, idle_window_ms, idle_rule";
        let mut attempt = run["attempts"][0].clone();
        attempt["run_id"] = run_id.into();
        // One attempt: its tokens are the run's.
        attempt["input_tokens"] = run["usage"]["input_tokens"].clone();
        attempt["output_tokens"] = run["usage"]["output_tokens"].clone();
        assert_eq!(of_run("v1_attempts", columns), json!([only(columns, &attempt)]));

        let columns =
            "job, due_at, due_until, slots, decision, reason, run_id, decided_at, late_ms";
        let stored = of_run("v1_slots", columns);
        let slots = self.json(&["slots", "--job", "log-digest", "--limit", "10000", "--json"]);
        let slots = slots.as_array().unwrap().iter().filter(|slot| slot["run_id"] == run_id);
        assert_eq!(
            slots.collect::<Vec<_>>(),
            stored.as_array().unwrap().iter().collect::<Vec<_>>()
        );
        let facts = "job, due_at, due_until, slots, decision, reason, run_id";
        let expected = json!([{
            "job": "log-digest", "due_at": run["due_at"], "due_until": run["due_at"], "slots": 1,
            "decision": "started", "reason": null, "run_id": run_id,
        }]);
        assert_eq!(of_run("v1_slots", facts), expected);
    }

    fn assert_transcript_holds(&self, run: &Value) {
        let session = run["session_id"].as_str().unwrap();
        let path = self.dir.path().join(format!("state/sessions/{session}.jsonl"));
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let messages = lines.iter().filter(|line| line["type"] == "message");
        let messages: Vec<_> = messages.map(|line| &line["message"]).collect();
        let roles: Vec<_> = messages.iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["user", "assistant"], "{text}");
        let asked = messages[0]["text"].as_str().unwrap();
        assert!(asked.contains(LOG) && asked.contains(run["due_at"].as_str().unwrap()), "{asked}");
        assert_eq!(messages[1]["text"], run["reply"]);
    }
}

/// `columns` of `row`.
fn only(columns: &str, row: &Value) -> Value {
    columns.split(", ").map(|column| (column.to_owned(), row[column].clone())).collect()
}

/// The model's server.
struct Model {
    base_url: String,
    _server: Running,
    _dir: TempDir,
}

impl Model {
    /// Starts it; `None` when these tests are not asked for.
    fn start() -> Option<Self> {
        if std::env::var_os("PUNCTUAL_REAL_MODEL").is_none() {
            eprintln!("PUNCTUAL_REAL_MODEL is not set: nothing is tried with a real model");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(SERVE_SH);
        command.args(["--port", "0"]);
        let mut server = Running::start(command, dir.path(), "model");
        let base_url = until("a model that listens", SERVER_STARTS_WITHIN, || {
            server.assert_runs();
            let said = fs::read_to_string(&server.stdout).unwrap();
            let (line, _) = said.split_once('\n')?;
            let url = line.strip_prefix("listening on ").expect("the line of its README");
            Some(url.to_owned())
        });
        Some(Self { base_url, _server: server, _dir: dir })
    }

    /// What its only place for a request does now.
    fn slot(&self) -> Value {
        let authority = self.base_url.trim_start_matches("http://").trim_end_matches("/v1");
        let mut connection = TcpStream::connect(authority).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head = format!("GET /slots HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
        connection.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let slots: Value = serde_json::from_str(body).unwrap();
        slots[0].clone()
    }
}

/// A child in a process group of its own, which is ended with everything in it when this is
/// dropped, after a panic too; then what it wrote to its standard error is shown.
struct Running {
    name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    fn start(mut command: Command, dir: &Path, name: &str) -> Self {
        let stdout = dir.join(format!("{name}.stdout"));
        let stderr = dir.join(format!("{name}.stderr"));
        let child = without_our_variables(&mut command)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Self { name: name.to_owned(), child, stdout, stderr }
    }

    fn assert_runs(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert_eq!(ended, None, "{} has ended", self.name);
    }

    fn signal(&self, signal: Signal) {
        // Nobody has waited for it yet, so its id is still its own.
        let group = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        killpg(group, signal).unwrap_or_else(|error| panic!("{}: {signal}: {error}", self.name));
    }

    fn end(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        until(&what, PROCESS_ENDS_WITHIN, || self.child.try_wait().unwrap())
    }

    fn printed_json(&self) -> Value {
        serde_json::from_slice(&fs::read(&self.stdout).unwrap()).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::SIGTERM);
            let patience = Instant::now() + Duration::from_secs(5);
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(20));
            }
            if matches!(self.child.try_wait(), Ok(None)) {
                self.signal(Signal::SIGKILL);
                drop(self.child.wait());
            }
        }
        if std::thread::panicking() {
            let said = fs::read_to_string(&self.stderr).unwrap_or_default();
            eprintln!("--- {} on its standard error:\n{said}", self.name);
        }
    }
}

/// A configuration of the one who runs the tests must not get into them.
fn without_our_variables(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PUNCTUAL_") {
            command.env_remove(name);
        }
    }
    command
}

/// Asks again and again until there is an answer.
fn until<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < limit, "never came within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
