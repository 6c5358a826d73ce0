//! `backup DIR`: a copy of the state folder, made while it is in use.
//!
//! The database comes first, as it is at one moment; then the transcript of every run in it, and the
//! files that are kept of it. A transcript may be a little ahead of its row, as after a crash, and what has been pruned in
//! between has none.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::context::Context;
use super::export::beside;
use super::output::{self, Done, Failed, chain, counted};
use crate::session::transcript_path;
use crate::store::{self, database_in};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The folder to make; it may be there if it is empty
    dir: PathBuf,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn backup(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let dir = std::path::absolute(&args.dir)?;
    refuse_what_is_there(&dir)?;
    let part = beside(&dir)?;
    let copied = copy(&place.state_dir, &part).and_then(|copied| {
        // A folder moves over an empty one in one step.
        fs::rename(&part, &dir)?;
        Ok(copied)
    });
    if copied.is_err() {
        drop(fs::remove_dir_all(&part));
    }
    let Copied { runs, transcripts } = copied?;
    if args.json {
        return output::json(&json!({ "dir": dir, "runs": runs, "transcripts": transcripts }));
    }
    output::say(&format!(
        "{} and {} are in {} now; `--state-dir` reads it",
        counted(runs, "run"),
        counted(transcripts, "transcript"),
        dir.display()
    ))
}

fn refuse_what_is_there(dir: &Path) -> Result<(), Failed> {
    let is_there = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != ErrorKind::NotFound,
    };
    if is_there {
        return Err(Failed::usage(format!(
            "{} is there already: give another name",
            dir.display()
        )));
    }
    Ok(())
}

struct Copied {
    runs: usize,
    transcripts: usize,
}

fn copy(state_dir: &Path, to: &Path) -> Result<Copied, Failed> {
    for folder in [to.to_owned(), to.join("sessions"), to.join("workspaces")] {
        DirBuilder::new().mode(0o700).create(folder)?;
    }
    let copy = store::copy(&database_in(state_dir), &database_in(to))
        .map_err(|error| Failed::usage(chain(&error)))?;
    let sessions = copy.sessions()?;
    let mut transcripts = 0;
    for session in &sessions {
        match fs::copy(transcript_path(state_dir, session), transcript_path(to, session)) {
            Ok(_) => transcripts += 1,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    for file in copy.kept_files()? {
        let copy = to.join(&file);
        DirBuilder::new().recursive(true).mode(0o700).create(copy.parent().unwrap_or(to))?;
        match fs::copy(state_dir.join(&file), copy) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
    }
    // All of them at once: one by one, a hundred thousand files would take minutes.
    nix::unistd::syncfs(&File::open(to)?)?;
    Ok(Copied { runs: copy.count_runs()?, transcripts })
}
