//! `completions SHELL`: a script for the shell.

use clap::CommandFactory as _;

use super::Cli;
use super::output::{self, Done};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub(super) fn completions(args: &Args) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "punctual", &mut script);
    output::say(String::from_utf8_lossy(&script).trim_end())
}
