//! What every verb begins with: the files, the database, the name of a job or a run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::config::{self, Config, JobSet, Sources};
use crate::job::report::{self, Color};
use crate::job::{Problem, Severity};
use crate::schedule::Zone;
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

/// Where a history and perhaps a running process are: all that the verbs need which ask that
/// process or read that history.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) state_dir: PathBuf,
    /// In which times are shown.
    pub(super) zone: Zone,
    /// `None`: it cannot be used, which has been said.
    pub(super) config: Option<Config>,
}

impl Place {
    /// The history, if there is any yet.
    pub(super) fn history(&self) -> Result<Option<Reader>, Failed> {
        history(&self.state_dir)
    }

    /// The jobs of the files; `None` if they cannot be known, which has been said.
    pub(super) fn jobs(&self) -> Option<JobSet> {
        let jobs = config::load_jobs(self.config.as_ref()?);
        match &jobs.folder {
            Some(problem) => {
                note(&report(std::slice::from_ref(problem)));
                None
            }
            None => Some(jobs),
        }
    }

    /// Refuses the name of a job that neither the files nor the history know.
    pub(super) fn refuse_unknown(
        &self,
        job: Option<&str>,
        history: Option<&Reader>,
    ) -> Result<(), Failed> {
        let Some(job) = job else { return Ok(()) };
        if let Some(reader) = history
            && reader.knows(job)?
        {
            return Ok(());
        }
        let known = match history {
            Some(reader) => reader.known_jobs()?.into_keys().collect(),
            None => Vec::new(),
        };
        match self.jobs() {
            Some(jobs) if is_in(&jobs, job) => Ok(()),
            jobs => Err(unknown("job", job, &jobs.unwrap_or_default(), &known)),
        }
    }
}

impl From<Config> for Place {
    fn from(config: Config) -> Self {
        let (state_dir, zone) = (config.state_dir.clone(), config.timezone.clone());
        Self { state_dir, zone, config: Some(config) }
    }
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

    /// The same for a verb that uses no secret: none has to be there.
    pub(super) fn without_need_of_secrets(&self) -> Self {
        let mut sources = self.sources.clone();
        sources.environment = sources.environment.without_need_of_secrets();
        Self { sources, log_format: self.log_format, voice: self.voice.clone() }
    }

    /// The state folder. A configuration that cannot be used does not hide what is there: its
    /// problems are said, and times are in UTC.
    pub(super) fn place(&self) -> Result<Place, Failed> {
        let problems = match self.load() {
            Ok((config, _)) => return Ok(config.into()),
            Err(problems) => problems,
        };
        let state_dir = config::state_dir(&self.sources);
        let is_there = |path: PathBuf| path.symlink_metadata().is_ok();
        if !is_there(database_in(&state_dir)) && !is_there(state_dir.join(SOCKET)) {
            return Err(Failed::usage(report(&problems)));
        }
        note(&report(&problems));
        Ok(Place { state_dir, zone: Zone::utc(), config: None })
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
        history(&config.state_dir)
    }

    /// What `word` names: a job of the files by its id wins over a run by an unambiguous prefix of
    /// its id, and that over a job whose file is gone.
    pub(super) fn named(
        word: &str,
        jobs: &JobSet,
        history: Option<&Reader>,
    ) -> Result<Named, Failed> {
        if is_in(jobs, word) {
            return Ok(Named::Job(word.to_owned()));
        }
        let prefix = word.to_lowercase();
        let runs = match history {
            Some(reader) if !prefix.is_empty() => reader.run_ids(&prefix, 3)?,
            _ => Vec::new(),
        };
        match runs.as_slice() {
            [run] => Ok(Named::Run(run.clone())),
            [] => {
                let known = match history {
                    Some(reader) => reader.known_jobs()?.into_keys().collect(),
                    None => Vec::new(),
                };
                if !known.iter().any(|it| it == word) {
                    return Err(unknown("job or run", word, jobs, &known));
                }
                Ok(Named::Job(word.to_owned()))
            }
            [first, second, ..] => Err(Failed::usage(format!(
                "`{word}` could be several runs ({first}, {second}, …): give more of the id"
            ))),
        }
    }
}

fn history(state_dir: &Path) -> Result<Option<Reader>, Failed> {
    match Reader::open(&database_in(state_dir)) {
        Ok(reader) => Ok(Some(reader)),
        Err(StoreError::Missing(_)) => Ok(None),
        // A database of a newer version, among others: nothing here can mend that.
        Err(error) => Err(Failed::usage(super::output::chain(&error))),
    }
}

fn is_in(jobs: &JobSet, name: &str) -> bool {
    jobs.jobs.keys().any(|id| id.as_str() == name) || jobs.invalid.contains_key(name)
}

/// Nothing of this name; the nearest of the files' jobs and of those that `known` has, if one is
/// near.
fn unknown(what: &str, word: &str, jobs: &JobSet, known: &[String]) -> Failed {
    let mut of_matrix = jobs.jobs.keys().filter(|id| id.stem() == word && id.as_str() != word);
    if let Some(one) = of_matrix.next() {
        let words = format!("`{word}` is a matrix: name one of its jobs, such as `{one}`");
        return Failed::usage(words);
    }
    let names = jobs.jobs.keys().map(crate::job::JobId::as_str);
    let names = names.chain(jobs.invalid.keys().chain(known).map(String::as_str));
    let near = crate::job::nearest(word, names);
    let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Failed::usage(format!("there is no {what} `{word}`{hint}"))
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

/// The script that a fresh clone begins with.
const SHIPPED_SCRIPT: &str = "contrib/first-run/model.toml";

/// What to say as long as the shipped script answers in a model's place; `None` with a real one.
pub(super) fn no_model_hint(config: &Config) -> Option<String> {
    let default = config.agent.model.as_ref()?;
    let provider = config.providers().get(&default.provider)?;
    let config::Api::Script(path) = &provider.api else { return None };
    // Whoever writes a script of his own knows that it is one.
    if !path.ends_with(SHIPPED_SCRIPT) {
        return None;
    }
    Some(format!(
        "no model is configured: `{default}` is a script ({}) that plays one. Change two lines of \
         config.toml under [models.providers.{}]: api = \"openai\" and base_url = \
         \"http://127.0.0.1:8080/v1\" (or your provider's)",
        path.display(),
        default.provider,
    ))
}

/// The socket's name in the state folder.
const SOCKET: &str = "punctual.sock";

/// The time on the wall.
pub(super) fn now() -> jiff::Timestamp {
    SystemClock.wall()
}

/// How long whoever is done waits for what a disk has not answered yet.
const DISK_WITHIN: Duration = Duration::from_secs(1);

/// Runs everything that waits. What blocks a thread for ever keeps nobody from leaving.
pub(super) fn block_on<F: Future>(work: F) -> std::io::Result<F::Output> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("punctual").build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(DISK_WITHIN);
    Ok(done)
}
