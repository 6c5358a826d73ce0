//! A conversation as a model is sent it, and how many tokens that is.
//!
//! What a provider has counted counts; what came after that is estimated to the safe side.

use std::ops::Range;
use std::sync::Arc;

use super::compaction::{CompactionPlan, Conversation, PromptPlace};
use super::tokens::{tokens_in, tokens_of, tokens_of_frame};
use crate::provider::{Message, Request, ToolDefinition, Usage};
use crate::session::Remembered;

/// A provider that counts less than a quarter of what there is leaves out what it has in a cache,
/// or has dropped the rest: its number says nothing of what is sent.
const COUNTED_MIN: u64 = 4;

/// The conversation. Requests share it: it is not copied for each of them.
#[derive(Debug)]
pub(super) struct Talk {
    system: String,
    tools: Arc<Vec<ToolDefinition>>,
    messages: Arc<Vec<Message>>,
    /// Of each message.
    tokens: Vec<u64>,
    /// Where each message comes from.
    origins: Vec<Origin>,
    /// Of system prompt and tools.
    frame: u64,
    /// Which message the turn's prompt is in.
    prompt: usize,
    /// How much of that is the prompt, in bytes: a summary may follow it.
    prompt_bytes: usize,
    /// Which model the next request goes to, as `provider/model`.
    model: Option<String>,
    /// What that one has counted.
    counted: Option<Counted>,
}

/// Where a message comes from.
#[derive(Debug)]
struct Origin {
    /// Its entry in the transcript.
    entry: u64,
    /// Which model said it.
    by: Option<String>,
}

/// The tokens of all that was sent, and of the first so many messages.
#[derive(Debug)]
struct Counted {
    tokens: u64,
    messages: usize,
}

/// What is going to be put into a summary.
#[derive(Debug)]
pub(super) struct Shortened<'a> {
    /// What the turn is asked, if that is not among what is kept.
    pub(super) task: Option<&'a str>,
    /// The summary that there is so far.
    pub(super) summary: Option<&'a str>,
    /// What else there is, oldest first.
    pub(super) messages: Vec<&'a Message>,
}

impl Talk {
    /// Begins with what was said in earlier turns.
    pub(super) fn begin(
        system: String,
        tools: Vec<ToolDefinition>,
        history: Vec<Remembered>,
    ) -> Self {
        let mut talk = Self {
            frame: tokens_of_frame(&system, &tools),
            system,
            tools: Arc::new(tools),
            messages: Arc::default(),
            tokens: Vec::new(),
            origins: Vec::new(),
            prompt: history.len(),
            prompt_bytes: usize::MAX,
            model: None,
            counted: None,
        };
        for remembered in history {
            talk.push(remembered);
        }
        talk
    }

    /// Adds a message.
    pub(super) fn push(&mut self, Remembered { id, message, by }: Remembered) {
        if self.tokens.len() == self.prompt
            && let Message::User { text } = &message
        {
            self.prompt_bytes = text.len();
        }
        self.tokens.push(tokens_of(&message));
        self.origins.push(Origin { entry: id, by });
        // Nobody else holds it once a request is over, unless requests are being recorded.
        Arc::make_mut(&mut self.messages).push(message);
    }

    /// The next request goes to `model` (`provider/model`): the reasoning of others is taken out.
    /// The transcript keeps it, and a turn never goes back to a model that it has left.
    pub(super) fn is_for(&mut self, model: &str) {
        if self.model.as_deref() == Some(model) {
            return;
        }
        self.model = Some(model.to_owned());
        self.counted = None;
        let messages = Arc::make_mut(&mut self.messages).iter_mut();
        for ((message, origin), tokens) in messages.zip(&self.origins).zip(&mut self.tokens) {
            if let Message::Assistant(said) = message
                && origin.by.as_deref() != Some(model)
            {
                said.reasoning.clear();
                said.thinking.clear();
                *tokens = tokens_of(message);
            }
        }
    }

    /// A request with all that was said.
    pub(super) fn request(&self, model: &str) -> Request {
        Request {
            system: self.system.clone(),
            messages: Arc::clone(&self.messages),
            tools: Arc::clone(&self.tools),
            ..Request::of_prompt(model, "")
        }
    }

    /// What was said, oldest first.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// How many tokens the next request has.
    pub(super) fn tokens(&self) -> u64 {
        match &self.counted {
            Some(it) => it.tokens + self.sum(it.messages..self.tokens.len()),
            None => self.frame + self.sum(0..self.tokens.len()),
        }
    }

    /// The last message is an answer, and `usage` was counted for it and for what was sent.
    pub(super) fn counted(&mut self, usage: Usage) {
        let messages = self.tokens.len();
        let answer = self.tokens.last().copied().unwrap_or(0);
        let sent = self.frame + self.sum(0..messages - 1);
        let believed = usage.input_tokens.filter(|&it| it.saturating_mul(COUNTED_MIN) >= sent);
        // What a model thinks counts for its answer, and is mostly not sent back.
        let answer = usage.output_tokens.map_or(answer, |output| output.min(answer));
        self.counted = believed.map(|input| Counted { tokens: input + answer, messages });
    }

    /// What there is to be cut.
    pub(super) fn conversation(&self) -> Conversation<'_> {
        Conversation { messages: &self.messages, tokens: &self.tokens, prompt: self.prompt }
    }

    /// What `plan` puts into a summary.
    pub(super) fn shortened(&self, plan: &CompactionPlan) -> Shortened<'_> {
        let before = self.messages[..plan.kept_from].iter().enumerate();
        let (task, summary) = match (plan.prompt, &self.messages[self.prompt]) {
            (PromptPlace::CarriedOver, Message::User { text }) => {
                let (task, summary) = text.split_at(self.prompt_bytes.min(text.len()));
                (Some(task), Some(summary).filter(|it| !it.is_empty()))
            }
            _ => (None, None),
        };
        let messages = before.filter(|(at, _)| *at != self.prompt).map(|(_, it)| it).collect();
        Shortened { task, summary, messages }
    }

    /// The entry of the first message that `plan` keeps.
    pub(super) fn first_kept(&self, plan: &CompactionPlan) -> u64 {
        self.origins[plan.kept_from].entry
    }

    /// Puts `summary`, the entry `entry` of the transcript, in the place of what `plan` shortens.
    pub(super) fn shorten(&mut self, plan: &CompactionPlan, summary: &str, entry: u64) {
        let (head, head_entry) = match (plan.prompt, &self.messages[self.prompt]) {
            (PromptPlace::CarriedOver, Message::User { text }) => {
                let task = &text[..self.prompt_bytes.min(text.len())];
                (format!("{task}\n\n{summary}"), self.origins[self.prompt].entry)
            }
            _ => (summary.to_owned(), entry),
        };
        self.prompt = match plan.prompt {
            PromptPlace::CarriedOver => 0,
            PromptPlace::Kept => self.prompt - plan.kept_from + 1,
        };
        let head = Message::User { text: head };
        let replaced = 0..plan.kept_from;
        self.tokens.splice(replaced.clone(), [tokens_of(&head)]);
        self.origins.splice(replaced.clone(), [Origin { entry: head_entry, by: None }]);
        Arc::make_mut(&mut self.messages).splice(replaced, [head]);
        self.counted = None;
    }

    /// Shortens each result of a tool that has more than `chars_max` characters by `cut`. Returns
    /// how many there were.
    pub(super) fn cut_results(
        &mut self,
        chars_max: usize,
        cut: fn(&str, usize) -> String,
    ) -> usize {
        let mut count = 0;
        let messages = Arc::make_mut(&mut self.messages).iter_mut();
        for (message, tokens) in messages.zip(&mut self.tokens) {
            let Message::ToolResult { content, .. } = message else { continue };
            let shorter = cut(content, chars_max);
            if tokens_in(&shorter) < tokens_in(content) {
                *content = shorter;
                *tokens = tokens_of(message);
                count += 1;
            }
        }
        if count > 0 {
            self.counted = None;
        }
        count
    }

    fn sum(&self, of: Range<usize>) -> u64 {
        self.tokens[of].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::compaction::plan_compaction;
    use super::*;
    use crate::provider::AssistantTurn;

    fn talk() -> Talk {
        let mut talk = Talk::begin("be brief".to_owned(), Vec::new(), Vec::new());
        talk.push(remembered(Message::User { text: "the task".to_owned() }, 1));
        talk.is_for("local/m");
        talk
    }

    fn remembered(message: Message, id: u64) -> Remembered {
        Remembered { id, message, by: Some("local/m".to_owned()) }
    }

    fn said(text: &str) -> Message {
        Message::Assistant(AssistantTurn { text: text.to_owned(), ..AssistantTurn::default() })
    }

    fn usage(input: u64, output: u64) -> Usage {
        Usage { input_tokens: Some(input), output_tokens: Some(output), ..Usage::default() }
    }

    // semantics §7: the provider's own numbers, and an estimate of what came after them.
    #[test]
    fn what_a_provider_counted_counts_and_the_rest_is_estimated() {
        let mut talk = talk();
        let begun = talk.tokens();
        talk.push(remembered(said(&"word ".repeat(100)), 2));
        let answer = talk.tokens() - begun;
        // It thought a lot, and that is not sent back.
        talk.counted(usage(1000, 5000));
        assert_eq!(talk.tokens(), 1000 + answer);
        talk.counted(usage(1000, 7));
        assert_eq!(talk.tokens(), 1007);
        let more = Message::User { text: "and more".to_owned() };
        let estimate = tokens_of(&more);
        talk.push(remembered(more, 3));
        assert_eq!(talk.tokens(), 1007 + estimate);
        // A number that leaves out what is in a cache is none.
        talk.push(remembered(said("fine"), 4));
        talk.counted(usage(3, 1));
        assert!(talk.tokens() > begun + answer);
        talk.counted(Usage::default());
        assert!(talk.tokens() > begun + answer);
        // Another model counts otherwise.
        talk.counted(usage(9999, 1));
        assert!(talk.tokens() > 9000);
        talk.is_for("local/other");
        assert!(talk.tokens() < 1000);
    }

    #[test]
    fn reasoning_is_for_the_model_that_made_it() {
        let mut talk = talk();
        let thought = AssistantTurn {
            text: "fine".to_owned(),
            reasoning: "hm ".repeat(99),
            ..AssistantTurn::default()
        };
        talk.push(remembered(Message::Assistant(thought.clone()), 2));
        let before = talk.tokens();
        talk.is_for("local/m");
        assert_eq!(talk.request("m").messages[1], Message::Assistant(thought));
        talk.is_for("local/other");
        assert_eq!(talk.request("other").messages[1], said("fine"));
        assert!(talk.tokens() + 60 < before);
    }

    #[test]
    fn a_prompt_after_earlier_turns_is_kept_apart_from_them() {
        let user = |text: &str| Message::User { text: text.to_owned() };
        let history =
            vec![remembered(user("earlier"), 1), remembered(said(&"word ".repeat(600)), 2)];
        let mut talk = Talk::begin(String::new(), Vec::new(), history);
        talk.push(remembered(user("the task"), 3));
        talk.push(remembered(said("last"), 4));
        let plan = plan_compaction(talk.conversation(), 50).unwrap();
        assert_eq!((plan.kept_from, talk.first_kept(&plan)), (2, 3));
        assert_eq!(talk.shortened(&plan).task, None);
        assert_eq!(talk.shortened(&plan).messages.len(), 2);
        talk.shorten(&plan, "the summary", 5);
        let now = [user("the summary"), user("the task"), said("last")];
        assert_eq!(*talk.request("m").messages, now);
        talk.push(remembered(said(&"word ".repeat(600)), 6));
        talk.push(remembered(said("at the end"), 7));
        let plan = plan_compaction(talk.conversation(), 10).unwrap();
        assert_eq!(talk.shortened(&plan).task, Some("the task"));
        assert_eq!(talk.shortened(&plan).messages.len(), 3);
        talk.shorten(&plan, "another", 8);
        let now = [user("the task\n\nanother"), said("at the end")];
        assert_eq!(*talk.request("m").messages, now);
    }

    // semantics §7: the first prompt of the turn is not lost, however often it is shortened.
    #[test]
    fn the_prompt_stays_word_for_word_and_each_summary_takes_the_place_of_the_last() {
        let mut talk = talk();
        for n in 0..3 {
            talk.push(remembered(said(&format!("step {n} {}", "word ".repeat(600))), 10 + n));
            talk.push(remembered(said("last"), 20 + n));
            let plan = plan_compaction(talk.conversation(), 10).unwrap();
            let shortened = talk.shortened(&plan);
            assert_eq!(shortened.task, Some("the task"));
            let before = n.checked_sub(1).map(|n| format!("\n\nsummary {n}"));
            assert_eq!(shortened.summary, before.as_deref());
            assert_eq!(talk.first_kept(&plan), 20 + n);
            let tokens = talk.tokens();
            talk.shorten(&plan, &format!("summary {n}"), 30 + n);
            assert!(talk.tokens() < tokens);
            let request = talk.request("m");
            let text = format!("the task\n\nsummary {n}");
            assert_eq!(*request.messages, [Message::User { text }, said("last")]);
        }
    }
}
