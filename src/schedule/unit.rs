//! The six fields of a cron expression: their ranges, their names, and pieces of their text.

use super::expr::CronError;

/// Which field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Second,
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
}

const MONTHS: &[&str] =
    &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

/// From Sunday, which is 0: the Unix numbering. The engine counts otherwise and is given names.
pub(super) const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Unit {
    /// The fields of an expression with seconds, in their order.
    pub(super) const ALL: [Self; 6] =
        [Self::Second, Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::DayOfWeek];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        }
    }

    pub(super) const fn min(self) -> u32 {
        match self {
            Self::DayOfMonth | Self::Month => 1,
            _ => 0,
        }
    }

    /// The largest distinct value; a weekday may also be written 7.
    pub(super) const fn max(self) -> u32 {
        match self {
            Self::Second | Self::Minute => 59,
            Self::Hour => 23,
            Self::DayOfMonth => 31,
            Self::Month => 12,
            Self::DayOfWeek => 6,
        }
    }

    /// The largest that may be written.
    pub(super) const fn written_max(self) -> u32 {
        match self {
            Self::DayOfWeek => 7,
            _ => self.max(),
        }
    }

    /// Words for its values, from the smallest.
    pub(super) const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Month => MONTHS,
            Self::DayOfWeek => WEEKDAYS,
            _ => &[],
        }
    }

    /// The bits of every value.
    pub(super) const fn full(self) -> u64 {
        span_bits(self.min(), self.max(), 1)
    }

    /// What to write, for the help line.
    pub(super) fn expected(self) -> String {
        let numbers = format!("{} is {}-{}", self.name(), self.min(), self.written_max());
        match self.names() {
            [first, .., last] => format!("{numbers}, or {first}-{last}"),
            _ => numbers,
        }
    }
}

/// A part of the expression and where it starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub text: &'a str,
    /// From 1.
    pub column: usize,
}

impl<'a> Piece<'a> {
    /// The parts between `by`, each with its own column.
    pub(super) fn split(self, by: char) -> impl Iterator<Item = Piece<'a>> {
        let mut column = self.column;
        self.text.split(by).map(move |text| {
            let piece = Piece { text, column };
            column += text.len() + 1;
            piece
        })
    }

    pub(super) fn split_once(self, by: char) -> Option<(Piece<'a>, Piece<'a>)> {
        let (left, right) = self.text.split_once(by)?;
        let column = self.column + left.len() + 1;
        Some((Piece { text: left, ..self }, Piece { text: right, column }))
    }

    pub(super) fn refused(self, unit: Unit, message: String, help: Option<String>) -> CronError {
        CronError { column: self.column, field: Some(unit.name()), message, help }
    }
}

/// The bits of `from`, `from + step`, … up to `to`.
pub(super) const fn span_bits(from: u32, to: u32, step: u32) -> u64 {
    let mut bits = 0;
    let mut value = from;
    while value <= to {
        bits |= 1 << value;
        value += step;
    }
    bits
}
