//! `new JOB`: a job file to fill in.

use std::io::Write as _;

use super::context::Context;
use super::output::{self, Done, Failed};
use crate::job::{JobId, scaffold};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job's id: the name of its file
    job: String,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn new(context: &Context, args: &Args) -> Done {
    let config = context.config()?;
    let id: JobId = args.job.parse().map_err(Failed::usage)?;
    let path = config.jobs_dir.join(format!("{id}.toml"));
    std::fs::create_dir_all(&config.jobs_dir)?;
    let mut file = match std::fs::File::create_new(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Failed::usage(format!("{} exists already", path.display())));
        }
        result => result?,
    };
    file.write_all(scaffold(&id).as_bytes())?;
    output::note("fill it in, then `punctual validate`; it is disabled until you enable it");
    if args.json {
        return output::json(&serde_json::json!({ "job": id, "file": path }));
    }
    output::say(&path.display().to_string())
}
