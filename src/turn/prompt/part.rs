//! The pieces of a prompt, and what is kept of each.

use crate::turn::tokens_in;

words!(
    /// What a piece of a prompt is.
    PartKind {
        /// The first words, the same for every job but for its name.
        Base = "base",
        /// Stable guidance that somebody put before everything else.
        Prepended = "prepended",
        /// The system prompt that somebody put in place of the usual one.
        Replaced = "replaced",
        /// What is said of skills in general.
        Skills = "skills",
        /// One skill: its name, its description and its place.
        Skill = "skill",
        /// A file of the workspace.
        Bootstrap = "bootstrap",
        /// Stable guidance that somebody put after everything else.
        Appended = "appended",
        /// What is told of this turn alone, before the prompt.
        Context = "context",
        /// The job's prompt.
        Prompt = "prompt",
        /// The definitions of the tools.
        Tools = "tools",
    }
);

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// Which file, which skill.
    pub name: Option<String>,
    /// Its text, with what sets it apart from the piece before.
    pub text: String,
    /// Characters that are not in it because there are too many.
    pub cut: usize,
    /// What there is to say of it: why it was cut or left out.
    pub note: Option<String>,
}

/// What is kept of a piece: never its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartReport {
    /// What it is.
    pub kind: PartKind,
    /// Which file, which skill.
    pub name: Option<String>,
    /// How long it is.
    pub characters: usize,
    /// About how many tokens that is.
    pub tokens: u64,
    /// Characters that are not in it because there were too many.
    pub cut: usize,
    /// What there is to say of it.
    pub note: Option<String>,
}

impl Part {
    /// A whole piece.
    pub fn new(kind: PartKind, text: impl Into<String>) -> Self {
        Self { kind, name: None, text: text.into(), cut: 0, note: None }
    }

    /// The same piece under a name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// The same piece with something to say of it.
    #[must_use]
    pub fn noted(self, note: Option<String>) -> Self {
        Self { note, ..self }
    }

    /// What is kept of it.
    pub fn report(&self) -> PartReport {
        let characters = self.text.chars().count();
        PartReport {
            kind: self.kind,
            name: self.name.clone(),
            characters,
            tokens: tokens_in(&self.text),
            cut: self.cut,
            note: self.note.clone(),
        }
    }
}
