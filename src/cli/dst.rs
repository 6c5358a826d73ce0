//! Which clock changes hit which jobs.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::output::local;
use super::times::{before, note_at};
use crate::clock::serialize_rfc3339;
use crate::job::JobId;
use crate::schedule::{Schedule, Zone};

/// A moment of a job that a clock change moves, doubles or takes away.
#[derive(Debug, Serialize)]
pub(super) struct Hit {
    pub(super) job: JobId,
    #[serde(serialize_with = "serialize_rfc3339")]
    pub(super) at: Timestamp,
    pub(super) local: String,
    pub(super) note: String,
}

/// A job that is due each minute of a doubled hour is hit in the same way each time.
const HITS_PER_CHANGE_MAX: usize = 5;

/// Moments of one schedule near one clock change that are looked at: one a second for an hour and
/// a half on both sides.
const MOMENTS_MAX: usize = 10_000;

/// What clock changes between two instants do to a job.
pub(super) fn hits(
    job: &JobId,
    schedule: &Schedule,
    from: Timestamp,
    until: Timestamp,
) -> Vec<Hit> {
    let Some(zone) = schedule.zone() else { return Vec::new() };
    let changes = zone.rules().following(from).map(|change| change.timestamp());
    let near = changes.take_while(|at| *at < until).flat_map(|at| near(schedule, zone, at));
    let hit = |(at, note)| Hit { job: job.clone(), at, local: local(at, zone.rules()), note };
    near.filter(|(at, _)| *at > from).map(hit).collect()
}

/// The moments that have something to do with the change `at`: local times come again, or are
/// jumped over, no further from it than it moves the clock.
fn near(schedule: &Schedule, zone: &Zone, at: Timestamp) -> Vec<(Timestamp, String)> {
    let offset = |at| SignedDuration::from_secs(zone.rules().to_offset(at).seconds().into());
    let moved = (offset(at) - offset(before(at))).abs();
    let (first, last) = (before(at - moved), at + moved);
    let next = |it: &crate::schedule::Moment| schedule.next_moment(it.at);
    std::iter::successors(schedule.next_moment(first), next)
        .take_while(|moment| moment.at <= last)
        .take(MOMENTS_MAX)
        .filter_map(|moment| Some((moment.at, note_at(schedule, moment.at)?)))
        .take(HITS_PER_CHANGE_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{CronExpr, Fold, Gap, ZoneChoice, Zones};

    fn of(cron: &str, gap: Gap) -> Vec<(String, String)> {
        let zone = Zones::open(ZoneChoice::Bundled).unwrap().get("Europe/Berlin").unwrap();
        let schedule = Schedule::cron(CronExpr::parse(cron).unwrap(), zone, gap, Fold::Once);
        let [from, until] =
            ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"].map(|text| text.parse().unwrap());
        let hits = hits(&"j".parse().unwrap(), &schedule, from, until);
        hits.into_iter().map(|hit| (hit.local, hit.note)).collect()
    }

    #[test]
    fn both_changes_of_a_year_are_found_and_nothing_else() {
        let spring = "2027-03-28T03:00:00+02:00";
        let autumn = "2027-10-31T02:30:00+02:00";
        let twice = "comes twice on this day; first pass";
        let gone = "the local time before it does not exist on this day";
        let late = "02:30:00 does not exist on 2027-03-28; first instant after the gap";
        let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(at, note)| ((*at).to_owned(), (*note).to_owned())).collect()
        };
        assert_eq!(of("30 2 * * *", Gap::Shift), pairs(&[(spring, late), (autumn, twice)]));
        let skipped = of("30 2 * * *", Gap::Skip);
        assert_eq!(skipped.last(), pairs(&[(autumn, twice)]).first());
        assert!(skipped.iter().all(|(at, note)| at == autumn || (at == spring && note == gone)));
        assert_eq!(of("30 4 * * *", Gap::Shift), []);
        assert_eq!(of("* * * * * *", Gap::Shift), [], "elapsed time has no gaps");
        assert_eq!(of("0,5,10,15,20,25,30 2 31 10 *", Gap::Shift).len(), HITS_PER_CHANGE_MAX);
    }
}
