//! The host decides success: what it looks at once a turn has ended by itself and its processes are
//! gone, before its workspace is tidied (semantics §2).

use std::io;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::artifacts;
use super::run::{Executor, Ticket};
use super::site::Site;
use crate::cassette::Plays;
use crate::clock::rfc3339;
use crate::job::{Check, CheckSpec, JobSpec, Masker, ReplySchema};
use crate::process::{Confinement, Errors, Household, Spec};
use crate::run::{Artifact, CheckResult, ErrorKind, Failure, Findings};
use crate::store::QueryLimits;

/// How long one check may take.
const CHECK_TIMEOUT: Duration = Duration::from_mins(1);

/// A file system tells times in steps of its own, up to this.
pub(super) const CLOCK_STEP: Duration = Duration::from_millis(20);

/// How much of what a command prints is kept.
const OUTPUT_BYTES_MAX: usize = 4096;

/// How much of it is shown.
const OUTPUT_CHARS_SHOWN: usize = 300;

/// The name of the check that `output.schema` is.
const REPLY_SCHEMA: &str = "output.schema";

impl Executor {
    /// Looks at what the run has left and answered.
    pub(super) async fn check(
        &self,
        ticket: &Ticket,
        reply: &str,
        denied_calls: u32,
        site: &Site,
        masker: &Masker,
    ) -> Findings {
        let spec = &ticket.spec;
        self.take_down_written(site);
        let mut results = Vec::new();
        if let Some(schema) = &spec.reply_schema {
            results.push(result(REPLY_SCHEMA, of_schema(schema, reply)));
        }
        for CheckSpec { name, what } in &spec.checks {
            let found = match self.on_cassette(what) {
                Some(found) => found,
                None => self.look_at(ticket, what, reply, denied_calls, site).await,
            };
            self.take_down(what, &found, site);
            // A command may print what it was given in secret.
            results.push(result(name, found.map_err(|words| masker.mask(&words).into_owned())));
        }
        let artifacts = self.find_artifacts(spec, site, &mut results).await;
        for CheckResult { name, passed, detail } in &results {
            tracing::info!(check = name, passed, detail, "checked");
        }
        Findings { checks: results, artifacts }
    }

    /// The files that are to be kept; each pattern that finds none is a check that has failed.
    async fn find_artifacts(
        &self,
        spec: &JobSpec,
        site: &Site,
        results: &mut Vec<CheckResult>,
    ) -> Vec<Artifact> {
        // What a cassette answers for has left no files.
        let patterns = spec.artifacts.iter().filter(|_| self.plays() == Plays::World);
        let mut found: Vec<Artifact> = Vec::new();
        for pattern in patterns {
            let (workdir, since, named) = (site.workdir.clone(), site.started, pattern.clone());
            let files = in_time(move || artifacts::find(&workdir, &named, since)).await;
            let new = files.and_then(|files| {
                for file in files {
                    if !found.contains(&file) {
                        found.push(file);
                    }
                }
                artifacts::too_many(&found).map_or(Ok(()), Err)
            });
            results.push(result(&format!("artifact {pattern}"), new));
        }
        if artifacts::too_many(&found).is_some() { Vec::new() } else { found }
    }

    /// Copies what is to be kept; what cannot be is none, and no success either.
    pub(super) async fn keep(&self, ticket: &Ticket, site: &Site, findings: &mut Findings) {
        if findings.artifacts.is_empty() {
            return;
        }
        let (workdir, files) = (site.workdir.clone(), findings.artifacts.clone());
        let to = artifacts::folder(&self.config.state_dir, ticket.run_id.as_str());
        let copy = move || artifacts::keep(&workdir, &files, &to).map_err(|it| it.to_string());
        if let Err(error) = in_time(copy).await {
            findings.artifacts.clear();
            let words = format!("its files could not be kept: {error}");
            findings.checks.push(result("artifacts", Err(words)));
        }
    }

    async fn look_at(
        &self,
        ticket: &Ticket,
        what: &Check,
        reply: &str,
        denied_calls: u32,
        site: &Site,
    ) -> Result<(), String> {
        match what {
            Check::File { path, fresh, min_bytes } => {
                let since = fresh.then_some(site.started);
                let (path, shown) = (site.workdir.join(path), path.clone());
                let min_bytes = *min_bytes;
                let look = move || of_file(&path, &shown, since, min_bytes);
                in_time(look).await
            }
            Check::Command(argv) => self.of_command(ticket, argv, site).await,
            Check::Regex(pattern) if pattern.is_match(reply) => Ok(()),
            Check::Regex(pattern) => Err(format!("the reply does not match `{pattern}`")),
            Check::NotRegex(pattern) => match pattern.find(reply) {
                None => Ok(()),
                Some(found) => {
                    let found = start_of(found.as_str());
                    Err(format!("the reply matches `{pattern}`: `{found}`"))
                }
            },
            Check::Sql(sql) => self.of_sql(ticket, sql.clone()).await,
            Check::Schema(schema) => of_schema(schema, reply),
            Check::NoneDenied if denied_calls == 0 => Ok(()),
            Check::NoneDenied => Err(format!("{denied_calls} tool calls were denied")),
        }
    }

    /// The command has a tree of its own, which is gone when this returns.
    async fn of_command(
        &self,
        ticket: &Ticket,
        argv: &[String],
        site: &Site,
    ) -> Result<(), String> {
        let household = Household::new(self.supervisor.clone(), ticket.run_id.as_str());
        let spec = Spec {
            argv: argv.to_vec(),
            cwd: site.workdir.clone(),
            env: site.env.clone(),
            output_bytes_max: OUTPUT_BYTES_MAX,
            errors: Errors::WithOutput,
            confinement: Confinement::Off,
        };
        let grace = ticket.spec.limits.stop_grace;
        let child = household.start(spec).await.map_err(|error| error.to_string())?;
        let ended = child.wait_output(CHECK_TIMEOUT).await;
        household.end_all(grace).await;
        let how = ended.exit.complaint(&[0], CHECK_TIMEOUT);
        how.map_or(Ok(()), |how| Err(with_words(how, &ended.output.text)))
    }

    async fn of_sql(&self, ticket: &Ticket, sql: String) -> Result<(), String> {
        let store = self.store.clone();
        let values = [
            (":run_id", Some(ticket.run_id.to_string())),
            (":job", Some(ticket.spec.id.to_string())),
            (":due_at", ticket.due_at.map(rfc3339)),
        ];
        let read = move || {
            let mut reader = store.reader().map_err(|error| error.to_string())?;
            let limits =
                QueryLimits { rows_max: 1, time_max: CHECK_TIMEOUT, ..QueryLimits::default() };
            let first = reader.first(&sql, &values, limits).map_err(|error| error.to_string())?;
            match first {
                Some(value) if is_true(&value) => Ok(()),
                Some(value) => Err(format!("the first column is {value}")),
                None => Err("there is no row".to_owned()),
            }
        };
        in_time(read).await
    }
}

/// Looks away from the runtime: a disk may be slow, or never answer.
async fn in_time<T: Send + 'static>(
    look: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::time::timeout(CHECK_TIMEOUT, tokio::task::spawn_blocking(look)).await {
        Ok(found) => found.unwrap_or_else(|error| Err(error.to_string())),
        Err(_) => Err(too_slow()),
    }
}

fn too_slow() -> String {
    format!("it took longer than {}", humantime::format_duration(CHECK_TIMEOUT))
}

/// How a command ended, with the first words of what it said.
pub(super) fn with_words(how: String, said: &str) -> String {
    match said.trim() {
        "" => how,
        words => format!("{how}: {}", start_of(words)),
    }
}

/// The failure that failed checks mean; `None` if all have passed.
pub(super) fn verdict(results: &[CheckResult]) -> Option<Failure> {
    let failed: Vec<_> = results.iter().filter(|it| !it.passed).collect();
    let first = failed.first()?;
    let kind =
        if first.name == REPLY_SCHEMA { ErrorKind::OutputInvalid } else { ErrorKind::CheckFailed };
    let detail = first.detail.as_deref().unwrap_or_default();
    let more = match failed.len() {
        1 => String::new(),
        count => format!(" (and {} more of {} checks)", count - 1, results.len()),
    };
    Some(Failure::new(kind, format!("{}: {detail}{more}", first.name)))
}

fn result(name: &str, found: Result<(), String>) -> CheckResult {
    CheckResult { name: name.to_owned(), passed: found.is_ok(), detail: found.err() }
}

fn of_schema(schema: &ReplySchema, reply: &str) -> Result<(), String> {
    schema.complaint(reply).map_or(Ok(()), Err)
}

fn of_file(
    path: &Path,
    shown: &Path,
    since: Option<Timestamp>,
    min_bytes: u64,
) -> Result<(), String> {
    let shown = shown.display();
    let file = match path.metadata() {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!("there is no file `{shown}`"));
        }
        Err(error) => return Err(format!("`{shown}` cannot be looked at: {error}")),
    };
    if !file.is_file() {
        return Err(format!("`{shown}` is no file"));
    }
    if file.len() < min_bytes {
        let found = file.len();
        return Err(format!("`{shown}` has {found} bytes, at least {min_bytes} are expected"));
    }
    let Some(since) = since else { return Ok(()) };
    let written = file.modified().map_err(|error| format!("`{shown}` tells no time: {error}"))?;
    let Ok(written) = Timestamp::try_from(written) else {
        return Err(format!("`{shown}` is of a time beyond all calendars"));
    };
    if written + CLOCK_STEP >= since {
        return Ok(());
    }
    let written = rfc3339(written);
    Err(format!("`{shown}` is of {written}, before the run started at {}", rfc3339(since)))
}

/// As SQLite sees it: a number that is not zero.
fn is_true(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Number(number) => number.as_f64().is_some_and(|number| number != 0.0),
        serde_json::Value::String(text) => text.parse::<f64>().is_ok_and(|number| number != 0.0),
        _ => false,
    }
}

fn start_of(words: &str) -> String {
    match words.char_indices().nth(OUTPUT_CHARS_SHOWN) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}
