//! The job's own words: its prompt, filled in.

use std::collections::BTreeMap;

use jiff::Timestamp;
use minijinja::{Environment, UndefinedBehavior, context};
use serde::{Deserialize, Serialize};

use crate::clock::rfc3339;

/// Instructions of the template engine per prompt: far above any honest template, far below what
/// would be felt.
const TEMPLATE_FUEL: u64 = 100_000;

/// A prompt that cannot be put together.
#[derive(Debug, thiserror::Error)]
#[error("the prompt cannot be filled in: {0}")]
pub struct PromptError(String);

/// What `{{ … }}` in a prompt may name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variables {
    /// `{{ due_at }}`; for a run by hand, the same as `slot_end`.
    pub due_at: Timestamp,
    /// `{{ slot.start }}`: the due instant before this one, where the period to report on begins.
    pub slot_start: Timestamp,
    /// `{{ slot.end }}`: where it ends.
    pub slot_end: Timestamp,
    /// `{{ vars.x }}`. What the job says itself is not kept with a recording of it.
    #[serde(skip)]
    pub vars: BTreeMap<String, String>,
    /// `{{ matrix.x }}`, likewise.
    #[serde(skip)]
    pub matrix: BTreeMap<String, String>,
}

/// What else `{{ … }}` may name: what the job itself and others have said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Known {
    /// `{{ gate.output }}`, if the job has a gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_output: Option<String>,
    /// `{{ previous.reply }}`: of the job's last success; empty before the first one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub previous_reply: String,
    /// `{{ jobs.x.reply }}`, of each that has one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replies: BTreeMap<String, String>,
}

/// Fills in `template`; a name that is not known is an error, never an empty text.
pub fn render(template: &str, variables: &Variables, known: &Known) -> Result<String, PromptError> {
    let reply = |(job, reply): (&String, &String)| (job.clone(), context! { reply => reply });
    let jobs: BTreeMap<_, _> = known.replies.iter().map(reply).collect();
    let gate = known.gate_output.as_ref().map(|output| context! { output => output });
    environment()
        .render_str(
            template,
            context! {
                due_at => rfc3339(variables.due_at),
                slot => context! {
                    start => rfc3339(variables.slot_start),
                    end => rfc3339(variables.slot_end),
                },
                vars => variables.vars.clone(),
                matrix => variables.matrix.clone(),
                gate => gate.unwrap_or_else(|| context! {}),
                previous => context! { reply => &known.previous_reply },
                jobs => jobs,
            },
        )
        .map_err(|error| PromptError(format!("{error:#}")))
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(TEMPLATE_FUEL));
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        Variables {
            due_at: "2026-11-30T09:00:00Z".parse().unwrap(),
            slot_start: "2026-11-29T09:00:00Z".parse().unwrap(),
            slot_end: "2026-11-30T09:00:00Z".parse().unwrap(),
            vars: BTreeMap::from([("region".into(), "EU".into())]),
            matrix: BTreeMap::from([("size".into(), "xl".into())]),
        }
    }

    fn render(template: &str) -> Result<String, PromptError> {
        let known = Known {
            gate_output: Some("3 rows".into()),
            previous_reply: "all well".into(),
            replies: BTreeMap::from([("collect-sales".into(), "sold 7".into())]),
        };
        super::render(template, &variables(), &known)
    }

    #[test]
    fn what_others_have_said_is_filled_in() {
        let template = "{{ matrix.size }}, {{ gate.output }}, {{ previous.reply }}, \
                        {{ jobs['collect-sales'].reply }}";
        assert_eq!(render(template).unwrap(), "xl, 3 rows, all well, sold 7");
        assert!(render("{{ jobs.other.reply }}").is_err());
        let guarded = "{% if jobs.other is defined %}{{ jobs.other.reply }}{% endif %}";
        assert_eq!(render(guarded).unwrap(), "");
        let none = super::render("{{ gate.output }}", &variables(), &Known::default());
        assert!(none.is_err());
    }

    #[test]
    fn variables_are_filled_in() {
        assert_eq!(
            render("{{ vars.region }}: {{ slot.start }} to {{ slot.end }} ({{ due_at }})").unwrap(),
            "EU: 2026-11-29T09:00:00.000Z to 2026-11-30T09:00:00.000Z (2026-11-30T09:00:00.000Z)"
        );
    }

    #[test]
    fn an_unknown_name_is_an_error_and_a_loop_has_an_end() {
        assert!(render("{{ vars.regoin }}").is_err());
        assert!(render("{{ nothing }}").is_err());
        assert!(
            render(
                "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
            )
            .is_err()
        );
        assert!(render("{{ due_at").is_err());
        assert_eq!(render("plain { text }").unwrap(), "plain { text }");
    }
}
