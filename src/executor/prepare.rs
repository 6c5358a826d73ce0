//! From a ticket to a turn that can begin: workspace, model, secrets, prompt.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fence::{reading, with_temporary};
use super::holdings::Holdings;
use super::known::with_gate;
use super::models::Resolved;
use super::run::{Executor, Ticket};
use super::stop::{Stop, invalid};
use super::told::base_of;
use super::watchdog::Watchdog;
use crate::clock::Deadline;
use crate::job::{
    AgentSpec, AskedFor, FILE_BYTES_MAX, JobSpec, Prompt, Sandbox, Tracing, read_text,
};
use crate::process::Confinement;
use crate::run::{ErrorKind, Failure, Phase};
use crate::session::Trace;
use crate::tools::{ExecPolicy, SentTexts, ToolContext, ToolSet, Updates, Workspace};
use crate::turn::{Bounds, Known, Opening, Turn, Variables, assemble, render};

impl Executor {
    /// Workspace, model, secrets and prompt, phase by phase.
    pub(super) async fn prepare(
        &self,
        ticket: &Ticket,
        agent: &AgentSpec,
        watchdog: &Watchdog,
        holdings: &mut Holdings,
    ) -> Result<Resolved, Stop> {
        let spec = &ticket.spec;
        watchdog.entered(Phase::Workspace);
        let workspace = self.settle_in(ticket, holdings).await?;
        let confinement = self.confinement(ticket, agent, &workspace, holdings).await?;

        watchdog.entered(Phase::ModelResolution);
        let (model, older) = self.choose_model(ticket, agent, holdings).await?;
        let mut resolved = self.models.resolve(&model, 0, self.deck.as_ref())?;
        self.learn_window(&mut resolved, watchdog).await;

        watchdog.entered(Phase::Auth);
        let env = with_temporary(self.learn_secrets(spec, holdings)?, ticket, holdings);

        watchdog.entered(Phase::Context);
        let written = self.written_prompt(ticket, agent, holdings).await?;
        let beyond = self.beyond(ticket, holdings);
        let tools = ToolSet::native_with(&agent.tools, &beyond)
            .map_err(|error| invalid(error.to_string()))?;
        let tools = self.embedding.own_tools().fold(tools, ToolSet::with);
        let skills = self.look_at_skills(ticket, agent).await?;
        let context =
            self.tool_context(spec, agent, (&workspace, &skills.folders), env, holdings)?;
        let confinement = reading(confinement, &context.workspace);
        let context = ToolContext { confinement, ..context };
        let tools = self.with_mcp(ticket, agent, tools, &context, holdings).await?;
        let tools = match &self.deck {
            Some(deck) => tools.taped(deck.calls()),
            None => tools,
        };
        let material = self.material(ticket, agent, skills, &context, holdings).await?;
        self.lock_session(ticket, watchdog, holdings).await?;
        let (transcript, history) = self.open_transcript(ticket, holdings).await?;
        // What a person says is no template.
        let prompt = self.hear_first(ticket).await.unwrap_or(written);
        let bounds = Bounds {
            max_turns: spec.limits.max_turns,
            max_tokens: spec.limits.max_tokens,
            max_usd: spec.limits.max_usd,
            purse: self.purse.open(&ticket.run_id, spec, &self.config, &self.clock),
        };
        let overrides = self.overrides(ticket, &prompt, &history, older, holdings).await;
        let assembled = assemble(base_of(spec, agent), &material, overrides, prompt);
        self.note_prompt(&ticket.run_id, &assembled, &tools.definitions()).await?;
        let trace = (agent.manner.trace == Tracing::On).then(|| {
            let (masker, clock) = (Arc::clone(&holdings.masker), Arc::clone(&self.clock));
            Trace::create(&self.config.state_dir, ticket.run_id.as_str(), masker, clock)
        });
        let turn = Turn::begin(Opening {
            system: assembled.system(),
            prompt: assembled.prompt(),
            manner: agent.manner,
            trace,
            tools,
            context,
            bounds,
            transcript,
            history,
            inbox: ticket.conversation.inbox().cloned(),
            masker: Arc::clone(&holdings.masker),
            clock: Arc::clone(&self.clock),
            hooks: self.hooks_of(ticket, holdings).until(Deadline::NEVER),
        });
        holdings.turn = Some(turn.await);
        Ok(resolved)
    }

    /// What the job says, filled in.
    async fn written_prompt(
        &self,
        ticket: &Ticket,
        agent: &AgentSpec,
        holdings: &Holdings,
    ) -> Result<String, Stop> {
        let template = match &agent.prompt {
            Prompt::Inline(text) => text.clone(),
            Prompt::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read_prompt(&path)).await;
                read.map_err(|error| Failure::new(ErrorKind::Internal, error.to_string()))??
            }
        };
        let known = self.known(ticket, &template, holdings).await?;
        let words = Words { template: &template, variables: &ticket.variables, known: &known };
        let prompt = rendered(words)?;
        let passed = ticket.spec.gate.as_ref().map(|gate| gate.output);
        Ok(with_gate(prompt, &template, passed, &known))
    }

    fn tool_context(
        &self,
        spec: &JobSpec,
        agent: &AgentSpec,
        (folder, readable): (&Path, &[PathBuf]),
        env: Vec<(String, String)>,
        holdings: &Holdings,
    ) -> Result<ToolContext, Stop> {
        // A fresh workspace is inside the state folder, and nothing else of that can be reached
        // from it. A folder that a job names may hold anything.
        let mut protected = Vec::new();
        if holdings.made_workspace.is_none() {
            protected.extend([self.config.jobs_dir.clone(), self.config.state_dir.clone()]);
            protected.extend(self.config.files.iter().cloned());
            // What a run writes there would be told to every later one.
            protected.extend(self.config.skills.dirs.iter().cloned());
        }
        let hidden = match (agent.sandbox.mode, &holdings.made_workspace) {
            (Sandbox::Strict | Sandbox::Workspace, None) => vec![self.config.state_dir.clone()],
            (Sandbox::Off, _) | (_, Some(_)) => Vec::new(),
        };
        let opened = Workspace::open(folder, &protected).and_then(|it| it.hiding(&hidden));
        let workspace = opened.and_then(|it| it.reading(readable)).map_err(|error| {
            use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
            let words = format!("the workspace {} cannot be opened: {error}", folder.display());
            match error.kind() {
                NotFound | NotADirectory | PermissionDenied => invalid(words),
                // The machine's fault (no file handles, an input error), not the job's.
                _ => Failure::new(ErrorKind::Internal, words).retryable(),
            }
        })?;
        let exec_policy = ExecPolicy::from_patterns(&agent.exec_allow)
            .map_err(|error| invalid(error.to_string()))?;
        Ok(ToolContext {
            workspace: Arc::new(workspace),
            household: holdings.household.clone(),
            env,
            exec_policy,
            confinement: Confinement::Off,
            tool_timeout: spec.limits.tool_timeout,
            stop_grace: spec.limits.stop_grace,
            sent: SentTexts::default(),
            updates: Updates::default(),
        })
    }
}

/// The jobs that the prompt names and that have not replied yet: most likely that is why.
fn without_reply(template: &str, known: &Known) -> String {
    let asked = AskedFor::of(template).jobs;
    let missing: Vec<_> =
        asked.into_iter().filter(|job| !known.replies.contains_key(job)).collect();
    match missing.as_slice() {
        [] => String::new(),
        jobs => format!("; without a reply so far: {}", jobs.join(", ")),
    }
}

/// A template and what it may name.
pub(super) struct Words<'a> {
    pub(super) template: &'a str,
    pub(super) variables: &'a Variables,
    pub(super) known: &'a Known,
}

/// The template, filled in.
pub(super) fn rendered(Words { template, variables, known }: Words<'_>) -> Result<String, Failure> {
    render(template, variables, known)
        .map_err(|error| invalid(format!("{error}{}", without_reply(template, known))))
}

/// The text of a prompt file.
pub(super) fn read_prompt(path: &Path) -> Result<String, Failure> {
    read_text(path, FILE_BYTES_MAX)
        .map_err(|error| invalid(format!("failed to read the prompt {}: {error}", path.display())))
}
