//! One job, one look: what is decided about each moment.

use super::*;
use crate::job::{Catchup, Overlap, RetrySpec};
use crate::plan::{Account, Pause, PauseCause};
use crate::schedule::{CronExpr, Fold, Gap, Zone};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(text: &str) -> Schedule {
    Schedule::cron(CronExpr::parse(text).unwrap(), Zone::utc(), Gap::Shift, Fold::Once)
}

/// A job with the contract's defaults, decided until 08:00, of which nothing lives.
#[derive(Clone)]
struct Job {
    schedule: Schedule,
    rules: Rules,
    memory: Memory,
    living: Living,
}

fn job(schedule: &Schedule) -> Job {
    let rules = Rules {
        after: None,
        schedule: None,
        catchup: Catchup::Latest,
        catchup_window: None,
        overlap: Overlap::Skip,
        retry: RetrySpec::default(),
        availability: Availability::Ready,
    };
    let memory = Memory::since(at("2026-11-30T08:00:00Z"));
    Job { schedule: schedule.clone(), rules, memory, living: Living::default() }
}

impl Job {
    fn rules(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.rules);
        self
    }

    fn memory(mut self, change: impl FnOnce(&mut Memory)) -> Self {
        change(&mut self.memory);
        self
    }

    fn living(mut self, running: usize, retrying: usize, waiting: usize) -> Self {
        self.living = Living { running, retrying, waiting, backfilling: 0 };
        self
    }

    fn decide(&self, now: &str) -> Plan {
        self.decide_at(at(now))
    }

    fn decide_at(&self, now: Timestamp) -> Plan {
        let view = JobView {
            schedule: &self.schedule,
            rules: &self.rules,
            memory: &self.memory,
            living: self.living,
            unseen_because: Reason::Down,
            obstacle: None,
        };
        decide(view, now)
    }

    fn rows(&self, now: &str) -> Vec<String> {
        rows(&self.decide(now))
    }
}

/// The rows of a plan in short: first, last, count, decision, reason or trigger.
fn rows(plan: &Plan) -> Vec<String> {
    let time = |at: Timestamp| {
        let text = format!("{at:.0}");
        text.trim_start_matches("2026-11-30T").trim_end_matches('Z').to_owned()
    };
    plan.slots
        .iter()
        .map(|slot| {
            let trigger = slot.start.map(|start| match start.stands_for {
                1 => start.trigger.to_string(),
                more => format!("{} for {more}", start.trigger),
            });
            let why = slot.reason.map(|reason| reason.to_string()).or(trigger);
            let why = why.unwrap_or_default();
            let decision = slot.decision;
            if slot.due_at == slot.due_until {
                return format!("{} {decision} {why}", time(slot.due_at));
            }
            let (from, to) = (time(slot.due_at), time(slot.due_until));
            format!("{from}..{to} ×{} {decision} {why}", slot.slots)
        })
        .collect()
}

#[test]
fn a_slot_that_comes_in_time_starts() {
    let job = job(&cron("0 * * * *"));
    for now in ["2026-11-30T09:00:00Z", "2026-11-30T09:00:00.003Z", "2026-11-30T09:00:10Z"] {
        let plan = job.decide(now);
        assert_eq!(rows(&plan), ["09:00:00 started schedule"], "{now}");
        assert_eq!(plan.decided_until, at("2026-11-30T09:00:00Z"));
    }
}

#[test]
fn nothing_is_decided_early_or_twice() {
    let job = job(&cron("0 * * * *"));
    assert_eq!(job.rows("2026-11-30T08:59:59.999Z").len(), 0);
    let again = job.memory(|it| it.decided_until = at("2026-11-30T09:00:00Z"));
    assert_eq!(again.rows("2026-11-30T09:00:00.500Z").len(), 0);
    // The clock was set back: what is decided stays decided.
    let back = again.decide("2026-11-30T08:30:00Z");
    assert_eq!((back.slots.len(), back.decided_until), (0, at("2026-11-30T09:00:00Z")));
}

#[test]
fn five_policies_for_a_slot_that_is_due_while_the_job_lives() {
    use Overlap::{AllowAll, BufferAll, BufferOne, CancelOther, Skip};
    let job = job(&cron("0 * * * *"));
    // What lives: running, between two attempts, waiting.
    for (living, expected) in [
        ((0, 0, 0), ["started"; 5]),
        ((1, 0, 0), ["skipped", "buffered", "buffered", "buffered", "started"]),
        ((0, 1, 0), ["skipped", "buffered", "buffered", "buffered", "started"]),
        ((1, 0, 1), ["skipped", "skipped", "buffered", "buffered", "started"]),
        ((1, 0, BUFFERED_MAX), ["skipped", "skipped", "skipped", "buffered", "started"]),
    ] {
        for (policy, expected) in
            [Skip, BufferOne, BufferAll, CancelOther, AllowAll].into_iter().zip(expected)
        {
            let job = job.clone().rules(|it| it.overlap = policy);
            let job = job.living(living.0, living.1, living.2);
            let reason = if expected == "started" { "schedule" } else { "overlap" };
            assert_eq!(
                job.rows("2026-11-30T09:00:00Z"),
                [format!("09:00:00 {expected} {reason}")],
                "{policy} {living:?}"
            );
        }
    }
}

#[test]
fn a_slot_waits_for_a_backfill_whatever_the_policy() {
    let mut job = job(&cron("0 * * * *"));
    job.living.backfilling = 1;
    assert_eq!(job.rows("2026-11-30T09:00:00Z"), ["09:00:00 buffered overlap"]);
    job.living.running = 1;
    assert_eq!(job.rows("2026-11-30T09:00:00Z"), ["09:00:00 skipped overlap"]);
}

#[test]
fn a_loop_that_is_seconds_late_decides_each_slot_by_itself() {
    let late = job(&cron("* * * * * *")).memory(|it| it.decided_until = at("2026-11-30T08:59:57Z"));
    assert_eq!(
        late.rows("2026-11-30T09:00:00.200Z"),
        ["08:59:58 started schedule", "08:59:59 skipped overlap", "09:00:00 skipped overlap"]
    );
}

#[test]
fn the_newest_misfire_is_caught_up_and_stands_for_the_rest() {
    let job = job(&cron("*/5 * * * *"));
    assert_eq!(
        job.rows("2026-11-30T14:01:00Z"),
        ["08:05:00..13:55:00 ×71 missed superseded", "14:00:00 started catchup for 72"]
    );
    // One that is in time stands for all of them.
    assert_eq!(
        job.rows("2026-11-30T14:00:05Z"),
        ["08:05:00..13:55:00 ×71 missed superseded", "14:00:00 started schedule for 72"]
    );
}

#[test]
fn what_keeps_the_newest_misfire_from_starting_is_the_reason_of_those_before_it() {
    let job = job(&cron("*/5 * * * *"));
    assert_eq!(
        job.clone().living(1, 0, 0).rows("2026-11-30T08:16:00Z"),
        ["08:05:00..08:10:00 ×2 missed overlap", "08:15:00 skipped overlap"]
    );
    assert_eq!(
        job.clone().living(1, 0, 0).rows("2026-11-30T08:15:02Z"),
        ["08:05:00..08:10:00 ×2 missed overlap", "08:15:00 skipped overlap"]
    );
    let waits = job.living(1, 0, 0).rules(|it| it.overlap = Overlap::BufferOne);
    let plan = waits.decide("2026-11-30T08:16:00Z");
    assert_eq!(
        rows(&plan),
        ["08:05:00..08:10:00 ×2 missed superseded", "08:15:00 buffered overlap"]
    );
    let start = plan.slots[1].start.unwrap();
    assert_eq!((start.stands_for, start.first_due), (3, at("2026-11-30T08:05:00Z")));
}

#[test]
fn a_misfire_beyond_its_window_is_missed_with_the_reason() {
    let window = Some(Duration::from_mins(30));
    let job = job(&cron("0 11 * * *")).rules(|it| it.catchup_window = window);
    assert_eq!(job.rows("2026-11-30T11:29:59Z"), ["11:00:00 started catchup"]);
    assert_eq!(job.rows("2026-11-30T11:30:01Z"), ["11:00:00 missed too_late"]);
    assert_eq!(job.rows("2026-11-30T22:10:00Z"), ["11:00:00 missed too_late"]);
}

#[test]
fn without_catch_up_what_was_not_seen_is_one_counted_range() {
    let job = job(&cron("* * * * *")).rules(|it| it.catchup = Catchup::None);
    assert_eq!(job.rows("2026-11-30T08:10:30Z"), ["08:01:00..08:10:00 ×10 missed down"]);
    assert_eq!(
        job.rows("2026-11-30T08:10:00Z"),
        ["08:01:00..08:09:00 ×9 missed down", "08:10:00 started schedule"]
    );
}

#[test]
fn all_misfires_in_the_window_start_one_after_the_other() {
    let hour = Some(Duration::from_hours(1));
    let job = job(&cron("*/20 * * * *")).rules(|it| {
        it.catchup = Catchup::All;
        it.catchup_window = hour;
    });
    assert_eq!(
        job.rows("2026-11-30T10:05:00Z"),
        [
            "08:20:00..09:00:00 ×3 missed too_late",
            "09:20:00 started catchup",
            "09:40:00 buffered overlap",
            "10:00:00 buffered overlap",
        ]
    );
    // Side by side, where the job allows it.
    let beside = job.clone().rules(|it| it.overlap = Overlap::AllowAll);
    assert_eq!(
        beside.rows("2026-11-30T10:05:00Z")[1..],
        ["09:20:00 started catchup", "09:40:00 started catchup", "10:00:00 started catchup"]
    );
    assert_eq!(
        job.living(1, 0, 0).rows("2026-11-30T09:05:00Z"),
        ["08:20:00 buffered overlap", "08:40:00 buffered overlap", "09:00:00 buffered overlap"]
    );
}

#[test]
fn no_more_misfires_wait_than_may_wait() {
    let day = Some(Duration::from_hours(24));
    let job = job(&cron("* * * * * *")).rules(|it| {
        it.catchup = Catchup::All;
        it.catchup_window = day;
    });
    let rows = job.rows("2026-11-30T09:00:11Z");
    assert_eq!(rows[0], "08:00:01..08:43:20 ×2600 missed too_late");
    assert_eq!(rows[1], "08:43:21 started catchup");
    assert_eq!(rows[1000], "09:00:00 buffered overlap");
    assert_eq!(
        rows.len(),
        1 + BUFFERED_MAX + 11,
        "and those in time are skipped: {:?}",
        rows.last()
    );
}

#[test]
fn a_job_that_may_not_run_has_rows_too() {
    let job = job(&cron("*/30 * * * *"));
    let disabled = job.clone().rules(|it| it.availability = Availability::Disabled);
    assert_eq!(
        disabled.rows("2026-11-30T09:30:00Z"),
        ["08:30:00..09:00:00 ×2 skipped disabled", "09:30:00 skipped disabled"]
    );
    let invalid = job.clone().rules(|it| it.availability = Availability::Invalid);
    assert_eq!(
        invalid.rows("2026-11-30T09:30:00Z"),
        ["08:30:00..09:00:00 ×2 missed invalid", "09:30:00 skipped invalid"]
    );
    let retired = job.rules(|it| it.availability = Availability::Retired);
    assert_eq!(
        retired.rows("2026-11-30T09:30:00Z"),
        ["08:30:00..09:30:00 ×3 missed down"],
        "a schedule that holds no more starts nothing"
    );
}

#[test]
fn while_a_job_is_paused_its_slots_are_held_and_not_made_up_for() {
    let pause = |until: Option<&str>, cause| {
        let until = until.map(at);
        Some(Pause { cause, words: "maintenance".into(), until })
    };
    let job = job(&cron("*/30 * * * *"));
    let paused = job.clone().memory(|it| it.pause = pause(None, PauseCause::Person));
    assert_eq!(
        paused.rows("2026-11-30T09:30:00Z"),
        ["08:30:00..09:00:00 ×2 held paused", "09:30:00 held paused"]
    );
    let until = job.clone().memory(|it| {
        it.pause = pause(Some("2026-11-30T09:00:00Z"), PauseCause::Person);
    });
    assert_eq!(
        until.rows("2026-11-30T10:01:00Z"),
        [
            "08:30:00..09:00:00 ×2 held paused",
            "09:30:00 missed superseded",
            "10:00:00 started catchup for 2",
        ]
    );
    let twice = job.memory(|it| it.pause = pause(None, PauseCause::InterruptedTwice));
    assert_eq!(twice.rows("2026-11-30T08:30:00Z"), ["08:30:00 held interrupted_twice"]);
}

#[test]
fn after_failures_slots_are_passed_over_until_the_wait_is_over() {
    let until = |text: &str| Account { backoff_until: Some(at(text)), ..Account::default() };
    let job = job(&cron("* * * * *"));
    let waits = job.memory(|it| it.account = until("2026-11-30T08:01:30Z"));
    assert_eq!(waits.rows("2026-11-30T08:01:00Z"), ["08:01:00 skipped backoff"]);
    let over = waits.memory(|it| it.decided_until = at("2026-11-30T08:01:00Z"));
    assert_eq!(over.rows("2026-11-30T08:02:00Z"), ["08:02:00 started schedule"]);
}

#[test]
fn what_is_decided_ahead_of_a_clock_that_was_set_back_is_not_decided_again() {
    let stretches = [
        ("2026-11-30T08:02:00Z", "2026-11-30T08:03:00Z"),
        ("2026-11-30T08:05:00Z", "2026-11-30T08:05:00Z"),
    ];
    let ahead: Vec<_> = stretches.iter().map(|(from, to)| (at(from), at(to))).collect();
    let job = job(&cron("* * * * *"))
        .rules(|it| it.catchup = Catchup::None)
        .memory(|it| it.ahead = ahead);
    assert_eq!(job.rows("2026-11-30T08:02:00Z"), ["08:01:00 missed down"]);
    let plan = job.decide("2026-11-30T08:06:00Z");
    assert_eq!(
        rows(&plan),
        ["08:01:00 missed down", "08:04:00 missed down", "08:06:00 started schedule"]
    );
    assert_eq!(plan.decided_until, at("2026-11-30T08:06:00Z"));
    // Nothing but what is decided: the watermark moves all the same.
    let at_two = job.memory(|it| it.decided_until = at("2026-11-30T08:01:00Z"));
    let plan = at_two.decide("2026-11-30T08:02:00Z");
    assert_eq!((plan.slots.len(), plan.decided_until), (0, at("2026-11-30T08:02:00Z")));
}

#[test]
fn a_one_shot_is_due_once_and_caught_up_within_two_hours() {
    let job = job(&Schedule::at(at("2026-11-30T09:00:00Z")));
    assert_eq!(job.rows("2026-11-30T10:30:00Z"), ["09:00:00 started catchup"]);
    assert_eq!(job.rows("2026-11-30T11:00:01Z"), ["09:00:00 missed too_late"]);
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
    for (catchup, overlap) in [
        (Catchup::None, Overlap::Skip),
        (Catchup::Latest, Overlap::CancelOther),
        (Catchup::All, Overlap::BufferOne),
    ] {
        let mut job = job(&schedule).rules(|it| {
            (it.catchup, it.overlap) = (catchup, overlap);
            it.catchup_window = Some(Duration::from_mins(5));
        });
        let (mut covered, mut last_end) = (0, start);
        for look in looks {
            let now = start + Duration::from_secs(look) + Duration::from_millis(look * 37 % 1000);
            let plan = job.decide_at(now);
            for slot in &plan.slots {
                let in_order = slot.due_at > last_end && slot.due_until >= slot.due_at;
                assert!(in_order && slot.due_until <= now);
                assert_eq!(slot.slots, schedule.count_between(before(slot.due_at), slot.due_until));
                covered += slot.slots;
                last_end = slot.due_until;
            }
            job.memory.decided_until = plan.decided_until;
            assert_eq!(covered, schedule.count_between(start, now), "after {look} s");
        }
    }
}
