//! The kernel's process table as `/proc` shows it, and the one place that sends signals.

use std::collections::{HashMap, HashSet};
use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::identity::ProcessId;

/// One process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub id: ProcessId,
    pub parent: i32,
    pub group: i32,
    pub name: String,
    state: char,
}

impl Row {
    /// The process that has `pid` now.
    pub fn of(pid: i32) -> Option<Self> {
        parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// Whether it is only waiting to be reaped.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// A line of `/proc/<pid>/stat`. The name may hold spaces, brackets and line ends, so the fields
/// after it are found from the last bracket.
fn parse(stat: &str) -> Option<Row> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let start_time = fields.get(19)?.parse().ok()?;
    Some(Row {
        id: ProcessId { pid: pid.parse().ok()?, start_time },
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        name: name.to_owned(),
    })
}

/// Every process of the machine.
pub(super) fn all() -> Vec<Row> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Row::of).collect()
}

/// The rows of `table` below the `roots`, without the roots themselves and without the dead.
pub(super) fn descendants(table: &[Row], roots: &[i32]) -> Vec<Row> {
    let mut children: HashMap<i32, Vec<&Row>> = HashMap::new();
    for row in table {
        children.entry(row.parent).or_default().push(row);
    }
    let mut seen: HashSet<i32> = roots.iter().copied().collect();
    let mut open: Vec<i32> = roots.to_vec();
    let mut found = Vec::new();
    while let Some(parent) = open.pop() {
        for row in children.get(&parent).into_iter().flatten() {
            if seen.insert(row.id.pid) {
                open.push(row.id.pid);
                found.push((*row).clone());
            }
        }
    }
    found.retain(|row| !row.has_ended());
    found
}

/// What a signal met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signalled {
    /// It was sent.
    Sent,
    /// The process was gone already, or its pid belongs to another one now.
    Gone,
    /// The kernel refused: the process changed its owner.
    Refused,
}

/// Sends `signal` to `id`, unless its pid has gone to another process.
#[expect(clippy::disallowed_methods, reason = "the one place, and it compares start times")]
pub(super) fn send(id: ProcessId, signal: Signal) -> Signalled {
    if !id.is_alive() {
        return Signalled::Gone;
    }
    match nix::sys::signal::kill(Pid::from_raw(id.pid), signal) {
        Ok(()) => Signalled::Sent,
        Err(Errno::ESRCH) => Signalled::Gone,
        Err(_) => Signalled::Refused,
    }
}

/// Kills the whole group of `row`, at once: what a member forks meanwhile is in it too.
pub(super) fn kill_group_of(row: &Row) {
    if row.group > 1 && row.id.is_alive() {
        // A group without members is what was wanted.
        let _ = killpg(Pid::from_raw(row.group), Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: i32, parent: i32, state: char) -> Row {
        let id = ProcessId { pid, start_time: 7 };
        Row { id, parent, group: pid, name: "x".into(), state }
    }

    #[test]
    fn a_name_may_look_like_the_fields_behind_it() {
        let stat = "42 (a) R 1 (b)\n) S 7 42 9 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 9876 100 200 0";
        let id = ProcessId { pid: 42, start_time: 9876 };
        let want = Row { id, parent: 7, group: 42, name: "a) R 1 (b)\n".into(), state: 'S' };
        assert_eq!(parse(stat), Some(want));
        assert_eq!(parse("42 (cut"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn descendants_are_found_through_the_dead_but_the_dead_are_not_listed() {
        let table =
            [row(1, 0, 'S'), row(2, 1, 'S'), row(3, 2, 'Z'), row(4, 3, 'R'), row(5, 1, 'S')];
        let mut pids: Vec<_> = descendants(&table, &[2]).iter().map(|row| row.id.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [4]);
    }

    #[test]
    fn a_loop_in_the_table_ends() {
        let table = [row(2, 3, 'S'), row(3, 2, 'S')];
        assert_eq!(descendants(&table, &[2]).len(), 1);
    }

    #[test]
    fn a_pid_that_was_used_again_is_not_signalled() {
        let own = ProcessId::own().unwrap();
        let before = ProcessId { start_time: own.start_time - 1, ..own };
        assert_eq!(send(before, Signal::SIGKILL), Signalled::Gone);
    }
}
