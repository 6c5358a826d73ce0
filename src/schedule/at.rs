//! `at = "…"`, and the bounds: one instant, with an offset or as a local time of a zone.

use jiff::civil::{Date, DateTime};
use jiff::tz::AmbiguousOffset;
use jiff::{SignedDuration, Timestamp};

use super::zone::Zone;
use crate::clock::to_millis;

/// Why a text is not an instant.
#[derive(Debug, thiserror::Error)]
pub enum AtError {
    /// Not a date and a time.
    #[error("`{text}` is not a date and time (such as 2027-01-01T09:00, or with an offset)")]
    Malformed {
        /// What was written.
        text: String,
        /// What is wrong with it.
        source: Option<jiff::Error>,
    },
    /// A date alone does not say when.
    #[error("`{text}` has no time of day (write {text}T09:00)")]
    DateOnly {
        /// What was written.
        text: String,
    },
    /// No place on earth is so far from Greenwich.
    #[error("`{text}` has an offset beyond 23:59")]
    FarOffset {
        /// What was written.
        text: String,
    },
    /// A zone in brackets would contradict the zone beside it.
    #[error("`{text}` carries a zone in brackets (write it as `timezone`)")]
    Bracketed {
        /// What was written.
        text: String,
    },
}

/// The longest form has an offset and nanoseconds.
const TEXT_CHARS_MAX: usize = 40;

/// Reads RFC 3339 with an offset, or a local time in `zone`, to the millisecond.
///
/// A local time that a clock change jumps over is the first instant after the gap; one that comes
/// twice is its first pass.
pub fn parse_at(text: &str, zone: &Zone) -> Result<Timestamp, AtError> {
    let text = text.trim();
    let shown: String = text.chars().take(TEXT_CHARS_MAX).collect();
    if shown.len() < text.len() || !text.is_ascii() || text.len() < "2027-01-01".len() {
        return Err(AtError::Malformed { text: shown, source: None });
    }
    if text.contains('[') {
        return Err(AtError::Bracketed { text: shown });
    }
    let (date, rest) = text.split_at("2027-01-01".len());
    if rest.is_empty() {
        let parsed = date.parse::<jiff::civil::Date>();
        parsed.map_err(|source| AtError::Malformed { text: shown, source: Some(source) })?;
        return Err(AtError::DateOnly { text: date.to_owned() });
    }
    let malformed = |source| AtError::Malformed { text: shown.clone(), source };
    if !rest.starts_with(['T', 't', ' ']) {
        return Err(malformed(None));
    }
    if let Some((_, offset)) = rest.split_once(['+', '-'])
        && offset.get(..2).and_then(|hours| hours.parse::<u8>().ok()).is_some_and(|it| it > 23)
    {
        return Err(AtError::FarOffset { text: shown });
    }
    let instant = if rest.contains(['Z', 'z', '+', '-']) {
        text.parse::<Timestamp>()
    } else {
        text.parse::<DateTime>().and_then(|local| first_instant(zone, local))
    };
    instant.map(to_millis).map_err(|source| malformed(Some(source)))
}

/// Whether a text that [`parse_at`] reads is a local time that a clock change of `zone` jumps over.
pub fn is_in_gap(text: &str, zone: &Zone) -> bool {
    let text = text.trim();
    let is_local =
        text.get("2027-01-01".len()..).is_some_and(|rest| !rest.contains(['Z', 'z', '+', '-']));
    let local = text.parse::<DateTime>().ok().filter(|_| is_local);
    let offset = local.map(|local| zone.rules().to_ambiguous_timestamp(local).offset());
    matches!(offset, Some(AmbiguousOffset::Gap { .. }))
}

/// Reads the first instant of a schedule: as [`parse_at`], or a date, which stands for its first
/// instant in `zone`.
pub fn parse_start(text: &str, zone: &Zone) -> Result<Timestamp, AtError> {
    match parse_at(text, zone) {
        Err(AtError::DateOnly { text }) => parse_at(&format!("{text}T00:00"), zone),
        result => result,
    }
}

/// Reads the last instant of a schedule: as [`parse_at`], or a date, which stands for its last
/// instant in `zone`, so that the whole day belongs to the schedule.
pub fn parse_end(text: &str, zone: &Zone) -> Result<Timestamp, AtError> {
    let text = match parse_at(text, zone) {
        Err(AtError::DateOnly { text }) => text,
        result => return result,
    };
    let date: Option<Date> = text.parse().ok();
    let Some(beyond) = date.and_then(|date| date.tomorrow().ok()) else {
        return Ok(Timestamp::MAX);
    };
    let beyond = beyond.at(0, 0, 0, 0);
    let next = match zone.rules().to_ambiguous_timestamp(beyond).offset() {
        // Where the clock is put back across midnight, the day ends at the second one.
        AmbiguousOffset::Fold { after, .. } => after.to_timestamp(beyond),
        _ => first_instant(zone, beyond),
    };
    let malformed = |source| AtError::Malformed { text, source: Some(source) };
    let next = to_millis(next.map_err(malformed)?);
    Ok(next.checked_sub(SignedDuration::from_millis(1)).unwrap_or(next))
}

fn first_instant(zone: &Zone, local: DateTime) -> Result<Timestamp, jiff::Error> {
    let rules = zone.rules();
    match rules.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local),
        AmbiguousOffset::Gap { after, .. } => {
            // With the offset that holds after the change, the instant lies before it.
            let early = after.to_timestamp(local)?;
            let within = early.checked_sub(SignedDuration::from_nanos(1))?;
            let change = rules.following(within).next();
            Ok(change.map_or(early, |change| change.timestamp()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ZoneChoice, Zones};

    fn parsed(text: &str, zone: &str) -> Result<String, String> {
        let zone = Zones::open(ZoneChoice::Bundled).unwrap().get(zone).unwrap();
        parse_at(text, &zone).map(|at| at.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn instants_are_read_with_an_offset_or_in_the_zone() {
        for (text, zone, expected) in [
            ("2027-01-01T09:00", "Europe/Berlin", "2027-01-01T08:00:00Z"),
            ("2027-01-01 09:00:30", "Europe/Berlin", "2027-01-01T08:00:30Z"),
            ("2027-01-01T09:00Z", "Europe/Berlin", "2027-01-01T09:00:00Z"),
            ("2027-01-01T09:00:00.1239-05:00", "Europe/Berlin", "2027-01-01T14:00:00.123Z"),
            ("2027-01-01 09:00:00+05:30", "UTC", "2027-01-01T03:30:00Z"),
            ("2026-03-08T02:30", "America/New_York", "2026-03-08T07:00:00Z"),
            ("2026-03-08T02:00", "America/New_York", "2026-03-08T07:00:00Z"),
            ("2026-11-01T01:30", "America/New_York", "2026-11-01T05:30:00Z"),
            ("2011-12-30T12:00", "Pacific/Apia", "2011-12-30T10:00:00Z"),
            ("2026-10-04T02:15", "Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
        ] {
            assert_eq!(parsed(text, zone).as_deref(), Ok(expected), "{text} {zone}");
        }
    }

    #[test]
    fn a_bound_may_be_a_date_whose_whole_day_belongs_to_it() {
        let zones = Zones::open(ZoneChoice::Bundled).unwrap();
        for (text, zone, start, end) in [
            ("2026-12-01", "Europe/Berlin", "2026-11-30T23:00:00Z", "2026-12-01T22:59:59.999Z"),
            ("2026-12-01T09:00", "Europe/Berlin", "2026-12-01T08:00:00Z", "2026-12-01T08:00:00Z"),
            ("2026-12-01T09:00Z", "Europe/Berlin", "2026-12-01T09:00:00Z", "2026-12-01T09:00:00Z"),
            // No midnight: the day begins at 01:00.
            ("2026-09-06", "America/Santiago", "2026-09-06T04:00:00Z", "2026-09-07T02:59:59.999Z"),
            ("2026-09-05", "America/Santiago", "2026-09-05T04:00:00Z", "2026-09-06T03:59:59.999Z"),
            // The clock went back from 00:01 to 23:01.
            ("2006-10-28", "America/St_Johns", "2006-10-28T02:30:00Z", "2006-10-29T03:29:59.999Z"),
        ] {
            let zone = zones.get(zone).unwrap();
            let shown = |instant: Result<Timestamp, AtError>| instant.unwrap().to_string();
            assert_eq!(shown(parse_start(text, &zone)), start, "{text}");
            assert_eq!(shown(parse_end(text, &zone)), end, "{text}");
        }
        assert!(parse_start("2026-02-30", &Zone::utc()).is_err());
        assert!(parse_end("soon", &Zone::utc()).is_err());
        assert!(parse_end("9999-12-31", &Zone::utc()).is_ok());
    }

    #[test]
    fn local_times_that_do_not_exist_are_found() {
        let zone = Zones::open(ZoneChoice::Bundled).unwrap().get("Europe/Berlin").unwrap();
        for (text, expected) in [
            ("2027-03-28T02:30", true),
            (" 2027-03-28 02:00:00 ", true),
            ("2027-03-28T03:00", false),
            ("2027-03-28T02:30Z", false),
            ("2027-03-28T02:30+01:00", false),
            ("2027-10-31T02:30", false),
            ("soon", false),
        ] {
            assert_eq!(is_in_gap(text, &zone), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_an_instant_is_refused() {
        for (text, part) in [
            ("", "is not a date and time"),
            ("tomorrow", "is not a date and time"),
            ("2027-02-30T09:00", "is not a date and time"),
            ("2027-02-30", "is not a date and time"),
            ("2027-01-01T25:00", "is not a date and time"),
            ("2027-01-01X09:00", "is not a date and time"),
            ("2027-01-01T09:00 5", "is not a date and time"),
            ("2027-01-01T09:00+99:00", "has an offset beyond 23:59"),
            ("2027-01-01T09:00-24:00", "has an offset beyond 23:59"),
            ("2027-01-01T09:00+2530", "has an offset beyond 23:59"),
            ("2027-01-01", "has no time of day"),
            ("2027-01-01T09:00[Europe/Berlin]", "carries a zone in brackets"),
            ("2027-01-01T09:00:00.000000000000000000000000000Z", "is not a date and time"),
            ("２０２７-01-01T09:00", "is not a date and time"),
        ] {
            let error = parsed(text, "UTC").expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
