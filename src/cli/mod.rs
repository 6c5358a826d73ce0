//! Words for people: one file per verb.
//!
//! Verbs that read open the files and the database themselves and work while `serve` runs. Verbs
//! that act ask the process that holds the state folder. What a verb prints for programs
//! (`--json`) goes to standard output, everything else to standard error.

mod agent;
mod backfill;
mod backup;
mod cancel;
mod caps;
mod changes;
mod completions;
mod context;
mod costs;
mod costs_to_come;
mod doctor;
mod doctor_mcp;
mod dst;
mod dues;
mod export;
mod forecast;
mod format;
mod holder;
mod incidents;
mod last_good;
mod list;
mod live;
mod logs;
mod ls;
mod new;
mod next;
mod output;
mod paint;
mod pause;
mod plan;
mod plan_jobs;
mod query;
mod reasons;
mod relative;
mod reload;
mod run;
mod running;
mod runs;
mod sandbox;
mod scheduled;
mod schema;
mod serve;
mod show;
mod show_prompt;
mod show_rules;
mod simulate;
mod skills;
mod slots;
mod status;
mod test;
mod test_record;
mod timeline;
mod times;
mod tree;
mod validate;
mod why;
mod why_answer;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use context::Context;
use output::{Failed, Voice};

/// Cron for agents, with receipts: every scheduled instant is accounted for, every run ends on
/// time, every result is a row.
#[derive(Debug, Parser)]
#[command(name = "punctual", version, max_term_width = 100)]
pub struct Cli {
    /// Configuration file; later ones win by key [default: ./config.toml and the usual places]
    #[arg(long, global = true, value_name = "PATH")]
    config: Vec<PathBuf>,

    /// State folder, over the configuration's
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// How log lines look
    #[arg(long, global = true, value_enum, default_value = "text")]
    log_format: LogFormat,

    #[command(subcommand)]
    verb: Verb,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the jobs at their times
    Serve(serve::Args),
    /// Run one job now and wait for its end
    Run(run::Args),
    /// Say something into a session and wait for the answer
    Agent(agent::Args),
    /// List the jobs
    Ls(ls::Args),
    /// Show a job or a run
    Show(show::Args),
    /// When a job is due next
    Next(next::Args),
    /// Check the configuration and every job file
    Validate(validate::Args),
    /// List runs, newest first
    Runs(runs::Args),
    /// List what was decided about due times, newest first
    Slots(slots::Args),
    /// Why a job did or did not run at a time
    Why(why::Args),
    /// What the job files would change
    Plan(plan::Args),
    /// What would be decided between two times
    Simulate(simulate::Args),
    /// Print what a run said and did
    Logs(logs::Args),
    /// End a run
    Cancel(cancel::Args),
    /// Hold a job, or all of them
    Pause(pause::PauseArgs),
    /// Free a job that is held, or all of them
    Resume(pause::ResumeArgs),
    /// Have the running process read its files again
    Reload(reload::Args),
    /// Run past slots of a job
    Backfill(backfill::Args),
    /// Run a recorded run again without a model
    Test(test::Args),
    /// What is wrong with the jobs, and since when
    Incidents(incidents::Args),
    /// Ask the history in SQL
    Query(query::Args),
    /// Write the whole history into one portable file
    Export(export::Args),
    /// Copy the state folder while it is in use
    Backup(backup::Args),
    /// What a month has cost, and what is still to come
    Costs(costs::Args),
    /// How things are now
    Status(status::Args),
    /// Check this machine and this configuration
    Doctor(doctor::Args),
    /// Print the JSON Schema of the files
    Schema(schema::Args),
    /// Make a job file to fill in
    New(new::Args),
    /// Install, update, list and remove skills
    Skills(skills::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// Verbs of the contract that are not built yet: refused by name.
const NOT_YET: &[&str] = &["audit", "import"];

/// The program: parses the command line, does what it says, and returns the exit code of the
/// contract.
pub fn main() -> ExitCode {
    crate::provider::install_crypto();
    let cli = Cli::parse();
    let level = match cli.verb {
        Verb::Serve(_) => "info",
        // It tells by itself how its run ended.
        Verb::Run(_) | Verb::Agent(_) | Verb::Test(_) => "error",
        _ => "warn",
    };
    let (voice, _flushed_at_the_end) = Voice::of_stderr();
    output::start_logging(&voice, cli.log_format, level);
    let context = match Context::new(cli.config, cli.state_dir, cli.log_format, voice) {
        Ok(context) => context,
        Err(error) => return Failed::from(error).report(),
    };
    let done = match cli.verb {
        Verb::Serve(args) => serve::serve(&context, &args),
        Verb::Run(args) => run::run(&context, &args),
        Verb::Agent(args) => agent::agent(&context, &args),
        Verb::Ls(args) => ls::ls(&context, &args),
        Verb::Show(args) => show::show(&context, &args),
        Verb::Next(args) => next::next(&context, &args),
        Verb::Validate(args) => validate::validate(&context, &args),
        Verb::Runs(args) => runs::runs(&context, &args),
        Verb::Slots(args) => slots::slots(&context, &args),
        Verb::Why(args) => why::why(&context, &args),
        Verb::Plan(args) => plan::plan(&context, &args),
        Verb::Simulate(args) => simulate::simulate(&context, &args),
        Verb::Logs(args) => logs::logs(&context, &args),
        Verb::Cancel(args) => cancel::cancel(&context, &args),
        Verb::Pause(args) => pause::pause(&context, &args),
        Verb::Resume(args) => pause::resume(&context, &args),
        Verb::Reload(args) => reload::reload(&context, &args),
        Verb::Backfill(args) => backfill::backfill(&context, &args),
        Verb::Test(args) => test::test(&context, &args),
        Verb::Incidents(args) => incidents::incidents(&context, &args),
        Verb::Query(args) => query::query(&context, &args),
        Verb::Export(args) => export::export(&context, &args),
        Verb::Backup(args) => backup::backup(&context, &args),
        Verb::Costs(args) => costs::costs(&context, &args),
        Verb::Status(args) => status::status(&context, &args),
        Verb::Doctor(args) => doctor::doctor(&context, &args),
        Verb::Schema(args) => schema::schema(&args),
        Verb::New(args) => new::new(&context, &args),
        Verb::Skills(args) => skills::skills(&context, &args),
        Verb::Completions(args) => completions::completions(&args),
        Verb::Other(words) => Err(other(&words)),
    };
    done.unwrap_or_else(Failed::report)
}

fn other(words: &[OsString]) -> Failed {
    let verb = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    if NOT_YET.contains(&verb.as_ref()) {
        return Failed::usage(format!("`punctual {verb}` is not supported yet"));
    }
    let known = <Cli as clap::CommandFactory>::command();
    let names: Vec<_> = known.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    match crate::job::nearest(&verb, names.iter().map(String::as_str)) {
        Some(near) => Failed::usage(format!("there is no verb `{verb}`; did you mean `{near}`?")),
        None => Failed::usage(format!("there is no verb `{verb}`; see `punctual --help`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
