//! Bringing a skill into the state folder, and keeping it up to date.
//!
//! ```text
//! folder ─┐
//! archive ┼─ fetch ─▶ one folder with SKILL.md ─ stage ─▶ Staged: checked, with its doubts
//! git ────┘                                                  │   (whoever may refuse, does it here)
//!                                                            └─ place ─▶ state/skills/<name>, in one step
//! ```
//!
//! Nothing of what was fetched is run. What is staged is a copy of its files: no link leads out of
//! it, and it is bounded. Where it came from is noted beside it, for an update.

mod fetch;
mod noted;
mod place;
mod source;
mod stage;
mod unpack;

pub use fetch::fetch;
pub use noted::Noted;
pub use place::{Shop, remove};
pub use source::Source;
pub use stage::{Staged, stage};

/// Why a skill is not installed, in words for whoever asked for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotInstalled(pub String);

impl NotInstalled {
    fn while_doing(what: &str, error: &dyn std::fmt::Display) -> Self {
        Self(format!("failed to {what}: {error}"))
    }
}

/// The most files that a skill may have.
const FILES_MAX: usize = 2_000;

/// The most bytes of all of them.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
