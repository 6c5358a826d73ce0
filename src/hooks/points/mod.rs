//! Every point: what its hooks are given, what they may answer, what the answers come to.

mod bootstrap;
mod claim;
mod gates;
mod model;
mod observed;
mod prompt;
mod results;

pub use bootstrap::{AgentBootstrap, BootstrapChange, BootstrapFile};
pub use claim::{BeforeAgentReply, Claim, ClaimAnswer};
pub use gates::{
    BeforeInstall, BeforeToolCall, Blocked, CancelAnswer, Ends, Gate, InstallAnswer,
    MessageSending, Refusal, ToolCallAnswer, ToolGate,
};
pub use model::{BeforeModelResolve, ModelChoice};
pub use observed::{
    AfterCompaction, AfterToolCall, AgentEnd, BeforeCompaction, CommandGiven, GatewayShutdown,
    GatewayStart, GatewayStartup, GatewayStop, Ignored, MessageReceived, MessageSent, SessionEnd,
    SessionStart,
};
pub use prompt::{BeforeAgentStart, BeforePromptBuild, LegacyParts, PromptParts};
pub use results::{ResultChange, ToolResultPersist};

use crate::provider::Message;

/// The most that a hook is given of a conversation, as JSON: what a pipe and a script can take
/// within a second.
const MESSAGES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The newest messages, as many as a hook is given, and how many older ones are left out.
pub fn newest<'a>(messages: impl DoubleEndedIterator<Item = &'a Message>) -> (Vec<Message>, usize) {
    let (mut bytes, mut omitted) = (0, 0);
    let mut newest = Vec::new();
    for message in messages.rev() {
        bytes += serde_json::to_string(message).map_or(0, |text| text.len());
        if bytes <= MESSAGES_BYTES_MAX {
            newest.push(message.clone());
        } else {
            omitted += 1;
        }
    }
    newest.reverse();
    (newest, omitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_given_the_newest_messages_and_the_number_of_the_others() {
        let message = |text: String| Message::User { text };
        let long: Vec<_> = (0..5).map(|n| message(format!("{n}{}", "x".repeat(1 << 20)))).collect();
        assert_eq!(newest(long.iter()), (long[2..].to_vec(), 2));
        let short = vec![message("a".into()), message("b".into())];
        assert_eq!(newest(short.iter()), (short.clone(), 0));
    }
}
