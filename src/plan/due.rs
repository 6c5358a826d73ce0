//! Due instants of one job, decided.

use std::time::Duration;

use jiff::Timestamp;

use super::{Reason, SlotDecision};
use crate::job::{Catchup, Overlap};
use crate::run::Trigger;
use crate::schedule::Schedule;

/// A slot first seen later than this is a misfire (contract, `catchup`).
pub const MISFIRE_AFTER: Duration = Duration::from_secs(10);

const WINDOW_MIN: Duration = Duration::from_secs(2 * 60);
const WINDOW_MAX: Duration = Duration::from_secs(2 * 60 * 60);

/// All that a decision about a job depends on.
#[derive(Debug, Clone, Copy)]
pub struct JobView<'a> {
    /// Its schedule, with the grid of `every` fixed.
    pub schedule: &'a Schedule,
    /// What to do with misfires.
    pub catchup: Catchup,
    /// How late a misfire may start; `None` is the default rule.
    pub catchup_window: Option<Duration>,
    /// What to do when it still runs.
    pub overlap: Overlap,
    /// Whether its slots start runs.
    pub enabled: bool,
    /// Every due instant up to here has its row.
    pub decided_until: Timestamp,
    /// Its runs that are queued or running.
    pub active_runs: usize,
    /// Why instants that nobody saw in time were not seen.
    pub unseen_because: Reason,
}

/// One row to be, without the ids that only the caller can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSlot {
    /// The first (or only) instant.
    pub due_at: Timestamp,
    /// The last one.
    pub due_until: Timestamp,
    /// How many.
    pub slots: u64,
    /// What is decided.
    pub decision: SlotDecision,
    /// Why.
    pub reason: Option<Reason>,
    /// What starts the run, for [`SlotDecision::Started`].
    pub trigger: Option<Trigger>,
}

/// Everything decided about a job at one moment, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The rows.
    pub slots: Vec<PlannedSlot>,
    /// Every instant up to here is decided once the rows are stored.
    pub decided_until: Timestamp,
    /// When the job is due next.
    pub next_due: Option<Timestamp>,
}

/// Decides every due instant of `job` after `job.decided_until` and up to `now`.
pub fn decide(job: JobView<'_>, now: Timestamp) -> Plan {
    let mut slots = Vec::new();
    let in_time_from = now - MISFIRE_AFTER;
    let mut decided_until = job.decided_until;
    if let Some(newest) = job.schedule.prev_at_or_before(now).filter(|&at| at > decided_until) {
        // Instants that are late but not yet misfires are decided one by one; there are at most
        // as many of them as seconds in `MISFIRE_AFTER`.
        let fresh = in_time(job, in_time_from, now);
        let stale_until = fresh.first().map_or(newest, |&first| before(first));
        slots.extend(misfires(job, stale_until, now, &fresh));
        let mut active =
            job.active_runs + slots.iter().filter(|slot| slot.trigger.is_some()).count();
        for due_at in fresh {
            let slot = on_time(job, due_at, active);
            active += usize::from(slot.trigger.is_some());
            slots.push(slot);
        }
        decided_until = newest;
    }
    Plan {
        slots,
        decided_until,
        next_due: job.schedule.next_after(decided_until.max(now)).map(|due| due.at),
    }
}

/// How long after `due_at` a misfire may still start (contract, `catchup_window`).
pub fn catchup_window(
    schedule: &Schedule,
    configured: Option<Duration>,
    due_at: Timestamp,
) -> Duration {
    configured.unwrap_or_else(|| match schedule.next_after(due_at) {
        Some(next) => (distance(due_at, next.at) / 2).clamp(WINDOW_MIN, WINDOW_MAX),
        None => WINDOW_MAX,
    })
}

fn in_time(job: JobView<'_>, from: Timestamp, now: Timestamp) -> Vec<Timestamp> {
    let after = job.decided_until.max(before(from));
    job.schedule.upcoming(after).map(|due| due.at).take_while(|&at| at <= now).collect()
}

fn on_time(job: JobView<'_>, due_at: Timestamp, active_runs: usize) -> PlannedSlot {
    if !job.enabled {
        return single(due_at, SlotDecision::Skipped, Some(Reason::Disabled), None);
    }
    start_unless_overlapping(job, due_at, active_runs, Trigger::Schedule)
}

fn start_unless_overlapping(
    job: JobView<'_>,
    due_at: Timestamp,
    active_runs: usize,
    trigger: Trigger,
) -> PlannedSlot {
    match job.overlap {
        Overlap::AllowAll => single(due_at, SlotDecision::Started, None, Some(trigger)),
        // The other three policies are refused at load until the waiting places exist.
        Overlap::Skip | Overlap::BufferOne | Overlap::BufferAll | Overlap::CancelOther => {
            if active_runs == 0 {
                single(due_at, SlotDecision::Started, None, Some(trigger))
            } else {
                single(due_at, SlotDecision::Skipped, Some(Reason::Overlap), None)
            }
        }
    }
}

/// The instants in (`decided_until`, `up_to`], all of them misfires: the newest may be caught up,
/// unless one of the `fresh` slots, which are in time, stands for it.
fn misfires(
    job: JobView<'_>,
    up_to: Timestamp,
    now: Timestamp,
    fresh: &[Timestamp],
) -> Vec<PlannedSlot> {
    let Some(newest) = job.schedule.prev_at_or_before(up_to).filter(|&at| at > job.decided_until)
    else {
        return Vec::new();
    };
    if !job.enabled {
        return range(job, newest, SlotDecision::Skipped, Reason::Disabled);
    }
    match job.catchup {
        Catchup::None => range(job, newest, SlotDecision::Missed, job.unseen_because),
        // `all` is refused at load until its queue exists; the newest stands for the rest.
        Catchup::Latest | Catchup::All if !fresh.is_empty() => {
            range(job, newest, SlotDecision::Missed, Reason::Superseded)
        }
        Catchup::Latest | Catchup::All => {
            if job.unseen_because == Reason::Invalid {
                return range(job, newest, SlotDecision::Missed, Reason::Invalid);
            }
            let window = catchup_window(job.schedule, job.catchup_window, newest);
            if distance(newest, now) > window {
                return range(job, newest, SlotDecision::Missed, Reason::TooLate);
            }
            let mut slots = range(job, before(newest), SlotDecision::Missed, Reason::Superseded);
            slots.push(start_unless_overlapping(job, newest, job.active_runs, Trigger::Catchup));
            slots
        }
    }
}

/// One counted row for every instant in (`decided_until`, `up_to`]; none if there are none.
fn range(
    job: JobView<'_>,
    up_to: Timestamp,
    decision: SlotDecision,
    reason: Reason,
) -> Vec<PlannedSlot> {
    let first = job.schedule.next_after(job.decided_until).map(|due| due.at);
    let last = job.schedule.prev_at_or_before(up_to);
    match (first, last) {
        (Some(due_at), Some(due_until)) if due_at <= due_until => vec![PlannedSlot {
            due_at,
            due_until,
            slots: job.schedule.count_between(job.decided_until, due_until),
            decision,
            reason: Some(reason),
            trigger: None,
        }],
        _ => Vec::new(),
    }
}

fn single(
    due_at: Timestamp,
    decision: SlotDecision,
    reason: Option<Reason>,
    trigger: Option<Trigger>,
) -> PlannedSlot {
    PlannedSlot { due_at, due_until: due_at, slots: 1, decision, reason, trigger }
}

/// The last millisecond before `at`: instants are whole milliseconds everywhere.
fn before(at: Timestamp) -> Timestamp {
    at - Duration::from_millis(1)
}

fn distance(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}
