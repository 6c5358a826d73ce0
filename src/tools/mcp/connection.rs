//! A server that is there, from its start to its end.

use std::sync::Mutex;
use std::time::Duration;

use rmcp::ServiceExt as _;
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::time::timeout;

use super::client::Client;
use super::http;
use super::offer::{self, Offer, OfferError};
use super::spec::{ServerSpec, Way};
use super::wire::{Capped, MESSAGE_BYTES_MAX};
use crate::job::{Masker, with_sources};
use crate::process::{Child, Errors, Exit, Spec, StartError, Talk};
use crate::tools::tool::ToolContext;

/// How much of a server's standard error is kept: the beginning and the end.
const ERRORS_BYTES_MAX: usize = 16 * 1024;

/// How much of that stands in an error.
const SAID_CHARS_MAX: usize = 400;

/// A server that has closed its line ends within this, or is ended later with the others.
const EXIT_WITHIN: Duration = Duration::from_millis(500);

/// Why a server is not there. The words hold no secret.
#[derive(Debug, thiserror::Error)]
#[error("the MCP server `{server}` {why}{said}")]
pub struct McpError {
    server: String,
    why: String,
    /// What it said of it, if it did.
    said: String,
    /// The limit that it did not keep.
    limit: Option<Duration>,
}

impl McpError {
    /// The limit that it did not keep, if it was that.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }
}

/// Why, before the words for it.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{0}")]
    Http(String),
    #[error(transparent)]
    Initialize(#[from] Box<ClientInitializeError>),
    #[error(transparent)]
    Offer(#[from] OfferError),
}

/// A server that has told its tools.
#[derive(Debug)]
pub(super) struct Connection {
    pub peer: Peer<RoleClient>,
    client: Client,
    service: Mutex<Option<RunningService<RoleClient, Client>>>,
    child: Option<Child>,
}

impl Connection {
    /// Starts or reaches the server and asks for its tools, within its own limit.
    pub async fn open(
        spec: &ServerSpec,
        context: &ToolContext,
        masker: &Masker,
    ) -> Result<(Self, Vec<Offer>), McpError> {
        let mut child = None;
        let opening = Self::open_slowly(spec, context, masker, &mut child);
        let (why, limit) = match timeout(spec.start_timeout, opening).await {
            Ok(Ok((service, client, offers))) => {
                let peer = service.peer().clone();
                let service = Mutex::new(Some(service));
                return Ok((Self { peer, client, service, child }, offers));
            }
            Ok(Err(fault)) => (words(&fault, child.as_ref()).await, None),
            Err(_) => {
                let limit = humantime::format_duration(spec.start_timeout);
                let why = format!("did not start and list its tools within {limit}");
                (why, Some(spec.start_timeout))
            }
        };
        let said = child.as_ref().map(said).filter(|said| !said.is_empty());
        let said = said.map(|said| format!("; it said: {said}")).unwrap_or_default();
        Err(McpError {
            server: spec.name.clone(),
            why: masker.mask(&why).into_owned(),
            said: masker.mask(&said).into_owned(),
            limit,
        })
    }

    async fn open_slowly(
        spec: &ServerSpec,
        context: &ToolContext,
        masker: &Masker,
        child: &mut Option<Child>,
    ) -> Result<(RunningService<RoleClient, Client>, Client, Vec<Offer>), Fault> {
        let client = Client::default();
        let service = match &spec.way {
            Way::Command { argv, env } => {
                let env = context.env.iter().chain(env).cloned().collect();
                let command = Spec {
                    argv: argv.clone(),
                    cwd: context.workspace.path().to_owned(),
                    env,
                    output_bytes_max: ERRORS_BYTES_MAX,
                    errors: Errors::Apart,
                    confinement: context.confinement.clone(),
                };
                let Talk { child: started, from, to } =
                    context.household.start_talking(command).await?;
                *child = Some(started);
                let line = AsyncRwTransport::new_client(Capped::new(from), to)
                    .with_max_line_length(MESSAGE_BYTES_MAX);
                client.clone().serve(line).await
            }
            Way::Http { url, token, headers } => {
                let line = http::transport(url, token.as_ref(), headers).map_err(Fault::Http)?;
                client.clone().serve(line).await
            }
        };
        let service = service.map_err(Box::new)?;
        let listed = offer::listed(service.peer()).await?;
        let offers = offer::offers(spec, listed, masker)?;
        Ok((service, client, offers))
    }

    /// Whether it is still there.
    pub fn is_open(&self) -> bool {
        !self.peer.is_transport_closed()
    }

    /// Whether the server has said that its tools are others by now.
    pub fn has_other_tools(&self) -> bool {
        self.client.has_other_tools()
    }

    /// Its process, if it was started.
    pub fn child(&self) -> Option<&Child> {
        self.child.as_ref()
    }

    /// How it has ended, in brackets, and what it said last; both empty where that cannot be told.
    pub async fn end_in_words(&self) -> (String, String) {
        let Some(child) = &self.child else { return (String::new(), String::new()) };
        let exit = exit(child).await.map(|exit| format!(" ({exit})"));
        (exit.unwrap_or_default(), said(child))
    }

    /// Closes the line, which is how a server learns that it is not needed any more, and waits for
    /// its end, for up to `limit`.
    pub async fn close(&self, limit: Duration) {
        let service = self.service.lock().expect("no holder of this lock can panic").take();
        let ended = async {
            if let Some(mut service) = service {
                // An error is a panic of the library: the line is closed then, too.
                drop(service.close().await);
            }
            if let Some(child) = &self.child {
                child.wait_output(limit).await;
            }
        };
        // What is left is ended with everything else of the run.
        let _ = timeout(limit, ended).await;
    }
}

async fn words(fault: &Fault, child: Option<&Child>) -> String {
    let why = with_sources(fault);
    let ended = match (fault, child) {
        (Fault::Initialize(_) | Fault::Offer(OfferError::List(_)), Some(child)) => {
            exit(child).await
        }
        _ => None,
    };
    match (fault, ended) {
        (_, Some(exit)) => format!("has ended before it told its tools ({exit})"),
        (Fault::Initialize(_), None) => format!("did not answer as one: {why}"),
        (Fault::Start(_), None) => format!("could not be started: {why}"),
        (Fault::Http(_) | Fault::Offer(_), None) => format!("cannot be used: {why}"),
    }
}

/// How it ended, if it did or does so at once.
async fn exit(child: &Child) -> Option<String> {
    match child.wait_output(EXIT_WITHIN).await.exit {
        Exit::Code(code) => Some(format!("exit code {code}")),
        Exit::Signal(signal) => Some(format!("signal {signal}")),
        Exit::TimedOut | Exit::Unknown => None,
    }
}

/// The end of what it wrote to its standard error.
fn said(child: &Child) -> String {
    let errors = child.errors_so_far().text;
    let errors = errors.trim_end();
    let start = errors.char_indices().rev().nth(SAID_CHARS_MAX - 1).map_or(0, |(at, _)| at);
    match start {
        0 => errors.to_owned(),
        _ => format!("… {}", &errors[start..]),
    }
}
