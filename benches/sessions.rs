//! What a long conversation costs: the next message of it, and going on with it.

use std::sync::Arc;

use divan::Bencher;
use punctual::clock::SystemClock;
use punctual::provider::{AssistantTurn, Message, ToolCall};
use punctual::run::SessionId;
use punctual::session::{Clearings, Remembered, Transcript};
use serde_json::json;
use tokio::runtime::Runtime;

/// A conversation of months.
const ENTRIES: usize = 10_000;

fn main() {
    divan::main();
}

async fn open(dir: &std::path::Path) -> (Transcript, Vec<Remembered>) {
    let (session, clock) = (SessionId::from_stored("bench"), Arc::new(SystemClock));
    let opened =
        Transcript::open(dir, &session, json!({}), Clearings::default(), Arc::default(), clock);
    opened.await.expect("it can be opened")
}

/// What is said in place `n`: a question, a call, its result, an answer, and again.
fn message(n: usize) -> Message {
    let id = format!("call_{}", n / 4);
    match n % 4 {
        0 => {
            Message::User { text: format!("question {n}: how full are the disks, and since when?") }
        }
        1 => {
            let arguments = json!({"command": "df -h"}).as_object().cloned().unwrap_or_default();
            let call = ToolCall { id, name: "exec".into(), arguments };
            Message::Assistant(AssistantTurn { tool_calls: vec![call], ..AssistantTurn::default() })
        }
        2 => Message::ToolResult {
            call_id: id,
            name: "exec".into(),
            content: "/dev/sda1 40G 31G 7.2G 82% /\n".repeat(8),
            is_error: false,
        },
        _ => Message::Assistant(AssistantTurn {
            text: format!("answer {n}: 82 %, since Tuesday."),
            ..AssistantTurn::default()
        }),
    }
}

/// A state folder with such a conversation.
fn long_one(runtime: &Runtime) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("there is room");
    std::fs::create_dir(dir.path().join("sessions")).expect("there is room");
    runtime.block_on(async {
        let (mut transcript, _) = open(dir.path()).await;
        for n in 0..ENTRIES {
            transcript.append(&message(n)).await;
        }
        transcript.close("over").await.expect("there is room");
    });
    dir
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had")
}

#[divan::bench]
fn append(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let dir = long_one(&runtime);
    let (mut transcript, _) = runtime.block_on(open(dir.path()));
    let message = message(0);
    bencher.bench_local(|| runtime.block_on(transcript.append(&message)));
}

#[divan::bench]
fn reopen(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    let dir = long_one(&runtime);
    bencher.bench_local(|| {
        let (_, said) = runtime.block_on(open(dir.path()));
        assert_eq!(said.len(), ENTRIES);
        said
    });
}
