//! How a job's tools are confined: `sandbox` of `[agent]` and what belongs to it.

use std::path::PathBuf;

use super::parse::Reader;

words!(
    /// How the processes of a job's tools are confined.
    Sandbox {
        /// They see the system's programs, their workspace and what is declared, and nothing else.
        Strict = "strict",
        /// They may read what their user may, and change their workspace and what is declared.
        Workspace = "workspace",
        /// They may do what their user may.
        Off = "off",
    }
);

words!(
    /// Whether the processes of a job's tools may talk to others.
    SandboxNetwork {
        /// As their user may.
        On = "on",
        /// Not at all.
        Off = "off",
    }
);

/// How a job's tools are confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSpec {
    /// How much.
    pub mode: Sandbox,
    /// What they may read beside their workspace.
    pub read: Vec<PathBuf>,
    /// What they may change beside it.
    pub write: Vec<PathBuf>,
    /// Whether they may talk to others.
    pub network: SandboxNetwork,
}

pub(super) fn sandbox(reader: &mut Reader<'_>) -> SandboxSpec {
    let mode = mode(reader);
    let network = network(reader, mode);
    let (read, write) = (paths(reader, "agent.sandbox_read"), paths(reader, "agent.sandbox_write"));
    if mode == Sandbox::Off {
        for key in ["agent.sandbox_read", "agent.sandbox_write"] {
            if reader.node.get(key).is_some_and(|node| node.source == reader.node.source) {
                reader.warn(key, "`sandbox` is \"off\": there is nothing that this would open");
            }
        }
    }
    SandboxSpec { mode, read, write, network }
}

/// What the job says, or the usual, as far as the ceiling lets it.
fn mode(reader: &mut Reader<'_>) -> Sandbox {
    let key = "agent.sandbox";
    let ceiling = reader.around.ceilings.sandbox;
    let written = reader.node.text(key).and_then(|text| text.parse().ok());
    match (written, ceiling) {
        (Some(mode), Some(ceiling)) if laxity(mode) > laxity(ceiling) => {
            let help = format!("[ceilings] sandbox = \"{ceiling}\"");
            reader.refuse(key, "`sandbox` is laxer than [ceilings] allows", help);
            ceiling
        }
        (Some(mode), _) => mode,
        (None, Some(Sandbox::Strict)) => Sandbox::Strict,
        (None, _) => Sandbox::Workspace,
    }
}

fn laxity(mode: Sandbox) -> u8 {
    match mode {
        Sandbox::Strict => 0,
        Sandbox::Workspace => 1,
        Sandbox::Off => 2,
    }
}

fn network(reader: &mut Reader<'_>, mode: Sandbox) -> SandboxNetwork {
    let key = "agent.network";
    let usual = match mode {
        Sandbox::Strict => SandboxNetwork::Off,
        Sandbox::Workspace | Sandbox::Off => SandboxNetwork::On,
    };
    let ceiling = reader.around.ceilings.network;
    let written = reader.node.text(key).and_then(|text| text.parse().ok());
    match (written, ceiling) {
        (Some(SandboxNetwork::On), Some(SandboxNetwork::Off)) => {
            let help = "[ceilings] network = \"off\"".to_owned();
            reader.refuse(key, "`network` is above what [ceilings] allows", help);
        }
        (_, Some(SandboxNetwork::Off)) if mode == Sandbox::Off => {
            let help = "[ceilings] network = \"off\" needs a sandbox".to_owned();
            reader.refuse("agent.sandbox", "`sandbox` is laxer than [ceilings] allows", help);
        }
        (Some(SandboxNetwork::Off), _) if mode == Sandbox::Off => {
            let help = "write `sandbox = \"workspace\"` or \"strict\"".to_owned();
            reader.refuse(key, "without a sandbox the network cannot be taken away", help);
        }
        _ => {}
    }
    match ceiling {
        Some(SandboxNetwork::Off) if mode != Sandbox::Off => SandboxNetwork::Off,
        _ => written.unwrap_or(usual),
    }
}

/// Paths that are relative to the file that names them.
fn paths(reader: &mut Reader<'_>, key: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut problems = Vec::new();
    for (text, node) in reader.node.texts(key).unwrap_or_default() {
        let path = node.source.folder().join(text);
        if text.is_empty() || text.contains('\0') {
            problems.push(node.error(key, "this names no file or folder"));
        } else if text == "~" || text.starts_with("~/") {
            let help = "write the whole path".to_owned();
            problems.push(node.error(key, "`~` stands for nothing here").with_help(Some(help)));
        } else {
            if path.symlink_metadata().is_err() {
                let words = format!("`{}` is not there", path.display());
                problems.push(node.error(key, words).as_warning());
            }
            paths.push(path);
        }
    }
    reader.problems.extend(problems);
    paths
}
