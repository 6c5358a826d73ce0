//! What a server writes, before the client library reads it.
//!
//! Only whole lines that may be messages are handed on. The library answers other JSON with an
//! error, and a server that logs to its standard output would log that too, without end. And it
//! drops a message that is too long without a word: whoever waits for it would wait for the whole
//! limit of the call. Here an answer that says so takes its place, as far as can be told which call
//! it answers; nothing of it is kept but its two ends.

use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use regex::bytes::Regex;
use serde_json::json;
use tokio::io::{AsyncRead, ReadBuf};

/// The longest message that is read. What a model is given is cut far below that, but a picture may
/// stand in it.
pub(super) const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// How much of the beginning and of the end of a message is looked at.
const END_BYTES: usize = 256;

/// Reads for the library.
pub(super) struct Capped<R> {
    inner: R,
    chunk: Vec<u8>,
    /// Whole lines, as far as they are not handed on yet.
    lines: Vec<u8>,
    handed: usize,
    line: Line,
}

/// The line that is being read.
#[derive(Default)]
struct Line {
    bytes_total: usize,
    /// All of it, or its beginning once it is too long.
    kept: Vec<u8>,
    /// Its end, once it is too long.
    tail: Vec<u8>,
}

impl<R> Capped<R> {
    pub fn new(inner: R) -> Self {
        let (chunk, lines, line) = (vec![0; CHUNK_BYTES], Vec::new(), Line::default());
        Self { inner, chunk, lines, handed: 0, line }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Capped<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.handed == this.lines.len() {
            this.lines.clear();
            this.handed = 0;
            let mut read = ReadBuf::new(&mut this.chunk);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut read))?;
            let read = read.filled();
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.line.follow(read, &mut this.lines);
        }
        let left = &this.lines[this.handed..];
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        this.handed += count;
        Poll::Ready(Ok(()))
    }
}

impl Line {
    /// Puts what ends in `bytes` into `lines`.
    fn follow(&mut self, bytes: &[u8], lines: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                None => self.add(piece),
                Some(end) => {
                    self.add(end);
                    std::mem::take(self).put(lines);
                }
            }
        }
    }

    fn is_too_long(&self) -> bool {
        self.bytes_total >= MESSAGE_BYTES_MAX
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes_total += bytes.len();
        if !self.is_too_long() {
            self.kept.extend_from_slice(bytes);
            return;
        }
        if self.kept.len() > END_BYTES {
            self.tail = self.kept.split_off(self.kept.len() - END_BYTES);
            self.kept.truncate(END_BYTES);
            self.kept.shrink_to_fit();
        }
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(END_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(END_BYTES));
    }

    fn put(self, lines: &mut Vec<u8>) {
        if self.is_too_long() {
            lines.extend(self.answer().unwrap_or_default());
        } else if self.may_be_a_message() {
            lines.extend_from_slice(&self.kept);
            lines.push(b'\n');
        }
    }

    /// Servers write the version first or last.
    fn may_be_a_message(&self) -> bool {
        const VERSION: &[u8] = b"\"jsonrpc\"";
        let is_there = |part: &[u8]| part.windows(VERSION.len()).any(|it| it == VERSION);
        let (head, tail) =
            (self.kept.len().min(END_BYTES), self.kept.len().saturating_sub(END_BYTES));
        is_there(&self.kept[..head]) || is_there(&self.kept[tail..])
    }

    fn answer(&self) -> Option<Vec<u8>> {
        let message = format!(
            "the result is larger than {} MiB and was not read",
            MESSAGE_BYTES_MAX / (1024 * 1024)
        );
        let error = json!({"code": -32_000, "message": message});
        let answer = json!({"jsonrpc": "2.0", "id": self.call()?, "error": error});
        Some(format!("{answer}\n").into_bytes())
    }

    /// Which call it answers: servers write the id first or last.
    fn call(&self) -> Option<u64> {
        static FIRST: LazyLock<Regex> = LazyLock::new(|| {
            pattern(r#"^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)"#)
        });
        static LAST: LazyLock<Regex> = LazyLock::new(|| {
            pattern(r#""id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$"#)
        });
        let found = FIRST.captures(&self.kept).or_else(|| LAST.captures(&self.tail))?;
        str::from_utf8(&found[1]).ok()?.parse().ok()
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn read(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Capped::new(bytes).read_to_end(&mut out).await.unwrap();
        out
    }

    #[tokio::test]
    async fn messages_pass_as_they_are_and_everything_else_does_not() {
        let first = "{\"jsonrpc\":\"2.0\",\"id\":1}\n";
        let last = format!("{{\"result\":\"{}\",\"jsonrpc\":\"2.0\"}}\r\n", "y".repeat(1000));
        let noise = "npm warn\n\n[1]\n{\"level\":\"info\"}\n";
        let all = format!("{noise}{first}{noise}{last}{noise}").repeat(2000);
        // What is not ended by a line's end is none.
        let read = read(format!("{all}{}", first.trim_end()).as_bytes()).await;
        assert!(read == format!("{first}{last}").repeat(2000).as_bytes());
    }

    #[tokio::test]
    async fn an_answer_takes_the_place_of_what_is_too_long() {
        let filler = "x".repeat(MESSAGE_BYTES_MAX);
        let next = "{\"jsonrpc\":\"2.0\"}\n";
        let table = [
            (format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{filler}\"}}"), Some(7)),
            (
                format!(
                    "{{\"result\":{{\"id\":5,\"a\":\"{filler}\"}},\"jsonrpc\":\"2.0\",\"id\":8}}"
                ),
                Some(8),
            ),
            (format!("{{\"result\":\"{filler}\",\"id\":9,\"jsonrpc\":\"2.0\"}}"), Some(9)),
            (format!("{{\"method\":\"x\",\"a\":\"{filler}\",\"b\":{{\"id\":5}}}}"), None),
            (filler, None),
        ];
        for (line, call) in table {
            let out = read(format!("{line}\n{next}").as_bytes()).await;
            let answer = out.strip_suffix(next.as_bytes()).unwrap();
            let Some(call) = call else {
                assert_eq!(answer, b"");
                continue;
            };
            let answer: serde_json::Value = serde_json::from_slice(answer).unwrap();
            assert_eq!(answer["id"], call);
            let words = "the result is larger than 8 MiB and was not read";
            assert_eq!(answer["error"]["message"], words);
        }
    }
}
