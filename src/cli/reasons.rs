//! What the words of a slot's row mean, in sentences, and what to do about them.

use crate::plan::{Reason, SlotDecision};

/// A reason in a sentence that goes on after what was decided, and what a person may do about it.
/// `JOB` stands for the job's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) because: &'static str,
    pub(super) advice: &'static str,
}

/// What a decision means.
pub(super) const fn of_decision(decision: SlotDecision) -> &'static str {
    match decision {
        SlotDecision::Started => "A run was started for it",
        SlotDecision::Buffered => "It waits for its turn",
        SlotDecision::Skipped => "It came in time and was passed over",
        SlotDecision::Missed => "It was not started in time",
        SlotDecision::Held => "It was held back",
    }
}

/// What a reason means.
pub(super) const fn of_reason(reason: Reason) -> Meaning {
    let (because, advice) = match reason {
        Reason::Overlap => (
            "another run of the job had not ended, or one of its slots was to be tried again",
            "`schedule.overlap` says what happens then: buffer_one and buffer_all wait, \
             cancel_other replaces, allow_all starts beside it. `punctual runs --job JOB` shows \
             how long its runs take.",
        ),
        Reason::Excluded => (
            "`schedule.exclude` leaves its date out",
            "Nothing is wrong. To have it run, take the date out of `schedule.exclude` or of the \
             calendar that it names.",
        ),
        Reason::DstGap => (
            "the clocks were set forward over its local time, and `schedule.dst_gap` is \"skip\"",
            "With `dst_gap = \"shift\"` it starts at the first instant after the gap.",
        ),
        Reason::Gate => (
            "the job's gate said that there was nothing to do",
            "Nothing is wrong, if the gate is right: run its command by hand to see what it says.",
        ),
        Reason::Paused => (
            "the job was paused",
            "`punctual resume JOB` lets the slots to come start again. Those that were held stay \
             so; `punctual backfill JOB --from … --to …` runs them.",
        ),
        Reason::Disabled => (
            "the job was disabled, or its file was taken away",
            "Set `enabled = true` in its file. What was due before is not made up for; `punctual \
             run JOB --force` runs it by hand.",
        ),
        Reason::Invalid => (
            "the job's file could not be used at that time",
            "`punctual validate` names everything that is wrong with it.",
        ),
        Reason::Budget => (
            "a budget was used up",
            "Raise it in `[budget]` or in the job's `[limits]`, or wait for the next day; \
             `punctual runs --job JOB` shows what its runs used.",
        ),
        Reason::TooLate => (
            "nobody could start it before its catch-up window had passed",
            "`schedule.catchup_window` says how late a run still makes sense. See why `serve` was \
             not there: it was stopped, or the machine was off or asleep.",
        ),
        Reason::Down => (
            "`serve` was not running, or the machine was asleep, when it was due, and nothing \
             makes up for it",
            "With `schedule.catchup = \"latest\"` or \"all\" such slots start late, within \
             `catchup_window`. What was due under a schedule that holds no more is never made up \
             for.",
        ),
        Reason::ClockStep => (
            "the clock of the machine was set forward over it",
            "See why the clock was wrong (time synchronisation, a machine that was restored). \
             With `schedule.catchup = \"latest\"` or \"all\" such slots start late.",
        ),
        Reason::ModelUnreachable => (
            "no model of the job could be reached",
            "See whether the provider runs, and at which address; `punctual doctor` looks at it.",
        ),
        Reason::Upstream => (
            "a job that it comes after did not end as `after.when` asks",
            "`punctual why` of each of them, at that time, says what became of it.",
        ),
        Reason::Superseded => (
            "a newer slot of the job stands for it",
            "If the newer one runs, it covers the time since the last one. With \
             `schedule.catchup = \"all\"` each slot gets a run of its own.",
        ),
        Reason::InterruptedTwice => (
            "a run of the job was interrupted, and so was its repetition; the job is held",
            "Find out what ends the process (memory, restarts), then `punctual resume JOB`.",
        ),
        Reason::Backoff => (
            "slots before it had failed, and the job waits longer after each of them",
            "`punctual runs --job JOB --state failed` shows why they failed. The next success \
             ends the waiting.",
        ),
    };
    Meaning { because, advice }
}

/// Both in one sentence, without its full stop.
pub(super) fn sentence(decision: SlotDecision, reason: Option<Reason>) -> String {
    let decided = of_decision(decision);
    match reason {
        // A buffered slot that has started keeps the reason of its waiting.
        Some(reason) if decision != SlotDecision::Started => {
            format!("{decided}: {}", of_reason(reason).because)
        }
        _ => decided.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_a_sentence_and_an_advice_of_its_own() {
        let all: Vec<_> = Reason::ALL.iter().map(|&reason| (reason, of_reason(reason))).collect();
        for (reason, Meaning { because, advice }) in &all {
            assert!(because.split(' ').count() >= 4, "{reason}: {because}");
            assert!(!because.ends_with('.') && because.trim() == *because, "{reason}: {because}");
            assert!(because.starts_with(|c: char| c.is_lowercase() || c == '`'), "{reason}");
            assert!(advice.ends_with('.') && !advice.contains("  "), "{reason}: {advice}");
        }
        let different: BTreeSet<_> = all.iter().map(|(_, it)| it.because).collect();
        assert_eq!(different.len(), Reason::ALL.len());
    }

    #[test]
    fn a_decision_and_its_reason_make_one_sentence() {
        assert_eq!(
            sentence(SlotDecision::Held, Some(Reason::Paused)),
            "It was held back: the job was paused"
        );
        let started = "A run was started for it";
        assert_eq!(sentence(SlotDecision::Started, None), started);
        assert_eq!(sentence(SlotDecision::Started, Some(Reason::Overlap)), started);
        let different: BTreeSet<_> = SlotDecision::ALL.iter().map(|&it| of_decision(it)).collect();
        assert_eq!(different.len(), SlotDecision::ALL.len());
    }
}
