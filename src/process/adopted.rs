//! Orphans of killed supervisors.
//!
//! A supervisor adopts whatever its command leaves behind. If the command kills it, whatever lives
//! becomes a child of the daemon, if that has asked for it: also what has no mark of its run any
//! more and hides from everybody else.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock};

use nix::sys::prctl;
use nix::unistd::Pid;

use super::identity::ProcessId;
use super::table::{self, Row};

static KNOWN: OnceLock<Mutex<HashSet<ProcessId>>> = OnceLock::new();

/// From now on this process adopts what supervisors leave when they are killed. The children that
/// it has already are left alone for ever.
pub fn adopt_orphans() -> io::Result<()> {
    let own = Pid::this().as_raw();
    let before = table::all().into_iter().filter(|row| row.parent == own).map(|row| row.id);
    if KNOWN.set(Mutex::new(before.collect())).is_ok() {
        prctl::set_child_subreaper(true)?;
    }
    Ok(())
}

/// Starts a supervisor, which is never taken for an orphan.
pub(super) fn start<T>(
    spawn: impl FnOnce() -> io::Result<(T, ProcessId)>,
) -> io::Result<(T, ProcessId)> {
    // Nobody looks between the start and the entry.
    let mut known = known();
    let (child, id) = spawn()?;
    if let Some(known) = &mut known {
        known.insert(id);
    }
    Ok((child, id))
}

/// It has been reaped.
pub(super) fn forget(id: ProcessId) {
    if let Some(known) = &mut known() {
        known.remove(&id);
    }
}

/// The children of this process that nobody here has started.
pub(super) fn orphans(table: &[Row]) -> Vec<Row> {
    let own = Pid::this().as_raw();
    let Some(known) = known() else { return Vec::new() };
    let is_orphan = |row: &&Row| row.parent == own && !known.contains(&row.id);
    table.iter().filter(is_orphan).cloned().collect()
}

fn known() -> Option<MutexGuard<'static, HashSet<ProcessId>>> {
    KNOWN.get().map(|known| known.lock().expect("no holder of this lock can panic"))
}
