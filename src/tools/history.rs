//! `history {sql}`: what is known of runs, slots and costs, by SQL over the views.
//!
//! This room knows no store: whoever drives the run lends it the [`Ledger`]. What it gives is data
//! like a fetched page: replies and errors of other runs hold what others have written.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::parameters::{definition, parse};
use super::tool::{Arguments, Refusal, Tool, ToolContext, ToolOutcome, Verdict};
use super::untrusted::framed;
use crate::provider::ToolDefinition;

/// Whoever wants more than that wants a sum.
const ROWS_MAX: usize = 500;

/// As much as of a command's output.
const BYTES_MAX: usize = 64 * 1024;

/// A report of a year takes a second; what takes longer has forgotten a condition.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Longer ones are no questions.
const SQL_BYTES_MAX: usize = 16 * 1024;

/// The history, as far as a run may look at it.
pub trait Ledger: Send + Sync {
    /// The rows of one statement that only reads the views, or why there are none. Dropping the
    /// future ends the question.
    fn ask(&self, sql: String, bounds: AskBounds) -> BoxFuture<'_, Result<Rows, String>>;
}

/// How far a question may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskBounds {
    /// Rows in the answer.
    pub rows_max: usize,
    /// Texts and numbers in it.
    pub bytes_max: usize,
    /// Time spent.
    pub time_max: Duration,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// As many values each.
    pub rows: Vec<Vec<Value>>,
}

/// Looks at the history.
pub(super) struct History(pub(super) Option<Arc<dyn Ledger>>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// One SELECT of SQLite.
    sql: String,
}

impl Tool for History {
    fn definition(&self) -> ToolDefinition {
        let description = "Ask the scheduler's history with one read-only SELECT over its views: \
            v1_runs, v1_jobs, v1_slots, v1_attempts, v1_tool_calls, v1_checks, v1_deliveries, \
            v1_costs, v1_incidents, v1_cleanups, v1_artifacts, v1_prompt_parts, v1_sessions, v1_messages, v1_hooks, v1_definitions, \
            v1_audit. `SELECT * FROM v1_runs LIMIT 1` shows the columns of one. Instants are text, \
            RFC 3339 in UTC. The answer is JSON, one row a line after the names of the columns.";
        definition::<Parameters>("history", description)
    }

    fn call<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutcome> {
        self.ask(arguments, context).map(|result| result.unwrap_or_else(Into::into)).boxed()
    }
}

impl History {
    async fn ask(
        &self,
        arguments: Arguments,
        context: &ToolContext,
    ) -> Result<ToolOutcome, Refusal> {
        let Parameters { sql } = parse("history", arguments)?;
        let Some(ledger) = &self.0 else {
            return Err(Refusal::Denied("there is no history here".into()));
        };
        if sql.len() > SQL_BYTES_MAX {
            let words = format!("the statement is longer than {SQL_BYTES_MAX} bytes");
            return Err(Refusal::Failed(words));
        }
        let time_max = context.tool_timeout.min(TIME_MAX);
        let bounds = AskBounds { rows_max: ROWS_MAX, bytes_max: BYTES_MAX, time_max };
        let rows = ledger.ask(sql, bounds).await.map_err(Refusal::Failed)?;
        Ok(ToolOutcome::new(Verdict::Ok, told(&rows)))
    }
}

fn told(rows: &Rows) -> String {
    let mut text = serde_json::to_string(&rows.columns).unwrap_or_default();
    for row in &rows.rows {
        let row = serde_json::to_string(row).unwrap_or_default();
        if text.len() + row.len() > BYTES_MAX {
            text.push_str("\n[… the rest is left out: ask for less …]");
            break;
        }
        let _ = write!(text, "\n{row}");
    }
    let count = rows.rows.len();
    let noun = if count == 1 { "row" } else { "rows" };
    framed(&format!("{count} {noun} of the history"), &text)
}
