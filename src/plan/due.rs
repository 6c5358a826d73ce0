//! Due instants of one job, decided.

use std::time::Duration;

use jiff::Timestamp;

use super::{Reason, SlotDecision};
use crate::job::{Catchup, Overlap};
use crate::run::Trigger;
use crate::schedule::Schedule;

/// A slot first seen later than this is a misfire (contract, `catchup`).
pub const MISFIRE_AFTER: Duration = Duration::from_secs(10);

const WINDOW_MIN: Duration = Duration::from_mins(2);
const WINDOW_MAX: Duration = Duration::from_hours(2);

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{CronExpr, Fold, Gap, Zone};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn cron(text: &str) -> Schedule {
        Schedule::cron(CronExpr::parse(text).unwrap(), Zone::utc(), Gap::Shift, Fold::Once)
    }

    /// An enabled job with the contract's defaults, decided until 08:00.
    fn job(schedule: &Schedule) -> JobView<'_> {
        JobView {
            schedule,
            catchup: Catchup::Latest,
            catchup_window: None,
            overlap: Overlap::Skip,
            enabled: true,
            decided_until: at("2026-11-30T08:00:00Z"),
            active_runs: 0,
            unseen_because: Reason::Down,
        }
    }

    /// The rows of a plan in short: first, last, count, decision, reason or trigger.
    fn rows(plan: &Plan) -> Vec<String> {
        plan.slots
            .iter()
            .map(|slot| {
                let why = slot.reason.map(Reason::as_str).or(slot.trigger.map(Trigger::as_str));
                format!(
                    "{:.0} {:.0} ×{} {} {}",
                    slot.due_at,
                    slot.due_until,
                    slot.slots,
                    slot.decision,
                    why.unwrap_or("-")
                )
            })
            .collect()
    }

    #[test]
    fn a_slot_that_comes_in_time_starts_and_the_next_one_is_named() {
        let schedule = cron("0 * * * *");
        for now in ["2026-11-30T09:00:00Z", "2026-11-30T09:00:00.003Z", "2026-11-30T09:00:10Z"] {
            let plan = decide(job(&schedule), at(now));
            assert_eq!(
                rows(&plan),
                ["2026-11-30T09:00:00Z 2026-11-30T09:00:00Z ×1 started schedule"],
                "{now}"
            );
            assert_eq!(plan.decided_until, at("2026-11-30T09:00:00Z"));
            assert_eq!(plan.next_due, Some(at("2026-11-30T10:00:00Z")));
        }
    }

    #[test]
    fn nothing_is_decided_early_or_twice() {
        let schedule = cron("0 * * * *");
        let early = decide(job(&schedule), at("2026-11-30T08:59:59.999Z"));
        assert_eq!((rows(&early).len(), early.next_due), (0, Some(at("2026-11-30T09:00:00Z"))));
        let again = JobView { decided_until: at("2026-11-30T09:00:00Z"), ..job(&schedule) };
        assert_eq!(rows(&decide(again, at("2026-11-30T09:00:00.500Z"))), Vec::<String>::new());
        // The clock was set back: what is decided stays decided.
        let back = decide(again, at("2026-11-30T08:30:00Z"));
        assert_eq!((rows(&back).len(), back.decided_until), (0, at("2026-11-30T09:00:00Z")));
        assert_eq!(back.next_due, Some(at("2026-11-30T10:00:00Z")));
    }

    #[test]
    fn a_job_that_still_runs_is_skipped_or_joined() {
        let schedule = cron("0 * * * *");
        let busy = JobView { active_runs: 1, ..job(&schedule) };
        let now = at("2026-11-30T09:00:00Z");
        assert_eq!(
            rows(&decide(busy, now)),
            ["2026-11-30T09:00:00Z 2026-11-30T09:00:00Z ×1 skipped overlap"]
        );
        let joined = JobView { overlap: Overlap::AllowAll, ..busy };
        assert_eq!(
            rows(&decide(joined, now)),
            ["2026-11-30T09:00:00Z 2026-11-30T09:00:00Z ×1 started schedule"]
        );
    }

    #[test]
    fn a_loop_that_is_seconds_late_decides_each_slot_by_itself() {
        let schedule = cron("* * * * * *");
        let late = JobView { decided_until: at("2026-11-30T08:59:57Z"), ..job(&schedule) };
        assert_eq!(
            rows(&decide(late, at("2026-11-30T09:00:00.200Z"))),
            [
                "2026-11-30T08:59:58Z 2026-11-30T08:59:58Z ×1 started schedule",
                "2026-11-30T08:59:59Z 2026-11-30T08:59:59Z ×1 skipped overlap",
                "2026-11-30T09:00:00Z 2026-11-30T09:00:00Z ×1 skipped overlap",
            ]
        );
    }

    #[test]
    fn the_newest_misfire_is_caught_up_and_stands_for_the_rest() {
        let schedule = cron("*/5 * * * *");
        assert_eq!(
            rows(&decide(job(&schedule), at("2026-11-30T14:01:00Z"))),
            [
                "2026-11-30T08:05:00Z 2026-11-30T13:55:00Z ×71 missed superseded",
                "2026-11-30T14:00:00Z 2026-11-30T14:00:00Z ×1 started catchup",
            ]
        );
        // One that is in time stands for all of them.
        assert_eq!(
            rows(&decide(job(&schedule), at("2026-11-30T14:00:05Z"))),
            [
                "2026-11-30T08:05:00Z 2026-11-30T13:55:00Z ×71 missed superseded",
                "2026-11-30T14:00:00Z 2026-11-30T14:00:00Z ×1 started schedule",
            ]
        );
    }

    #[test]
    fn a_misfire_beyond_its_window_is_missed_with_the_reason() {
        let schedule = cron("0 11 * * *");
        let window = Some(Duration::from_mins(30));
        let job = JobView { catchup_window: window, ..job(&schedule) };
        let decided = |now: &str| rows(&decide(job, at(now)));
        let missed = ["2026-11-30T11:00:00Z 2026-11-30T11:00:00Z ×1 missed too_late"];
        assert_eq!(
            decided("2026-11-30T11:29:59Z"),
            ["2026-11-30T11:00:00Z 2026-11-30T11:00:00Z ×1 started catchup"]
        );
        assert_eq!(decided("2026-11-30T11:30:01Z"), missed);
        assert_eq!(decided("2026-11-30T22:10:00Z"), missed);
    }

    #[test]
    fn without_catch_up_what_was_not_seen_is_one_counted_range() {
        let schedule = cron("* * * * *");
        let job = JobView { catchup: Catchup::None, ..job(&schedule) };
        assert_eq!(
            rows(&decide(job, at("2026-11-30T08:10:30Z"))),
            ["2026-11-30T08:01:00Z 2026-11-30T08:10:00Z ×10 missed down"]
        );
        assert_eq!(
            rows(&decide(job, at("2026-11-30T08:10:00Z"))),
            [
                "2026-11-30T08:01:00Z 2026-11-30T08:09:00Z ×9 missed down",
                "2026-11-30T08:10:00Z 2026-11-30T08:10:00Z ×1 started schedule",
            ]
        );
    }

    #[test]
    fn a_disabled_or_formerly_invalid_job_has_rows_too() {
        let schedule = cron("*/30 * * * *");
        let disabled = JobView { enabled: false, ..job(&schedule) };
        assert_eq!(
            rows(&decide(disabled, at("2026-11-30T09:30:00Z"))),
            [
                "2026-11-30T08:30:00Z 2026-11-30T09:00:00Z ×2 skipped disabled",
                "2026-11-30T09:30:00Z 2026-11-30T09:30:00Z ×1 skipped disabled",
            ]
        );
        let mended = JobView { unseen_because: Reason::Invalid, ..job(&schedule) };
        assert_eq!(
            rows(&decide(mended, at("2026-11-30T09:01:00Z"))),
            ["2026-11-30T08:30:00Z 2026-11-30T09:00:00Z ×2 missed invalid"]
        );
    }

    #[test]
    fn a_one_shot_is_due_once_and_caught_up_within_two_hours() {
        let schedule = Schedule::at(at("2026-11-30T09:00:00Z"));
        let plan = decide(job(&schedule), at("2026-11-30T10:30:00Z"));
        assert_eq!(rows(&plan), ["2026-11-30T09:00:00Z 2026-11-30T09:00:00Z ×1 started catchup"]);
        assert_eq!(plan.next_due, None);
        assert_eq!(
            rows(&decide(job(&schedule), at("2026-11-30T11:00:01Z"))),
            ["2026-11-30T09:00:00Z 2026-11-30T09:00:00Z ×1 missed too_late"]
        );
    }

    #[test]
    fn the_window_is_half_the_period_within_bounds() {
        let window = |text: &str| catchup_window(&cron(text), None, at("2026-11-30T09:00:00Z"));
        assert_eq!(window("* * * * *"), Duration::from_mins(2));
        assert_eq!(window("*/30 * * * *"), Duration::from_mins(15));
        assert_eq!(window("0 9 * * *"), Duration::from_hours(2));
        let own = Duration::from_secs(7);
        assert_eq!(catchup_window(&cron("* * * * *"), Some(own), at("2026-11-30T09:00:00Z")), own);
    }

    /// The second promise, for any moments at which somebody looks: every due instant lies in
    /// exactly one row.
    #[test]
    fn no_instant_is_lost_or_decided_twice_however_the_looks_fall() {
        let schedule = cron("*/7 * * * * *");
        let looks = [1, 2, 9, 10, 11, 30, 31, 95, 400, 401, 3600, 3605, 9000];
        let start = at("2026-11-30T08:00:00Z");
        let mut decided_until = start;
        let (mut covered, mut last_end) = (0, start);
        for look in looks {
            let now = start + Duration::from_secs(look) + Duration::from_millis(look * 37 % 1000);
            let plan = decide(JobView { decided_until, ..job(&schedule) }, now);
            for slot in &plan.slots {
                assert!(
                    slot.due_at > last_end
                        && slot.due_until >= slot.due_at
                        && slot.due_until <= now
                );
                assert_eq!(slot.slots, schedule.count_between(before(slot.due_at), slot.due_until));
                covered += slot.slots;
                last_end = slot.due_until;
            }
            decided_until = plan.decided_until;
            assert_eq!(covered, schedule.count_between(start, now), "after {look} s");
        }
    }
}
