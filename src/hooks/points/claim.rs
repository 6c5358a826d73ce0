//! `before_agent_reply`: an answer in place of the model's, or none.

use serde::{Deserialize, Serialize};

use crate::config::HookPoint;
use crate::hooks::point::{Point, Rule, Taken};

/// All is ready for the first model call of the turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BeforeAgentReply {
    /// What the turn is asked, with all that was added to it.
    pub prompt: String,
    /// Which model would answer.
    pub model: String,
}

/// What a hook may answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimAnswer {
    /// This is the answer.
    pub reply: Option<String>,
    /// Nothing is said.
    pub silence: Option<bool>,
}

/// What becomes of the turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Claim {
    /// The model answers.
    #[default]
    Model,
    /// A hook has answered.
    Reply {
        /// Which one.
        by: String,
        /// What it said.
        text: String,
    },
    /// A hook has silenced the turn.
    Silence {
        /// Which one.
        by: String,
    },
}

impl Point for BeforeAgentReply {
    const POINT: HookPoint = HookPoint::BeforeAgentReply;
    type Answer = ClaimAnswer;
}

impl Rule for BeforeAgentReply {
    type Verdict = Claim;

    fn take(&mut self, verdict: &mut Claim, answer: ClaimAnswer, by: &str) -> Taken {
        let by = by.to_owned();
        *verdict = match (answer.silence, answer.reply) {
            (Some(true), _) => Claim::Silence { by },
            (Some(false) | None, Some(text)) => Claim::Reply { by, text },
            (Some(false) | None, None) => return Taken::Nothing,
        };
        Taken::Claimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_agent_reply_the_first_claim_has_the_last_word() {
        // semantics §8, row before_agent_reply
        let answer =
            |silence, reply: Option<&str>| ClaimAnswer { silence, reply: reply.map(str::to_owned) };
        let reply = |text: &str| Claim::Reply { by: "hook".into(), text: text.into() };
        let silence = Claim::Silence { by: "hook".into() };
        let table = [
            (answer(None, None), Claim::Model, Taken::Nothing),
            (answer(Some(false), None), Claim::Model, Taken::Nothing),
            (answer(None, Some("here")), reply("here"), Taken::Claimed),
            (answer(None, Some("")), reply(""), Taken::Claimed),
            (answer(Some(false), Some("here")), reply("here"), Taken::Claimed),
            (answer(Some(true), None), silence.clone(), Taken::Claimed),
            (answer(Some(true), Some("here")), silence, Taken::Claimed),
        ];
        for (answer, expected, taken) in table {
            let mut verdict = Claim::default();
            let mut asked = BeforeAgentReply { prompt: "p".into(), model: "m".into() };
            assert_eq!(asked.take(&mut verdict, answer.clone(), "hook"), taken, "{answer:?}");
            assert_eq!(verdict, expected, "{answer:?}");
        }
    }
}
