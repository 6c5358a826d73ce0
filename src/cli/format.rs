//! How rows are printed: lined up for people, or for programs as JSON or CSV.

use serde_json::{Map, Value};

use super::output::Failed;
use crate::store::Table;

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Lined up, for people.
    Table,
    /// A list of objects.
    Json,
    /// As RFC 4180 has it, with a head line.
    Csv,
}

/// The rows as objects.
pub(super) fn objects(table: &Table) -> Vec<Map<String, Value>> {
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

/// The rows as comma-separated lines, each with its end. Unknown is empty.
pub(super) fn csv(table: &Table) -> Result<String, Failed> {
    let ends = csv::Terminator::CRLF;
    let mut writer = csv::WriterBuilder::new().terminator(ends).from_writer(Vec::new());
    writer.write_record(&table.columns)?;
    for row in &table.rows {
        writer.write_record(row.iter().map(text))?;
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What is written of a value where there are no types.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// These fields of things that are printed as JSON; `a.b` is the field `b` of `a`.
pub(super) fn columns<T: serde::Serialize>(
    things: &[T],
    fields: &[(&str, &str)],
) -> Result<Table, Failed> {
    let mut rows = Vec::with_capacity(things.len());
    for thing in things {
        let thing = serde_json::to_value(thing)?;
        let field = |path: &str| {
            path.split('.').fold(&thing, |value, name| value.get(name).unwrap_or(&Value::Null))
        };
        rows.push(fields.iter().map(|(_, path)| field(path).clone()).collect());
    }
    let columns = fields.iter().map(|(name, _)| (*name).to_owned()).collect();
    Ok(Table { columns, rows })
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
        assert_eq!(csv(&table).unwrap(), "a,b\r\n\"x, \"\"y\"\"\nz\",\r\n1,p\r\n");
        // A line without anything would be none.
        let nothing = Table { columns: vec!["a".into()], rows: vec![vec![Value::Null]] };
        assert_eq!(csv(&nothing).unwrap(), "a\r\n\"\"\r\n");
    }
}
