//! A response on its way to an answer, wherever it comes from: a socket or a recording.
//!
//! There is no limit on the whole of a stream, and none between its pieces. The one exception is
//! an answer that has ended in all but name: see [`TRAILER_GRACE`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use tokio::time::Instant;

use super::classify::{ERROR_BODY_BYTES_MAX, classify};
use super::frames::Framing;
use super::mask::Mask;
use super::parser::{Api, Heard, StreamParser};
use super::{EventStream, Fault, FaultClass, StreamEvent};
use crate::clock::{Clock as _, SystemClock};

/// How long a refusal's own words are waited for; its status is known by then.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long usage and end marker are waited for once the model has said why it stopped.
const TRAILER_GRACE: Duration = Duration::from_secs(5);

/// The pieces of a body, as they come.
pub(super) type Body = BoxStream<'static, Result<Bytes, Broken>>;

/// How a connection broke.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Broken {
    pub class: FaultClass,
    pub message: String,
}

/// A response as far as an answer depends on it.
pub(super) struct Answered {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Body,
}

impl Answered {
    pub fn content_type(&self) -> &str {
        let value = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }

    /// The stream of an answer, or what the server says instead of one.
    pub async fn listen(self, api: Api, mask: &Arc<Mask>) -> Result<EventStream, Fault> {
        if !(200..300).contains(&self.status) {
            return Err(mask.fault(self.refusal().await));
        }
        let Some(framing) = Framing::of_content_type(self.content_type()) else {
            return Err(mask.fault(self.no_stream().await));
        };
        let open = Open {
            body: Some(self.body),
            parser: StreamParser::new(api, framing),
            heard: Heard::from([Ok(StreamEvent::Opened)]),
            trailer_until: None,
            mask: Arc::clone(mask),
        };
        Ok(stream::unfold(open, Open::next).boxed())
    }

    async fn refusal(self) -> Fault {
        let body = start_of(self.body).await;
        classify(self.status, &self.headers, &body, SystemClock.wall())
    }

    async fn no_stream(self) -> Fault {
        let content_type = self.content_type().to_owned();
        let body = start_of(self.body).await;
        let body = String::from_utf8_lossy(&body);
        let start: String = body.trim().chars().take(200).collect();
        let message =
            format!("the server answered with `{content_type}`, not with a stream: {start}");
        Fault::new(FaultClass::NotAStream, message)
    }
}

/// A response while it is read.
struct Open {
    /// `None` once the last event is known: the connection is given up at once.
    body: Option<Body>,
    parser: StreamParser,
    heard: Heard,
    /// Set once the model has said why it stopped.
    trailer_until: Option<Instant>,
    mask: Arc<Mask>,
}

impl Open {
    async fn next(mut self) -> Option<(Result<StreamEvent, Fault>, Self)> {
        loop {
            if let Some(event) = self.heard.pop_front() {
                let event = event.map_err(|fault| self.mask.fault(fault));
                return Some((event, self));
            }
            self.read().await?;
        }
    }

    /// Reads one piece; `None` when there is nothing more to read.
    async fn read(&mut self) -> Option<()> {
        let piece = self.body.as_mut()?.next();
        let piece = match self.trailer_until {
            // No end marker in time is an end too: an answer is not lost over it.
            Some(until) => tokio::time::timeout_at(until, piece).await.unwrap_or(None),
            None => piece.await,
        };
        match piece {
            Some(Ok(bytes)) => self.parser.feed(&bytes, &mut self.heard),
            Some(Err(Broken { class, message })) => {
                self.parser.break_off(class, &message, &mut self.heard);
            }
            None => self.parser.finish(&mut self.heard),
        }
        if self.parser.is_over() {
            self.body = None;
        } else if self.parser.has_finish() && self.trailer_until.is_none() {
            self.trailer_until = Some(SystemClock.monotonic() + TRAILER_GRACE);
        }
        Some(())
    }
}

async fn start_of(mut pieces: Body) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Some(Ok(piece)) = pieces.next().await {
            body.extend_from_slice(&piece[..piece.len().min(ERROR_BODY_BYTES_MAX - body.len())]);
            if body.len() == ERROR_BODY_BYTES_MAX {
                break;
            }
        }
    };
    // What has come by then is better than nothing.
    let _ = tokio::time::timeout(ERROR_BODY_TIMEOUT, read).await;
    body
}
