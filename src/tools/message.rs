//! `message {target, text}`: a message to one of the targets of the configuration, at once.
//!
//! This room knows no outbox: whoever drives the run lends it the [`Post`]. A message is a fact of
//! its own: it is on its way when the call returns, whatever becomes of the run. The same text to
//! the same target is one message, however often a run asks for it.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Mutex;

use super::parameters::{definition, parse};
use super::tool::{Arguments, Refusal, Tool, ToolContext, ToolOutcome, Verdict};
use crate::provider::ToolDefinition;

/// Messages of one run. Who has more to say than that has a report.
const MESSAGES_MAX: usize = 10;

/// As much as five messages of a chat.
const TEXT_BYTES_MAX: usize = 20_000;

/// The way out, as far as a run may use it.
pub trait Post: Send + Sync {
    /// The names of the targets.
    fn targets(&self) -> Vec<String>;

    /// Puts the `n`th message of the run, the first being 1, where it will be sent from. An error
    /// says why it is not there.
    fn put(&self, n: usize, target: &str, text: &str) -> BoxFuture<'_, Result<Posted, String>>;
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// It is on its way.
    Queued,
    /// Whoever asked for the run wants nothing sent.
    Suppressed,
}

/// Sends messages, and remembers those of its run.
pub(super) struct Message {
    post: Option<Arc<dyn Post>>,
    /// Target and text of each. Held while one is put, so that two calls cannot both be the first.
    sent: Mutex<Vec<(String, String)>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Where to: the name of a target.
    target: String,
    /// What to say.
    text: String,
}

impl Message {
    pub(super) fn new(post: Option<Arc<dyn Post>>) -> Self {
        Self { post, sent: Mutex::default() }
    }

    fn targets(&self) -> Vec<String> {
        self.post.as_ref().map(|post| post.targets()).unwrap_or_default()
    }

    async fn put(
        &self,
        arguments: Arguments,
        context: &ToolContext,
    ) -> Result<ToolOutcome, Refusal> {
        let Parameters { target, text } = parse("message", arguments)?;
        let text = text.trim();
        let targets = self.targets();
        let Some(post) = self.post.as_ref().filter(|_| targets.contains(&target)) else {
            let words = match targets.as_slice() {
                [] => format!("there is no target `{target}`; none is configured"),
                names => format!("there is no target `{target}`; there are {}", names.join(", ")),
            };
            return Err(Refusal::Failed(words));
        };
        if text.is_empty() {
            return Err(Refusal::Failed("there is nothing in the message".into()));
        }
        if text.len() > TEXT_BYTES_MAX {
            let words = format!("the message is longer than {TEXT_BYTES_MAX} bytes");
            return Err(Refusal::Failed(words));
        }
        let mut sent = self.sent.lock().await;
        if sent.iter().any(|known| *known == (target.clone(), text.to_owned())) {
            let words = format!("{target} has that message already: it is not sent again");
            return Ok(ToolOutcome::new(Verdict::Ok, words));
        }
        if sent.len() >= MESSAGES_MAX {
            let words = format!("a run sends at most {MESSAGES_MAX} messages");
            return Err(Refusal::Denied(words));
        }
        let posted = post.put(sent.len() + 1, &target, text).await.map_err(Refusal::Failed)?;
        let words = match posted {
            Posted::Queued => format!("on its way to {target}"),
            Posted::Suppressed => "taken; this run was asked for without deliveries".to_owned(),
        };
        if posted == Posted::Queued {
            context.sent.note(target.as_str(), text);
        }
        sent.push((target, text.to_owned()));
        Ok(ToolOutcome::new(Verdict::Ok, words))
    }
}

impl Tool for Message {
    fn definition(&self) -> ToolDefinition {
        let targets = match self.targets().as_slice() {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        let description = format!(
            "Send a message to people, at once; your final report is sent without it. Targets: \
             {targets}."
        );
        definition::<Parameters>("message", &description)
    }

    fn call<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        self.put(arguments, context).map(|result| result.unwrap_or_else(Into::into)).boxed()
    }
}
