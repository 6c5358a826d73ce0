//! Scenes that several files of tests begin with.

use serde_json::Value;

use super::scripts::{MANY, PLAIN, by_hand};
use super::stub::Act;
use super::{House, Running, Stub, asking, scripted, until};

/// A house whose daemon has a run with a tool, one that streams, and one that waits for a lane.
pub fn busy(grace: &str) -> (House, Running) {
    let house = soon_busy(grace);
    let serve = house.serve();
    get_busy(&house);
    (house, serve)
}

/// The same house before its daemon starts.
pub fn soon_busy(grace: &str) -> House {
    let house = scripted(
        MANY,
        &format!("[scheduler]\nshutdown_grace = \"{grace}\"\n[lanes]\nnarrow = 1\n"),
    );
    house.job("sleeps", &by_hand("sleep", "lane = \"narrow\"", ""));
    house.job("streams", &by_hand("hang", "", "timeout = \"0s\""));
    house.job("waits", &by_hand("go", "lane = \"narrow\"", ""));
    house
}

/// Starts its runs.
pub fn get_busy(house: &House) {
    house.detach("sleeps");
    until("the tool works", || house.living("sleep 60") == 1);
    house.detach("streams");
    house.detach("waits");
    house.until("SELECT count(*) = 2 FROM v1_attempts WHERE state = 'running'");
    house.until("SELECT count(*) = 1 FROM v1_runs WHERE job = 'waits' AND state = 'queued'");
}

/// What a model does with a request.
pub type Acts = fn() -> Vec<Act>;

/// Runs a job against a model that plays `acts`, with these keys of the provider.
pub fn against(acts: Acts, provider: &str) -> (Option<i32>, Value, Stub) {
    let stub = Stub::new(move |_| acts());
    let house = asking(&stub, provider, "");
    house.job("j", PLAIN);
    let (code, run) = house.run("j");
    house.assert_nothing_is_left();
    // What is printed is what is stored.
    let stored = house.say(&["show", run["run_id"].as_str().unwrap(), "--json"]).json();
    assert_eq!(stored, run);
    (code, run, stub)
}
