//! What a command may do, where its user may do more.
//!
//! It is data that travels with the order for a command. Whoever becomes the command confines
//! itself first; from then on nothing, whatever it starts, gets out again:
//!
//! - Landlock: which files may be read, run and changed, which processes signalled or looked into,
//!   which abstract sockets reached. Its rules name what is allowed; what is to stay closed inside
//!   of that is left out by naming what lies around it, or made read-only by mounts of our own.
//! - seccomp: no sockets where there is to be no network, since Landlock knows TCP only, and no
//!   named socket of another process (most agents and daemons have one).
//! - No new privileges, so that no set-uid program helps; next to no capabilities of root.
//! - Limits on what fills a disk or a process table.

mod calls;
mod limits;
mod mounts;
mod offer;
mod rights;
mod rules;
mod system;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use offer::{Filters, Offer, offered};

/// How a command is confined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// Not at all: a command of the operator's own.
    #[default]
    Off,
    /// It never gets more rights than it was started with, and leaves no core file.
    Humble,
    /// It stays within these bounds, too.
    Fenced(Box<Fence>),
}

/// The bounds of a command. All paths are absolute and without symbolic links, and none can be
/// moved by what is confined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// What it may look at, and start programs from, beside what it may change.
    pub view: View,
    /// What else it may look at.
    pub readable: Vec<PathBuf>,
    /// The folders that were made for it, and that it may change.
    pub own: Vec<PathBuf>,
    /// What else it may change.
    pub writable: Vec<PathBuf>,
    /// What it may not change even below `writable`.
    pub closed: Vec<PathBuf>,
    /// What it may not even look at, but for its own folders: all of it is closed, too.
    pub hidden: Vec<PathBuf>,
    /// Whether it may talk to others.
    pub network: Network,
    /// What happens where the kernel has no means for all of this.
    pub demand: Demand,
}

/// What a fenced command may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Everything that is not hidden.
    Everything,
    /// The system's programs and libraries.
    System,
}

/// Whether a command may talk to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// As its user may.
    On,
    /// Only by the pipes it was given.
    Off,
}

/// How much of the bounds there has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// All of them, or the command does not start.
    All,
    /// What the kernel can hold.
    AsOffered,
}

/// How what is closed is kept closed, beside the rules that hold in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Closing {
    /// By read-only mounts.
    ByMounts,
    /// By leaving it out of the rules: nothing can be made in the folders above it, and modes,
    /// owners and times are known to no rule.
    ByRules,
}

/// Why a process could not confine itself.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfineError {
    /// The kernel has no means for it.
    #[error("{0}")]
    Lacks(String),
    /// A limit was refused.
    #[error("set its limits")]
    Limits(#[source] std::io::Error),
    /// There are no mounts of its own; there are other ways.
    #[error("close folders by mounts")]
    Mounts(#[source] std::io::Error),
    /// A capability could not be given up.
    #[error("give up the rights of root")]
    Capabilities(#[source] std::io::Error),
    /// The rules for files were refused.
    #[error("set the rules for files")]
    Rules(#[from] landlock::RulesetError),
    /// The filter of system calls was refused.
    #[error("set the filter of system calls")]
    Calls(#[source] seccompiler::Error),
}

/// Confines this process, which has one thread, and all that it will start.
pub(super) fn confine(confinement: &Confinement, closing: Closing) -> Result<(), ConfineError> {
    let fence = match confinement {
        Confinement::Off => return Ok(()),
        Confinement::Humble => {
            limits::no_core_files().map_err(ConfineError::Limits)?;
            return rights::nothing_new().map_err(ConfineError::Capabilities);
        }
        Confinement::Fenced(fence) => fence,
    };
    if let (Demand::All, Some(lack)) = (fence.demand, offered().lacks(fence)) {
        return Err(ConfineError::Lacks(lack));
    }
    limits::set().map_err(ConfineError::Limits)?;
    let before = rights::held().map_err(ConfineError::Capabilities)?;
    if closing == Closing::ByMounts {
        mounts::close(fence).map_err(ConfineError::Mounts)?;
    }
    let rules = rules::rules(fence, closing)?;
    rights::keep_few(before).map_err(ConfineError::Capabilities)?;
    rights::nothing_new().map_err(ConfineError::Capabilities)?;
    rules::hold(rules, fence.demand)?;
    calls::filter(fence, closing)
}

impl Fence {
    /// Those of `paths` that lie inside of what is writable.
    fn inside<'a>(&'a self, paths: &'a [PathBuf]) -> impl Iterator<Item = &'a PathBuf> {
        let roots = &self.writable;
        paths.iter().filter(|path| roots.iter().any(|root| *path != root && path.starts_with(root)))
    }
}
