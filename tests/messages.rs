//! What a run sends while it goes on: the tool `message`, through the outbox to real receivers.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::fs;

use serde_json::{Value, json};
use support::scripts::KEY;
use support::stub::{Act, Stub, call, finish, head, refusal, text};
use support::{House, asking, until};

/// One message a turn, then `end`.
fn telling(messages: Vec<(&'static str, String)>, end: &'static str) -> Stub {
    Stub::answering(move |request| {
        let said = |message: &&Value| message["role"] == "assistant";
        let turn = request["messages"].as_array().unwrap().iter().filter(said).count();
        let answer = match messages.get(turn) {
            Some((target, text)) => {
                let arguments = json!({"target": target, "text": text}).to_string();
                call("message", &arguments) + &finish("tool_calls")
            }
            None => text(end) + &finish("stop"),
        };
        vec![Act::Say(head() + &answer)]
    })
}

fn told(all: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    all.iter().map(|&(target, text)| (target, text.to_owned())).collect()
}

/// What the tool has given, call by call.
fn given(stub: &Stub) -> Vec<String> {
    let requests = stub.requests();
    let messages = requests.last().unwrap()["messages"].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

const FILES: &str = "[targets.desk]\nkind = \"file\"\npath = \"out/desk.txt\"\n\
                     [targets.log]\nkind = \"file\"\npath = \"out/{{ state }}.txt\"\n";

const TELLER: &str = "[agent]\nprompt = \"go\"\ntools = [\"message\"]\n";

fn deliveries(house: &House) -> Vec<Value> {
    house.rows("SELECT target, state, text FROM v1_deliveries ORDER BY delivery_id")
}

#[test]
fn a_message_is_sent_at_once_and_the_same_one_only_once() {
    let stub = telling(
        told(&[
            ("desk", "half way"),
            ("desk", " half way\n"),
            ("nowhere", "x"),
            ("log", "half way"),
        ]),
        "fine",
    );
    let house = asking(&stub, "", FILES);
    house.job("j", TELLER);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("fine")), "{run:#}");
    let given = given(&stub);
    assert_eq!(given[0], "on its way to desk");
    assert_eq!(given[1], "desk has that message already: it is not sent again");
    assert_eq!(given[2], "there is no target `nowhere`; there are desk, log");
    assert_eq!(given[3], "on its way to log");
    until("both have arrived", || {
        house.value("SELECT count(*) FROM v1_deliveries WHERE state = 'sent'") == json!(2)
    });
    let rows = [json!(["desk", "sent", "half way"]), json!(["log", "sent", "half way"])];
    assert_eq!(deliveries(&house), rows);
    let read = |name: &str| fs::read_to_string(house.path(name)).unwrap();
    assert_eq!(read("out/desk.txt"), "half way\n");
    // The second one names the state that the run had then.
    assert_eq!(read("out/running.txt"), "half way\n");
    let offered = &stub.requests()[0]["tools"][0]["function"]["description"];
    assert!(offered.as_str().unwrap().ends_with("Targets: desk, log."), "{offered}");
}

// semantics §9: what a messaging tool already sent is not sent again.
#[test]
fn a_reply_that_the_run_has_sent_itself_is_not_delivered_again() {
    let stub = telling(told(&[("desk", "all is well")]), "all is well\n");
    let house = asking(&stub, "", FILES);
    house.job("j", &format!("{TELLER}[[deliver]]\nto = \"desk\"\n[[deliver]]\nto = \"log\"\n"));
    let (code, run) = house.run("j");
    assert_eq!(code, Some(0), "{run:#}");
    house.until("SELECT count(*) = 2 FROM v1_deliveries WHERE state = 'sent'");
    let rows = house
        .rows("SELECT target, state, text, last_error FROM v1_deliveries ORDER BY delivery_id");
    let again = "the run has sent it already";
    let wanted = [
        json!(["desk", "suppressed", null, again]),
        // To somebody else it is news.
        json!(["log", "sent", null, null]),
        json!(["desk", "sent", "all is well", null]),
    ];
    assert_eq!(rows, wanted);
}

#[test]
fn a_message_is_a_fact_of_its_own_also_of_a_run_that_fails() {
    let stub = Stub::new(|n| {
        vec![Act::Say(match n {
            0 => {
                let arguments = json!({"target": "hook", "text": "it begins"}).to_string();
                head() + &call("message", &arguments) + &finish("tool_calls")
            }
            _ => refusal("400 Bad Request", &json!({"error": {"message": "no"}})),
        })]
    });
    let hook = Stub::new(|_| vec![Act::Say(refusal("200 OK", &json!({})))]);
    let target = format!("[targets.hook]\nkind = \"webhook\"\nurl = \"{}\"\n", hook.url());
    let near = "[security]\nallow_hosts = [\"127.0.0.1\"]\n";
    let house = asking(&stub, "", &format!("{target}{near}"));
    house.job("j", TELLER);
    let (code, run) = house.run("j");
    assert_eq!((code, &run["state"]), (Some(1), &json!("failed")), "{run:#}");
    house.until("SELECT count(*) = 1 FROM v1_deliveries WHERE state = 'sent'");
    let sent = &hook.requests()[0];
    assert_eq!((&sent["event"], &sent["text"]), (&json!("message"), &json!("it begins")));
    assert_eq!((&sent["run"]["job"], &sent["run"]["run_id"]), (&json!("j"), &run["run_id"]));
}

#[test]
fn whoever_wants_nothing_sent_gets_nothing_sent_and_a_run_sends_only_so_much() {
    let many: Vec<_> = (0..12).map(|n| ("desk", format!("message {n}"))).collect();
    let stub = telling(many, "fine");
    let house = asking(&stub, "", FILES);
    house.job("j", TELLER);
    let said = house.say(&["run", "j", "--no-deliver", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.json()["tools"], json!({"calls": 12, "errors": 0, "denied": 2}));
    let given = given(&stub);
    assert_eq!(given[0], "taken; this run was asked for without deliveries");
    assert_eq!(given[10], "a run sends at most 10 messages");
    let count = "SELECT count(*) FROM v1_deliveries WHERE state = 'suppressed'";
    assert_eq!(house.value(count), 10);
    assert!(!house.path("out").exists());
}

#[test]
fn a_message_is_masked_and_bounded_and_neither_recording_nor_replay_sends_one() {
    let stub = telling(
        vec![
            ("desk", format!("the key is {KEY}")),
            ("desk", "x".repeat(20_001)),
            ("desk", " ".into()),
        ],
        "fine",
    );
    let house = asking(&stub, "", FILES).with_secret("TOKEN", KEY);
    house.job("j", &format!("{TELLER}[env]\nsecret = {{ TOKEN = {{ env = \"TOKEN\" }} }}\n"));
    let said = house.say(&["test", "j", "--record"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = house.say(&["test", "j"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!house.path("out").exists(), "nothing has been sent");

    assert_eq!(house.run("j").0, Some(0));
    let given = given(&stub);
    assert_eq!(given[1], "the message is longer than 20000 bytes");
    assert_eq!(given[2], "there is nothing in the message");
    house.until("SELECT count(*) = 1 FROM v1_deliveries WHERE state = 'sent'");
    assert_eq!(deliveries(&house), [json!(["desk", "sent", "the key is [secret TOKEN]"])]);
    // The house looks for the key itself when it goes.
}
