//! What we are to a server: a client that offers nothing.
//!
//! No roots: which folders a server may use is said by whoever configures it, and some servers take
//! roots in place of that. It is started in the workspace, which is what `.` is to it. No sampling
//! and no elicitation: no model is there for its questions, and no person.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::handler::client::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::{NotificationContext, RoleClient};

/// Our side of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Client {
    other_tools: Arc<AtomicBool>,
}

impl Client {
    /// Whether the server has said that its tools are others by now. What is offered stays.
    pub fn has_other_tools(&self) -> bool {
        self.other_tools.load(Ordering::Relaxed)
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("punctual", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.other_tools.store(true, Ordering::Relaxed);
    }
}
