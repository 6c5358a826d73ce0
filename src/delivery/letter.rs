//! What is sent: a run or an incident, in the forms that receivers take.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use minijinja::{Environment, UndefinedBehavior, context};
use serde_json::json;

use crate::run::State;
use crate::store::{IncidentEvent, IncidentRecord, RunRecord};

/// Instructions of the template engine per subject or path: far above any honest one.
const TEMPLATE_FUEL: u64 = 10_000;

/// One thing to send to one target.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    /// The same for every try.
    pub(super) delivery_id: String,
    /// What it tells of.
    pub(super) content: Content,
    /// The template of its subject.
    pub(super) subject: Option<String>,
    /// When the job is due next.
    pub(super) next_due: Option<String>,
    /// Those of its parts that have arrived.
    pub(super) parts_sent: u32,
    /// Files that go along.
    pub(super) attachments: Vec<PathBuf>,
}

/// What a letter tells of.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// How a run has ended.
    Run(Box<RunRecord>),
    /// What a run has to say while it goes on.
    Message(Box<RunRecord>, String),
    /// What has become of an incident, with the run that showed it.
    Incident(Box<IncidentRecord>, IncidentEvent, Option<Box<RunRecord>>),
}

/// The fixed form of a failure: a title, what was said, and facts by their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) title: String,
    pub(super) words: String,
    pub(super) facts: Vec<(&'static str, String)>,
}

impl Letter {
    /// The text of a success, or of a message; `None` of everything else.
    pub(super) fn reply(&self) -> Option<String> {
        match &self.content {
            Content::Run(run) if run.state == State::Succeeded.as_str() => {
                let texts: Vec<_> = run.payloads.iter().map(|it| it.text.as_str()).collect();
                Some(texts.join("\n\n"))
            }
            Content::Message(_, text) => Some(text.clone()),
            Content::Run(_) | Content::Incident(..) => None,
        }
    }

    /// All of it as a text: the reply, or the notice.
    pub(super) fn text(&self) -> String {
        self.reply().unwrap_or_else(|| self.notice().text())
    }

    /// All of it for programs.
    pub(super) fn json(&self) -> serde_json::Result<Vec<u8>> {
        match &self.content {
            Content::Run(run) => serde_json::to_vec(run),
            Content::Message(run, text) => serde_json::to_vec(&json!({
                "event": "message", "text": text, "run": run,
            })),
            Content::Incident(incident, event, run) => serde_json::to_vec(&json!({
                "event": event.as_str(), "incident": incident, "run": run,
            })),
        }
    }

    /// The notice of a failure, or of an incident.
    pub(super) fn notice(&self) -> Notice {
        let next_due = self.next_due.as_deref();
        match &self.content {
            Content::Run(run) | Content::Message(run, _) => of_run(run, next_due),
            Content::Incident(incident, IncidentEvent::Opened, run) => {
                of_opened(incident, run.as_deref(), next_due)
            }
            Content::Incident(incident, IncidentEvent::Over, _) => of_over(incident),
        }
    }

    /// The subject: the job's own template, or the usual one.
    pub(super) fn subject(&self) -> Result<String, String> {
        let subject = match (&self.subject, &self.content) {
            (Some(template), _) => self.fill_in(template),
            (None, Content::Run(run) | Content::Message(run, _)) if self.reply().is_some() => {
                Ok(run.job.clone())
            }
            (None, _) => Ok(self.notice().title),
        };
        // A line of its own: whatever a template makes of it.
        subject.map(|subject| subject.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// The job that it is about, or the provider.
    pub(super) fn job(&self) -> &str {
        match &self.content {
            Content::Run(run) | Content::Message(run, _) => &run.job,
            Content::Incident(incident, ..) => {
                incident.job.as_deref().or(incident.provider.as_deref()).unwrap_or_default()
            }
        }
    }

    /// The run or the incident.
    pub(super) fn id(&self) -> &str {
        match &self.content {
            Content::Run(run) | Content::Message(run, _) => &run.run_id,
            Content::Incident(incident, ..) => &incident.incident,
        }
    }

    /// How the run ended, or what has become of the incident.
    pub(super) fn state(&self) -> &str {
        match &self.content {
            Content::Run(run) | Content::Message(run, _) => &run.state,
            Content::Incident(_, event, _) => event.as_str(),
        }
    }

    /// `template` with what is known of the run, or of the incident.
    pub(super) fn fill_in(&self, template: &str) -> Result<String, String> {
        let (ended, due, started, attempt, trigger, kind) = match &self.content {
            Content::Run(run) | Content::Message(run, _) => {
                let ended = run.finished_at.as_ref().unwrap_or(&run.queued_at);
                let due = run.due_at.as_ref().unwrap_or(ended);
                let kind = run.error.as_ref().map_or("", |error| error.kind.as_str());
                let started = run.started_at.as_ref().unwrap_or(ended);
                (ended, due, started, run.attempt, run.trigger.as_str(), kind)
            }
            Content::Incident(incident, ..) => {
                let at = incident.over_at.as_ref().unwrap_or(&incident.opened_at);
                (at, at, &incident.opened_at, 1, "alert", incident.cause.as_str())
            }
        };
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(TEMPLATE_FUEL));
        let values = context! {
            job => self.job(), run_id => self.id(), attempt => attempt, trigger => trigger,
            state => self.state(), error_kind => kind, due_at => due.as_str(),
            started_at => started.as_str(), finished_at => ended.as_str(),
            date => &due[..due.len().min("2026-11-30".len())],
        };
        let filled = environment.render_str(template, values);
        filled.map_err(|error| format!("the template cannot be filled in: {error:#}"))
    }
}

fn of_run(run: &RunRecord, next_due: Option<&str>) -> Notice {
    let error = run.error.as_ref();
    let kind = error.map_or("failed", |error| error.kind.as_str());
    let limit = error.and_then(|error| Some((error.limit?, error.limit_ms)));
    let limit = limit.map(|(limit, value)| match value.map(Duration::from_millis) {
        Some(value) => format!("{limit} of {}", humantime::format_duration(value)),
        None => limit.to_string(),
    });
    let late = run.late_ms.and_then(|late| u64::try_from(late).ok());
    let none = || "none".to_owned();
    Notice {
        title: format!("{} {}: {kind}", run.job, run.state.replace('_', " ")),
        words: error.map(|error| error.message.clone()).unwrap_or_default(),
        facts: vec![
            ("job", run.job.clone()),
            ("due", run.due_at.clone().unwrap_or_else(|| "by hand".to_owned())),
            ("late by", late.map_or_else(none, span)),
            ("error kind", kind.to_owned()),
            ("limit", limit.unwrap_or_else(none)),
            ("next attempt", next_due.map_or_else(none, str::to_owned)),
            ("run id", run.run_id.clone()),
        ],
    }
}

fn of_opened(incident: &IncidentRecord, run: Option<&RunRecord>, next_due: Option<&str>) -> Notice {
    let mut notice = match (run, &incident.provider) {
        (Some(run), None) if run.error.is_some() => of_run(run, next_due),
        (_, provider) => Notice {
            title: title(incident),
            words: String::new(),
            facts: vec![
                (if provider.is_some() { "jobs" } else { "job" }, incident.jobs.join(", ")),
                ("next attempt", next_due.unwrap_or("none").to_owned()),
            ],
        },
    };
    notice.words.clone_from(&incident.detail);
    notice.facts.push(("incident", incident.incident.clone()));
    notice
}

fn of_over(incident: &IncidentRecord) -> Notice {
    let at = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let lasted = at(&incident.opened_at).zip(incident.over_at.as_deref().and_then(at));
    let lasted = lasted.and_then(|(from, to)| Duration::try_from(to.duration_since(from)).ok());
    let lasted = lasted.map_or(0, |lasted| u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX));
    let whose = if incident.provider.is_some() { "jobs" } else { "job" };
    Notice {
        title: format!("over: {}", title(incident)),
        words: String::new(),
        facts: vec![
            (whose, incident.jobs.join(", ")),
            ("since", incident.opened_at.clone()),
            ("over", incident.over_at.clone().unwrap_or_default()),
            ("lasted", span(lasted)),
            ("incident", incident.incident.clone()),
        ],
    }
}

fn title(incident: &IncidentRecord) -> String {
    let cause = incident.cause.replace('_', " ");
    match (&incident.provider, &incident.job) {
        (Some(provider), _) => format!("provider {provider}: {cause}"),
        (None, job) => format!("{}: {cause}", job.as_deref().unwrap_or_default()),
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
