//! What a model is told.
//!
//! ```text
//! what was read (skills, files of the workspace) ─┐
//! the base, and what the prompt says ─────────────┼─ assemble ─▶ parts ─▶ system, first message
//! what others add or put in place of it ──────────┘                  └──▶ the report that is kept
//! ```
//!
//! Reading is apart from putting together, and that is a pure function: the same parts give the
//! same bytes, so that a provider's cache can hold them. What stays from run to run comes first,
//! what is of this turn alone comes last.

mod assemble;
mod base;
mod bootstrap;
mod part;
mod skills;
mod template;

pub use assemble::{Assembled, Material, Overrides, assemble};
pub use base::{Tools, base, base_of_message};
pub use bootstrap::{BOOTSTRAP_FILES, BootstrapFile, read_bootstrap};
pub use part::{Part, PartKind, PartReport};
pub use template::{Known, PromptError, Variables, render};
