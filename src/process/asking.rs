//! Whether a process belongs to what a run's tools started: such a one cannot ask the scheduler for
//! anything, while a command of the operator's own may.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard};

use nix::unistd::Pid;

use super::adopted;
use super::identity::ProcessId;
use super::table::{self, Row};

/// Supervisors of confined commands.
static CONFINED: LazyLock<Mutex<HashSet<ProcessId>>> = LazyLock::new(Mutex::default);

/// More generations than this nobody has.
const GENERATIONS_MAX: usize = 4_096;

/// From now on, what is below this supervisor belongs to a run's tools.
pub(super) fn confined(supervisor: ProcessId) {
    lock().insert(supervisor);
}

/// It has been reaped.
pub(super) fn forget(supervisor: ProcessId) {
    lock().remove(&supervisor);
}

fn lock() -> MutexGuard<'static, HashSet<ProcessId>> {
    CONFINED.lock().expect("no holder of this lock can panic")
}

/// Whether the process `pid` was started by a run's tools of this process, or has ended before
/// anybody could see whose it was.
pub fn belongs_to_a_run(pid: i32) -> bool {
    let own = Pid::this().as_raw();
    // Outside of our own world of processes: none of those that we started is.
    if pid <= 0 || pid == own {
        return false;
    }
    let mut at = pid;
    for _ in 0..GENERATIONS_MAX {
        let Some(row) = Row::of(at) else {
            if at == pid {
                return true;
            }
            // Its parent went away meanwhile, and it has another one.
            at = pid;
            continue;
        };
        if row.parent == own {
            let is_orphan = adopted::orphans(&table::all()).iter().any(|it| it.id == row.id);
            return is_orphan || lock().contains(&row.id);
        }
        if row.parent <= 1 {
            return false;
        }
        at = row.parent;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_gone_is_not_trusted_and_whoever_is_elsewhere_is() {
        assert!(belongs_to_a_run(i32::MAX));
        assert!(!belongs_to_a_run(0));
        assert!(!belongs_to_a_run(1));
        assert!(!belongs_to_a_run(Pid::this().as_raw()));
    }
}
