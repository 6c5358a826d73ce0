//! `exec {command, timeout?}`: a command, its output and its exit code.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::limit::Limit;
use super::parameters::{definition, parse};
use super::tape::Permission;
use super::tool::{Arguments, Refusal, Tool, ToolContext, ToolOutcome, Verdict};
use super::update::{Update, Updates};
use crate::process::{Child, Ended, Errors, Exit, Output, Spec};
use crate::provider::ToolDefinition;

/// How much of the output a model gets: half from the start, half from the end.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// The system's limit for one argument is 128 KiB; a command that long is a mistake anyway.
const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// How often a command that goes on is looked at: nobody reads faster.
const UPDATE_EVERY: Duration = Duration::from_secs(1);

/// What starting and ending may take beside the command's own limit and its grace.
const START_AND_END: Duration = Duration::from_secs(30);

/// Runs a shell command.
pub(super) struct Exec;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// A command line for `sh`; its folder is the workspace.
    command: String,
    /// How long it may take, such as `30s` or `2m`.
    #[schemars(with = "Option<String>")]
    timeout: Option<Limit>,
}

impl Tool for Exec {
    fn definition(&self) -> ToolDefinition {
        let description = "Run a command with `sh`. There is no input and no terminal. \
            What it leaves in the background ends with the run.";
        definition::<Parameters>("exec", description)
    }

    fn call<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        exec(arguments, context).map(|result| result.unwrap_or_else(Into::into)).boxed()
    }

    fn permission(&self, arguments: &Arguments, context: &ToolContext) -> Permission {
        let Ok(Parameters { command, .. }) = parse("exec", arguments.clone()) else {
            return Permission::Unknown;
        };
        match context.exec_policy.check(&command) {
            Ok(()) => Permission::Granted,
            Err(refusal) => Permission::Refused(Refusal::Denied(refusal.to_string()).into()),
        }
    }

    fn limit(&self, context: &ToolContext) -> Duration {
        context.tool_timeout.saturating_add(context.stop_grace).saturating_add(START_AND_END)
    }
}

async fn exec(arguments: Arguments, context: &ToolContext) -> Result<ToolOutcome, Refusal> {
    let Parameters { command, timeout } = parse("exec", arguments)?;
    if command.len() > COMMAND_BYTES_MAX {
        return Err(Refusal::Failed(format!(
            "the command is longer than {COMMAND_BYTES_MAX} bytes"
        )));
    }
    let asked = timeout.as_ref().map(Limit::duration).transpose()?;
    let limit = asked.map_or(context.tool_timeout, |asked| asked.min(context.tool_timeout));
    context.exec_policy.check(&command).map_err(|refusal| Refusal::Denied(refusal.to_string()))?;
    let spec = Spec {
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), command],
        cwd: context.workspace.path().to_owned(),
        env: context.env.clone(),
        output_bytes_max: OUTPUT_BYTES_MAX,
        errors: Errors::WithOutput,
        confinement: context.confinement.clone(),
    };
    let started = context.household.start(spec).await;
    let child = started.map_err(|error| Refusal::Failed(error.to_string()))?;
    let ended = wait(&child, limit, &context.updates).await;
    Ok(outcome(&child, ended, limit, context.stop_grace).await)
}

/// Waits for the end, and says now and then what has been printed so far.
async fn wait(child: &Child, limit: Duration, updates: &Updates) -> Ended {
    let end = child.wait_output(limit);
    tokio::pin!(end);
    let mut told = 0;
    loop {
        if let Ok(ended) = tokio::time::timeout(UPDATE_EVERY, &mut end).await {
            return ended;
        }
        let Output { text, bytes_total, .. } = child.output_so_far();
        if bytes_total > told {
            told = bytes_total;
            updates.tell(Update { output: text, bytes: bytes_total });
        }
    }
}

async fn outcome(child: &Child, ended: Ended, limit: Duration, grace: Duration) -> ToolOutcome {
    let (verdict, note) = match ended.exit {
        Exit::Code(0) => (Verdict::Ok, None),
        Exit::Code(code) => (Verdict::Error, Some(format!("exit code {code}"))),
        Exit::Signal(signal) => (Verdict::Error, Some(format!("ended by signal {signal}"))),
        Exit::Unknown => (Verdict::Error, Some("how it ended is not known".to_owned())),
        Exit::TimedOut => {
            let end = child.end(grace).await;
            let note = format!("timed out after {limit:?}; {} processes were ended", end.killed);
            (Verdict::TimedOut, Some(note))
        }
    };
    let exit_code = ended.exit.code();
    let mut content = ended.output.text;
    if let Some(note) = note {
        let gap = if content.is_empty() || content.ends_with('\n') { "" } else { "\n" };
        content = format!("{content}{gap}[{note}]");
    }
    ToolOutcome { content, verdict, exit_code, output_bytes: ended.output.bytes_total }
}
