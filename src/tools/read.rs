//! `read {path, offset?, limit?}`: lines of a file.

use std::io::{self, BufRead, BufReader};

use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::FileTool;
use super::tool::Refusal;
use super::workspace::Workspace;

/// The most that one call gives.
const PAGE_BYTES_MAX: usize = 64 * 1024;

/// How far into a file the lines are counted.
const SCAN_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// A file, relative to the workspace.
    path: String,
    /// The first line to read; 1 is the start of the file.
    offset: Option<u64>,
    /// How many lines to read at most.
    limit: Option<u64>,
}

/// Reads a text file.
pub(super) const TOOL: FileTool<Parameters> =
    FileTool { name: "read", description: "Read a text file, or some of its lines.", act: read };

fn read(files: &Workspace, parameters: &Parameters) -> Result<String, Refusal> {
    let path = &parameters.path;
    let failed = |error: io::Error| Refusal::Failed(format!("`{path}`: {error}"));
    let file = files.open_file(path)?;
    let size = file.metadata().map_err(failed)?.len();
    let first = parameters.offset.unwrap_or(1).max(1);
    let reader = BufReader::new(io::Read::take(file, SCAN_BYTES_MAX));
    let page = page(reader, first, parameters.limit.unwrap_or(u64::MAX)).map_err(failed)?;
    if page.bytes.contains(&0) {
        return Err(Refusal::Failed(format!("`{path}` is not text: {size} bytes of binary data")));
    }
    if page.bytes.is_empty() && first > 1 {
        let lines = page.next - 1;
        return Err(Refusal::Failed(format!(
            "`{path}` has no line {first}: {lines} lines were read"
        )));
    }
    let text = String::from_utf8_lossy(&page.bytes);
    Ok(match page.rest {
        Rest::Nothing => text.into_owned(),
        Rest::Lines => format!("{text}\n[… more; read on with offset {} …]", page.next),
        Rest::InLine => format!("{text}\n[… line {} is longer than can be shown …]", page.next),
    })
}

/// Some lines of a file.
#[derive(Debug, PartialEq)]
struct Page {
    bytes: Vec<u8>,
    /// The number of the first line that was not read to its end.
    next: u64,
    rest: Rest,
}

/// What follows a page.
#[derive(Debug, PartialEq)]
enum Rest {
    Nothing,
    Lines,
    /// The page is full in the middle of its only line.
    InLine,
}

/// Reads the lines from `first` on, in bounded memory even where a line is longer than that.
fn page(mut reader: impl BufRead, first: u64, limit: u64) -> io::Result<Page> {
    let end = first.saturating_add(limit);
    let mut page = Page { bytes: Vec::new(), next: 1, rest: Rest::Nothing };
    let mut line_starts_at = 0;
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok(page);
        }
        if page.next >= end {
            page.rest = Rest::Lines;
            return Ok(page);
        }
        let line_end = chunk.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let piece = &chunk[..line_end.unwrap_or(chunk.len())];
        if page.next >= first {
            let room = PAGE_BYTES_MAX - page.bytes.len();
            if piece.len() > room {
                if line_starts_at == 0 {
                    page.bytes.extend_from_slice(&piece[..room]);
                    page.rest = Rest::InLine;
                } else {
                    page.bytes.truncate(line_starts_at);
                    page.rest = Rest::Lines;
                }
                return Ok(page);
            }
            page.bytes.extend_from_slice(piece);
        }
        let read = piece.len();
        reader.consume(read);
        if line_end.is_some() {
            page.next += 1;
            line_starts_at = page.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8], first: u64, limit: u64) -> (String, u64, Rest) {
        // A small buffer, so that lines are cut in many places.
        let page = page(BufReader::with_capacity(3, text), first, limit).unwrap();
        (String::from_utf8(page.bytes).unwrap(), page.next, page.rest)
    }

    #[test]
    fn pages_begin_and_end_at_lines() {
        let text = b"one\ntwo\nthree\nfour";
        for (first, limit, want) in [
            (1, u64::MAX, ("one\ntwo\nthree\nfour", 4, Rest::Nothing)),
            (2, 2, ("two\nthree\n", 4, Rest::Lines)),
            (4, 9, ("four", 4, Rest::Nothing)),
            (1, 0, ("", 1, Rest::Lines)),
            (9, 1, ("", 4, Rest::Nothing)),
        ] {
            let (text, next, rest) = of(text, first, limit);
            assert_eq!((text.as_str(), next, rest), want, "from {first}, {limit} lines");
        }
    }

    #[test]
    fn a_full_page_ends_before_the_line_that_does_not_fit() {
        let line = "x".repeat(40_000) + "\n";
        let text = line.repeat(3);
        assert_eq!(of(text.as_bytes(), 1, 9), (line.clone(), 2, Rest::Lines));
        let long = "y".repeat(PAGE_BYTES_MAX + 1);
        let cut = "y".repeat(PAGE_BYTES_MAX);
        assert_eq!(of(long.as_bytes(), 1, 9), (cut, 1, Rest::InLine));
    }
}
