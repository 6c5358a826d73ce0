//! The points where others may look in or step in (semantics §8).
//!
//! A point is a type: what its hooks are given (`points/`). A hook is a Rust [`Hook`] of that type,
//! or a command of `[[hooks]]` that reads it as JSON and answers in JSON. Those of a point are asked
//! one after the other, high priority first; what their answers come to together is a pure rule of
//! the point ([`Rule`]), which knows no process and no clock. Observers are asked side by side, and
//! what they say changes nothing.
//!
//! ```text
//! Hooks (who is asked, in which order) ─▶ HookSite (where: run, household, limits)
//!     ─ ask ─▶ hook, hook, … ─ Rule::take ─▶ verdict
//!                 └─ each one ─▶ HookRecord: which, how it went, what it changed; no contents
//! ```
//!
//! A gate that cannot answer closes; whatever else cannot is passed over. Neither is ever the end
//! of a result that is there already.

mod command;
mod point;
mod points;
mod record;
mod registry;
mod site;

pub use point::{Annotation, Hook, HookContext, HookFault, Observed, Point, Rule, RunFacts, Taken};
pub use points::{
    AfterCompaction, AfterToolCall, AgentBootstrap, AgentEnd, BeforeAgentReply, BeforeAgentStart,
    BeforeCompaction, BeforeInstall, BeforeModelResolve, BeforePromptBuild, BeforeToolCall,
    Blocked, BootstrapChange, BootstrapFile, CancelAnswer, Claim, ClaimAnswer, CommandGiven, Ends,
    Gate, GatewayShutdown, GatewayStart, GatewayStartup, GatewayStop, Ignored, InstallAnswer,
    LegacyParts, MessageReceived, MessageSending, MessageSent, ModelChoice, PromptParts, Refusal,
    ResultChange, SessionEnd, SessionStart, ToolCallAnswer, ToolGate, ToolResultPersist, newest,
};
pub use record::{HookOutcome, HookRecord, HookRecorder, Nobody};
pub use registry::{Hooks, Listed};
pub use site::{HookSite, Place};
