//! `[[deliver]]` and `output.silent_token`: what is sent where, once a run is over.

use minijinja::{Environment, UndefinedBehavior};
use serde::{Deserialize, Serialize};

use super::parse::{Part, Reader};
use super::problem::Problem;
use super::tree::{Item, Node};

/// What a subject and a path may name.
pub const OUTGOING_VARIABLES: &[&str] = &[
    "job",
    "run_id",
    "attempt",
    "trigger",
    "state",
    "error_kind",
    "due_at",
    "started_at",
    "finished_at",
    "date",
];

/// The usual [`super::JobSpec::silent_token`].
pub const SILENT_TOKEN: &str = "NO_REPLY";

/// One `[[deliver]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliverSpec {
    /// The target of the configuration.
    pub to: String,
    /// After which end.
    pub when: DeliverWhen,
    /// Whether it has to arrive.
    pub best_effort: BestEffort,
    /// A template.
    pub subject: Option<String>,
    /// Sends the run's artifacts along.
    pub attach: bool,
}

words!(
    /// After which end something is sent.
    DeliverWhen {
        /// The run succeeded.
        Succeeded = "succeeded",
        /// It failed, timed out or was interrupted, after its last attempt.
        Failed = "failed",
        /// One of the two.
        Always = "always",
    }
);

words!(
    /// Whether a delivery that fails is an incident.
    BestEffort {
        /// It is.
        No = "no",
        /// It is not.
        Yes = "yes",
    }
);

/// What the ledger has to know to send what comes of a run.
#[derive(Debug, Serialize)]
struct Sends<'a> {
    silent_token: &'a str,
    deliver: &'a [DeliverSpec],
}

pub(super) fn sends(deliver: &[DeliverSpec], silent_token: &str) -> Option<String> {
    if deliver.is_empty() && silent_token == SILENT_TOKEN {
        return None;
    }
    serde_json::to_string(&Sends { silent_token, deliver }).ok()
}

pub(super) fn silent_token(node: &Node) -> String {
    let written = node.text("output.silent_token").map(str::trim).filter(|it| !it.is_empty());
    written.unwrap_or(SILENT_TOKEN).to_owned()
}

pub(super) fn delivers(reader: &mut Reader<'_>) -> Vec<DeliverSpec> {
    if let Some(place) = reader.node.get("output.silent_token")
        && place.as_text().is_some_and(|text| text.trim().is_empty())
    {
        let words = "an empty reply is a failure, never silence";
        reader.problems.push(place.error("output.silent_token", words));
    }
    let Some(Item::List(list)) = reader.node.get("deliver").map(|node| &node.item) else {
        return Vec::new();
    };
    list.iter().filter_map(|node| deliver(reader, node)).collect()
}

fn deliver(reader: &mut Reader<'_>, node: &Node) -> Option<DeliverSpec> {
    let table = node.table()?;
    let is_refused = table.values().any(|entry| matches!(entry.node.item, Item::Refused));
    let Some(to) = node.get("to") else {
        let problem = node.error("deliver.to", "a delivery needs `to`, a target");
        reader.problems.push(problem.with_help("name it under [targets.<name>]".to_owned()));
        return None;
    };
    target(reader, to, "deliver.to");
    if let Some(place) = node.get("subject")
        && let Some(problem) = place.as_text().and_then(template_problem)
    {
        reader.problems.push(place.error("deliver.subject", problem));
    }
    let when = node.text("when").and_then(|word| word.parse().ok());
    (!is_refused).then(|| DeliverSpec {
        to: to.as_text().unwrap_or_default().to_owned(),
        when: when.unwrap_or(DeliverWhen::Succeeded),
        best_effort: match node.bool("best_effort") {
            Some(true) => BestEffort::Yes,
            Some(false) | None => BestEffort::No,
        },
        subject: node.text("subject").map(str::to_owned),
        attach: node.bool("attach").unwrap_or(false),
    })
}

/// Reports a target that there is not, or that lacks its secret. Of defaults nothing is judged:
/// what is missing is the affair of the jobs that they come to stand in.
pub(super) fn target(reader: &mut Reader<'_>, place: &Node, key: &str) {
    let Some(name) = place.as_text() else { return };
    if reader.part == Part::Defaults {
        return;
    }
    if let Err(unresolved) = reader.around.targets.resolve(name) {
        let problem: Problem = place.error(key, unresolved.message);
        reader.problems.push(problem.with_help(unresolved.help));
    }
}

/// What is wrong with a template of a subject or a path, if anything is.
pub fn template_problem(template: &str) -> Option<String> {
    let known = || format!("known are {}", OUTGOING_VARIABLES.join(", "));
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let parsed = match environment.template_from_str(template) {
        Ok(parsed) => parsed,
        Err(error) => return Some(format!("this is no template: {error}")),
    };
    let names = parsed.undeclared_variables(false);
    let mut unknown: Vec<_> =
        names.iter().filter(|name| !OUTGOING_VARIABLES.contains(&name.as_str())).collect();
    unknown.sort();
    if let Some(name) = unknown.first() {
        return Some(format!("there is no `{name}` here; {}", known()));
    }
    let sample = minijinja::Value::from_pairs(OUTGOING_VARIABLES.iter().map(|name| (*name, "x")));
    environment.render_str(template, sample).err().map(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_name_what_there_is() {
        for good in ["plain", "{{ job }}: {{ state }}", "{{ date }}-{{ attempt }}"] {
            assert_eq!(template_problem(good), None, "{good}");
        }
        for (bad, words) in [
            ("{{ jbo }}", "there is no `jbo` here"),
            ("{{ job", "no template"),
            ("{{ job|nope }}", "nope"),
        ] {
            let problem = template_problem(bad).unwrap();
            assert!(problem.contains(words), "{bad}: {problem}");
        }
    }
}
