//! Drives one run to its outcome and its clean-up outcome.
//!
//! ```text
//! lanes ─▶ gate ─▶ `running` stored ─▶ workspace, prompt, model ─▶ turn ─▶ the work's end stored
//!                                                    ▲                │   └─▶ clean-up, checks in the
//!                                                    └─ next attempt ─┘       midst ─▶ terminal state stored
//! ```
//!
//! There is one waiting place: [`Watchdog::guard`], where a stage's own work waits against all the
//! limits of the run at once. Clean-up has a budget of its own that no deadline takes away.

mod artifacts;
mod attempt;
mod beyond;
mod checks;
mod cleanup;
mod command;
mod commanded;
mod conversation;
mod converse;
mod course;
mod embedding;
mod escalate;
mod events;
mod fence;
mod gate;
mod holdings;
mod hooked;
mod idle_window;
mod known;
mod lanes;
mod mcp;
mod milestone;
mod models;
mod next_attempt;
mod part;
mod prepare;
mod probe;
mod progress;
mod purse;
mod rescue;
mod run;
mod session_lock;
mod site;
mod stop;
mod taken_checks;
mod told;
mod watchdog;
mod windows;

pub use commanded::Commanded;
pub use conversation::RUN_BEGINS;
pub use embedding::Embedding;
pub use events::{Bus, Follower, Heard, RunEvents};
pub(crate) use fence::TEMPORARY_SUFFIX;
pub use idle_window::{IdleInput, IdleRule, IdleWindow, idle_window};
pub use lanes::{LaneView, Lanes, Permits, Rank};
pub use milestone::{Ended, Failing, Milestone, Watched};
pub use models::Models;
pub use probe::probed_servers;
pub use purse::{Purse, caps_of, costs_nothing};
pub use run::{Executor, Ticket};
pub use told::{Preview, preview};
pub use watchdog::{Activity, Asked, RunLimits, Stage, Tripped, Watchdog};
