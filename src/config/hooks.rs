//! `[[hooks]]`: commands that look in or step in, and the points where they may.
//!
//! A table that is written wrongly is an error of the configuration: a gate that was misspelt and
//! passed over would be a gate that stands open.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::job::keys::did_you_mean;
use crate::job::tree::{Item, Node};
use crate::job::{Problem, argv_of};

words!(
    /// A point where hooks are asked (semantics §8).
    HookPoint {
        /// Before a model is chosen and the session is loaded: may choose another one.
        BeforeModelResolve = "before_model_resolve",
        /// With the messages of the session: may add to the prompt.
        BeforePromptBuild = "before_prompt_build",
        /// What both of the two before may do, for hooks that are older than they are.
        BeforeAgentStart = "before_agent_start",
        /// Before the first model call: may answer in its place, or silence the turn.
        BeforeAgentReply = "before_agent_reply",
        /// A turn is over.
        AgentEnd = "agent_end",
        /// Before old messages are summed up.
        BeforeCompaction = "before_compaction",
        /// After that.
        AfterCompaction = "after_compaction",
        /// Before a tool is called: may change its arguments, or refuse the call.
        BeforeToolCall = "before_tool_call",
        /// A tool call is over.
        AfterToolCall = "after_tool_call",
        /// Before a tool's result is written to the transcript: may change it.
        ToolResultPersist = "tool_result_persist",
        /// Before something that was fetched is installed: may refuse it.
        BeforeInstall = "before_install",
        /// A message has come in.
        MessageReceived = "message_received",
        /// Before a message goes out: may cancel it.
        MessageSending = "message_sending",
        /// A message has gone out, or could not.
        MessageSent = "message_sent",
        /// A session begins.
        SessionStart = "session_start",
        /// A session ends.
        SessionEnd = "session_end",
        /// `serve` has started.
        GatewayStart = "gateway_start",
        /// `serve` stops.
        GatewayStop = "gateway_stop",
        /// The bootstrap files of a prompt: may add, drop and replace them.
        AgentBootstrap = "agent:bootstrap",
        /// A message was a command such as `/new`; `command:new` is that one alone.
        Command = "command",
        /// `serve` has started.
        GatewayStartup = "gateway:startup",
        /// `serve` stops.
        GatewayShutdown = "gateway:shutdown",
    }
);

/// What hooks of a point may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// Change something.
    Modify,
    /// Do it in our place.
    Claim,
    /// Refuse it.
    Gate,
    /// Look.
    Observe,
}

impl HookPoint {
    /// What its hooks may do.
    pub const fn kind(self) -> HookKind {
        match self {
            Self::BeforeModelResolve
            | Self::BeforePromptBuild
            | Self::BeforeAgentStart
            | Self::ToolResultPersist
            | Self::AgentBootstrap => HookKind::Modify,
            Self::BeforeAgentReply => HookKind::Claim,
            Self::BeforeToolCall | Self::BeforeInstall | Self::MessageSending => HookKind::Gate,
            Self::AgentEnd
            | Self::BeforeCompaction
            | Self::AfterCompaction
            | Self::AfterToolCall
            | Self::MessageReceived
            | Self::MessageSent
            | Self::SessionStart
            | Self::SessionEnd
            | Self::GatewayStart
            | Self::GatewayStop
            | Self::Command
            | Self::GatewayStartup
            | Self::GatewayShutdown => HookKind::Observe,
        }
    }
}

impl HookKind {
    /// How long one hook may take (semantics §8).
    pub const fn budget(self) -> Duration {
        match self {
            Self::Modify | Self::Claim | Self::Gate => Duration::from_secs(15),
            Self::Observe => Duration::from_secs(30),
        }
    }

    /// What such a hook is called.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Modify => "a modifier",
            Self::Claim => "a claim",
            Self::Gate => "a gate",
            Self::Observe => "an observer",
        }
    }
}

/// Where a hook is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookOn {
    /// The point.
    pub point: HookPoint,
    /// Of [`HookPoint::Command`]: this command alone.
    pub command: Option<String>,
}

impl HookOn {
    /// The point, whatever comes there.
    pub const fn all(point: HookPoint) -> Self {
        Self { point, command: None }
    }
}

/// A name that no point has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no hook `{0}`")]
pub struct UnknownHook(pub String);

impl FromStr for HookOn {
    type Err = UnknownHook;

    fn from_str(text: &str) -> Result<Self, UnknownHook> {
        if let Ok(point) = text.parse() {
            return Ok(Self::all(point));
        }
        let is_name = |name: &&str| {
            !name.is_empty()
                && name.chars().all(|it| matches!(it, 'a'..='z' | '0'..='9' | '-' | '_'))
        };
        match text.strip_prefix("command:").filter(is_name) {
            Some(name) => Ok(Self { point: HookPoint::Command, command: Some(name.to_owned()) }),
            None => Err(UnknownHook(text.to_owned())),
        }
    }
}

impl std::fmt::Display for HookOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.command {
            None => f.pad(self.point.as_str()),
            Some(command) => f.pad(&format!("{}:{command}", self.point)),
        }
    }
}

/// One `[[hooks]]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSpec {
    /// Where it is asked.
    pub on: HookOn,
    /// What it is called in the history: the program's file name unless it says otherwise.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where it starts when there is no workspace.
    pub folder: PathBuf,
    /// High before low; among equals the file's order.
    pub priority: i64,
    /// How long it may take; at most the budget of its kind.
    pub timeout: Duration,
}

/// The names that a person may have meant.
const NAMED: [&str; 3] = ["command:new", "command:reset", "command:stop"];

/// Every hook, in the order of the file.
pub(super) fn hooks(root: &Node, problems: &mut Vec<Problem>) -> Vec<HookSpec> {
    let Some(Item::List(tables)) = root.get("hooks").map(|node| &node.item) else {
        return Vec::new();
    };
    tables.iter().filter_map(|node| hook(node, problems)).collect()
}

fn hook(node: &Node, problems: &mut Vec<Problem>) -> Option<HookSpec> {
    node.table()?;
    let (on, argv) = (on(node, problems), argv(node, problems));
    let (on, argv) = (on?, argv?);
    let budget = on.point.kind().budget();
    let timeout = node.duration("timeout").unwrap_or(budget);
    if timeout > budget {
        let kind = on.point.kind().as_str();
        let words =
            format!("`{on}` is {kind}: it has at most {}", humantime::format_duration(budget));
        let place = node.get("timeout").unwrap_or(node);
        problems.push(place.error("hooks.timeout", words));
    }
    let name = node.text("name").map_or_else(|| name_of(&argv), str::to_owned);
    Some(HookSpec {
        on,
        name,
        argv,
        folder: node.source.folder().to_owned(),
        priority: node.integer("priority").unwrap_or(0),
        timeout,
    })
}

fn on(node: &Node, problems: &mut Vec<Problem>) -> Option<HookOn> {
    let Some(place) = node.get("on") else {
        let words = HookPoint::ALL.iter().map(|it| it.as_str()).collect::<Vec<_>>().join(", ");
        let problem = node.error("hooks.on", "a hook has to say where it is asked: `on`");
        problems.push(problem.with_help(words));
        return None;
    };
    match place.as_text()?.parse::<HookOn>() {
        Ok(on) => Some(on),
        Err(error) => {
            let points = HookPoint::ALL.iter().map(|it| it.as_str());
            let help = did_you_mean(&error.0, points.chain(NAMED));
            problems.push(place.error("hooks.on", error.to_string()).with_help(help));
            None
        }
    }
}

fn argv(node: &Node, problems: &mut Vec<Problem>) -> Option<Vec<String>> {
    let Some(place) = node.get("command") else {
        let words = "a hook needs `command`, a program and its arguments";
        problems.push(node.error("hooks.command", words));
        return None;
    };
    match argv_of(place)? {
        Ok(argv) => Some(argv),
        Err(words) => {
            problems.push(place.error("hooks.command", words));
            None
        }
    }
}

fn name_of(argv: &[String]) -> String {
    let program = argv.first().map(String::as_str).unwrap_or_default();
    program.rsplit('/').next().unwrap_or(program).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_has_its_kind_and_its_budget() {
        // semantics §8: the table of hooks, and the budgets below it
        let table = [
            ("before_model_resolve", HookKind::Modify, 15),
            ("before_prompt_build", HookKind::Modify, 15),
            ("before_agent_start", HookKind::Modify, 15),
            ("before_agent_reply", HookKind::Claim, 15),
            ("agent_end", HookKind::Observe, 30),
            ("before_compaction", HookKind::Observe, 30),
            ("after_compaction", HookKind::Observe, 30),
            ("before_tool_call", HookKind::Gate, 15),
            ("after_tool_call", HookKind::Observe, 30),
            ("tool_result_persist", HookKind::Modify, 15),
            ("before_install", HookKind::Gate, 15),
            ("message_received", HookKind::Observe, 30),
            ("message_sending", HookKind::Gate, 15),
            ("message_sent", HookKind::Observe, 30),
            ("session_start", HookKind::Observe, 30),
            ("session_end", HookKind::Observe, 30),
            ("gateway_start", HookKind::Observe, 30),
            ("gateway_stop", HookKind::Observe, 30),
            ("agent:bootstrap", HookKind::Modify, 15),
            ("command", HookKind::Observe, 30),
            ("gateway:startup", HookKind::Observe, 30),
            ("gateway:shutdown", HookKind::Observe, 30),
        ];
        let found: Vec<_> = HookPoint::ALL
            .iter()
            .map(|it| (it.as_str(), it.kind(), it.kind().budget().as_secs()))
            .collect();
        assert_eq!(found, table);
    }

    #[test]
    fn one_command_can_be_meant_or_all() {
        let on = |text: &str| text.parse::<HookOn>().map(|on| on.to_string());
        assert_eq!(on("command:new"), Ok("command:new".into()));
        assert_eq!(on("command:my-own"), Ok("command:my-own".into()));
        assert_eq!(on("command"), Ok("command".into()));
        for wrong in ["command:", "command:New", "gateway:start", "before_tool", ""] {
            assert_eq!(on(wrong), Err(UnknownHook(wrong.into())));
        }
    }
}
