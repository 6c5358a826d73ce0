//! `query SQL`: the history, read-only.

use std::time::Duration;

use serde_json::Value;

use super::context::Context;
use super::format::{Format, csv, objects, text};
use super::output::{self, Done, Failed};
use crate::store::{QueryLimits, StoreError, database_in};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// One SELECT over the views; `SELECT name FROM sqlite_schema WHERE type = 'view'` lists them
    sql: String,
    /// How the rows are printed
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// The same as --format json
    #[arg(long)]
    json: bool,
}

/// What a query may take beyond its own limit: SQLite looks at the clock only between the steps
/// of its machine, and one function call can be a long step.
const OVERTIME: Duration = Duration::from_secs(5);

/// Characters of a cell that a table shows; the other formats have all of them.
const CELL_CHARS_MAX: usize = 2000;

pub(super) fn query(context: &Context, args: &Args) -> Done {
    give_up_after(QueryLimits::default().time_max + OVERTIME);
    let place = context.place()?;
    let Some(mut reader) = place.history()? else {
        let missing = StoreError::Missing(database_in(&place.state_dir));
        return Err(Failed::usage(output::chain(&missing)));
    };
    let table = reader
        .query(&args.sql, QueryLimits::default())
        .map_err(|error| Failed::usage(output::chain(&error)))?;
    match if args.json { Format::Json } else { args.format } {
        Format::Json => output::json(&objects(&table)),
        Format::Csv => output::say_exactly(&csv(&table)?),
        Format::Table => {
            let head: Vec<_> = table.columns.iter().map(String::as_str).collect();
            // A row is a line: the whole text is in the other formats.
            let shown = |value: &Value| {
                let line = text(value).replace("\r\n", "\n").replace('\n', "↵");
                output::first_line(&line, CELL_CHARS_MAX)
            };
            let rows = table.rows.iter().map(|row| row.iter().map(shown).collect()).collect();
            output::say(&output::table(&head, rows))
        }
    }
}

/// Ends this process, which does nothing but the query.
fn give_up_after(limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        output::note("error: the query did not stop within its limit");
        std::process::exit(i32::from(output::code::USAGE));
    });
}
