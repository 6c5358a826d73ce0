//! Several expressions in one zone: what one of them names, all of them name, once.
//!
//! The next and the previous instant are the nearest of each text's own. Counting cannot add the
//! texts up, since two may name one instant; it counts a day's union from the bits of the fields,
//! and days on which the same texts fire are alike.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::DateTime;

use super::calendar::{Calendar, ones};
use super::due::Due;
use super::expr::CronExpr;
use super::local::{Fold, Gap, LocalCron, following_second};
use super::stretch::{Start, Stretch};
use super::zone::Zone;

/// Which instants are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Those that are due.
    Due,
    /// Those that are named: also the first instants after gaps at which nothing is due.
    Named,
}

/// Expressions that share a zone and its rules.
#[derive(Debug, Clone)]
pub(super) struct Union {
    pub exprs: Arc<[CronExpr]>,
    pub zone: Zone,
    pub gap: Gap,
    pub fold: Fold,
}

impl Union {
    fn texts(&self, want: Want) -> impl Iterator<Item = LocalCron<'_>> + Clone {
        // What `dst_gap = "skip"` leaves out is what "shift" would have been due at.
        let gap = match want {
            Want::Due => self.gap,
            Want::Named => Gap::Shift,
        };
        let one = move |expr| LocalCron { expr, zone: &self.zone, gap, fold: self.fold };
        self.exprs.iter().map(one)
    }

    pub(super) fn next_after(&self, after: Timestamp, want: Want) -> Option<Due> {
        let dues = self.texts(want).filter_map(|text| text.next_after(after));
        dues.min_by_key(|due| (due.at, due.note.is_none()))
    }

    pub(super) fn prev_at_or_before(&self, at: Timestamp, want: Want) -> Option<Timestamp> {
        self.texts(want).filter_map(|text| text.prev_at_or_before(at)).max()
    }

    /// Instants in `(after, up_to]`, without visiting them.
    pub(super) fn count_between(&self, after: Timestamp, up_to: Timestamp, want: Want) -> u64 {
        if let [_] = &*self.exprs {
            return self.texts(want).map(|text| text.count_between(after, up_to)).sum();
        }
        if up_to <= after {
            return 0;
        }
        let texts = self.texts(want);
        let mut again = DayUnion::new(texts.clone().filter(LocalCron::counts_again));
        let mut all = DayUnion::new(texts.clone());
        let mut count = 0;
        let mut stretch = Stretch::at(&self.zone, after);
        let mut from = following_second(stretch.local(after));
        loop {
            let end = stretch.local_end().filter(|_| stretch.until <= Some(up_to));
            let until = end.unwrap_or_else(|| following_second(stretch.local(up_to)));
            // Up to here the clock shows what it has shown before.
            let repeated = stretch.start.map_or(from, |start| start.unseen.min(until)).max(from);
            count += again.count(from, repeated) + all.count(repeated, until);
            let Some(next) = stretch.until.filter(|until| *until <= up_to) else { return count };
            stretch = Stretch::at(&self.zone, next);
            let Some(start) = stretch.start else { return count };
            count += u64::from(is_shifted_alone(&texts, &start));
            from = start.local;
        }
    }

    /// The named instants in `(after, up_to]` at which nothing is due, because of a gap.
    pub(super) fn gaps(&self, after: Timestamp, up_to: Timestamp) -> Vec<Timestamp> {
        if self.gap == Gap::Shift || up_to <= after {
            return Vec::new();
        }
        let changes = self.zone.rules().following(after).map(|change| change.timestamp());
        let changes = changes.take_while(|change| *change <= up_to);
        let is_gap = |change: &Timestamp| {
            let start = Stretch::at(&self.zone, *change).start;
            start.is_some_and(|start| is_shifted_alone(&self.texts(Want::Named), &start))
        };
        changes.filter(is_gap).collect()
    }
}

/// Whether the change is named by a shift and is no member of its own.
fn is_shifted_alone<'a>(
    texts: &(impl Iterator<Item = LocalCron<'a>> + Clone),
    start: &Start,
) -> bool {
    texts.clone().any(|text| text.jumped_over(start).is_some())
        && !texts.clone().any(|text| text.expr.calendar().contains(start.local))
}

/// Counts the union of several calendars.
struct DayUnion<'a> {
    calendars: Vec<&'a Calendar>,
    /// Which calendars have a day, as bits, and the members of such a day.
    whole_days: Vec<(u64, u64)>,
}

impl<'a> DayUnion<'a> {
    fn new(texts: impl Iterator<Item = LocalCron<'a>>) -> Self {
        let calendars = texts.map(|text| text.expr.calendar()).collect();
        Self { calendars, whole_days: Vec::new() }
    }

    /// The members in `from..until`.
    fn count(&mut self, from: DateTime, until: DateTime) -> u64 {
        if from >= until || self.calendars.is_empty() {
            return 0;
        }
        let before = |this: &Self, local: DateTime| this.members_before(this.active(local), local);
        if from.date() == until.date() {
            return before(self, until) - before(self, from);
        }
        let mut count = self.whole_day(self.active(from)) - before(self, from);
        let days = from.date().series(jiff::Span::new().days(1)).skip(1);
        for day in days.take_while(|day| *day < until.date()) {
            count += self.whole_day(self.active(day.at(0, 0, 0, 0)));
        }
        count + before(self, until)
    }

    /// The calendars that have this day, as bits.
    fn active(&self, local: DateTime) -> u64 {
        let numbered = self.calendars.iter().enumerate();
        numbered
            .fold(0, |bits, (n, calendar)| bits | u64::from(calendar.has_day(local.date())) << n)
    }

    fn whole_day(&mut self, active: u64) -> u64 {
        if let Some((_, members)) = self.whole_days.iter().find(|(known, _)| *known == active) {
            return *members;
        }
        let members = (0..24).map(|hour| self.members_of_hour(active, hour, 60)).sum();
        self.whole_days.push((active, members));
        members
    }

    /// The members of a day before this time of day.
    fn members_before(&self, active: u64, local: DateTime) -> u64 {
        let seconds = self.seconds(active, local.hour(), local.minute());
        let earlier = (1_u64 << local.second()) - 1;
        (0..local.hour()).map(|hour| self.members_of_hour(active, hour, 60)).sum::<u64>()
            + self.members_of_hour(active, local.hour(), local.minute())
            + ones(seconds & earlier)
    }

    /// The members of an hour before this minute.
    fn members_of_hour(&self, active: u64, hour: i8, before_minute: i8) -> u64 {
        // Most hours belong to no text.
        let active = self.only(active, |calendar| calendar.has_hour(hour));
        if active == 0 {
            return 0;
        }
        (0..before_minute).map(|minute| ones(self.seconds(active, hour, minute))).sum()
    }

    fn seconds(&self, active: u64, hour: i8, minute: i8) -> u64 {
        let numbered = self.calendars.iter().enumerate();
        let active = numbered.filter(|(n, _)| active & (1 << n) != 0);
        active.fold(0, |bits, (_, calendar)| bits | calendar.seconds_of(hour, minute))
    }

    /// Those of the active calendars of which this is true.
    fn only(&self, active: u64, is_so: impl Fn(&Calendar) -> bool) -> u64 {
        let numbered = self.calendars.iter().enumerate();
        let kept = numbered.filter(|(_, calendar)| is_so(calendar));
        kept.fold(0, |bits, (n, _)| bits | (active & (1 << n)))
    }
}
