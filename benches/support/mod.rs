//! What the benchmarks of the whole program share.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

pub fn report(what: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let rank = |per_cent: usize| values[(values.len() * per_cent / 100).min(values.len() - 1)];
    println!("{what}: p50 {:.1}, p99 {:.1}, n {}", rank(50), rank(99), values.len());
}

pub fn punctual(house: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.current_dir(house).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The first column of an answer.
pub fn query(house: &Path, sql: &str) -> Vec<f64> {
    let output = punctual(house)
        .args(["query", sql, "--format", "csv"])
        .stdout(Stdio::piped())
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().skip(1).filter_map(|line| line.parse().ok()).collect()
}

/// A running `serve`.
pub struct Serve(pub Child);

impl Serve {
    pub fn start(house: &Path) -> Self {
        Self(punctual(house).arg("serve").spawn().expect("the program runs"))
    }

    /// One whose words can be read.
    pub fn start_loud(house: &Path) -> Self {
        let mut command = punctual(house);
        Self(command.arg("serve").stderr(Stdio::piped()).spawn().expect("the program runs"))
    }

    pub fn stop(&mut self) {
        let pid = i32::try_from(self.0.id()).expect("a pid is an i32");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM)
            .expect("the program can be stopped");
        self.0.wait().expect("the program ends");
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).expect("it runs")
    }

    pub fn rss_mb(&self) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("it has memory");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).expect("a number")
            / 1024.0
    }

    /// Processor time of all its threads in milliseconds.
    pub fn processor_ms(&self) -> f64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it runs");
        threads
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
            .filter_map(|text| text.split(' ').next()?.parse::<f64>().ok())
            .sum::<f64>()
            / 1e6
    }
}

pub fn now_ms() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    since.as_secs_f64() * 1000.0
}
