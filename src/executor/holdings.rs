//! What a run takes hold of, so that it can be given back however the run ends.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::cleanup::ModelStream;
use super::gate;
use super::lanes::Permits;
use crate::config::Price;
use crate::hooks::HookSite;
use crate::job::Masker;
use crate::process::{Child, Household};
use crate::run::Findings;
use crate::session::SessionLock;
use crate::tools::McpServers;
use crate::turn::Turn;

/// What a run has taken hold of, and must give back however it ends.
pub(super) struct Holdings {
    pub(super) household: Household,
    /// Those of models whose replies were not accepted; all of their processes have been ended.
    pub(super) households_before: Vec<Household>,
    /// What the host has found, if it has looked already.
    pub(super) findings: Option<Findings>,
    pub(super) masker: Arc<Masker>,
    pub(super) permits: Option<Permits>,
    pub(super) made_workspace: Option<PathBuf>,
    /// The folder for temporary files of what its tools start.
    pub(super) made_temporary: Option<PathBuf>,
    /// When its clock started.
    pub(super) started: Option<Timestamp>,
    /// Where it works.
    pub(super) workdir: Option<PathBuf>,
    /// What its tools and commands see.
    pub(super) env: Option<Vec<(String, String)>>,
    /// What its gate has said.
    pub(super) gate: Option<gate::Answer>,
    /// The command that it is, once that has started.
    pub(super) command: Option<Child>,
    /// How that ended.
    pub(super) exit_code: Option<i32>,
    pub(super) session_lock: Option<SessionLock>,
    /// The MCP servers of its turn.
    pub(super) mcp: McpServers,
    pub(super) turn: Option<Turn>,
    pub(super) attempt: Option<Attempt>,
    /// How many attempts have begun.
    pub(super) attempts: u32,
    pub(super) stream: ModelStream,
    /// The time there is for hooks before the execution, and what they have changed.
    pub(super) hooks: HookSite,
}

/// The model attempt that goes on.
pub(super) struct Attempt {
    pub(super) n: u32,
    pub(super) started: tokio::time::Instant,
    pub(super) price: Option<Price>,
}

impl Holdings {
    /// Nothing but an empty household yet.
    pub(super) fn new(household: Household) -> Self {
        Self {
            household,
            households_before: Vec::new(),
            findings: None,
            masker: Arc::default(),
            permits: None,
            made_workspace: None,
            made_temporary: None,
            started: None,
            workdir: None,
            env: None,
            gate: None,
            command: None,
            exit_code: None,
            session_lock: None,
            mcp: McpServers::default(),
            turn: None,
            attempt: None,
            attempts: 0,
            stream: ModelStream::Ended,
            hooks: HookSite::without_hooks(),
        }
    }
}
