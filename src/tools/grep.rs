//! `grep {pattern, path?}`: lines that match.

use std::io::Read as _;
use std::path::Path;

use ignore::WalkBuilder;
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::FileTool;
use super::tool::Refusal;
use super::workspace::Workspace;

/// How many lines are shown.
const MATCHES_MAX: usize = 200;

/// How much of a line is shown.
const LINE_CHARS_MAX: usize = 300;

/// Larger files are left out.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// How much is read in all, and in how many files.
const READ_BYTES_MAX: u64 = 256 * 1024 * 1024;
const FILES_MAX: usize = 50_000;

/// How large a compiled pattern may be.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// A regular expression, matched line by line.
    pattern: String,
    /// A file or folder, relative to the workspace; all of it by default.
    path: Option<String>,
}

/// Searches files.
pub(super) const TOOL: FileTool<Parameters> = FileTool {
    name: "grep",
    description: "Search text files for lines that match. Hidden and ignored files are left out.",
    act: grep,
};

fn grep(files: &Workspace, parameters: &Parameters) -> Result<String, Refusal> {
    let pattern = RegexBuilder::new(&parameters.pattern)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| Refusal::Failed(format!("the pattern is wrong: {error}")))?;
    let start = files.resolve(parameters.path.as_deref().unwrap_or("."))?;
    let mut found = Found::default();
    for path in walk(files, &start) {
        let full = !found.search(files, &path, &pattern);
        if full {
            found.lines.push("[… more was not searched …]".to_owned());
            break;
        }
    }
    if found.lines.is_empty() { Ok("no matches".to_owned()) } else { Ok(found.lines.join("\n")) }
}

/// The files below `start`, relative to the workspace. Links are not followed, and only what is
/// inside the workspace says what is ignored.
fn walk<'a>(files: &'a Workspace, start: &Path) -> impl Iterator<Item = String> + use<'a> {
    WalkBuilder::new(files.path().join(start))
        .follow_links(false)
        .parents(false)
        .git_global(false)
        .require_git(false)
        .max_filesize(Some(FILE_BYTES_MAX))
        .sort_by_file_path(Path::cmp)
        .build()
        .flatten()
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
        .filter_map(|entry| {
            let relative = entry.path().strip_prefix(files.path()).ok()?;
            relative.to_str().map(str::to_owned)
        })
}

#[derive(Default)]
struct Found {
    lines: Vec<String>,
    bytes_read: u64,
    files_read: usize,
}

impl Found {
    /// Searches one file; `false` means that a limit is reached.
    fn search(&mut self, files: &Workspace, path: &str, pattern: &Regex) -> bool {
        self.files_read += 1;
        let mut content = Vec::new();
        // A file that went away or cannot be read is no reason not to search the others.
        let Ok(file) = files.open_file(path) else { return true };
        if file.take(FILE_BYTES_MAX).read_to_end(&mut content).is_err() {
            return true;
        }
        self.bytes_read += content.len() as u64;
        if self.bytes_read > READ_BYTES_MAX || self.files_read > FILES_MAX {
            return false;
        }
        if content.contains(&0) {
            return true;
        }
        for (number, line) in content.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !pattern.is_match(line) {
                continue;
            }
            if self.lines.len() >= MATCHES_MAX {
                return false;
            }
            self.lines.push(format!("{path}:{}: {}", number + 1, shown(line)));
        }
        true
    }
}

fn shown(line: &[u8]) -> String {
    // Four bytes is the longest character: this much is enough and spares a long line's rest.
    let start = &line[..line.len().min(LINE_CHARS_MAX * 4)];
    let text = String::from_utf8_lossy(start);
    let mut shown: String = text.chars().take(LINE_CHARS_MAX).collect();
    if shown.len() < line.len() && text.chars().nth(LINE_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}
