//! One request to somebody outside, and what its answer means.
//!
//! Redirects are not followed, nothing is repeated behind our back, and a private address is
//! refused after its name was looked up, unless the configuration names it (semantics §10).

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use url::Url;

use super::sent::Sent;
use crate::net::{CONNECT_TIMEOUT, Clients, NoWay, private_in, words_of};
use crate::provider::Proxies;

/// How long the words of a refusal are waited for; its status is known by then.
const WORDS_TIMEOUT: Duration = Duration::from_secs(2);

/// How many of them are kept.
const WORDS_CHARS_MAX: usize = 200;

/// Sends requests.
#[derive(Debug, Clone)]
pub(super) struct Http(Clients);

impl Default for Http {
    /// A target is the operator's own: its way out may be a proxy.
    fn default() -> Self {
        Self(Clients::new(Proxies::OfEnvironment))
    }
}

/// A request to be made.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) url: &'a str,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// From the connection to the answer.
    pub(super) timeout: Duration,
}

impl Http {
    /// Posts it and says what came of it.
    pub(super) async fn post(&self, request: Request<'_>, allow_hosts: &[String]) -> Sent {
        let Ok(url) = Url::parse(request.url.trim()) else {
            return Sent::Refused("its address is not a URL".into());
        };
        let client = match self.0.to(&url, allow_hosts) {
            Ok(client) => client,
            Err(NoWay::Private(private)) => return Sent::Refused(private.to_string()),
            Err(no_client @ NoWay::Client(_)) => return Sent::not_yet(no_client.to_string()),
        };
        let posted = client
            .post(url)
            .headers(request.headers)
            .body(request.body)
            // Whatever is cut by this was connected, so that it may have arrived.
            .timeout(CONNECT_TIMEOUT + request.timeout)
            .send();
        match posted.await {
            Ok(response) => answered(response).await,
            Err(error) => unanswered(error),
        }
    }
}

async fn answered(response: Response) -> Sent {
    let status = response.status();
    if status.is_success() {
        return Sent::Arrived;
    }
    if status.is_redirection() {
        return Sent::Refused(format!("answered {status}: redirects are not followed"));
    }
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let after = asked.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    let words = refusal_of(response).await;
    let why = if words.is_empty() {
        format!("answered {status}")
    } else {
        format!("answered {status}: {words}")
    };
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        Sent::NotYet { why, after }
    } else {
        Sent::Refused(why)
    }
}

async fn refusal_of(mut response: Response) -> String {
    let piece = tokio::time::timeout(WORDS_TIMEOUT, response.chunk()).await;
    let Ok(Ok(Some(bytes))) = piece else { return String::new() };
    let text = String::from_utf8_lossy(&bytes);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(WORDS_CHARS_MAX).collect()
}

fn unanswered(error: reqwest::Error) -> Sent {
    if let Some(private) = private_in(&error) {
        return Sent::Refused(private.to_string());
    }
    let (never_began, is_wrong) = (error.is_connect(), error.is_builder());
    // Its address may be a key.
    let words = words_of(error);
    if never_began {
        Sent::not_yet(words)
    } else if is_wrong {
        Sent::Refused(words)
    } else {
        Sent::Lost(format!("no answer came: {words}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_leads_inside_is_refused_after_the_lookup_and_allowed_by_name() {
        let http = Http::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        for host in ["localhost", "127.0.0.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]"] {
            let url = format!("http://{host}:{port}/");
            let request = || Request {
                url: &url,
                headers: HeaderMap::new(),
                body: Vec::new(),
                timeout: Duration::from_secs(5),
            };
            let refused = http.post(request(), &[]).await;
            assert!(
                matches!(&refused, Sent::Refused(why) if why.contains("private")),
                "{refused:?}"
            );
        }
        // Allowed, it is asked, and nobody listens: nothing can have arrived.
        let url = format!("http://localhost:{port}/");
        for allowed in ["localhost".to_owned(), format!("localhost:{port}")] {
            let (headers, body, timeout) = (HeaderMap::new(), Vec::new(), Duration::from_secs(5));
            let sent = http.post(Request { url: &url, headers, body, timeout }, &[allowed]).await;
            assert!(matches!(sent, Sent::NotYet { .. }), "{sent:?}");
        }
    }
}
