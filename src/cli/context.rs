//! What every verb begins with: the files, the database, the name of a job or a run.

use std::path::PathBuf;

use crate::clock::{Clock, SystemClock};
use crate::config::{self, Config, JobSet, Sources};
use crate::job::report::{self, Color};
use crate::job::{Problem, Severity};
use crate::store::{Reader, StoreError, database_in};

use super::LogFormat;
use super::output::{Failed, Voice, note};

/// Where to look.
#[derive(Debug)]
pub(super) struct Context {
    sources: Sources,
    pub(super) log_format: LogFormat,
    pub(super) voice: Voice,
}

/// What a word on the command line named.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A job.
    Job(String),
    /// A run, by its whole id.
    Run(String),
}

impl Context {
    pub(super) fn new(
        config_paths: Vec<PathBuf>,
        state_dir: Option<PathBuf>,
        log_format: LogFormat,
        voice: Voice,
    ) -> std::io::Result<Self> {
        Ok(Self { sources: Sources::of_process(config_paths, state_dir)?, log_format, voice })
    }

    /// The configuration, or one report of everything that is wrong with it. Warnings are for
    /// `validate` and `serve`.
    pub(super) fn config(&self) -> Result<Config, Failed> {
        self.config_with_warnings().map(|(config, _)| config)
    }

    /// The configuration and what is doubtful about it.
    pub(super) fn config_with_warnings(&self) -> Result<(Config, Vec<Problem>), Failed> {
        self.load().map_err(|problems| Failed::usage(report(&problems)))
    }

    /// The configuration with what is doubtful about it, or everything that is wrong with it.
    pub(super) fn load(&self) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
        config::load(&self.sources)
    }

    /// The configuration and the jobs; broken files are in the set's `invalid`.
    pub(super) fn jobs(&self) -> Result<(Config, JobSet), Failed> {
        let config = self.config()?;
        let jobs = config::load_jobs(&config);
        match &jobs.folder {
            Some(problem) => Err(Failed::usage(report(std::slice::from_ref(problem)))),
            None => Ok((config, jobs)),
        }
    }

    /// The history, if there is any yet.
    pub(super) fn history(config: &Config) -> Result<Option<Reader>, Failed> {
        match Reader::open(&database_in(&config.state_dir)) {
            Ok(reader) => Ok(Some(reader)),
            Err(StoreError::Missing(_)) => Ok(None),
            // A database of a newer version, among others: nothing here can mend that.
            Err(error) => Err(Failed::usage(super::output::chain(&error))),
        }
    }

    /// What `word` names: a job by its id wins over a run by an unambiguous prefix of its id.
    pub(super) fn named(
        word: &str,
        jobs: &JobSet,
        history: Option<&Reader>,
    ) -> Result<Named, Failed> {
        let known =
            jobs.jobs.keys().any(|id| id.as_str() == word) || jobs.invalid.contains_key(word);
        if known {
            return Ok(Named::Job(word.to_owned()));
        }
        let prefix = word.to_lowercase();
        let runs = match history {
            Some(reader) if !prefix.is_empty() => reader.run_ids(&prefix, 3)?,
            _ => Vec::new(),
        };
        match runs.as_slice() {
            [run] => Ok(Named::Run(run.clone())),
            [] => Err(unknown(word, jobs)),
            [first, second, ..] => Err(Failed::usage(format!(
                "`{word}` could be several runs ({first}, {second}, …): give more of the id"
            ))),
        }
    }
}

fn unknown(word: &str, jobs: &JobSet) -> Failed {
    let names = jobs.jobs.keys().map(crate::job::JobId::as_str);
    let near = crate::job::nearest(word, names);
    let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Failed::usage(format!("there is no job or run `{word}`{hint}"))
}

/// The problems as one report, coloured on a terminal.
pub(super) fn report(problems: &[Problem]) -> String {
    let color = if super::output::on_terminal() { Color::Ansi } else { Color::Plain };
    report::render(problems, color)
}

/// Prints warnings, if there are any.
pub(super) fn warn(problems: &[Problem]) {
    let warnings: Vec<_> =
        problems.iter().filter(|it| it.severity == Severity::Warning).cloned().collect();
    if !warnings.is_empty() {
        note(&report(&warnings));
    }
}

/// What to say as long as the shipped script answers in a model's place; `None` with a real one.
pub(super) fn no_model_hint(config: &Config) -> Option<String> {
    let default = config.agent.model.as_ref()?;
    let provider = config.providers().get(&default.provider)?;
    let config::Api::Script(path) = &provider.api else { return None };
    Some(format!(
        "no model is configured: `{default}` is a script ({}) that plays one. Change two lines of \
         config.toml under [models.providers.{}]: api = \"openai\" and base_url = \
         \"http://127.0.0.1:8080/v1\" (or your provider's)",
        path.display(),
        default.provider,
    ))
}

/// The time on the wall.
pub(super) fn now() -> jiff::Timestamp {
    SystemClock.wall()
}

/// The runtime that everything that waits runs on.
pub(super) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("punctual").build()
}
