//! The trait of a tool, what it is given and what it gives back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::exec_policy::ExecPolicy;
use super::sent::SentTexts;
use super::tape::Permission;
use super::update::Updates;
use super::workspace::Workspace;
use crate::process::{Confinement, Household};
use crate::provider::ToolDefinition;

/// The arguments of a call, as the model gave them.
pub type Arguments = Map<String, Value>;

/// Something that a model can call.
pub trait Tool: Send + Sync {
    /// How it is offered to a model.
    fn definition(&self) -> ToolDefinition;

    /// Does it. Dropping the future gives it up; processes then end with the run's household.
    fn call<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome>;

    /// Whether it may, as far as that can be said without doing anything.
    fn permission(&self, _arguments: &Arguments, _context: &ToolContext) -> Permission {
        Permission::Unknown
    }

    /// When to give the call up from outside. A tool that keeps the limit itself and then tidies
    /// needs a little longer.
    fn limit(&self, context: &ToolContext) -> Duration {
        context.tool_timeout
    }
}

/// The world of one run's tools.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// Where files may be seen and changed.
    pub workspace: Arc<Workspace>,
    /// Where commands are started.
    pub household: Household,
    /// The whole environment of commands.
    pub env: Vec<(String, String)>,
    /// Which commands may run.
    pub exec_policy: ExecPolicy,
    /// How commands are confined.
    pub confinement: Confinement,
    /// The longest that one call may take.
    pub tool_timeout: Duration,
    /// How long a command may take to end after it was asked to.
    pub stop_grace: Duration,
    /// What messages have told.
    pub sent: SentTexts,
    /// Where tools say how far they have come.
    pub updates: Updates,
}

words!(
    /// How a call ended.
    Verdict {
        /// It did what was asked.
        Ok = "ok",
        /// It failed, or its command gave another exit code than zero.
        Error = "error",
        /// It is not allowed here.
        Denied = "denied",
        /// It took too long and was ended.
        TimedOut = "timed_out",
    }
);

/// What a call gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// The text for the model.
    pub content: String,
    /// How it ended.
    pub verdict: Verdict,
    /// The exit code, of a command that ended by itself.
    pub exit_code: Option<i32>,
    /// How much it gave before it was cut to size.
    pub output_bytes: u64,
}

impl ToolOutcome {
    /// An outcome without an exit code whose content is all there was.
    pub fn new(verdict: Verdict, content: impl Into<String>) -> Self {
        let content = content.into();
        let output_bytes = content.len() as u64;
        Self { content, verdict, exit_code: None, output_bytes }
    }
}

/// Why a tool did not do what was asked, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It may not.
    Denied(String),
    /// It could not.
    Failed(String),
}

impl From<Refusal> for ToolOutcome {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Denied(text) => Self::new(Verdict::Denied, text),
            Refusal::Failed(text) => Self::new(Verdict::Error, text),
        }
    }
}
