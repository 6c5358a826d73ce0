//! One server of a run: there while it is needed, started again where that helps.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::connection::{Connection, McpError};
use super::offer::Offer;
use super::spec::ServerSpec;
use crate::job::Masker;
use crate::tools::tool::ToolContext;

/// How often a server that has died is started again in a run: one that dies of what it is asked
/// would die again and again.
const RESTARTS_MAX: u32 = 1;

/// A server of a run.
#[derive(Debug)]
pub(super) struct Server {
    pub spec: ServerSpec,
    masker: Arc<Masker>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None`: it was ended by us, and is started when it is needed next.
    connection: Option<Arc<Connection>>,
    restarts: u32,
    /// What there is to tell of connections before.
    other_tools: bool,
}

/// Why a call cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Gone {
    #[error("the MCP server `{0}` has ended and is not started again")]
    ForGood(String),
    #[error(transparent)]
    Unstarted(#[from] McpError),
}

impl Server {
    /// Starts it; returns it with what it offers.
    pub async fn start(
        spec: ServerSpec,
        context: &ToolContext,
        masker: Arc<Masker>,
    ) -> Result<(Self, Vec<Offer>), McpError> {
        let (connection, offers) = Connection::open(&spec, context, &masker).await?;
        let connection = Some(Arc::new(connection));
        let state = Mutex::new(State { connection, restarts: 0, other_tools: false });
        Ok((Self { spec, masker, state }, offers))
    }

    /// The way to it. A server that was ended, or has died, is started once more: what it offers is
    /// what it offered before.
    pub async fn connection(&self, context: &ToolContext) -> Result<Arc<Connection>, Gone> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            if connection.is_open() {
                return Ok(Arc::clone(connection));
            }
            if state.restarts >= RESTARTS_MAX {
                return Err(Gone::ForGood(self.spec.name.clone()));
            }
            let (exit, said) = connection.end_in_words().await;
            let said = self.masker.mask(&said);
            tracing::warn!(
                server = self.spec.name,
                exit,
                %said,
                "the MCP server has ended; starting it again"
            );
            state.restarts += 1;
        }
        let (connection, _) = Connection::open(&self.spec, context, &self.masker).await?;
        let connection = Arc::new(connection);
        state.keep(Some(Arc::clone(&connection)));
        Ok(connection)
    }

    /// Ends its process if `connection` is still the one in use: it does not hear any more. It
    /// counts as one that has died.
    pub async fn end(&self, connection: &Connection, grace: Duration) {
        connection.close(Duration::ZERO).await;
        if let Some(child) = connection.child() {
            let end = child.end(grace).await;
            tracing::warn!(
                server = self.spec.name,
                killed = end.killed,
                "ended an MCP server that does not hear"
            );
        }
    }

    /// Closes the line to it and waits for its end, for up to `limit`. It is started again when it
    /// is called again. Returns what there is to tell of it.
    pub async fn close(&self, limit: Duration) -> Option<String> {
        // A call that was cut holds nothing: its future is gone.
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            connection.close(limit).await;
            let errors = connection.child().map(|child| child.errors_so_far().text);
            let errors = errors.filter(|text| !text.is_empty());
            if let Some(errors) = errors {
                let errors = self.masker.mask(&errors);
                tracing::debug!(server = self.spec.name, %errors, "an MCP server wrote to its standard error");
            }
        }
        state.keep(None);
        let mut told = Vec::new();
        if state.restarts > 0 {
            told.push("started again");
        }
        if state.other_tools {
            told.push("its tools changed, the offer did not");
        }
        (!told.is_empty()).then(|| format!("{}: {}", self.spec.name, told.join(", ")))
    }
}

impl State {
    fn keep(&mut self, connection: Option<Arc<Connection>>) {
        let before = std::mem::replace(&mut self.connection, connection);
        self.other_tools |= before.is_some_and(|before| before.has_other_tools());
    }
}
