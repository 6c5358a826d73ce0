//! Sends what the outbox holds and records how that went.
//!
//! ```text
//! outbox row `queued` ─ claim: marked on the disk ─▶ sent once ─▶ `sent`
//!        ▲                                             ├──────────▶ `failed`: it said no, for good
//!        └── not arrived, later again ◀────────────────┤
//!                                                      └──────────▶ `unknown`: it may have arrived
//! ```
//!
//! A try is repeated only when nothing of it can have arrived: nobody listened, or the answer was a
//! refusal. An answer that got lost leaves the delivery `unknown` for a person to look at. What a
//! dead process was sending is sent once more where the receiver can tell a repetition, by the
//! delivery's id, and is `unknown` elsewhere ([`AfterCrash`]). Nothing here changes a run, or holds
//! one up.

mod command;
mod email;
mod file;
mod hooked;
mod http;
mod letter;
mod markdown;
mod pings;
mod ring;
mod sender;
mod sent;
mod slack;
mod webhook;

pub use pings::Pings;
pub use sender::{Outlet, Sender};
pub use sent::{AfterCrash, Sent};
