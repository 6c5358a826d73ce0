//! Everything put together: events in, commands out.
//!
//! [`Dispatcher::step`] is synchronous and decides; [`Daemon::serve`] waits, feeds it one event at
//! a time and carries out what it says. `punctual run` without a running `serve` is the same
//! daemon with its schedule switched off.

mod alerts;
mod boundary;
mod client;
mod desk;
mod dispatcher;
mod embedded;
mod event;
mod hands;
mod housekeeping;
mod lock;
mod open;
mod protocol;
mod rehearse;
mod retention;
mod serve;
mod signals;
mod socket;
mod ticker;
mod watch;

pub use client::{Client, ControlError};
pub use dispatcher::{Dispatcher, Scheduling};
pub use embedded::EmbedError;
pub use event::{Command, Drain, Event, Files, Launch, RecoveryEnd, Rescue};
pub use lock::{Holder, Kind, LockError, StateLock};
pub use open::{Daemon, OpenError};
pub(crate) use protocol::is_terminal;
pub use protocol::{
    Attention, Heard, Obeyed, PausedJob, RecoveryAct, RecoveryResult, Reloaded, Reply, Request,
    RetryingJob, Status, StatusNext, StatusRecovery, StatusRun, Target,
};
pub use rehearse::{Rehearsal, RehearsalError, Rehearsed, variables_again, variables_of};
pub use retention::{Pruned, prune};
pub use serve::{Listening, Stopped};
