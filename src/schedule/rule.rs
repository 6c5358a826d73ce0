//! A schedule: which instants it names, and which of them are due.
//!
//! A rule names instants (`times.rs`); bounds cut them off, exclusions leave some of them out, and
//! a jitter delays their starts without moving them. Every instant that is named within the bounds
//! is a [`Moment`], due or not, so that a ledger can account for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::dates::DateRange;
use super::due::Due;
use super::every::{EveryError, Grid};
use super::exclusions::Exclusions;
use super::expr::CronExpr;
use super::jitter::{Jitter, JitterError};
use super::local::{Fold, Gap};
use super::moment::{Moment, Span, Standing, append};
use super::times::Times;
use super::union::{Union, Want};
use super::zone::Zone;
use crate::clock::rfc3339;

/// More cron texts than this in one schedule are several jobs.
pub const CRON_TEXTS_MAX: usize = 16;

/// Due times whose distances a jitter is compared with.
const DISTANCES_MAX: usize = 100;

/// Where those distances are looked for when no bound says where: any plain time will do, and no
/// clock is asked, so that a file means the same on every day.
const PLAIN_TIME: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The first year for which a schedule must be good.
const ERA: Timestamp = Timestamp::constant(-62_135_596_800, 0);

const TICK: SignedDuration = SignedDuration::from_nanos(1);

/// A compiled schedule. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schedule {
    times: Times,
    /// The first and the last instant of all.
    bounds: (Option<Timestamp>, Option<Timestamp>),
    exclusions: Option<Arc<Exclusions>>,
    jitter: Option<Jitter>,
}

impl Schedule {
    fn new(times: Times) -> Self {
        Self { times, bounds: (None, None), exclusions: None, jitter: None }
    }

    /// Due at the local times of an expression in a zone.
    pub fn cron(expr: CronExpr, zone: Zone, gap: Gap, fold: Fold) -> Self {
        Self::crons([expr], zone, gap, fold)
    }

    /// Due at the local times of each expression, once where several name one instant. Takes
    /// [`CRON_TEXTS_MAX`] expressions at most.
    pub fn crons(
        exprs: impl IntoIterator<Item = CronExpr>,
        zone: Zone,
        gap: Gap,
        fold: Fold,
    ) -> Self {
        let exprs: Arc<[_]> = exprs.into_iter().collect();
        assert!(exprs.len() <= CRON_TEXTS_MAX, "{} cron texts", exprs.len());
        Self::new(Times::Cron(Union { exprs, zone, gap, fold }))
    }

    /// Due at `anchor + k × interval`, from the anchor on. Without an anchor nothing is due until
    /// [`Schedule::anchored`] fixes one.
    pub fn every(interval: Duration, anchor: Option<Timestamp>) -> Result<Self, EveryError> {
        Grid::new(interval, anchor).map(|grid| Self::new(Times::Every(grid)))
    }

    /// Due once.
    pub fn at(at: Timestamp) -> Self {
        Self::new(Times::At(at))
    }

    /// The same schedule; an interval without an anchor now names `first_seen + k × interval` for
    /// every whole k. That a job is first due one interval after it was first seen is for the
    /// caller to see to: only so does a clock that was put back find the grid as it was.
    #[must_use]
    pub fn anchored(&self, first_seen: Timestamp) -> Self {
        match &self.times {
            Times::Every(grid) => {
                Self { times: Times::Every(grid.anchored(first_seen)), ..self.clone() }
            }
            Times::Cron(_) | Times::At(_) => self.clone(),
        }
    }

    /// The same schedule without the instants before `first`.
    #[must_use]
    pub fn starting(self, first: Timestamp) -> Self {
        Self { bounds: (Some(first), self.bounds.1), ..self }
    }

    /// The same schedule without the instants after `last`.
    #[must_use]
    pub fn ending(self, last: Timestamp) -> Self {
        Self { bounds: (self.bounds.0, Some(last)), ..self }
    }

    /// The same schedule; instants whose date in `zone` is one of `dates` are left out.
    #[must_use]
    pub fn excluding(self, zone: Zone, dates: impl IntoIterator<Item = DateRange>) -> Self {
        let exclusions = Exclusions::new(zone, dates);
        Self { exclusions: (!exclusions.is_empty()).then(|| Arc::new(exclusions)), ..self }
    }

    /// The same schedule; starts are delayed by less than `max`, each by its own share, which
    /// follows from `seed` (the job's id) and the instant. The distances between due instants are
    /// looked at as they are now: bounds and exclusions come before it.
    pub fn with_jitter(self, max: Duration, seed: &str) -> Result<Self, JitterError> {
        match self.shortest_distance() {
            Some(distance) if max >= distance => Err(JitterError { jitter: max, distance }),
            _ => Ok(Self { jitter: Some(Jitter::new(max, seed)), ..self }),
        }
    }

    fn shortest_distance(&self) -> Option<Duration> {
        let fixed = self.anchored(PLAIN_TIME);
        let dues = fixed.upcoming(PLAIN_TIME).take(DISTANCES_MAX + 1);
        let dues: Vec<_> = dues.map(|due| due.at).collect();
        let distances = dues.windows(2).map(|pair| pair[1].duration_since(pair[0]));
        distances.filter_map(|distance| Duration::try_from(distance).ok()).min()
    }

    /// Whether anything is ever due. Bounds and exclusions may leave nothing.
    pub fn is_ever_due(&self) -> bool {
        self.anchored(PLAIN_TIME).next_after(ERA).is_some()
    }

    /// The first due instant strictly after `after`; `None` if there is none (within 44 years).
    pub fn next_after(&self, after: Timestamp) -> Option<Due> {
        let mut after = self.clip(after, Timestamp::MAX).0;
        loop {
            let due = self.times.next_after(after, Want::Due)?;
            if !self.is_within(due.at) {
                return None;
            }
            match self.exclusions.as_ref().filter(|them| them.has(due.at)) {
                None => return Some(due),
                // Each round passes an edge of the finitely many dates.
                Some(exclusions) => after = before(exclusions.until(due.at)?).max(due.at),
            }
        }
    }

    /// The last due instant at or before `at`; `None` if there is none (within 44 years).
    pub fn prev_at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        let mut at = self.clip(Timestamp::MIN, at).1;
        loop {
            let due = self.times.prev_at_or_before(at, Want::Due)?;
            if !self.is_within(due) {
                return None;
            }
            match self.exclusions.as_ref().filter(|them| them.has(due)) {
                None => return Some(due),
                Some(exclusions) => at = before(exclusions.since(due)?),
            }
        }
    }

    /// The number of due instants in `(after, up_to]`. Computed, not enumerated.
    pub fn count_between(&self, after: Timestamp, up_to: Timestamp) -> u64 {
        if self.exclusions.is_none() {
            let (after, up_to) = self.clip(after, up_to);
            return self.times.count_between(after, up_to, Want::Due);
        }
        let spans = self.spans(after, up_to).into_iter();
        spans.filter(|span| span.standing == Standing::Due).map(|span| span.slots).sum()
    }

    /// The due instants after `after`, in their order.
    pub fn upcoming(&self, after: Timestamp) -> impl Iterator<Item = Due> + '_ {
        std::iter::successors(self.next_after(after), |due| self.next_after(due.at))
    }

    /// The first moment strictly after `after`, due or not.
    pub fn next_moment(&self, after: Timestamp) -> Option<Moment> {
        let after = self.clip(after, Timestamp::MAX).0;
        let at = self.times.next_after(after, Want::Named)?.at;
        self.is_within(at).then(|| self.moment(at))
    }

    /// The last moment at or before `at`, due or not.
    pub fn prev_moment(&self, at: Timestamp) -> Option<Moment> {
        let at = self.clip(Timestamp::MIN, at).1;
        let at = self.times.prev_at_or_before(at, Want::Named)?;
        self.is_within(at).then(|| self.moment(at))
    }

    fn moment(&self, at: Timestamp) -> Moment {
        let standing = if self.exclusions.as_ref().is_some_and(|them| them.has(at)) {
            Standing::Excluded
        } else if self.times.gaps(before(at), at).is_empty() {
            Standing::Due
        } else {
            Standing::DstGap
        };
        Moment { at, standing }
    }

    /// All moments in `(after, up_to]`, in their order. Computed, not enumerated.
    pub fn spans(&self, after: Timestamp, up_to: Timestamp) -> Vec<Span> {
        let (mut after, up_to) = self.clip(after, up_to);
        let mut spans = Vec::new();
        // What lies between two moments costs nothing, however many excluded dates it holds.
        while let Some(next) = self.times.next_after(after, Want::Named).filter(|it| it.at <= up_to)
        {
            let excluded = self.exclusions.as_ref().filter(|them| them.has(next.at));
            let until = self.exclusions.as_ref().and_then(|them| them.until(next.at));
            let end = until.map_or(up_to, |until| before(until).min(up_to));
            if excluded.is_some() {
                self.append(&mut spans, (after, end), Want::Named, Standing::Excluded);
            } else {
                self.append_open(&mut spans, (after, end));
            }
            after = end.max(next.at);
        }
        spans
    }

    /// Moments of dates that are not excluded.
    fn append_open(&self, spans: &mut Vec<Span>, (mut after, up_to): (Timestamp, Timestamp)) {
        for gap in self.times.gaps(after, up_to) {
            self.append(spans, (after, before(gap)), Want::Due, Standing::Due);
            append(spans, Span { first: gap, last: gap, slots: 1, standing: Standing::DstGap });
            after = gap;
        }
        self.append(spans, (after, up_to), Want::Due, Standing::Due);
    }

    fn append(
        &self,
        spans: &mut Vec<Span>,
        (after, up_to): (Timestamp, Timestamp),
        want: Want,
        standing: Standing,
    ) {
        let first = self.times.next_after(after, want).map(|due| due.at);
        let last = self.times.prev_at_or_before(up_to, want);
        if let Some((first, last)) = first.zip(last).filter(|(first, last)| first <= last) {
            let slots = self.times.count_between(after, up_to, want);
            append(spans, Span { first, last, slots, standing });
        }
    }

    /// When a slot may start: `due_at` and its share of the jitter, always before the next moment,
    /// so that starts keep the order of their slots.
    pub fn start_of(&self, due_at: Timestamp) -> Timestamp {
        let Some(jitter) = &self.jitter else { return due_at };
        let Ok(start) = due_at.checked_add(jitter.delay(due_at)) else { return due_at };
        match self.next_moment(due_at) {
            Some(next) => start.min(next.at - SignedDuration::from_millis(1)).max(due_at),
            None => start,
        }
    }

    /// Whether starts are delayed by a jitter.
    pub fn has_jitter(&self) -> bool {
        self.jitter.is_some()
    }

    /// The excluded dates, in order, without overlap.
    pub fn excluded(&self) -> impl Iterator<Item = DateRange> + '_ {
        self.exclusions.iter().flat_map(|exclusions| exclusions.ranges())
    }

    /// The zone whose local times it names, if it names local times.
    pub fn zone(&self) -> Option<&Zone> {
        match &self.times {
            Times::Cron(union) => Some(&union.zone),
            Times::Every(_) | Times::At(_) => None,
        }
    }

    /// Whether it is due once in all.
    pub fn is_one_shot(&self) -> bool {
        matches!(self.times, Times::At(_))
    }

    /// What is legal and yet perhaps not meant.
    pub fn warnings(&self) -> Vec<String> {
        match &self.times {
            Times::Cron(union) => {
                union.exprs.iter().flat_map(CronExpr::warnings).cloned().collect()
            }
            Times::Every(_) | Times::At(_) => Vec::new(),
        }
    }

    /// The part of `(after, up_to]` that lies within the bounds.
    fn clip(&self, after: Timestamp, up_to: Timestamp) -> (Timestamp, Timestamp) {
        let (first, last) = self.bounds;
        (
            first.map_or(after, |first| before(first).max(after)),
            last.map_or(up_to, |last| last.min(up_to)),
        )
    }

    fn is_within(&self, at: Timestamp) -> bool {
        let (first, last) = self.bounds;
        first.is_none_or(|first| first <= at) && last.is_none_or(|last| at <= last)
    }
}

/// The last instant before `at`.
fn before(at: Timestamp) -> Timestamp {
    at.checked_sub(TICK).unwrap_or(at)
}

/// As a person would write it: `0 9 * * MON-FRI`, `every 6h`, `at 2027-01-01T08:00:00.000Z`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.times {
            Times::Cron(union) => {
                let texts: Vec<_> = union.exprs.iter().map(CronExpr::as_str).collect();
                f.write_str(&texts.join(" | "))
            }
            Times::Every(grid) => {
                write!(f, "every {}", humantime::format_duration(grid.interval()))
            }
            Times::At(at) => write!(f, "at {}", rfc3339(*at)),
        }
    }
}
