//! `schema`: what may stand in the files, for editors.

use super::output::{self, Done};
use crate::config;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Of which file
    #[arg(value_enum, default_value = "job")]
    of: Of,
    /// Print for programs: a schema is JSON in any case
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Of {
    /// `config.toml`.
    Config,
    /// `jobs/*.toml`.
    Job,
}

pub(super) fn schema(args: &Args) -> Done {
    let Args { of, json: _ } = args;
    output::json(&match of {
        Of::Config => config::schema(),
        Of::Job => crate::job::schema(),
    })
}
