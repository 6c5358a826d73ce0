//! What native tools reach beyond the workspace, and through whom.

use std::sync::Arc;

use super::history::Ledger;
use super::message::Post;

/// What of the world a run's native tools may reach. A tool whose part is missing says so.
#[derive(Clone, Default)]
pub struct Beyond {
    /// Private hosts that may be asked all the same: `host` or `host:port`.
    pub allow_hosts: Vec<String>,
    /// The history.
    pub ledger: Option<Arc<dyn Ledger>>,
    /// The way out to people.
    pub post: Option<Arc<dyn Post>>,
}
