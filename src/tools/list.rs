//! `list {path}`: what is in a folder.

use cap_std::fs::DirEntry;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::FileTool;
use super::tool::Refusal;
use super::workspace::Workspace;

/// How many entries are shown.
const SHOWN_MAX: usize = 1000;

/// How many are looked at: they are sorted in memory.
const SEEN_MAX: usize = 100_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// A folder, relative to the workspace; `.` is the workspace itself.
    path: String,
}

/// Lists a folder.
pub(super) const TOOL: FileTool<Parameters> = FileTool {
    name: "list",
    description: "List a folder: folders end with `/`, links with `@`, files have a size.",
    act: list,
};

fn list(files: &Workspace, Parameters { path }: &Parameters) -> Result<String, Refusal> {
    let entries = files.read_dir(path)?.take(SEEN_MAX);
    let mut lines: Vec<String> = entries.flatten().map(|entry| line(&entry)).collect();
    if lines.is_empty() {
        return Ok("the folder is empty".to_owned());
    }
    lines.sort();
    let more = lines.len().saturating_sub(SHOWN_MAX);
    lines.truncate(SHOWN_MAX);
    if more > 0 {
        lines.push(format!("[… {more} more …]"));
    }
    Ok(lines.join("\n"))
}

fn line(entry: &DirEntry) -> String {
    // A name may hold a line end, which would look like two entries.
    let name = entry.file_name().to_string_lossy().replace(char::is_control, "\u{FFFD}");
    match entry.metadata() {
        Ok(kind) if kind.is_dir() => format!("{name}/"),
        Ok(kind) if kind.is_symlink() => format!("{name}@"),
        Ok(kind) if kind.is_file() => format!("{name} ({} bytes)", kind.len()),
        Ok(_) | Err(_) => format!("{name} (neither file nor folder)"),
    }
}
