//! Punctual: cron for agents, with receipts.
//!
//! A job file says when and what. At its due time Punctual starts an isolated agent turn, owns
//! its limits, cleans up within bounds, stores what happened in `SQLite` and lets anyone query it.
//!
//! # The journey of a job
//!
//! ```text
//! jobs/daily.toml ─ job ─▶ JobSpec ─ schedule ─▶ due_at
//!    ─ plan ─▶ Decision: start, skip or missed, with its reason
//!    ─ store ─▶ slot row + run row `queued`, one transaction, unique (job, due_at, attempt)
//!    ─ executor ─▶ session, named and global lane, gate; `running` stored and acknowledged; the clock starts
//!         ─ turn ─▶ prompt → provider stream ⇄ tools → reply      (or a command, without a model;
//!                   hooks look in and step in)
//!         ─ checks ─▶ whether that is a success
//!         ─ cleanup ─▶ model stream closed, processes gone, transcript flushed, workspace gone
//!    ─ store ─▶ the work's end first, then clean-up, then the terminal state and the outbox
//!    ─ delivery ─▶ sent, later again, or given up; never changes the outcome
//!    ─ cli ─▶ the views that admins query
//! ```
//!
//! It runs one way; the only way back is an event to the [`daemon`]'s dispatcher.
//!
//! # As a library
//!
//! A program can bring providers, tools and hooks of its own ([`executor::Embedding`]) and serve
//! the jobs of a folder in-process. Limits, clean-up, receipts and views are those of `punctual
//! serve`:
//!
//! ```
//! use futures_util::{FutureExt, future::BoxFuture};
//! use punctual::provider::{Completion, EventStream, Fault, Message, Provider, Request, ToolDefinition};
//! use punctual::tools::{Arguments, Tool, ToolContext, ToolOutcome, Verdict};
//! use punctual::{daemon::Daemon, executor::Embedding, store::QueryLimits};
//!
//! struct Model;
//! impl Provider for Model {
//!     fn stream<'a>(&'a self, asked: &'a Request) -> BoxFuture<'a, Result<EventStream, Fault>> {
//!         let answer = match asked.messages.last() {
//!             Some(Message::ToolResult { content, .. }) => Completion::saying(content),
//!             _ => Completion::calling("1", "weather", Arguments::new()),
//!         };
//!         async { Ok(answer.stream()) }.boxed()
//!     }
//! }
//! struct Weather;
//! impl Tool for Weather {
//!     fn definition(&self) -> ToolDefinition {
//!         ToolDefinition::new("weather", "The weather.", serde_json::json!({ "type": "object" }))
//!     }
//!     fn call<'a>(&'a self, _: Arguments, _: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
//!         async { ToolOutcome::new(Verdict::Ok, "sunny") }.boxed()
//!     }
//! }
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     punctual::process::become_supervisor_if_asked();
//!     let folder = tempfile::tempdir()?; // yours has both files
//!     std::fs::create_dir(folder.path().join("jobs"))?;
//!     std::fs::write(folder.path().join("config.toml"), "models.providers.own.api = 'embedded'")?;
//!     let job = "schedule.every = '1s'\nagent = { model = 'own/m', prompt = 'go', tools = [] }";
//!     std::fs::write(folder.path().join("jobs/hourly.toml"), job)?;
//!     let own = Embedding::default().provider("own", Model).tool(Weather);
//!     let daemon = Daemon::in_folder(folder.path(), own).await?;
//!     let (mut history, first_end) = (daemon.store().reader()?, daemon.runs_ended(1));
//!     daemon.serve_until(first_end).await?;
//!     assert_eq!(history.query("SELECT reply FROM v1_runs", QueryLimits::default())?.rows[0][0], "sunny");
//!     Ok(())
//! }
//! ```
//!
//! Every command that a run starts (`exec`, gates, checks, commands of hooks) runs below a
//! supervisor, which is this program under another first argument: `main` calls
//! [`process::become_supervisor_if_asked`] before anything else, or the daemon is opened with
//! [`daemon::Daemon::open`] and names another binary that does
//! ([`process::SupervisorPath::at`]). A program that never starts a command needs neither. The
//! runtime has to be multi-threaded, and one process at a time holds a state folder.
//!
//! # When a job is due
//!
//! When a job is due can be asked apart from everything else:
//!
//! ```
//! use punctual::schedule::{CronExpr, Fold, Gap, Schedule, ZoneChoice, Zones};
//!
//! let berlin = Zones::open(ZoneChoice::Bundled)?.get("Europe/Berlin")?;
//! let half_past_two = CronExpr::parse("30 2 * * *")?;
//! let schedule = Schedule::cron(half_past_two, berlin, Gap::Shift, Fold::Once);
//!
//! // On that day the clocks go from 02:00 to 03:00.
//! let due = schedule.next_after("2027-03-28T00:00:00Z".parse()?).expect("it is due every day");
//! assert_eq!(due.at.to_string(), "2027-03-28T01:00:00Z");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The rooms, lowest first
//!
//! A room knows only rooms above it in this list. Where a comment names the contract, the design
//! or a section of the semantics, it means the project's specification.

#[macro_use]
mod words;

pub mod clock;

pub mod schedule;

pub mod job;

pub mod process;

pub mod provider;

pub mod net;

pub mod run;

pub mod skill;

pub mod config;

pub mod tools;

pub mod session;

pub mod plan;

pub mod hooks;

pub mod turn;

pub mod cassette;

pub mod store;

pub mod executor;

pub mod delivery;

pub mod daemon;

pub mod cli;
