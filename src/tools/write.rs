//! `write {path, content}`: a whole file, or nothing.

use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::FileTool;
use super::tool::Refusal;
use super::workspace::Workspace;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// A file, relative to the workspace; its folders are made.
    path: String,
    /// The whole new content.
    content: String,
}

/// Writes a file.
pub(super) const TOOL: FileTool<Parameters> = FileTool {
    name: "write",
    description: "Create a file or replace its whole content.",
    act: write,
};

fn write(files: &Workspace, parameters: &Parameters) -> Result<String, Refusal> {
    let Parameters { path, content } = parameters;
    files.replace(path, content.as_bytes())?;
    Ok(format!("wrote {} bytes to `{path}`", content.len()))
}
