//! Plain SQL from people: read-only, bounded in time and rows.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Statement;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use serde_json::Value;

use super::error::StoreError;
use super::read::Reader;
use crate::clock::{Clock, SystemClock};

/// How far a query may go.
#[derive(Debug, Clone, Copy)]
pub struct QueryLimits {
    /// Rows returned.
    pub rows_max: usize,
    /// Text and numbers returned, all rows together.
    pub bytes_max: usize,
    /// Time spent.
    pub time_max: Duration,
}

impl Default for QueryLimits {
    /// Enough for any report, too little to fill a disk or the memory or hold a core for long.
    fn default() -> Self {
        Self { rows_max: 100_000, bytes_max: 256 << 20, time_max: Duration::from_secs(30) }
    }
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows; each as long as `columns`.
    pub rows: Vec<Vec<Value>>,
}

/// The largest single value, also of those that are only computed on the way.
const VALUE_BYTES_MAX: i32 = 64 << 20;

/// Virtual-machine steps between two looks at the clock.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// What stands between a statement and the database.
pub(super) struct Guarding {
    pub(super) limits: QueryLimits,
    /// What is refused of an action; `None`: it may.
    pub(super) refuses: Box<Refuses>,
    /// Whether nobody waits for the answer any more.
    pub(super) stops: Box<dyn Fn() -> bool + Send>,
}

type Refuses = dyn Fn(&AuthContext<'_>) -> Option<String> + Send;

impl Guarding {
    /// Everything may be read.
    fn of(limits: QueryLimits) -> Self {
        let refuses = Box::new(|context: &AuthContext<'_>| refusal_of(context.action));
        Self { limits, refuses, stops: Box::new(|| false) }
    }
}

impl Reader {
    /// Runs one `SELECT` (or `EXPLAIN`, `WITH`, `VALUES`) and returns its rows. Anything that
    /// would write, attach another file or change the connection is refused before it runs.
    pub fn query(&mut self, sql: &str, limits: QueryLimits) -> Result<Table, StoreError> {
        self.guarded(Guarding::of(limits), |reader| reader.rows_of(sql, limits))
    }

    /// The first column of the first row of such a statement, with values for its parameters by
    /// name: those that it does not have are left out.
    pub fn first(
        &mut self,
        sql: &str,
        values: &[(&str, Option<String>)],
        limits: QueryLimits,
    ) -> Result<Option<Value>, StoreError> {
        self.guarded(Guarding::of(limits), |reader| {
            let mut statement = reader.reading(sql)?;
            for (name, value) in values {
                if let Some(index) = statement.parameter_index(name)? {
                    statement.raw_bind_parameter(index, value)?;
                }
            }
            let mut rows = statement.raw_query();
            Ok(rows.next()?.map(|row| row.get_ref(0).map(json)).transpose()?)
        })
    }

    pub(super) fn guarded<T>(
        &mut self,
        guarding: Guarding,
        read: impl FnOnce(&Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Guarding { limits, refuses, stops } = guarding;
        let give_up_at = SystemClock.monotonic() + limits.time_max;
        let refused = Arc::new(Mutex::new(None));
        let refusal = Arc::clone(&refused);
        self.0.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
        self.0.authorizer(Some(move |context: AuthContext<'_>| match refuses(&context) {
            None => Authorization::Allow,
            Some(words) => {
                *refusal.lock().expect("no holder of this lock can panic") = Some(words);
                Authorization::Deny
            }
        }))?;
        self.0.progress_handler(
            STEPS_BETWEEN_LOOKS,
            Some(move || stops() || SystemClock.monotonic() >= give_up_at),
        )?;
        let answer = read(self);
        self.0.progress_handler(0, None::<fn() -> bool>)?;
        self.0.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
        let refused = refused.lock().expect("no holder of this lock can panic").take();
        answer.map_err(|error| match refused {
            Some(words) => StoreError::Query(format!("{ONLY_READING}, not {words}")),
            None => explain(error, limits),
        })
    }

    /// SQLite's own quick look at the file: `ok`, or what is damaged.
    pub fn quick_check(&self) -> Result<String, StoreError> {
        Ok(self.0.pragma_query_value(None, "quick_check", |row| row.get(0))?)
    }

    fn reading(&self, sql: &str) -> Result<Statement<'_>, StoreError> {
        let statement = self.0.prepare(sql)?;
        if !statement.readonly() {
            return Err(StoreError::Query(ONLY_READING.into()));
        }
        Ok(statement)
    }

    pub(super) fn rows_of(&self, sql: &str, limits: QueryLimits) -> Result<Table, StoreError> {
        let mut statement = self.reading(sql)?;
        let columns: Vec<String> = statement.column_names().map(Into::into).collect();
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let mut cursor = statement.query([])?;
        while let Some(row) = cursor.next()? {
            let QueryLimits { rows_max, bytes_max, .. } = limits;
            if rows.len() == rows_max {
                return Err(StoreError::Query(format!("more than {rows_max} rows: add a LIMIT")));
            }
            let mut values = Vec::with_capacity(columns.len());
            for n in 0..columns.len() {
                let value = row.get_ref(n)?;
                bytes += bytes_of(value);
                values.push(json(value));
            }
            if bytes > bytes_max {
                let words = format!("more than {} MB: ask for less", bytes_max >> 20);
                return Err(StoreError::Query(words));
            }
            rows.push(values);
        }
        Ok(Table { columns, rows })
    }
}

const ONLY_READING: &str = "only reading is allowed here";

/// What is refused of an action; `None`: it only reads.
pub(super) fn refusal_of(action: AuthAction<'_>) -> Option<String> {
    match action {
        AuthAction::Select
        | AuthAction::Read { .. }
        | AuthAction::Recursive
        // Looking at the schema is reading; setting anything is not.
        | AuthAction::Pragma {
            pragma_name: "table_info" | "table_xinfo" | "table_list" | "index_list",
            ..
        } => None,
        AuthAction::Function { function_name } => match function_name {
            // What a build of SQLite may have that reaches beyond the database.
            "load_extension" | "readfile" | "writefile" | "edit" | "fts3_tokenizer" => {
                Some(format!("{function_name}()"))
            }
            _ => None,
        },
        AuthAction::Pragma { pragma_name, .. } => Some(format!("PRAGMA {pragma_name}")),
        AuthAction::Attach { .. } => Some("attaching a file".into()),
        AuthAction::Detach { .. } => Some("detaching a file".into()),
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => {
            Some("a transaction".into())
        }
        AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name } => Some(format!("writing to {table_name}")),
        _ => Some("a change of the schema".into()),
    }
}

fn bytes_of(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Null => 0,
        ValueRef::Integer(_) | ValueRef::Real(_) => 8,
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
    }
}

fn json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => format!("<{} bytes>", bytes.len()).into(),
    }
}

fn explain(error: StoreError, limits: QueryLimits) -> StoreError {
    use rusqlite::ErrorCode::{AuthorizationForStatementDenied, OperationInterrupted};
    match error {
        StoreError::Sql(rusqlite::Error::SqliteFailure(failure, words)) => {
            StoreError::Query(match failure.code {
                AuthorizationForStatementDenied => ONLY_READING.into(),
                OperationInterrupted => format!("stopped after {:?}", limits.time_max),
                _ => words.unwrap_or_else(|| failure.to_string()),
            })
        }
        StoreError::Sql(rusqlite::Error::SqlInputError { msg, sql, offset, .. }) => {
            let column = usize::try_from(offset).unwrap_or(0) + 1;
            let denied = msg.starts_with("not authorized") || msg.contains("prohibited");
            if denied {
                StoreError::Query(ONLY_READING.into())
            } else {
                StoreError::Query(format!("{msg} (at character {column} of `{sql}`)"))
            }
        }
        StoreError::Sql(error) => StoreError::Query(error.to_string()),
        other => other,
    }
}
