//! `edit {path, old, new}`: one place of a file.

use std::io::Read as _;

use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::FileTool;
use super::tool::Refusal;
use super::workspace::Workspace;

/// The largest file that can be edited: it is held in memory.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// A file, relative to the workspace.
    path: String,
    /// The text to replace; it must occur exactly once.
    old: String,
    /// The text to put there.
    new: String,
}

/// Replaces one piece of a file.
pub(super) const TOOL: FileTool<Parameters> =
    FileTool { name: "edit", description: "Replace one piece of text in a file.", act: edit };

fn edit(files: &Workspace, parameters: &Parameters) -> Result<String, Refusal> {
    let Parameters { path, old, new } = parameters;
    let file = files.open_file(path)?;
    let mut before = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut before)
        .map_err(|error| Refusal::Failed(format!("`{path}`: {error}")))?;
    if before.len() as u64 > FILE_BYTES_MAX {
        return Err(Refusal::Failed(format!("`{path}` is larger than {FILE_BYTES_MAX} bytes")));
    }
    let at = only_place(&before, old)
        .map_err(|problem| Refusal::Failed(format!("`{path}` is unchanged: {problem}")))?;
    let after = [&before[..at], new, &before[at + old.len()..]].concat();
    files.replace(path, after.as_bytes())?;
    let line = before[..at].matches('\n').count() + 1;
    Ok(format!("replaced the text at line {line} of `{path}`"))
}

fn only_place(text: &str, old: &str) -> Result<usize, &'static str> {
    let step = old.chars().next().ok_or("`old` is empty")?.len_utf8();
    let at = text.find(old).ok_or("`old` does not occur in it")?;
    match text[at + step..].find(old) {
        None => Ok(at),
        Some(_) => Err("`old` occurs more than once; give more of the text around it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_must_be_the_only_one_even_where_two_overlap() {
        assert_eq!(only_place("a€b", "€b"), Ok(1));
        assert_eq!(only_place("abc", "x"), Err("`old` does not occur in it"));
        assert_eq!(only_place("abc", ""), Err("`old` is empty"));
        assert!(only_place("aaa", "aa").is_err());
        assert!(only_place("€€€", "€€").is_err());
        assert!(only_place("one two one", "one").is_err());
    }
}
