//! `before_prompt_build`, and `before_agent_start`, which is older and may do the same.

use serde::{Deserialize, Serialize};

use super::model::ModelChoice;
use crate::config::HookPoint;
use crate::hooks::point::{Point, Rule, Taken};
use crate::provider::Message;

/// After the session is loaded, before the prompt is put together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BeforePromptBuild {
    /// What the turn is asked.
    pub prompt: String,
    /// What was said before it, oldest first.
    pub messages: Vec<Message>,
    /// How many older messages are left out.
    pub messages_omitted: usize,
}

/// What is added to a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptParts {
    /// Before what the turn is asked: text of this turn alone. All of them, in the order of the
    /// hooks.
    pub prepend_context: Option<String>,
    /// In place of the system prompt's base, skills and files. The first one wins.
    pub system_prompt: Option<String>,
    /// Before the system prompt: guidance that stays the same. All of them.
    pub prepend_system_context: Option<String>,
    /// After it. All of them.
    pub append_system_context: Option<String>,
}

impl Point for BeforePromptBuild {
    const POINT: HookPoint = HookPoint::BeforePromptBuild;
    type Answer = PromptParts;
}

impl Rule for BeforePromptBuild {
    type Verdict = PromptParts;

    fn take(&mut self, verdict: &mut PromptParts, answer: PromptParts, _by: &str) -> Taken {
        changed(verdict.add(answer))
    }
}

/// What the two points before may do, for hooks that are older than they are. Asked once, when the
/// model is resolved; what newer hooks say goes first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BeforeAgentStart {
    /// The provider that the job asks for.
    pub provider: String,
    /// Its model.
    pub model: String,
}

/// What such a hook may answer: all that the two others may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LegacyParts {
    /// As in [`ModelChoice`].
    pub provider: Option<String>,
    /// As in [`ModelChoice`].
    pub model: Option<String>,
    /// As in [`PromptParts`].
    pub prepend_context: Option<String>,
    /// As in [`PromptParts`].
    pub system_prompt: Option<String>,
    /// As in [`PromptParts`].
    pub prepend_system_context: Option<String>,
    /// As in [`PromptParts`].
    pub append_system_context: Option<String>,
}

impl Point for BeforeAgentStart {
    const POINT: HookPoint = HookPoint::BeforeAgentStart;
    type Answer = LegacyParts;
}

impl Rule for BeforeAgentStart {
    type Verdict = (ModelChoice, PromptParts);

    fn take(&mut self, verdict: &mut Self::Verdict, answer: LegacyParts, _by: &str) -> Taken {
        let (model, prompt) = answer.split();
        let of_model = match verdict.0.fill_in(model) {
            Taken::Changed(names) => names,
            Taken::Nothing | Taken::Claimed | Taken::Blocked => Vec::new(),
        };
        changed(of_model.into_iter().chain(verdict.1.add(prompt)).collect())
    }
}

impl LegacyParts {
    fn split(self) -> (ModelChoice, PromptParts) {
        let Self {
            provider,
            model,
            prepend_context,
            system_prompt,
            prepend_system_context,
            append_system_context,
        } = self;
        let parts = PromptParts {
            prepend_context,
            system_prompt,
            prepend_system_context,
            append_system_context,
        };
        (ModelChoice { provider, model }, parts)
    }
}

fn changed(names: Vec<&'static str>) -> Taken {
    if names.is_empty() { Taken::Nothing } else { Taken::Changed(names) }
}

impl PromptParts {
    /// Adds what `other` says, and names it.
    fn add(&mut self, other: Self) -> Vec<&'static str> {
        let mut names = Vec::new();
        if let (None, Some(text)) = (&self.system_prompt, other.system_prompt) {
            self.system_prompt = Some(text);
            names.push("system_prompt");
        }
        for (mine, theirs, name) in [
            (&mut self.prepend_context, other.prepend_context, "prepend_context"),
            (
                &mut self.prepend_system_context,
                other.prepend_system_context,
                "prepend_system_context",
            ),
            (&mut self.append_system_context, other.append_system_context, "append_system_context"),
        ] {
            let Some(text) = theirs.filter(|text| !text.is_empty()) else { continue };
            *mine = Some(joined([mine.take(), Some(text)]));
            names.push(name);
        }
        names
    }

    /// This, and what `other` says after it.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.add(other);
        self
    }
}

fn joined<const N: usize>(parts: [Option<String>; N]) -> String {
    let parts: Vec<_> = parts.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(context: &str, system: &str, before: &str, after: &str) -> PromptParts {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        PromptParts {
            prepend_context: some(context),
            system_prompt: some(system),
            prepend_system_context: some(before),
            append_system_context: some(after),
        }
    }

    fn asked() -> BeforePromptBuild {
        BeforePromptBuild { prompt: "p".into(), messages: Vec::new(), messages_omitted: 0 }
    }

    #[test]
    fn before_prompt_build_merges_the_parts_in_the_order_of_the_hooks() {
        // semantics §8, row before_prompt_build
        let table = [
            (vec![], parts("", "", "", "")),
            (vec![parts("a", "", "", ""), parts("b", "", "", "")], parts("a\n\nb", "", "", "")),
            (vec![parts("", "a", "", ""), parts("", "b", "", "")], parts("", "a", "", "")),
            (
                vec![parts("", "", "a", "x"), parts("", "", "b", "y")],
                parts("", "", "a\n\nb", "x\n\ny"),
            ),
            (vec![parts("", "", "", ""), parts("c", "s", "b", "a")], parts("c", "s", "b", "a")),
        ];
        for (answers, expected) in table {
            let mut verdict = PromptParts::default();
            for answer in &answers {
                asked().take(&mut verdict, answer.clone(), "hook");
            }
            assert_eq!(verdict, expected, "{answers:?}");
        }
        let mut verdict = PromptParts::default();
        let taken = asked().take(&mut verdict, parts("c", "s", "", ""), "hook");
        assert_eq!(taken, Taken::Changed(vec!["system_prompt", "prepend_context"]));
        let taken = asked().take(&mut verdict, parts("", "t", "", ""), "hook");
        assert_eq!(taken, Taken::Nothing);
    }

    #[test]
    fn before_agent_start_may_do_what_either_phase_may_and_newer_hooks_go_first() {
        // semantics §8, row before_agent_start
        let mut verdict = (ModelChoice::default(), PromptParts::default());
        let mut asked = BeforeAgentStart { provider: "p".into(), model: "m".into() };
        let answer = LegacyParts {
            model: Some("other".into()),
            prepend_context: Some("old".into()),
            system_prompt: Some("old system".into()),
            ..LegacyParts::default()
        };
        let taken = asked.take(&mut verdict, answer, "hook");
        assert_eq!(taken, Taken::Changed(vec!["model", "system_prompt", "prepend_context"]));
        let newer = ModelChoice { provider: Some("q".into()), model: None };
        let model = newer.or(verdict.0);
        assert_eq!(model, ModelChoice { provider: Some("q".into()), model: Some("other".into()) });
        let prompt = parts("new", "new system", "", "").and(verdict.1);
        assert_eq!(prompt, parts("new\n\nold", "new system", "", ""));
    }
}
