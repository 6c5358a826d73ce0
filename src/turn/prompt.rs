//! What a model is told.

use std::collections::BTreeMap;

use jiff::Timestamp;
use minijinja::{Environment, UndefinedBehavior, context};

use crate::clock::rfc3339;

/// Instructions of the template engine per prompt: far above any honest template, far below what
/// would be felt.
const TEMPLATE_FUEL: u64 = 100_000;

/// A prompt that cannot be put together.
#[derive(Debug, thiserror::Error)]
#[error("the prompt cannot be filled in: {0}")]
pub struct PromptError(String);

/// What `{{ … }}` in a prompt may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variables {
    /// `{{ due_at }}`; for a run by hand, the same as `slot_end`.
    pub due_at: Timestamp,
    /// `{{ slot.start }}`: the due instant before this one, where the period to report on begins.
    pub slot_start: Timestamp,
    /// `{{ slot.end }}`: where it ends.
    pub slot_end: Timestamp,
    /// `{{ vars.x }}`.
    pub vars: BTreeMap<String, String>,
}

/// Fills in `template`; a name that is not known is an error, never an empty text.
pub fn render(template: &str, variables: &Variables) -> Result<String, PromptError> {
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

/// The base of every system prompt. Nothing in it changes from run to run of a job, so that a
/// provider's cache can hold it.
pub fn system_prompt(job: &str, has_tools: Tools) -> String {
    let tools = match has_tools {
        Tools::Some => {
            " Use the tools to find out what is so; do not guess what a tool can tell you. Paths \
             are relative to your workspace. A tool call that is refused stays refused: go on \
             without it and say so."
        }
        Tools::None => "",
    };
    format!(
        "You are the agent of the scheduled job `{job}`. You run unattended: nobody answers \
         questions or confirms anything.{tools} Your last message is the report that is stored \
         and sent on: complete, in itself, and only what you found."
    )
}

/// Whether a turn has tools on offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tools {
    /// At least one.
    Some,
    /// None.
    None,
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
        }
    }

    #[test]
    fn variables_are_filled_in() {
        assert_eq!(
            render(
                "{{ vars.region }}: {{ slot.start }} to {{ slot.end }} ({{ due_at }})",
                &variables()
            )
            .unwrap(),
            "EU: 2026-11-29T09:00:00.000Z to 2026-11-30T09:00:00.000Z (2026-11-30T09:00:00.000Z)"
        );
    }

    #[test]
    fn an_unknown_name_is_an_error_and_a_loop_has_an_end() {
        assert!(render("{{ vars.regoin }}", &variables()).is_err());
        assert!(render("{{ nothing }}", &variables()).is_err());
        assert!(
            render(
                "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
                &variables()
            )
            .is_err()
        );
        assert!(render("{{ due_at", &variables()).is_err());
        assert_eq!(render("plain { text }", &variables()).unwrap(), "plain { text }");
    }
}
