//! How fast the outbox empties: files, and a webhook on this machine.
//!
//! `cargo bench --bench outbox`. The letters are put into the ledger of a stopped `serve`; its next
//! start sends them.

#![expect(clippy::disallowed_methods, reason = "a benchmark waits")]

#[expect(dead_code, reason = "the benchmarks of the whole program use the rest")]
mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use support::{Serve, punctual, query};

const LETTERS: u32 = 2000;

fn main() {
    let receiver = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = receiver.local_addr().expect("it has an address").port();
    std::thread::spawn(move || {
        for peer in receiver.incoming().flatten() {
            std::thread::spawn(move || receive(&peer));
        }
    });
    empties("files", "kind = \"file\"\npath = \"out/{{ run_id }}-{{ attempt }}.md\"\n");
    let webhook = format!("kind = \"webhook\"\nurl = \"http://127.0.0.1:{port}/hook\"\n");
    empties("webhook", &webhook);
}

/// Takes one message after the other, as long as the connection lasts.
fn receive(peer: &TcpStream) {
    let mut reader = BufReader::new(peer);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line.trim().is_empty() => break,
                Ok(_) => {}
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let mut writer = peer;
        if writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

fn empties(what: &str, target: &str) {
    let house = tempfile::tempdir().expect("there is room");
    let write = |name: &str, text: &str| {
        std::fs::write(house.path().join(name), text).expect("there is room");
    };
    std::fs::create_dir(house.path().join("jobs")).expect("there is room");
    write(
        "config.toml",
        &format!("[targets.box]\n{target}[security]\nallow_hosts = [\"127.0.0.1\"]\n"),
    );
    write("jobs/j.toml", "[command]\nargv = [\"echo\", \"a report\"]\n");
    assert!(punctual(house.path()).args(["run", "j"]).status().expect("it runs").success());
    put_in(&house.path().join("state/punctual.db"));
    let mut serve = Serve::start(house.path());
    let left = "SELECT count(*) FROM v1_deliveries WHERE state = 'queued'";
    while query(house.path(), left) != [0.0] {
        std::thread::sleep(Duration::from_millis(100));
    }
    serve.stop();
    let not_sent = "SELECT count(*) FROM v1_deliveries WHERE state <> 'sent'";
    assert_eq!(query(house.path(), not_sent), [0.0]);
    let took = "SELECT (julianday(max(settled_at)) - julianday(min(settled_at))) * 86400 FROM v1_deliveries";
    let rate = f64::from(LETTERS) / query(house.path(), took)[0];
    println!("{LETTERS} letters in the outbox, {what}: {rate:.0} a second");
}

fn put_in(database: &Path) {
    let db = Connection::open(database).expect("it is there");
    db.execute_batch(&format!(
        "INSERT INTO deliveries (delivery_id, run_id, job, target, state, queued_at, next_at)
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {LETTERS})
         SELECT printf('letter-%05d', i), run_id, job, 'box', 'queued', finished_at, finished_at
         FROM n, runs"
    ))
    .expect("the outbox takes them");
}
