//! `OpenAI` chat completions, and the many servers that speak like it: llama.cpp, vLLM, Ollama's
//! second API, OpenRouter.

mod ask;
mod hear;

use futures_util::future::BoxFuture;

use super::http::{Endpoint, Wire};
use super::thinking::Speaker;
use super::{Api, EventStream, Fault, Provider, Request};

pub(super) use ask::tool;
pub(super) use hear::OpenAiEar;

/// A server of the chat completions API.
#[derive(Debug)]
pub struct OpenAi {
    wire: Wire,
    speaker: Speaker,
}

impl OpenAi {
    /// `endpoint`'s base URL ends where `/chat/completions` begins: `http://127.0.0.1:8080/v1`.
    pub fn new(client: reqwest::Client, endpoint: Endpoint) -> Self {
        let speaker = Speaker::of_host(endpoint.base_url.host_str());
        let headers = endpoint.bearer();
        let wire = Wire::new(Api::OpenAi, client, endpoint, &["chat", "completions"], headers);
        Self { wire, speaker }
    }
}

impl Provider for OpenAi {
    fn stream<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>> {
        Box::pin(self.wire.open(ask::body(request, self.speaker)))
    }
}
