//! How much a model is to think, in the words of each API.
//!
//! The levels are one list for all; what a model takes is not. Each function below is a table over
//! (model, level) that sends what the makers document and nothing that a model is known to refuse.
//! Where a model cannot be told, nothing is sent: it then thinks as it always does.

use serde_json::{Value, json};

use super::{Fault, FaultClass, Message, Request};
use crate::job::Thinking;

/// Whose chat completions these are: they take different words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// `OpenAI` itself.
    OpenAi,
    /// `OpenRouter`, which takes every word and finds the nearest that a model knows.
    OpenRouter,
    /// Anybody else who speaks like them. Three words are known everywhere.
    Alike,
}

impl Speaker {
    pub fn of_host(host: Option<&str>) -> Self {
        match host {
            Some("api.openai.com") => Self::OpenAi,
            Some("openrouter.ai") => Self::OpenRouter,
            _ => Self::Alike,
        }
    }
}

/// `reasoning_effort` of chat completions.
pub(super) fn effort(speaker: Speaker, model: &str, level: Thinking) -> Option<&'static str> {
    use Thinking::{High, Low, Medium, Minimal, Off, Xhigh};
    let family = Gpt::of(model);
    Some(match (speaker, level, family) {
        // The first of the line takes no `none`; those after it take no `minimal`.
        (Speaker::OpenAi, Off | Minimal, Gpt::Five(0)) => "minimal",
        (Speaker::OpenAi, Off, Gpt::Five(_)) => "none",
        (_, Off, _) => return None,
        (Speaker::OpenRouter, level, _) => level.as_str(),
        (_, Minimal | Low, _) => "low",
        (_, Medium, _) => "medium",
        (Speaker::OpenAi, Xhigh, Gpt::Five(2..)) => "xhigh",
        (_, High | Xhigh, _) => "high",
    })
}

/// What a name says of a model of `OpenAI`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gpt {
    /// `gpt-5.N`, and its small ones.
    Five(u32),
    /// Any other, also those of the line that have habits of their own (`-pro`, `-codex`, `-chat`).
    Other,
}

impl Gpt {
    fn of(model: &str) -> Self {
        let Some(rest) = model.strip_prefix("gpt-5") else { return Self::Other };
        let (minor, rest) = match rest.strip_prefix('.') {
            None => (Some(0), rest),
            Some(rest) => {
                let digits =
                    rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                (rest[..digits].parse().ok(), &rest[digits..])
            }
        };
        // What may follow is a size and a date.
        let is_plain = rest
            .split('-')
            .skip(1)
            .all(|part| matches!(part, "mini" | "nano") || part.parse::<u32>().is_ok());
        match minor {
            Some(minor) if is_plain && (rest.is_empty() || rest.starts_with('-')) => {
                Self::Five(minor)
            }
            _ => Self::Other,
        }
    }
}

/// `think` of Ollama's chat. It takes `false` for every model, and levels of those that have them.
pub(super) fn think(model: &str, level: Thinking) -> Value {
    match level {
        Thinking::Off => false.into(),
        _ if !model.contains("gpt-oss") => true.into(),
        Thinking::Minimal | Thinking::Low => "low".into(),
        Thinking::Medium => "medium".into(),
        Thinking::High | Thinking::Xhigh => "high".into(),
    }
}

/// What the messages API is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing.
    Nothing,
    /// It is not to think.
    Disabled,
    /// It cannot but think: as little as it can.
    Least,
    /// So many tokens of thought.
    Budget(u32),
    /// As it sees fit, with this effort.
    Adaptive(&'static str),
}

/// What the messages API is told of a level (documented in November 2026): up to 4.5 there are
/// budgets, from 4.6 on efforts, from 4.7 on no budgets any more, from 5 on a model that is told
/// nothing thinks, and some cannot be told not to.
pub(super) fn said(model: &str, level: Thinking) -> Said {
    use Thinking::{High, Low, Medium, Minimal, Off, Xhigh};
    let claude = Claude::of(model);
    match (claude, level) {
        (Claude::Thinks, Off) => Said::Least,
        (Claude::Version(5.., _), Off) => Said::Disabled,
        (_, Off) => Said::Nothing,
        (Claude::None | Claude::Version(..4, _) | Claude::Version(4, ..6), level) => {
            Said::Budget(budget(level))
        }
        (_, Minimal | Low) => Said::Adaptive("low"),
        (_, Medium) => Said::Adaptive("medium"),
        (_, High) => Said::Adaptive("high"),
        (Claude::Version(4, 6), Xhigh) => Said::Adaptive("max"),
        (_, Xhigh) => Said::Adaptive("xhigh"),
    }
}

/// Tokens of thought.
pub(super) const fn budget(level: Thinking) -> u32 {
    match level {
        Thinking::Off => 0,
        // The least that the API takes.
        Thinking::Minimal => BUDGET_MIN,
        Thinking::Low => 4_096,
        Thinking::Medium => 10_240,
        Thinking::High => 20_480,
        Thinking::Xhigh => 32_000,
    }
}

/// The API refuses less.
pub(super) const BUDGET_MIN: u32 = 1_024;

/// What a name says of a model of the messages API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claude {
    /// Somebody else's model behind the same API.
    None,
    /// One whose thinking can be turned off.
    Version(u32, u32),
    /// One whose thinking cannot.
    Thinks,
}

impl Claude {
    fn of(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let Some(at) = name.find("claude") else { return Self::None };
        let parts: Vec<&str> = name[at..].split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let has = |word: &str| parts.contains(&word);
        // A date has eight digits.
        let mut numbers = parts.iter().filter(|it| it.len() <= 2).filter_map(|it| it.parse().ok());
        let version = (numbers.next(), numbers.next().unwrap_or(0));
        match version {
            _ if has("fable") || has("mythos") => Self::Thinks,
            (Some(5), 5..) if has("opus") || has("sonnet") => Self::Thinks,
            (Some(major), minor) => Self::Version(major, minor),
            // A name without a number: the newest, as far as anybody can tell.
            (None, _) => Self::Thinks,
        }
    }
}

/// Whether a budget can be asked for at this point: with one, the last turn of a tool loop has to
/// begin with its thoughts, and after a change of the model it has none.
pub(super) fn may_begin_to_think(conversation: &[Message]) -> bool {
    let tail = conversation.iter().rev().take_while(|it| !matches!(it, Message::User { .. }));
    tail.filter_map(|message| match message {
        Message::Assistant(turn) => Some(turn),
        Message::User { .. } | Message::ToolResult { .. } => None,
    })
    .all(|turn| !turn.thinking.is_empty())
}

/// The keys of the messages API that say how much to think, in a body that has its `max_tokens`.
/// Thoughts count as output: `room` is what an answer without them may have.
pub(super) fn tell(body: &mut Value, request: &Request, room: u32) -> Result<(), Fault> {
    let level = request.thinking;
    let most = match (request.max_output_tokens, level) {
        (Some(most), _) => most,
        (None, level) => room + budget(level),
    };
    body["max_tokens"] = most.into();
    match said(&request.model, level) {
        Said::Nothing => {}
        Said::Disabled => body["thinking"] = json!({"type": "disabled"}),
        Said::Least => body["output_config"] = json!({"effort": "low"}),
        Said::Adaptive(effort) => {
            // Newer models show their thoughts only when asked.
            body["thinking"] = json!({"type": "adaptive", "display": "summarized"});
            body["output_config"] = json!({"effort": effort});
        }
        Said::Budget(_) if !may_begin_to_think(&request.messages) => {}
        Said::Budget(budget) => {
            // A quarter of what was allowed is for the answer.
            let share = request.max_output_tokens.map_or(budget, |most| most - most / 4);
            let budget = budget.min(share).max(BUDGET_MIN);
            if budget >= most {
                let words = format!(
                    "`thinking = \"{level}\"` needs a `max_output_tokens` above {BUDGET_MIN} of \
                     the model; it is {most}"
                );
                return Err(Fault::new(FaultClass::BadRequest, words));
            }
            body["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
        }
    }
    Ok(())
}

/// A refusal that is about thinking says which key asked for it.
pub(crate) fn explained(fault: Fault, model: &str, level: Thinking) -> Fault {
    let words = fault.message.to_lowercase();
    let is_about = ["reasoning", "thinking", "think", "effort", "budget_tokens"]
        .iter()
        .any(|word| words.contains(word));
    let is_refused = matches!(fault.class, FaultClass::BadRequest | FaultClass::Other);
    if level == Thinking::Off || !is_refused || !is_about || words.contains("`thinking") {
        return fault;
    }
    let message = format!(
        "{} (`thinking = \"{level}\"`, of the job or of [agents.defaults]: `{model}` does not take \
         it)",
        fault.message
    );
    Fault { message, ..fault }
}

#[cfg(test)]
mod tests {
    use super::super::{AssistantTurn, ToolCall};
    use super::*;

    /// semantics §7: thinking levels `off, minimal, low, medium, high, xhigh`, mapped per provider.
    #[test]
    fn each_api_has_its_words_for_each_level() {
        let openai = |model: &str| {
            Thinking::ALL.iter().map(|&it| effort(Speaker::OpenAi, model, it)).collect::<Vec<_>>()
        };
        let some = |words: [&'static str; 6]| words.map(Some).to_vec();
        let unknown = [None, Some("low"), Some("low"), Some("medium"), Some("high"), Some("high")];
        for model in ["gpt-5", "gpt-5-mini", "gpt-5-nano-2025-08-07"] {
            let words = ["minimal", "minimal", "low", "medium", "high", "high"];
            assert_eq!(openai(model), some(words), "{model}");
        }
        let words = ["none", "low", "low", "medium", "high", "high"];
        assert_eq!(openai("gpt-5.1"), some(words));
        for model in ["gpt-5.2", "gpt-5.4-mini", "gpt-5.10-2026-03-05"] {
            let words = ["none", "low", "low", "medium", "high", "xhigh"];
            assert_eq!(openai(model), some(words), "{model}");
        }
        for model in ["gpt-4.1", "o3", "gpt-5-pro", "gpt-5.2-codex", "gpt-5-chat-latest", "gpt-50"]
        {
            assert_eq!(openai(model), unknown, "{model}");
        }
        for (host, expected) in [
            (Some("127.0.0.1"), unknown.to_vec()),
            (
                Some("openrouter.ai"),
                [None, Some("minimal"), Some("low"), Some("medium"), Some("high"), Some("xhigh")]
                    .to_vec(),
            ),
        ] {
            let speaker = Speaker::of_host(host);
            let found = Thinking::ALL.iter().map(|&it| effort(speaker, "gpt-5", it));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{host:?}");
        }

        let ollama = |model| Thinking::ALL.iter().map(|&it| think(model, it)).collect::<Value>();
        assert_eq!(ollama("qwen3:8b"), json!([false, true, true, true, true, true]));
        assert_eq!(ollama("gpt-oss:20b"), json!([false, "low", "low", "medium", "high", "high"]));
    }

    /// The same of the messages API.
    #[test]
    fn each_generation_of_the_messages_api_is_told_otherwise() {
        use Said::{Adaptive, Budget, Disabled, Least, Nothing};
        let efforts = ["low", "low", "medium", "high", "xhigh"].map(Adaptive);
        let until_46 = ["low", "low", "medium", "high", "max"].map(Adaptive);
        let budgets = [1_024, 4_096, 10_240, 20_480, 32_000].map(Budget);
        let table = [
            ("claude-3-7-sonnet-20250219", Nothing, budgets),
            ("claude-opus-4-20250514", Nothing, budgets),
            ("claude-haiku-4-5-20251001", Nothing, budgets),
            ("glm-5", Nothing, budgets),
            ("claude-sonnet-4-6", Nothing, until_46),
            ("anthropic/claude-opus-4.6", Nothing, until_46),
            ("claude-opus-4-8", Nothing, efforts),
            ("claude-opus-5", Disabled, efforts),
            ("claude-sonnet-5", Disabled, efforts),
            ("claude-haiku-5-5", Disabled, efforts),
            ("claude-opus-5-5", Least, efforts),
            ("claude-sonnet-5-5", Least, efforts),
            ("claude-fable-5-1", Least, efforts),
            ("claude-mythos-preview", Least, efforts),
        ];
        for (model, off, on) in table {
            assert_eq!(said(model, Thinking::Off), off, "{model}");
            let levels = Thinking::ALL[1..].iter().map(|&level| said(model, level));
            assert_eq!(levels.collect::<Vec<_>>(), on, "{model}");
        }
    }

    fn asked(model: &str, level: Thinking, most: Option<u32>) -> Request {
        Request { thinking: level, max_output_tokens: most, ..Request::of_prompt(model, "go") }
    }

    #[test]
    fn a_budget_stays_below_the_output_limit() {
        let table = [
            (Thinking::Off, None, json!({"max_tokens": 4096})),
            (
                Thinking::Low,
                None,
                json!({"max_tokens": 8192, "thinking": {"type": "enabled", "budget_tokens": 4096}}),
            ),
            (
                Thinking::High,
                Some(8_000),
                json!({"max_tokens": 8000, "thinking": {"type": "enabled", "budget_tokens": 6000}}),
            ),
            (
                Thinking::High,
                Some(1_100),
                json!({"max_tokens": 1100, "thinking": {"type": "enabled", "budget_tokens": 1024}}),
            ),
        ];
        for (level, most, expected) in table {
            let mut body = json!({});
            tell(&mut body, &asked("claude-sonnet-4-5", level, most), 4096).unwrap();
            assert_eq!(body, expected);
        }
        let fault =
            tell(&mut json!({}), &asked("m", Thinking::Low, Some(1_024)), 4096).unwrap_err();
        assert_eq!(fault.class, FaultClass::BadRequest);
        assert!(fault.message.contains("`thinking = \"low\"`"), "{fault}");
    }

    #[test]
    fn a_tool_loop_that_began_without_thoughts_goes_on_without() {
        let call =
            ToolCall { id: "c".into(), name: "exec".into(), arguments: serde_json::Map::new() };
        let called = |thinking: Vec<Value>| {
            let turn = AssistantTurn {
                thinking,
                tool_calls: vec![call.clone()],
                ..AssistantTurn::default()
            };
            Message::Assistant(turn)
        };
        let user = || Message::User { text: "go".into() };
        let thought = || vec![json!({"type": "thinking"})];
        assert!(may_begin_to_think(&[user()]));
        assert!(may_begin_to_think(&[user(), called(Vec::new()), user()]));
        assert!(may_begin_to_think(&[user(), called(thought())]));
        assert!(!may_begin_to_think(&[user(), called(Vec::new())]));
        assert!(!may_begin_to_think(&[user(), called(Vec::new()), called(thought())]));
    }

    #[test]
    fn only_a_refusal_of_thinking_names_the_key() {
        let fault = |class, words: &str| Fault::new(class, words);
        let unknown =
            fault(FaultClass::BadRequest, "Unrecognized request argument: reasoning_effort");
        let told = explained(unknown.clone(), "m", Thinking::High).message;
        assert!(
            told.starts_with(&unknown.message) && told.contains("`thinking = \"high\"`"),
            "{told}"
        );
        assert_eq!(explained(unknown.clone(), "m", Thinking::Off), unknown);
        for other in [
            fault(FaultClass::BadRequest, "messages: too many"),
            fault(FaultClass::ServerError, "thinking failed"),
        ] {
            assert_eq!(explained(other.clone(), "m", Thinking::High), other);
        }
    }
}
