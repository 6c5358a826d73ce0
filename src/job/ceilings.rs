//! `[ceilings]`: what no job may exceed.
//!
//! A value that a file writes and that is wider is an error where it stands. A value that nobody
//! wrote is bounded: it holds for the job as if the ceiling were its default.

use std::time::Duration;

use super::money::Usd;
use super::parse::Reader;
use super::read_mcp::MCP_MARK;
use super::read_sandbox::{Sandbox, SandboxNetwork};
use super::spec::{Limits, RunTimeout};
use super::tree::Node;

/// What no job may exceed; `None` is no ceiling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// The cost of a run.
    pub max_usd: Option<Usd>,
    /// The tokens of a run.
    pub max_tokens: Option<u64>,
    /// The time of a run.
    pub timeout: Option<Duration>,
    /// The tools on offer.
    pub tools: Option<Vec<String>>,
    /// The commands of `exec`.
    pub exec_allow: Option<Vec<String>>,
    /// The laxest confinement.
    pub sandbox: Option<Sandbox>,
    /// The network of confined tools.
    pub network: Option<SandboxNetwork>,
}

impl Ceilings {
    /// The table of that name in the configuration.
    pub(crate) fn read(root: &Node) -> Self {
        let texts = |key: &str| {
            let texts = root.texts(&format!("ceilings.{key}"))?;
            Some(texts.into_iter().map(|(text, _)| text.to_owned()).collect())
        };
        Self {
            max_usd: root.float("ceilings.max_usd").map(Usd::from_dollars),
            max_tokens: root.integer("ceilings.max_tokens"),
            timeout: root.duration("ceilings.timeout"),
            tools: texts("tools"),
            exec_allow: texts("exec_allow"),
            sandbox: root.text("ceilings.sandbox").and_then(|text| text.parse().ok()),
            network: root.text("ceilings.network").and_then(|text| text.parse().ok()),
        }
    }
}

/// Bounds what `limits` has left open, and reports what is wider.
pub(super) fn bound_limits(reader: &mut Reader<'_>, limits: &mut Limits) {
    let ceilings = reader.around.ceilings;
    if let Some(ceiling) = ceilings.max_usd {
        let key = "limits.max_usd";
        if limits.max_usd.is_some_and(|it| it > ceiling) {
            wider(reader, key, "max_usd", &ceiling.dollars().to_string());
        }
        limits.max_usd = Some(limits.max_usd.map_or(ceiling, |it| it.min(ceiling)));
    }
    if let Some(ceiling) = ceilings.max_tokens {
        let key = "limits.max_tokens";
        if reader.node.get(key).is_some() && limits.max_tokens > ceiling {
            wider(reader, key, "max_tokens", &ceiling.to_string());
        }
        limits.max_tokens = limits.max_tokens.min(ceiling);
    }
    // A run without a limit of its own is bounded with the others of its kind.
    let is_wider = |ceiling: Duration| match limits.timeout {
        RunTimeout::Unset => false,
        RunTimeout::Unlimited => true,
        RunTimeout::After(limit) => limit > ceiling,
    };
    if let Some(ceiling) = ceilings.timeout.filter(|&it| is_wider(it)) {
        let shown = humantime::format_duration(ceiling).to_string();
        wider(reader, "limits.timeout", "timeout", &format!("\"{shown}\""));
    }
}

fn wider(reader: &mut Reader<'_>, key: &str, ceiling: &str, value: &str) {
    let name = key.rsplit('.').next().unwrap_or(key);
    let help = format!("[ceilings] {ceiling} = {value}");
    reader.refuse(key, format!("`{name}` is above what [ceilings] allows"), help);
}

/// The tools of a job that names none.
pub(super) fn usual_tools(reader: &Reader<'_>, usual: &[&str]) -> Vec<String> {
    let allowed = reader.around.ceilings.tools.as_ref();
    let allowed = |tool: &&&str| allowed.is_none_or(|it| it.iter().any(|it| it == **tool));
    usual.iter().filter(allowed).map(|&tool| tool.to_owned()).collect()
}

/// Why a tool that a job names may not be on offer, and what may.
pub(super) fn refusal_of_tool(reader: &Reader<'_>, tool: &str) -> Option<(String, String)> {
    let allowed = reader.around.ceilings.tools.as_ref()?;
    let is_above = !allowed.iter().any(|it| it == tool);
    let message = format!("the tool `{tool}` is above what [ceilings] allows");
    is_above.then(|| (message, format!("[ceilings] tools = {}", shown(allowed))))
}

/// Why an MCP server that a job names may offer nothing, and what may. A ceiling names tools of a
/// server as they are offered: `warehouse__query`, `warehouse__*`.
pub(super) fn refusal_of_server(reader: &Reader<'_>, server: &str) -> Option<(String, String)> {
    let allowed = reader.around.ceilings.tools.as_ref()?;
    let mine = format!("{server}{MCP_MARK}");
    let is_above = !allowed.iter().any(|it| it.starts_with(&mine));
    let message = format!("tools of the MCP server `{server}` are above what [ceilings] allows");
    let help = format!("[ceilings] tools = {}; `{mine}*` are all of it", shown(allowed));
    is_above.then_some((message, help))
}

/// Why a pattern of a job may allow nothing, and what may.
pub(super) fn refusal_of_pattern(
    reader: &Reader<'_>,
    pattern: &str,
    is_only: Only,
) -> Option<(String, String)> {
    let allowed = reader.around.ceilings.exec_allow.as_ref()?;
    let everything = matches!(allowed.as_slice(), [only] if only.trim() == "*");
    // On its own it also allows what a shell makes of a command.
    let wants_everything = is_only == Only::Yes && pattern.trim() == "*";
    let covered =
        everything || (!wants_everything && allowed.iter().any(|ceiling| covers(ceiling, pattern)));
    let message = format!("`{pattern}` is above what [ceilings] allows");
    (!covered).then(|| (message, format!("[ceilings] exec_allow = {}", shown(allowed))))
}

/// Whether a pattern is the only one of its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Only {
    Yes,
    No,
}

fn shown(list: &[String]) -> String {
    serde_json::to_string(list).unwrap_or_default()
}

/// Whether all commands that `pattern` allows are allowed by `ceiling`: word by word, and a `*` at
/// the end stands for any further words.
fn covers(ceiling: &str, pattern: &str) -> bool {
    let (above, above_more) = words(ceiling);
    let (below, below_more) = words(pattern);
    let enough = if above_more {
        below.len() >= above.len()
    } else {
        !below_more && below.len() == above.len()
    };
    enough && above.iter().zip(&below).all(|(above, below)| word_covers(above, below))
}

fn words(pattern: &str) -> (Vec<&str>, bool) {
    let mut words: Vec<_> = pattern.split_whitespace().collect();
    let more = words.last() == Some(&"*");
    if more {
        words.pop();
    }
    (words, more)
}

/// A `*` of `below` stands for any characters: only a `*` of `above` can take it.
fn word_covers(above: &str, below: &str) -> bool {
    let Some((start, rest)) = above.split_once('*') else { return above == below };
    let Some(mut below) = below.strip_prefix(start) else { return false };
    let mut pieces: Vec<_> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = below.find(piece) else { return false };
        below = &below[at + piece.len()..];
    }
    below.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_covered_by_one_that_allows_all_that_it_allows() {
        let table = [
            ("git *", "git *", true),
            ("git *", "git log *", true),
            ("git *", "git log", true),
            ("git log *", "git *", false),
            ("git log", "git log *", false),
            ("git", "git log", false),
            ("g*", "git", true),
            ("g*", "g*t", true),
            ("g*t", "g*", false),
            ("git", "g*", false),
            ("a*b*c *", "a1b2c d *", true),
            ("a*b*c *", "abc", true),
            ("ab*ba", "aba", false),
            ("*", "rm *", true),
            ("* -n", "ls -n", true),
            ("* -n", "ls -l", false),
        ];
        for (ceiling, pattern, expected) in table {
            assert_eq!(covers(ceiling, pattern), expected, "{ceiling} over {pattern}");
        }
    }
}
