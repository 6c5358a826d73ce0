//! Ollama's own chat API.

mod ask;
mod hear;

use futures_util::future::BoxFuture;

use super::http::{Endpoint, Wire};
use super::{Api, EventStream, Fault, Provider, Request};

pub(super) use hear::OllamaEar;

/// An Ollama server.
#[derive(Debug)]
pub struct Ollama {
    wire: Wire,
}

impl Ollama {
    /// `endpoint`'s base URL with or without `/api` at its end: `http://127.0.0.1:11434`.
    pub fn new(client: reqwest::Client, endpoint: Endpoint) -> Self {
        let path: &[&str] = if endpoint.ends_with("api") { &["chat"] } else { &["api", "chat"] };
        let headers = endpoint.bearer();
        Self { wire: Wire::new(Api::Ollama, client, endpoint, path, headers) }
    }
}

impl Provider for Ollama {
    fn stream<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>> {
        Box::pin(self.wire.open(ask::body(request)))
    }
}
