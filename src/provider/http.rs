//! The socket side of a provider.
//!
//! There is no limit here but the one on connecting: what looks like a stall is judged by the
//! caller, who sees each event.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use super::cassette::Tape;
use super::mask::Mask;
use super::parser::Api;
use super::response::{Answered, Broken};
use super::{EventStream, Fault, FaultClass};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const REDIRECTS_MAX: usize = 10;

/// Installs the process-wide TLS provider. Calling it again changes nothing.
pub fn install_crypto() {
    // An error means that one is installed already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Which proxies a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxies {
    /// Those that `HTTP_PROXY` and its like name.
    OfEnvironment,
    /// None.
    None,
}

/// The client that all providers share.
pub fn http_client(proxies: Proxies) -> reqwest::Result<Client> {
    install_crypto();
    let builder = || {
        let builder = match proxies {
            Proxies::OfEnvironment => Client::builder(),
            Proxies::None => Client::builder().no_proxy(),
        };
        builder
            .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::custom(follow_on_same_host))
            .tcp_nodelay(true)
    };
    // A machine without root certificates can still talk to a model of its own.
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

/// A key must not travel to another host, and reqwest takes only the standard headers off.
fn follow_on_same_host(attempt: Attempt<'_>) -> Action {
    let same = attempt.previous().last().is_some_and(|from| {
        let to = attempt.url();
        let upgraded = from.scheme() == "http" && to.scheme() == "https";
        from.host() == to.host() && (from.origin() == to.origin() || upgraded)
    });
    if same && attempt.previous().len() <= REDIRECTS_MAX {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// Where a provider lives and how it knows us.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The base URL, as configured.
    pub base_url: Url,
    /// The key, if it wants one.
    pub api_key: Option<SecretString>,
    /// More headers; those marked as sensitive are masked like the key.
    pub headers: HeaderMap,
    /// What takes down each answer as it comes, if anything does.
    pub tape: Option<Tape>,
}

impl Endpoint {
    /// An endpoint without key or headers of its own.
    pub fn new(base_url: Url) -> Self {
        Self { base_url, api_key: None, headers: HeaderMap::new(), tape: None }
    }

    /// The same endpoint with a key.
    #[must_use]
    pub fn with_key(self, key: SecretString) -> Self {
        Self { api_key: Some(key), ..self }
    }

    /// The header value `prefix` + key, marked as sensitive.
    pub(super) fn key_header(&self, prefix: &str) -> Option<Result<HeaderValue, Fault>> {
        let key = self.api_key.as_ref()?.expose_secret().trim();
        let value = HeaderValue::try_from(format!("{prefix}{key}")).map(|mut value| {
            value.set_sensitive(true);
            value
        });
        let message = "the API key holds characters that no header can carry";
        Some(value.map_err(|_| Fault::new(FaultClass::Auth, message)))
    }

    /// The usual header for the key.
    pub(super) fn bearer(&self) -> Result<HeaderMap, Fault> {
        let key = self.key_header("Bearer ").transpose()?;
        Ok(key.into_iter().map(|value| (AUTHORIZATION, value)).collect())
    }

    /// Whether the last part of the URL's path is `segment`.
    pub(super) fn ends_with(&self, segment: &str) -> bool {
        let parts = self.base_url.path_segments();
        parts.into_iter().flatten().rfind(|part| !part.is_empty()) == Some(segment)
    }

    pub(super) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base_url.clone();
        // A URL without a path part (`data:`) fails when it is asked.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }
}

/// One API at one endpoint.
#[derive(Debug)]
pub(super) struct Wire {
    api: Api,
    client: Client,
    url: Url,
    headers: Result<HeaderMap, Fault>,
    mask: Arc<Mask>,
    tape: Option<Tape>,
}

impl Wire {
    pub fn new(
        api: Api,
        client: Client,
        endpoint: Endpoint,
        path: &[&str],
        headers: Result<HeaderMap, Fault>,
    ) -> Self {
        let url = endpoint.url(path);
        let mask = Mask::new(endpoint.api_key.as_ref(), &endpoint.headers, &url);
        let headers = headers.map(|mut headers| {
            let accept = "text/event-stream, application/x-ndjson, application/json";
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            // What was configured wins over what we would say.
            headers.extend(endpoint.headers);
            headers
        });
        Self { api, client, url, headers, mask: Arc::new(mask), tape: endpoint.tape }
    }

    /// Sends the request and waits for the response's head.
    pub async fn open(&self, body: Value) -> Result<EventStream, Fault> {
        let headers = self.headers.clone()?;
        let request = self.client.post(self.url.clone()).headers(headers).json(&body);
        let response = request.send().await.map_err(|error| self.send_fault(error))?;
        let mut answered = answered(response);
        if let Some(tape) = &self.tape {
            answered = tape.take_down(self.api, answered, &self.mask);
        }
        answered.listen(self.api, &self.mask).await
    }

    fn send_fault(&self, error: reqwest::Error) -> Fault {
        let host = self.url.host_str().unwrap_or_default();
        let class = match io_kind(&error) {
            Some(io::ErrorKind::ConnectionRefused) => FaultClass::Unreachable,
            _ if error.is_builder() => FaultClass::BadRequest,
            _ => FaultClass::Network,
        };
        let message = format!("cannot reach {host}: {}", chain(error));
        self.mask.fault(Fault::new(class, message))
    }
}

fn answered(mut response: Response) -> Answered {
    let status = response.status().as_u16();
    let headers = std::mem::take(response.headers_mut());
    let body = response.bytes_stream().map(|piece| piece.map_err(broken)).boxed();
    Answered { status, headers, body }
}

fn broken(error: reqwest::Error) -> Broken {
    let class = match io_kind(&error) {
        Some(io::ErrorKind::UnexpectedEof) => FaultClass::IncompleteStream,
        _ => FaultClass::Network,
    };
    Broken { class, message: format!("the connection broke: {}", chain(error)) }
}

/// What the operating system said, if it was asked.
fn io_kind(error: &reqwest::Error) -> Option<io::ErrorKind> {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.filter_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind).last()
}

/// The whole chain of causes, without the URL: it may carry a key.
pub(super) fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_with_and_without_a_slash() {
        let table = [
            ("http://h:1/v1", "http://h:1/v1/chat/completions"),
            ("http://h:1/v1/", "http://h:1/v1/chat/completions"),
            ("http://h:1", "http://h:1/chat/completions"),
            ("http://h:1/v1?key=k", "http://h:1/v1/chat/completions?key=k"),
        ];
        for (base, expected) in table {
            let endpoint = Endpoint::new(Url::parse(base).unwrap());
            assert_eq!(endpoint.url(&["chat", "completions"]).as_str(), expected);
        }
        assert!(Endpoint::new(Url::parse("http://h/v1/").unwrap()).ends_with("v1"));
        assert!(!Endpoint::new(Url::parse("http://h/v12").unwrap()).ends_with("v1"));
    }

    #[test]
    fn a_key_that_is_no_header_is_a_fault_without_the_key_in_it() {
        let endpoint = Endpoint::new(Url::parse("http://h/").unwrap())
            .with_key(SecretString::from("secret\nkey"));
        let fault = endpoint.bearer().unwrap_err();
        assert_eq!(fault.class, FaultClass::Auth);
        assert!(!fault.message.contains("secret"));
    }
}
