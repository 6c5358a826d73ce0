//! Jobs that come after others: which slot has ended how, and what that means downstream.
//!
//! A job with `[after]` is due whenever all its upstream jobs are, and its slot has their due time.
//! It starts when the last of them has ended as it wants; the first that does not ends the wait. A
//! slot is decided once, whatever is heard of it later.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use super::Reason;
use super::SlotDecision;
use super::act::{Act, Record};
use super::due::before;
use super::track::Track;
use crate::job::{JobId, When};
use crate::run::State;
use crate::schedule::{Moment, Standing};

/// How far back a slot that is not decided is looked for: longer than any run takes from its due
/// time on. What is older has been decided, or nobody waits for it.
pub const REMEMBERED: Duration = Duration::from_hours(72);

/// An upstream job that has ended so long ago starts nothing any more.
pub(super) const STARTS_WITHIN: Duration = Duration::from_hours(2);

/// What has become of slots of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotEnd {
    /// Whose.
    pub job: JobId,
    /// The first of them.
    pub first: Timestamp,
    /// The last one.
    pub last: Timestamp,
    /// How they ended.
    pub how: How,
    /// When that was.
    pub at: Timestamp,
}

/// How a slot ended, for what comes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Its run has succeeded.
    Succeeded,
    /// Its run has failed, timed out or was interrupted, after the last attempt.
    Failed,
    /// It did not start, or somebody cancelled it.
    Otherwise,
}

impl How {
    /// What the last state of a slot's runs means.
    pub const fn of(state: State) -> Self {
        match state {
            State::Succeeded => Self::Succeeded,
            State::Failed | State::TimedOut | State::Interrupted => Self::Failed,
            State::Cancelled | State::Queued | State::Running => Self::Otherwise,
        }
    }

    const fn is(self, when: When) -> bool {
        match (self, when) {
            (Self::Succeeded, When::Succeeded | When::Finished)
            | (Self::Failed, When::Failed | When::Finished) => true,
            (Self::Succeeded, When::Failed)
            | (Self::Failed, When::Succeeded)
            | (Self::Otherwise, _) => false,
        }
    }
}

/// A slot of a job that comes after others, about which everything is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) slots: u64,
    pub(super) so: So,
}

/// Whether it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum So {
    /// All have ended as it wants.
    Starts,
    /// One has not.
    Not(Reason),
}

/// Who comes after whom, and what has been heard so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Joins {
    downstream: HashMap<JobId, BTreeSet<JobId>>,
    /// Of each slot that waits: the upstream jobs that have ended as is wanted.
    heard: HashMap<JobId, BTreeMap<Timestamp, BTreeSet<JobId>>>,
}

impl Joins {
    /// Takes in what a job comes after.
    pub(super) fn take_in(&mut self, id: &JobId, track: &Track) {
        let upstream = track.rules.after.iter().flat_map(|after| &after.jobs);
        let upstream: BTreeSet<_> = upstream.collect();
        for (job, after) in &mut self.downstream {
            if !upstream.contains(job) {
                after.remove(id);
            }
        }
        for job in upstream {
            self.downstream.entry(job.clone()).or_default().insert(id.clone());
        }
        self.downstream.retain(|_, after| !after.is_empty());
        // Under another definition other jobs are waited for.
        self.heard.remove(id);
    }

    /// Whether nothing comes after anything.
    pub(super) fn is_empty(&self) -> bool {
        self.downstream.is_empty()
    }

    /// What `acts` say about slots that others wait for and that do not start.
    pub(super) fn ends_in(&self, acts: &[Act], at: Timestamp) -> Vec<SlotEnd> {
        let records = acts.iter().filter_map(|act| match act {
            Act::Record(record) if self.downstream.contains_key(&record.job) => Some(record),
            _ => None,
        });
        records.flat_map(|record| ends_of(record, at)).collect()
    }

    /// What follows from `end` for the jobs after it.
    pub(super) fn hear(
        &mut self,
        end: &SlotEnd,
        tracks: &BTreeMap<JobId, Track>,
    ) -> Vec<(JobId, Joined)> {
        let Some(after) = self.downstream.get(&end.job) else { return Vec::new() };
        let mut joined = Vec::new();
        for id in after {
            let Some(track) = tracks.get(id) else { continue };
            let Some(rules) = &track.rules.after else { continue };
            let heard = self.heard.entry(id.clone()).or_default();
            if !end.how.is(rules.when) {
                heard.retain(|at, _| *at < end.first || *at > end.last);
                let spans = due_of(end, undecided(track, end), &rules.jobs, tracks);
                joined.extend(spans.into_iter().map(|(first, last, slots)| {
                    (id.clone(), Joined { first, last, slots, so: So::Not(Reason::Upstream) })
                }));
                continue;
            }
            let due_at = end.first;
            if due_of(end, undecided(track, end), &rules.jobs, tracks).is_empty() {
                continue;
            }
            let so_far = heard.entry(due_at).or_default();
            so_far.insert(end.job.clone());
            if so_far.len() == rules.jobs.len() {
                heard.remove(&due_at);
                let so = So::Starts;
                joined.push((id.clone(), Joined { first: due_at, last: due_at, slots: 1, so }));
            }
        }
        joined
    }
}

fn ends_of(record: &Record, at: Timestamp) -> Vec<SlotEnd> {
    let end =
        |first, last| SlotEnd { job: record.job.clone(), first, last, how: How::Otherwise, at };
    let rows = record.rows.iter().filter(|row| match row.decision {
        SlotDecision::Started | SlotDecision::Buffered => false,
        SlotDecision::Held => row.start.is_none(),
        // It was not due then.
        SlotDecision::Skipped | SlotDecision::Missed => {
            !matches!(row.reason, Some(Reason::Excluded | Reason::DstGap))
        }
    });
    let rows = rows.map(|row| end(row.due_at, row.due_until));
    let turned = record.turned.iter().filter(|it| it.decision != SlotDecision::Started);
    rows.chain(turned.map(|it| end(it.due_at, it.due_at))).collect()
}

/// What of `end` the job has not decided, as stretches (after, up to].
fn undecided(track: &Track, end: &SlotEnd) -> Vec<(Timestamp, Timestamp)> {
    let mut from = before(end.first).max(track.memory.decided_until);
    let mut free = Vec::new();
    for &(first, last) in &track.memory.ahead {
        free.push((from, end.last.min(before(first))));
        from = from.max(last);
    }
    free.push((from, end.last));
    free.retain(|(after, up_to)| after < up_to);
    free
}

/// The instants of `end` in those stretches at which all of `jobs` are due, as counted ranges. That
/// its own job was is known: its schedule may be another one by now.
fn due_of(
    end: &SlotEnd,
    stretches: Vec<(Timestamp, Timestamp)>,
    jobs: &[JobId],
    tracks: &BTreeMap<JobId, Track>,
) -> Vec<(Timestamp, Timestamp, u64)> {
    let others = jobs.iter().filter(|job| **job != end.job);
    if end.first == end.last {
        let is_due = others.into_iter().all(|job| is_due_at(job, tracks, end.first));
        let is_open = !stretches.is_empty() && is_due;
        return is_open.then_some((end.first, end.last, 1)).into_iter().collect();
    }
    let jobs: Vec<_> = std::iter::once(&end.job).chain(others).cloned().collect();
    let due = |(after, up_to)| due_between(&jobs, tracks, after, up_to);
    stretches.into_iter().flat_map(due).collect()
}

/// The instants in (`after`, `up_to`] at which all of `jobs` are due, as counted ranges.
fn due_between(
    jobs: &[JobId],
    tracks: &BTreeMap<JobId, Track>,
    after: Timestamp,
    up_to: Timestamp,
) -> Vec<(Timestamp, Timestamp, u64)> {
    let Some((first, others)) = jobs.split_first() else { return Vec::new() };
    let Some(rules) = tracks.get(first).map(|track| &track.rules) else { return Vec::new() };
    let spans = match (&rules.schedule, &rules.after) {
        (Some(schedule), _) => {
            let due = schedule.spans(after, up_to).into_iter();
            let due = due.filter(|span| span.standing == Standing::Due);
            due.map(|span| (span.first, span.last, span.slots)).collect()
        }
        (None, Some(upstream)) => due_between(&upstream.jobs, tracks, after, up_to),
        (None, None) => Vec::new(),
    };
    if others.is_empty() {
        return spans;
    }
    // Where several schedules meet there is no way but to look at each instant of one of them.
    let at_each = |at: &Timestamp| others.iter().all(|job| is_due_at(job, tracks, *at));
    let instants: Vec<_> =
        spans.iter().flat_map(|span| each(first, tracks, span)).filter(at_each).collect();
    match (instants.first(), instants.last()) {
        (Some(&first), Some(&last)) => vec![(first, last, instants.len() as u64)],
        _ => Vec::new(),
    }
}

/// The most instants that are looked at one by one.
const INSTANTS_MAX: usize = 100_000;

fn each(
    job: &JobId,
    tracks: &BTreeMap<JobId, Track>,
    &(first, last, _): &(Timestamp, Timestamp, u64),
) -> Vec<Timestamp> {
    let mut all = Vec::new();
    let mut at = next_due(job, tracks, before(first));
    while let Some(due) = at.filter(|due| *due <= last && all.len() < INSTANTS_MAX) {
        all.push(due);
        at = next_due(job, tracks, due);
    }
    all
}

fn next_due(job: &JobId, tracks: &BTreeMap<JobId, Track>, after: Timestamp) -> Option<Timestamp> {
    let rules = &tracks.get(job)?.rules;
    match (&rules.schedule, &rules.after) {
        (Some(schedule), _) => schedule.next_after(after).map(|due| due.at),
        (None, Some(upstream)) => next_due(upstream.jobs.first()?, tracks, after),
        (None, None) => None,
    }
}

/// Whether the job is due at that instant, by its schedule or because all before it are.
fn is_due_at(job: &JobId, tracks: &BTreeMap<JobId, Track>, at: Timestamp) -> bool {
    let Some(rules) = tracks.get(job).map(|track| &track.rules) else { return false };
    match (&rules.schedule, &rules.after) {
        (Some(schedule), _) => {
            let due = Some(Moment { at, standing: Standing::Due });
            schedule.next_moment(before(at)) == due
        }
        (None, Some(upstream)) => upstream.jobs.iter().all(|job| is_due_at(job, tracks, at)),
        (None, None) => false,
    }
}
