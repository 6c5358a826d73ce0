//! The set of local times that an expression names, without any zone.
//!
//! Two views of one set. The `cron` crate finds the next and the previous member; it is fed local
//! wall time as if it were UTC, so that neither a zone nor a clock change ever reaches it. The
//! bits of the fields count members without visiting them.
//!
//! The crate knows the years 1970 to 2100. A year outside is looked up in a *twin* within: the
//! calendar of a year depends only on its first weekday and on whether it is a leap year.

use chrono::{DateTime as ChronoTime, Datelike as _, NaiveDate, Timelike as _, Utc};
use jiff::civil::{Date, DateTime};

use super::day_rule::DayRule;
use super::field::Field;
use super::unit::{Unit, WEEKDAYS};

/// The years that are asked of the engine directly.
const ENGINE_YEARS: std::ops::RangeInclusive<i16> = 1971..=2099;

/// How far a search goes outside of those. Any possible date recurs within 40 years: 29 February
/// on one weekday is the rarest, across a century that is no leap year.
const SEARCH_YEARS_MAX: i16 = 44;

/// How the two day fields combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DayJoin {
    /// A day must match both: one of them starts with `*`.
    Both,
    /// A day must match one of them.
    Either,
}

/// Local times as sets of field values.
#[derive(Debug)]
pub(super) struct Calendar {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days_of_month: u64,
    months: u64,
    days_of_week: u64,
    /// Days that depend on their month, beside `days_of_month` and `days_of_week`.
    rules_of_month: Vec<DayRule>,
    rules_of_week: Vec<DayRule>,
    join: DayJoin,
    /// Expressions whose union counts; with rules it holds days too many, which are passed over.
    engines: Vec<cron::Schedule>,
}

impl Calendar {
    /// The set of six fields, or `None` if no date is in it.
    pub(super) fn new(fields: &[Field; 6]) -> Option<Self> {
        let bits = fields.each_ref().map(|field| field.bits);
        let [seconds, minutes, hours, days_of_month, months, days_of_week] = bits;
        let starred = fields[3].starred || fields[5].starred;
        let join = if starred { DayJoin::Both } else { DayJoin::Either };
        let mut set = Self {
            seconds,
            minutes,
            hours,
            days_of_month,
            months,
            days_of_week,
            rules_of_month: fields[3].rules.clone(),
            rules_of_week: fields[5].rules.clone(),
            join,
            engines: Vec::new(),
        };
        set.engines = set.day_pairs().map(|(days, weekdays)| set.engine(days, weekdays)).collect();
        (!set.engines.is_empty() && set.names_some_date()).then_some(set)
    }

    /// Pairs of days of month and weekdays that together hold every day of the set.
    fn day_pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        let (every_day, every_weekday) = (Unit::DayOfMonth.full(), Unit::DayOfWeek.full());
        let of_rules =
            |rules: &[DayRule]| rules.iter().map(|it| it.candidates()).collect::<Vec<_>>();
        let mut of_month = of_rules(&self.rules_of_month);
        of_month.push((self.days_of_month, every_weekday));
        let mut of_week = of_rules(&self.rules_of_week);
        of_week.push((every_day, self.days_of_week));
        let pairs = match self.join {
            DayJoin::Either => of_month.into_iter().chain(of_week).collect(),
            DayJoin::Both => {
                let with_each = |&(days, weekdays): &(u64, u64)| {
                    let of_week = of_week.iter();
                    of_week
                        .map(move |other| (days & other.0, weekdays & other.1))
                        .collect::<Vec<_>>()
                };
                of_month.iter().flat_map(with_each).collect::<Vec<_>>()
            }
        };
        pairs.into_iter().filter(|(days, weekdays)| *weekdays != 0 && self.some_month_has(*days))
    }

    /// Whether any year has a day of the set. Only rules can make that a question that the
    /// lengths of the months do not answer.
    fn names_some_date(&self) -> bool {
        if self.rules_of_month.is_empty() && self.rules_of_week.is_empty() {
            return true;
        }
        // Twenty-eight years without a skipped leap year show every shape of a year.
        let first = Date::constant(1972, 1, 1);
        let mut days = first.series(jiff::Span::new().days(1)).take_while(|day| day.year() < 2000);
        days.any(|date| self.has_day(date))
    }

    /// How the day fields combine.
    pub(super) fn join(&self) -> DayJoin {
        self.join
    }

    /// Whether the day of month field alone can be met.
    pub(super) fn some_month_has_the_day(&self) -> bool {
        !self.rules_of_month.is_empty() || self.some_month_has(self.days_of_month)
    }

    /// Whether a chosen month, in a leap year, is long enough for one of these days. Every date
    /// falls on every weekday in some year, so weekdays make nothing impossible.
    fn some_month_has(&self, days_of_month: u64) -> bool {
        let first_day = days_of_month.trailing_zeros();
        (1..=12).any(|month| {
            let length = match month {
                2 => 29,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            has(self.months, month) && first_day <= length
        })
    }

    fn engine(&self, days_of_month: u64, days_of_week: u64) -> cron::Schedule {
        let fields = [
            (Unit::Second, self.seconds),
            (Unit::Minute, self.minutes),
            (Unit::Hour, self.hours),
            (Unit::DayOfMonth, days_of_month),
            (Unit::Month, self.months),
            (Unit::DayOfWeek, days_of_week),
        ];
        let text = fields.map(|(unit, bits)| engine_text(unit, bits)).join(" ");
        text.parse().expect("lists of values in range are the engine's simplest form")
    }

    /// The earliest member at or after `from`.
    pub(super) fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let last_year = from.year().saturating_add(SEARCH_YEARS_MAX);
        let mut from = from;
        loop {
            let found = self.engines.iter().filter_map(|engine| first_in(engine, from)).min()?;
            if self.has_day(found.date()) {
                return Some(found);
            }
            let tomorrow = found.date().tomorrow().ok()?;
            from = (tomorrow.year() <= last_year).then(|| tomorrow.at(0, 0, 0, 0))?;
        }
    }

    /// The latest member at or before `until`.
    pub(super) fn last_until(&self, until: DateTime) -> Option<DateTime> {
        let first_year = until.year().saturating_sub(SEARCH_YEARS_MAX);
        let mut until = until;
        loop {
            let found = self.engines.iter().filter_map(|engine| last_in(engine, until)).max()?;
            if self.has_day(found.date()) {
                return Some(found);
            }
            let yesterday = found.date().yesterday().ok()?;
            until = (yesterday.year() >= first_year).then(|| yesterday.at(23, 59, 59, 0))?;
        }
    }

    /// Whether `local` (whole seconds) is a member.
    pub(super) fn contains(&self, local: DateTime) -> bool {
        self.has_day(local.date())
            && has(self.hours, local.hour())
            && has(self.minutes, local.minute())
            && has(self.seconds, local.second())
    }

    /// The number of members in `from..until`, by arithmetic on each day.
    pub(super) fn count(&self, from: DateTime, until: DateTime) -> u64 {
        if from >= until {
            return 0;
        }
        let on = |date: Date, members: u64| if self.has_day(date) { members } else { 0 };
        if from.date() == until.date() {
            return on(from.date(), self.members_before(until) - self.members_before(from));
        }
        let in_a_day = ones(self.hours) * ones(self.minutes) * ones(self.seconds);
        let whole = from.date().series(jiff::Span::new().days(1)).skip(1);
        let days = whole.take_while(|date| *date < until.date());
        on(from.date(), in_a_day - self.members_before(from))
            + days.map(|date| on(date, in_a_day)).sum::<u64>()
            + on(until.date(), self.members_before(until))
    }

    /// The members of a day before this time of day, if the day matches.
    fn members_before(&self, local: DateTime) -> u64 {
        let below = |bits: u64, value: i8| ones(bits & ((1 << value) - 1));
        let mut members = below(self.hours, local.hour()) * ones(self.minutes) * ones(self.seconds);
        if has(self.hours, local.hour()) {
            members += below(self.minutes, local.minute()) * ones(self.seconds);
            if has(self.minutes, local.minute()) {
                members += below(self.seconds, local.second());
            }
        }
        members
    }

    /// Whether any time of this hour is a member of a matching day.
    pub(super) fn has_hour(&self, hour: i8) -> bool {
        has(self.hours, hour)
    }

    /// The seconds of this minute that are members of a matching day.
    pub(super) fn seconds_of(&self, hour: i8, minute: i8) -> u64 {
        if has(self.hours, hour) && has(self.minutes, minute) { self.seconds } else { 0 }
    }

    pub(super) fn has_day(&self, date: Date) -> bool {
        let one_of = |rules: &[DayRule]| rules.iter().any(|rule| rule.has(date));
        let of_month = has(self.days_of_month, date.day()) || one_of(&self.rules_of_month);
        let of_week = has(self.days_of_week, date.weekday().to_sunday_zero_offset())
            || one_of(&self.rules_of_week);
        let day = match self.join {
            DayJoin::Both => of_month && of_week,
            DayJoin::Either => of_month || of_week,
        };
        day && has(self.months, date.month())
    }
}

const fn has(bits: u64, value: i8) -> bool {
    bits & (1 << value) != 0
}

pub(super) const fn ones(bits: u64) -> u64 {
    bits.count_ones() as u64
}

/// A field as the engine reads it: all, or a plain list, with weekdays by name.
fn engine_text(unit: Unit, bits: u64) -> String {
    if bits == unit.full() {
        return "*".to_owned();
    }
    let values = (unit.min()..=unit.max()).filter(|value| bits & (1 << value) != 0);
    let word = |value: u32| match unit {
        Unit::DayOfWeek => WEEKDAYS[value as usize].to_owned(),
        _ => value.to_string(),
    };
    values.map(word).collect::<Vec<_>>().join(",")
}

fn first_in(engine: &cron::Schedule, from: DateTime) -> Option<DateTime> {
    let mut from = from;
    let last_year = from.year().max(*ENGINE_YEARS.end()).saturating_add(SEARCH_YEARS_MAX);
    while from.year() <= last_year {
        let asked = twin(from.year());
        let direct = asked == from.year();
        let after = to_engine(from, asked)? - chrono::Duration::seconds(1);
        let found = engine.after(&after).next().and_then(from_engine);
        match found {
            Some(local) if direct && local.year() <= *ENGINE_YEARS.end() => return Some(local),
            Some(local) if local.year() == asked => return in_year(local, from.year()),
            _ if direct => from = first_of(ENGINE_YEARS.end() + 1)?,
            _ => from = first_of(from.year().checked_add(1)?)?,
        }
    }
    None
}

fn last_in(engine: &cron::Schedule, until: DateTime) -> Option<DateTime> {
    let mut until = until;
    let first_year = until.year().min(*ENGINE_YEARS.start()).saturating_sub(SEARCH_YEARS_MAX);
    while until.year() >= first_year {
        let asked = twin(until.year());
        let direct = asked == until.year();
        let before = to_engine(until, asked)? + chrono::Duration::seconds(1);
        let found = engine.after(&before).next_back().and_then(from_engine);
        match found {
            Some(local) if direct && local.year() >= *ENGINE_YEARS.start() => return Some(local),
            Some(local) if local.year() == asked => return in_year(local, until.year()),
            _ if direct => until = last_of(ENGINE_YEARS.start() - 1)?,
            _ => until = last_of(until.year().checked_sub(1)?)?,
        }
    }
    None
}

/// The year itself if the engine knows it, else one with the same calendar.
fn twin(year: i16) -> i16 {
    if ENGINE_YEARS.contains(&year) {
        return year;
    }
    let first = |year: i16| Date::new(year, 1, 1).expect("a year of a valid date");
    let shape = |date: Date| (date.weekday(), date.in_leap_year());
    // Twenty-eight years without a skipped leap year show every shape.
    let mut candidates = 1972..2000;
    candidates
        .find(|candidate| shape(first(*candidate)) == shape(first(year)))
        .expect("28 years in a row have all fourteen shapes")
}

fn first_of(year: i16) -> Option<DateTime> {
    DateTime::new(year, 1, 1, 0, 0, 0, 0).ok()
}

fn last_of(year: i16) -> Option<DateTime> {
    DateTime::new(year, 12, 31, 23, 59, 59, 0).ok()
}

fn in_year(local: DateTime, year: i16) -> Option<DateTime> {
    local.with().year(year).build().ok()
}

fn to_engine(local: DateTime, year: i16) -> Option<ChronoTime<Utc>> {
    let part = |value: i8| u32::try_from(value).ok();
    let date = NaiveDate::from_ymd_opt(year.into(), part(local.month())?, part(local.day())?)?;
    let (hour, minute, second) =
        (part(local.hour())?, part(local.minute())?, part(local.second())?);
    Some(date.and_hms_opt(hour, minute, second)?.and_utc())
}

fn from_engine(time: ChronoTime<Utc>) -> Option<DateTime> {
    let part = |value: u32| i8::try_from(value).ok();
    DateTime::new(
        i16::try_from(time.year()).ok()?,
        part(time.month())?,
        part(time.day())?,
        part(time.hour())?,
        part(time.minute())?,
        part(time.second())?,
        0,
    )
    .ok()
}
