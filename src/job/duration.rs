//! Durations as people write them: `90s`, `2h 30m`, up to weeks.

use std::time::Duration;

/// Longer than this is a slip of the hand, not a limit.
const LONGEST: Duration = Duration::from_hours(3650 * 24);

/// Reads a duration, or says what is wrong with it.
///
/// The library's own reading is wider: it takes a bare `0`, months and years, and `M` for a month,
/// which in this place always means that somebody meant minutes.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err("a duration cannot be empty".to_owned());
    }
    if trimmed.starts_with('-') {
        return Err(format!("`{text}` is negative: a duration cannot be"));
    }
    if !trimmed.contains(char::is_alphabetic) {
        return Err(format!(
            "`{text}` has no unit: write `{trimmed}s`, `{trimmed}m` or `{trimmed}h`"
        ));
    }
    if let Some(unit) = calendar_unit(trimmed) {
        return Err(match unit {
            "M" => format!("`{text}`: `M` is not a unit, minutes are written `m`"),
            _ => format!(
                "`{text}`: a month or a year has no fixed length; the largest unit is weeks"
            ),
        });
    }
    let duration = humantime::parse_duration(trimmed)
        .map_err(|error| format!("`{text}` is not a duration: {error}"))?;
    if duration > LONGEST {
        return Err(format!("`{text}` is longer than ten years"));
    }
    if !duration.is_zero() && duration < Duration::from_millis(1) {
        return Err(format!("`{text}` is shorter than a millisecond"));
    }
    Ok(duration)
}

fn calendar_unit(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_alphabetic())
        .find(|unit| matches!(*unit, "M" | "y" | "yr" | "yrs") || is_long_unit(unit))
}

fn is_long_unit(unit: &str) -> bool {
    unit.starts_with("month") || unit.starts_with("year")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_units_of_fixed_length_are_read() {
        for (text, seconds) in
            [("90s", 90), ("2h 30m", 9000), ("1w", 604_800), ("2d12h", 216_000), ("0s", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("300ms"), Ok(Duration::from_millis(300)));
        for text in [
            "",
            " ",
            "0",
            "300",
            "-1",
            "-5m",
            "90x",
            "5M",
            "1month",
            "2 months",
            "1y",
            "3years",
            "NaN",
            "1e12",
            "1e12s",
            "99999999999999999999s",
            "600w",
            "5 m s",
            "1us",
            "∞",
            "5.m",
        ] {
            assert!(parse_duration(text).is_err(), "{text:?} gave {:?}", parse_duration(text));
        }
    }
}
