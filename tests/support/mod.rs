//! What the tests of the whole program share: a house to run it in, a model that misbehaves on a
//! real socket, and a look at what processes are left.
//!
//! Every wait has a limit far beyond what an idle machine needs, so that a loaded one passes too.

#![expect(clippy::disallowed_methods, reason = "these tests start, signal and time from outside")]

pub mod ledger;
pub mod mcp;
pub mod month;
pub mod past;
pub mod questions;
pub mod run_object;
pub mod scenes;
pub mod scripts;
pub mod stub;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

pub use stub::Stub;

/// How long anything may take that is only waited for.
pub const LONG: Duration = Duration::from_secs(30);

/// A folder with a configuration, jobs and a state folder, and the program in it.
pub struct House {
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
    secrets: Vec<String>,
    started: Cell<usize>,
}

/// What a finished program said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

/// A program that runs; dropping it kills it.
pub struct Running {
    child: Child,
    start: Instant,
    out: PathBuf,
    err: PathBuf,
}

/// The binary under test. An archived test run has it elsewhere.
fn program() -> PathBuf {
    let here = || env!("CARGO_BIN_EXE_punctual").into();
    std::env::var_os("NEXTEST_BIN_EXE_punctual").map_or_else(here, PathBuf::from)
}

/// A house whose model plays `script`; `more` is added to its configuration.
pub fn scripted(script: &str, more: &str) -> House {
    let house = House::new(&format!(
        "[agents.defaults]\nmodel = \"local/m\"\n\
         [models.providers.local]\napi = \"script\"\nscript = \"model.toml\"\n{more}"
    ));
    house.write("model.toml", script);
    house
}

/// A house whose model is `stub`; `provider` are more keys of it, `more` more tables.
pub fn asking(stub: &Stub, provider: &str, more: &str) -> House {
    House::new(&format!(
        "[agents.defaults]\nmodel = \"local/m\"\n\
         [models.providers.local]\napi = \"openai\"\nbase_url = \"{}\"\n{provider}\n{more}",
        stub.url()
    ))
}

impl House {
    pub fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("jobs")).unwrap();
        let house = Self { dir, env: Vec::new(), secrets: Vec::new(), started: Cell::new(0) };
        house.write("config.toml", config);
        house
    }

    /// Adds a variable to the environment of everything that is started from now on.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The same with a value that nothing may ever store, log or show: whoever drops the house looks
    /// for it, and for its first eight characters, in every file there is.
    #[must_use]
    pub fn with_secret(mut self, name: &str, value: &str) -> Self {
        self.secrets.push(value.into());
        self.with_env(name, value)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub fn job(&self, id: &str, text: &str) {
        self.write(&format!("jobs/{id}.toml"), text);
    }

    /// Starts the program with `arguments`.
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.spawn(arguments, |_| {})
    }

    /// The same in a process group of its own, as a terminal would.
    pub fn start_in_group(&self, arguments: &[&str]) -> Running {
        self.spawn(arguments, |command| {
            command.process_group(0);
        })
    }

    fn spawn(&self, arguments: &[&str], more: fn(&mut Command)) -> Running {
        let n = self.started.replace(self.started.get() + 1);
        let (out, err) = (self.path(&format!("stdout-{n}")), self.path(&format!("stderr-{n}")));
        let mut command = Command::new(program());
        more(&mut command);
        let child = command
            .args(arguments)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            .env("LANG", "C.UTF-8")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Running { child, start: Instant::now(), out, err }
    }

    /// Runs the program with `arguments` to its end.
    pub fn say(&self, arguments: &[&str]) -> Said {
        self.start(arguments).end()
    }

    /// Runs a job to its end and returns its run object.
    pub fn run(&self, job: &str) -> (Option<i32>, Value) {
        let said = self.say(&["run", job, "--json"]);
        (said.code, said.json())
    }

    /// Starts a run in the `serve` of this house and returns its id.
    pub fn detach(&self, job: &str) -> String {
        let said = self.say(&["run", job, "--detach"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout.trim().to_owned()
    }

    /// Starts `serve` and waits until it can be reached.
    pub fn serve(&self) -> Running {
        self.reached(self.start(&["serve"]))
    }

    /// Waits until `serve` can be reached.
    pub fn reached(&self, mut serve: Running) -> Running {
        let socket = self.path("state/punctual.sock");
        until("serve answers", || {
            assert!(serve.is_running(), "{}", serve.stderr());
            UnixStream::connect(&socket).is_ok()
        });
        serve
    }

    /// Starts a run over the socket of a running `serve` and returns everything that it tells.
    pub fn follow(&self, job: &str) -> Vec<Value> {
        let mut socket = UnixStream::connect(self.path("state/punctual.sock")).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        let request = json!({"verb": "run", "job": job, "slot": null, "force": false});
        socket.write_all(format!("{request}\n").as_bytes()).unwrap();
        let lines = BufReader::new(socket).lines();
        let replies = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        replies.filter_map(|reply| reply.get("event").cloned()).collect()
    }

    /// The database, opened as an admin would.
    pub fn database(&self) -> Connection {
        open(&self.path("state/punctual.db"))
    }

    /// The same for whoever writes into it.
    pub fn writable(&self) -> Connection {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let db = Connection::open_with_flags(self.path("state/punctual.db"), flags).unwrap();
        db.busy_timeout(LONG).unwrap();
        db
    }

    /// The rows of a query, a JSON list each.
    pub fn rows(&self, sql: &str) -> Vec<Value> {
        rows(&self.database(), sql)
    }

    /// The first column of the first row; null without one.
    pub fn value(&self, sql: &str) -> Value {
        self.rows(sql).first().map_or(Value::Null, |row| row[0].clone())
    }

    /// Waits until the database exists and the query's first value is 1.
    pub fn until(&self, sql: &str) {
        until(sql, || self.path("state/punctual.db").exists() && self.value(sql) == json!(1));
    }

    /// Waits for the end of a run and returns its object.
    pub fn ended(&self, run_id: &str) -> Value {
        self.until(&format!(
            "SELECT finished_at IS NOT NULL FROM v1_runs WHERE run_id = '{run_id}'"
        ));
        self.say(&["show", run_id, "--json"]).json()
    }

    /// Command lines of the living processes that any run of this house started.
    pub fn run_processes(&self) -> Vec<String> {
        let home = format!("HOME={}", self.dir.path().display());
        let ours = |environment: &[u8]| {
            let mut entries = environment.split(|&byte| byte == 0);
            entries.clone().any(|entry| entry == home.as_bytes())
                && entries.any(|entry| entry.starts_with(b"PUNCTUAL_RUN_ID="))
        };
        let folders = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        // A zombie and a process that is just going have no environment.
        let living =
            folders.filter(|path| fs::read(path.join("environ")).is_ok_and(|it| ours(&it)));
        living.map(|path| text(&path.join("cmdline")).replace('\0', " ")).collect()
    }

    /// How many processes of runs have a command line that begins with `start`.
    pub fn living(&self, start: &str) -> usize {
        self.run_processes().iter().filter(|line| line.starts_with(start)).count()
    }

    pub fn assert_nothing_is_left(&self) {
        assert_eq!(self.run_processes(), Vec::<String>::new());
    }

    /// Every file of the house that holds `needle`, whatever kind of file it is.
    pub fn files_with(&self, needle: &str) -> Vec<PathBuf> {
        let holds = |path: &PathBuf| {
            let bytes = fs::read(path).unwrap_or_default();
            bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
        };
        files_below(self.dir.path()).into_iter().filter(holds).collect()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for secret in &self.secrets {
            for needle in [secret, &secret[..8]] {
                assert_eq!(self.files_with(needle), Vec::<PathBuf>::new(), "they hold `{needle}`");
            }
        }
    }
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn stdout(&self) -> String {
        text(&self.out)
    }

    pub fn stderr(&self) -> String {
        text(&self.err)
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Signals its whole process group, as a terminal does on Ctrl-C.
    pub fn signal_group(&self, signal: Signal) {
        killpg(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Waits until standard error has `words`.
    pub fn until_stderr(&self, words: &str) {
        until(words, || self.stderr().contains(words));
    }

    /// Waits for the end.
    pub fn end(mut self) -> Said {
        until("the program ends", || !self.is_running());
        Said {
            code: self.child.wait().unwrap().code(),
            stdout: self.stdout(),
            stderr: self.stderr(),
            took: self.start.elapsed(),
        }
    }

    /// Asks for the end and waits for it.
    pub fn stop(self) -> Said {
        self.signal(Signal::SIGTERM);
        self.end()
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a failed assertion; otherwise it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Said {
    /// The whole of standard output as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Waits until `holds`.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A database opened read-only, as an admin would.
pub fn open(path: &Path) -> Connection {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    db.busy_timeout(LONG).unwrap();
    db
}

/// The rows of a query, a JSON list each. A table that is not there yet has no rows.
pub fn rows(db: &Connection, sql: &str) -> Vec<Value> {
    let mut statement = match db.prepare(sql) {
        Err(error) if error.to_string().contains("no such table") => return Vec::new(),
        result => result.unwrap(),
    };
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        let cells = (0..columns).map(|at| {
            Ok(match row.get_ref(at)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(number) => number.into(),
                ValueRef::Real(number) => number.into(),
                ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into(),
            })
        });
        cells.collect::<Result<Value, rusqlite::Error>>()
    };
    statement.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Every file below `folder`.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_below(&entry.path())),
            _ => files.push(entry.path()),
        }
    }
    files
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
