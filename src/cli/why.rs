//! `why JOB`: why it did or did not run at a time.

use std::time::Duration;

use jiff::Timestamp;

use super::context::{Context, now};
use super::next::instant;
use super::output::{self, Done, length, local};
use super::why_answer::{Answer, FileNow, Subject, Verdict};
use crate::clock::to_millis;
use crate::schedule::Zone;
use crate::store::{SlotAttempt, SlotSummary};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job's id
    job: String,
    /// At this time instead of the newest due time that is decided: a date or a time in the job's
    /// zone, or RFC 3339
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Print for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn why(context: &Context, args: &Args) -> Done {
    let (config, jobs) = context.jobs()?;
    let history = Context::history(&config)?;
    let now = to_millis(now());
    let subject = Subject::new(&args.job, &config, &jobs, history.as_ref(), now)?;
    let at = args.at.as_ref().map(|text| instant("--at", text, subject.zone())).transpose()?;
    let answer = subject.answer(at)?;
    if args.json {
        return output::json(&answer);
    }
    output::say(&Words { answer: &answer, zone: subject.zone(), now }.all())
}

/// The answer for people.
struct Words<'a> {
    answer: &'a Answer,
    zone: &'a Zone,
    now: Timestamp,
}

impl Words<'_> {
    fn all(&self) -> String {
        let it = self.answer;
        let mut lines = vec![self.title()];
        lines.push(format!("  {}.", it.sentence));
        lines.extend(it.advice.iter().map(|advice| format!("  {advice}")));
        let mut line = |name: &str, value: Option<String>| {
            lines.extend(value.map(|value| format!("  {name:<11} {value}")));
        };
        line("clocks", it.note.clone());
        if let Some(slot) = &it.slot {
            line("decided", Some(self.decided(slot)));
        }
        for attempt in &it.attempts {
            line(&format!("attempt {}", attempt.attempt), Some(self.attempt(attempt)));
            line("", error(attempt));
        }
        line("next", self.next_attempt());
        line("stands for", it.attempts.first().and_then(stands_for));
        line("run instead", it.stand_in.as_ref().map(|run| self.stand_in(run)));
        if it.slot.is_none() {
            line("due before", it.due_before.map(|at| self.local(at)));
            line("due after", it.due_after.map(|at| self.local(at)));
        }
        line(
            "definition",
            it.definition.as_ref().map(|definition| {
                let seen = self.stored(&definition.first_seen_at);
                format!("{}, first seen {seen}", definition.definition_hash)
            }),
        );
        line("job now", Some(self.standing()));
        lines.join("\n")
    }

    fn title(&self) -> String {
        let it = self.answer;
        let reason = it.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        match (&it.slot, it.at) {
            (Some(slot), _) => {
                format!("{}, due {}: {}{reason}", it.job, self.span(slot), slot.decision)
            }
            (None, Some(at)) => {
                format!("{}, {}: {}", it.job, self.local(at), it.verdict.as_str().replace('_', " "))
            }
            (None, None) => format!("{}: {}", it.job, it.verdict.as_str().replace('_', " ")),
        }
    }

    fn span(&self, slot: &SlotSummary) -> String {
        let first = self.stored(&slot.due_at);
        if slot.slots == 1 {
            return first;
        }
        format!("{first} … {} ({} slots)", self.stored(&slot.due_until), slot.slots)
    }

    fn decided(&self, slot: &SlotSummary) -> String {
        let late = u64::try_from(slot.late_ms).unwrap_or(0);
        let late = length(Duration::from_millis(late));
        format!("{}, {late} after it was to start", self.stored(&slot.decided_at))
    }

    fn attempt(&self, attempt: &SlotAttempt) -> String {
        let SlotAttempt { state, run_id, trigger, .. } = attempt;
        let began = attempt.started_at.as_ref().unwrap_or(&attempt.queued_at);
        let verb = if attempt.started_at.is_some() { "began" } else { "recorded" };
        let took = attempt.duration_ms.and_then(|ms| u64::try_from(ms).ok());
        let took = took.map(|ms| format!(", took {}", length(Duration::from_millis(ms))));
        let took = took.unwrap_or_default();
        format!("{state}, run {run_id} by {trigger}, {verb} {}{took}", self.stored(began))
    }

    fn next_attempt(&self) -> Option<String> {
        let (number, at) = (self.answer.next_attempt?, self.answer.next_attempt_at?);
        let when = self.local(at);
        Some(if at > self.now {
            format!("attempt {number} at {when}")
        } else {
            format!("attempt {number}, due since {when}")
        })
    }

    fn stand_in(&self, run: &SlotAttempt) -> String {
        let slots = run.slots.unwrap_or(1);
        let due = self.stored(&run.due_at);
        format!("{}, {}, of the slot of {due}, stands for {slots}", run.run_id, run.state)
    }

    fn standing(&self) -> String {
        let Some(standing) = &self.answer.standing else {
            return "not known to the ledger: no `serve` has read its file yet".into();
        };
        let until = |at: &String| format!(" until {}", self.stored(at));
        let mut words = vec![standing.state.clone()];
        if let Some(reason) = &standing.paused_reason {
            let end = standing.paused_until.as_ref().map(until).unwrap_or_default();
            words.push(format!("{reason}{end}"));
        }
        let backoff = standing.backoff_until.as_ref().filter(|at| self.is_ahead(at));
        words.extend(backoff.map(|at| format!("waits after failures{}", until(at))));
        let file = match (self.answer.file, &standing.invalid_reason) {
            (FileNow::Gone, _) => Some("its file is gone".to_owned()),
            (FileNow::Invalid, Some(why)) => Some(format!("its file cannot be used: {why}")),
            (FileNow::Invalid, None) => Some("its file cannot be used any more".to_owned()),
            (FileNow::Valid, Some(_)) => Some("its file can be used again".to_owned()),
            (FileNow::Valid, None) => None,
        };
        words.extend(file);
        if self.answer.verdict == Verdict::BeforeFirstSight {
            words.push(format!("first seen {}", self.stored(&standing.first_seen_at)));
        }
        words.join(", ")
    }

    fn is_ahead(&self, text: &str) -> bool {
        text.parse::<Timestamp>().is_ok_and(|at| at > self.now)
    }

    fn stored(&self, text: &str) -> String {
        text.parse().map_or_else(|_| text.to_owned(), |at| self.local(at))
    }

    fn local(&self, at: Timestamp) -> String {
        local(at, self.zone.rules())
    }
}

fn error(attempt: &SlotAttempt) -> Option<String> {
    let kind = attempt.error_kind.as_ref()?;
    let limit = attempt.limit_name.as_ref().map(|limit| format!(" (limit {limit})"));
    let message = attempt.error_message.as_deref().unwrap_or_default();
    Some(format!("{kind}{}: {message}", limit.unwrap_or_default()))
}

fn stands_for(first: &SlotAttempt) -> Option<String> {
    match first.slots {
        Some(slots) if slots > 1 => {
            Some(format!("{slots} slots: this one and {} missed before it", slots - 1))
        }
        _ => None,
    }
}
