//! An incoming webhook of Slack.
//!
//! A long reply goes in several messages, marked (1/3), (2/3), (3/3). Which of them have arrived is
//! recorded after each, so that a later try goes on where the last one ended.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::http::{Http, Request};
use super::letter::{Letter, Notice};
use super::markdown::{split, to_mrkdwn};
use super::sent::Sent;
use crate::job::{Environment, SecretText, with_sources};
use crate::store::Store;

/// Slack shows messages of up to 4,000 characters whole; the mark of a part needs some of that.
const MESSAGE_BYTES_MAX: usize = 3900;

/// Whoever wants more than that has the history.
const MESSAGES_MAX: usize = 20;

/// Between two messages: Slack takes about one a second from a webhook.
const PAUSE: Duration = Duration::from_secs(1);

/// Posts what `letter` says, message by message.
pub(super) async fn send(
    letter: &Letter,
    url: &SecretText,
    timeout: Duration,
    (http, allow_hosts, environment): (&Http, &[String], &Environment),
    store: &Store,
) -> Sent {
    let url = match url.read(environment) {
        Ok(url) => url,
        Err(error) => return Sent::Refused(format!("`url`: {}", with_sources(&error))),
    };
    let messages = messages(letter);
    let done = usize::try_from(letter.parts_sent).unwrap_or(usize::MAX);
    for (message, n) in messages.iter().zip(1..).skip(done) {
        if n > 1 {
            tokio::time::sleep(PAUSE).await;
        }
        let body = json!({ "text": message, "unfurl_links": false }).to_string().into_bytes();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = Request { url: url.expose_secret(), headers, body, timeout };
        match http.post(request, allow_hosts).await {
            Sent::Arrived => {}
            not_sent => return not_sent,
        }
        if let Err(error) = store.note_part_sent(&letter.delivery_id, n).await {
            return Sent::Lost(format!("could not record that a part has arrived: {error}"));
        }
    }
    Sent::Arrived
}

fn messages(letter: &Letter) -> Vec<String> {
    let Some(reply) = letter.reply() else { return vec![form(&letter.notice())] };
    let head = format!("*{}*", letter.job());
    let mut parts = split(&to_mrkdwn(&reply), MESSAGE_BYTES_MAX);
    let left_out = parts.len().saturating_sub(MESSAGES_MAX);
    if left_out > 0 {
        parts.truncate(MESSAGES_MAX);
        let words = format!("\n_… cut here: run {} has all of it_", letter.id());
        parts.last_mut().expect("there are many").push_str(&words);
    }
    let count = parts.len();
    match count {
        0 => vec![head],
        1 => vec![format!("{head}\n{}", parts[0])],
        _ => {
            let marked = parts.iter().zip(1..);
            marked.map(|(part, n)| format!("{head} ({n}/{count})\n{part}")).collect()
        }
    }
}

/// The fixed form of a failure.
fn form(notice: &Notice) -> String {
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let words: String = notice.words.chars().take(1000).collect();
    let words = if words.is_empty() { String::new() } else { format!("\n{}", plain(&words)) };
    let facts = notice.facts.iter().map(|(name, value)| format!("{name:<12} {}", plain(value)));
    let facts = facts.collect::<Vec<_>>().join("\n");
    format!("*{}*{words}\n```\n{facts}\n```", plain(&notice.title))
}
