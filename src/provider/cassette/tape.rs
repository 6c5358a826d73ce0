//! The tape: requests in their order, each with what answered it.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures_util::StreamExt as _;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};

use super::super::classify::retry_after;
use super::super::mask::Mask;
use super::super::parser::Api;
use super::super::response::{Answered, Broken};
use super::super::{Fault, FaultClass, Request};
use crate::clock::{Clock as _, SystemClock};

/// The most that is taken down of one answer. The parsers stop at 2 MiB of text; around each piece
/// of it comes what its frame says.
const BODY_BYTES_MAX: usize = 16 << 20;

words!(
    /// Whose words a body speaks.
    Dialect {
        /// Chat completions.
        OpenAi = "openai",
        /// Anthropic messages.
        Anthropic = "anthropic",
        /// Ollama's own.
        Ollama = "ollama",
        /// A scripted model, which has no wire: its answers are written as chat completions.
        Script = "script",
    }
);

impl From<Api> for Dialect {
    fn from(api: Api) -> Self {
        match api {
            Api::OpenAi => Self::OpenAi,
            Api::Anthropic => Self::Anthropic,
            Api::Ollama => Self::Ollama,
        }
    }
}

impl Dialect {
    /// The parser that understands it.
    pub(super) const fn api(self) -> Api {
        match self {
            Self::OpenAi | Self::Script => Api::OpenAi,
            Self::Anthropic => Api::Anthropic,
            Self::Ollama => Api::Ollama,
        }
    }
}

/// How a request or its answer broke.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Break {
    /// What to do about it.
    pub class: FaultClass,
    /// In words.
    pub message: String,
}

/// What came back for a request, as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Whose words the body speaks.
    pub api: Dialect,
    /// The HTTP status; none if no response came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Its `Content-Type`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// How long the server asked to be left alone, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
    /// The body, secrets masked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// How it broke, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broke: Option<Break>,
}

impl Traffic {
    /// A request that never got a response.
    pub(super) fn none(api: Dialect, broke: Break) -> Self {
        Self {
            api,
            status: None,
            content_type: String::new(),
            retry_after: None,
            body: String::new(),
            broke: Some(broke),
        }
    }
}

/// How much of an answer is on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// All of it that was listened to.
    Whole,
    /// Somebody stopped listening before it was over.
    Cut,
    /// It was longer than a tape holds.
    TooLong,
}

/// One request and what answered it.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// `provider/model`.
    pub model: String,
    /// What was asked.
    pub request: Request,
    /// What came back; `None` if nothing had.
    pub answer: Option<Traffic>,
    /// How much of that is here.
    pub held: Held,
}

/// Takes down exchanges. Cheap to clone: all clones are one tape.
#[derive(Debug, Clone, Default)]
pub struct Tape(Arc<Mutex<Vec<Open>>>);

/// An exchange that may go on.
#[derive(Debug)]
struct Open {
    model: String,
    request: Request,
    head: Option<Traffic>,
    body: Vec<u8>,
    mask: Option<Arc<Mask>>,
    held: Held,
}

impl Tape {
    /// What is on it, oldest first.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.open().iter().map(Open::close).collect()
    }

    /// Begins an exchange and returns how many came before it.
    pub(super) fn begin(&self, model: &str, request: &Request) -> usize {
        let mut exchanges = self.open();
        exchanges.push(Open {
            model: model.to_owned(),
            request: request.clone(),
            head: None,
            body: Vec::new(),
            mask: None,
            held: Held::Cut,
        });
        exchanges.len() - 1
    }

    /// Takes down `answered` while somebody listens to it.
    pub(in super::super) fn take_down(
        &self,
        api: Api,
        answered: Answered,
        mask: &Arc<Mask>,
    ) -> Answered {
        let wait = retry_after(&answered.headers, SystemClock.wall());
        self.last(|it| {
            it.mask = Some(Arc::clone(mask));
            it.head = Some(Traffic {
                api: api.into(),
                status: Some(answered.status),
                content_type: answered.content_type().to_owned(),
                retry_after: wait.map(|wait| wait.as_secs_f64()),
                body: String::new(),
                broke: None,
            });
        });
        let tape = self.clone();
        let body = answered.body.inspect(move |piece| tape.hear(piece)).boxed();
        Answered { body, ..answered }
    }

    /// The answer of the last exchange as a whole, where no wire carried it.
    pub(super) fn answer_last(&self, traffic: Traffic) {
        self.last(|it| {
            it.body = traffic.body.clone().into_bytes();
            it.head = Some(traffic);
        });
    }

    /// Whether something has come back for the last request.
    pub(super) fn has_answer(&self) -> bool {
        self.open().last().is_some_and(|it| it.head.is_some())
    }

    /// The listener has heard the last exchange to its end.
    pub(super) fn is_over(&self) {
        self.last(|it| {
            if it.held == Held::Cut {
                it.held = Held::Whole;
            }
        });
    }

    fn hear(&self, piece: &Result<Bytes, Broken>) {
        self.last(|it| match piece {
            Ok(bytes) if it.body.len() + bytes.len() > BODY_BYTES_MAX => it.held = Held::TooLong,
            Ok(bytes) => it.body.extend_from_slice(bytes),
            Err(Broken { class, message }) => {
                if let Some(head) = &mut it.head {
                    head.broke = Some(Break { class: *class, message: message.clone() });
                }
            }
        });
    }

    /// A run asks one thing at a time: what comes is for the last request.
    fn last(&self, change: impl FnOnce(&mut Open)) {
        if let Some(last) = self.open().last_mut() {
            change(last);
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Open>> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

impl Open {
    fn close(&self) -> Exchange {
        let masked = |text: String| match &self.mask {
            Some(mask) => mask.text(text),
            None => text,
        };
        // What is no UTF-8 becomes a mark, as it does in the parsers.
        let body = masked(String::from_utf8_lossy(&self.body).into_owned());
        let answer = self.head.clone().map(|head| Traffic { body, ..head });
        Exchange {
            model: self.model.clone(),
            request: self.request.clone(),
            answer,
            held: self.held,
        }
    }
}

/// The headers that a recorded answer stands for.
pub(super) fn headers_of(traffic: &Traffic) -> HeaderMap {
    use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
    let value = |text: String| HeaderValue::try_from(text).ok();
    let wait = traffic.retry_after.and_then(|seconds| value(seconds.to_string()));
    let kind = value(traffic.content_type.clone());
    let wait = wait.map(|value| (RETRY_AFTER, value));
    wait.into_iter().chain(kind.map(|value| (CONTENT_TYPE, value))).collect()
}

/// What is taken down of a request that no server answered.
pub(super) fn break_of(fault: &Fault) -> Break {
    Break { class: fault.class, message: fault.message.clone() }
}
