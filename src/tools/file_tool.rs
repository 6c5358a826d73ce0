//! What the file tools have in common: parameters of their own type, and blocking work on files.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::parameters::{definition, parse};
use super::tool::{Arguments, Refusal, Tool, ToolContext, ToolOutcome, Verdict};
use super::workspace::Workspace;
use crate::provider::ToolDefinition;

/// A tool that does one thing to the files of a workspace.
pub(super) struct FileTool<P> {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    /// What it does; its text goes to the model.
    pub(super) act: fn(&Workspace, &P) -> Result<String, Refusal>,
}

impl<P: DeserializeOwned + JsonSchema + Send + 'static> Tool for FileTool<P> {
    fn definition(&self) -> ToolDefinition {
        definition::<P>(self.name, self.description)
    }

    fn call<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        async move {
            match parse::<P>(self.name, arguments) {
                Ok(parameters) => on_files(self.act, parameters, context).await,
                Err(refusal) => refusal.into(),
            }
        }
        .boxed()
    }
}

/// Does blocking work on files away from the loop that keeps the limits.
async fn on_files<P: Send + 'static>(
    act: fn(&Workspace, &P) -> Result<String, Refusal>,
    parameters: P,
    context: &ToolContext,
) -> ToolOutcome {
    let workspace = Arc::clone(&context.workspace);
    match tokio::task::spawn_blocking(move || act(&workspace, &parameters)).await {
        Ok(Ok(text)) => ToolOutcome::new(Verdict::Ok, text),
        Ok(Err(refusal)) => refusal.into(),
        Err(_) => ToolOutcome::new(Verdict::Error, "the tool itself failed"),
    }
}
