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
//!    ─ executor ─▶ named lane, global lane, gate; `running` stored and acknowledged; the clock starts
//!         ─ turn ─▶ prompt → provider stream ⇄ tools → reply      (or a command, without a model)
//!         ─ checks ─▶ whether that is a success
//!         ─ cleanup ─▶ model stream closed, processes gone, transcript flushed, workspace gone
//!    ─ store ─▶ the work's end first, then clean-up, then the terminal state and the outbox
//!    ─ delivery ─▶ sent, later again, or given up; never changes the outcome
//!    ─ cli ─▶ the views that admins query
//! ```
//!
//! It runs one way; the only way back is an event to the [`daemon`]'s dispatcher.
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
