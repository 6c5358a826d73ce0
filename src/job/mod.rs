//! What a person wrote and what it means.
//!
//! A job file becomes a [`JobSpec`], which is always valid once it exists, or a list of
//! [`Problem`]s with the place of each. Nothing in here reads the clock or starts anything.
//!
//! One table of keys (`table.rs`) says what a file may hold; the check of keys and types
//! (`keys.rs`), the JSON Schema and the effective definition all follow it. What one value cannot
//! tell (names that must resolve, keys that exclude each other) is read in `parse.rs` and
//! `read_*.rs`. The configuration is checked with the same tools.

mod ceilings;
mod duration;
mod effective;
mod file;
mod id;
pub(crate) mod keys;
mod manner;
mod mask;
mod money;
mod parse;
mod problem;
mod prompt;
mod read_after;
mod read_agent;
mod read_alert;
mod read_checks;
mod read_command;
mod read_deliver;
mod read_env;
mod read_matrix;
mod read_mcp;
mod read_ping;
mod read_retry;
mod read_sandbox;
mod read_schedule;
mod read_secret;
mod read_skills;
pub mod report;
mod scaffold;
pub(crate) mod schema;
mod secret;
mod session;
pub(crate) mod source;
mod spec;
pub(crate) mod table;
pub(crate) mod tree;

pub use ceilings::Ceilings;
pub use effective::digest;
pub(crate) use effective::hex;
pub use file::{FILE_BYTES_MAX, read_bytes, read_text};
pub use id::JobId;
pub use keys::nearest;
pub use manner::{BlockStreaming, Manner, Reasoning, Thinking, Tracing, Verbosity};
pub use mask::{Masker, SECRET_CHARS_MIN, StreamMasker};
pub use money::Usd;
pub(crate) use parse::with_sources;
pub use parse::{
    Defaults, McpServers, ModelNeeds, Models, Parsed, Surroundings, Targets, Unresolved, parse,
    stored_schedule,
};
pub use problem::{Problem, Severity, sort_problems};
pub use prompt::{AskedFor, Mention, PROMPT_VARIABLES};
pub(crate) use read_agent::TOOLS;
pub use read_alert::{AlertSpec, Cause};
pub use read_checks::{ArtifactPattern, Check, CheckSpec, ReplySchema};
pub(crate) use read_command::argv_of;
pub use read_deliver::{
    BestEffort, DeliverSpec, DeliverWhen, OUTGOING_VARIABLES, SILENT_TOKEN, template_problem,
};
pub(crate) use read_env::env;
pub(crate) use read_mcp::MCP_MARK;
#[cfg(test)]
pub(crate) use read_retry::PERMANENT as PERMANENT_KINDS;
pub use read_sandbox::{Sandbox, SandboxNetwork, SandboxSpec};
pub use read_secret::SecretText;
pub(crate) use read_secret::{secret_text, url_problem};
pub(crate) use read_skills::env_of;
pub use read_skills::{SkillState, Skills};
pub use scaffold::scaffold;
pub use secret::{Environment, SecretError, SecretSource};
pub use session::{SessionChoice, SessionKey};
pub use spec::{
    AfterInterruption, AfterSpec, AgentSpec, Catchup, CommandSpec, ContextFiles, Does, EnvSpec,
    Escalate, GateOutput, GateSpec, JobSpec, Limits, ModelRef, Overlap, Prompt, RetrySpec, RunIf,
    RunTimeout, ScheduleSpec, When, Workdir,
};

/// The JSON Schema of a job file, with every default.
pub fn schema() -> serde_json::Value {
    schema::document("Punctual job file", table::JOB)
}
