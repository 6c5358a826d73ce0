//! The gates: `before_tool_call`, `before_install`, `message_sending`.
//!
//! A no is final, and nobody of lower priority is asked. Saying that one does not refuse decides
//! nothing: it lifts no other hook's no. A gate that gives no answer says no.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::HookPoint;
use crate::hooks::point::{HookFault, Point, Rule, Taken};

/// The most that is passed on of a hook's reason.
const REASON_CHARS_MAX: usize = 500;

/// A no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// Which hook.
    pub by: String,
    /// Why, in its words.
    pub reason: String,
    /// Whether it said so.
    pub refusal: Refusal,
    /// What comes to its end with it.
    pub ends: Ends,
}

/// How a gate came to a no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The hook said so.
    Said,
    /// The hook gave no answer.
    NoAnswer,
}

/// What comes to its end with a no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// What was asked for.
    Request,
    /// The whole run.
    Run,
}

impl Blocked {
    fn said(by: &str, reason: Option<String>, ends: Ends) -> Self {
        let reason = reason.unwrap_or_else(|| "it gives no reason".to_owned());
        let reason = reason.chars().take(REASON_CHARS_MAX).collect();
        Self { by: by.to_owned(), reason, refusal: Refusal::Said, ends }
    }

    fn no_answer(by: &str, fault: &HookFault) -> Self {
        let (by, reason) = (by.to_owned(), fault.to_string());
        Self { by, reason, refusal: Refusal::NoAnswer, ends: Ends::Request }
    }
}

impl std::fmt::Display for Blocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { by, reason, refusal, .. } = self;
        match refusal {
            Refusal::Said => write!(f, "the hook `{by}` refuses it: {reason}"),
            Refusal::NoAnswer => {
                write!(f, "the hook `{by}`, which has to agree, gave no answer: {reason}")
            }
        }
    }
}

/// A tool is about to be called.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BeforeToolCall {
    /// The call's id.
    pub call_id: String,
    /// Which tool.
    pub tool: String,
    /// With what.
    pub arguments: Map<String, Value>,
}

/// What a hook may answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCallAnswer {
    /// `true`: the call is not made.
    pub block: Option<bool>,
    /// Why not; the model is told.
    pub reason: Option<String>,
    /// With `block`: the run ends with it.
    pub end_run: Option<bool>,
    /// In place of the arguments, all of them.
    pub arguments: Option<Map<String, Value>>,
}

/// What becomes of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolGate {
    /// It is made with these arguments.
    pub arguments: Option<Map<String, Value>>,
    /// It is not made.
    pub blocked: Option<Blocked>,
}

impl Point for BeforeToolCall {
    const POINT: HookPoint = HookPoint::BeforeToolCall;
    type Answer = ToolCallAnswer;
}

impl Rule for BeforeToolCall {
    type Verdict = ToolGate;

    fn take(&mut self, verdict: &mut ToolGate, answer: ToolCallAnswer, by: &str) -> Taken {
        if answer.block == Some(true) {
            let ends = if answer.end_run == Some(true) { Ends::Run } else { Ends::Request };
            verdict.blocked = Some(Blocked::said(by, answer.reason, ends));
            return Taken::Blocked;
        }
        match answer.arguments {
            Some(arguments) if arguments != self.arguments => {
                self.arguments.clone_from(&arguments);
                verdict.arguments = Some(arguments);
                Taken::Changed(vec!["arguments"])
            }
            Some(_) | None => Taken::Nothing,
        }
    }

    fn missed(verdict: &mut ToolGate, by: &str, fault: &HookFault) -> Taken {
        verdict.blocked = Some(Blocked::no_answer(by, fault));
        Taken::Blocked
    }
}

/// What becomes of what a gate was asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gate {
    /// It is not done.
    pub blocked: Option<Blocked>,
}

impl Gate {
    fn take(&mut self, no: Option<bool>, reason: Option<String>, by: &str) -> Taken {
        if no != Some(true) {
            return Taken::Nothing;
        }
        self.blocked = Some(Blocked::said(by, reason, Ends::Request));
        Taken::Blocked
    }

    fn missed(&mut self, by: &str, fault: &HookFault) -> Taken {
        self.blocked = Some(Blocked::no_answer(by, fault));
        Taken::Blocked
    }
}

/// Something was fetched, the operator's policy lets it through, and it is about to be installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BeforeInstall {
    /// `skill` or `plugin`.
    pub kind: String,
    /// What it is called.
    pub name: String,
    /// Where it came from.
    pub source: String,
    /// The folder in which it waits.
    pub staged: std::path::PathBuf,
    /// `install` or `update`.
    pub action: String,
}

/// What a hook may answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstallAnswer {
    /// `true`: it is not installed.
    pub block: Option<bool>,
    /// Why not.
    pub reason: Option<String>,
}

impl Point for BeforeInstall {
    const POINT: HookPoint = HookPoint::BeforeInstall;
    type Answer = InstallAnswer;
}

impl Rule for BeforeInstall {
    type Verdict = Gate;

    fn take(&mut self, verdict: &mut Gate, answer: InstallAnswer, by: &str) -> Taken {
        verdict.take(answer.block, answer.reason, by)
    }

    fn missed(verdict: &mut Gate, by: &str, fault: &HookFault) -> Taken {
        verdict.missed(by, fault)
    }

    fn is_seen_by_the_model() -> bool {
        false
    }
}

/// A message is about to go out: a call of the tool `message`, or a row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageSending {
    /// To which target.
    pub target: String,
    /// What it says.
    pub text: String,
    /// The subject, where there is one.
    pub subject: Option<String>,
    /// `message` or `delivery`.
    pub via: &'static str,
    /// The delivery, where it is one.
    pub delivery_id: Option<String>,
}

/// What a hook may answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelAnswer {
    /// `true`: it is not sent.
    pub cancel: Option<bool>,
    /// Why not.
    pub reason: Option<String>,
}

impl Point for MessageSending {
    const POINT: HookPoint = HookPoint::MessageSending;
    type Answer = CancelAnswer;
}

impl Rule for MessageSending {
    type Verdict = Gate;

    fn take(&mut self, verdict: &mut Gate, answer: CancelAnswer, by: &str) -> Taken {
        verdict.take(answer.cancel, answer.reason, by)
    }

    fn missed(verdict: &mut Gate, by: &str, fault: &HookFault) -> Taken {
        verdict.missed(by, fault)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call() -> BeforeToolCall {
        let arguments = json!({ "path": "a" }).as_object().unwrap().clone();
        BeforeToolCall { call_id: "1".into(), tool: "read".into(), arguments }
    }

    fn answer(value: Value) -> ToolCallAnswer {
        serde_json::from_value(value).unwrap()
    }

    /// Asks in order until one has the last word, as the site does; a number is a fault.
    fn asked(answers: &[Value]) -> (ToolGate, usize) {
        let (mut verdict, mut call) = (ToolGate::default(), call());
        for (it, n) in answers.iter().zip(1..) {
            let taken = match it {
                Value::Number(_) => {
                    BeforeToolCall::missed(&mut verdict, &format!("h{n}"), &HookFault::Panicked)
                }
                it => call.take(&mut verdict, answer(it.clone()), &format!("h{n}")),
            };
            if taken == Taken::Blocked {
                return (verdict, n);
            }
        }
        (verdict, answers.len())
    }

    #[test]
    fn before_tool_call_block_is_final_and_not_blocking_decides_nothing() {
        // semantics §8, row before_tool_call
        let (yes, no, nothing) = (json!({"block": true}), json!({"block": false}), json!({}));
        let other = json!({"arguments": {"path": "b"}});
        let table = [
            (vec![], None, 0),
            (vec![nothing.clone(), no.clone()], None, 2),
            (vec![yes.clone(), no.clone()], Some("h1"), 1),
            (vec![no.clone(), yes.clone(), other.clone()], Some("h2"), 2),
            (vec![other.clone(), yes], Some("h2"), 2),
            // Fails closed: no answer is a no.
            (vec![no.clone(), json!(1), no], Some("h2"), 2),
            (vec![json!(1)], Some("h1"), 1),
        ];
        for (answers, by, asked_of) in table {
            let (verdict, n) = asked(&answers);
            assert_eq!(verdict.blocked.map(|it| it.by).as_deref(), by, "{answers:?}");
            assert_eq!(n, asked_of, "{answers:?}");
        }
    }

    #[test]
    fn before_tool_call_changed_arguments_are_what_the_next_hook_sees() {
        // semantics §8, row before_tool_call
        let (mut verdict, mut call) = (ToolGate::default(), call());
        let same = answer(json!({"arguments": {"path": "a"}}));
        assert_eq!(call.take(&mut verdict, same, "h"), Taken::Nothing);
        let other = answer(json!({"arguments": {"path": "b"}}));
        assert_eq!(call.take(&mut verdict, other, "h"), Taken::Changed(vec!["arguments"]));
        assert_eq!(Value::from(call.arguments.clone()), json!({"path": "b"}));
        let last = answer(json!({"block": false, "arguments": {}}));
        assert_eq!(call.take(&mut verdict, last, "h"), Taken::Changed(vec!["arguments"]));
        assert_eq!(verdict, ToolGate { arguments: Some(Map::new()), blocked: None });
    }

    #[test]
    fn a_misspelt_or_wrong_answer_is_no_answer() {
        for wrong in ["{\"blok\": true}", "{\"block\": \"yes\"}", "[]", "true", "{} {}", "{"] {
            assert!(BeforeToolCall::read(wrong).is_err(), "{wrong}");
        }
        assert!(MessageSending::read("{\"block\": true}").is_err());
        assert!(BeforeInstall::read("{\"cancel\": true}").is_err());
    }

    #[test]
    fn message_sending_and_before_install_cancel_is_final_and_its_absence_decides_nothing() {
        // semantics §8, rows message_sending and before_install
        let mut message = MessageSending {
            target: "ops".into(),
            text: "t".into(),
            subject: None,
            via: "delivery",
            delivery_id: None,
        };
        let mut install = BeforeInstall {
            kind: "skill".into(),
            name: "n".into(),
            source: "s".into(),
            staged: "/x".into(),
            action: "install".into(),
        };
        for (no, expected) in
            [(None, Taken::Nothing), (Some(false), Taken::Nothing), (Some(true), Taken::Blocked)]
        {
            let (mut sent, mut installed) = (Gate::default(), Gate::default());
            let answer = CancelAnswer { cancel: no, reason: None };
            assert_eq!(message.take(&mut sent, answer, "h"), expected);
            let answer = InstallAnswer { block: no, reason: None };
            assert_eq!(install.take(&mut installed, answer, "h"), expected);
            assert_eq!(sent.blocked.is_some(), no == Some(true));
            assert_eq!(installed.blocked.is_some(), no == Some(true));
            // It never lifts a no.
            let mut before = Gate { blocked: Some(Blocked::no_answer("h", &HookFault::Panicked)) };
            before.take(Some(false), None, "h2");
            assert_eq!(before.blocked.as_ref().map(|it| it.by.as_str()), Some("h"));
        }
        let mut gate = Gate::default();
        let fault = HookFault::TimedOut(std::time::Duration::from_secs(15));
        assert_eq!(MessageSending::missed(&mut gate, "h", &fault), Taken::Blocked);
        let words = gate.blocked.unwrap().to_string();
        assert_eq!(
            words,
            "the hook `h`, which has to agree, gave no answer: it took longer than 15s"
        );
    }
}
