//! Times as people say them: in 2 h, 3 min ago.

use jiff::Timestamp;

/// Where `at` lies from `now`, in one unit.
pub(super) fn relative(at: Timestamp, now: Timestamp) -> String {
    let away = at.duration_since(now);
    let length = in_one_unit(away.unsigned_abs().as_secs());
    match away.as_secs() {
        0 => "now".into(),
        1.. => format!("in {length}"),
        _ => format!("{length} ago"),
    }
}

/// The same of a stored instant; as it is, if it is none.
pub(super) fn relative_to(text: &str, now: Timestamp) -> String {
    text.parse().map_or_else(|_| text.to_owned(), |at| relative(at, now))
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Two of a unit say less than a hundred of the smaller one, but for hours.
fn in_one_unit(seconds: u64) -> String {
    match seconds {
        0..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR.. if seconds < 2 * DAY => format!("{} h", seconds / HOUR),
        _ => format!("{} days", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn one_unit_is_enough() {
        let now: Timestamp = "2026-11-30T09:00:00Z".parse().unwrap();
        let said = |seconds| relative(now + SignedDuration::from_secs(seconds), now);
        let cases = [0, 1, 59, 60, 3599, 7200, 2 * 86_400 - 1, 2 * 86_400, 400 * 86_400, -1, -180];
        let expected = [
            "now",
            "in 1 s",
            "in 59 s",
            "in 1 min",
            "in 59 min",
            "in 2 h",
            "in 47 h",
            "in 2 days",
            "in 400 days",
            "1 s ago",
            "3 min ago",
        ];
        assert_eq!(cases.map(said), expected);
    }
}
