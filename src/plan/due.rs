//! Moments of one job, decided.
//!
//! A moment is an instant that the schedule names: due, or left out by `exclude` or `dst_gap`.
//! Those whose start lies within the last [`MISFIRE_AFTER`] are *fresh* and decided one by one;
//! those before are *stale*, and become counted ranges, of which `catchup` may start some. Both
//! are worked out from the watermark and the present time alone, so that it makes no difference
//! why nobody looked: a restart, a suspended machine, a clock that was set, a late loop.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::rules::{Availability, Memory, Pause, Rules};
use super::{Reason, SlotDecision};
use crate::job::{Catchup, Overlap};
use crate::run::Trigger;
use crate::schedule::{Moment, Schedule, Span, Standing};

/// A slot first seen later than this is a misfire (contract, `catchup`).
pub const MISFIRE_AFTER: Duration = Duration::from_secs(10);

/// Slots of one job that may wait, by `overlap` or by `catchup = "all"`.
pub const BUFFERED_MAX: usize = 1000;

const WINDOW_MIN: Duration = Duration::from_mins(2);
const WINDOW_MAX: Duration = Duration::from_hours(2);

/// All that a decision about a job depends on.
#[derive(Debug, Clone, Copy)]
pub struct JobView<'a> {
    /// Its schedule.
    pub schedule: &'a Schedule,
    /// Its policies.
    pub rules: &'a Rules,
    /// What the ledger remembers.
    pub memory: &'a Memory,
    /// What of it lives.
    pub living: Living,
    /// Why moments that nobody saw in time were not seen.
    pub unseen_because: Reason,
    /// What holds whatever would start: a cap that is used up, models that cannot be reached.
    pub obstacle: Option<Reason>,
}

/// What of a job lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Living {
    /// Runs that are queued or running, but for those of a backfill.
    pub running: usize,
    /// Runs of a backfill: nothing starts beside them, and nothing is lost for them.
    pub backfilling: usize,
    /// Slots between two attempts.
    pub retrying: usize,
    /// What waits for those to end.
    pub waiting: usize,
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
    /// When it was to start: `due_at` with its jitter.
    pub start_at: Timestamp,
    /// What is decided.
    pub decision: SlotDecision,
    /// Why.
    pub reason: Option<Reason>,
    /// What starts the run, now for [`SlotDecision::Started`] or later for what waits:
    /// [`SlotDecision::Buffered`] for the job, [`SlotDecision::Held`] for a model or a cap.
    pub start: Option<SlotStart>,
}

/// How a slot starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotStart {
    /// In time, or as a catch-up.
    pub trigger: Trigger,
    /// The slots that its run stands for: itself and the misfires before it.
    pub stands_for: u64,
    /// The first of them.
    pub first_due: Timestamp,
}

impl SlotStart {
    /// A slot that stands for itself.
    pub const fn alone(trigger: Trigger, due_at: Timestamp) -> Self {
        Self { trigger, stands_for: 1, first_due: due_at }
    }
}

/// Everything decided about a job at one moment, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The rows.
    pub slots: Vec<PlannedSlot>,
    /// Every moment up to here is decided once the rows are stored.
    pub decided_until: Timestamp,
    /// The first moment after that.
    pub next: Option<Moment>,
}

/// Decides every moment of `job` after its watermark whose start is not after `now`; of a retired
/// one every moment that is not after `now`.
pub fn decide(job: JobView<'_>, now: Timestamp) -> Plan {
    let decided_until = job.memory.decided_until;
    let next = job.schedule.next_moment(decided_until);
    let Some(first) = next.filter(|first| job.has_come(first.at, now)) else {
        return Plan { slots: Vec::new(), decided_until, next };
    };
    let mut day = Day { job, now, living: job.living, rows: Vec::new(), missable: Vec::new() };
    // Whoever looks in time finds nothing stale, and saves the search for it.
    let stale_until = match job.rules.availability {
        // What was due and has not started is closed with the rest: it never will.
        Availability::Retired => job.schedule.prev_moment(now).map(|moment| moment.at),
        _ if job.schedule.start_of(first.at) >= now - MISFIRE_AFTER => None,
        Availability::Ready | Availability::Disabled | Availability::Invalid => {
            newest_started(job.schedule, now).map(|newest| newest_stale(job.schedule, newest, now))
        }
    };
    if let Some(stale_until) = stale_until {
        for stretch in job.undecided(decided_until, stale_until) {
            for span in job.schedule.spans(stretch.after, stretch.up_to) {
                day.stale(span, stretch.held);
            }
        }
    }
    let Fresh { moments, newest, next } = day.fresh(stale_until.unwrap_or(decided_until));
    let passed_over = day.misfires(&moments);
    day.decide_fresh(&moments, passed_over);
    day.rows.sort_by_key(|row| row.due_at);
    Plan { slots: day.rows, decided_until: newest.max(decided_until), next }
}

/// How long after its start a misfire may still start (contract, `catchup_window`).
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

/// The newest moment that has come, its jitter over.
fn newest_started(schedule: &Schedule, now: Timestamp) -> Option<Timestamp> {
    let newest = schedule.prev_moment(now)?.at;
    if schedule.start_of(newest) <= now {
        return Some(newest);
    }
    // Starts are in the order of moments, so the one before has come.
    schedule.prev_moment(before(newest)).map(|moment| moment.at)
}

/// The newest moment before `newest` that is too late to be on time; at most as many steps as
/// moments start within [`MISFIRE_AFTER`].
fn newest_stale(schedule: &Schedule, newest: Timestamp, now: Timestamp) -> Timestamp {
    let mut at = newest;
    while schedule.start_of(at) >= now - MISFIRE_AFTER {
        match schedule.prev_moment(before(at)) {
            Some(moment) => at = moment.at,
            None => return before(at),
        }
    }
    at
}

/// Part of the time that is undecided, (`after`, `up_to`].
#[derive(Clone, Copy)]
struct Stretch {
    after: Timestamp,
    up_to: Timestamp,
    /// Why its slots are held, if they are.
    held: Option<Reason>,
}

impl JobView<'_> {
    /// Whether it is to be decided about this moment.
    fn has_come(&self, at: Timestamp, now: Timestamp) -> bool {
        match self.rules.availability {
            Availability::Retired => at <= now,
            Availability::Ready | Availability::Disabled | Availability::Invalid => {
                self.schedule.start_of(at) <= now
            }
        }
    }

    /// (`after`, `up_to`] without what is decided ahead, cut where a pause ends.
    fn undecided(&self, after: Timestamp, up_to: Timestamp) -> Vec<Stretch> {
        let mut free = Vec::new();
        let mut from = after;
        for &(first, last) in &self.memory.ahead {
            free.push((from, up_to.min(before(first))));
            from = from.max(last);
        }
        free.push((from, up_to));
        free.retain(|(after, up_to)| after < up_to);
        let Some(pause) = &self.memory.pause else {
            return free
                .into_iter()
                .map(|(after, up_to)| Stretch { after, up_to, held: None })
                .collect();
        };
        let mut stretches = Vec::new();
        for (after, up_to) in free {
            let end = pause.until.unwrap_or(up_to).clamp(after, up_to);
            stretches.push(Stretch { after, up_to: end, held: Some(pause.reason()) });
            stretches.push(Stretch { after: end, up_to, held: None });
        }
        stretches.retain(|stretch| stretch.after < stretch.up_to);
        stretches
    }
}

/// A moment that comes in time.
struct FreshMoment {
    at: Timestamp,
    standing: Standing,
    held: Option<Reason>,
}

/// What comes in time.
struct Fresh {
    moments: Vec<FreshMoment>,
    /// The newest moment that has come, or where the search began.
    newest: Timestamp,
    /// The first one that has not.
    next: Option<Moment>,
}

/// What one look decides.
struct Day<'a> {
    job: JobView<'a>,
    now: Timestamp,
    living: Living,
    rows: Vec<PlannedSlot>,
    /// Due, stale, and not yet accounted for.
    missable: Vec<Span>,
}

impl Day<'_> {
    fn stale(&mut self, span: Span, held: Option<Reason>) {
        use SlotDecision::{Held, Missed, Skipped};
        let (decision, reason) = match (span.standing, self.job.rules.availability, held) {
            (Standing::Excluded, ..) => (Skipped, Reason::Excluded),
            (Standing::DstGap, ..) => (Skipped, Reason::DstGap),
            (Standing::Due, Availability::Invalid, _) => (Missed, Reason::Invalid),
            (Standing::Due, _, Some(reason)) => (Held, reason),
            (Standing::Due, Availability::Disabled, None) => (Skipped, Reason::Disabled),
            (Standing::Due, Availability::Ready | Availability::Retired, None) => {
                self.missable.push(span);
                return;
            }
        };
        self.range(span, decision, reason);
    }

    /// The moments after `after` that have come, but for those that are decided ahead.
    fn fresh(&self, after: Timestamp) -> Fresh {
        let memory = self.job.memory;
        let mut fresh = Fresh { moments: Vec::new(), newest: after, next: None };
        loop {
            fresh.next = self.job.schedule.next_moment(fresh.newest);
            let come = fresh.next.filter(|it| self.job.has_come(it.at, self.now));
            let Some(Moment { at, standing }) = come else { return fresh };
            fresh.newest = at;
            if !memory.ahead.iter().any(|&(first, last)| first <= at && at <= last) {
                let pause = memory.pause.as_ref();
                let pause = pause.filter(|pause| pause.until.is_none_or(|until| at <= until));
                let held = pause.map(Pause::reason);
                fresh.moments.push(FreshMoment { at, standing, held });
            }
        }
    }

    /// Decides what is stale and due. Returns the slots that a fresh one stands for.
    fn misfires(&mut self, fresh: &[FreshMoment]) -> Vec<Span> {
        let missable = std::mem::take(&mut self.missable);
        let Some(newest) = missable.last().map(|span| span.last) else { return Vec::new() };
        if self.job.rules.availability == Availability::Retired {
            self.missed(&missable, self.job.unseen_because);
            return Vec::new();
        }
        match self.job.rules.catchup {
            Catchup::None => self.missed(&missable, self.job.unseen_because),
            Catchup::Latest => {
                let stands = |it: &FreshMoment| it.standing == Standing::Due && it.held.is_none();
                if fresh.iter().any(stands) {
                    return missable;
                }
                if !self.in_window(newest) {
                    self.missed(&missable, Reason::TooLate);
                    return Vec::new();
                }
                let older = self.before(&missable, newest);
                self.stand_for(&older, newest, Trigger::Catchup);
            }
            Catchup::All => self.catch_all_up(&missable),
        }
        Vec::new()
    }

    /// A slot that stands for `older` ones. If it does not start, nothing stands for them, and what
    /// keeps it from starting is their reason, too.
    fn stand_for(&mut self, older: &[Span], due_at: Timestamp, trigger: Trigger) {
        let first_due = older.first().map_or(due_at, |span| span.first);
        self.admit(due_at, SlotStart { trigger, stands_for: 1 + count(older), first_due });
        let reason = match self.rows.last() {
            Some(PlannedSlot { start: None, reason: Some(reason), .. }) => *reason,
            _ => Reason::Superseded,
        };
        self.missed(older, reason);
    }

    /// Each slot within its window, one after the other, and as many as may wait.
    fn catch_all_up(&mut self, missable: &[Span]) {
        let mut wanted = Vec::new();
        'spans: for span in missable.iter().rev() {
            let mut at = Some(span.last);
            while let Some(due_at) = at.filter(|&at| at >= span.first) {
                if wanted.len() == BUFFERED_MAX || !self.in_window(due_at) {
                    break 'spans;
                }
                wanted.push(due_at);
                at = self.job.schedule.prev_at_or_before(before(due_at));
            }
        }
        wanted.reverse();
        match wanted.first() {
            Some(&oldest) => self.missed(&self.before(missable, oldest), Reason::TooLate),
            None => self.missed(missable, Reason::TooLate),
        }
        for due_at in wanted {
            let start = SlotStart::alone(Trigger::Catchup, due_at);
            if self.is_busy() && self.job.rules.overlap != Overlap::AllowAll {
                self.buffer(due_at, start);
            } else {
                self.admit(due_at, start);
            }
        }
    }

    fn decide_fresh(&mut self, fresh: &[FreshMoment], mut older: Vec<Span>) {
        use SlotDecision::{Held, Skipped};
        for moment in fresh {
            let (decision, reason) =
                match (moment.standing, self.job.rules.availability, moment.held) {
                    (Standing::Excluded, ..) => (Skipped, Reason::Excluded),
                    (Standing::DstGap, ..) => (Skipped, Reason::DstGap),
                    (Standing::Due, Availability::Invalid, _) => (Skipped, Reason::Invalid),
                    (Standing::Due, _, Some(reason)) => (Held, reason),
                    (Standing::Due, Availability::Disabled, None) => (Skipped, Reason::Disabled),
                    (Standing::Due, Availability::Ready | Availability::Retired, None) => {
                        let older = std::mem::take(&mut older);
                        self.stand_for(&older, moment.at, Trigger::Schedule);
                        continue;
                    }
                };
            self.single(moment.at, decision, Some(reason), None);
        }
    }

    /// A slot that may start, unless the job's failures or what lives of it stand in its way.
    fn admit(&mut self, due_at: Timestamp, start: SlotStart) {
        if self.job.obstacle.is_some() {
            self.give_up_held();
        }
        let from = self.job.memory.account.backoff_until;
        let starts = self.now.max(self.job.schedule.start_of(due_at));
        if from.is_some_and(|from| starts < from) {
            return self.single(due_at, SlotDecision::Skipped, Some(Reason::Backoff), None);
        }
        if !self.is_busy() || self.job.rules.overlap == Overlap::AllowAll {
            if let Some(why) = self.job.obstacle {
                self.living.waiting += 1;
                return self.single(due_at, SlotDecision::Held, Some(why), Some(start));
            }
            self.living.running += 1;
            return self.single(due_at, SlotDecision::Started, None, Some(start));
        }
        let only_backfill = Living { backfilling: 0, ..self.living } == Living::default();
        let may_wait = match self.job.rules.overlap {
            _ if only_backfill => true,
            Overlap::BufferOne => self.living.waiting == 0,
            Overlap::BufferAll => self.living.waiting < BUFFERED_MAX,
            // It takes the place of whatever waits.
            Overlap::CancelOther => true,
            Overlap::Skip | Overlap::AllowAll => false,
        };
        if may_wait {
            self.buffer(due_at, start);
        } else {
            self.single(due_at, SlotDecision::Skipped, Some(Reason::Overlap), None);
        }
    }

    /// What is held waits until the next slot at the most.
    fn give_up_held(&mut self) {
        for row in &mut self.rows {
            if row.decision == SlotDecision::Held && row.start.take().is_some() {
                row.decision = SlotDecision::Missed;
                self.living.waiting -= 1;
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.living != Living::default()
    }

    fn buffer(&mut self, due_at: Timestamp, start: SlotStart) {
        self.living.waiting += 1;
        self.single(due_at, SlotDecision::Buffered, Some(Reason::Overlap), Some(start));
    }

    fn in_window(&self, due_at: Timestamp) -> bool {
        let window = catchup_window(self.job.schedule, self.job.rules.catchup_window, due_at);
        distance(self.job.schedule.start_of(due_at), self.now) <= window
    }

    /// What of `spans` lies before `at`.
    fn before(&self, spans: &[Span], at: Timestamp) -> Vec<Span> {
        let mut left = Vec::new();
        for span in spans.iter().filter(|span| span.first < at) {
            if span.last < at {
                left.push(*span);
            } else {
                left.extend(self.job.schedule.spans(before(span.first), before(at)));
            }
        }
        left
    }

    fn missed(&mut self, spans: &[Span], reason: Reason) {
        for span in spans {
            self.range(*span, SlotDecision::Missed, reason);
        }
    }

    fn range(&mut self, span: Span, decision: SlotDecision, reason: Reason) {
        self.rows.push(PlannedSlot {
            due_at: span.first,
            due_until: span.last,
            slots: span.slots,
            start_at: self.job.schedule.start_of(span.first),
            decision,
            reason: Some(reason),
            start: None,
        });
    }

    fn single(
        &mut self,
        due_at: Timestamp,
        decision: SlotDecision,
        reason: Option<Reason>,
        start: Option<SlotStart>,
    ) {
        self.rows.push(PlannedSlot {
            due_at,
            due_until: due_at,
            slots: 1,
            start_at: self.job.schedule.start_of(due_at),
            decision,
            reason,
            start,
        });
    }
}

fn count(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.slots).sum()
}

/// The last millisecond before `at`: instants are whole milliseconds everywhere.
pub(super) fn before(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_millis(1)).unwrap_or(at)
}

pub(super) fn distance(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
#[path = "tests/due.rs"]
mod tests;
