//! Conversations: kept from run to run, told more while they go on, sound whatever cut them.

#[expect(dead_code, reason = "the other tests of the whole program use the rest")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use support::scripts::by_hand;
use support::stub::{Act, Stub, call, finish, head, reply, text};
use support::{House, asking, until};

/// A model that answers each prompt by its words: to what begins with `slow` only once the door is
/// open, to `use` with a call of `exec`.
struct Model {
    stub: Stub,
    door: Arc<AtomicBool>,
}

impl Model {
    fn new() -> Self {
        let door = Arc::new(AtomicBool::new(false));
        let stub = Stub::answering({
            let door = Arc::clone(&door);
            move |request| {
                assert_paired(request);
                let last = request["messages"].as_array().unwrap().last().unwrap();
                let said = last["content"].as_str().unwrap_or_default();
                if said.starts_with("slow") {
                    until("the door is open", || door.load(Ordering::SeqCst));
                }
                let answer = match (last["role"].as_str(), said) {
                    (Some("user"), "use") => {
                        let arguments = json!({"command": "sleep 60"}).to_string();
                        head() + &call("exec", &arguments) + &finish("tool_calls")
                    }
                    (Some("user"), "half") => {
                        let half = head() + &text("so far") + &call("exec", "{\"comm");
                        return vec![Act::Say(half), Act::Hold];
                    }
                    _ => reply(&format!("re: {}", said.lines().last().unwrap_or_default())),
                };
                vec![Act::Say(answer)]
            }
        });
        Self { stub, door }
    }

    fn open(&self) {
        self.door.store(true, Ordering::SeqCst);
    }

    /// What the last request says: role and text of each message but the system prompt.
    fn last_asked(&self) -> Vec<(String, String)> {
        let requests = self.stub.requests();
        let messages = requests.last().unwrap()["messages"].as_array().unwrap().clone();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let said = messages.iter().map(|it| (word(&it["role"]), word(&it["content"])));
        said.filter(|(role, _)| role != "system").collect()
    }

    fn until_asked(&self, count: usize) {
        until("the model is asked", || self.stub.requests().len() >= count);
    }
}

/// B111: every call is followed by exactly one result, and there is no result without a call.
#[track_caller]
fn assert_paired(request: &Value) {
    let mut open: Vec<String> = Vec::new();
    for message in request["messages"].as_array().unwrap() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            let at = open.iter().position(|it| it == id);
            open.remove(at.unwrap_or_else(|| panic!("a result without a call: {request:#}")));
            continue;
        }
        assert!(open.is_empty(), "calls without results: {request:#}");
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open.extend(calls.map(|call| call["id"].as_str().unwrap().to_owned()));
    }
    assert!(open.is_empty(), "calls without results: {request:#}");
}

fn house(model: &Model, queue: &str) -> House {
    asking(&model.stub, "", &format!("[session.queue]\n{queue}\n"))
}

/// Says something and does not wait for the answer.
fn say(house: &House, session: &str, text: &str) -> Value {
    let said = house.say(&["agent", "-m", text, "--session", session, "--detach", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    said.json()
}

fn id(value: &Value) -> &str {
    value["run_id"].as_str().unwrap()
}

fn said(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

// Semantics §6: isolated: key `cron:<job>`, a new session id per run, no history carried; `job`: one
// conversation kept per job; `session:<key>`: a named one.
#[test]
fn a_job_goes_on_with_its_conversation_as_it_says() {
    let model = Model::new();
    let house = house(&model, "");
    let agent = |session: &str| format!("[agent]\nprompt = \"hello\"\nsession = \"{session}\"\n");
    for (job, session) in
        [("alone", "isolated"), ("own", "job"), ("first", "session:ops"), ("second", "session:ops")]
    {
        house.job(job, &agent(session));
    }
    let once = said(&[("user", "hello")]);
    let twice = said(&[("user", "hello"), ("assistant", "re: hello"), ("user", "hello")]);
    for (job, expected) in [
        ("alone", &once),
        ("alone", &once),
        ("own", &once),
        ("own", &twice),
        ("first", &once),
        ("second", &twice),
    ] {
        let (code, run) = house.run(job);
        assert_eq!((code, &model.last_asked()), (Some(0), expected), "{job}: {run:#}");
    }
    let seen = house.rows(
        "SELECT session_key, job, state, queued, count(*), count(DISTINCT session_id),
                min(transcript = 'sessions/' || session_id || '.jsonl'),
                min(last_run_id IN (SELECT run_id FROM v1_runs))
         FROM v1_sessions GROUP BY session_key ORDER BY session_key",
    );
    assert_eq!(
        seen,
        [
            json!(["cron:alone", "alone", "ended", 0, 2, 2, 1, 1]),
            json!(["job:own", "own", "idle", 0, 1, 1, 1, 1]),
            json!(["ops", null, "idle", 0, 1, 1, 1, 1]),
        ]
    );
    for row in house.rows("SELECT transcript FROM v1_sessions") {
        assert!(house.path("state").join(row[0].as_str().unwrap()).exists());
    }
    // Each run's own part of what it shares.
    let logs = house.say(&["logs", "second"]).stdout;
    assert_eq!(logs.matches("re: hello").count(), 1, "{logs}");
    let bad = "[agent]\nprompt = \"hello\"\nsession = \"session:Ops room\"\n";
    house.job("bad", bad);
    let refused = house.say(&["validate"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("cannot be a session's key"), "{refused:?}");
}

// Done when: kill -9 in mid-turn of a named session, restart, the next turn goes on with a sound
// history. B108: whoever held the lock is dead, so nobody waits for it. B111: cut in mid-tool.
#[test]
fn a_killed_turn_is_gone_on_with() {
    let model = Model::new();
    let house = house(&model, "");
    let tools = "session = \"session:ops\"\ntools = [\"exec\"]\nexec_allow = [\"*\"]\n";
    house.job("cut", &format!("[agent]\nprompt = \"use\"\n{tools}"));
    house.job("next", &format!("[agent]\nprompt = \"go on\"\n{tools}"));
    let serve = house.serve();
    let cut = house.detach("cut");
    until("the tool runs", || house.living("sleep 60") > 0);
    serve.kill();
    let serve = house.serve();
    house.until(&format!("SELECT state = 'interrupted' FROM v1_runs WHERE run_id = '{cut}'"));
    // It would be `session_busy` if the dead one still held the lock.
    let (code, run) = house.run("next");
    assert_eq!((code, &run["reply"]), (Some(0), &json!("re: go on")), "{run:#}");
    let asked = model.last_asked();
    let roles: Vec<_> = asked.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
    assert_eq!(asked[2].1, "no result: the run ended before the tool did");
    let transcript = house.value("SELECT transcript FROM v1_sessions WHERE session_key = 'ops'");
    let text = std::fs::read_to_string(house.path("state").join(transcript.as_str().unwrap()));
    assert_eq!(text.unwrap().matches("\"call_id\"").count(), 1, "the transcript is whole too");
    assert_eq!(serve.stop().code, Some(0));
}

// B111: cut in mid-stream, with half a call.
#[test]
fn half_a_call_leaves_nothing_in_the_conversation() {
    let model = Model::new();
    let house = house(&model, "");
    let serve = house.serve();
    let cut = say(&house, "ops", "half");
    house.until("SELECT state = 'running' FROM v1_runs");
    model.until_asked(1);
    assert_eq!(house.say(&["cancel", id(&cut)]).code, Some(0));
    house.until("SELECT state = 'cancelled' FROM v1_runs");
    let next = house.say(&["agent", "-m", "go on", "--session", "ops"]);
    assert_eq!((next.code, next.stdout.trim()), (Some(0), "re: go on"), "{next:?}");
    assert_eq!(model.last_asked(), said(&[("user", "half"), ("user", "go on")]));
    assert_eq!(serve.stop().code, Some(0));
}

// Semantics §1: `agent` validates its parameters, resolves the session by key or id, stores the
// session's metadata and answers at once with the run and when it was accepted.
#[test]
fn a_message_has_a_turn_of_its_own_in_a_session() {
    let model = Model::new();
    let house = house(&model, "");
    house.write(
        "config.toml",
        &format!(
            "{}[defaults.limits]\nmax_turns = 3\n[defaults.schedule]\ncron = \"0 9 * * *\"\n",
            std::fs::read_to_string(house.path("config.toml")).unwrap()
        ),
    );
    // Without a running process it is this one.
    let first = house.say(&["agent", "-m", "what is {{ this }}", "--json"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    let run = first.json();
    support::run_object::assert_has_every_key(&run);
    let key = [&run["job"], &run["session_key"], &run["trigger"], &run["reply"]];
    assert_eq!(
        key,
        [&json!("@agent"), &json!("main"), &json!("manual"), &json!("re: what is {{ this }}")]
    );
    assert_eq!(house.rows("SELECT * FROM v1_jobs"), Vec::<Value>::new());
    assert_eq!(house.say(&["ls", "--json"]).json(), json!([]));

    let serve = house.serve();
    let by_id = say(&house, run["session_id"].as_str().unwrap(), "and now");
    assert_eq!(by_id["session_key"], "main");
    assert!(by_id["accepted_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(house.ended(id(&by_id))["session_id"], run["session_id"]);
    assert_eq!(model.last_asked().len(), 3);
    for (arguments, words) in [
        (["agent", "-m", " ", "--session", "main"], "empty"),
        (["agent", "-m", "x", "--session", "No!"], "cannot be a session's key"),
    ] {
        let refused = house.say(&arguments);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    let heard =
        "SELECT mode, state, run_id IN (SELECT run_id FROM v1_runs), session_key FROM v1_messages";
    assert_eq!(house.rows(heard), vec![json!(["start", "heard", 1, "main"]); 2]);
    let listed = house.say(&["runs", "--job", "@agent", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(serve.stop().code, Some(0));
}

// Semantics §6: `steer` (default): injected at the next model or tool boundary.
#[test]
fn a_message_steers_the_turn_that_goes_on() {
    let model = Model::new();
    let house = house(&model, "");
    let serve = house.serve();
    let first = say(&house, "ops", "slow one");
    model.until_asked(1);
    let second = say(&house, "ops", "two");
    assert_eq!((&second["mode"], &second["run_id"]), (&json!("steer"), &first["run_id"]));
    model.open();
    let run = house.ended(id(&first));
    assert_eq!((&run["state"], &run["reply"]), (&json!("succeeded"), &json!("re: two")));
    assert_eq!(
        model.last_asked(),
        said(&[("user", "slow one"), ("assistant", "re: slow one"), ("user", "two")])
    );
    house.until("SELECT count(*) = 2 FROM v1_messages WHERE state = 'heard'");
    assert_eq!(house.value("SELECT count(*) FROM v1_runs"), 1);
    assert_eq!(serve.stop().code, Some(0));
}

// Semantics §6: what a run has not heard when it fails is not lost.
#[test]
fn what_a_failed_turn_has_not_heard_has_a_turn_of_its_own() {
    let model = Model::new();
    let house = house(&model, "");
    let slow = by_hand("slow one", "", "timeout = \"2s\"");
    house.job("j", &slow.replace("[agent]", "[agent]\nsession = \"session:ops\""));
    let serve = house.serve();
    let cut = house.detach("j");
    model.until_asked(1);
    let said = house.start(&["agent", "-m", "two", "--session", "ops", "--json"]).end();
    assert_eq!(house.ended(&cut)["state"], "timed_out");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.json()["reply"], "re: two");
    assert_ne!(said.json()["run_id"], cut);
    let fate = "SELECT mode, state, run_id FROM v1_messages";
    assert_eq!(house.rows(fate), [json!(["start", "heard", said.json()["run_id"]])]);
    assert_eq!(serve.stop().code, Some(0));
}

// Semantics §6: `followup`: one turn each, afterwards. Semantics §1: one turn at a time per session.
#[test]
fn messages_follow_one_another_and_what_waits_is_cancelled_first() {
    let model = Model::new();
    let house = house(&model, "mode = \"followup\"");
    let serve = house.serve();
    let first = say(&house, "ops", "slow one");
    model.until_asked(1);
    let [second, third] = ["two", "three"].map(|text| say(&house, "ops", text));
    let seen = "SELECT state, queued, running_run_id, queued_run_ids FROM v1_sessions";
    let waiting = json!([second["run_id"], third["run_id"]]).to_string();
    assert_eq!(house.rows(seen), [json!(["running", 2, first["run_id"], waiting])]);
    let status = house.say(&["status"]).stdout;
    assert_eq!(status.matches("@agent in ops").count(), 3, "{status}");
    model.open();
    for (run, reply) in [(&first, "re: slow one"), (&second, "re: two"), (&third, "re: three")] {
        assert_eq!(house.ended(id(run))["reply"], reply);
    }
    assert_eq!(model.last_asked().len(), 5);
    let together = "SELECT count(*) FROM v1_runs a JOIN v1_runs b
                    WHERE a.run_id < b.run_id AND b.started_at < a.finished_at";
    assert_eq!(house.value(together), 0);

    model.door.store(false, Ordering::SeqCst);
    let active = say(&house, "ops", "slow four");
    model.until_asked(4);
    let waits = say(&house, "ops", "five");
    let cancelled = house.say(&["cancel", "ops", "--json"]).json();
    assert_eq!(cancelled, json!({"cancelled": [waits["run_id"], active["run_id"]]}));
    for run in [&waits, &active] {
        assert_eq!(house.ended(id(run))["state"], "cancelled");
    }
    assert_eq!(model.stub.requests().len(), 4, "what waited never began");
    let last = "SELECT state FROM v1_messages ORDER BY message_id DESC LIMIT 2";
    assert_eq!(house.rows(last), [json!(["cancelled"]), json!(["heard"])]);
    assert_eq!(serve.stop().code, Some(0));
}

// Semantics §6: `collect`: coalesced into one turn after 500ms of quiet.
#[test]
fn messages_are_collected_into_one_turn() {
    let model = Model::new();
    let house = house(&model, "mode = \"collect\"\ndebounce = \"2s\"");
    let serve = house.serve();
    let first = say(&house, "ops", "slow one");
    model.until_asked(1);
    let [second, third] = ["two", "three"].map(|text| say(&house, "ops", text));
    assert_eq!(second["run_id"], third["run_id"]);
    assert_ne!(second["run_id"], first["run_id"]);
    model.open();
    assert_eq!(house.ended(id(&second))["reply"], "re: three");
    assert_eq!(model.last_asked().last().unwrap().1, "two\n\nthree");
    let quiet =
        "SELECT (julianday(r.started_at) - julianday(max(m.received_at))) * 86400000 >= 1990
                 FROM v1_messages m JOIN v1_runs r USING (run_id) WHERE m.mode = 'collect'";
    assert_eq!(house.value(quiet), 1);
    assert_eq!(serve.stop().code, Some(0));
}

// Semantics §6: `interrupt`: abort the active run, run the newest.
#[test]
fn the_newest_message_interrupts_the_turn_that_goes_on() {
    let model = Model::new();
    let house = house(&model, "mode = \"interrupt\"");
    let serve = house.serve();
    let first = say(&house, "ops", "slow one");
    model.until_asked(1);
    let second = say(&house, "ops", "two");
    let cut = house.ended(id(&first));
    assert_eq!((&cut["state"], &cut["error"]["kind"]), (&json!("cancelled"), &json!("replaced")));
    assert_eq!(house.ended(id(&second))["reply"], "re: two");
    assert_eq!(model.last_asked(), said(&[("user", "slow one"), ("user", "two")]));
    model.open();
    assert_eq!(serve.stop().code, Some(0));
}

// Semantics §6: queue cap; overflow drops the oldest into a short summary. The in-memory queue is
// not replayed after a restart; what had not started is shown as interrupted.
#[test]
fn too_many_messages_drop_the_oldest_and_none_is_replayed() {
    let model = Model::new();
    let house = house(&model, "mode = \"followup\"\ncap = 1");
    let serve = house.serve();
    let first = say(&house, "ops", "slow one");
    model.until_asked(1);
    let [second, third] = ["two", "three"].map(|text| say(&house, "ops", text));
    assert_eq!(house.ended(id(&second))["error"]["kind"], "replaced");
    model.open();
    house.ended(id(&third));
    let prompt = "[1 earlier messages were dropped, too many waited:\n- two]\n\nthree";
    assert_eq!(model.last_asked().last().unwrap().1, prompt);
    assert_eq!(house.ended(id(&first))["state"], "succeeded");

    model.door.store(false, Ordering::SeqCst);
    let active = say(&house, "ops", "slow four");
    model.until_asked(3);
    let waits = say(&house, "ops", "five");
    serve.kill();
    model.open();
    let serve = house.serve();
    for run in [&active, &waits] {
        assert_eq!(house.ended(id(run))["state"], "interrupted");
    }
    let states = "SELECT state FROM v1_messages ORDER BY message_id";
    let expected = ["heard", "dropped", "heard", "heard", "interrupted"].map(|it| json!([it]));
    assert_eq!(house.rows(states), expected);
    let next = house.say(&["agent", "-m", "six", "--session", "ops"]);
    assert_eq!(next.stdout.trim(), "re: six", "{next:?}");
    assert_eq!(model.stub.requests().len(), 4, "nothing was replayed");
    assert_eq!(serve.stop().code, Some(0));
}

// Semantics §1: `/new`, `/reset`, `/stop`: new session, cleared session, abort and empty the queue;
// each emits `command:<name>`.
#[test]
fn a_message_can_be_a_command() {
    let model = Model::new();
    let house = house(&model, "mode = \"followup\"");
    let serve = house.serve();
    let tell = |text: &str| {
        let said = house.say(&["agent", "-m", text, "--session", "ops", "--json"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.json()
    };
    let first = tell("one");
    let cleared = tell("/reset");
    let facts = [&cleared["command"], &cleared["session_id"], &cleared["cancelled"]];
    assert_eq!(facts, [&json!("reset"), &first["session_id"], &json!([])]);
    assert_eq!(tell("two")["session_id"], first["session_id"]);
    assert_eq!(model.last_asked(), said(&[("user", "two")]), "nothing is remembered");
    tell("three");
    assert_eq!(model.last_asked().len(), 3, "but what came after is");

    let new = tell("/new four");
    assert_ne!(new["session_id"], first["session_id"]);
    assert_eq!(model.last_asked(), said(&[("user", "four")]));
    let sessions = "SELECT state, session_key FROM v1_sessions ORDER BY created_at";
    assert_eq!(house.rows(sessions), [json!(["ended", "ops"]), json!(["idle", "ops"])]);

    let active = say(&house, "ops", "slow five");
    model.until_asked(5);
    let waits = say(&house, "ops", "six");
    let stopped = tell("/stop");
    assert_eq!(stopped["cancelled"], json!([waits["run_id"], active["run_id"]]));
    for run in [&active, &waits] {
        assert_eq!(house.ended(id(run))["state"], "cancelled");
    }
    model.open();
    let commands = "SELECT name FROM v1_audit WHERE kind = 'command' ORDER BY at, name";
    house.until("SELECT count(*) = 3 FROM v1_audit WHERE kind = 'command'");
    let names = ["command:reset", "command:new", "command:stop"].map(|it| json!([it]));
    assert_eq!(house.rows(commands), names);
    assert_eq!(serve.stop().code, Some(0));
}

// Semantics §1: order: session lane, then the job's named lane, then global. A scheduled run of a
// busy session waits, as long as it may.
#[test]
fn a_run_waits_for_its_session_and_holds_no_lane_meanwhile() {
    let model = Model::new();
    let house = house(&model, "");
    let job = |top: &str, limits: &str| {
        by_hand("hello", top, limits).replace("[agent]", "[agent]\nsession = \"session:ops\"")
    };
    house.job("waits", &job("lane = \"narrow\"", ""));
    house.job("impatient", &job("", "lane_timeout = \"300ms\""));
    house.job("other", &by_hand("hello", "lane = \"narrow\"", ""));
    house.write(
        "config.toml",
        &format!(
            "{}[lanes]\nnarrow = 1\n",
            std::fs::read_to_string(house.path("config.toml")).unwrap()
        ),
    );
    let serve = house.serve();
    let first = say(&house, "ops", "slow one");
    model.until_asked(1);
    let waits = house.detach("waits");
    assert_eq!(house.run("other").0, Some(0), "the lane is free");
    let (code, run) = house.run("impatient");
    assert_eq!((code, &run["error"]["kind"]), (Some(1), &json!("lane_timeout")));
    model.open();
    assert_eq!(house.ended(id(&first))["state"], "succeeded");
    assert_eq!(house.ended(&waits)["state"], "succeeded");
    assert_eq!(serve.stop().code, Some(0));
}

// B113: a shared transcript is no run's, and goes only when nobody has used it for long.
#[test]
fn a_conversation_outlives_its_runs_and_goes_when_it_is_old() {
    let model = Model::new();
    let house = house(&model, "");
    for text in ["one", "two"] {
        assert_eq!(house.say(&["agent", "-m", text]).code, Some(0));
    }
    house.say(&["agent", "-m", "/new"]);
    let transcript = house.value("SELECT transcript FROM v1_sessions WHERE state = 'ended'");
    let transcript = house.path("state").join(transcript.as_str().unwrap());
    let old = "UPDATE runs SET queued_at = '2020-01-01T00:00:00.000Z',
                               finished_at = '2020-01-01T00:00:00.000Z'";
    house.writable().execute(old, []).unwrap();
    house.write(
        "config.toml",
        &format!(
            "{}[retention]\ndays = 5\n",
            std::fs::read_to_string(house.path("config.toml")).unwrap()
        ),
    );
    let serve = house.serve();
    house.until("SELECT count(*) = 0 FROM v1_runs");
    assert!(transcript.exists());
    assert_eq!(house.value("SELECT count(*) FROM v1_sessions"), 2);
    assert_eq!(serve.stop().code, Some(0));
    let old =
        "UPDATE sessions SET last_used_at = '2020-01-01T00:00:00.000Z' WHERE ended_at IS NOT NULL";
    house.writable().execute(old, []).unwrap();
    let serve = house.serve();
    house.until("SELECT count(*) = 1 FROM v1_sessions");
    until("its transcript is gone", || !transcript.exists());
    assert_eq!(serve.stop().code, Some(0));
}
