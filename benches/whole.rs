//! The whole program from outside: a real `serve`, a model on loopback, the wall clock.
//!
//! ```text
//! cargo bench --bench whole
//! ```
//!
//! Prints one line per figure. Run it on a quiet machine: it measures milliseconds.

#![expect(clippy::disallowed_methods, reason = "a benchmark starts, times and ends the program")]

mod support;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use support::{Serve, now_ms, punctual, query, report};

const ANSWER: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":null}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],",
    "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n",
    "data: [DONE]\n\n"
);

/// A request that reached the model: when, in milliseconds of the wall clock, and its size.
struct Arrival {
    at_ms: f64,
    request_bytes: usize,
}

fn main() {
    let (address, arrivals) = model();
    one_job(&address, &arrivals);
    fifty_jobs(&address, &arrivals);
    idle(&address);
    ten_thousand_files(&address);
    for jobs in [1000, 10_000] {
        due_at_once(jobs);
    }
    a_million_slots();
}

/// Due time → request, and the overhead of a run, with one job.
fn one_job(address: &str, arrivals: &Receiver<Arrival>) {
    let house = house(address, 1, "* * * * * *");
    let mut serve = Serve::start(house.path());
    let seen = collect(arrivals, 40, Duration::from_mins(1));
    serve.stop();
    let late: Vec<f64> = seen.iter().map(|it| it.at_ms.rem_euclid(1000.0)).collect();
    report("due → request, 1 job (ms)", late);
    println!("request of a one-line prompt without tools: {} bytes", seen[0].request_bytes);
    report("run with its durable rows, model answers at once (ms)", durations(house.path()));
}

/// Due time → request with fifty jobs due in the same second.
fn fifty_jobs(address: &str, arrivals: &Receiver<Arrival>) {
    let house = house(address, 50, "*/2 * * * * *");
    let mut serve = Serve::start(house.path());
    let seen = collect(arrivals, 500, Duration::from_mins(1));
    serve.stop();
    let late = seen.iter().map(|it| it.at_ms.rem_euclid(2000.0)).collect();
    report("due → request, 50 jobs in one second (ms)", late);
}

/// Memory and processor time of an idle `serve` with a thousand jobs.
fn idle(address: &str) {
    let house = house(address, 1000, "0 9 1 1 *");
    let mut serve = Serve::start(house.path());
    std::thread::sleep(Duration::from_secs(5));
    let before = serve.processor_ms();
    std::thread::sleep(Duration::from_secs(30));
    let per_minute = (serve.processor_ms() - before) * 2.0;
    println!(
        "idle serve, 1,000 jobs: {:.1} MB, {per_minute:.1} ms of processor time a minute",
        serve.rss_mb()
    );
    serve.stop();
}

/// Reading ten thousand job files.
fn ten_thousand_files(address: &str) {
    let house = house(address, 10_000, "0 9 * * MON-FRI");
    let took: Vec<f64> = (0..5)
        .map(|_| {
            let start = now_ms();
            let done = punctual(house.path()).arg("validate").output();
            assert!(done.expect("the program runs").status.success());
            now_ms() - start
        })
        .collect();
    report("validate 10,000 job files, as a process (ms)", took);
}

/// From the start of `serve` to its first plan, and how late slots are that are all due in one
/// second: when they are decided, and when their runs start in 64 lanes.
fn due_at_once(jobs: u32) {
    let first = now_ms() + 15_000.0;
    #[expect(clippy::cast_possible_truncation, reason = "milliseconds of this century")]
    let due = jiff::Timestamp::from_millisecond(first as i64).expect("it is this century");
    let house = scripted_house(jobs as usize, &format!("at = \"{due:.0}\""));
    let begun = now_ms();
    let mut serve = Serve::start_loud(house.path());
    let mut first_words = String::new();
    let mut stderr = BufReader::new(serve.0.stderr.take().expect("it is piped"));
    stderr.read_line(&mut first_words).expect("it says how many jobs it has");
    println!("start of `serve` with {jobs} jobs to its first plan: {:.0} ms", now_ms() - begun);
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    let ended = "SELECT count(*) FROM v1_runs WHERE state = 'succeeded'";
    let give_up = now_ms() + 120_000.0;
    while query(house.path(), ended) != [f64::from(jobs)] {
        assert!(now_ms() < give_up, "not all of them have run");
        std::thread::sleep(Duration::from_millis(500));
    }
    serve.stop();
    let late = query(house.path(), "SELECT late_ms FROM v1_slots WHERE decision = 'started'");
    report(&format!("{jobs} jobs due in one second: decided so late (ms)"), late);
    let late = query(house.path(), "SELECT late_ms FROM v1_runs");
    report(&format!("{jobs} jobs due in one second: run begins so late, 64 lanes (ms)"), late);
}

/// The file after a million decisions that each have a row of their own.
fn a_million_slots() {
    let house = scripted_house(1, "cron = \"* * * * * *\"\ncatchup = \"none\"");
    let mut serve = Serve::start(house.path());
    std::thread::sleep(Duration::from_secs(2));
    serve.stop();
    let database = house.path().join("state/punctual.db");
    let bytes = || std::fs::metadata(&database).expect("it is there").len();
    let before = bytes();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
                INSERT INTO slots SELECT 'job-00000', strftime('%Y-%m-%dT%H:%M:%fZ', 946684800 + i, 'unixepoch'),
                strftime('%Y-%m-%dT%H:%M:%fZ', 946684800 + i, 'unixepoch'), 1, 'skipped', 'overlap', NULL,
                strftime('%Y-%m-%dT%H:%M:%fZ', 946684800 + i, 'unixepoch'), 3 FROM n;
                PRAGMA wal_checkpoint(TRUNCATE);";
    let db = rusqlite::Connection::open(&database).expect("it opens");
    db.execute_batch(rows).expect("it takes the rows");
    drop(db);
    println!("a million slots in the database: {} MB", (bytes() - before) / 1_000_000);
}

/// A model on loopback that answers at once and tells when it was asked.
fn model() -> (String, Receiver<Arrival>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address").to_string();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                while let Some(arrival) = read_request(&mut reader) {
                    if sender.send(arrival).is_err() || answer(reader.get_mut()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, receiver)
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Arrival> {
    let (mut head, mut body_bytes) = (0, 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        head += line.len();
        if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
            body_bytes = length.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let at_ms = now_ms();
    let mut body = vec![0; body_bytes];
    reader.read_exact(&mut body).ok()?;
    Some(Arrival { at_ms, request_bytes: head + body_bytes })
}

fn answer(stream: &mut TcpStream) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        ANSWER.len()
    );
    stream.write_all(format!("{head}{ANSWER}").as_bytes())
}

/// The first arrivals are a warm-up and left out.
fn collect(arrivals: &Receiver<Arrival>, count: usize, within: Duration) -> Vec<Arrival> {
    while arrivals.try_recv().is_ok() {}
    let warm_up = count / 10;
    let mut seen = Vec::new();
    while seen.len() < count + warm_up {
        seen.push(arrivals.recv_timeout(within).expect("the jobs are due every second"));
    }
    seen.split_off(warm_up)
}

/// Jobs whose model is a script, so that only the program itself is measured.
fn scripted_house(jobs: usize, schedule: &str) -> tempfile::TempDir {
    let dir = house("127.0.0.1:9", 0, "");
    let write = |name: String, text: String| {
        std::fs::write(dir.path().join(name), text).expect("the temporary folder is writable");
    };
    write("model.toml".into(), "[[rule]]\nstep = [{ text = \"ok\" }]\n".into());
    let config = "[scheduler]\nmax_concurrent_runs = 64\n[agents.defaults]\nmodel = \"m/m\"\n\
                  [models.providers.m]\napi = \"script\"\nscript = \"model.toml\"\n";
    write("config.toml".into(), config.into());
    for n in 0..jobs {
        let text = format!("[schedule]\n{schedule}\n[agent]\nprompt = \"Say ok.\"\ntools = []\n");
        write(format!("jobs/job-{n:05}.toml"), text);
    }
    dir
}

fn house(address: &str, jobs: usize, cron: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("there is a temporary folder");
    let write = |name: String, text: String| {
        std::fs::write(dir.path().join(name), text).expect("the temporary folder is writable");
    };
    let mut config = String::from("[scheduler]\nmax_concurrent_runs = 64\n");
    write!(
        config,
        "[agents.defaults]\nmodel = \"m/m\"\n[models.providers.m]\napi = \"openai\"\n\
         base_url = \"http://{address}/v1\"\n"
    )
    .expect("writing to a string");
    write("config.toml".into(), config);
    std::fs::create_dir(dir.path().join("jobs")).expect("the temporary folder is writable");
    for n in 0..jobs {
        let text = format!(
            "[schedule]\ncron = \"{cron}\"\n[agent]\nprompt = \"Say ok.\"\ntools = []\n\
             [limits]\ntimeout = \"1m\"\n"
        );
        write(format!("jobs/job-{n:05}.toml"), text);
    }
    dir
}

/// How long each stored run took, from its row to its end.
fn durations(house: &Path) -> Vec<f64> {
    let sql = "SELECT (julianday(finished_at) - julianday(queued_at)) * 86400000.0
               FROM v1_runs WHERE state = 'succeeded'";
    query(house, sql)
}
