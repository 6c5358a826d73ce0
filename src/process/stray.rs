//! What to do when a command killed its own supervisor, or when the daemon died: find the processes
//! of a run by other marks.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::time::sleep;

use super::adopted;
use super::environment::RUN_MARKER;
use super::identity::ProcessId;
use super::supervisor;
use super::table::{self, Row, Signalled};
use super::tree::{Leftover, TreeEnd};
use super::watch::ORPHANS_GRACE;

/// How often to look again.
const ROUND: Duration = Duration::from_millis(20);

/// How often to kill again.
const KILL_ROUNDS: u32 = 100;

/// By what to know the processes that are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nothing ran.
    Nothing,
    /// This one and all below it.
    Below(ProcessId),
    /// All that carry the run's marker variable, what was orphaned by killed supervisors, and all
    /// below them.
    Run(String),
}

/// Ends everything that bears `mark`: asks, waits `grace`, kills.
pub(super) async fn end(mark: &Mark, grace: Duration) -> TreeEnd {
    let mut signalled = HashSet::new();
    let grace_rounds = grace.as_millis() / ROUND.as_millis();
    for round in 0..=grace_rounds.saturating_add(u128::from(KILL_ROUNDS)) {
        let found = find(mark);
        if found.is_empty() {
            break;
        }
        for row in &found {
            let is_new = !signalled.contains(&row.id);
            let sent = if round >= grace_rounds {
                table::send(row.id, Signal::SIGKILL)
            } else if is_new {
                table::send(row.id, Signal::SIGCONT);
                table::send(row.id, Signal::SIGTERM)
            } else {
                continue;
            };
            if sent == Signalled::Sent {
                signalled.insert(row.id);
            }
        }
        sleep(ROUND).await;
        reap(&found);
    }
    if matches!(mark, Mark::Run(_)) {
        reap(&adopted::orphans(&table::all()));
    }
    let left = find(mark).into_iter().map(|row| Leftover { id: row.id, name: row.name }).collect();
    TreeEnd { killed: u32::try_from(signalled.len()).unwrap_or(u32::MAX), left }
}

/// We inherit orphans, and nobody else would reap them.
fn reap(rows: &[Row]) {
    let own = Pid::this().as_raw();
    for row in rows {
        if Row::of(row.id.pid).is_some_and(|now| now.id == row.id && now.parent == own) {
            // Not dead yet, or not ours: another round will tell.
            let _ = waitpid(Pid::from_raw(row.id.pid), Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// The runs of which processes live, whoever started them.
pub fn living_runs() -> BTreeSet<String> {
    table::all().iter().filter_map(|row| run_of(row.id.pid)).collect()
}

/// Ends what lives of a run whose own daemon is dead. Its supervisors are at it already, with the
/// grace of orphans; this waits for them and kills what is left.
pub async fn end_orphans(run_id: &str) -> TreeEnd {
    let mark = Mark::Run(run_id.to_owned());
    wake_supervisors_of(&find(&mark));
    end(&mark, ORPHANS_GRACE).await
}

/// A command may have stopped its supervisor, which then does not see that its daemon is gone.
fn wake_supervisors_of(rows: &[Row]) {
    for parent in rows.iter().filter_map(|row| Row::of(row.parent)) {
        if parent.name.as_bytes() == supervisor::NAME.to_bytes() {
            table::send(parent.id, Signal::SIGCONT);
        }
    }
}

fn find(mark: &Mark) -> Vec<Row> {
    let table = table::all();
    let own = Pid::this().as_raw();
    let is_marked = |row: &&Row| match mark {
        Mark::Nothing => false,
        Mark::Below(id) => row.id == *id,
        Mark::Run(id) => row.id.pid != own && carries(row.id.pid, id),
    };
    let mut found: Vec<Row> = table.iter().filter(is_marked).cloned().collect();
    if matches!(mark, Mark::Run(_)) {
        // Whatever has lost its mark: nobody else would end it.
        found.extend(adopted::orphans(&table));
    }
    let roots: Vec<i32> = found.iter().map(|row| row.id.pid).collect();
    found.retain(|row| !row.has_ended());
    found.extend(table::descendants(&table, &roots));
    // A command may have started this very process.
    found.retain(|row| row.id.pid != own);
    found
}

fn carries(pid: i32, run_id: &str) -> bool {
    run_of(pid).is_some_and(|it| it == run_id)
}

/// The run whose marker a process carries. One of another user does not show it.
fn run_of(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environment.split(|&byte| byte == 0);
    let value =
        entries.find_map(|entry| entry.strip_prefix(RUN_MARKER.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}
