//! How long a model may be silent: the rule of semantics §3 as one function.

use std::time::Duration;

use crate::job::RunTimeout;
use crate::provider::Locality;
use crate::run::Trigger;

const SCHEDULED_MAX: Duration = Duration::from_mins(1);
const OTHERWISE_MAX: Duration = Duration::from_mins(2);

words!(
    /// Which rule gave the window, in the order in which they are tried.
    IdleRule {
        /// `models.providers.<id>.timeout`.
        Provider = "provider",
        /// The run's own limit is off, and so is the window.
        Unlimited = "unlimited",
        /// A run with a limit, started by the scheduler.
        Scheduled = "scheduled",
        /// A run with a limit, started otherwise.
        Manual = "manual",
        /// `agents.defaults.timeout`.
        Agent = "agent",
        /// A local model without limits: it may think as long as it likes.
        Local = "local",
        /// Nothing was configured.
        Default = "default",
    }
);

/// What the window depends on. Only what was configured counts; ceilings do not.
#[derive(Debug, Clone, Copy)]
pub struct IdleInput {
    /// P: the provider's timeout.
    pub provider: Option<Duration>,
    /// R: the run's own timeout.
    pub run: RunTimeout,
    /// A: the agents' timeout; unlimited is `Duration::MAX`.
    pub agent: Option<Duration>,
    /// What started the run.
    pub trigger: Trigger,
    /// Where the model is.
    pub locality: Locality,
}

/// The window of each request of a model attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleWindow {
    /// Its length; `None` is off.
    pub window: Option<Duration>,
    /// Where it comes from.
    pub rule: IdleRule,
}

/// The window for `input`.
pub fn idle_window(input: IdleInput) -> IdleWindow {
    let scheduled = input.trigger.is_scheduled();
    let is_local = input.locality == Locality::Local;
    let is_near = is_local || (scheduled && input.locality == Locality::SelfHosted);
    let of = |rule, window| IdleWindow { window: Some(window), rule };
    let off = |rule| IdleWindow { window: None, rule };
    match (input.provider, input.run) {
        (Some(provider), RunTimeout::After(run)) => of(IdleRule::Provider, provider.min(run)),
        (Some(provider), RunTimeout::Unlimited) => of(IdleRule::Provider, provider),
        (Some(provider), RunTimeout::Unset) => {
            of(IdleRule::Provider, input.agent.map_or(provider, |agent| provider.min(agent)))
        }
        (None, RunTimeout::Unlimited) => off(IdleRule::Unlimited),
        (None, RunTimeout::After(run)) if scheduled && is_near => of(IdleRule::Scheduled, run),
        (None, RunTimeout::After(run)) if scheduled => {
            of(IdleRule::Scheduled, run.min(SCHEDULED_MAX))
        }
        (None, RunTimeout::After(run)) => of(IdleRule::Manual, run.min(OTHERWISE_MAX)),
        (None, RunTimeout::Unset) => match input.agent {
            Some(agent) => of(IdleRule::Agent, agent.min(OTHERWISE_MAX)),
            None if is_near => off(IdleRule::Local),
            None => of(IdleRule::Default, OTHERWISE_MAX),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn case_input(case: &Value) -> IdleInput {
        let text = |key: &str| case[key].as_str().unwrap_or("");
        let millis = |key: &str| case[key].as_u64().map(Duration::from_millis);
        IdleInput {
            provider: millis("provider_ms"),
            run: match &case["run_ms"] {
                Value::Null => RunTimeout::Unset,
                Value::String(word) if word == "unlimited" => RunTimeout::Unlimited,
                other => RunTimeout::After(Duration::from_millis(other.as_u64().unwrap())),
            },
            agent: case["agent_s"].as_u64().map(Duration::from_secs),
            trigger: if case["trigger"] == "cron" { Trigger::Schedule } else { Trigger::Manual },
            locality: Locality::of(text("base_url"), text("provider"), text("model")),
        }
    }

    #[test]
    fn every_shared_case_has_its_window() {
        let cases: Value =
            serde_json::from_str(include_str!("../../tests/cases/idle_watchdog.json")).unwrap();
        let cases = cases["cases"].as_array().unwrap();
        assert!(cases.len() > 40);
        for case in cases {
            let expected = case["expected_ms"].as_u64().unwrap();
            let expected = (expected > 0).then(|| Duration::from_millis(expected));
            assert_eq!(idle_window(case_input(case)).window, expected, "{case}");
        }
    }

    #[test]
    fn the_rule_is_named() {
        let base = IdleInput {
            provider: None,
            run: RunTimeout::Unset,
            agent: None,
            trigger: Trigger::Schedule,
            locality: Locality::Cloud,
        };
        let second = Duration::from_secs(1);
        let table = [
            (IdleInput { provider: Some(second), ..base }, IdleRule::Provider),
            (IdleInput { run: RunTimeout::Unlimited, ..base }, IdleRule::Unlimited),
            (IdleInput { run: RunTimeout::After(second), ..base }, IdleRule::Scheduled),
            (
                IdleInput { run: RunTimeout::After(second), trigger: Trigger::Rpc, ..base },
                IdleRule::Manual,
            ),
            (IdleInput { agent: Some(second), ..base }, IdleRule::Agent),
            (IdleInput { locality: Locality::SelfHosted, ..base }, IdleRule::Local),
            (base, IdleRule::Default),
        ];
        for (input, rule) in table {
            assert_eq!(idle_window(input).rule, rule, "{input:?}");
        }
    }
}
