//! Models that are not there: slots that wait for them, and what becomes of those.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::socket::{Backlog, listen};
use serde_json::json;
use support::ledger::{assert_once, assert_sound};
use support::scripts::{EVERY_SECOND, PLAIN, once_at, soon};
use support::stub::{Act, Stub, reply};
use support::{House, asking, until};

/// Nothing else listens here: a port that is free stays free until it is taken.
const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// Two jobs that are due at these times, with the models that they ask.
fn house(models: &[(&str, SocketAddr)]) -> House {
    let mut config = "[agents.defaults]\nmodel = \"down/m\"\n".to_owned();
    for (name, address) in models {
        config += &provider(name, &format!("http://{address}/v1"));
    }
    House::new(&config)
}

fn provider(name: &str, url: &str) -> String {
    format!("[models.providers.{name}]\napi = \"openai\"\nbase_url = \"{url}\"\n")
}

/// Where nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap()
}

fn fine() -> Vec<Act> {
    vec![Act::Say(reply("fine"))]
}

const SLOTS: &str = "SELECT job, decision, reason FROM v1_slots ORDER BY job, due_at";

#[test]
fn a_slot_is_held_and_starts_when_its_model_is_there() {
    let address = nobody();
    let house = house(&[("down", address)]);
    let due = soon();
    house.job("a", &once_at(due, "go", ""));
    house.job("b", &once_at(due + Duration::from_secs(6), "go", ""));
    let serve = house.serve();
    house.until("SELECT decision = 'held' FROM v1_slots WHERE job = 'a'");
    assert_eq!(house.rows(SLOTS), [json!(["a", "held", "model_unreachable"])]);
    serve.until_stderr("a model server cannot be reached");
    let status = house.say(&["status", "--json"]).json();
    assert_eq!(status["running"]["unreachable"][0]["job"], "a");
    assert!(house.say(&["status"]).stdout.contains("  a: no model can be reached since "));
    let why = house.say(&["why", "a"]).stdout;
    assert!(why.contains("It was held back: no model of the job could be reached"), "{why}");
    assert_eq!(house.value("SELECT count(*) FROM v1_runs"), 0);

    // Whoever comes next remembers; the answer to the other job starts both.
    serve.kill();
    let stub = Stub::on(address, |_| fine());
    let serve = house.serve();
    house.until("SELECT count(*) = 2 FROM v1_runs WHERE state = 'succeeded'");
    let started = ["a", "b"].map(|job| json!([job, "started", null]));
    assert_eq!(house.rows(SLOTS), started);
    assert_eq!(stub.requests().len(), 2);
    assert!(stub.probes() >= 1);
    assert_eq!(house.say(&["status", "--json"]).json()["running"]["unreachable"], json!([]));
    assert_eq!(serve.stop().code, Some(0));
    assert_once(&house);
    assert_sound(&house);
}

#[test]
fn what_waits_in_vain_is_missed_and_others_go_on() {
    let (_server, _client, full) = hanging();
    let house = house(&[("down", nobody()), ("hangs", full)]);
    let stub = Stub::new(|_| fine());
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &(config + &provider("up", &stub.url())));
    let at = |window: &str| {
        let due = soon();
        format!("[schedule]\nat = \"{due:.3}\"\ncatchup_window = \"{window}\"\n{PLAIN}")
    };
    house.job("once", &at("4s"));
    house.job("twice", &EVERY_SECOND.replace("* * * * * *", "*/2 * * * * *"));
    let hangs = "model = \"hangs/m\"\nfallbacks = [\"down/m\"]";
    house.job("hangs", &at("4s").replace("[agent]", &format!("[agent]\n{hangs}")));
    let goes = EVERY_SECOND.replace("[agent]", "[agent]\nmodel = \"up/m\"");
    house.job("goes", &goes);
    let serve = house.serve();
    house.until(
        "SELECT count(*) = 2 FROM v1_slots
         WHERE job IN ('once', 'hangs') AND (decision, reason) = ('missed', 'model_unreachable')",
    );
    house.until("SELECT count(*) > 2 FROM v1_slots WHERE job = 'twice' AND decision = 'missed'");
    assert_eq!(serve.stop().code, Some(0));
    // Of a job that is due again and again the newest slot waits.
    let twice = house.rows(
        "SELECT DISTINCT decision, reason, due_at = (SELECT max(due_at) FROM v1_slots WHERE job = 'twice')
         FROM v1_slots WHERE job = 'twice' ORDER BY due_at",
    );
    let unreachable = |decision: &str, newest: u8| json!([decision, "model_unreachable", newest]);
    assert_eq!(twice, [unreachable("missed", 0), unreachable("held", 1)]);
    assert_eq!(house.value("SELECT count(*) FROM v1_runs WHERE job <> 'goes'"), 0);
    let late = "SELECT count(*) FROM v1_slots WHERE job = 'goes' AND (decision <> 'started' OR late_ms > 900)";
    assert_eq!(house.value(late), 0);
    assert!(house.value("SELECT count(*) FROM v1_runs WHERE job = 'goes'").as_u64() > Some(3));
    assert_eq!(stub.probes(), 1);
}

#[test]
fn whoever_accepts_a_connection_is_there_and_is_asked_once_in_five_minutes() {
    let silent = Stub::new(|_| fine()).when_probed(|| vec![Act::Hold]);
    let house = asking(&silent, "", "");
    house.job("a", &once_at(soon(), "go", ""));
    let serve = house.serve();
    house.until("SELECT state = 'succeeded' FROM v1_runs");
    assert_eq!(serve.stop().code, Some(0));
    // It has waited for the list of models, and not for long.
    let late = house.value("SELECT late_ms FROM v1_slots");
    assert!((500..20_000).contains(&late.as_i64().unwrap()), "{late}");
    assert_eq!(silent.probes(), 1);

    let broken = Stub::new(|_| fine()).when_probed(|| vec![Act::Reset]);
    let house = asking(&broken, "", "");
    house.job("a", EVERY_SECOND);
    let serve = house.serve();
    house.until("SELECT count(*) >= 3 FROM v1_runs WHERE state = 'succeeded'");
    assert_eq!(serve.stop().code, Some(0));
    assert_eq!(broken.probes(), 1);
}

#[test]
fn neither_a_run_by_hand_nor_a_job_with_another_model_asks_before() {
    let address = nobody();
    let script = "[models.providers.script]\napi = \"script\"\nscript = \"model.toml\"\n";
    let house = house(&[("down", address)]);
    let config = std::fs::read_to_string(house.path("config.toml")).unwrap();
    house.write("config.toml", &(config + script));
    house.write("model.toml", "[[rule]]\nstep = [{ text = \"fine\" }]\n");
    house.job("by-hand", PLAIN);
    let due: Timestamp = soon();
    let other = once_at(due, "go", "").replace("[agent]", "[agent]\nfallbacks = [\"script/m\"]");
    house.job("other", &other);
    let serve = house.serve();
    let (code, run) = house.run("by-hand");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("model_unreachable")));
    house.until("SELECT state = 'succeeded' FROM v1_runs WHERE job = 'other'");
    assert_eq!(
        house.rows("SELECT a.model, a.state FROM v1_attempts a JOIN v1_runs r USING (run_id) WHERE job = 'other' ORDER BY n"),
        [json!(["down/m", "failed"]), json!(["down/m", "failed"]), json!(["down/m", "failed"]), json!(["script/m", "succeeded"])]
    );
    assert_eq!(serve.stop().code, Some(0));
}

/// A server whose queue of connections is full: whoever connects waits.
fn hanging() -> (TcpListener, TcpStream, SocketAddr) {
    let server = TcpListener::bind((HERE, 0)).unwrap();
    let address = server.local_addr().unwrap();
    listen(&server, Backlog::new(0).unwrap()).unwrap();
    let client = TcpStream::connect(address).unwrap();
    until("nobody is let in", || {
        TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_err()
    });
    (server, client, address)
}
