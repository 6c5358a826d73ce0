//! A hook that is a command: what it is given on standard input, its answer on standard output.
//!
//! It runs like a job's commands: argv without a shell, a tree of its own that ends with it, an
//! allow list of the environment, bounded output. What it leaves behind when it has answered is
//! ended at once.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;

use super::point::{Hook, HookContext, HookFault, Point, RunFacts};
use super::points;
use super::registry::erased;
use super::site::Place;
use crate::clock::Deadline;
use crate::config::{HookPoint, HookSpec};
use crate::process::{Child, Confinement, Errors, Exit, Spec, base_environment};
use crate::run::RunId;

/// From TERM to KILL, of what a hook has left or of one that took too long.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// What ending it may take beside that.
const ENDING: Duration = Duration::from_secs(10);

/// The most that is read of an answer: twice the longest prompt or tool result there is.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// How much of what it says on standard error is kept.
const WORDS_CHARS_MAX: usize = 300;

/// A command of `[[hooks]]`.
#[derive(Debug, Clone)]
pub(super) struct CommandHook {
    argv: Vec<String>,
    folder: PathBuf,
}

/// What it reads.
#[derive(Serialize)]
struct Given<'a, P> {
    hook: HookPoint,
    run: Option<&'a RunFacts>,
    workspace: Option<&'a Path>,
    #[serde(flatten)]
    input: &'a P,
}

impl CommandHook {
    pub(super) fn new(spec: &HookSpec) -> Self {
        Self { argv: spec.argv.clone(), folder: spec.folder.clone() }
    }

    async fn ask<P: Point>(
        &self,
        input: &P,
        context: &HookContext,
    ) -> Result<P::Answer, HookFault> {
        let Some(place) = &context.place else {
            return Err(HookFault::NotStarted("there is no place for commands here".into()));
        };
        let until = Deadline::after(place.clock.monotonic(), context.limit);
        let given = Given {
            hook: P::POINT,
            run: context.run.as_ref(),
            workspace: context.workspace.as_deref(),
            input,
        };
        let text = serde_json::to_value(given).map_err(|error| not_started(&error))?;
        let child = tokio::select! {
            child = self.start(P::POINT, &text, context, place) => child?,
            () = until.wait() => return Err(HookFault::TimedOut(context.limit)),
        };
        let left = until.remaining(place.clock.monotonic()).unwrap_or(context.limit);
        let ended = child.wait_output(left).await;
        child.end(STOP_GRACE).await;
        match ended.exit {
            Exit::TimedOut => return Err(HookFault::TimedOut(context.limit)),
            Exit::Code(_) | Exit::Signal(_) | Exit::Unknown => {}
        }
        if let Some(how) = ended.exit.complaint(&[0], context.limit) {
            let said = ended.errors.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let said = said.chars().take(WORDS_CHARS_MAX).collect();
            return Err(HookFault::Ended { how, said });
        }
        if ended.output.truncated {
            return Err(HookFault::TooMuch(ended.output.bytes_total));
        }
        match ended.output.text.trim() {
            "" => Ok(P::Answer::default()),
            printed => P::read(printed).map_err(HookFault::NoAnswer),
        }
    }

    async fn start(
        &self,
        point: HookPoint,
        given: &Value,
        context: &HookContext,
        place: &Place,
    ) -> Result<Child, HookFault> {
        let text = crate::session::masked(given, &place.masker).to_string();
        let input = Input::write(&place.inbox, text, place.clock.wall()).await?;
        let mut env = base_environment();
        env.push(("PUNCTUAL_HOOK".to_owned(), point.to_string()));
        env.extend(context.run.iter().map(|run| ("PUNCTUAL_JOB".to_owned(), run.job.clone())));
        let spec = Spec {
            argv: self.argv.clone(),
            cwd: context.workspace.clone().unwrap_or_else(|| self.folder.clone()),
            env,
            output_bytes_max: ANSWER_BYTES_MAX,
            errors: Errors::Apart,
            // It is the operator's own, and may have to look beyond the workspace.
            confinement: Confinement::Off,
        };
        let started = place.household.start_reading(spec, &input.0).await;
        started.map_err(|error| not_started(&error))
    }
}

impl<P: Point> Hook<P> for CommandHook {
    fn call<'a>(
        &'a self,
        input: &'a P,
        context: &'a HookContext,
    ) -> BoxFuture<'a, Result<P::Answer, HookFault>> {
        self.ask(input, context).boxed()
    }

    fn limit(&self, context: &HookContext) -> Duration {
        context.limit.saturating_add(STOP_GRACE).saturating_add(ENDING)
    }
}

fn not_started(error: &dyn std::error::Error) -> HookFault {
    HookFault::NotStarted(error.to_string())
}

/// What a hook reads, as a file, which is taken away with this: whoever has it open reads on.
struct Input(PathBuf);

impl Input {
    async fn write(inbox: &Path, text: String, now: jiff::Timestamp) -> Result<Self, HookFault> {
        let (folder, path) = (inbox.to_owned(), inbox.join(format!("{}.json", RunId::new(now))));
        // Also what is only begun.
        let input = Self(path.clone());
        let write = move || {
            use std::io::Write as _;
            use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let mut options = std::fs::File::options();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(text.as_bytes())
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => Ok(input),
            Ok(Err(error)) => Err(not_started(&error)),
            Err(error) => Err(not_started(&error)),
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// `hook` as one of that point.
pub(super) fn at(point: HookPoint, hook: CommandHook) -> Arc<dyn Any + Send + Sync> {
    let hook = Arc::new(hook);
    match point {
        HookPoint::BeforeModelResolve => erased::<points::BeforeModelResolve>(hook),
        HookPoint::BeforePromptBuild => erased::<points::BeforePromptBuild>(hook),
        HookPoint::BeforeAgentStart => erased::<points::BeforeAgentStart>(hook),
        HookPoint::BeforeAgentReply => erased::<points::BeforeAgentReply>(hook),
        HookPoint::AgentEnd => erased::<points::AgentEnd>(hook),
        HookPoint::BeforeCompaction => erased::<points::BeforeCompaction>(hook),
        HookPoint::AfterCompaction => erased::<points::AfterCompaction>(hook),
        HookPoint::BeforeToolCall => erased::<points::BeforeToolCall>(hook),
        HookPoint::AfterToolCall => erased::<points::AfterToolCall>(hook),
        HookPoint::ToolResultPersist => erased::<points::ToolResultPersist>(hook),
        HookPoint::BeforeInstall => erased::<points::BeforeInstall>(hook),
        HookPoint::MessageReceived => erased::<points::MessageReceived>(hook),
        HookPoint::MessageSending => erased::<points::MessageSending>(hook),
        HookPoint::MessageSent => erased::<points::MessageSent>(hook),
        HookPoint::SessionStart => erased::<points::SessionStart>(hook),
        HookPoint::SessionEnd => erased::<points::SessionEnd>(hook),
        HookPoint::GatewayStart => erased::<points::GatewayStart>(hook),
        HookPoint::GatewayStop => erased::<points::GatewayStop>(hook),
        HookPoint::AgentBootstrap => erased::<points::AgentBootstrap>(hook),
        HookPoint::Command => erased::<points::CommandGiven>(hook),
        HookPoint::GatewayStartup => erased::<points::GatewayStartup>(hook),
        HookPoint::GatewayShutdown => erased::<points::GatewayShutdown>(hook),
    }
}
