//! `write {path, content}`: a whole file, or nothing.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::parameters::{definition, parse};
use super::tool::{Arguments, Tool, ToolContext, ToolOutcome, on_files};
use crate::provider::ToolDefinition;

/// Writes a file.
pub(super) struct Write;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// A file, relative to the workspace; its folders are made.
    path: String,
    /// The whole new content.
    content: String,
}

impl Tool for Write {
    fn definition(&self) -> ToolDefinition {
        definition::<Parameters>("write", "Create a file or replace its whole content.")
    }

    fn call<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        async move {
            match parse::<Parameters>("write", arguments) {
                Ok(Parameters { path, content }) => {
                    let write = move |files: &super::Workspace| {
                        files.replace(&path, content.as_bytes())?;
                        Ok(format!("wrote {} bytes to `{path}`", content.len()))
                    };
                    on_files(context, write).await
                }
                Err(refusal) => refusal.into(),
            }
        }
        .boxed()
    }
}
