//! `edit {path, old, new}`: one place of a file.

use std::io::Read as _;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::parameters::{definition, parse};
use super::tool::{Arguments, Refusal, Tool, ToolContext, ToolOutcome, on_files};
use super::workspace::Workspace;
use crate::provider::ToolDefinition;

/// The largest file that can be edited: it is held in memory.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Replaces one piece of a file.
pub(super) struct Edit;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// A file, relative to the workspace.
    path: String,
    /// The text to replace; it must occur exactly once.
    old: String,
    /// The text to put there.
    new: String,
}

impl Tool for Edit {
    fn definition(&self) -> ToolDefinition {
        definition::<Parameters>("edit", "Replace one piece of text in a file.")
    }

    fn call<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        async move {
            match parse::<Parameters>("edit", arguments) {
                Ok(parameters) => on_files(context, move |files| edit(files, &parameters)).await,
                Err(refusal) => refusal.into(),
            }
        }
        .boxed()
    }
}

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
