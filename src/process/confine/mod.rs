//! What a command may do, where its user may do more.
//!
//! It is data that travels with the order for a command; whoever starts the command confines itself
//! first and becomes it then.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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

/// The bounds of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// What it may look at, and start programs from, beside what it may change.
    pub view: View,
    /// The folders and files that it may change.
    pub writable: Vec<PathBuf>,
    /// What it may not change, even below `writable`.
    pub closed: Vec<PathBuf>,
    /// Whether it may talk to others.
    pub network: Network,
    /// What happens where the kernel has no means for all of this.
    pub demand: Demand,
}

/// What a fenced command may look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Everything but what is at or below these.
    AllBut(Vec<PathBuf>),
    /// The system's programs and libraries, and these.
    System(Vec<PathBuf>),
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
