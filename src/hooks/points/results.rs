//! `tool_result_persist`: what is kept of a tool's result.

use serde::{Deserialize, Serialize};

use crate::config::HookPoint;
use crate::hooks::point::{Point, Rule, Taken};

/// A result is about to be written to the transcript; the turn waits. What is written is what the
/// model sees, now and when the session is opened again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolResultPersist {
    /// The call's id.
    pub call_id: String,
    /// Which tool.
    pub tool: String,
    /// Its result, cut to size.
    pub content: String,
    /// Whether the call failed or was refused.
    pub is_error: bool,
}

/// What a hook may answer, and what is left of all answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultChange {
    /// In place of the result.
    pub content: Option<String>,
}

impl Point for ToolResultPersist {
    const POINT: HookPoint = HookPoint::ToolResultPersist;
    type Answer = ResultChange;
}

impl Rule for ToolResultPersist {
    type Verdict = ResultChange;

    fn take(&mut self, verdict: &mut ResultChange, answer: ResultChange, _by: &str) -> Taken {
        match answer.content {
            Some(content) if content != self.content => {
                self.content.clone_from(&content);
                verdict.content = Some(content);
                Taken::Changed(vec!["content"])
            }
            Some(_) | None => Taken::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_result_persist_each_hook_goes_on_from_the_one_before() {
        // semantics §8, row tool_result_persist
        let mut result = ToolResultPersist {
            call_id: "1".into(),
            tool: "read".into(),
            content: "a".into(),
            is_error: false,
        };
        let mut verdict = ResultChange::default();
        let mut take = |content: Option<&str>| {
            let answer = ResultChange { content: content.map(str::to_owned) };
            (result.take(&mut verdict, answer, "h"), result.content.clone())
        };
        assert_eq!(take(None), (Taken::Nothing, "a".into()));
        assert_eq!(take(Some("a")), (Taken::Nothing, "a".into()));
        assert_eq!(take(Some("b")), (Taken::Changed(vec!["content"]), "b".into()));
        assert_eq!(take(Some("")), (Taken::Changed(vec!["content"]), String::new()));
        assert_eq!(verdict.content, Some(String::new()));
    }
}
