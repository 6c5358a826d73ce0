//! Everything put together: events in, commands out.
//!
//! [`Dispatcher::step`] is synchronous and decides; [`Daemon::serve`] waits, feeds it one event at
//! a time and carries out what it says. `punctual run` without a running `serve` is the same
//! daemon with its schedule switched off.

mod control;
mod dispatcher;
mod housekeeping;
mod lock;
mod open;
mod serve;
mod socket;

pub(crate) use control::is_terminal;
pub use control::{Client, ControlError, Reply, Request, Status, StatusNext, StatusRun, Target};
pub use dispatcher::{Command, Dispatcher, Event, JobEntry, Launch, Scheduling};
pub use lock::{Holder, Kind, LockError, StateLock};
pub use open::{Daemon, OpenError};
pub use serve::{Listening, Stopped};
