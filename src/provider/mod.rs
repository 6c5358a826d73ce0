//! One model request as a stream of events.
//!
//! A [`Provider`] turns a [`Request`] into a stream of [`StreamEvent`]s that ends with exactly one
//! [`StreamEvent::Done`] or one [`Fault`]. One file per API; wire parsing apart from the socket, so
//! that every fixture can be fed byte by byte. There is no time limit on an answer in here: the
//! caller's watchdog sees each event and drops the stream when it has waited long enough. Only
//! connecting, a refusal's words and the trailer after a finish reason are bounded.
//!
//! ```text
//! bytes ─ lines ─▶ text lines ─ frames ─▶ payloads ─ an API's ear ─▶ answer ─▶ events, verdict
//! ```

mod answer;
mod anthropic;
mod cassette;
mod classify;
mod fault;
mod frames;
mod http;
mod lines;
mod locality;
mod mask;
mod message;
mod ollama;
mod openai;
mod parser;
mod probe;
mod response;
mod script;
mod thinking;
mod window;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

pub use anthropic::Anthropic;
pub use cassette::{Break, Dialect, Exchange, Held, Recording, Replaying, Tape, Traffic};
pub use classify::{ERROR_BODY_BYTES_MAX, classify};
pub use fault::{Fault, FaultClass};
pub use frames::Framing;
pub use http::{Endpoint, Proxies, http_client, install_crypto};
pub use locality::Locality;
pub use message::{
    AssistantTurn, Completion, Finish, Message, Request, ToolCall, ToolDefinition, Usage,
};
pub use ollama::Ollama;
pub use openai::OpenAi;
pub use parser::{Api, Heard, StreamParser};
pub use probe::probe;
pub use script::{Script, ScriptError, Scripted};
pub(crate) use thinking::explained;
pub use window::served_window;

/// What a model said next.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// The response head is here; the transport lives.
    Opened,
    /// Bytes that are no progress: comments, pings, empty frames.
    KeepAlive,
    /// A piece of the answer.
    Text(String),
    /// A piece of reasoning or thinking.
    Reasoning(String),
    /// A piece of a tool call.
    ToolFragment,
    /// The tokens so far, as far as the provider has said: each replaces the one before.
    Usage(Usage),
    /// The whole answer. Nothing comes after it, whatever the socket does.
    Done(Box<Completion>),
}

impl StreamEvent {
    /// Whether it is progress as the idle window means it (semantics §3).
    pub fn is_progress(&self) -> bool {
        match self {
            Self::Text(_) | Self::Reasoning(_) | Self::ToolFragment | Self::Done(_) => true,
            Self::Opened | Self::KeepAlive | Self::Usage(_) => false,
        }
    }
}

/// A stream of events; dropping it closes the connection.
pub type EventStream = BoxStream<'static, Result<StreamEvent, Fault>>;

/// A place that answers model requests.
pub trait Provider: Send + Sync {
    /// Sends `request` and returns once the response head is here (or at once, for a provider
    /// without a wire). Dropping the future or the stream ends the request.
    fn stream<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>>;
}
