//! Anthropic messages.

mod ask;
mod cache;
mod hear;

use futures_util::future::BoxFuture;
use reqwest::header::{HeaderMap, HeaderValue};

use super::http::{Endpoint, Wire};
use super::{Api, EventStream, Fault, Provider, Request};

pub(super) use hear::AnthropicEar;

/// A server of the messages API.
#[derive(Debug)]
pub struct Anthropic {
    wire: Wire,
}

impl Anthropic {
    /// `endpoint`'s base URL with or without `/v1` at its end: `https://api.anthropic.com`.
    pub fn new(client: reqwest::Client, endpoint: Endpoint) -> Self {
        let headers = headers(&endpoint);
        let path: &[&str] =
            if endpoint.ends_with("v1") { &["messages"] } else { &["v1", "messages"] };
        Self { wire: Wire::new(Api::Anthropic, client, endpoint, path, headers) }
    }
}

fn headers(endpoint: &Endpoint) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    if let Some(key) = endpoint.key_header("") {
        headers.insert("x-api-key", key?);
    }
    Ok(headers)
}

impl Provider for Anthropic {
    fn stream<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>> {
        Box::pin(async { self.wire.open(ask::body(request)?).await })
    }
}
