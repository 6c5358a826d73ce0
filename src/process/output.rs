//! What a command printed: head and tail in bounded memory, however much there is.
//!
//! A command's end and the end of its output are two things: a grandchild may hold the pipe for
//! hours. So a reader of its own keeps draining the pipe, which never blocks the command, and
//! whoever waits takes a copy of what there is once the command is gone and the pipe is quiet.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::time::timeout;

/// How much is read at once; the size of a pipe.
const CHUNK_BYTES: usize = 64 * 1024;

/// How many chunks may be read before others get their turn.
const CHUNKS_AT_ONCE: usize = 8;

/// A pipe that said nothing for this long, after the command's end, has said all that counts.
const QUIET: Duration = Duration::from_millis(100);

/// The longest wait for that; a grandchild may never be quiet.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// Standard output and standard error of a command, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The text: all of it, or its head and its tail around a marker. Invalid UTF-8 and control
    /// characters other than line ends and tabs are replaced by `U+FFFD`.
    pub text: String,
    /// How many bytes were printed.
    pub bytes_total: u64,
    /// Whether the text is not all of it.
    pub truncated: bool,
}

/// The head and the tail of a stream of bytes.
#[derive(Debug)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half_max: usize,
    total: u64,
}

impl Kept {
    fn new(bytes_max: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half_max: bytes_max / 2, total: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (to_head, rest) = bytes.split_at(bytes.len().min(self.half_max - self.head.len()));
        self.head.extend_from_slice(to_head);
        let rest = &rest[rest.len().saturating_sub(self.half_max)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.half_max);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    fn output(&self) -> Output {
        let bytes_total = self.total;
        let kept = (self.head.len() + self.tail.len()) as u64;
        let mut tail: Vec<u8> = self.tail.iter().copied().collect();
        if kept == bytes_total {
            let whole = [self.head.as_slice(), &tail].concat();
            let text = printable(&whole);
            let truncated = text.len() > self.half_max.saturating_mul(2);
            let text = if truncated { self.cut(&text, &text, 0) } else { text };
            return Output { text, bytes_total, truncated };
        }
        // Do not show half a character on either side of the gap.
        let whole_characters = self.head.utf8_chunks().last().map_or(0, |last| {
            let is_cut = !last.invalid().is_empty() && last.invalid().len() < 4;
            if is_cut { last.invalid().len() } else { 0 }
        });
        let head = &self.head[..self.head.len() - whole_characters];
        let halves = tail.iter().take(3).take_while(|&&byte| byte & 0xC0 == 0x80).count();
        tail.drain(..halves);
        let omitted = bytes_total - (head.len() + tail.len()) as u64;
        let text = self.cut(&printable(head), &printable(&tail), omitted);
        Output { text, bytes_total, truncated: true }
    }

    /// Head and tail around the marker, each cut to its half: a replaced byte takes three.
    fn cut(&self, head: &str, tail: &str, omitted: u64) -> String {
        let mut head_end = head.len().min(self.half_max);
        while !head.is_char_boundary(head_end) {
            head_end -= 1;
        }
        let mut tail_start = tail.len().saturating_sub(self.half_max);
        while !tail.is_char_boundary(tail_start) {
            tail_start += 1;
        }
        let (shown_head, shown_tail) = (&head[..head_end], &tail[tail_start..]);
        let marker = if omitted > 0 {
            format!("[… {omitted} bytes omitted …]")
        } else {
            "[… some characters omitted …]".to_owned()
        };
        format!("{shown_head}\n{marker}\n{shown_tail}")
    }
}

fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() && !matches!(c, '\n' | '\t' | '\r') { '\u{FFFD}' } else { c })
        .collect()
}

/// The reading end of a command's pipe and what came out of it.
#[derive(Debug)]
pub(super) struct Drain {
    pipe: Receiver,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    kept: Kept,
    chunk: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Read {
    Some,
    NothingNow,
    Closed,
}

/// A copy for whoever waits. The reader goes on without it.
#[derive(Debug)]
pub(super) struct Collected {
    drain: Arc<Drain>,
    progress: watch::Receiver<u64>,
}

/// What a command prints.
#[derive(Debug)]
pub(super) struct Pipes {
    /// Nothing of a command that somebody talks with.
    pub(super) output: Option<Collected>,
    /// Where its standard error comes apart.
    pub(super) errors: Option<Collected>,
}

impl Collected {
    /// Drains `pipe` from now until its end.
    pub fn from(pipe: OwnedFd, bytes_max: usize) -> io::Result<Self> {
        let kept = Kept::new(bytes_max);
        let inner = Mutex::new(Inner { kept, chunk: vec![0; CHUNK_BYTES] });
        let drain = Arc::new(Drain { pipe: Receiver::from_owned_fd(pipe)?, inner });
        let (said, progress) = watch::channel(0);
        tokio::spawn(until_closed(Arc::clone(&drain), said));
        Ok(Self { drain, progress })
    }

    /// Returns when the pipe is closed, or quiet, or has not been quiet for long enough.
    pub async fn settle(&self) {
        let mut progress = self.progress.clone();
        let quiet = async {
            // The sender is dropped with the pipe's end.
            while let Ok(Ok(())) = timeout(QUIET, progress.changed()).await {}
        };
        // Both ways of ending are fine; what counts is that it ends.
        let _ = timeout(DRAIN_MAX, quiet).await;
        // On a busy machine the reader may not have had its turn.
        for _ in 0..CHUNKS_AT_ONCE {
            if self.drain.read_once() != Read::Some {
                break;
            }
        }
    }

    /// What there is so far.
    pub fn output(&self) -> Output {
        self.drain.lock().kept.output()
    }
}

impl Drain {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock can panic")
    }

    /// Reads inside the lock, so that two readers cannot swap two chunks.
    fn read_once(&self) -> Read {
        let mut inner = self.lock();
        let Inner { kept, chunk } = &mut *inner;
        match self.pipe.try_read(chunk) {
            Ok(0) => Read::Closed,
            Ok(count) => {
                kept.push(&chunk[..count]);
                Read::Some
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Read::NothingNow,
            Err(error) if error.kind() == ErrorKind::Interrupted => Read::Some,
            Err(_) => Read::Closed,
        }
    }
}

async fn until_closed(drain: Arc<Drain>, said: watch::Sender<u64>) {
    while drain.pipe.readable().await.is_ok() {
        for _ in 0..CHUNKS_AT_ONCE {
            match drain.read_once() {
                Read::Some => said.send_modify(|chunks| *chunks += 1),
                Read::NothingNow => break,
                Read::Closed => return,
            }
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes_max: usize, chunks: &[&[u8]]) -> Output {
        let mut kept = Kept::new(bytes_max);
        for chunk in chunks {
            kept.push(chunk);
        }
        kept.output()
    }

    fn whole(text: &str, bytes_total: u64) -> Output {
        Output { text: text.into(), bytes_total, truncated: false }
    }

    #[test]
    fn what_fits_is_kept_as_it_came() {
        assert_eq!(kept(8, &[]), whole("", 0));
        assert_eq!(kept(8, &[b"abc", b"", b"defgh"]), whole("abcdefgh", 8));
        let euro = "a€b".as_bytes();
        assert_eq!(kept(6, &[&euro[..2], &euro[2..]]), whole("a€b", 5));
    }

    #[test]
    fn what_does_not_fit_loses_its_middle_however_it_is_cut() {
        let text = "abcd\n[… 3 bytes omitted …]\nhijk".to_owned();
        let want = Output { text, bytes_total: 11, truncated: true };
        assert_eq!(kept(8, &[b"abcdefghijk"]), want);
        for at in 0..=11 {
            let (first, second) = b"abcdefghijk".split_at(at);
            assert_eq!(kept(8, &[first, second]), want, "cut at {at}");
        }
        let single: Vec<_> = b"abcdefghijk".chunks(1).collect();
        assert_eq!(kept(8, &single), want);
    }

    #[test]
    fn half_a_character_at_the_gap_is_not_shown() {
        let got = kept(8, &["ab€cdefgh€ij".as_bytes()]);
        assert_eq!(got.text, "ab\n[… 12 bytes omitted …]\nij");
        assert_eq!(got.bytes_total, 16);
    }

    #[test]
    fn bytes_that_are_no_text_are_stored_safely_and_within_the_limit() {
        assert_eq!(
            kept(32, &[b"a\xFFb\0c\x1B[1m\r\n\t"]).text,
            "a\u{FFFD}b\u{FFFD}c\u{FFFD}[1m\r\n\t"
        );
        let zeros = kept(64, &[&[0; 64]]);
        assert!(zeros.truncated);
        assert!(zeros.text.len() < 64 + 48, "{}", zeros.text.len());
    }

    #[test]
    fn a_flood_costs_no_more_than_the_limit() {
        let mut kept = Kept::new(1000);
        let chunk = vec![b'y'; CHUNK_BYTES];
        for _ in 0..1000 {
            kept.push(&chunk);
        }
        assert_eq!(kept.total, 65_536_000);
        assert!(kept.tail.capacity() <= 2048 && kept.head.capacity() <= 2048);
    }
}
