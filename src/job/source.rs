//! A file's text, and the way from a byte in it to a place that people find.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::problem::{Problem, Severity};

/// A file that was read, shared by everything that came out of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn new(path: &Path, text: &str) -> Arc<Self> {
        Arc::new(Self { path: path.to_owned(), text: text.to_owned() })
    }

    /// What paths in this file are relative to.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// An error about the bytes in `span`.
    pub(crate) fn error(
        &self,
        span: Range<usize>,
        key: impl Into<Option<String>>,
        message: impl Into<String>,
    ) -> Problem {
        let (line, column) = place(&self.text, span.start);
        Problem {
            severity: Severity::Error,
            file: self.path.clone(),
            line,
            column,
            key: key.into(),
            message: message.into(),
            help: None,
            span,
        }
    }

    /// Where the content of the string literal at `span` begins, when its bytes are the content
    /// as it stands: no escapes, so that an offset in the value is an offset in the file.
    pub(crate) fn content_start(&self, span: &Range<usize>, content: &str) -> Option<usize> {
        let literal = self.text.get(span.clone())?;
        ["\"\"\"\r\n", "\"\"\"\n", "'''\r\n", "'''\n", "\"\"\"", "'''", "\"", "'"]
            .into_iter()
            .filter(|quote| literal.starts_with(quote))
            .find(|quote| literal[quote.len()..].starts_with(content))
            .map(|quote| span.start + quote.len())
    }
}

/// Line and column of a byte, both from 1, the column in characters.
fn place(text: &str, byte: usize) -> (usize, usize) {
    let mut end = byte.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a\näöü = 1\n";
        for (byte, expected) in
            [(0, (1, 1)), (1, (1, 2)), (2, (2, 1)), (4, (2, 2)), (5, (2, 2)), (99, (3, 1))]
        {
            assert_eq!(place(text, byte), expected, "byte {byte}");
        }
    }

    #[test]
    fn content_starts_after_the_quotes_unless_something_is_escaped() {
        for (literal, content, expected) in [
            ("\"a b\"", "a b", Some(1)),
            ("'a b'", "a b", Some(1)),
            ("\"\"\"\na\"\"\"", "a", Some(4)),
            ("\"\"\"a\"\"\"", "a", Some(3)),
            ("\"\\u0061\"", "a", None),
        ] {
            let source = Source::new(Path::new("x"), literal);
            assert_eq!(source.content_start(&(0..literal.len()), content), expected, "{literal}");
        }
    }
}
