//! `[command]` and `[gate]`: what runs without a model, and the folder in which a job works.

use std::path::PathBuf;
use std::time::Duration;

use super::parse::{Part, Reader, has_refused};
use super::spec::{CommandSpec, GateOutput, GateSpec, RunIf, Workdir};
use super::tree::{Item, Node};

/// `gate.timeout`, unless it is written.
const GATE_TIMEOUT: Duration = Duration::from_secs(30);

/// `[command]`, if the job has one that can be used.
pub(super) fn command(reader: &mut Reader<'_>) -> Option<CommandSpec> {
    reader.node.get("command").and_then(Node::table)?;
    let is_own = |path: &str| {
        reader.node.entry(path).is_some_and(|entry| entry.key_source == reader.node.source)
    };
    if is_own("agent") {
        let help = "keep [agent] or [command]".to_owned();
        reader.refuse("agent", "a job is a model turn or a command, not both", help);
    }
    let argv = argv(reader, "command.argv");
    let ok_exit = ok_exit(reader);
    Some(CommandSpec { argv: argv?, ok_exit: ok_exit? })
}

fn ok_exit(reader: &mut Reader<'_>) -> Option<Vec<i32>> {
    let key = "command.ok_exit";
    let Some(node) = reader.node.get(key) else { return Some(vec![0]) };
    let code = |node: &Node| match node.item {
        Item::Integer(code) => i32::try_from(code).ok().filter(|code| (0..=255).contains(code)),
        _ => None,
    };
    let codes: Option<Vec<_>> = match &node.item {
        Item::List(list) => list.iter().map(code).collect(),
        _ => None,
    };
    let codes = codes.filter(|codes| !codes.is_empty());
    if codes.is_none() {
        let help = "write [0] or [0, 3]".to_owned();
        reader.refuse(key, "expected a list of exit codes from 0 to 255", help);
    }
    codes
}

/// `[gate]`, if the job has one that can be used.
pub(super) fn gate(reader: &mut Reader<'_>) -> Option<GateSpec> {
    let node = reader.node;
    node.get("gate").and_then(Node::table)?;
    let run_if = node.text("gate.run_if").and_then(|word| word.parse().ok());
    let output = match node.bool("gate.pass_output") {
        Some(false) => GateOutput::Kept,
        Some(true) | None => GateOutput::Passed,
    };
    let timeout = node.duration("gate.timeout").unwrap_or(GATE_TIMEOUT);
    if timeout > reader.around.setup_timeout && reader.part == Part::Job {
        let (mine, whole) = (shown(timeout), shown(reader.around.setup_timeout));
        let message =
            format!("a gate of {mine} is cut by `scheduler.setup_timeout`, which is {whole}");
        reader.warn("gate.timeout", message);
    }
    let argv = argv(reader, "gate.command")?;
    Some(GateSpec { argv, run_if: run_if.unwrap_or(RunIf::ExitZero), output, timeout })
}

fn shown(length: Duration) -> String {
    humantime::format_duration(length).to_string()
}

fn argv(reader: &mut Reader<'_>, path: &str) -> Option<Vec<String>> {
    let Some(node) = reader.node.get(path) else {
        let (table, key) = path.split_once('.').unwrap_or(("", path));
        let is_told = reader.node.get(table).and_then(Node::table).is_some_and(has_refused);
        if reader.part == Part::Job && !is_told {
            reader.refuse(path, format!("[{table}] names no `{key}`"), None);
        }
        return None;
    };
    match argv_of(node)? {
        Ok(argv) => Some(argv),
        Err(message) => {
            reader.refuse(path, message, None);
            None
        }
    }
}

/// A command as a list of words; `None` if what is wrong with it has been reported. A program with
/// a slash in it is relative to the file that names it.
pub(crate) fn argv_of(node: &Node) -> Option<Result<Vec<String>, String>> {
    let Item::List(list) = &node.item else { return None };
    let mut argv: Vec<String> = list.iter().filter_map(Node::as_text).map(str::to_owned).collect();
    if argv.len() < list.len() {
        return None;
    }
    let Some(program) = argv.first_mut().filter(|program| !program.is_empty()) else {
        return Some(Err("the command names no program".to_owned()));
    };
    if program.contains('/') {
        *program = node.source.folder().join(&*program).display().to_string();
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return Some(Err("a command cannot hold a NUL byte".to_owned()));
    }
    Some(Ok(argv))
}

/// The folder that `key` names; a fresh one where it names none.
pub(super) fn workdir(reader: &mut Reader<'_>, key: &str) -> Option<Workdir> {
    if reader.node.get(key).is_none() {
        return Some(Workdir::Fresh);
    }
    let path: PathBuf = reader.node.path(key)?;
    if path.is_dir() {
        return Some(Workdir::Existing(path));
    }
    let why = if path.exists() { "is not a folder" } else { "does not exist" };
    reader.refuse(key, format!("the folder `{}` {why}", path.display()), None);
    None
}
