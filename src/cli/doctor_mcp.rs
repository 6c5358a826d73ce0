//! Whether the MCP servers of the configuration can be had: each is started, or reached, as for a
//! run, lists its tools and is ended.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::Arc;
use std::time::Duration;

use super::context::now;
use crate::config::{Config, McpServer};
use crate::job::Masker;
use crate::process::{Confinement, Household, SupervisorPath, base_environment};
use crate::run::RunId;
use crate::tools::{
    ExecPolicy, McpServers, SentTexts, ServerSpec, ToolContext, ToolSet, Updates, Workspace,
};

/// How long one may take to go by itself, and from TERM to KILL.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Tries one; how many tools it has, or what is wrong with it.
pub(super) async fn try_server(
    config: &Config,
    name: &str,
    server: &McpServer,
) -> Result<String, String> {
    let ceiling = config.ceilings.tools.as_deref();
    let spec = ServerSpec::read(name, server, ceiling, &config.environment)?;
    let secrets = server.secrets(name, &config.environment)?;
    let masker = Arc::new(Masker::new(secrets));
    let folder = std::env::temp_dir().join(format!("punctual-doctor-{}", RunId::new(now())));
    // Refused if somebody has made it first.
    let made = DirBuilder::new().mode(0o700).create(&folder);
    made.map_err(|error| format!("no folder for it: {error}"))?;
    let household = Household::new(SupervisorPath::current_exe(), "doctor");
    let found = match Workspace::open(&folder, &[]) {
        Ok(workspace) => {
            let context = context(workspace, household.clone());
            McpServers::start(vec![spec], ToolSet::default(), &context, &masker)
                .await
                .map_err(|errors| errors.iter().map(ToString::to_string).collect())
        }
        Err(error) => Err(format!("no folder for it: {error}")),
    };
    let words = match found {
        Ok((servers, tools)) => {
            servers.close(END_WITHIN).await;
            Ok(format!("offers {} tools", tools.names().len()))
        }
        Err(words) => Err(masker.mask(&words).into_owned()),
    };
    household.end_all(END_WITHIN).await;
    // It is empty, or holds what the server has put there: nobody's.
    let _ = std::fs::remove_dir_all(&folder);
    words
}

fn context(workspace: Workspace, household: Household) -> ToolContext {
    ToolContext {
        workspace: Arc::new(workspace),
        household,
        env: base_environment(),
        exec_policy: ExecPolicy::default(),
        confinement: Confinement::Off,
        tool_timeout: Duration::from_secs(30),
        stop_grace: END_WITHIN,
        sent: SentTexts::default(),
        updates: Updates::default(),
    }
}
