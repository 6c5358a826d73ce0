//! What of a conversation is put into a summary, and what is kept word for word: a pure function.
//!
//! A conversation is cut in two. What comes before the cut goes into the summary, but for the prompt
//! that the turn is about; what comes after it stays as it is. The cut is never between a call and
//! its result, and it is only made where the conversation becomes shorter by it.

use crate::provider::Message;

/// Less than this is not worth a request, in tokens.
const SUMMARISED_MIN: u64 = 256;

/// The most that a summary may be, in tokens: some three thousand words.
const SUMMARY_MAX: u64 = 4_000;

/// What is summarised, and what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The first message that is kept: all before it are summarised.
    pub kept_from: usize,
    /// Where the prompt of the turn is.
    pub prompt: PromptPlace,
    /// What goes into the summary, in tokens.
    pub summarised: u64,
    /// What is kept from the cut on, in tokens.
    pub kept: u64,
    /// The most that the summary may be, in tokens: half of what it stands for.
    pub summary_max: u64,
}

/// What becomes of the prompt of the turn: it is never put into a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptPlace {
    /// It is before the cut, and goes before the summary.
    CarriedOver,
    /// It is after the cut, among what is kept.
    Kept,
}

/// A conversation, as far as it matters where it is cut.
#[derive(Debug, Clone, Copy)]
pub struct Conversation<'a> {
    /// All of it, oldest first.
    pub messages: &'a [Message],
    /// The tokens of each.
    pub tokens: &'a [u64],
    /// Which one is the prompt of the turn.
    pub prompt: usize,
}

/// Where to cut so that at most `kept_max` tokens are kept, but always the last step; nothing if
/// there is too little before it.
pub fn plan_compaction(conversation: Conversation<'_>, kept_max: u64) -> Option<CompactionPlan> {
    let Conversation { messages, tokens, prompt } = conversation;
    let cuts = cuts(messages);
    let last = *cuts.last()?;
    let mut kept_from = last;
    let mut kept: u64 = tokens[last..].iter().sum();
    for &cut in cuts.iter().rev().skip(1) {
        let more: u64 = tokens[cut..kept_from].iter().sum();
        if kept + more > kept_max {
            break;
        }
        (kept_from, kept) = (cut, kept + more);
    }
    let of_prompt = if prompt < kept_from { tokens[prompt] } else { 0 };
    let summarised = tokens[..kept_from].iter().sum::<u64>() - of_prompt;
    (summarised >= SUMMARISED_MIN).then(|| CompactionPlan {
        kept_from,
        prompt: if prompt < kept_from { PromptPlace::CarriedOver } else { PromptPlace::Kept },
        summarised,
        kept,
        summary_max: (summarised / 2).min(SUMMARY_MAX),
    })
}

/// The places where a conversation may be cut: before a message, where every call before it has had
/// its result. The first message is none of them.
fn cuts(messages: &[Message]) -> Vec<usize> {
    let mut open: Vec<&str> = Vec::new();
    let mut cuts = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        // Nothing is said by a model before its calls have their results: those that have none by
        // then get none.
        if matches!(message, Message::Assistant(_)) {
            open.clear();
        }
        let is_result = matches!(message, Message::ToolResult { .. });
        if at > 0 && !is_result && open.is_empty() {
            cuts.push(at);
        }
        match message {
            Message::User { .. } => {}
            Message::Assistant(said) => {
                open.extend(said.tool_calls.iter().map(|it| it.id.as_str()));
            }
            Message::ToolResult { call_id, .. } => {
                if let Some(which) = open.iter().position(|id| id == call_id) {
                    open.swap_remove(which);
                }
            }
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::provider::{AssistantTurn, ToolCall};

    /// A step of a conversation.
    #[derive(Debug, Clone)]
    enum Step {
        User,
        Text,
        /// So many calls, with what a person says meanwhile before the last result.
        Calls(usize, Meanwhile),
    }

    #[derive(Debug, Clone)]
    enum Meanwhile {
        Nothing,
        Said,
    }

    fn user() -> Message {
        Message::User { text: "x".to_owned() }
    }

    fn text() -> Message {
        Message::Assistant(AssistantTurn { text: "x".to_owned(), ..AssistantTurn::default() })
    }

    /// The ids are the same in every step, as those of some servers are.
    fn calls(count: usize) -> Message {
        let call = |n: usize| ToolCall {
            id: format!("call_{n}"),
            name: "exec".to_owned(),
            arguments: serde_json::Map::new(),
        };
        Message::Assistant(AssistantTurn {
            tool_calls: (0..count).map(call).collect(),
            ..AssistantTurn::default()
        })
    }

    fn result(n: usize) -> Message {
        Message::ToolResult {
            call_id: format!("call_{n}"),
            name: "exec".to_owned(),
            content: "x".to_owned(),
            is_error: false,
        }
    }

    /// The messages, each with the number of its step.
    fn conversation(steps: &[Step]) -> Vec<(usize, Message)> {
        let messages = |step: &Step| match step {
            Step::User => vec![user()],
            Step::Text => vec![text()],
            Step::Calls(count, meanwhile) => {
                let mut all = vec![calls(*count)];
                all.extend((0..*count).map(result));
                if matches!(meanwhile, Meanwhile::Said) {
                    all.insert(all.len() - 1, user());
                }
                all
            }
        };
        let all = steps.iter().enumerate();
        all.flat_map(|(n, step)| messages(step).into_iter().map(move |it| (n, it))).collect()
    }

    fn planned(
        steps: &[Step],
        tokens: &[u64],
        prompt: usize,
        kept_max: u64,
    ) -> Option<(usize, u64)> {
        let messages: Vec<_> = conversation(steps).into_iter().map(|(_, it)| it).collect();
        let conversation = Conversation { messages: &messages, tokens, prompt };
        let plan = plan_compaction(conversation, kept_max)?;
        Some((plan.kept_from, plan.summarised))
    }

    // semantics §7: a call and its result are never split; what is recent is kept.
    #[test]
    fn what_is_recent_is_kept_and_a_call_stays_with_its_results() {
        use Step::{Calls, Text, User};
        let calls = |count| Calls(count, Meanwhile::Nothing);
        // prompt, call, result, call, result, result: the last step is kept, however large.
        let steps = [User, calls(1), calls(2)];
        let tokens = [100, 500, 500, 50, 400, 400];
        assert_eq!(planned(&steps, &tokens, 0, 10), Some((3, 1000)));
        assert_eq!(planned(&steps, &tokens, 0, 850), Some((3, 1000)));
        assert_eq!(planned(&steps, &tokens, 0, 1849), Some((3, 1000)));
        // All of it would be kept: there is nothing to summarise but the prompt.
        assert_eq!(planned(&steps, &tokens, 0, 1850), None);
        // An earlier turn goes into the summary, and so does the prompt's past.
        let steps = [User, Text, User, calls(1), Text];
        let tokens = [300, 300, 100, 10, 10, 10];
        assert_eq!(planned(&steps, &tokens, 2, 130), Some((2, 600)));
        assert_eq!(planned(&steps, &tokens, 2, 30), Some((3, 600)));
        assert_eq!(planned(&steps, &tokens, 2, 430), Some((1, 300)));
        // Too little to be worth it, and nothing at all.
        assert_eq!(planned(&[User, Text, Text], &[1000, 255, 10], 0, 10), None);
        assert_eq!(planned(&[User, calls(1)], &[10, 10, 9000], 0, 100), None);
        assert_eq!(planned(&[], &[], 0, 100), None);
        // What a person says between two results splits nothing.
        let steps = [User, Calls(2, Meanwhile::Said), Text];
        assert_eq!(planned(&steps, &[10, 300, 300, 300, 300, 10], 0, 310), Some((5, 1200)));
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let said = prop_oneof![3 => Just(Meanwhile::Nothing), 1 => Just(Meanwhile::Said)];
        let step = prop_oneof![
            1 => Just(Step::User),
            1 => Just(Step::Text),
            3 => (1..4usize, said).prop_map(|(count, said)| Step::Calls(count, said)),
        ];
        prop::collection::vec(step, 0..20)
    }

    proptest! {
        #[test]
        fn a_plan_splits_nothing_keeps_within_bounds_and_always_shrinks(
            steps in steps(),
            sizes in prop::collection::vec(1..2_000u64, 120),
            prompt in any::<prop::sample::Index>(),
            kept_max in 0..20_000u64,
        ) {
            let numbered = conversation(&steps);
            let tokens = &sizes[..numbered.len()];
            let messages: Vec<_> = numbered.iter().map(|(_, it)| it.clone()).collect();
            prop_assume!(!messages.is_empty());
            let prompt = prompt.index(messages.len());
            let conversation = Conversation { messages: &messages, tokens, prompt };
            let Some(plan) = plan_compaction(conversation, kept_max) else { return Ok(()) };
            let cut = plan.kept_from;
            // No step is split, so no call is apart from its results.
            prop_assert!(0 < cut && cut < messages.len());
            prop_assert_ne!(numbered[cut - 1].0, numbered[cut].0);
            // Within the bound, or nothing but the last step.
            prop_assert_eq!(plan.kept, tokens[cut..].iter().sum::<u64>());
            let is_last_step = numbered[cut].0 == steps.len() - 1;
            prop_assert!(plan.kept <= kept_max || is_last_step);
            // As much as fits is kept.
            let step_before = numbered[..cut].iter().map(|it| it.0).max().unwrap_or(0);
            let first = numbered.iter().position(|it| it.0 == step_before).unwrap_or(0);
            let more: u64 = tokens[first..].iter().sum();
            prop_assert!(first == 0 || more > kept_max);
            // The prompt is not lost.
            let carried = plan.prompt == PromptPlace::CarriedOver;
            prop_assert_eq!(carried, prompt < cut);
            // It becomes shorter, whatever the summary makes of what it may be.
            let before: u64 = tokens.iter().sum();
            let prompt = if carried { tokens[prompt] } else { 0 };
            prop_assert!(prompt + plan.summary_max + plan.kept < before);
        }
    }
}
