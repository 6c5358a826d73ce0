//! The servers of a run, and the tools that they offer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::connection::McpError;
use super::server::Server;
use super::spec::ServerSpec;
use super::tool::{McpTool, Recorded};
use crate::job::{MCP_MARK, Masker};
use crate::provider::ToolDefinition;
use crate::tools::set::ToolSet;
use crate::tools::tool::ToolContext;

/// The servers of one run. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct McpServers(Vec<Arc<Server>>);

impl McpServers {
    /// Starts all of `specs` at once and puts what they offer behind the tools of `set`, in the
    /// order of `specs`; or tells of all that did not start.
    pub async fn start(
        specs: Vec<ServerSpec>,
        set: ToolSet,
        context: &ToolContext,
        masker: &Arc<Masker>,
    ) -> Result<(Self, ToolSet), Vec<McpError>> {
        let starting =
            specs.into_iter().map(|spec| Server::start(spec, context, Arc::clone(masker)));
        let (mut servers, mut set, mut errors) = (Vec::new(), set, Vec::new());
        for started in join_all(starting).await {
            let (server, offers) = match started {
                Ok(started) => started,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            let server = Arc::new(server);
            tracing::debug!(
                server = server.spec.name(),
                tools = offers.len(),
                "MCP server started"
            );
            for offer in offers {
                set = set.with(Arc::new(McpTool::new(Arc::clone(&server), offer)));
            }
            servers.push(server);
        }
        if errors.is_empty() { Ok((Self(servers), set)) } else { Err(errors) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets all of them end, for up to `limit`; what is left then is ended with the household. They
    /// are started again when they are called again. Returns what there is to tell of them.
    pub async fn close(&self, limit: Duration) -> Option<String> {
        let told = join_all(self.0.iter().map(|server| server.close(limit))).await;
        let told: Vec<_> = told.into_iter().flatten().collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// `set` with those of `offered` that belong to one of `servers`, for a run that is played
    /// again: no server is there, and the calls are answered from what was taken down.
    pub fn recorded(mut set: ToolSet, servers: &[String], offered: &[ToolDefinition]) -> ToolSet {
        for server in servers {
            let mine = format!("{server}{MCP_MARK}");
            for definition in offered.iter().filter(|it| it.name.starts_with(&mine)) {
                set = set.with(Arc::new(Recorded(definition.clone())));
            }
        }
        set
    }
}
