//! Does the work of a session still go on? Decided from a snapshot, without looking at anything.
//!
//! Three answers besides "fine". *Long-running*: somebody drives it and waits for something that
//! may take its time. *Stalled*: it is active and nothing moves. *Stuck*: the books say that it
//! goes on, and nothing of it lives. Only silence counts, never age: a run that is merely slow is
//! left alone.
//!
//! | work | silent for `warn` | silent for `abort` |
//! |---|---|---|
//! | nothing, and nobody waits behind it; or it waits itself, under a limit of its own | fine | fine |
//! | an owned model call | long-running | stalled, aborted |
//! | an owned tool call within its own limit | long-running | long-running |
//! | an owned tool call beyond that | long-running | stalled, aborted |
//! | an owned run between calls | stalled | stalled, aborted |
//! | an owned run in its clean-up, which has a budget of its own | stalled | stalled |
//! | nobody owns it, and something of it lives | stalled | stalled, aborted |
//! | nobody owns it, and nothing of it lives; or somebody waits behind nothing | stuck, released | stuck, released |
//!
//! Between the snapshot and the deed the world goes on, so that every deed has to pass its
//! [`Gate`]s first.

use std::time::Duration;

use crate::config::Thresholds;

/// Which work of a session is meant: a later one has a higher number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

/// Which sign of progress of that work was the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beat(u64);

/// What a run does that somebody drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It waits for a lane, for its session's lock, or for the time of its next attempt.
    Waiting,
    /// A model's answer is awaited.
    Model,
    /// A tool works.
    Tool {
        /// How long it may.
        limit: Duration,
    },
    /// Neither: it prepares, or shapes what has come.
    Between,
    /// It is over and being tidied up after.
    Ending,
}

/// What there is of a session's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// None.
    Nothing,
    /// Somebody drives it.
    Owned(Doing),
    /// Nobody drives it, but something of it lives: a model call, a tool, a process.
    Loose,
    /// The books say that it goes on; nobody drives it, and nothing of it lives.
    Dead,
}

/// Whether somebody puts the session right already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovering {
    /// Nobody does.
    No,
    /// A recovery was requested and has not come to its end.
    Yes,
}

/// A session as it was at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Which work it has.
    pub generation: Generation,
    /// That work's last sign of progress.
    pub beat: Beat,
    /// What there is of it.
    pub work: Work,
    /// How many wait behind it.
    pub queued: usize,
    /// How long ago the last progress was, or the start.
    pub silent: Duration,
    /// Whether somebody puts it right already.
    pub recovering: Recovering,
}

words!(
    /// How a session is.
    Liveness {
        /// Nothing to say.
        Fine = "fine",
        /// Owned work that may take its time.
        LongRunning = "long_running",
        /// Active work that does not move.
        Stalled = "stalled",
        /// Books without work.
        Stuck = "stuck",
    }
);

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    Nothing,
    /// Say it.
    Report,
    /// Say it, end the work and let it be tidied up after, so that what waits can go on.
    AbortAndDrain,
    /// Say it, and free the lane.
    Release,
}

/// How a session is, and what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// How it is.
    pub liveness: Liveness,
    /// What to do.
    pub act: Act,
}

/// The session at the time of the deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    /// Which work it has; `None`: none any more.
    pub generation: Option<Generation>,
    /// That work's last sign of progress.
    pub beat: Beat,
    /// What there is of it.
    pub work: Work,
    /// The newest work of the same lane.
    pub newest_on_lane: Generation,
    /// Whether somebody puts it right already.
    pub recovering: Recovering,
}

words!(
    /// Why nothing is done although the snapshot says so.
    Gate {
        /// The session has other work by now, or it has moved.
        Changed = "changed",
        /// Something newer has started on its lane.
        Newer = "newer",
        /// Somebody puts it right already.
        Recovering = "recovering",
        /// Something of it that somebody owns is alive.
        Alive = "alive",
    }
);

impl Generation {
    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Beat {
    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// How the session of `seen` is, and what to do about it.
pub fn classify(seen: &Snapshot, thresholds: Thresholds) -> Verdict {
    let Thresholds { warn, abort } = thresholds;
    if seen.silent < warn {
        return Verdict::FINE;
    }
    let beyond = |limit: Duration| seen.silent >= limit;
    match seen.work {
        Work::Nothing if seen.queued == 0 => Verdict::FINE,
        Work::Owned(Doing::Waiting) => Verdict::FINE,
        Work::Owned(Doing::Model) if !beyond(abort) => Verdict::LONG_RUNNING,
        // Its own limit ends it, and ending its tree takes a while.
        Work::Owned(Doing::Tool { limit }) if !beyond(abort.max(limit.saturating_add(warn))) => {
            Verdict::LONG_RUNNING
        }
        // It ends already; there is nothing that an abort would add.
        Work::Owned(Doing::Ending) => Verdict::STALLED,
        Work::Owned(Doing::Model | Doing::Tool { .. } | Doing::Between) | Work::Loose => {
            if beyond(abort) { Verdict::ABORTED } else { Verdict::STALLED }
        }
        Work::Nothing | Work::Dead => Verdict::STUCK,
    }
}

/// Whether what a verdict on `seen` asks for may be done `now`; else the first gate in the way.
pub fn pass(act: Act, seen: &Snapshot, now: &Current) -> Result<(), Gate> {
    let gates = match act {
        Act::Nothing | Act::Report => &[][..],
        Act::AbortAndDrain => &[Gate::Changed, Gate::Recovering][..],
        Act::Release => &[Gate::Changed, Gate::Newer, Gate::Recovering, Gate::Alive][..],
    };
    gates.iter().find(|gate| gate.is_shut(seen, now)).map_or(Ok(()), |&gate| Err(gate))
}

impl Gate {
    fn is_shut(self, seen: &Snapshot, now: &Current) -> bool {
        match self {
            Self::Changed => now.generation != Some(seen.generation) || now.beat != seen.beat,
            Self::Newer => now.newest_on_lane > seen.generation,
            Self::Recovering => now.recovering == Recovering::Yes,
            Self::Alive => matches!(now.work, Work::Owned(_) | Work::Loose),
        }
    }
}

impl Verdict {
    const FINE: Self = Self { liveness: Liveness::Fine, act: Act::Nothing };
    const LONG_RUNNING: Self = Self { liveness: Liveness::LongRunning, act: Act::Report };
    const STALLED: Self = Self { liveness: Liveness::Stalled, act: Act::Report };
    const ABORTED: Self = Self { liveness: Liveness::Stalled, act: Act::AbortAndDrain };
    const STUCK: Self = Self { liveness: Liveness::Stuck, act: Act::Release };
}

/// What was reported about a session, so that it is not said again and again: at once when
/// something has changed, then after `warn`, twice that, four times that …
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reports(Option<Reported>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Reported {
    liveness: Liveness,
    generation: Generation,
    beat: Beat,
    /// How long it had been silent then.
    silent: Duration,
    /// How much longer it has to be for the next report.
    pause: Duration,
}

impl Reports {
    /// Whether `liveness` of the session of `seen` is to be reported now; if so, notes that it is.
    pub fn is_due(&mut self, liveness: Liveness, seen: &Snapshot, warn: Duration) -> bool {
        let Snapshot { generation, beat, silent, .. } = *seen;
        if liveness == Liveness::Fine {
            self.0 = None;
            return false;
        }
        let last = self.0.as_ref().filter(|last| {
            (last.liveness, last.generation, last.beat) == (liveness, generation, beat)
        });
        let pause = match last {
            Some(last) if silent < last.silent.saturating_add(last.pause) => return false,
            Some(last) => last.pause.saturating_mul(2),
            None => warn,
        };
        self.0 = Some(Reported { liveness, generation, beat, silent, pause });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARN: Duration = Duration::from_mins(2);
    const ABORT: Duration = Duration::from_mins(6);
    const THRESHOLDS: Thresholds = Thresholds { warn: WARN, abort: ABORT };

    fn seen(work: Work, queued: usize, silent: Duration) -> Snapshot {
        Snapshot {
            generation: Generation(7),
            beat: Beat(3),
            work,
            queued,
            silent,
            recovering: Recovering::No,
        }
    }

    fn current(seen: &Snapshot) -> Current {
        Current {
            generation: Some(seen.generation),
            beat: seen.beat,
            work: seen.work,
            newest_on_lane: seen.generation,
            recovering: Recovering::No,
        }
    }

    /// Every work, with a queue and without, just before and at each threshold.
    #[test]
    fn the_table() {
        use Act::{AbortAndDrain, Nothing, Release, Report};
        use Liveness::{Fine, LongRunning, Stalled, Stuck};
        let brief = Doing::Tool { limit: Duration::from_mins(1) };
        let long = Doing::Tool { limit: Duration::from_mins(10) };
        let (fine, slow) = ((Fine, Nothing), (LongRunning, Report));
        let (stalled, aborted) = ((Stalled, Report), (Stalled, AbortAndDrain));
        let stuck = (Stuck, Release);
        // work, waiting behind it: from warn on, from abort on, twelve minutes, a day.
        let table = [
            (Work::Nothing, 0, fine, fine, fine, fine),
            (Work::Nothing, 1, stuck, stuck, stuck, stuck),
            (Work::Owned(Doing::Waiting), 0, fine, fine, fine, fine),
            (Work::Owned(Doing::Waiting), 3, fine, fine, fine, fine),
            (Work::Owned(Doing::Model), 0, slow, aborted, aborted, aborted),
            (Work::Owned(Doing::Model), 3, slow, aborted, aborted, aborted),
            (Work::Owned(brief), 0, slow, aborted, aborted, aborted),
            (Work::Owned(brief), 3, slow, aborted, aborted, aborted),
            // Its own ten minutes, and two for the ending of its tree.
            (Work::Owned(long), 0, slow, slow, aborted, aborted),
            (Work::Owned(long), 3, slow, slow, aborted, aborted),
            (Work::Owned(Doing::Between), 0, stalled, aborted, aborted, aborted),
            (Work::Owned(Doing::Between), 3, stalled, aborted, aborted, aborted),
            (Work::Owned(Doing::Ending), 0, stalled, stalled, stalled, stalled),
            (Work::Owned(Doing::Ending), 3, stalled, stalled, stalled, stalled),
            (Work::Loose, 0, stalled, aborted, aborted, aborted),
            (Work::Loose, 3, stalled, aborted, aborted, aborted),
            (Work::Dead, 0, stuck, stuck, stuck, stuck),
            (Work::Dead, 3, stuck, stuck, stuck, stuck),
        ];
        let just_before = |limit: Duration| limit.saturating_sub(Duration::from_millis(1));
        let twelve = Duration::from_mins(12);
        for (work, queued, from_warn, from_abort, at_twelve, a_day) in table {
            let columns = [
                (Duration::ZERO, fine),
                (just_before(WARN), fine),
                (WARN, from_warn),
                (just_before(ABORT), from_warn),
                (ABORT, from_abort),
                (just_before(twelve), from_abort),
                (twelve, at_twelve),
                (Duration::from_hours(24), a_day),
            ];
            for (silent, (liveness, act)) in columns {
                let verdict = classify(&seen(work, queued, silent), THRESHOLDS);
                assert_eq!(verdict, Verdict { liveness, act }, "{work:?}, {queued}, {silent:?}");
            }
        }
    }

    /// Somebody else at work stops the deed, never the report.
    #[test]
    fn a_recovery_changes_no_verdict() {
        for work in [Work::Owned(Doing::Model), Work::Loose, Work::Dead] {
            let one = seen(work, 0, ABORT);
            let other = Snapshot { recovering: Recovering::Yes, ..one };
            assert_eq!(classify(&one, THRESHOLDS), classify(&other, THRESHOLDS));
        }
    }

    #[test]
    fn every_gate_stops_what_it_stands_before() {
        let dead = seen(Work::Dead, 1, ABORT);
        let now = current(&dead);
        let newer = Generation(8);
        // Now; an abort; a release.
        let cases = [
            (now, Ok(()), Ok(())),
            (Current { generation: None, ..now }, Err(Gate::Changed), Err(Gate::Changed)),
            // A snapshot of an old generation decides nothing.
            (
                Current { generation: Some(newer), newest_on_lane: newer, ..now },
                Err(Gate::Changed),
                Err(Gate::Changed),
            ),
            (Current { beat: Beat(4), ..now }, Err(Gate::Changed), Err(Gate::Changed)),
            (Current { newest_on_lane: newer, ..now }, Ok(()), Err(Gate::Newer)),
            (
                Current { recovering: Recovering::Yes, ..now },
                Err(Gate::Recovering),
                Err(Gate::Recovering),
            ),
            (Current { work: Work::Loose, ..now }, Ok(()), Err(Gate::Alive)),
            (Current { work: Work::Owned(Doing::Model), ..now }, Ok(()), Err(Gate::Alive)),
            (Current { work: Work::Nothing, ..now }, Ok(()), Ok(())),
        ];
        for (now, abort, release) in cases {
            assert_eq!(pass(Act::AbortAndDrain, &dead, &now), abort, "{now:?}");
            assert_eq!(pass(Act::Release, &dead, &now), release, "{now:?}");
            assert_eq!(pass(Act::Report, &dead, &now), Ok(()), "{now:?}");
        }
    }

    #[test]
    fn reports_become_rarer_while_nothing_changes() {
        let mut reports = Reports::default();
        let at = |minutes| seen(Work::Dead, 1, Duration::from_mins(minutes));
        let due = (2..=64).filter(|&it| reports.is_due(Liveness::Stuck, &at(it), WARN));
        assert_eq!(due.collect::<Vec<_>>(), [2, 4, 8, 16, 32, 64]);

        // Another state, another sign of life, another work: said at once.
        assert!(reports.is_due(Liveness::Stalled, &at(65), WARN));
        assert!(!reports.is_due(Liveness::Stalled, &at(66), WARN));
        let moved = Snapshot { beat: Beat(4), ..at(2) };
        assert!(reports.is_due(Liveness::Stalled, &moved, WARN));
        let other = Snapshot { generation: Generation(8), ..moved };
        assert!(reports.is_due(Liveness::Stalled, &other, WARN));
        assert!(!reports.is_due(Liveness::Fine, &other, WARN));
        assert!(reports.is_due(Liveness::Stalled, &other, WARN), "it was fine in between");
    }
}
