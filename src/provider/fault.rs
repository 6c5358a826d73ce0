//! Why a request did not give an answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::message::Usage;

/// The class of a fault: what to do about it follows from it (semantics §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultClass {
    /// 429, rate limit, too many requests, resource exhausted, tokens per day.
    RateLimit,
    /// 529, overloaded, capacity.
    Overloaded,
    /// Connect, reset, DNS, broken pipe.
    Network,
    /// 408, 504.
    Timeout,
    /// 5xx as a status, or its canonical phrase.
    ServerError,
    /// 401, 403.
    Auth,
    /// 402.
    Billing,
    /// 404 with that meaning.
    ModelNotFound,
    /// 400, 422.
    BadRequest,
    /// The prompt does not fit the window.
    ContextOverflow,
    /// A refusal.
    ContentFilter,
    /// Words that fit no finer class.
    Other,
    /// The connection was refused: nothing listens there.
    Unreachable,
    /// Closed without a finish reason or an end marker.
    IncompleteStream,
    /// The output limit fell inside a tool call.
    TruncatedToolCall,
    /// A tool call's arguments are not a JSON object.
    MalformedToolCall,
    /// A clean stop with neither text nor call.
    EmptyResponse,
    /// A 200 that is no answer of this API.
    NotAStream,
}

impl FaultClass {
    /// Whether the same request may do better later.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Overloaded
            | Self::Network
            | Self::Timeout
            | Self::ServerError
            | Self::Unreachable
            | Self::IncompleteStream
            | Self::EmptyResponse => true,
            Self::Auth
            | Self::Billing
            | Self::ModelNotFound
            | Self::BadRequest
            | Self::ContextOverflow
            | Self::ContentFilter
            | Self::Other
            | Self::TruncatedToolCall
            | Self::MalformedToolCall
            | Self::NotAStream => false,
        }
    }
}

/// A request that failed: class, the server's own words, and what had arrived.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What to do about it.
    pub class: FaultClass,
    /// The server's words as they came, or ours where it said nothing.
    pub message: String,
    /// The server's own name for it (`overloaded_error`, `400`), if it gave one.
    pub code: Option<String>,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// How long the server asked us to wait.
    pub retry_after: Option<Duration>,
    /// Answer text that had arrived: for the record only.
    pub partial_text: String,
    /// Tokens reported before it failed.
    pub usage: Usage,
}

impl Fault {
    /// A fault with nothing received.
    pub fn new(class: FaultClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            code: None,
            status: None,
            retry_after: None,
            partial_text: String::new(),
            usage: Usage::default(),
        }
    }

    /// Whether the server itself reported it (the parser's word `provider_error`), as opposed to a
    /// verdict of ours on what it sent or did not send.
    pub fn is_provider_word(&self) -> bool {
        self.status.is_some() || self.code.is_some()
    }
}
