//! A tool of a server among the tools of a turn.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::call::call;
use super::offer::Offer;
use super::server::Server;
use crate::provider::ToolDefinition;
use crate::tools::tool::{Arguments, Tool, ToolContext, ToolOutcome, Verdict};

/// What starting a server again and saying that a call is not needed any more may take beside the
/// call itself.
const BESIDE: Duration = Duration::from_secs(10);

/// A tool of a server.
pub(super) struct McpTool {
    server: Arc<Server>,
    offer: Offer,
}

impl McpTool {
    pub fn new(server: Arc<Server>, offer: Offer) -> Self {
        Self { server, offer }
    }
}

impl Tool for McpTool {
    fn definition(&self) -> ToolDefinition {
        self.offer.definition.clone()
    }

    fn call<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        call(&self.server, &self.offer.tool, arguments, context).boxed()
    }

    fn limit(&self, context: &ToolContext) -> Duration {
        let beside = self.server.spec.start_timeout + context.stop_grace + BESIDE;
        context.tool_timeout.saturating_add(beside)
    }
}

/// A tool of a run that is played again.
pub(super) struct Recorded(pub ToolDefinition);

impl Tool for Recorded {
    fn definition(&self) -> ToolDefinition {
        self.0.clone()
    }

    fn call<'a>(
        &'a self,
        _arguments: Arguments,
        _context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        let words = "no MCP server is there when a run is played again";
        std::future::ready(ToolOutcome::new(Verdict::Error, words)).boxed()
    }
}
