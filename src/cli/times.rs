//! What a schedule says of one instant, and the zone in which it is shown.

use jiff::{SignedDuration, Timestamp};

use super::output::local;
use crate::clock::rfc3339;
use crate::config::Config;
use crate::job::ScheduleSpec;
use crate::schedule::{Schedule, Standing, Zone};

/// The zone in which a job's times are read and shown: its own, or the configuration's.
pub(super) fn zone_of<'a>(schedule: Option<&'a ScheduleSpec>, config: &'a Config) -> &'a Zone {
    schedule.map_or(&config.timezone, |it| &it.zone)
}

/// The last millisecond before `at`: instants are whole milliseconds everywhere.
pub(super) fn before(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_millis(1)).unwrap_or(at)
}

/// What `at` is in a schedule; `None`: the schedule does not name it.
pub(super) fn standing_at(schedule: &Schedule, at: Timestamp) -> Option<Standing> {
    let moment = schedule.next_moment(before(at)).filter(|moment| moment.at == at)?;
    Some(moment.standing)
}

/// The due times before and after `at`, for whoever named a time that is none.
pub(super) fn nearest_dues(schedule: &Schedule, at: Timestamp, zone: &Zone) -> String {
    let shown = |at: Timestamp| local(at, zone.rules());
    let earlier = schedule.prev_at_or_before(before(at)).map(shown);
    let later = schedule.next_after(at).map(|due| shown(due.at));
    match (earlier, later) {
        (Some(earlier), Some(later)) => {
            format!("the nearest are {earlier} before and {later} after it")
        }
        (Some(earlier), None) => format!("the last one before it is {earlier}"),
        (None, Some(later)) => format!("the first one after it is {later}"),
        (None, None) => "it is due at no time".to_owned(),
    }
}

/// What a clock change does to the moment `at`, in words.
pub(super) fn note_at(schedule: &Schedule, at: Timestamp) -> Option<String> {
    match standing_at(schedule, at)? {
        Standing::Due => {
            let due = schedule.next_after(before(at)).filter(|due| due.at == at)?;
            due.note.map(|note| note.to_string())
        }
        Standing::DstGap => Some("the local time before it does not exist on this day".into()),
        Standing::Excluded => None,
    }
}

/// [`rfc3339`] for fields that may be empty.
#[expect(clippy::ref_option, reason = "this is how a field is handed over")]
pub(super) fn serialize_instant<S: serde::Serializer>(
    instant: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match instant {
        Some(instant) => serializer.serialize_str(&rfc3339(*instant)),
        None => serializer.serialize_none(),
    }
}
