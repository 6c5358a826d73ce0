//! Instants and lengths of time as the tables keep them.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::rfc3339;

/// `instant` as a column.
pub(super) fn text(instant: Timestamp) -> String {
    rfc3339(instant)
}

/// An instant out of a column.
pub(super) fn parse(text: &str) -> rusqlite::Result<Timestamp> {
    text.parse().map_err(|error: jiff::Error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
    })
}

/// Whole milliseconds from `start` to `end`; negative when the clock stepped back between them.
pub(super) fn millis_between(start: Timestamp, end: Timestamp) -> i64 {
    end.as_millisecond() - start.as_millisecond()
}

/// A length of time as a column.
pub(super) fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
