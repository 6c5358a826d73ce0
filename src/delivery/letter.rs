//! What is sent: a run, in the forms that receivers take.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use minijinja::{Environment, UndefinedBehavior, context};

use crate::run::State;
use crate::store::RunRecord;

/// Instructions of the template engine per subject or path: far above any honest one.
const TEMPLATE_FUEL: u64 = 10_000;

/// One thing to send to one target.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    /// The same for every try.
    pub(super) delivery_id: String,
    /// What it tells of.
    pub(super) run: RunRecord,
    /// The template of its subject.
    pub(super) subject: Option<String>,
    /// When the job is due next.
    pub(super) next_due: Option<String>,
    /// Those of its parts that have arrived.
    pub(super) parts_sent: u32,
    /// Files that go along.
    pub(super) attachments: Vec<PathBuf>,
}

/// The fixed form of a failure: a title, what was said, and facts by their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) title: String,
    pub(super) words: String,
    pub(super) facts: Vec<(&'static str, String)>,
}

impl Letter {
    /// Whether it tells of a success.
    pub(super) fn is_success(&self) -> bool {
        self.run.state == State::Succeeded.as_str()
    }

    /// The text of a success.
    pub(super) fn reply(&self) -> String {
        let texts: Vec<_> = self.run.payloads.iter().map(|it| it.text.as_str()).collect();
        texts.join("\n\n")
    }

    /// All of it as a text: the reply, or the notice of the failure.
    pub(super) fn text(&self) -> String {
        if self.is_success() { self.reply() } else { self.notice().text() }
    }

    /// The notice of a failure.
    pub(super) fn notice(&self) -> Notice {
        let run = &self.run;
        let kind = run.error.as_ref().map_or("failed", |error| error.kind.as_str());
        let limit = run.error.as_ref().and_then(|error| error.limit).map(|limit| {
            let value = run.error.as_ref().and_then(|error| error.limit_ms);
            match value.map(Duration::from_millis) {
                Some(value) => format!("{limit} of {}", humantime::format_duration(value)),
                None => limit.to_string(),
            }
        });
        let late = run.late_ms.and_then(|late| u64::try_from(late).ok());
        let none = || "none".to_owned();
        Notice {
            title: format!("{} {}: {kind}", run.job, run.state.replace('_', " ")),
            words: run.error.as_ref().map(|error| error.message.clone()).unwrap_or_default(),
            facts: vec![
                ("job", run.job.clone()),
                ("due", run.due_at.clone().unwrap_or_else(|| "by hand".to_owned())),
                ("late by", late.map_or_else(none, span)),
                ("error kind", kind.to_owned()),
                ("limit", limit.unwrap_or_else(none)),
                ("next attempt", self.next_due.clone().unwrap_or_else(none)),
                ("run id", run.run_id.clone()),
            ],
        }
    }

    /// The subject: the job's own template, or the usual one.
    pub(super) fn subject(&self) -> Result<String, String> {
        match &self.subject {
            Some(template) => self.fill_in(template),
            None if self.is_success() => Ok(self.run.job.clone()),
            None => Ok(self.notice().title),
        }
        // A line of its own: whatever a template makes of it.
        .map(|subject| subject.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// `template` with what is known of the run.
    pub(super) fn fill_in(&self, template: &str) -> Result<String, String> {
        let run = &self.run;
        let ended = run.finished_at.as_deref().unwrap_or(&run.queued_at);
        let due = run.due_at.as_deref().unwrap_or(ended);
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(TEMPLATE_FUEL));
        let values = context! {
            job => run.job.as_str(), run_id => run.run_id.as_str(), attempt => run.attempt,
            trigger => run.trigger.as_str(), state => run.state.as_str(),
            error_kind => run.error.as_ref().map_or("", |error| error.kind.as_str()),
            due_at => due, started_at => run.started_at.as_deref().unwrap_or(ended),
            finished_at => ended, date => &due[..due.len().min("2026-11-30".len())],
        };
        let filled = environment.render_str(template, values);
        filled.map_err(|error| format!("the template cannot be filled in: {error:#}"))
    }
}

impl Notice {
    /// It as plain text.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        if !self.words.is_empty() {
            let _ = writeln!(text, "{}", self.words);
        }
        text.push('\n');
        for (name, value) in &self.facts {
            let _ = writeln!(text, "{name:<12} {value}");
        }
        text
    }
}

fn span(millis: u64) -> String {
    // Below a second nobody is late.
    humantime::format_duration(Duration::from_secs(millis / 1000)).to_string()
}
