//! One call: what it may take, and what is said of it however it ends.

use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, PingRequest, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use tokio::time::timeout;

use super::connection::Connection;
use super::result;
use super::server::Server;
use super::spec::ServerSpec;
use crate::tools::tool::{Arguments, ToolContext, ToolOutcome, Verdict};
use crate::tools::untrusted::framed;

/// After a call that took too long: a server that does not even answer a ping within this is ended,
/// so that nothing works on for nobody.
const PONG_WITHIN: Duration = Duration::from_secs(2);

/// How long it may take to say that a call is not needed any more.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// Calls `tool` of `server`.
pub(super) async fn call(
    server: &Server,
    tool: &str,
    arguments: Arguments,
    context: &ToolContext,
) -> ToolOutcome {
    let connection = match server.connection(context).await {
        Ok(connection) => connection,
        Err(gone) => return ToolOutcome::new(Verdict::Error, gone.to_string()),
    };
    let limits = Limits::of(&server.spec, context);
    let name = &server.spec.name;
    let error = match ask(&connection.peer, tool, arguments, limits).await {
        Ok(answer) => return answered(answer, tool, name),
        Err(error) => error,
    };
    match error {
        ServiceError::Timeout { timeout: limit } => {
            let is_idle = limits.idle == Some(limit) && limit < limits.total;
            let hears = ping(&connection.peer).await;
            if !hears {
                server.end(&connection, context.stop_grace).await;
            }
            let limit = humantime::format_duration(limit);
            let what = if is_idle { "neither answer nor progress" } else { "no answer" };
            let then = if hears { "the call was cancelled" } else { "the server was ended" };
            let text = format!("{what} from the MCP server `{name}` within {limit}; {then}");
            ToolOutcome::new(Verdict::TimedOut, text)
        }
        ServiceError::McpError(error) => {
            let about = format!("error {} of `{tool}` of the MCP server `{name}`", error.code.0);
            ToolOutcome::new(Verdict::Error, framed(&about, &error.message))
        }
        ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
            ToolOutcome::new(Verdict::Error, broken(&connection, name, &error).await)
        }
        other => {
            let words = format!("the MCP server `{name}` did not answer as one: {other}");
            ToolOutcome::new(Verdict::Error, words)
        }
    }
}

/// What one call may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    total: Duration,
    idle: Option<Duration>,
}

impl Limits {
    /// A server's own limits only ever make the job's stricter.
    fn of(spec: &ServerSpec, context: &ToolContext) -> Self {
        let total = context.tool_timeout;
        let total = spec.timeout.map_or(total, |own| own.min(total));
        Self { total, idle: spec.idle_timeout }
    }
}

async fn ask(
    peer: &Peer<RoleClient>,
    tool: &str,
    arguments: Arguments,
    limits: Limits,
) -> Result<ServerResult, ServiceError> {
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let mut options = PeerRequestOptions::default().with_max_total_timeout(limits.total);
    options.timeout = limits.idle;
    options.reset_timeout_on_progress = true;
    let asked = peer.send_request_with_option(request, options).await?;
    let mut pending = Pending { peer, id: Some(asked.id.clone()) };
    let answer = asked.await_response().await;
    pending.id = None;
    answer
}

/// A call that is waited for. Where nobody waits any more, because the run was cut, the server is
/// told: it may run on for others.
struct Pending<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let reason = Some("the run has ended".to_owned());
            let cancelled = CancelledNotificationParam::new(Some(id), reason);
            let cancelled = CancelledNotification::new(cancelled);
            // There is nobody to tell that it could not be told.
            let _ = timeout(TOLD_WITHIN, peer.send_notification(cancelled.into())).await;
        });
    }
}

fn answered(answer: ServerResult, tool: &str, server: &str) -> ToolOutcome {
    let refused = |words: &str| {
        ToolOutcome::new(Verdict::Error, format!("the MCP server `{server}` {words}"))
    };
    match answer {
        ServerResult::CallToolResult(result) => {
            let outcome = result::outcome(&result);
            let about = format!("result of `{tool}` of the MCP server `{server}`");
            ToolOutcome { content: framed(&about, &outcome.content), ..outcome }
        }
        ServerResult::InputRequiredResult(_) => {
            refused("asks for more input, and nobody is there to give it")
        }
        ServerResult::CreateTaskResult(_) => refused("wants to answer later, and nobody waits"),
        // An answer with nothing in it.
        ServerResult::EmptyResult(_) => ToolOutcome::new(Verdict::Ok, "[no content]"),
        _ => refused("answered something else than the result of a tool"),
    }
}

async fn ping(peer: &Peer<RoleClient>) -> bool {
    let ping = peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
    // Also an error is an answer: it hears.
    match timeout(PONG_WITHIN, ping).await {
        Ok(Ok(_) | Err(ServiceError::McpError(_))) => true,
        Ok(Err(_)) | Err(_) => false,
    }
}

async fn broken(connection: &Connection, server: &str, error: &ServiceError) -> String {
    match (connection.child(), error) {
        (Some(_), _) => {
            let (exit, said) = connection.end_in_words().await;
            let about = format!("the MCP server `{server}` ended during the call{exit}");
            if said.is_empty() {
                about
            } else {
                framed(&format!("{about}; its last words:"), &said)
            }
        }
        (None, error) => {
            let why = crate::job::with_sources(error);
            format!("the MCP server `{server}` could not be reached: {why}")
        }
    }
}
