//! A model that says what a file tells it to: for tests, rehearsals and the first run.
//!
//! ```toml
//! [[rule]]                                  # the first rule that fits answers
//! when = { contains = "weather", model = "demo", turn = 0, times = 1 }
//! [[rule.step]]
//! text = "Let me look, {{ prompt }}."       # streamed in pieces when asked to:
//! chunk = 12                                # characters a piece
//! pace = "50ms"                             # pause after each piece
//! [[rule.step]]
//! tool = { name = "read_file", arguments = { path = "a.txt" } }
//! ```
//!
//! `when` may be left out, and each of its keys: `contains` is looked for in the last user text,
//! `turn` counts the model's turns before this one, `times` lets the rule answer only so many
//! requests. The other steps are `reasoning = "..."`, `delay = "2s"`, `hang = true` (silence for
//! ever), `error = { status = 503, message = "...", type = "...", retry_after = "7s" }` (status
//! 200: an error inside the stream), `usage = { input = 10, output = 5 }` and
//! `end = "length" | "content_filter" | "incomplete"`.
//!
//! Texts, tool arguments included, are templates with `prompt` (the last user text), `results` (a
//! list of `{name, content, is_error}`, this turn's tool results last), `turn` and `model`. An
//! unknown name in one is an error, and so is one that computes for too long.

mod play;
mod rules;
mod template;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::{EventStream, Fault, FaultClass, Message, Provider, Request};
use play::Play;
use rules::When;
use template::Scene;

pub use rules::{Script, ScriptError};

/// The scripted provider.
#[derive(Debug)]
pub struct Scripted {
    script: Arc<Script>,
    /// How many requests each rule has answered.
    answered: Vec<AtomicU32>,
}

impl Scripted {
    /// A provider that follows `script`.
    pub fn new(script: Script) -> Self {
        let answered = script.rules.iter().map(|_| AtomicU32::new(0)).collect();
        Self { script: Arc::new(script), answered }
    }

    fn choose(&self, scene: &Scene) -> Option<usize> {
        let mut rules = self.script.rules.iter().zip(&self.answered).enumerate();
        let chosen = rules.find(|(_, (rule, answered))| {
            fits(&rule.when, scene) && take_one(answered, rule.when.times)
        });
        chosen.map(|(at, _)| at)
    }
}

impl Provider for Scripted {
    fn stream<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>> {
        async move {
            let scene = Scene::of(request);
            let Some(rule) = self.choose(&scene) else {
                let message = "no rule of the script fits this request";
                return Err(Fault::new(FaultClass::BadRequest, message));
            };
            let play = Play::new(Arc::clone(&self.script), rule, scene);
            Ok(stream::unfold(play, Play::next).boxed())
        }
        .boxed()
    }
}

fn fits(when: &When, scene: &Scene) -> bool {
    when.contains.as_ref().is_none_or(|words| scene.prompt.contains(words))
        && when.model.as_ref().is_none_or(|model| *model == scene.model)
        && when.turn.is_none_or(|turn| turn == scene.turn)
}

/// Counts a request, unless the rule has answered its share.
fn take_one(answered: &AtomicU32, times: Option<u32>) -> bool {
    let Some(times) = times else { return true };
    let next = |so_far: u32| (so_far < times).then(|| so_far + 1);
    answered.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
}

impl Scene {
    fn of(request: &Request) -> Self {
        let mut scene = Self {
            model: request.model.clone(),
            input_chars: chars_of(request),
            ..Self::default()
        };
        for message in request.messages.iter() {
            match message {
                Message::User { text } => scene.prompt.clone_from(text),
                Message::Assistant(_) => scene.turn += 1,
                Message::ToolResult { name, content, is_error, .. } => {
                    scene.results.push(template::ToolOutput {
                        name: name.clone(),
                        content: content.clone(),
                        is_error: *is_error,
                    });
                }
            }
        }
        scene
    }
}

fn chars_of(request: &Request) -> u64 {
    let count = |text: &str| text.chars().count() as u64;
    let messages = request.messages.iter().map(|message| match message {
        Message::User { text } => count(text),
        Message::Assistant(turn) => count(&turn.text),
        Message::ToolResult { content, .. } => count(content),
    });
    count(&request.system) + messages.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::timeout;

    use super::super::{Completion, Finish, Usage};
    use super::*;
    use crate::clock::{Clock as _, SystemClock};
    use crate::provider::StreamEvent;

    fn scripted(text: &str) -> Scripted {
        Scripted::new(Script::parse(text).unwrap())
    }

    async fn events(
        provider: &Scripted,
        request: &Request,
    ) -> (Vec<StreamEvent>, Result<Completion, Fault>) {
        let mut stream = match provider.stream(request).await {
            Ok(stream) => stream,
            Err(fault) => return (Vec::new(), Err(fault)),
        };
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(StreamEvent::Done(completion)) => return (events, Ok(*completion)),
                Ok(event) => events.push(event),
                Err(fault) => return (events, Err(fault)),
            }
        }
        panic!("a stream ends with Done or a fault");
    }

    async fn answer(provider: &Scripted, request: &Request) -> Result<Completion, Fault> {
        events(provider, request).await.1
    }

    #[tokio::test]
    async fn the_first_rule_that_fits_answers() {
        let provider = scripted(
            r#"
            [[rule]]
            when = { contains = "once", times = 1 }
            step = [{ text = "first" }]
            [[rule]]
            when = { contains = "once" }
            step = [{ text = "again" }]
            [[rule]]
            when = { model = "big", turn = 0 }
            step = [{ text = "{{ model }} says {{ prompt }} on turn {{ turn }}" }]
            "#,
        );
        let text = async |model: &str, prompt: &str| {
            let request = Request::of_prompt(model, prompt);
            answer(&provider, &request).await.map(|done| done.turn.text)
        };
        assert_eq!(text("m", "just once").await.unwrap(), "first");
        assert_eq!(text("m", "just once").await.unwrap(), "again");
        assert_eq!(text("big", "hi").await.unwrap(), "big says hi on turn 0");
        assert_eq!(text("m", "hi").await.unwrap_err().class, FaultClass::BadRequest);
    }

    #[tokio::test]
    async fn a_tool_is_called_and_its_result_is_known_afterwards() {
        let provider = scripted(
            r#"
            [[rule]]
            when = { turn = 0 }
            [[rule.step]]
            reasoning = "hm"
            [[rule.step]]
            tool = { name = "read", arguments = { path = "{{ prompt }}.txt", lines = [1] } }
            [[rule.step]]
            usage = { input = 3, output = 2 }
            [[rule]]
            step = [{ text = "it says {{ results[-1].content }}" }]
            "#,
        );
        let mut request = Request::of_prompt("m", "a");
        let done = answer(&provider, &request).await.unwrap();
        assert_eq!((done.finish, done.turn.reasoning.as_str()), (Finish::ToolCalls, "hm"));
        let usage = Usage { input_tokens: Some(3), output_tokens: Some(2), ..Usage::default() };
        assert_eq!(done.usage, usage);
        let call = &done.turn.tool_calls[0];
        let arguments = json!({"path": "a.txt", "lines": [1]});
        assert_eq!((call.name.as_str(), json!(call.arguments)), ("read", arguments));
        let result = Message::ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            content: "42".to_owned(),
            is_error: false,
        };
        std::sync::Arc::make_mut(&mut request.messages)
            .extend([Message::Assistant(done.turn), result]);
        let done = answer(&provider, &request).await.unwrap();
        assert_eq!(done.turn.text, "it says 42");
        // "a", "" and "42": 3 characters; "it says 42": 10.
        assert_eq!((done.usage.input_tokens, done.usage.output_tokens), (Some(1), Some(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn text_is_streamed_at_its_pace() {
        let provider = scripted(
            r#"
            [[rule]]
            step = [{ delay = "2s" }, { text = "那个 ok", chunk = 2, pace = "1s" }]
            "#,
        );
        let start = SystemClock.monotonic();
        let (events, done) = events(&provider, &Request::of_prompt("m", "")).await;
        let text = |text: &str| StreamEvent::Text(text.to_owned());
        assert_eq!(events, [StreamEvent::Opened, text("那个"), text(" o"), text("k")]);
        assert_eq!(done.unwrap().turn.text, "那个 ok");
        assert_eq!(start.elapsed().as_secs(), 5);
    }

    #[tokio::test]
    async fn faults_are_classified_as_if_they_came_from_a_server() {
        let table = [
            (
                r#"error = { status = 503, message = "down", retry_after = "7s" }"#,
                FaultClass::ServerError,
                "down",
            ),
            ("error = { status = 429 }", FaultClass::RateLimit, "HTTP 429 Too Many Requests"),
            (
                r#"error = { status = 200, message = "m", type = "overloaded_error" }"#,
                FaultClass::Overloaded,
                "m",
            ),
            (
                r#"end = "incomplete""#,
                FaultClass::IncompleteStream,
                "the stream ended without a finish reason or an end marker",
            ),
        ];
        for (step, class, message) in table {
            let text = format!("[[rule]]\nstep = [{{ text = \"so far\" }}, {{ {step} }}]");
            let fault = answer(&scripted(&text), &Request::of_prompt("m", "")).await.unwrap_err();
            assert_eq!((fault.class, fault.message.as_str()), (class, message), "{step}");
            assert_eq!(fault.partial_text, "so far");
            let retry_after = step.contains("retry_after").then(|| Duration::from_secs(7));
            assert_eq!(fault.retry_after, retry_after);
        }
    }

    #[tokio::test]
    async fn endings_follow_the_rules_of_every_answer() {
        let finish = async |steps: &str| {
            let text = format!("[[rule]]\nstep = [{steps}]");
            let done = answer(&scripted(&text), &Request::of_prompt("m", "")).await;
            done.map(|done| done.finish).map_err(|fault| fault.class)
        };
        let length = r#"{ text = "a" }, { end = "length" }"#;
        assert_eq!(finish(length).await, Ok(Finish::Length));
        let cut_call = r#"{ tool = { name = "t" } }, { end = "length" }"#;
        assert_eq!(finish(cut_call).await, Err(FaultClass::TruncatedToolCall));
        assert_eq!(finish(r#"{ text = "" }"#).await, Err(FaultClass::EmptyResponse));
        let filtered = r#"{ end = "content_filter" }"#;
        assert_eq!(finish(filtered).await, Ok(Finish::ContentFilter));
        let unknown = r#"{ text = "{{ nothing }}" }"#;
        assert_eq!(finish(unknown).await, Err(FaultClass::BadRequest));
        let endless = r#"{ text = "{% for i in range(99999) %}{% for j in range(9999) %}{{ j }}{% endfor %}{% endfor %}" }"#;
        assert_eq!(finish(endless).await, Err(FaultClass::BadRequest));
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_hangs_says_nothing_for_ever() {
        let provider = scripted("[[rule]]\nstep = [{ text = \"a\" }, { hang = true }]");
        let request = Request::of_prompt("m", "");
        let mut stream = provider.stream(&request).await.unwrap();
        assert_eq!(stream.next().await, Some(Ok(StreamEvent::Opened)));
        assert_eq!(stream.next().await, Some(Ok(StreamEvent::Text("a".to_owned()))));
        let day = Duration::from_hours(24);
        assert!(timeout(day, stream.next()).await.is_err());
    }
}
