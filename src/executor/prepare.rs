//! From a ticket to a turn that can begin: workspace, model, secrets, prompt.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::checks::Site;
use super::holdings::Holdings;
use super::models::Resolved;
use super::run::{Executor, Ticket};
use super::stop::{Stop, invalid};
use super::watchdog::Watchdog;
use crate::job::{
    Environment, FILE_BYTES_MAX, JobSpec, Masker, Prompt, SecretSource, Workdir, read_text,
};
use crate::process::base_environment;
use crate::run::{ErrorKind, Failure, Phase};
use crate::session::Transcript;
use crate::tools::{ExecPolicy, ToolContext, ToolSet, Workspace};
use crate::turn::{Bounds, Tools, Turn, render, system_prompt};

impl Executor {
    /// Workspace, model, secrets and prompt, phase by phase.
    pub(super) async fn prepare(
        &self,
        ticket: &Ticket,
        watchdog: &Watchdog,
        holdings: &mut Holdings,
    ) -> Result<Resolved, Stop> {
        let spec = &ticket.spec;
        watchdog.entered(Phase::Workspace);
        let workspace = self.workspace(ticket, holdings).await?;

        watchdog.entered(Phase::ModelResolution);
        let resolved = self.models.resolve(&spec.agent.model, 0)?;

        watchdog.entered(Phase::Auth);
        let secrets = read_secrets(spec, &self.config.environment)?;
        let known = self.models.secrets().chain(secrets.iter().cloned());
        holdings.masker = Arc::new(Masker::new(known));

        watchdog.entered(Phase::Context);
        let template = match &spec.agent.prompt {
            Prompt::Inline(text) => text.clone(),
            Prompt::File(path) => read_prompt(path).await?,
        };
        let prompt =
            render(&template, &ticket.variables).map_err(|error| invalid(error.to_string()))?;
        let tools =
            ToolSet::native(&spec.agent.tools).map_err(|error| invalid(error.to_string()))?;
        let has_tools = if spec.agent.tools.is_empty() { Tools::None } else { Tools::Some };
        let context = self.tool_context(spec, &workspace, &secrets, holdings)?;
        holdings.site = holdings.started.map(|started| Site {
            workdir: workspace.clone(),
            env: context.env.clone(),
            started,
        });
        self.lock_session(ticket, watchdog, holdings).await?;
        let transcript = Transcript::create(
            &self.config.state_dir,
            &ticket.session_id,
            json!({ "runId": ticket.run_id, "job": spec.id, "sessionKey": format!("cron:{}", spec.id) }),
            Arc::clone(&holdings.masker),
            Arc::clone(&self.clock),
        )
        .await
        .map_err(|error| Failure::new(ErrorKind::Internal, error.to_string()).retryable())?;
        let bounds = Bounds {
            max_turns: spec.limits.max_turns,
            max_tokens: spec.limits.max_tokens,
            max_usd: spec.limits.max_usd,
        };
        let turn = Turn::begin(
            system_prompt(spec.id.as_str(), has_tools),
            prompt,
            tools,
            context,
            bounds,
            transcript,
            Arc::clone(&holdings.masker),
            Arc::clone(&self.clock),
        );
        holdings.turn = Some(turn.await);
        Ok(resolved)
    }

    async fn workspace(&self, ticket: &Ticket, holdings: &mut Holdings) -> Result<PathBuf, Stop> {
        match &ticket.spec.agent.workdir {
            Workdir::Existing(path) => Ok(path.clone()),
            Workdir::Fresh => {
                let path = self.config.state_dir.join("workspaces").join(ticket.run_id.as_str());
                // Noted first: a run that is cut here tidies what it may have made.
                holdings.made_workspace = Some(path.clone());
                let mut folder = tokio::fs::DirBuilder::new();
                folder.recursive(true).mode(0o700);
                folder.create(&path).await.map_err(|error| {
                    let words = format!("failed to make the workspace {}: {error}", path.display());
                    Failure::new(ErrorKind::Internal, words)
                })?;
                Ok(path)
            }
        }
    }

    fn tool_context(
        &self,
        spec: &JobSpec,
        folder: &Path,
        secrets: &[(String, secrecy::SecretString)],
        holdings: &Holdings,
    ) -> Result<ToolContext, Stop> {
        // A fresh workspace is inside the state folder, and nothing else of that can be reached
        // from it. A folder that a job names may hold anything.
        let mut protected = Vec::new();
        if holdings.made_workspace.is_none() {
            protected.extend([self.config.jobs_dir.clone(), self.config.state_dir.clone()]);
            protected.extend(self.config.files.iter().cloned());
        }
        let workspace = Workspace::open(folder, &protected).map_err(|error| {
            use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
            let words = format!("the workspace {} cannot be opened: {error}", folder.display());
            match error.kind() {
                NotFound | NotADirectory | PermissionDenied => invalid(words),
                // The machine's fault (no file handles, an input error), not the job's.
                _ => Failure::new(ErrorKind::Internal, words).retryable(),
            }
        })?;
        let exec_policy = ExecPolicy::from_patterns(&spec.agent.exec_allow)
            .map_err(|error| invalid(error.to_string()))?;
        Ok(ToolContext {
            workspace: Arc::new(workspace),
            household: holdings.household.clone(),
            env: command_environment(spec, secrets, &self.config.environment),
            exec_policy,
            tool_timeout: spec.limits.tool_timeout,
            stop_grace: spec.limits.stop_grace,
        })
    }
}

async fn read_prompt(path: &Path) -> Result<String, Failure> {
    let named = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read_text(&named, FILE_BYTES_MAX));
    let text = read.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    text.map_err(|error| invalid(format!("failed to read the prompt {}: {error}", path.display())))
}

fn read_secrets(
    spec: &JobSpec,
    environment: &Environment,
) -> Result<Vec<(String, secrecy::SecretString)>, Failure> {
    let read = |(name, source): (&String, &SecretSource)| {
        let value = source
            .read(environment)
            .map_err(|error| invalid(format!("secret `{name}`: {error}")))?;
        Ok((name.clone(), value))
    };
    spec.env.secret.iter().map(read).collect()
}

/// What the job's commands see: the base, what the job passes on and sets, its secrets.
fn command_environment(
    spec: &JobSpec,
    secrets: &[(String, secrecy::SecretString)],
    ours: &Environment,
) -> Vec<(String, String)> {
    use secrecy::ExposeSecret as _;
    let mut environment = base_environment();
    let passed = spec.env.pass.iter().filter_map(|name| Some((name.clone(), ours.get(name)?)));
    environment.extend(passed);
    environment.extend(spec.env.set.iter().map(|(name, value)| (name.clone(), value.clone())));
    environment.extend(
        secrets.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())),
    );
    environment
}
