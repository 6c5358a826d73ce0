//! `subturn {prompt, tools?, timeout?, max_tokens?}`: a part of the work in a conversation of its
//! own.
//!
//! What it offers is here, what it does is the turn's: only the turn that is called from has the
//! budget, the model and the transcript that its part shares. The tool never acts by itself.

use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

use super::limit::Limit;
use super::parameters::{definition, parse};
use super::tool::{Arguments, Refusal, Tool, ToolContext, ToolOutcome, Verdict};
use crate::provider::ToolDefinition;

/// Its name.
pub(crate) const SUBTURN: &str = "subturn";

/// Tools that a part has only if they are named: what it says to people is said.
const ONLY_IF_NAMED: &[&str] = &["message"];

/// Offers parts.
pub(super) struct Subturn;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// What to do; it sees nothing else of this conversation.
    prompt: String,
    /// Tools of yours that it may use; without, all but `message`.
    tools: Option<Vec<String>>,
    /// How long it may take, such as `2m`.
    #[schemars(with = "Option<String>")]
    timeout: Option<Limit>,
    /// Tokens that it may use of yours.
    max_tokens: Option<u64>,
}

/// What a part was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// What it is told.
    pub(crate) prompt: String,
    /// What it may call, of what its turn may.
    pub(crate) tools: Vec<String>,
    /// How long it may take.
    pub(crate) within: Duration,
    /// Tokens that it may use.
    pub(crate) max_tokens: Option<u64>,
}

impl Tool for Subturn {
    fn definition(&self) -> ToolDefinition {
        let description = "Have a part of the work done in a conversation of its own, which starts \
            empty and shares your budget and your time; you get its last message. Good for looking \
            through much to find little.";
        definition::<Parameters>(SUBTURN, description)
    }

    fn call<'a>(
        &'a self,
        _arguments: Arguments,
        _context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        let words = "a part can only be opened by a turn";
        Box::pin(std::future::ready(ToolOutcome::new(Verdict::Denied, words)))
    }
}

/// What `arguments` ask for, of a turn that offers `offered`. A part opens no part.
pub(crate) fn part_of(
    arguments: Arguments,
    offered: &[&str],
    context: &ToolContext,
) -> Result<Part, ToolOutcome> {
    read(arguments, offered, context).map_err(Into::into)
}

fn read(arguments: Arguments, offered: &[&str], context: &ToolContext) -> Result<Part, Refusal> {
    let Parameters { prompt, tools, timeout, max_tokens } = parse(SUBTURN, arguments)?;
    if prompt.trim().is_empty() {
        return Err(Refusal::Failed("the prompt is empty".into()));
    }
    let tools = tools_of(tools, offered)?;
    let asked = timeout.as_ref().map(Limit::duration).transpose()?;
    let within = asked.map_or(context.tool_timeout, |asked| asked.min(context.tool_timeout));
    if max_tokens == Some(0) {
        return Err(Refusal::Failed("with no tokens nothing can be said".into()));
    }
    Ok(Part { prompt, tools, within, max_tokens })
}

/// Those that it names, as far as its turn has them; without a name, all that need none.
fn tools_of(named: Option<Vec<String>>, offered: &[&str]) -> Result<Vec<String>, Refusal> {
    let may = || offered.iter().copied().filter(|it| *it != SUBTURN);
    let Some(named) = named else {
        let usual = may().filter(|it| !ONLY_IF_NAMED.contains(it));
        return Ok(usual.map(str::to_owned).collect());
    };
    match named.iter().find(|it| may().all(|may| may != it.as_str())) {
        None => Ok(named),
        Some(wrong) => {
            let may = may().collect::<Vec<_>>().join(", ");
            Err(Refusal::Denied(format!("a part may not have `{wrong}`; it may have {may}")))
        }
    }
}
