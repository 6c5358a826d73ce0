//! Ranges of dates, as a person lists them: `2026-12-24` or `2026-12-24..2027-01-02`.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

const DATE_CHARS: usize = "2026-12-24".len();

/// Dates from the first to the last, both of them included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DateRange {
    first: Date,
    last: Date,
}

/// Why a text is no range of dates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DateRangeError {
    /// A part of it is no date of the calendar.
    #[error("`{text}` is not a date (such as 2026-12-24, or 2026-12-24..2027-01-02)")]
    NotADate {
        /// What stands there.
        text: String,
    },
    /// Its end lies before its beginning.
    #[error("the range ends on {last}, before it begins on {first}")]
    Backwards {
        /// Where it begins.
        first: Date,
        /// Where it ends.
        last: Date,
    },
}

impl FromStr for DateRange {
    type Err = DateRangeError;

    fn from_str(text: &str) -> Result<Self, DateRangeError> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let (first, last) = (date(first)?, date(last)?);
        if last < first {
            return Err(DateRangeError::Backwards { first, last });
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for DateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}..{}", self.first, self.last)
    }
}

fn date(text: &str) -> Result<Date, DateRangeError> {
    let text = text.trim();
    let parsed = if text.len() == DATE_CHARS { text.parse().ok() } else { None };
    parsed.ok_or_else(|| DateRangeError::NotADate {
        text: text.chars().take(4 * DATE_CHARS).collect(),
    })
}

/// The same dates as alternating edges: the first date within, the first date beyond, and so on.
/// Ranges that overlap or touch have become one; the last edge is missing if time has no date
/// beyond it.
pub(super) fn edges(ranges: impl IntoIterator<Item = DateRange>) -> Vec<Date> {
    let mut ranges: Vec<_> = ranges.into_iter().collect();
    ranges.sort_unstable();
    let mut edges: Vec<Date> = Vec::with_capacity(2 * ranges.len());
    for DateRange { first, last } in ranges {
        let beyond = last.tomorrow().ok();
        match edges.as_slice() {
            // The last range never ends.
            [.., _] if edges.len() % 2 == 1 => break,
            [.., end] if *end >= first => {
                let end = beyond.map(|beyond| beyond.max(*end));
                edges.pop();
                edges.extend(end);
            }
            _ => {
                edges.push(first);
                edges.extend(beyond);
            }
        }
    }
    edges
}

/// The ranges between alternating edges.
pub(super) fn ranges(edges: &[Date]) -> impl Iterator<Item = DateRange> {
    edges.chunks(2).map(|pair| {
        let beyond = pair.get(1).and_then(|beyond| beyond.yesterday().ok());
        DateRange { first: pair[0], last: beyond.unwrap_or(Date::MAX) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(texts: &[&str]) -> String {
        let edges = edges(texts.iter().map(|text| text.parse::<DateRange>().unwrap()));
        ranges(&edges).map(|range| range.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_one() {
        for (texts, expected) in [
            (&["2026-12-24"][..], "2026-12-24"),
            (&["2026-12-25", "2026-12-24"], "2026-12-24..2026-12-25"),
            (&["2026-12-24..2027-01-02", "2026-12-26"], "2026-12-24..2027-01-02"),
            (&["2026-01-01", "2026-01-03"], "2026-01-01 2026-01-03"),
            (&["2026-01-01 .. 2026-01-01", "2026-01-01"], "2026-01-01"),
            (
                &["2026-01-01..9999-12-31", "2030-01-01", "2025-12-30"],
                "2025-12-30 2026-01-01..9999-12-31",
            ),
        ] {
            assert_eq!(merged(texts), expected, "{texts:?}");
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for (text, part) in [
            ("", "`` is not a date"),
            ("2026-02-30", "`2026-02-30` is not a date"),
            ("2026-1-1", "is not a date"),
            ("2026-01-01..", "`` is not a date"),
            ("2026-01-01...2026-01-02", "is not a date"),
            ("2026-01-01-2026-01-02", "is not a date"),
            ("2026-01-02..2026-01-01", "ends on 2026-01-01, before it begins on 2026-01-02"),
        ] {
            let error = text.parse::<DateRange>().expect_err(text);
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }
}
