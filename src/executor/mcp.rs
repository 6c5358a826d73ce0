//! The MCP servers of a run: started when its turn is made ready, all at once.
//!
//! A server that does not start ends the run. Nobody is there to see that a tool is missing, and a
//! report that was made without its sources looks like one that was made with them.

use std::time::Duration;

use secrecy::SecretString;

use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::{Stop, invalid};
use crate::config::McpServer;
use crate::job::{AgentSpec, JobSpec};
use crate::run::{ErrorKind, Failure, Limit};
use crate::tools::{McpError, McpServers, ServerSpec, ToolContext, ToolSet};

impl Executor {
    /// What of the job's servers must never be stored or shown.
    pub(super) fn mcp_secrets(&self, spec: &JobSpec) -> Result<Vec<(String, SecretString)>, Stop> {
        let mut secrets = Vec::new();
        // Where a run is played again, no server is there that could use one.
        if let (Some(agent), None) = (spec.agent(), self.recorded_offer()) {
            for name in &agent.mcp {
                let server = self.mcp_server(name)?;
                secrets.extend(
                    server
                        .secrets(name, &self.config.environment)
                        .map_err(|why| invalid(format!("the MCP server `{name}`: {why}")))?,
                );
            }
        }
        Ok(secrets)
    }

    /// `tools` with those of the job's servers behind them.
    pub(super) async fn with_mcp(
        &self,
        ticket: &Ticket,
        agent: &AgentSpec,
        tools: ToolSet,
        context: &ToolContext,
        holdings: &mut Holdings,
    ) -> Result<ToolSet, Stop> {
        if let Some(offered) = self.recorded_offer() {
            return Ok(McpServers::recorded(tools, &agent.mcp, offered));
        }
        let most = self.mcp_starts_within(ticket);
        let ceiling = self.config.ceilings.tools.as_deref();
        let mut specs = Vec::new();
        for name in &agent.mcp {
            let server = self.mcp_server(name)?;
            let spec = ServerSpec::read(name, server, ceiling, &self.config.environment);
            let spec = spec.map_err(|why| invalid(format!("the MCP server `{name}`: {why}")))?;
            specs.push(spec.starting_within(most));
        }
        let started = McpServers::start(specs, tools, context, &holdings.masker).await;
        let (servers, tools) = started.map_err(|errors| unavailable(&errors))?;
        holdings.mcp = servers;
        Ok(tools)
    }

    fn recorded_offer(&self) -> Option<&[crate::provider::ToolDefinition]> {
        self.deck.as_ref().and_then(crate::cassette::Deck::offered)
    }

    fn mcp_server(&self, name: &str) -> Result<&McpServer, Stop> {
        let server = self.config.mcp.get(name);
        server.ok_or_else(|| invalid(format!("there is no MCP server `{name}`")).into())
    }

    /// Less than what there is until the first model call, so that who is late can be named.
    fn mcp_starts_within(&self, ticket: &Ticket) -> Duration {
        let before_execution = self.run_limits(ticket).pre_execution;
        before_execution.map_or(Duration::MAX, |limit| limit / 4 * 3)
    }
}

fn unavailable(errors: &[McpError]) -> Stop {
    let words: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let failure = Failure::new(ErrorKind::McpUnavailable, words.join("; ")).retryable();
    match errors.iter().find_map(McpError::limit) {
        Some(limit) => failure.by_limit(Limit::Setup, Some(limit)).into(),
        None => failure.into(),
    }
}
