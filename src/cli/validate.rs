//! `validate`: every problem of every file, in one report.

use serde_json::json;

use super::context::{Context, report};
use super::output::{self, Done, code, counted, note};
use super::running;
use crate::config::{self};
use crate::job::{Problem, Severity};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn validate(context: &Context, args: &Args) -> Done {
    let (mut problems, jobs, invalid) = match context.load() {
        Ok((config, mut problems)) => {
            let set = config::load_jobs(&config);
            running::warn_if_stale(&config, &set);
            problems.extend(set.problems());
            (problems, set.jobs.len(), set.invalid.len())
        }
        Err(problems) => (problems, 0, 0),
    };
    problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    let errors = problems.iter().filter(|it| it.severity == Severity::Error).count();
    if args.json {
        output::json(&json!({
            "jobs": jobs, "invalid": invalid, "errors": errors, "problems": problems,
        }))?;
    } else {
        print(&problems, jobs, invalid)?;
    }
    Ok(if errors == 0 { std::process::ExitCode::SUCCESS } else { code::USAGE.into() })
}

fn print(problems: &[Problem], jobs: usize, invalid: usize) -> Done {
    if !problems.is_empty() {
        note(&report(problems));
    }
    output::say(&format!("{} valid, {} invalid", counted(jobs, "job"), counted(invalid, "file")))?;
    output::say(&unheard(jobs))
}

/// How many jobs' failures reach nobody: as long as nothing is delivered, all of them.
pub(super) fn unheard(jobs: usize) -> String {
    format!(
        "failures of {} reach nobody: deliveries and alerts are not supported yet",
        counted(jobs, "job")
    )
}
