//! `test [JOB]`: a recorded run, run again without a model, and what is different about it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::context::{Context, block_on, report};
use super::output::{self, Done, Failed, code, counted, length, note};
use super::test_record::record;
use crate::cassette::{Cassette, CassetteError, Deck, Difference, cassette_path, compare};
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Config, JobSet};
use crate::daemon::{Rehearsal, variables_again};
use crate::job::JobSpec;
use crate::process::SupervisorPath;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job's id; without it every job that has a cassette
    pub(super) job: Option<String>,
    /// Run the job once for real, and keep what is said and done beside its file
    #[arg(long, requires = "job")]
    pub(super) record: bool,
    /// Record as for this due time: a time in the job's zone, or RFC 3339
    #[arg(long, value_name = "TIME", requires = "record")]
    pub(super) slot: Option<String>,
    /// Record also when the job is disabled or paused
    #[arg(long, requires = "record")]
    pub(super) force: bool,
    /// Print for programs
    #[arg(long)]
    pub(super) json: bool,
}

/// What became of the test of one job.
#[derive(Debug, Serialize)]
struct Tested {
    job: String,
    cassette: PathBuf,
    result: Verdict,
    /// Why it could not be tested.
    error: Option<String>,
    differences: Vec<Difference>,
    duration_ms: u64,
    #[serde(skip)]
    measure: String,
}

words!(
    /// How a test ended.
    Verdict {
        /// As recorded.
        Same = "same",
        /// Something is different.
        Different = "different",
        /// There is no cassette, or none that can be used, or no job that can.
        Invalid = "invalid",
    }
);

pub(super) fn test(context: &Context, args: &Args) -> Done {
    if let (Some(job), true) = (&args.job, args.record) {
        let (config, jobs) = context.jobs()?;
        return record(&config, &jobs, job, args);
    }
    let (config, jobs) = context.without_need_of_secrets().jobs()?;
    if let Some(job) = &args.job {
        Context::named(job, &jobs, None)?;
        return replay(&config, &jobs, std::slice::from_ref(job), args);
    }
    let recorded = recorded(&config.jobs_dir)?;
    if recorded.is_empty() {
        let words = "no job has a cassette yet: `punctual test JOB --record` makes one";
        return Err(Failed::usage(words));
    }
    replay(&config, &jobs, &recorded, args)
}

/// The jobs that cassettes are named after.
fn recorded(jobs_dir: &Path) -> Result<Vec<String>, Failed> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(jobs_dir)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        names.extend(name.strip_suffix(".cassette").map(str::to_owned));
    }
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    Ok(names)
}

fn replay(config: &Config, jobs: &JobSet, names: &[String], args: &Args) -> Done {
    let tested = block_on(async {
        let mut all = Vec::new();
        for name in names {
            all.push(one(config, jobs, name).await);
        }
        all
    })?;
    if args.json {
        output::json(&json!({ "tests": tested }))?;
    } else {
        let all: String = tested.iter().map(in_words).collect();
        if !all.is_empty() {
            output::say(all.trim_end())?;
        }
        if args.job.is_none() {
            output::say(&summary(&tested))?;
        }
    }
    let worst = tested.iter().map(|it| match it.result {
        Verdict::Same => 0,
        Verdict::Different => code::FAILED,
        Verdict::Invalid => code::USAGE,
    });
    Ok(ExitCode::from(worst.max().unwrap_or(0)))
}

async fn one(config: &Config, jobs: &JobSet, name: &str) -> Tested {
    let start = SystemClock.monotonic();
    let mut tested = Tested {
        job: name.to_owned(),
        cassette: config.jobs_dir.join(format!("{name}.cassette")),
        result: Verdict::Invalid,
        error: None,
        differences: Vec::new(),
        duration_ms: 0,
        measure: String::new(),
    };
    match compared(config, jobs, name, &mut tested).await {
        Ok(differences) if differences.is_empty() => tested.result = Verdict::Same,
        Ok(differences) => {
            tested.result = Verdict::Different;
            tested.differences = differences;
        }
        Err(words) => tested.error = Some(words),
    }
    tested.duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    tested
}

async fn compared(
    config: &Config,
    jobs: &JobSet,
    name: &str,
    tested: &mut Tested,
) -> Result<Vec<Difference>, String> {
    let spec = spec_of(jobs, name)?;
    tested.cassette = cassette_path(&spec.file, &spec.id);
    let expected = match Cassette::read(&tested.cassette, &spec.id) {
        Ok(Some(cassette)) => cassette,
        Ok(None) => {
            return Err(format!(
                "there is no cassette {}: `punctual test {name} --record` makes it",
                tested.cassette.display()
            ));
        }
        Err(error) => return Err(hint(&error, name)),
    };
    let counts = [
        counted(expected.requests.len(), "request"),
        counted(expected.calls.len(), "tool call"),
        counted(expected.checks.len(), "check"),
    ];
    tested.measure = counts.join(", ");
    let deck = Deck::replaying(&expected);
    let variables = variables_again(spec, &expected);
    let (clock, supervisor) = (Arc::new(SystemClock), SupervisorPath::current_exe());
    let spec = Arc::new(spec.clone());
    let words = |error: crate::daemon::RehearsalError| output::chain(&error);
    let rehearsal = Rehearsal::of(config, spec, variables, deck, clock, supervisor).await;
    let found = Box::pin(rehearsal.map_err(words)?.run()).await.map_err(words)?;
    let found = found.cassette.map_err(|error| error.to_string())?;
    Ok(compare(&expected, &found))
}

/// The job of that name, or why there is none that can be run.
fn spec_of<'a>(jobs: &'a JobSet, name: &str) -> Result<&'a JobSpec, String> {
    if let Some(problems) = jobs.invalid.get(name) {
        return Err(report(problems).trim_end().to_owned());
    }
    let spec = jobs.jobs.values().find(|spec| spec.id.as_str() == name);
    spec.ok_or_else(|| format!("there is no job `{name}`: its cassette is left over"))
}

fn hint(error: &CassetteError, job: &str) -> String {
    let words = output::chain(error);
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    match error {
        CassetteError::Damaged { .. } | CassetteError::OfAnother { .. } => {
            format!("{words}; `punctual test {job} --record` makes it anew")
        }
        CassetteError::Newer { .. } | CassetteError::Read { .. } | CassetteError::Write { .. } => {
            words.to_owned()
        }
    }
}

fn in_words(tested: &Tested) -> String {
    let Tested { job, result, error, differences, measure, .. } = tested;
    let took = length(Duration::from_millis(tested.duration_ms));
    match result {
        Verdict::Same => format!("{job}: as recorded ({measure}; {took})\n"),
        Verdict::Invalid => {
            let words = error.as_deref().unwrap_or_default();
            note(&format!("error: {job}: {}", words.strip_prefix("error: ").unwrap_or(words)));
            String::new()
        }
        Verdict::Different => {
            let mut text = format!("{job}: {}\n", counted(differences.len(), "difference"));
            for Difference { what, words, diff, .. } in differences {
                let _ = write!(text, "\n{what}: {words}\n{diff}");
            }
            let again = format!("if that is right, record it anew: `punctual test {job} --record`");
            text + "\n" + &again + "\n"
        }
    }
}

fn summary(tested: &[Tested]) -> String {
    let count = |verdict| tested.iter().filter(|it| it.result == verdict).count();
    let all = counted(tested.len(), "job");
    let parts = [
        format!("{} as recorded", count(Verdict::Same)),
        format!("{} different", count(Verdict::Different)),
        format!("{} not tested", count(Verdict::Invalid)),
    ];
    format!("{all}: {}", parts.join(", "))
}
