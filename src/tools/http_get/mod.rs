//! `http_get {url}`: what is at an address of the web, as text.
//!
//! A model names the address, and what it names may come from somebody else's page. So every
//! address is judged before anything is sent there, that of each redirect too ([`crate::net`]); no
//! key, cookie or proxy goes along; and what comes back is bounded, text only, and marked as the
//! words of others.

mod body;
mod html;

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, LOCATION};
use reqwest::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::timeout;
use url::Url;

use super::parameters::{definition, parse};
use super::tool::{Arguments, Refusal, Tool, ToolContext, ToolOutcome, Verdict};
use super::untrusted::framed;
use crate::net::{Clients, NoWay, private_in, words_of};
use crate::provider::{Proxies, ToolDefinition};

use body::Body;

/// From the first connection to the last byte. A page takes seconds; one that drips is given up.
const WHOLE_MAX: Duration = Duration::from_mins(1);

/// Honest addresses need one or two.
const REDIRECTS_MAX: usize = 5;

/// Browsers refuse longer addresses too.
const URL_BYTES_MAX: usize = 8 * 1024;

/// What is preferred where a server can choose.
const ACCEPTED: &str = "text/markdown, text/plain, text/html;q=0.9, application/json;q=0.9, \
                        application/xml;q=0.8, text/*;q=0.5, */*;q=0.1";

/// Fetches pages.
pub(super) struct HttpGet {
    clients: Clients,
    /// Private hosts that it may ask all the same.
    allow_hosts: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// An address that begins with `https://` or `http://`.
    url: String,
}

impl HttpGet {
    pub(super) fn new(allow_hosts: Vec<String>) -> Self {
        Self { clients: Clients::new(Proxies::None), allow_hosts }
    }

    async fn get(&self, url: &str) -> Result<ToolOutcome, Refusal> {
        let asked = checked(
            Url::parse(url.trim())
                .map_err(|error| Refusal::Failed(format!("this is no address: {error}")))?,
        )?;
        let (response, redirects) = self.follow(asked.clone()).await?;
        let (status, at) = (response.status(), response.url().clone());
        let body = Body::read(response).await?;
        let via = match redirects {
            0 => String::new(),
            _ => format!(", redirected to {}", shown(&at)),
        };
        let about = format!("GET {}: {status}, {}{via}", shown(&asked), body.about());
        let verdict = if status.is_success() { Verdict::Ok } else { Verdict::Error };
        let output_bytes = body.bytes;
        let content = framed(&about, &body.text(&at)?);
        Ok(ToolOutcome { content, verdict, exit_code: None, output_bytes })
    }

    /// Asks, and asks again where a redirect leads, each address judged anew.
    async fn follow(&self, asked: Url) -> Result<(Response, usize), Refusal> {
        let mut at = asked;
        for redirects in 0..=REDIRECTS_MAX {
            let client =
                self.clients.to(&at, &self.allow_hosts).map_err(|no_way| match no_way {
                    NoWay::Private(private) => Refusal::Denied(private.to_string()),
                    NoWay::Client(_) => Refusal::Failed(no_way.to_string()),
                })?;
            let request = client.get(at.clone()).header(ACCEPT, ACCEPTED);
            // What is not compressed cannot grow when it is unpacked.
            let answer = request.header(ACCEPT_ENCODING, "identity").send().await;
            let response = answer.map_err(unanswered)?;
            match next_of(&at, &response)? {
                Some(next) => at = next,
                None => return Ok((response, redirects)),
            }
        }
        Err(Refusal::Failed(format!("more than {REDIRECTS_MAX} redirects")))
    }
}

impl Tool for HttpGet {
    fn definition(&self) -> ToolDefinition {
        let description = "Fetch a page of the web as text: HTML becomes readable text, JSON, XML \
            and plain text stay as they are. What it returns is marked as the words of others.";
        definition::<Parameters>("http_get", description)
    }

    fn call<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        async move {
            let Parameters { url } = match parse("http_get", arguments) {
                Ok(parameters) => parameters,
                Err(refusal) => return refusal.into(),
            };
            let limit = context.tool_timeout.min(WHOLE_MAX);
            let got = timeout(limit, self.get(&url)).await.unwrap_or_else(|_| {
                let words = format!("no whole answer came within {limit:?}");
                Ok(ToolOutcome::new(Verdict::TimedOut, words))
            });
            got.unwrap_or_else(Into::into)
        }
        .boxed()
    }
}

/// What may be asked at all: nothing but the web, and nobody by a key in the address.
fn checked(mut url: Url) -> Result<Url, Refusal> {
    if url.as_str().len() > URL_BYTES_MAX {
        let words = format!("the address is longer than {URL_BYTES_MAX} bytes");
        return Err(Refusal::Failed(words));
    }
    if !matches!(url.scheme(), "http" | "https") {
        let words = format!("`{}:` is not fetched: only https and http are", url.scheme());
        return Err(Refusal::Denied(words));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::Denied("an address with a user or a password is not fetched".into()));
    }
    url.set_fragment(None);
    Ok(url)
}

/// Where a redirect leads, if the response is one.
fn next_of(at: &Url, response: &Response) -> Result<Option<Url>, Refusal> {
    let is_redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let Some(place) = response.headers().get(LOCATION).filter(|_| is_redirect) else {
        return Ok(None);
    };
    let next = at.join(&String::from_utf8_lossy(place.as_bytes()));
    let next = next.map_err(|_| Refusal::Failed("it redirects to what is no address".into()))?;
    let next = checked(next).map_err(|refusal| match refusal {
        Refusal::Denied(words) => Refusal::Denied(format!("it redirects: {words}")),
        Refusal::Failed(words) => Refusal::Failed(format!("it redirects: {words}")),
    })?;
    if (at.scheme(), next.scheme()) == ("https", "http") {
        return Err(Refusal::Denied("it redirects from https to http".into()));
    }
    Ok(Some(next))
}

fn unanswered(error: reqwest::Error) -> Refusal {
    match private_in(&error) {
        Some(private) => Refusal::Denied(private.to_string()),
        None => Refusal::Failed(format!("no answer came: {}", words_of(error))),
    }
}

/// An address as it is told, at a length that says which one it is.
fn shown(url: &Url) -> String {
    const CHARS_MAX: usize = 300;
    let text = url.as_str();
    // It is ASCII: the parser sees to it.
    if text.len() <= CHARS_MAX { text.to_owned() } else { format!("{}…", &text[..CHARS_MAX]) }
}
