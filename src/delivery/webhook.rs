//! A server that takes the run as JSON, signed.

use std::fmt::Write as _;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;
use sha2::Sha256;

use super::http::{Http, Request};
use super::letter::Letter;
use super::sent::Sent;
use crate::config::Webhook;
use crate::job::{Environment, with_sources};

/// Posts the run object, or the incident.
pub(super) async fn send(
    letter: &Letter,
    webhook: &Webhook,
    timeout: Duration,
    (http, allow_hosts, environment): (&Http, &[String], &Environment),
) -> Sent {
    let url = match webhook.url.read(environment) {
        Ok(url) => url,
        Err(error) => return Sent::Refused(format!("`url`: {}", with_sources(&error))),
    };
    let body = match letter.json() {
        Ok(body) => body,
        Err(error) => return Sent::Refused(error.to_string()),
    };
    let headers = match headers(letter, webhook, &body, environment) {
        Ok(headers) => headers,
        Err(why) => return Sent::Refused(why),
    };
    http.post(Request { url: url.expose_secret(), headers, body, timeout }, allow_hosts).await
}

fn headers(
    letter: &Letter,
    webhook: &Webhook,
    body: &[u8],
    environment: &Environment,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let no_header = |name: &str| format!("`{name}` is no header");
    for (name, value) in &webhook.headers {
        let header = HeaderName::try_from(name).map_err(|_| no_header(name))?;
        let mut value =
            HeaderValue::try_from(value.expose_secret()).map_err(|_| no_header(name))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    // What is ours cannot be configured away: receivers rely on it.
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let id = HeaderValue::try_from(&letter.delivery_id).map_err(|_| no_header("the id"))?;
    headers.insert("idempotency-key", id);
    if let Some(secret) = &webhook.secret {
        let secret = secret.read(environment);
        let secret = secret.map_err(|error| format!("`secret`: {}", with_sources(&error)))?;
        let signature = format!("sha256={}", signature(secret.expose_secret(), body));
        let value = HeaderValue::try_from(signature).map_err(|_| no_header("the signature"))?;
        headers.insert("x-punctual-signature", value);
    }
    Ok(headers)
}

/// HMAC-SHA256 of `body`, in hex.
fn signature(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any key will do");
    mac.update(body);
    mac.finalize().into_bytes().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_that_everybody_computes() {
        // RFC 4231, test case 2.
        assert_eq!(
            signature("Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
