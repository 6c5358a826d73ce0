//! Lines as payloads: server-sent events, JSON lines, or one JSON body.
//!
//! Which of them it is, the response's content type says; nothing is guessed from the bytes.

use std::collections::VecDeque;

use super::lines::{LINE_BYTES_MAX, LineError, Lines};

/// How payloads are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `text/event-stream`.
    Sse,
    /// `application/x-ndjson`: one JSON value a line.
    Ndjson,
    /// `application/json`: one value, the whole answer.
    Json,
}

impl Framing {
    /// The framing that a `Content-Type` announces; `None` for what no model API sends.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        match essence.to_ascii_lowercase().as_str() {
            "text/event-stream" => Some(Self::Sse),
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
                Some(Self::Ndjson)
            }
            "application/json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// One payload, with the name that its event had (empty for most).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Payload {
    pub event: String,
    pub data: String,
}

/// Cuts bytes into payloads.
#[derive(Debug)]
pub(super) struct Frames {
    framing: Framing,
    lines: Lines,
    /// The event that is being put together.
    open: Payload,
    has_data: bool,
    /// The whole body, for [`Framing::Json`].
    body: Vec<u8>,
}

impl Frames {
    pub fn new(framing: Framing) -> Self {
        Self {
            framing,
            lines: Lines::default(),
            open: Payload::default(),
            has_data: false,
            body: Vec::new(),
        }
    }

    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Takes bytes off the front of `input` until a payload is whole; `None` once it is used up.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Payload>, LineError> {
        if self.framing == Framing::Json {
            if self.body.len() + input.len() > LINE_BYTES_MAX {
                return Err(LineError::TooLong);
            }
            self.body.extend_from_slice(input);
            *input = &[];
            return Ok(None);
        }
        let Self { framing, lines, open, has_data, .. } = self;
        while let Some(line) = lines.next(input)? {
            let payload = match framing {
                Framing::Sse => take_field(open, has_data, line)?,
                Framing::Ndjson | Framing::Json => payload_of_line(line),
            };
            if payload.is_some() {
                return Ok(payload);
            }
        }
        Ok(None)
    }

    /// What is left when the server has closed: an event without its blank line counts.
    pub fn rest(&mut self) -> Result<VecDeque<Payload>, LineError> {
        let Self { framing, lines, open, has_data, body } = self;
        let mut left = VecDeque::new();
        match framing {
            Framing::Json => {
                let data =
                    String::from_utf8(std::mem::take(body)).map_err(|_| LineError::NotText)?;
                let data = data.strip_prefix('\u{feff}').unwrap_or(&data).to_owned();
                left.push_back(Payload { event: String::new(), data });
            }
            Framing::Ndjson => left.extend(lines.rest()?.and_then(payload_of_line)),
            Framing::Sse => {
                if let Some(line) = lines.rest()? {
                    left.extend(take_field(open, has_data, line)?);
                }
                left.extend(take_field(open, has_data, "")?);
            }
        }
        Ok(left)
    }
}

/// Takes one line of an event stream; a blank line completes the event.
fn take_field(
    open: &mut Payload,
    has_data: &mut bool,
    line: &str,
) -> Result<Option<Payload>, LineError> {
    if line.is_empty() {
        let payload = std::mem::take(open);
        let whole = std::mem::take(has_data) && !is_keep_alive(&payload.data);
        return Ok(whole.then_some(payload));
    }
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.strip_prefix(' ').unwrap_or(value);
    match name {
        "data" => {
            if std::mem::replace(has_data, true) {
                open.data.push('\n');
            }
            if open.data.len() + value.len() > LINE_BYTES_MAX {
                return Err(LineError::TooLong);
            }
            open.data.push_str(value);
        }
        "event" => value.clone_into(&mut open.event),
        // llama.cpp writes its errors as a field of their own; waiting for the blank line would
        // only wait for a server that has just failed.
        "error" => {
            return Ok(Some(Payload { event: "error".to_owned(), data: value.to_owned() }));
        }
        // A comment has an empty name; `id` and `retry` mean nothing here.
        _ => {}
    }
    Ok(None)
}

fn payload_of_line(line: &str) -> Option<Payload> {
    (!is_keep_alive(line)).then(|| Payload { event: String::new(), data: line.to_owned() })
}

/// Some gateways wrap a comment into a payload, or send an empty one, to keep a connection open.
fn is_keep_alive(data: &str) -> bool {
    let data = data.trim_start();
    data.is_empty() || data.starts_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payloads(framing: Framing, bytes: &[u8], size: usize) -> Vec<(String, String)> {
        let mut frames = Frames::new(framing);
        let mut found = Vec::new();
        for mut piece in bytes.chunks(size) {
            while let Some(payload) = frames.next(&mut piece).unwrap() {
                found.push(payload);
            }
        }
        found.extend(frames.rest().unwrap());
        found.into_iter().map(|payload| (payload.event, payload.data)).collect()
    }

    #[test]
    fn events_are_taken_as_the_standard_says() {
        let table: &[(&str, &[(&str, &str)])] = &[
            ("data: a\n\n", &[("", "a")]),
            ("data:a\n\n", &[("", "a")]),
            ("data:  a\n\n", &[("", " a")]),
            ("data: a\ndata: b\n\n", &[("", "a\nb")]),
            ("data: a", &[("", "a")]),
            ("data: a\n", &[("", "a")]),
            ("event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", &[("x", "a"), ("", "b")]),
            (": comment\ndata: a\n: another\n\n", &[("", "a")]),
            ("data:\n\ndata: : ping\n\ndata\n\ndata: a\n\n", &[("", "a")]),
            ("event: ping\n\ndata: a\n\n", &[("", "a")]),
            ("id: 1\nretry: 5\ndata: a\n\n", &[("", "a")]),
            ("error: {\"code\":500}\n", &[("error", "{\"code\":500}")]),
            ("\u{feff}data: a\n\n", &[("", "a")]),
        ];
        for (stream, expected) in table {
            let expected: Vec<_> =
                expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            for size in [1, 3, 64] {
                let found = payloads(Framing::Sse, stream.as_bytes(), size);
                assert_eq!(found, expected, "{stream:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn json_lines_and_one_body() {
        let lines = payloads(Framing::Ndjson, b"{\"a\":1}\n\n{\"b\":2}", 3);
        let expected = [("", "{\"a\":1}"), ("", "{\"b\":2}")];
        assert_eq!(lines, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let body = payloads(Framing::Json, b"{\n \"a\": 1\n}", 3);
        assert_eq!(body, [(String::new(), "{\n \"a\": 1\n}".to_owned())]);
    }

    #[test]
    fn the_content_type_decides() {
        let table = [
            ("text/event-stream", Some(Framing::Sse)),
            ("Text/Event-Stream; charset=utf-8", Some(Framing::Sse)),
            ("application/x-ndjson", Some(Framing::Ndjson)),
            ("application/json; charset=utf-8", Some(Framing::Json)),
            ("text/html", None),
            ("text/plain", None),
            ("", None),
        ];
        for (content_type, expected) in table {
            assert_eq!(Framing::of_content_type(content_type), expected, "{content_type}");
        }
    }

    #[test]
    fn an_event_of_many_lines_is_bounded_too() {
        let mut frames = Frames::new(Framing::Sse);
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        let mut outcome = Ok(None);
        for _ in 0..9 {
            outcome = frames.next(&mut line.as_bytes());
        }
        assert_eq!(outcome, Err(LineError::TooLong));
    }
}
