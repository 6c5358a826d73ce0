//! `before_model_resolve`: which model is asked.

use serde::{Deserialize, Serialize};

use crate::config::HookPoint;
use crate::hooks::point::{Point, Rule, Taken};

/// Before the model is resolved and the session is loaded: there are no messages yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BeforeModelResolve {
    /// The provider that the job asks for.
    pub provider: String,
    /// Its model.
    pub model: String,
}

/// What is to be asked in place of the job's own; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelChoice {
    /// The id of a provider.
    pub provider: Option<String>,
    /// A model of it; with a slash in it, or as an alias, the provider too.
    pub model: Option<String>,
}

impl Point for BeforeModelResolve {
    const POINT: HookPoint = HookPoint::BeforeModelResolve;
    type Answer = ModelChoice;
}

impl Rule for BeforeModelResolve {
    type Verdict = ModelChoice;

    fn take(&mut self, verdict: &mut ModelChoice, answer: ModelChoice, _by: &str) -> Taken {
        verdict.fill_in(answer)
    }

    fn is_seen_by_the_model() -> bool {
        false
    }
}

impl ModelChoice {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.provider.is_none() && self.model.is_none()
    }

    /// The first that is defined wins.
    pub(super) fn fill_in(&mut self, other: Self) -> Taken {
        let mut changed = Vec::new();
        for (mine, theirs, name) in [
            (&mut self.provider, other.provider, "provider"),
            (&mut self.model, other.model, "model"),
        ] {
            if mine.is_none() && theirs.is_some() {
                *mine = theirs;
                changed.push(name);
            }
        }
        if changed.is_empty() { Taken::Nothing } else { Taken::Changed(changed) }
    }

    /// This, and `other` where nothing is asked for.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.fill_in(other);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(provider: Option<&str>, model: Option<&str>) -> ModelChoice {
        ModelChoice { provider: provider.map(str::to_owned), model: model.map(str::to_owned) }
    }

    #[test]
    fn before_model_resolve_first_defined_wins() {
        // semantics §8, row before_model_resolve
        let (a, b) = (Some("a"), Some("b"));
        let table = [
            (vec![], choice(None, None)),
            (vec![choice(None, None), choice(a, None)], choice(a, None)),
            (vec![choice(a, None), choice(b, None)], choice(a, None)),
            (vec![choice(a, None), choice(b, b)], choice(a, b)),
            (vec![choice(None, b), choice(a, a)], choice(a, b)),
        ];
        for (answers, expected) in table {
            let mut verdict = ModelChoice::default();
            let mut asked = BeforeModelResolve { provider: "p".into(), model: "m".into() };
            for answer in &answers {
                asked.take(&mut verdict, answer.clone(), "hook");
            }
            assert_eq!(verdict, expected, "{answers:?}");
        }
    }

    #[test]
    fn what_a_later_hook_did_not_change_is_not_said_to_be_changed() {
        let mut verdict = choice(Some("a"), None);
        assert_eq!(verdict.fill_in(choice(Some("b"), None)), Taken::Nothing);
        assert_eq!(verdict.fill_in(choice(Some("b"), Some("m"))), Taken::Changed(vec!["model"]));
    }
}
