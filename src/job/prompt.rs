//! Whether a prompt's template can be rendered: its syntax and its variables.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::keys::did_you_mean;
use super::problem::{Problem, Severity};
use super::source::Source;

/// The variables of every run, beside `vars.x`.
pub const PROMPT_VARIABLES: &[&str] = &["due_at", "slot.start", "slot.end"];
const LATER_ROOTS: &[&str] = &["gate", "previous", "jobs"];
/// A run would fail on it: an undefined variable is an error there, never an empty text.
const UNKNOWN_VARIABLE: Severity = Severity::Error;

/// Where a prompt is written.
pub(super) struct Written<'a> {
    pub(super) source: &'a Arc<Source>,
    /// The value.
    pub(super) span: Range<usize>,
    /// Where its text begins, if an offset in it is an offset in the file.
    pub(super) start: Option<usize>,
}

impl Written<'_> {
    fn span(&self, within: Option<Range<usize>>) -> Range<usize> {
        match (self.start, within) {
            (Some(start), Some(within)) => start + within.start..start + within.end,
            _ => self.span.clone(),
        }
    }
}

/// Reports what is wrong with the template `text`.
pub(super) fn check(
    text: &str,
    written: &Written<'_>,
    key: &str,
    vars: &BTreeMap<String, String>,
    problems: &mut Vec<Problem>,
) {
    // Nothing is rendered here: filters and tests are looked up when it is.
    let environment = minijinja::Environment::empty();
    let template = match environment.template_from_str(text) {
        Ok(template) => template,
        Err(error) => {
            let span = written.span(error.line().and_then(|line| line_span(text, line)));
            let message = format!("the prompt is not a template: {}", why(&error));
            let problem = written
                .source
                .error(span, key.to_owned(), message)
                .with_help("write {{ \"{{\" }} for braces that are meant as such".to_owned());
            problems.push(problem);
            return;
        }
    };
    let mut names: Vec<_> = template.undeclared_variables(true).into_iter().collect();
    names.sort();
    for name in names {
        let Some((severity, message, help)) = judge(&name, vars) else { continue };
        let span = written.span(place_of(text, &name));
        let mut problem = written.source.error(span, key.to_owned(), message).with_help(help);
        problem.severity = severity;
        problems.push(problem);
    }
}

fn judge(
    name: &str,
    vars: &BTreeMap<String, String>,
) -> Option<(Severity, String, Option<String>)> {
    let (root, rest) = name.split_once('.').unwrap_or((name, ""));
    if LATER_ROOTS.contains(&root) {
        let message = format!("the variable `{name}` is not supported yet");
        return Some((Severity::Error, message, None));
    }
    let of_vars: Vec<_> = vars.keys().map(|var| format!("vars.{var}")).collect();
    let known = PROMPT_VARIABLES.iter().copied().chain(of_vars.iter().map(String::as_str));
    let is_whole_table = rest.is_empty() && matches!(root, "vars" | "slot");
    // `dict`, `range` and the like: functions of the template language.
    if is_whole_table
        || known.clone().any(|known| known == name)
        || matches!(name, "range" | "dict" | "namespace" | "debug" | "loop")
    {
        return None;
    }
    let help = did_you_mean(name, known.clone())
        .unwrap_or_else(|| format!("known: {}", known.collect::<Vec<_>>().join(", ")));
    Some((UNKNOWN_VARIABLE, format!("unknown variable `{name}` in the prompt"), Some(help)))
}

/// Where the name stands first as a word of its own.
fn place_of(text: &str, name: &str) -> Option<Range<usize>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let found = text.match_indices(name).find(|(at, _)| {
        let before = text[..*at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        text[..*at].contains('{') && !before.is_some_and(is_word) && !after.is_some_and(is_word)
    });
    found.map(|(at, name)| at..at + name.len())
}

fn line_span(text: &str, line: usize) -> Option<Range<usize>> {
    let line = text.lines().nth(line.checked_sub(1)?)?;
    let start = line.as_ptr() as usize - text.as_ptr() as usize;
    Some(start..start + line.len())
}

fn why(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}
