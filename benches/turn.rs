//! What a turn costs beside its model: each tool call, the planning of a compaction, and memory.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use punctual::clock::SystemClock;
use punctual::hooks::HookSite;
use punctual::job::{Manner, Usd};
use punctual::plan::Standing;
use punctual::process::{Confinement, Household, SupervisorPath};
use punctual::provider::{
    AssistantTurn, Completion, EventStream, Fault, Finish, Message, Provider, Request, StreamEvent,
    ToolCall, ToolDefinition, Usage,
};
use punctual::run::{Phase, SessionId};
use punctual::session::{Clearings, Remembered, Transcript};
use punctual::tools::{
    Arguments, ExecPolicy, SentTexts, Tool, ToolContext, ToolOutcome, ToolSet, Updates, Verdict,
    Workspace,
};
use punctual::turn::{
    Bounds, Conversation, Model, Observer, Opening, PartEnd, Purse, Turn, TurnEvent, Window,
    plan_compaction, tokens_of,
};
use serde_json::json;

/// Tool calls of a turn that is measured.
const CALLS: usize = 100;

fn main() {
    memory();
    divan::main();
}

/// A model that calls the tool so often and then answers, or never answers.
struct Plays {
    calls: usize,
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    Answers,
    IsSilent,
}

impl Provider for Plays {
    fn stream<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>> {
        let done = request.messages.iter();
        let done = done.filter(|it| matches!(it, Message::ToolResult { .. })).count();
        let call = |n: usize| ToolCall {
            id: format!("c{n}"),
            name: "noop".to_owned(),
            arguments: json!({"n": n}).as_object().cloned().unwrap_or_default(),
        };
        let (finish, tool_calls) = if done < self.calls {
            (Finish::ToolCalls, vec![call(done)])
        } else {
            (Finish::Stop, Vec::new())
        };
        let turn = AssistantTurn { text: "so".to_owned(), tool_calls, ..AssistantTurn::default() };
        let done =
            StreamEvent::Done(Box::new(Completion { turn, finish, usage: Usage::default() }));
        let events = match self.then {
            Then::Answers => stream::iter([Ok(done)]).boxed(),
            Then::IsSilent => stream::pending().boxed(),
        };
        async { Ok(events) }.boxed()
    }
}

struct Noop;

impl Tool for Noop {
    fn definition(&self) -> ToolDefinition {
        let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        ToolDefinition { name: "noop".to_owned(), description: "nothing".to_owned(), parameters }
    }

    fn call<'a>(&'a self, _: Arguments, _: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        async { ToolOutcome::new(Verdict::Ok, "done") }.boxed()
    }
}

#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn entered(&self, _: Phase) {}
    fn opened(&self) {}
    fn pulse(&self) {}
    fn tell(&self, _: TurnEvent<'_>) {}
    fn drive_part<'a>(
        &'a self,
        _: u32,
        _: &'a mut Turn,
        _: &'a Model,
        _: Duration,
    ) -> BoxFuture<'a, Result<String, PartEnd>> {
        unreachable!("no turn here has parts")
    }
}

impl Purse for Nobody {
    fn after(&self, _: Usd) -> Vec<Standing> {
        Vec::new()
    }
}

async fn turn(folder: &std::path::Path, name: &str, history: Vec<Remembered>) -> Turn {
    let clock = Arc::new(SystemClock);
    let session = SessionId::from_stored(name);
    let about = json!({});
    let open = Transcript::open(
        folder,
        &session,
        about,
        Clearings::default(),
        Arc::default(),
        clock.clone(),
    );
    let (transcript, _) = open.await.expect("a folder of ours");
    let workspace = Workspace::open(folder, &[]).expect("a folder of ours");
    let context = ToolContext {
        workspace: Arc::new(workspace),
        household: Household::new(SupervisorPath::current_exe(), name),
        env: Vec::new(),
        exec_policy: ExecPolicy::default(),
        confinement: Confinement::default(),
        tool_timeout: Duration::from_mins(1),
        stop_grace: Duration::from_secs(1),
        sent: SentTexts::default(),
        updates: Updates::default(),
    };
    let bounds = Bounds {
        max_turns: u32::MAX,
        max_tokens: u64::MAX,
        max_usd: None,
        purse: Arc::new(Nobody),
    };
    let opening = Opening {
        system: "You are the agent of a job.".to_owned(),
        prompt: "go".to_owned(),
        manner: Manner::default(),
        trace: None,
        tools: ToolSet::default().with(Arc::new(Noop)),
        context,
        bounds,
        transcript,
        history,
        inbox: None,
        masker: Arc::default(),
        clock,
        hooks: HookSite::without_hooks(),
    };
    Turn::begin(opening).await
}

fn model(plays: Plays) -> Model {
    Model {
        name: "m".to_owned(),
        known_as: "local/m".to_owned(),
        max_output_tokens: None,
        context_window: Some(10_000_000),
        price: None,
        provider: Arc::new(plays),
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("there is room");
    std::fs::create_dir(folder.path().join("sessions")).expect("there is room");
    folder
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("there are threads")
}

/// A whole turn of [`CALLS`] calls, its transcript written, after so many bytes of conversation.
#[divan::bench(args = [0, 1 << 20])]
fn tool_calls(bencher: Bencher<'_, '_>, before: usize) {
    let runtime = runtime();
    let model = model(Plays { calls: CALLS, then: Then::Answers });
    bencher.counter(ItemsCount::new(CALLS)).bench_local(|| {
        let folder = folder();
        runtime.block_on(async {
            let mut turn = turn(folder.path(), "s", conversation(before)).await;
            turn.drive(&model, &Nobody).await.expect("it answers")
        })
    });
}

/// A conversation of about so many bytes, of steps of 10 kB.
fn conversation(bytes: usize) -> Vec<Remembered> {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(222);
    let said = |n: usize| match n % 2 {
        0 => Message::User { text: text.clone() },
        _ => Message::Assistant(AssistantTurn { text: text.clone(), ..AssistantTurn::default() }),
    };
    let message = |n: usize| Remembered { id: n as u64 + 1, message: said(n), by: None };
    (0..bytes / text.len()).map(message).collect()
}

/// Of 200,000 tokens: what is counted once, when a message comes, and what is planned then.
#[divan::bench]
fn counting_200k_tokens(bencher: Bencher<'_, '_>) {
    let messages = conversation(720_000);
    let count = || black_box(&messages).iter().map(|it| tokens_of(&it.message)).sum::<u64>();
    assert!((180_000..240_000).contains(&count()), "{}", count());
    bencher.bench_local(count);
}

#[divan::bench]
fn planning_200k_tokens(bencher: Bencher<'_, '_>) {
    let messages: Vec<_> = conversation(720_000).into_iter().map(|it| it.message).collect();
    let tokens: Vec<_> = messages.iter().map(tokens_of).collect();
    let conversation = Conversation { messages: &messages, tokens: &tokens, prompt: 0 };
    let kept = Window::of(Some(200_000)).kept();
    bencher.bench_local(|| plan_compaction(black_box(conversation), kept).expect("it is long"));
}

/// What 64 turns with 1 MB of conversation each hold while their models are silent.
fn memory() {
    let (runtime, folder) = (runtime(), folder());
    let before = rss_mb();
    let turns: Vec<_> = runtime.block_on(async {
        let mut turns = Vec::new();
        for n in 0..64 {
            let mut turn = turn(folder.path(), &format!("s{n}"), conversation(1_000_000)).await;
            let model = model(Plays { calls: 0, then: Then::IsSilent });
            turns.push(tokio::spawn(async move { turn.drive(&model, &Nobody).await.is_ok() }));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        turns
    });
    let held = rss_mb() - before;
    println!("64 turns of 1 MB each: {held:.0} MB, {:.2} MB a turn", held / 64.0);
    for turn in &turns {
        turn.abort();
    }
}

fn rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("it has memory");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).expect("a number") / 1024.0
}
