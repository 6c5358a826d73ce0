//! `query SQL`: the history, read-only.

use std::time::Duration;

use serde_json::{Map, Value};

use super::context::Context;
use super::output::{self, Done, Failed};
use crate::store::{QueryLimits, StoreError, Table, database_in};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Lined up, for people.
    Table,
    /// A list of objects.
    Json,
    /// With a head line.
    Csv,
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
        Format::Csv => output::say(&csv(&table)),
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

fn objects(table: &Table) -> Vec<Map<String, Value>> {
    let names = distinct(&table.columns);
    let object = |row: &Vec<Value>| names.iter().cloned().zip(row.iter().cloned()).collect();
    table.rows.iter().map(object).collect()
}

/// A join may name two columns alike; as keys of an object the later ones become `name_2` …
fn distinct(columns: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(columns.len());
    for column in columns {
        let mut name = column.clone();
        for n in 2.. {
            if !names.contains(&name) {
                break;
            }
            name = format!("{column}_{n}");
        }
        names.push(name);
    }
    names
}

fn csv(table: &Table) -> String {
    let line =
        |fields: Vec<String>| fields.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(",");
    let head = line(table.columns.clone());
    let rows = table.rows.iter().map(|row| line(row.iter().map(text).collect()));
    std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\r\n")
}

/// A field as RFC 4180 wants it.
fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_the_same_name_are_told_apart() {
        let columns = ["x", "y", "x", "x"].map(String::from);
        assert_eq!(distinct(&columns), ["x", "y", "x_2", "x_3"]);
    }

    #[test]
    fn fields_with_commas_quotes_and_line_ends_are_quoted() {
        let table = Table {
            columns: vec!["a".into(), "b".into()],
            rows: vec![vec![Value::from("x, \"y\"\nz"), Value::Null], vec![1.into(), "p".into()]],
        };
        assert_eq!(csv(&table), "a,b\r\n\"x, \"\"y\"\"\nz\",\r\n1,p");
    }
}
