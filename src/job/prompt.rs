//! Whether a prompt's template can be rendered: its syntax and its variables.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::keys::did_you_mean;
use super::problem::{Problem, Severity};
use super::source::Source;

/// The variables of every run, beside `vars.x`.
pub const PROMPT_VARIABLES: &[&str] =
    &["due_at", "slot.start", "slot.end", "gate.output", "previous.reply", "jobs.<job>.reply"];
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

/// A job that another one names.
#[derive(Debug, Clone)]
pub struct Mention {
    /// Its name.
    pub job: String,
    /// What is wrong if there is no such job.
    pub problem: Problem,
}

/// What a template asks of the history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedFor {
    /// `gate.output`.
    pub gate: bool,
    /// `previous.reply`.
    pub previous: bool,
    /// The jobs whose replies it names.
    pub jobs: BTreeSet<String>,
}

impl AskedFor {
    /// Of a template that can be parsed; of any other nothing.
    pub fn of(text: &str) -> Self {
        let environment = minijinja::Environment::empty();
        let Ok(template) = environment.template_from_str(text) else { return Self::default() };
        let names = template.undeclared_variables(true);
        let root =
            |name: &String, root: &str| name == root || name.starts_with(&format!("{root}."));
        Self {
            gate: names.iter().any(|name| root(name, "gate")),
            previous: names.iter().any(|name| root(name, "previous")),
            jobs: mentioned(text, &names).map(|(job, _)| job).collect(),
        }
    }
}

/// The jobs that a template names, `jobs.x` and `jobs["x"]`, with the words to look for.
fn mentioned<'a>(
    text: &'a str,
    names: &'a HashSet<String>,
) -> impl Iterator<Item = (String, String)> + 'a {
    static INDEXED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"jobs\[\s*(?:"([^"]*)"|'([^']*)')\s*\]"#).expect("the pattern is sound")
    });
    let dotted = names.iter().filter_map(|name| {
        let rest = name.strip_prefix("jobs.")?;
        Some((rest.split('.').next()?.to_owned(), name.clone()))
    });
    let is_asked = names.contains("jobs");
    let indexed = INDEXED.captures_iter(text).filter(move |_| is_asked).filter_map(|found| {
        let job = found.get(1).or_else(|| found.get(2))?;
        Some((job.as_str().to_owned(), found.get(0)?.as_str().to_owned()))
    });
    dotted.chain(indexed)
}

/// What else is known about the job whose prompt it is.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    /// The key that holds the prompt.
    pub(super) key: &'a str,
    pub(super) vars: &'a BTreeMap<String, String>,
    pub(super) has_gate: bool,
    pub(super) matrix: &'a BTreeMap<String, String>,
}

/// Reports what is wrong with the template `text`, and says which jobs it names.
pub(super) fn check(
    text: &str,
    written: &Written<'_>,
    of: Of<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<Mention> {
    let Of { key, .. } = of;
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
            return Vec::new();
        }
    };
    let all = template.undeclared_variables(true);
    let mut names: Vec<_> = all.iter().cloned().collect();
    names.sort();
    for name in names {
        let Some((severity, message, help)) = judge(&name, of) else { continue };
        let span = written.span(place_of(text, &name));
        let mut problem = written.source.error(span, key.to_owned(), message).with_help(help);
        problem.severity = severity;
        problems.push(problem);
    }
    let mentions = mentioned(text, &all).map(|(job, words)| {
        let span = written.span(place_of(text, &words));
        let message = format!("there is no job `{job}`");
        Mention { problem: written.source.error(span, key.to_owned(), message), job }
    });
    mentions.collect()
}

fn judge(
    name: &str,
    Of { vars, has_gate, matrix, .. }: Of<'_>,
) -> Option<(Severity, String, Option<String>)> {
    let (root, rest) = name.split_once('.').unwrap_or((name, ""));
    let is_reply = matches!(rest.split_once('.'), None | Some((_, "reply")));
    if root == "jobs" && is_reply {
        return None;
    }
    if root == "gate" && !has_gate {
        let message = format!("the variable `{name}` has no value: the job has no [gate]");
        return Some((Severity::Error, message, None));
    }
    let of_vars: Vec<_> = vars.keys().map(|var| format!("vars.{var}")).collect();
    let of_matrix: Vec<_> = matrix.keys().map(|key| format!("matrix.{key}")).collect();
    let own = of_vars.iter().chain(&of_matrix).map(String::as_str);
    let known = PROMPT_VARIABLES.iter().copied().chain(own);
    let is_whole_table =
        rest.is_empty() && matches!(root, "vars" | "slot" | "gate" | "previous" | "matrix");
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
