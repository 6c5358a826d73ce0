//! Days that depend on their month: `L`, `L-3`, `15W`, `LW`, `FRIL`, `FRI#2`.

use jiff::civil::Date;

use super::expr::CronError;
use super::unit::{Piece, Unit, WEEKDAYS, span_bits};

/// A day that no list of numbers can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DayRule {
    /// `L`, `L-3`: so many days before the last of the month.
    BeforeLast(i8),
    /// `15W`: Monday to Friday, as near to this day of the month as the month allows.
    NearestWorkday(i8),
    /// `LW`: the last Monday to Friday of the month.
    LastWorkday,
    /// `5L`: the last one of this weekday, Sunday is 0.
    Last(i8),
    /// `5#2`: the weekday, and which one of the month.
    Nth(i8, i8),
}

impl DayRule {
    /// The rule that an item stands for; `None` if it is no such item.
    pub(super) fn parse(unit: Unit, item: Piece<'_>) -> Result<Option<Self>, CronError> {
        let text = item.text.to_ascii_uppercase();
        let Some(form) = form(unit, &text) else { return Ok(None) };
        let rule = match unit {
            Unit::DayOfMonth => of_month(&text),
            Unit::DayOfWeek => of_week(&text),
            Unit::Second | Unit::Minute | Unit::Hour | Unit::Month => None,
        };
        if rule.is_some() {
            return Ok(rule);
        }
        let message = match out_of_range(unit, &text) {
            Some(what) => format!("{form} in the {} field as `{text}`: {what}", unit.name()),
            None => format!("{form} is not supported yet in the {} field as `{text}`", unit.name()),
        };
        let help = match unit {
            Unit::DayOfMonth => "known: `L`, `L-1` to `L-30`, `1W` to `31W`, `LW`",
            Unit::DayOfWeek => "known: `5L` or `FRIL` (the last Friday), `5#1` or `FRI#1` to `#5`",
            _ => "it belongs in the day of month or the day of week field",
        };
        Err(item.refused(unit, message, Some(help.to_owned())))
    }

    pub(super) fn has(self, date: Date) -> bool {
        match self {
            Self::BeforeLast(days) => date.day() == date.days_in_month() - days,
            Self::NearestWorkday(day) => {
                day <= date.days_in_month()
                    && date.with().day(day).build().is_ok_and(|day| nearest_workday(day) == date)
            }
            Self::LastWorkday => nearest_workday(date.last_of_month()) == date,
            Self::Last(weekday) => {
                weekday_of(date) == weekday && date.day() > date.days_in_month() - 7
            }
            Self::Nth(weekday, n) => weekday_of(date) == weekday && (date.day() + 6) / 7 == n,
        }
    }

    /// Days of month and weekdays, as bits, that hold every day of the rule: what is looked
    /// through for it.
    pub(super) fn candidates(self) -> (u64, u64) {
        let days = |from: i8, to: i8| {
            let bound = |day: i8| u32::try_from(day.clamp(1, 31)).expect("it is positive");
            span_bits(bound(from), bound(to), 1)
        };
        let every = Unit::DayOfWeek.full();
        match self {
            Self::BeforeLast(before) => (days(28 - before, 31 - before), every),
            Self::NearestWorkday(day) => (days(day - 2, day + 2), every),
            Self::LastWorkday => (days(26, 31), every),
            Self::Last(weekday) => (days(22, 31), 1 << weekday),
            Self::Nth(weekday, n) => (days(7 * n - 6, 7 * n), 1 << weekday),
        }
    }
}

/// Without leaving the month, which is why the first and the last of one differ.
fn nearest_workday(date: Date) -> Date {
    let moved = match weekday_of(date) {
        6 if date.day() == 1 => date.with().day(3),
        6 => date.with().day(date.day() - 1),
        0 if date.day() == date.days_in_month() => date.with().day(date.day() - 2),
        0 => date.with().day(date.day() + 1),
        _ => return date,
    };
    moved.build().expect("it stays in the month")
}

fn weekday_of(date: Date) -> i8 {
    date.weekday().to_sunday_zero_offset()
}

/// What a person calls an item of this kind, in any field.
fn form(unit: Unit, text: &str) -> Option<&'static str> {
    if unit.names().contains(&text) {
        return None;
    }
    let ends_in = |end: char| {
        text.strip_suffix(end).is_some_and(|rest| {
            rest.bytes().all(|byte| byte.is_ascii_digit()) || WEEKDAYS.contains(&rest)
        })
    };
    if text.contains('#') {
        Some("`#` (the n-th weekday of a month)")
    } else if text == "LW" || ends_in('W') {
        Some("`W` (the nearest weekday)")
    } else if ends_in('L') || text.starts_with("L-") {
        Some("`L` (the last one of a month)")
    } else {
        None
    }
}

fn of_month(text: &str) -> Option<DayRule> {
    if text == "L" {
        return Some(DayRule::BeforeLast(0));
    }
    if text == "LW" {
        return Some(DayRule::LastWorkday);
    }
    if let Some(before) = text.strip_prefix("L-") {
        return number(before, 1, 30).map(DayRule::BeforeLast);
    }
    number(text.strip_suffix('W')?, 1, 31).map(DayRule::NearestWorkday)
}

fn of_week(text: &str) -> Option<DayRule> {
    if let Some((day, n)) = text.split_once('#') {
        return Some(DayRule::Nth(weekday(day)?, number(n, 1, 5)?));
    }
    weekday(text.strip_suffix('L')?).map(DayRule::Last)
}

/// What of an item in its own field lies beyond what there is.
fn out_of_range(unit: Unit, text: &str) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    match unit {
        Unit::DayOfMonth => {
            if let Some(before) = text.strip_prefix("L-").filter(|it| is_number(it)) {
                return Some(format!(
                    "{before} is out of range, a month has 1 to 30 days before its last"
                ));
            }
            let day = text.strip_suffix('W').filter(|it| is_number(it))?;
            Some(format!("{day} is out of range, a day of a month is 1 to 31"))
        }
        Unit::DayOfWeek => {
            let (day, n) = text.split_once('#').or_else(|| Some((text.strip_suffix('L')?, "1")))?;
            if weekday(day).is_none() && is_number(day) {
                return Some(format!("{day} is out of range, a weekday is 0 to 7, or SUN to SAT"));
            }
            if day.contains(['-', ',', '*', '/']) {
                return Some(format!("`{day}` is not one weekday, and it takes just one"));
            }
            let is_far = weekday(day).is_some() && is_number(n) && number(n, 1, 5).is_none();
            is_far.then(|| format!("{n} is out of range, a weekday comes 1 to 5 times a month"))
        }
        Unit::Second | Unit::Minute | Unit::Hour | Unit::Month => None,
    }
}

fn weekday(text: &str) -> Option<i8> {
    match WEEKDAYS.iter().position(|name| *name == text) {
        Some(index) => i8::try_from(index).ok(),
        None => number(text, 0, 7).map(|day| day % 7),
    }
}

fn number(text: &str, min: i8, max: i8) -> Option<i8> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits)?;
    (min..=max).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;

    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        for (unit, text, words) in [
            (Unit::DayOfMonth, "32W", "32 is out of range, a day of a month is 1 to 31"),
            (Unit::DayOfMonth, "L-31", "31 is out of range, a month has 1 to 30 days"),
            (Unit::DayOfWeek, "FRI#6", "6 is out of range, a weekday comes 1 to 5 times a month"),
            (Unit::DayOfWeek, "8#2", "8 is out of range, a weekday is 0 to 7"),
            (Unit::DayOfWeek, "9L", "9 is out of range, a weekday is 0 to 7"),
            (Unit::DayOfWeek, "MON-FRI#2", "`MON-FRI` is not one weekday"),
        ] {
            let message = rule(unit, text).expect_err(text);
            assert!(message.contains(words), "{text}: {message}");
            assert!(!message.contains("not supported yet"), "{text}: {message}");
        }
    }

    fn rule(unit: Unit, text: &str) -> Result<Option<DayRule>, String> {
        DayRule::parse(unit, Piece { text, column: 1 }).map_err(|error| error.message)
    }

    #[test]
    fn items_are_read_in_the_field_that_they_belong_to() {
        use DayRule::{BeforeLast, Last, LastWorkday, NearestWorkday, Nth};
        for (unit, text, expected) in [
            (Unit::DayOfMonth, "L", Some(BeforeLast(0))),
            (Unit::DayOfMonth, "l-3", Some(BeforeLast(3))),
            (Unit::DayOfMonth, "LW", Some(LastWorkday)),
            (Unit::DayOfMonth, "15w", Some(NearestWorkday(15))),
            (Unit::DayOfWeek, "5L", Some(Last(5))),
            (Unit::DayOfWeek, "friL", Some(Last(5))),
            (Unit::DayOfWeek, "7L", Some(Last(0))),
            (Unit::DayOfWeek, "FRI#2", Some(Nth(5, 2))),
            (Unit::DayOfWeek, "0#5", Some(Nth(0, 5))),
            (Unit::DayOfWeek, "5", None),
            (Unit::DayOfMonth, "15", None),
            (Unit::Month, "JUL", None),
            (Unit::Month, "APR", None),
        ] {
            assert_eq!(rule(unit, text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_does_not_belong_is_refused_by_name() {
        for (unit, text, form) in [
            (Unit::DayOfWeek, "L", "`L`"),
            (Unit::DayOfWeek, "5W", "`W`"),
            (Unit::DayOfWeek, "LW", "`W`"),
            (Unit::DayOfWeek, "5#6", "`#`"),
            (Unit::DayOfWeek, "5#0", "`#`"),
            (Unit::DayOfWeek, "8#1", "`#`"),
            (Unit::DayOfWeek, "5#", "`#`"),
            (Unit::DayOfWeek, "5#+1", "`#`"),
            (Unit::DayOfMonth, "5L", "`L`"),
            (Unit::DayOfMonth, "L-31", "`L`"),
            (Unit::DayOfMonth, "L-0", "`L`"),
            (Unit::DayOfMonth, "L-3W", "`L`"),
            (Unit::DayOfMonth, "0W", "`W`"),
            (Unit::DayOfMonth, "32W", "`W`"),
            (Unit::DayOfMonth, "5#1", "`#`"),
            (Unit::Hour, "L", "`L`"),
        ] {
            let message = rule(unit, text).expect_err(text);
            assert!(message.starts_with(form), "{text}: {message}");
            let out_of_range = message.contains("out of range");
            assert_ne!(message.contains("not supported yet"), out_of_range, "{text}: {message}");
        }
    }

    /// Over ten years, against the definition in words.
    #[test]
    fn each_rule_is_its_definition() {
        let first = jiff::civil::date(2024, 1, 1);
        let workday = |date: &Date| (1..=5).contains(&weekday_of(*date));
        let last_day = |date: Date| date.tomorrow().unwrap().day() == 1;
        for date in first.series(1.day()).take(10 * 366) {
            let month: Vec<_> = date
                .first_of_month()
                .series(1.day())
                .take_while(|it| it.month() == date.month())
                .collect();
            assert_eq!(DayRule::BeforeLast(0).has(date), last_day(date), "{date}");
            assert_eq!(DayRule::BeforeLast(3).has(date), last_day(date + 3.days()), "{date}");
            let last_workday = month.iter().rfind(|it| workday(it)).copied();
            assert_eq!(DayRule::LastWorkday.has(date), last_workday == Some(date), "{date}");
            let fridays: Vec<_> = month.iter().filter(|it| weekday_of(**it) == 5).collect();
            assert_eq!(DayRule::Last(5).has(date), fridays.last() == Some(&&date), "{date}");
            assert_eq!(DayRule::Nth(5, 5).has(date), fridays.get(4) == Some(&&date), "{date}");
            for day in [1, 15, 30, 31] {
                let target = month.get(usize::try_from(day - 1).unwrap());
                let near = target.and_then(|target| {
                    let distance = |it: &&Date| (it.day() - target.day()).abs();
                    month.iter().filter(|it| workday(it)).min_by_key(distance)
                });
                assert_eq!(
                    DayRule::NearestWorkday(day).has(date),
                    near == Some(&date),
                    "{day} {date}"
                );
            }
            for rule in [
                DayRule::BeforeLast(0),
                DayRule::BeforeLast(30),
                DayRule::NearestWorkday(1),
                DayRule::NearestWorkday(31),
                DayRule::LastWorkday,
                DayRule::Last(0),
                DayRule::Nth(6, 1),
            ] {
                let (days, weekdays) = rule.candidates();
                let looked_at =
                    days & (1 << date.day()) != 0 && weekdays & (1 << weekday_of(date)) != 0;
                assert!(looked_at || !rule.has(date), "{rule:?} {date}");
            }
        }
    }
}
