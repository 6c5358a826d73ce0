//! Which process is meant: a pid alone may be somebody else's by now.

use std::fs;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::table::Row;

/// A process, told apart from later ones that got the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since the machine did.
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has `pid` now; `None` if there is none.
    pub fn of(pid: i32) -> Option<Self> {
        Row::of(pid).map(|row| row.id)
    }

    /// A child of this process, which has not been reaped: its row is there even if it has ended.
    pub(super) fn of_child(pid: u32) -> Self {
        let pid = i32::try_from(pid).expect("a pid fits its own type");
        Self::of(pid).unwrap_or(Self { pid, start_time: 0 })
    }

    /// This process.
    pub fn own() -> Option<Self> {
        static OWN: OnceLock<Option<ProcessId>> = OnceLock::new();
        *OWN.get_or_init(|| i32::try_from(std::process::id()).ok().and_then(Self::of))
    }

    /// Whether it still runs. One that has ended but was not waited for does not.
    pub fn is_alive(self) -> bool {
        Row::of(self.pid).is_some_and(|row| row.id == self && !row.has_ended())
    }
}

/// The kernel's name for this boot of the machine; empty where it gives none. Together with a
/// [`ProcessId`] it names an owner for good.
pub fn boot_id() -> String {
    static BOOT: OnceLock<String> = OnceLock::new();
    let read = || fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    BOOT.get_or_init(|| read().trim().to_owned()).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_with_another_start_time_is_another_process() {
        let own = ProcessId::own().unwrap();
        assert!(own.is_alive());
        assert!(!ProcessId { start_time: own.start_time + 1, ..own }.is_alive());
        assert_eq!(ProcessId::of(i32::MAX), None);
    }

    #[test]
    fn the_boot_has_a_name() {
        assert_eq!(boot_id().len(), 36);
        assert_eq!(boot_id(), boot_id());
    }
}
