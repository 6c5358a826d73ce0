//! Keeps what must stay secret out of a server's words.
//!
//! Servers like to repeat a key they did not like, whole or with its middle starred out. Whatever
//! begins like the key is masked to the end of the word.

use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::Fault;

/// How much of a secret must be seen for it to be one. Shorter ones are placeholders (`none`).
const NEEDLE_CHARS: usize = 8;

const MASKED: &str = "[masked]";

/// What to mask.
#[derive(Debug, Default)]
pub(super) struct Mask(Vec<SecretString>);

impl Mask {
    /// The secrets of an endpoint: its key, headers marked as sensitive, and what its URL carries.
    pub fn new(key: Option<&SecretString>, headers: &HeaderMap, url: &Url) -> Self {
        let key = key.map(|key| key.expose_secret().to_owned());
        let marked = headers.values().filter(|value| value.is_sensitive());
        let headers = marked.filter_map(|value| value.to_str().ok()).map(str::to_owned);
        let query = url.query_pairs().map(|(_, value)| value.into_owned());
        let password = url.password().map(str::to_owned);
        let all = key.into_iter().chain(headers).chain(query).chain(password);
        Self(all.map(SecretString::from).collect())
    }

    /// `text` without them.
    pub fn text(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| mask(text, secret.expose_secret().trim()))
    }

    /// `fault` without them.
    pub fn fault(&self, fault: Fault) -> Fault {
        Fault {
            message: self.text(fault.message),
            code: fault.code.map(|code| self.text(code)),
            partial_text: self.text(fault.partial_text),
            ..fault
        }
    }
}

fn mask(text: String, secret: &str) -> String {
    // The scheme before a token (`Bearer `) is no part of the secret.
    let secret = secret.rsplit(' ').next().unwrap_or_default();
    let Some((end, last)) = secret.char_indices().nth(NEEDLE_CHARS - 1) else { return text };
    let needle = &secret[..end + last.len_utf8()];
    if !text.contains(needle) {
        return text;
    }
    let mut masked = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(needle) {
        masked.push_str(&rest[..at]);
        masked.push_str(MASKED);
        let tail = &rest[at + needle.len()..];
        let whole = secret.strip_prefix(needle).filter(|more| tail.starts_with(more));
        let tail = &tail[whole.map_or(0, str::len)..];
        rest = tail.trim_start_matches(|c: char| c.is_alphanumeric() || "-_*+/=~…".contains(c));
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_masked_whole_and_in_part() {
        let key = SecretString::from("sk-proj-0123456789abcdef");
        let url = Url::parse("http://u:hunter2hunter2@h/v1?key=AIzaQueryQuery").unwrap();
        let mask = Mask::new(Some(&key), &HeaderMap::new(), &url);
        let table = [
            ("bad key: sk-proj-0123456789abcdef.", "bad key: [masked]."),
            ("bad key: sk-proj-********cdef, sorry", "bad key: [masked], sorry"),
            ("{\"key\":\"sk-proj-0123456789abcdef\"}", "{\"key\":\"[masked]\"}"),
            ("POST /v1?key=AIzaQueryQuery&x=1", "POST /v1?key=[masked]&x=1"),
            ("hunter2hunter2", "[masked]"),
            ("nothing of it: sk-0123", "nothing of it: sk-0123"),
        ];
        for (text, expected) in table {
            assert_eq!(mask.text(text.to_owned()), expected);
        }
    }

    #[test]
    fn a_placeholder_masks_nothing() {
        let key = SecretString::from("ollama");
        let mask = Mask::new(Some(&key), &HeaderMap::new(), &Url::parse("http://h/").unwrap());
        assert_eq!(mask.text("ollama is busy".to_owned()), "ollama is busy");
    }
}
