//! What the jobs have spent on a day, and what they may.
//!
//! A run counts on the day on which it ends, in the zone of its job for the job's own cap and in
//! the configuration's for the cap of all jobs: so no day sees more money go than its cap allows,
//! but for what a request costs that nobody could stop. A day has whatever hours its zone gives it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;

use crate::job::{JobId, Usd};
use crate::schedule::Zone;

words!(
    /// A limit on money.
    Cap {
        /// Of a run.
        Run = "limits.max_usd",
        /// Of a job and a day.
        Job = "limits.max_usd_per_day",
        /// Of all jobs and a day.
        All = "budget.max_usd_per_day",
    }
);

/// How much of a cap is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Which.
    pub cap: Cap,
    /// What was spent.
    pub spent: Usd,
    /// What may be.
    pub allowed: Usd,
}

impl Standing {
    /// Whether nothing is left.
    pub fn is_used_up(&self) -> bool {
        self.spent >= self.allowed
    }
}

/// The caps that a job's days have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caps {
    /// The job's zone.
    pub zone: Zone,
    /// Of the job.
    pub own: Option<Usd>,
    /// The configuration's zone.
    pub zone_of_all: Zone,
    /// Of all jobs; none for a job that costs nothing.
    pub all: Option<Usd>,
}

impl Default for Caps {
    /// No caps, and days as UTC has them.
    fn default() -> Self {
        Self { zone: Zone::utc(), own: None, zone_of_all: Zone::utc(), all: None }
    }
}

/// The day of a zone that an instant lies in.
pub fn day_in(zone: &Zone, at: Timestamp) -> Date {
    zone.rules().to_datetime(at).date()
}

/// The first instant of the day after.
pub fn day_after(zone: &Zone, at: Timestamp) -> Timestamp {
    let today = at.to_zoned_datetime(zone.rules().clone());
    let tomorrow = today.tomorrow().and_then(|it| it.start_of_day());
    // Beyond the last day of the calendar nothing turns any more.
    tomorrow.map_or(Timestamp::MAX, |it| it.timestamp())
}

/// Days that are kept behind the newest: a clock may be set back, and zones are apart.
const DAYS_KEPT: i32 = 3;

/// What was spent, by day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    jobs: BTreeMap<(Date, JobId), Usd>,
    all: BTreeMap<Date, Usd>,
}

/// A cap that keeps a job from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsedUp {
    /// The one that does so for longest.
    pub standing: Standing,
    /// When its day is over.
    pub until: Timestamp,
}

impl Spent {
    /// As the ledger has it: what a job has spent on a day of its zone.
    pub fn know_job(&mut self, job: JobId, day: Date, usd: Usd) {
        self.jobs.insert((day, job), usd);
    }

    /// As the ledger has it: what all jobs have spent on a day of the configuration's zone.
    pub fn know_all(&mut self, day: Date, usd: Usd) {
        self.all.insert(day, usd);
    }

    /// A run of `job` has ended at `at` and has cost `usd`.
    pub fn add(&mut self, job: &JobId, caps: &Caps, at: Timestamp, usd: Usd) {
        if usd == Usd::ZERO {
            return;
        }
        let (day, day_of_all) = (day_in(&caps.zone, at), day_in(&caps.zone_of_all, at));
        let of_job = self.jobs.entry((day, job.clone())).or_default();
        *of_job = *of_job + usd;
        let of_all = self.all.entry(day_of_all).or_default();
        *of_all = *of_all + usd;
        let kept = day.saturating_sub(jiff::Span::new().days(DAYS_KEPT));
        self.jobs.retain(|(day, _), _| *day >= kept);
        self.all.retain(|day, _| *day >= kept);
    }

    /// How the caps of `job` stand at `at`.
    pub fn standings(&self, job: &JobId, caps: &Caps, at: Timestamp) -> Vec<Standing> {
        let own = caps.own.map(|allowed| {
            let spent = self.jobs.get(&(day_in(&caps.zone, at), job.clone()));
            Standing { cap: Cap::Job, spent: spent.copied().unwrap_or_default(), allowed }
        });
        let all = caps.all.map(|allowed| {
            let spent = self.all.get(&day_in(&caps.zone_of_all, at));
            Standing { cap: Cap::All, spent: spent.copied().unwrap_or_default(), allowed }
        });
        own.into_iter().chain(all).collect()
    }

    /// What keeps `job` from starting at `at`, if a cap does.
    pub fn used_up(&self, job: &JobId, caps: &Caps, at: Timestamp) -> Option<UsedUp> {
        // Most jobs have none, and are asked often.
        if caps.own.is_none() && caps.all.is_none() {
            return None;
        }
        let until = |standing: Standing| {
            let zone = match standing.cap {
                Cap::All => &caps.zone_of_all,
                Cap::Run | Cap::Job => &caps.zone,
            };
            UsedUp { standing, until: day_after(zone, at) }
        };
        let used_up = self.standings(job, caps, at).into_iter().filter(Standing::is_used_up);
        used_up.map(until).max_by_key(|it| it.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ZoneChoice, Zones};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn zone(name: &str) -> Zone {
        Zones::open(ZoneChoice::Bundled).unwrap().get(name).unwrap()
    }

    fn usd(dollars: f64) -> Usd {
        Usd::from_dollars(dollars)
    }

    #[test]
    fn a_day_is_as_long_as_its_zone_makes_it() {
        // (zone, an instant, its day, when that day is over)
        let table = [
            ("UTC", "2026-11-30T23:59:59.999Z", "2026-11-30", "2026-12-01T00:00:00Z"),
            ("UTC", "2026-12-01T00:00:00Z", "2026-12-01", "2026-12-02T00:00:00Z"),
            ("Europe/Berlin", "2026-11-30T23:00:00Z", "2026-12-01", "2026-12-01T23:00:00Z"),
            // Of 23 hours, and of 25.
            ("Europe/Berlin", "2027-03-27T23:00:00Z", "2027-03-28", "2027-03-28T22:00:00Z"),
            ("Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25", "2026-10-25T23:00:00Z"),
            // A day that begins at one o'clock, since midnight is left out.
            ("Africa/Cairo", "2027-04-29T12:00:00Z", "2027-04-29", "2027-04-29T22:00:00Z"),
            ("America/Havana", "2024-11-03T04:30:00Z", "2024-11-03", "2024-11-04T05:00:00Z"),
            ("Pacific/Kiritimati", "2026-11-30T09:59:59Z", "2026-11-30", "2026-11-30T10:00:00Z"),
        ];
        for (name, instant, day, over) in table {
            let zone = zone(name);
            assert_eq!(day_in(&zone, at(instant)).to_string(), day, "{name} {instant}");
            assert_eq!(day_after(&zone, at(instant)), at(over), "{name} {instant}");
            let just_before = at(over) - std::time::Duration::from_millis(1);
            assert_eq!(day_in(&zone, just_before).to_string(), day, "{name} {over}");
            assert_ne!(day_in(&zone, at(over)).to_string(), day, "{name} {over}");
        }
    }

    #[test]
    fn each_cap_counts_in_its_own_zone_and_the_longest_holds() {
        let (a, b): (JobId, JobId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let caps = Caps {
            zone: zone("Asia/Tokyo"),
            own: Some(usd(1.0)),
            zone_of_all: zone("UTC"),
            all: Some(usd(2.0)),
        };
        let mut spent = Spent::default();
        // Half past midnight in Tokyo, and the afternoon before in UTC.
        let (before, noon) = (at("2026-11-30T14:30:00Z"), at("2026-11-30T15:30:00Z"));
        spent.add(&a, &caps, before, usd(0.6));
        spent.add(&a, &caps, noon, usd(0.7));
        assert_eq!(spent.used_up(&a, &caps, noon), None);
        spent.add(&a, &caps, noon, usd(0.3));
        let used_up = |cap, spent, allowed, until: &str| {
            let (spent, allowed) = (usd(spent), usd(allowed));
            Some(UsedUp { standing: Standing { cap, spent, allowed }, until: at(until) })
        };
        let own = used_up(Cap::Job, 1.0, 1.0, "2026-12-01T15:00:00Z");
        assert_eq!(spent.used_up(&a, &caps, noon), own);
        assert_eq!(spent.used_up(&b, &caps, noon), None);
        spent.add(&b, &caps, noon, usd(0.4));
        let all = used_up(Cap::All, 2.0, 2.0, "2026-12-01T00:00:00Z");
        assert_eq!(spent.used_up(&b, &caps, noon), all);
        // The job's own cap holds it for longer.
        assert_eq!(spent.used_up(&a, &caps, noon), own);
        assert_eq!(spent.used_up(&b, &caps, at("2026-12-01T00:00:00Z")), None);
        assert_eq!(spent.used_up(&a, &Caps::default(), noon), None);
    }
}
