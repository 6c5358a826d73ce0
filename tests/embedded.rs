//! The library in another program: a provider, a tool and hooks of its own, in one process.

use std::path::Path;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use punctual::clock::SystemClock;
use punctual::config::{self, Sources};
use punctual::daemon::{Daemon, Kind, Stopped};
use punctual::executor::Embedding;
use punctual::hooks::{AgentEnd, BeforeToolCall, Hooks, Ignored, ToolCallAnswer};
use punctual::job::Environment;
use punctual::process::SupervisorPath;
use punctual::provider::{
    Completion, EventStream, Fault, Message, Provider, Request, ToolDefinition,
};
use punctual::store::QueryLimits;
use punctual::tools::{Arguments, Tool, ToolContext, ToolOutcome, Verdict};
use serde_json::{Value, json};

/// Asks for the tool once, then says what it gave.
struct Model;

impl Provider for Model {
    fn stream<'a>(&'a self, asked: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>> {
        let answer = match asked.messages.last() {
            Some(Message::ToolResult { content, .. }) => Completion::saying(content.as_str()),
            _ => Completion::calling("1", "double", arguments(&json!({ "number": 4 }))),
        };
        async { Ok(answer.stream()) }.boxed()
    }
}

struct Double;

impl Tool for Double {
    fn definition(&self) -> ToolDefinition {
        let parameters =
            json!({ "type": "object", "properties": { "number": { "type": "integer" } } });
        ToolDefinition::new("double", "Doubles.", parameters)
    }

    fn call<'a>(&'a self, given: Arguments, _: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        let number = given["number"].as_i64().unwrap_or(0);
        async move { ToolOutcome::new(Verdict::Ok, (2 * number).to_string()) }.boxed()
    }
}

fn arguments(value: &Value) -> Arguments {
    value.as_object().cloned().unwrap_or_default()
}

async fn daemon(folder: &Path, embedding: Embedding) -> Daemon {
    std::fs::create_dir(folder.join("jobs")).unwrap();
    let command = "command = [\"sh\", \"-c\", \"echo '{\\\"block\\\": false}'\"]";
    let config = format!(
        "models.providers.own.api = \"embedded\"\n\
         [[hooks]]\non = \"before_tool_call\"\nname = \"of the file\"\n{command}\n"
    );
    std::fs::write(folder.join("config.toml"), config).unwrap();
    let job = "schedule.every = \"1s\"\n[agent]\nmodel = \"own/m\"\nprompt = \"go\"\ntools = []\n";
    std::fs::write(folder.join("jobs/j.toml"), job).unwrap();
    let sources = Sources {
        config_paths: vec!["config.toml".into()],
        state_dir: None,
        environment: Environment::fixed([]),
        current_dir: folder.to_owned(),
    };
    let (config, _) = config::load(&sources).unwrap();
    let supervisor = SupervisorPath::at(env!("CARGO_BIN_EXE_punctual"));
    let opened = Daemon::open(config, Kind::Serve, Arc::new(SystemClock), supervisor).await;
    opened.unwrap().embedding(embedding)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_brings_a_provider_a_tool_and_hooks_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&ends);
    let larger = |call: &BeforeToolCall| {
        assert_eq!(call.tool, "double");
        ToolCallAnswer {
            arguments: Some(arguments(&json!({ "number": 21 }))),
            ..ToolCallAnswer::default()
        }
    };
    let hooks = Hooks::default()
        .on::<BeforeToolCall>("larger", 5, larger)
        .on::<AgentEnd>("end", 0, move |end: &AgentEnd| {
            heard.lock().unwrap().push((end.state, end.reply.clone()));
            Ignored
        })
        .on::<AgentEnd>("broken", 0, |_: &AgentEnd| panic!("a fault of the program"));
    let own = Embedding::default().provider("own", Model).tool(Double).hooks(hooks);
    let daemon = daemon(folder.path(), own).await;
    let (store, first_end) = (daemon.store(), daemon.runs_ended(1));
    assert_eq!(daemon.serve_until(first_end).await.unwrap(), Stopped::Done);
    let query =
        |sql: &str| store.reader().unwrap().query(sql, QueryLimits::default()).unwrap().rows;
    let run = query("SELECT state, reply, tool_calls FROM v1_runs ORDER BY queued_at LIMIT 1");
    assert_eq!(run, [[json!("succeeded"), json!("42"), json!(1)]]);
    assert_eq!(ends.lock().unwrap()[0], ("succeeded", Some("42".into())));
    let asked = query(
        "SELECT name, outcome FROM v1_hooks
         WHERE run_id = (SELECT run_id FROM v1_runs ORDER BY queued_at LIMIT 1) ORDER BY n, name",
    );
    let pair = |row: &Vec<Value>| {
        (row[0].as_str().unwrap().to_owned(), row[1].as_str().unwrap().to_owned())
    };
    let mut asked: Vec<_> = asked.iter().map(pair).collect();
    asked[2..].sort();
    let expected =
        [("larger", "changed"), ("of the file", "ok"), ("broken", "failed"), ("end", "ok")];
    assert_eq!(asked, expected.map(|(name, outcome)| (name.to_owned(), outcome.to_owned())));
}
