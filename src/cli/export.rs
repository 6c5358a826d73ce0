//! `export`: the whole history in one file that needs nothing of ours.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::context::{Context, now};
use super::output::{self, Done, Failed, chain};
use crate::clock::to_millis;
use crate::store::{self, database_in};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file to write [default: punctual-<time>.sqlite in this folder]
    file: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn export(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let now = to_millis(now());
    let usual = || PathBuf::from(format!("punctual-{}.sqlite", now.strftime("%Y%m%dT%H%M%SZ")));
    let file = args.file.clone().unwrap_or_else(usual);
    if !args.force && file.symlink_metadata().is_ok() {
        return Err(is_there(&file));
    }
    let part = beside(&file)?;
    let made = store::export(&database_in(&place.state_dir), &part, now)
        .map_err(|error| Failed::usage(chain(&error)))
        .and_then(|tables| publish(&part, &file, args).map(|()| tables));
    if made.is_err() {
        drop(fs::remove_file(&part));
    }
    let tables = made?;
    if args.json {
        return output::json(&json!({ "file": file, "tables": tables }));
    }
    let rows: i64 = tables.iter().map(|table| table.rows).sum();
    let count = tables.len();
    output::say(&format!("{rows} rows of {count} views are in {} now", file.display()))
}

/// Where a file is made before it gets its name, in one move: in the same folder.
pub(super) fn beside(path: &Path) -> Result<PathBuf, Failed> {
    let name = path.file_name().ok_or_else(|| {
        Failed::usage(format!("`{}` is not the name of a file or folder to make", path.display()))
    })?;
    let name = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
    Ok(path.with_file_name(name))
}

fn publish(part: &Path, file: &Path, args: &Args) -> Result<(), Failed> {
    if args.force {
        return Ok(fs::rename(part, file)?);
    }
    // Unlike a move, this replaces nothing that somebody has put there meanwhile.
    match fs::hard_link(part, file) {
        Ok(()) => Ok(fs::remove_file(part)?),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(is_there(file)),
        // Not every file system can.
        Err(_) => Ok(fs::rename(part, file)?),
    }
}

fn is_there(file: &Path) -> Failed {
    Failed::usage(format!("{} is there already: another name, or --force", file.display()))
}
