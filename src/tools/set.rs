//! The tools that one job offers, by name.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::time::timeout;

use super::beyond::Beyond;
use super::exec::Exec;
use super::history::History;
use super::http_get::HttpGet;
use super::message::Message;
use super::subturn::Subturn;
use super::tape::{CallTape, Permission};
use super::tool::{Tool, ToolContext, ToolOutcome, Verdict};
use super::{edit, grep, list, read, write};
use crate::provider::{ToolCall, ToolDefinition};

/// The most that any tool may give a model at once; the native ones stay below it.
const CONTENT_BYTES_MAX: usize = 128 * 1024;

/// A name further off than this is no misspelling.
const SIMILAR_MIN: f64 = 0.6;

/// A name that no tool has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool `{name}`{}", hint(nearest.as_deref()))]
pub struct UnknownTool {
    /// The name.
    pub name: String,
    /// What may have been meant.
    pub nearest: Option<String>,
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}

/// What a job's turn may call. Everything else is denied.
#[derive(Clone, Default)]
pub struct ToolSet {
    entries: Vec<Entry>,
    /// What takes down the calls, or answers them.
    tape: Option<Arc<CallTape>>,
}

#[derive(Clone)]
struct Entry {
    definition: ToolDefinition,
    tool: Arc<dyn Tool>,
}

impl ToolSet {
    /// The tools of a job that does not name any.
    pub const READ_ONLY: &[&str] = &["read", "list", "grep"];

    /// Every native tool.
    pub const NATIVE: &[&str] = &[
        "read", "write", "edit", "list", "grep", "exec", "http_get", "message", "history",
        "subturn",
    ];

    /// The native tools with these names, as far as they reach nothing beyond the workspace.
    pub fn native<S: AsRef<str>>(names: &[S]) -> Result<Self, UnknownTool> {
        Self::native_with(names, &Beyond::default())
    }

    /// The native tools with these names, which reach what is `beyond` the workspace.
    pub fn native_with<S: AsRef<str>>(names: &[S], beyond: &Beyond) -> Result<Self, UnknownTool> {
        let mut set = Self::default();
        for name in names.iter().map(AsRef::as_ref) {
            let tool: Arc<dyn Tool> = match name {
                "read" => Arc::new(read::TOOL),
                "write" => Arc::new(write::TOOL),
                "edit" => Arc::new(edit::TOOL),
                "list" => Arc::new(list::TOOL),
                "grep" => Arc::new(grep::TOOL),
                "exec" => Arc::new(Exec),
                "http_get" => Arc::new(HttpGet::new(beyond.allow_hosts.clone())),
                "message" => Arc::new(Message::new(beyond.post.clone())),
                "subturn" => Arc::new(Subturn),
                "history" => Arc::new(History(beyond.ledger.clone())),
                _ => return Err(UnknownTool { name: name.to_owned(), nearest: nearest(name) }),
            };
            set = set.with(tool);
        }
        Ok(set)
    }

    /// The set with one more tool; of two with the same name the first stays.
    #[must_use]
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        let definition = tool.definition();
        if self.get(&definition.name).is_none() {
            self.entries.push(Entry { definition, tool });
        }
        self
    }

    /// How the tools are offered to a model, in the order in which they were named.
    pub fn definitions(&self) -> Vec<ToolDefinition> {
        self.entries.iter().map(|entry| entry.definition.clone()).collect()
    }

    /// Their names, in the same order.
    pub fn names(&self) -> Vec<&str> {
        self.entries.iter().map(|entry| entry.definition.name.as_str()).collect()
    }

    /// The same tools, as far as they have one of these names, with the same tape.
    #[must_use]
    pub(crate) fn only(&self, names: &[String]) -> Self {
        let is_named = |entry: &&Entry| names.contains(&entry.definition.name);
        let entries = self.entries.iter().filter(is_named).cloned().collect();
        Self { entries, tape: self.tape.clone() }
    }

    /// The set with a tape that takes down its calls, or answers them.
    #[must_use]
    pub fn taped(self, tape: Arc<CallTape>) -> Self {
        Self { tape: Some(tape), ..self }
    }

    /// Does what a model asked for. It always comes back: with what the tool gave, or with words
    /// that say what went wrong.
    pub async fn call(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        self.call_in_place_of(call, call, context).await
    }

    /// The same where somebody has changed what a model asked for. A tape takes down what it was.
    pub async fn call_in_place_of(
        &self,
        asked: &ToolCall,
        call: &ToolCall,
        context: &ToolContext,
    ) -> ToolOutcome {
        let Some(tape) = &self.tape else { return self.do_it(call, context).await };
        let may = match self.get(&call.name) {
            Some(entry) => entry.tool.permission(&call.arguments, context),
            None => Permission::Refused(self.refusal(&call.name)),
        };
        let outcome = match tape.answer(asked, may) {
            Some(outcome) => outcome,
            None => self.do_it(call, context).await,
        };
        tape.note(asked, &outcome);
        outcome
    }

    /// Takes down a call that was not let through, or not made by a tool.
    pub fn note_refused(&self, asked: &ToolCall, outcome: &ToolOutcome) {
        if let Some(tape) = &self.tape {
            tape.note(asked, outcome);
        }
    }

    async fn do_it(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        let Some(entry) = self.get(&call.name) else { return self.refusal(&call.name) };
        let limit = entry.tool.limit(context);
        let work = async { entry.tool.call(call.arguments.clone(), context).await };
        match timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
            Ok(Ok(outcome)) => bounded(outcome),
            Ok(Err(_)) => ToolOutcome::new(Verdict::Error, "the tool itself failed"),
            Err(_) => {
                let text = format!("`{}` took longer than {limit:?} and was given up", call.name);
                ToolOutcome::new(Verdict::TimedOut, text)
            }
        }
    }

    fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.definition.name == name)
    }

    fn refusal(&self, name: &str) -> ToolOutcome {
        ToolOutcome::new(Verdict::Denied, self.not_offered(name))
    }

    fn not_offered(&self, name: &str) -> String {
        match self.names().as_slice() {
            [] => format!("`{name}` is not offered here; no tools are"),
            names => format!("`{name}` is not offered here; offered are {}", names.join(", ")),
        }
    }
}

impl std::fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ToolSet").field(&self.names()).finish()
    }
}

fn nearest(name: &str) -> Option<String> {
    let score = |native: &&str| strsim::jaro_winkler(name, native);
    let best = ToolSet::NATIVE.iter().copied().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(&best) >= SIMILAR_MIN).then(|| best.to_owned())
}

fn bounded(mut outcome: ToolOutcome) -> ToolOutcome {
    if outcome.content.len() > CONTENT_BYTES_MAX {
        let mut end = CONTENT_BYTES_MAX;
        while !outcome.content.is_char_boundary(end) {
            end -= 1;
        }
        outcome.content.truncate(end);
        outcome.content.push_str("\n[… the rest is omitted …]");
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_the_set_and_wrong_ones_are_explained() {
        let set = ToolSet::native(ToolSet::NATIVE).unwrap();
        assert_eq!(set.names(), ToolSet::NATIVE);
        assert_eq!(ToolSet::native::<&str>(&[]).unwrap().names(), Vec::<&str>::new());
        assert_eq!(ToolSet::native(&["read", "read"]).unwrap().names(), ["read"]);
        let error = |name| ToolSet::native(&[name]).unwrap_err().to_string();
        assert_eq!(error("exce"), "there is no tool `exce`; did you mean `exec`?");
        assert_eq!(error("Read"), "there is no tool `Read`; did you mean `read`?");
        assert_eq!(error("zzz"), "there is no tool `zzz`");
    }

    #[test]
    fn every_native_tool_is_offered_with_the_arguments_of_the_contract() {
        let set = ToolSet::native(ToolSet::NATIVE).unwrap();
        let offered: Vec<String> = set
            .definitions()
            .iter()
            .map(|one| {
                let required = one.parameters["required"].as_array().unwrap();
                let properties = one.parameters["properties"].as_object().unwrap();
                let mark = |name: &String| {
                    let optional = !required.contains(&name.as_str().into());
                    if optional { format!("{name}?") } else { name.clone() }
                };
                let marked: Vec<_> = properties.keys().map(mark).collect();
                format!("{} {{{}}}", one.name, marked.join(", "))
            })
            .collect();
        let want = [
            "read {path, offset?, limit?}",
            "write {path, content}",
            "edit {path, old, new}",
            "list {path}",
            "grep {pattern, path?}",
            "exec {command, timeout?}",
            "http_get {url}",
            "message {target, text}",
            "history {sql}",
            "subturn {prompt, tools?, timeout?, max_tokens?}",
        ];
        assert_eq!(offered, want);
    }
}
