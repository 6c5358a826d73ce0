//! From what was read to what is sent, as a list of parts: a pure function.

use serde::{Deserialize, Serialize};

use super::bootstrap::{self, BootstrapFile};
use super::part::{Part, PartKind};
use super::skills;
use crate::skill::Snapshot;

/// What was read for a prompt, once, when its session began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Material {
    /// The skills, as they were then.
    #[serde(skip_serializing_if = "Snapshot::is_empty")]
    pub skills: Snapshot,
    /// The files of the workspace.
    #[serde(rename = "file", skip_serializing_if = "Vec::is_empty")]
    pub bootstrap: Vec<BootstrapFile>,
}

/// What others say of a prompt before it is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Stable guidance before everything else.
    pub prepend: Vec<String>,
    /// In place of base, skills and files.
    pub replace: Option<String>,
    /// Stable guidance after everything else.
    pub append: Vec<String>,
    /// For this turn alone; it stands before the prompt, not in what a cache could hold.
    pub context: Vec<String>,
}

/// What a model is told at the beginning of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assembled {
    system: Vec<Part>,
    first: Vec<Part>,
}

/// Puts a prompt together: what stays from run to run first, what is of this turn last.
pub fn assemble(
    base: String,
    material: &Material,
    overrides: Overrides,
    prompt: String,
) -> Assembled {
    let apart = |texts: Vec<String>, kind| {
        texts.into_iter().filter(|text| !text.trim().is_empty()).map(move |text| (kind, text))
    };
    let mut system: Vec<Part> = apart(overrides.prepend, PartKind::Prepended)
        .map(|(kind, text)| Part::new(kind, text + "\n\n"))
        .collect();
    if let Some(text) = overrides.replace {
        system.push(Part::new(PartKind::Replaced, text));
    } else {
        system.push(Part::new(PartKind::Base, base));
        system.extend(skills::parts(&material.skills));
        system.extend(bootstrap::parts(&material.bootstrap));
    }
    let appended = apart(overrides.append, PartKind::Appended);
    system.extend(appended.map(|(kind, text)| Part::new(kind, format!("\n\n{text}"))));
    let mut first: Vec<Part> = apart(overrides.context, PartKind::Context)
        .map(|(kind, text)| Part::new(kind, text + "\n\n"))
        .collect();
    first.push(Part::new(PartKind::Prompt, prompt));
    Assembled { system, first }
}

impl Assembled {
    /// The system prompt.
    pub fn system(&self) -> String {
        text(&self.system)
    }

    /// The first message.
    pub fn prompt(&self) -> String {
        text(&self.first)
    }

    /// Every part, in the order in which they are sent.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.system.iter().chain(&self.first)
    }
}

fn text(parts: &[Part]) -> String {
    parts.iter().map(|part| part.text.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skill::{LeftOut, Offered};

    fn material() -> Material {
        let offered = |name: &str| Offered {
            name: name.into(),
            description: "how we write".into(),
            file: format!("/s/{name}/SKILL.md"),
        };
        let file = |name: &str, text: &str, note: Option<&str>| BootstrapFile {
            name: name.into(),
            text: text.into(),
            note: note.map(Into::into),
        };
        Material {
            skills: Snapshot {
                offered: vec![offered("style")],
                left_out: vec![LeftOut { name: "gh".into(), why: "no `gh`".into() }],
            },
            bootstrap: vec![
                file("AGENTS.md", "", Some("left out: it is not UTF-8 text")),
                file("SOUL.md", "be kind\n", None),
            ],
        }
    }

    fn overrides() -> Overrides {
        Overrides {
            prepend: vec!["first of all".into()],
            replace: None,
            append: vec!["last of all".into(), " ".into()],
            context: vec!["it rains".into()],
        }
    }

    // semantics §7: base + skills list + bootstrap files + per-run overrides; stable parts first,
    // per-turn parts last.
    #[test]
    fn stable_parts_come_first_and_what_is_of_this_turn_last() {
        let assembled = assemble("base".into(), &material(), overrides(), "go".into());
        let kinds: Vec<_> = assembled.parts().map(|part| part.kind.as_str()).collect();
        assert_eq!(
            kinds,
            [
                "prepended",
                "base",
                "skills",
                "skill",
                "skill",
                "bootstrap",
                "bootstrap",
                "appended",
                "context",
                "prompt"
            ]
        );
        let system = assembled.system();
        assert!(system.starts_with("first of all\n\nbase\n\n# Skills\n\n"), "{system}");
        assert!(
            system.ends_with(
                "</skill>\n\n# Files of the workspace\n\n## SOUL.md\n\nbe kind\n\nlast of all"
            ),
            "{system}"
        );
        assert_eq!(assembled.prompt(), "it rains\n\ngo");
        let characters: usize = assembled.parts().map(|part| part.report().characters).sum();
        assert_eq!(characters, (system + &assembled.prompt()).chars().count());
        let again = assemble("base".into(), &material(), overrides(), "go".into());
        assert_eq!(assembled, again);
    }

    #[test]
    fn what_stands_in_place_of_the_usual_leaves_none_of_it() {
        let replace = Some("only this".to_owned());
        let overrides = Overrides { replace, ..overrides() };
        let assembled = assemble("base".into(), &material(), overrides, "go".into());
        assert_eq!(assembled.system(), "first of all\n\nonly this\n\nlast of all");
    }

    #[test]
    fn what_was_left_out_is_in_the_report_and_not_in_the_prompt() {
        let assembled = assemble("b".into(), &material(), Overrides::default(), "go".into());
        let left: Vec<_> = assembled
            .parts()
            .map(Part::report)
            .filter(|part| part.characters == 0)
            .map(|part| (part.name.unwrap(), part.note.unwrap()))
            .collect();
        let pair = |name: &str, note: &str| (name.to_owned(), note.to_owned());
        assert_eq!(
            left,
            [pair("gh", "left out: no `gh`"), pair("AGENTS.md", "left out: it is not UTF-8 text")]
        );
    }
}
