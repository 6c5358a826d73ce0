//! What a turn may do to the world.
//!
//! A [`Tool`] is something a model can call; a [`ToolSet`] is what one job offers. The set is the
//! boundary: a call of anything else is denied at once, because nobody is there to ask. Everything
//! a tool returns is bounded, a call always ends, and a tool that fails is an answer to the model,
//! never the failure of the run.
//!
//! File tools stay inside the [`Workspace`], symbolic links included; commands are checked by the
//! [`ExecPolicy`] and run below a supervisor of [`crate::process`]. What others have written comes
//! back in a frame that says so.

mod beyond;
mod command_line;
mod edit;
mod exec;
mod exec_policy;
mod file_tool;
mod grep;
mod history;
mod http_get;
mod images;
mod limit;
mod list;
mod mcp;
mod message;
mod parameters;
mod read;
mod sent;
mod set;
mod subturn;
mod tape;
mod tool;
mod untrusted;
mod update;
mod workspace;
mod write;

pub use beyond::Beyond;
pub use exec_policy::{BadPattern, ExecPolicy, ExecRefusal};
pub use history::{AskBounds, Ledger, Rows};
pub use images::without_images;
pub use mcp::{McpError, McpServers, ServerSpec};
pub use message::{Post, Posted};
pub use sent::SentTexts;
pub use set::{ToolSet, UnknownTool};
pub(crate) use subturn::{Part, SUBTURN, part_of};
pub use tape::{CallTape, Permission, TakenCall};
pub use tool::{Arguments, Tool, ToolContext, ToolOutcome, Verdict};
pub use update::{Update, Updates};
pub use workspace::Workspace;
pub(crate) use workspace::without_links;
