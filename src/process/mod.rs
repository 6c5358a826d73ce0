//! Start a command, confine it, end its *whole* tree, and account for what was left.
//!
//! Ending a process group is not enough: a child that calls `setsid` or forks twice leaves it. So
//! each command runs below a tiny supervisor, which is this same binary under another first
//! argument. The supervisor is a child subreaper: the kernel hands it every orphan below it, so
//! that its descendants are exactly what the command left behind, whatever they did to hide. It is
//! tied to us by a socket: when the socket closes, even because we were killed, it ends its tree.
//!
//! ```text
//! punctual ── socket ──▶ supervisor (subreaper, own session, empty environment)
//!     ▲                      └─ sh -c … (own group, stdin empty, nothing open above 2)
//!     └──── one pipe ◀───────────┴─ children, daemons: adopted when their parent dies
//! ```
//!
//! Where a command kills its own supervisor, [`Household::end_all`] looks for the run's marker
//! variable in `/proc` instead. Only this room starts processes and sends signals; it compares
//! process start times first, because process ids are used again.

mod adopted;
mod asking;
mod become_command;
mod confine;
mod ends;
mod environment;
mod household;
mod identity;
mod lines;
mod output;
mod protocol;
mod stray;
mod supervisor;
mod table;
mod tree;
mod watch;

pub use adopted::adopt_orphans;
pub use asking::belongs_to_a_run;
pub use confine::{Confinement, Demand, Fence, Filters, Network, Offer, View, offered};
pub use environment::{RUN_MARKER, base_environment};
pub use household::{Errors, Household, Spec, StartError, SupervisorPath};
pub use identity::{ProcessId, boot_id};
pub use output::Output;
pub use stray::{end_orphans, living_runs};
pub use supervisor::become_supervisor_if_asked;
pub use tree::{Child, Ended, Exit, Leftover, Talk, TreeEnd};
