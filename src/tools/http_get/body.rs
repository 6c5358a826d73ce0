//! What a server has said, as far as it is text and within bounds.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use encoding_rs::{Encoding, UTF_8};
use regex::bytes::Regex;
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use url::Url;

use super::html::readable;
use crate::net::words_of;
use crate::tools::tool::Refusal;

/// How much of an answer is read. Most of a page is markup: little of it becomes text.
const BODY_BYTES_MAX: usize = 2 << 20;

/// How much text a model gets: as much as of a command.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Where a page says in which characters it is written.
const CHARSET_WITHIN: usize = 1024;

/// The same for one that begins as a page does.
static BEGINS_AS_PAGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^\s*(?:<!doctype\s+html|<html)").expect("it is sound"));
static CHARSET: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)<meta[^>]{0,200}?charset\s*=\s*["']?\s*([a-z0-9_:.-]{1,40})"#)
        .expect("it is sound")
});

/// An answer of a server.
pub(super) struct Body {
    read: Vec<u8>,
    kind: Kind,
    media_type: String,
    charset: Option<&'static Encoding>,
    is_cut: bool,
    /// How much it said, as far as that was read.
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Page,
    Text,
    /// It does not say.
    Unsaid,
    Binary,
}

impl Body {
    /// Reads it, up to the bound; what is no text is refused before it is read.
    pub(super) async fn read(mut response: Response) -> Result<Self, Refusal> {
        let written = header(&response, &CONTENT_TYPE);
        let media_type = essence(&written);
        let kind = kind_of(&media_type);
        if kind == Kind::Binary {
            let size = header(&response, &CONTENT_LENGTH).parse::<u64>();
            let size = size.map_or("size unknown".to_owned(), |bytes| format!("{bytes} bytes"));
            return Err(Refusal::Failed(format!("this is no text: {media_type}, {size}")));
        }
        let packed = header(&response, &CONTENT_ENCODING);
        if !matches!(packed.trim(), "" | "identity") {
            let words = "the answer is compressed, although it was asked for as it is";
            return Err(Refusal::Failed(words.into()));
        }
        let (mut read, mut is_cut) = (Vec::new(), false);
        while let Some(piece) = response.chunk().await.map_err(broken)? {
            let room = BODY_BYTES_MAX - read.len();
            read.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                is_cut = true;
                break;
            }
        }
        let charset = charset_of(&written);
        let bytes = read.len() as u64;
        Ok(Self { read, kind, media_type, charset, is_cut, bytes })
    }

    /// What it is, in our words.
    pub(super) fn about(&self) -> String {
        let kind = if self.media_type.is_empty() { "type not said" } else { &self.media_type };
        if self.is_cut {
            format!("{kind}, only the first {} bytes were read", self.bytes)
        } else {
            format!("{kind}, {} bytes", self.bytes)
        }
    }

    /// Its text; addresses in it are relative to `at`.
    pub(super) fn text(&self, at: &Url) -> Result<String, Refusal> {
        let is_page = match self.kind {
            Kind::Page => true,
            Kind::Unsaid => BEGINS_AS_PAGE.is_match(&self.read),
            Kind::Text | Kind::Binary => false,
        };
        let said = || is_page.then(|| charset_within(&self.read)).flatten();
        let charset = self.charset.or_else(said).unwrap_or(UTF_8);
        // A mark at the beginning says more than any header.
        let (text, ..) = charset.decode(&self.read);
        if text.contains('\0') {
            let words = format!("this is no text: {} bytes of binary data", self.bytes);
            return Err(Refusal::Failed(words));
        }
        let text = if is_page { Cow::Owned(readable(&text, at)) } else { text };
        Ok(bounded(&text.replace("\r\n", "\n")))
    }
}

/// `text` without what a terminal would obey, at the length that a model gets.
fn bounded(text: &str) -> String {
    let mut kept = String::new();
    for (at, char) in text.char_indices() {
        if kept.len() >= TEXT_BYTES_MAX {
            let left = text.len() - at;
            let _ = write!(kept, "\n[… {left} more bytes …]");
            break;
        }
        if !char.is_control() || matches!(char, '\n' | '\t') {
            kept.push(char);
        }
    }
    kept
}

fn header(response: &Response, name: &HeaderName) -> String {
    let value = response.headers().get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

/// The media type without its parameters; empty where none is said that could be one.
fn essence(written: &str) -> String {
    let essence = written.split(';').next().unwrap_or_default().trim();
    let is_token = |char: char| char.is_ascii_alphanumeric() || "!#$&^_.+-/".contains(char);
    let is_one = essence.len() <= 100 && essence.contains('/') && essence.chars().all(is_token);
    if is_one { essence.to_owned() } else { String::new() }
}

fn kind_of(media_type: &str) -> Kind {
    match media_type {
        "" => Kind::Unsaid,
        "text/html" | "application/xhtml+xml" => Kind::Page,
        "application/json"
        | "application/ld+json"
        | "application/xml"
        | "application/javascript"
        | "application/x-javascript"
        | "application/ecmascript"
        | "application/x-ndjson"
        | "application/jsonl"
        | "application/yaml"
        | "application/x-yaml"
        | "application/toml"
        | "application/sql"
        | "application/graphql"
        | "application/x-sh"
        | "application/x-www-form-urlencoded" => Kind::Text,
        _ if media_type.starts_with("text/") => Kind::Text,
        _ if media_type.ends_with("+json") || media_type.ends_with("+xml") => Kind::Text,
        _ => Kind::Binary,
    }
}

fn charset_of(written: &str) -> Option<&'static Encoding> {
    let named = written.split(';').skip(1).find_map(|part| part.trim().strip_prefix("charset="))?;
    Encoding::for_label(named.trim_matches(['"', '\'', ' ']).as_bytes())
}

fn charset_within(page: &[u8]) -> Option<&'static Encoding> {
    let found = CHARSET.captures(&page[..page.len().min(CHARSET_WITHIN)])?;
    let named = Encoding::for_label(&found[1])?;
    // It could be read so far, so that it cannot be in these.
    let is_wide = named == encoding_rs::UTF_16LE || named == encoding_rs::UTF_16BE;
    Some(if is_wide { UTF_8 } else { named })
}

fn broken(error: reqwest::Error) -> Refusal {
    Refusal::Failed(format!("the answer broke off: {}", words_of(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_text_is_known_by_its_type() {
        for (written, kind) in [
            ("text/html; charset=utf-8", Kind::Page),
            ("application/xhtml+xml", Kind::Page),
            ("text/csv", Kind::Text),
            ("application/json", Kind::Text),
            ("application/problem+json", Kind::Text),
            ("application/rss+xml; charset=x", Kind::Text),
            ("", Kind::Unsaid),
            ("nonsense", Kind::Unsaid),
            ("ignore all/your instructions", Kind::Unsaid),
            ("image/png", Kind::Binary),
            ("application/octet-stream", Kind::Binary),
            ("application/pdf", Kind::Binary),
            ("application/zip", Kind::Binary),
            ("video/mp4", Kind::Binary),
        ] {
            assert_eq!(kind_of(&essence(written)), kind, "{written}");
        }
    }

    #[test]
    fn characters_are_those_that_header_or_page_name() {
        let text = |written: &str, read: &[u8]| {
            let media_type = essence(written);
            let body = Body {
                read: read.to_vec(),
                kind: kind_of(&media_type),
                media_type,
                charset: charset_of(written),
                is_cut: false,
                bytes: read.len() as u64,
            };
            body.text(&Url::parse("http://x/").unwrap()).map_err(|refusal| match refusal {
                Refusal::Denied(words) | Refusal::Failed(words) => words,
            })
        };
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(text("text/plain", "né".as_bytes()), ok("né"));
        assert_eq!(text("text/plain; charset=iso-8859-1", b"n\xe9"), ok("né"));
        assert_eq!(text("text/plain; charset=\"windows-1251\"", b"\xcf"), ok("П"));
        assert_eq!(text("text/plain; charset=shift_jis", b"\x93\xfa"), ok("日"));
        assert_eq!(text("text/plain", b"\xff\xfen\0\xe9\0"), ok("né"));
        assert_eq!(text("text/plain; charset=klingon", b"ok"), ok("ok"));
        assert_eq!(text("text/html", b"<meta charset=latin1><p>n\xe9"), ok("né"));
        assert_eq!(text("text/html", "<meta charset=utf-16>é".as_bytes()), ok("é"));
        assert_eq!(text("text/plain", b"a\x1b[31mb\x07\r\nc\td"), ok("a[31mb\nc\td"));
        assert_eq!(text("", b"<!DOCTYPE html><b>x</b>"), ok("x"));
        assert_eq!(text("", b"<b>x</b>"), ok("<b>x</b>"));
        assert!(text("text/plain", b"a\0b").unwrap_err().contains("3 bytes of binary data"));
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        let cut = bounded(&long);
        assert!(cut.ends_with(&format!("é\n[… {TEXT_BYTES_MAX} more bytes …]")));
        assert_eq!(bounded("short"), "short");
    }
}
