//! Jobs whose tools are those of an MCP server `w`.

use serde_json::{Value, json};

use super::stub::Stub;
use super::{House, asking};

pub const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/mcp_server.py");

/// A server `w` that is started with `arguments`; `keys` are more of its own.
pub fn server(arguments: &[&str], keys: &str) -> String {
    let words: Vec<_> = ["python3", SERVER].iter().chain(arguments).collect();
    format!("[mcp.servers.w]\ncommand = {}\n{keys}\n", json!(words))
}

/// A house with that server and a job `j` that has no other tools; `limits` are the job's.
pub fn house(model: &Stub, server: &str, limits: &str) -> House {
    let house = asking(model, "", server);
    house.job("j", &format!("{JOB}[limits]\n{limits}\n"));
    house
}

pub const JOB: &str = "[agent]\nprompt = \"go\"\ntools = []\nmcp = [\"w\"]\n";

/// What the model was told of its calls.
pub fn told(model: &Stub) -> Vec<String> {
    model.told().iter().map(|text| unframed(text)).collect()
}

/// What stands in the frame of a server's own words.
fn unframed(text: &str) -> String {
    let inside = || {
        let (_, after) = text.split_once("[begin ")?;
        let (mark, rest) = after.split_once("]\n")?;
        rest.strip_suffix(&format!("\n[end {mark}]"))
    };
    inside().unwrap_or(text).to_owned()
}

/// Under which names tools were offered first.
pub fn offered(model: &Stub) -> Vec<String> {
    let first = model.requests().first().unwrap().clone();
    let tools = first["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|it| it["function"]["name"].as_str().unwrap().to_owned()).collect()
}

pub fn verdicts(house: &House) -> Vec<Value> {
    house.rows("SELECT tool, outcome FROM v1_tool_calls ORDER BY run_id, n")
}

pub fn step(run: &Value, name: &str) -> Value {
    let steps = run["cleanup"]["steps"].as_array().unwrap().clone();
    steps.into_iter().find(|step| step["step"] == name).unwrap_or_default()
}
