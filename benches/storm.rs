//! Limits, lanes and clean-up with many runs at once, from outside.
//!
//! ```text
//! cargo bench --bench storm
//! ```
//!
//! Prints one line per figure. Run it on a quiet machine: it measures milliseconds.

#![expect(clippy::disallowed_methods, reason = "a benchmark starts, times and ends the program")]

#[expect(dead_code, reason = "the other benchmark of the whole program uses the rest")]
mod support;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use support::{Serve, now_ms, punctual, query, report};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
const PIECE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"}}]}\n\n";
const REST: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],",
    "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n",
    "data: [DONE]\n\n"
);

const AT_ONCE: Duration = Duration::ZERO;

/// What the model does once it has said a piece.
#[derive(Clone, Copy)]
enum Model {
    /// It ends its answer.
    Answers,
    /// It says nothing more.
    Stalls,
}

fn main() {
    throughput();
    status();
    deadlines();
    lanes();
    tree();
    open_streams();
}

/// Runs per second through the whole loop.
fn throughput() {
    const RUNS: u32 = 4000;
    let (address, _gone) = model(Model::Answers);
    let house = house(&address, "max_concurrent_runs = 64", (RUNS, AT_ONCE), 10, "");
    let mut serve = Serve::start(house.path());
    until_ended(house.path(), RUNS);
    serve.stop();
    let failed = "SELECT count(*) FROM v1_runs WHERE state <> 'succeeded'";
    assert_eq!(query(house.path(), failed), [0.0]);
    let took =
        "SELECT (julianday(max(finished_at)) - julianday(min(queued_at))) * 86400 FROM v1_runs";
    let rate = f64::from(RUNS) / query(house.path(), took)[0];
    println!("{RUNS} runs due at once, 64 permits: {rate:.0} a second");
}

/// How soon somebody who asks is answered while more runs are due than can be driven.
fn status() {
    const JOBS: u32 = 100;
    let (address, _gone) = model(Model::Answers);
    let house = house(&address, "max_concurrent_runs = 64", (0, AT_ONCE), 0, "");
    for n in 0..JOBS {
        let text = "[schedule]\ncron = \"* * * * * *\"\noverlap = \"allow_all\"\n\
                    [agent]\nprompt = \"Say ok.\"\ntools = []\n";
        append(house.path(), &format!("jobs/job-{n:05}.toml"), text);
    }
    let mut serve = Serve::start(house.path());
    std::thread::sleep(Duration::from_secs(3));
    let asked = (0..60).map(|_| {
        std::thread::sleep(Duration::from_millis(67));
        let begin = now_ms();
        let said = punctual(house.path()).arg("status").output().expect("the program runs");
        assert!(said.status.success());
        now_ms() - begin
    });
    report("`punctual status` with 100 runs a second, as a process (ms)", asked.collect());
    serve.stop();
}

/// How long after its deadline a run's connection is closed, with two hundred in flight.
fn deadlines() {
    const RUNS: u32 = 200;
    // Close enough that all are in flight before the first one is cut.
    const APART: Duration = Duration::from_millis(10);
    let (address, held) = model(Model::Stalls);
    let house = house(
        &address,
        "max_concurrent_runs = 0",
        (RUNS, APART),
        3,
        "[limits]
timeout = \"3s\"
",
    );
    let mut serve = Serve::start(house.path());
    // A run's clock starts a moment before its request arrives.
    let late = (0..RUNS)
        .map(|_| held.recv_timeout(Duration::from_mins(1)).expect("every run is cut") - 3000.0);
    let late: Vec<f64> = late.collect();
    until_ended(house.path(), RUNS);
    serve.stop();
    report("request + 3 s deadline → connection closed, 200 runs in flight (ms)", late);
    let late = query(house.path(), "SELECT duration_ms - 3000 FROM v1_runs");
    report("start + 3 s deadline → end recorded, with its clean-up (ms)", late);
}

/// How long after a deadline the next run in that lane begins.
fn lanes() {
    const LANES: u32 = 20;
    let (address, _gone) = model(Model::Stalls);
    let house = house(
        &address,
        "max_concurrent_runs = 0",
        (2 * LANES, AT_ONCE),
        3,
        "[limits]
timeout = \"2s\"
",
    );
    let mut config = String::from("\n[lanes]\n");
    for n in 0..LANES {
        writeln!(config, "lane-{n} = 1").expect("writing to a string");
    }
    append(house.path(), "config.toml", &config);
    for n in 0..2 * LANES {
        let path = house.path().join(format!("jobs/job-{n:05}.toml"));
        let text = std::fs::read_to_string(&path).expect("it is there");
        let text = format!("lane = \"lane-{}\"\n{text}", n % LANES);
        std::fs::write(path, text).expect("the temporary folder is writable");
    }
    let mut serve = Serve::start(house.path());
    until_ended(house.path(), 2 * LANES);
    serve.stop();
    let between = "SELECT (julianday(b.started_at) - julianday(a.started_at)) * 86400000.0 - 2000
                   FROM v1_runs a JOIN v1_runs b
                     ON abs(CAST(substr(a.job, 5) AS INTEGER) - CAST(substr(b.job, 5) AS INTEGER)) = 20
                   WHERE a.started_at < b.started_at";
    report("deadline → next run in that lane (ms)", query(house.path(), between));
}

/// The end of fifty processes.
fn tree() {
    let house = house("127.0.0.1:9", "max_concurrent_runs = 1", (0, AT_ONCE), 0, "");
    let config = "[agents.defaults]\nmodel = \"m/m\"\n[models.providers.m]\napi = \"script\"\n\
                  script = \"model.toml\"\n";
    std::fs::write(house.path().join("config.toml"), config).expect("it is writable");
    let script = "[[rule]]\nstep = [{ tool = { name = \"exec\", arguments = { command = \
                  \"for i in $(seq 49); do sleep 60 & done; sleep 60\" } } }]\n";
    append(house.path(), "model.toml", script);
    let job = "[agent]\nprompt = \"go\"\ntools = [\"exec\"]\nexec_allow = [\"*\"]\n\
               [limits]\ntimeout = \"1500ms\"\n";
    append(house.path(), "jobs/tree.toml", job);
    for _ in 0..10 {
        drop(punctual(house.path()).args(["run", "tree"]).output().expect("the program runs"));
    }
    let left = "SELECT count(*) FROM v1_runs r JOIN v1_cleanups c USING (run_id)
                WHERE c.step = 'processes' AND c.outcome <> 'forced'";
    assert_eq!(query(house.path(), left), [0.0]);
    let took = "SELECT duration_ms FROM v1_cleanups WHERE step = 'processes'";
    report("clean-up of a tree of 50 processes (ms)", query(house.path(), took));
}

/// Memory with five hundred open streams.
fn open_streams() {
    const RUNS: u32 = 500;
    let (address, _gone) = model(Model::Stalls);
    let house = house(
        &address,
        "max_concurrent_runs = 0",
        (RUNS, AT_ONCE),
        3,
        "[limits]
timeout = \"20s\"
",
    );
    let mut serve = Serve::start(house.path());
    std::thread::sleep(Duration::from_secs(1));
    let before = serve.rss_mb();
    until_counted(house.path(), "SELECT count(*) FROM v1_attempts WHERE state = 'running'", RUNS);
    std::thread::sleep(Duration::from_secs(2));
    println!("memory with 500 open streams: {:.1} MB (before: {before:.1} MB)", serve.rss_mb());
    serve.stop();
}

fn until_ended(house: &Path, runs: u32) {
    until_counted(house, "SELECT count(*) FROM v1_runs WHERE finished_at IS NOT NULL", runs);
}

fn until_counted(house: &Path, sql: &str, count: u32) {
    let give_up = now_ms() + 120_000.0;
    while query(house, sql) != [f64::from(count)] {
        assert!(now_ms() < give_up, "it never came to {count}: {sql}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// A model on loopback. Tells how long clients of streams that stall stayed, in milliseconds.
fn model(model: Model) -> (String, Receiver<f64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address").to_string();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            let answer = move || answer_all(BufReader::new(stream), model, &sender);
            let stack = std::thread::Builder::new().stack_size(64 << 10);
            stack.spawn(answer).expect("a thread can be started");
        }
    });
    (address, receiver)
}

fn answer_all(mut reader: BufReader<TcpStream>, model: Model, gone: &Sender<f64>) -> Option<()> {
    loop {
        let is_stream = read_request(&mut reader)?;
        let begin = now_ms();
        let body = match (is_stream, model) {
            (false, _) => format!("{HEAD}content-length: 2\r\n\r\n[]"),
            (true, Model::Answers) => {
                let length = PIECE.len() + REST.len();
                format!("{HEAD}content-length: {length}\r\n\r\n{PIECE}{REST}")
            }
            (true, Model::Stalls) => format!("{HEAD}\r\n{PIECE}"),
        };
        reader.get_mut().write_all(body.as_bytes()).ok()?;
        if is_stream && matches!(model, Model::Stalls) {
            // It returns when the client goes away.
            let _ = reader.read(&mut [0; 1]);
            let _ = gone.send(now_ms() - begin);
            return None;
        }
    }
}

/// Reads a request. Says whether it is for an answer, not for the list of models.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<bool> {
    let (mut body_bytes, mut is_stream) = (0, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        is_stream |= line.starts_with("POST ");
        if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
            body_bytes = length.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    reader.read_exact(&mut vec![0; body_bytes]).ok()?;
    Some(is_stream)
}

/// Jobs that are due once, in so many seconds, each so long after the one before. `more` is added
/// to each file.
fn house(
    address: &str,
    scheduler: &str,
    (jobs, apart): (u32, Duration),
    seconds: u64,
    more: &str,
) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("there is a temporary folder");
    std::fs::create_dir(dir.path().join("jobs")).expect("the temporary folder is writable");
    let config = format!(
        "[scheduler]\n{scheduler}\n[agents.defaults]\nmodel = \"m/m\"\n[models.providers.m]\n\
         api = \"openai\"\nbase_url = \"http://{address}/v1\"\n"
    );
    append(dir.path(), "config.toml", &config);
    #[expect(clippy::cast_possible_truncation, reason = "seconds of this century")]
    let due = jiff::Timestamp::from_second((now_ms() / 1000.0) as i64 + 1)
        .expect("it is this century")
        + Duration::from_secs(seconds);
    for n in 0..jobs {
        let due = due + n * apart;
        let text = format!(
            "[schedule]\nat = \"{due:.3}\"\n[agent]\nprompt = \"Say ok.\"\ntools = []\n\
             [retry]\nmax_attempts = 1\n{more}"
        );
        append(dir.path(), &format!("jobs/job-{n:05}.toml"), &text);
    }
    dir
}

fn append(house: &Path, name: &str, text: &str) {
    let path = house.join(name);
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let mut file = file.expect("the temporary folder is writable");
    file.write_all(text.as_bytes()).expect("the temporary folder is writable");
}
