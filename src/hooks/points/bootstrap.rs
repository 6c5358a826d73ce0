//! `agent:bootstrap`: which files a prompt begins with.

use serde::{Deserialize, Serialize};

use crate::config::HookPoint;
use crate::hooks::point::{Point, Rule, Taken};

/// The bootstrap files of a workspace, before they go into a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentBootstrap {
    /// The files, in their order.
    pub files: Vec<BootstrapFile>,
}

/// A bootstrap file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootstrapFile {
    /// Its name, such as `AGENTS.md`.
    pub name: String,
    /// All of it; cut to size only later.
    pub content: String,
}

/// What a hook may answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BootstrapChange {
    /// Taken out, by name.
    pub drop: Vec<String>,
    /// In place of those with the same names; the others come after the rest.
    pub files: Vec<BootstrapFile>,
}

impl Point for AgentBootstrap {
    const POINT: HookPoint = HookPoint::AgentBootstrap;
    type Answer = BootstrapChange;
}

impl Rule for AgentBootstrap {
    /// The files that there are then; `None`: the same.
    type Verdict = Option<Vec<BootstrapFile>>;

    fn take(&mut self, verdict: &mut Self::Verdict, answer: BootstrapChange, _by: &str) -> Taken {
        let mut did = Vec::new();
        let before = self.files.len();
        self.files.retain(|file| !answer.drop.contains(&file.name));
        if self.files.len() < before {
            did.push("dropped");
        }
        for file in answer.files {
            match self.files.iter_mut().find(|known| known.name == file.name) {
                Some(known) if *known == file => {}
                Some(known) => {
                    *known = file;
                    did.push("replaced");
                }
                None => {
                    self.files.push(file);
                    did.push("added");
                }
            }
        }
        did.dedup();
        if did.is_empty() {
            return Taken::Nothing;
        }
        *verdict = Some(self.files.clone());
        Taken::Changed(did)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<BootstrapFile> {
        let file = |&(name, content): &(&str, &str)| BootstrapFile {
            name: name.to_owned(),
            content: content.to_owned(),
        };
        files.iter().map(file).collect()
    }

    #[test]
    fn agent_bootstrap_adds_drops_and_replaces() {
        // semantics §8: agent:bootstrap
        let change = |drop: &[&str], more: &[(&str, &str)]| BootstrapChange {
            drop: drop.iter().map(|&name| name.to_owned()).collect(),
            files: files(more),
        };
        let changed = |names: &[&'static str]| Taken::Changed(names.to_vec());
        let table = [
            (change(&[], &[]), vec![("A", "1"), ("B", "2")], Taken::Nothing),
            (change(&["X"], &[("A", "1")]), vec![("A", "1"), ("B", "2")], Taken::Nothing),
            (change(&["A"], &[]), vec![("B", "2")], changed(&["dropped"])),
            (change(&[], &[("A", "9")]), vec![("A", "9"), ("B", "2")], changed(&["replaced"])),
            (
                change(&[], &[("C", "3")]),
                vec![("A", "1"), ("B", "2"), ("C", "3")],
                changed(&["added"]),
            ),
            (
                change(&["A"], &[("B", "9"), ("C", "3"), ("D", "4")]),
                vec![("B", "9"), ("C", "3"), ("D", "4")],
                changed(&["dropped", "replaced", "added"]),
            ),
        ];
        for (answer, expected, taken) in table {
            let mut asked = AgentBootstrap { files: files(&[("A", "1"), ("B", "2")]) };
            let mut verdict = None;
            assert_eq!(asked.take(&mut verdict, answer.clone(), "h"), taken, "{answer:?}");
            assert_eq!(asked.files, files(&expected), "{answer:?}");
            assert_eq!(verdict.is_some(), taken != Taken::Nothing);
        }
    }
}
