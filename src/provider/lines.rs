//! Bytes of a socket, in whatever pieces they come, as whole lines of text.
//!
//! A line ends with LF, CR LF or CR. UTF-8 is decoded per whole line, so a character that was cut
//! between two pieces is whole again by then; nothing is ever replaced. Memory is bounded by
//! [`LINE_BYTES_MAX`], whatever the server sends.

/// The longest line that is taken. The longest honest one is a whole answer as one JSON body.
pub(super) const LINE_BYTES_MAX: usize = 4 << 20;

/// Why bytes are no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    #[error("the server sent a line of more than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("the server sent a line that is not UTF-8")]
    NotText,
}

/// Cuts bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The start of a line whose end has not come.
    pending: Vec<u8>,
    /// The line that was completed from `pending` last.
    complete: Vec<u8>,
    /// The last line ended with CR, so an LF right after it belongs to it.
    after_cr: bool,
    /// A line was given out: a byte order mark can only stand before the first one.
    started: bool,
}

impl Lines {
    /// The next whole line from the front of `input`; `None` once `input` is used up.
    pub fn next<'line, 'input: 'line>(
        &'line mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<&'line str>, LineError> {
        if self.after_cr && !input.is_empty() {
            self.after_cr = false;
            *input = input.strip_prefix(b"\n").unwrap_or(input);
        }
        let end = input.iter().position(|&byte| byte == b'\n' || byte == b'\r');
        let piece: &'input [u8] = &input[..end.unwrap_or(input.len())];
        if self.pending.len() + piece.len() > LINE_BYTES_MAX {
            return Err(LineError::TooLong);
        }
        let Some(end) = end else {
            self.pending.extend_from_slice(piece);
            *input = &[];
            return Ok(None);
        };
        self.after_cr = input[end] == b'\r';
        *input = &input[end + 1..];
        if self.pending.is_empty() {
            return self.text_of(piece).map(Some);
        }
        self.pending.extend_from_slice(piece);
        self.take_pending().map(Some)
    }

    /// What came after the last line end, when the server has closed.
    pub fn rest(&mut self) -> Result<Option<&str>, LineError> {
        if self.pending.is_empty() {
            return Ok(None);
        }
        self.take_pending().map(Some)
    }

    fn take_pending(&mut self) -> Result<&str, LineError> {
        self.complete.clear();
        std::mem::swap(&mut self.complete, &mut self.pending);
        let first = !std::mem::replace(&mut self.started, true);
        decode(&self.complete, first)
    }

    fn text_of<'a>(&mut self, line: &'a [u8]) -> Result<&'a str, LineError> {
        let first = !std::mem::replace(&mut self.started, true);
        decode(line, first)
    }
}

fn decode(line: &[u8], first: bool) -> Result<&str, LineError> {
    let text = str::from_utf8(line).map_err(|_| LineError::NotText)?;
    Ok(if first { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line of `bytes` when they come in pieces of `size`, the unfinished one last.
    fn lines(bytes: &[u8], size: usize) -> Result<Vec<String>, LineError> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for mut piece in bytes.chunks(size) {
            while let Some(line) = lines.next(&mut piece)? {
                found.push(line.to_owned());
            }
        }
        found.extend(lines.rest()?.map(str::to_owned));
        Ok(found)
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_are_cut() {
        let table: &[(&[u8], &[&str])] = &[
            (b"", &[]),
            (b"a\nb\n", &["a", "b"]),
            (b"a\r\nb\r\n", &["a", "b"]),
            (b"a\rb\r", &["a", "b"]),
            (b"a\n\nb", &["a", "", "b"]),
            (b"a\r\n\r\nb", &["a", "", "b"]),
            (b"a\r\rb", &["a", "", "b"]),
            (b"a\n\rb", &["a", "", "b"]),
            ("\u{feff}a\n\u{feff}b".as_bytes(), &["a", "\u{feff}b"]),
            ("那个 🙂\né".as_bytes(), &["那个 🙂", "é"]),
        ];
        for (bytes, expected) in table {
            for size in [1, 2, 3, 5, 7, 64] {
                let found = lines(bytes, size).unwrap();
                assert_eq!(&found, expected, "{bytes:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn what_is_not_utf8_is_an_error_and_never_replaced() {
        assert_eq!(lines(b"a\n\xff\xfe\n", 64), Err(LineError::NotText));
        assert_eq!(lines(b"caf\xc3", 64), Err(LineError::NotText));
    }

    #[test]
    fn a_line_without_end_is_given_up_at_the_limit() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..LINE_BYTES_MAX / piece.len() {
            assert_eq!(lines.next(&mut piece.as_slice()), Ok(None));
        }
        assert_eq!(lines.next(&mut b"x".as_slice()), Err(LineError::TooLong));
        assert!(lines.pending.capacity() <= 2 * LINE_BYTES_MAX, "memory stays bounded");
    }
}
