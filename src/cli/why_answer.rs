//! Why a job did or did not run at an instant: what the ledger says, or else what the schedule
//! says.

use jiff::Timestamp;
use serde::Serialize;

use super::context::Context;
use super::output::Failed;
use super::reasons::{of_reason, sentence};
use super::times::{before, note_at, serialize_instant, standing_at, zone_of};
use crate::config::{Config, JobSet};
use crate::executor::caps_of;
use crate::job::ScheduleSpec;
use crate::plan::{
    self, Availability, Follow, JobView, Living, Memory, Reason, Rules, SlotDecision, follow,
};
use crate::schedule::{Schedule, Zone};
use crate::store::{JobMemory, JobStanding, Reader, SeenDefinition, SlotAttempt, SlotSummary};

words!(
    /// What kind of answer there is.
    Verdict {
        /// The ledger has a row.
        Decided = "decided",
        /// It was due, and no `serve` has looked since.
        Undecided = "undecided",
        /// It will be due.
        Future = "future",
        /// The schedule does not name it.
        NotDue = "not_due",
        /// The job was not known then.
        BeforeFirstSight = "before_first_sight",
        /// The schedule names it, and there is no row, though all up to there is decided.
        Unrecorded = "unrecorded",
        /// No instant was asked for, and none is decided yet.
        NothingYet = "nothing_yet",
        /// The job's file cannot be used, and never could.
        Invalid = "invalid",
        /// The job has no schedule.
        ByHand = "by_hand",
        /// The job's file is gone.
        Gone = "gone",
    }
);

words!(
    /// The job's file, as it is now.
    FileNow {
        /// It can be used.
        Valid = "valid",
        /// It cannot: the last good version holds, and starts nothing.
        Invalid = "invalid",
        /// There is none.
        Gone = "gone",
    }
);

/// The whole answer.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) job: String,
    #[serde(serialize_with = "serialize_instant")]
    pub(super) at: Option<Timestamp>,
    pub(super) timezone: String,
    pub(super) verdict: Verdict,
    /// The row, or for what has none yet, what would be decided.
    pub(super) decision: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) sentence: String,
    pub(super) advice: Option<String>,
    /// What a clock change does to it.
    pub(super) note: Option<String>,
    pub(super) slot: Option<SlotSummary>,
    pub(super) attempts: Vec<SlotAttempt>,
    pub(super) next_attempt: Option<u32>,
    #[serde(serialize_with = "serialize_instant")]
    pub(super) next_attempt_at: Option<Timestamp>,
    /// The run of a later slot that stands for this one too.
    pub(super) stand_in: Option<SlotAttempt>,
    pub(super) definition: Option<SeenDefinition>,
    #[serde(serialize_with = "serialize_instant")]
    pub(super) due_before: Option<Timestamp>,
    #[serde(serialize_with = "serialize_instant")]
    pub(super) due_after: Option<Timestamp>,
    pub(super) file: FileNow,
    /// How the job stood when `serve` last said so.
    pub(super) standing: Option<JobStanding>,
}

/// A job with everything that an answer depends on.
pub(super) struct Subject<'a> {
    name: &'a str,
    reader: Option<&'a Reader>,
    memory: Option<JobMemory>,
    standing: Option<JobStanding>,
    /// `None`: its file is gone.
    rules: Option<Rules>,
    zone: Zone,
    /// When the day is over of which a cap is used up, if one is.
    used_up_until: Option<Timestamp>,
    now: Timestamp,
}

impl<'a> Subject<'a> {
    /// The job `name` of the files or of the ledger.
    pub(super) fn new(
        name: &'a str,
        config: &Config,
        jobs: &JobSet,
        reader: Option<&'a Reader>,
        now: Timestamp,
    ) -> Result<Self, Failed> {
        let (memory, standing) = match reader {
            Some(reader) => (reader.known_jobs()?.remove(name), reader.standing(name)?),
            None => (None, None),
        };
        let stored = match (reader, &memory) {
            (Some(reader), Some(memory)) => stored_schedule(name, reader, config, memory)?,
            _ => None,
        };
        let spec = jobs.jobs.values().find(|spec| spec.id.as_str() == name);
        let rules = match spec {
            Some(spec) => {
                let timing = memory.as_ref().and_then(|it| it.timing.as_ref());
                let same = memory.as_ref().filter(|_| timing.is_none_or(|it| *it == spec.timing()));
                Some(Rules::of(spec, same.map_or(now, |it| it.anchor)))
            }
            None if jobs.invalid.contains_key(name) => Some(Rules::idle(
                stored.as_ref().map(|it| it.schedule.clone()),
                Availability::Invalid,
            )),
            None if memory.is_none() => {
                Context::named(name, jobs, None)?;
                return Err(Failed::usage(format!("there is no job `{name}`")));
            }
            None => None,
        };
        let written = spec.map_or(stored.as_ref(), |spec| spec.schedule.as_ref());
        let zone = zone_of(written, config).clone();
        let used_up_until = match (reader, spec) {
            (Some(reader), Some(spec)) => {
                let spent = reader.spent(now)?;
                spent.used_up(&spec.id, &caps_of(spec, config), now).map(|it| it.until)
            }
            _ => None,
        };
        Ok(Self { name, reader, memory, standing, rules, zone, used_up_until, now })
    }

    /// The zone of its schedule.
    pub(super) fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Why it did or did not run at `at`, or for the newest slot that is decided.
    pub(super) fn answer(&self, at: Option<Timestamp>) -> Result<Answer, Failed> {
        let slot = match (self.reader, at) {
            (None, _) => None,
            (Some(reader), Some(at)) => reader.slot_at(self.name, at)?,
            (Some(reader), None) => reader.newest_slot(self.name)?,
        };
        match (slot, at) {
            (Some(slot), _) => self.of_slot(slot, at),
            (None, Some(at)) => Ok(self.of_instant(at)),
            (None, None) if self.rules.is_none() => {
                Ok(self.plain(None, Verdict::Gone, "Its file is gone".into()))
            }
            (None, None) if self.schedule().is_none() => Ok(self.by_hand(None)),
            (None, None) => {
                let words = "Nothing has been decided yet";
                Ok(self.plain(None, Verdict::NothingYet, words.into()))
            }
        }
    }

    fn schedule(&self) -> Option<&Schedule> {
        self.rules.as_ref()?.schedule.as_ref()
    }

    fn plain(&self, at: Option<Timestamp>, verdict: Verdict, sentence: String) -> Answer {
        let around = at.unwrap_or(self.now);
        let schedule = self.schedule();
        Answer {
            job: self.name.to_owned(),
            at,
            timezone: self.zone.name().to_owned(),
            verdict,
            decision: None,
            reason: None,
            sentence,
            advice: None,
            note: at.and_then(|at| note_at(schedule?, at)),
            slot: None,
            attempts: Vec::new(),
            next_attempt: None,
            next_attempt_at: None,
            stand_in: None,
            definition: None,
            due_before: at.and_then(|at| schedule?.prev_at_or_before(before(at))),
            due_after: schedule.and_then(|it| Some(it.next_after(around)?.at)),
            file: match self.rules.as_ref().map(|rules| rules.availability) {
                Some(Availability::Invalid) => FileNow::Invalid,
                Some(_) => FileNow::Valid,
                None => FileNow::Gone,
            },
            standing: self.standing.clone(),
        }
    }

    fn by_hand(&self, at: Option<Timestamp>) -> Answer {
        let invalid = |it: &Rules| it.availability == Availability::Invalid;
        let was_good = self.memory.as_ref().is_some_and(|it| it.definition_hash.is_some());
        if self.rules.as_ref().is_some_and(invalid) && !was_good {
            let words = "Its file cannot be used, and never could";
            let advice = "`punctual validate` names everything that is wrong with it.".to_owned();
            let plain = self.plain(at, Verdict::Invalid, words.to_owned());
            return Answer { advice: Some(advice), ..plain };
        }
        let words = "It has no schedule, so it is due at no time by the clock";
        let advice = format!("`punctual runs --job {}` lists what was run by hand.", self.name);
        Answer { advice: Some(advice), ..self.plain(at, Verdict::ByHand, words.to_owned()) }
    }

    fn of_slot(&self, slot: SlotSummary, at: Option<Timestamp>) -> Result<Answer, Failed> {
        let Some(reader) = self.reader else {
            return Ok(self.plain(at, Verdict::Gone, String::new()));
        };
        let attempts = reader.attempts_at(self.name, &slot.due_at)?;
        let stand_in = match slot.run_id {
            None => reader.stand_in(self.name, &slot.due_until)?,
            Some(_) => None,
        };
        let definition = match attempts.first() {
            Some(first) => reader.seen_definition(&first.definition_hash)?,
            None => reader.definition_at(self.name, &slot.decided_at)?,
        };
        let next = self.next_attempt(reader, &slot)?;
        let due_at: Option<Timestamp> = slot.due_at.parse().ok();
        let decision = slot.decision.parse().unwrap_or(SlotDecision::Started);
        let reason = slot.reason.as_ref().and_then(|reason| reason.parse::<Reason>().ok());
        let told = sentence(decision, reason);
        let superseded = reason == Some(Reason::Superseded);
        Ok(Answer {
            at,
            decision: Some(slot.decision.clone()),
            reason: slot.reason.clone(),
            advice: self.advice(decision, reason),
            attempts,
            next_attempt: next.map(|(attempt, _)| attempt),
            next_attempt_at: next.map(|(_, at)| at),
            stand_in: stand_in.filter(|_| superseded),
            definition,
            slot: Some(slot),
            ..self.plain(due_at, Verdict::Decided, told)
        })
    }

    /// The further attempt that is to come by the rules that hold now.
    fn next_attempt(
        &self,
        reader: &Reader,
        slot: &SlotSummary,
    ) -> Result<Option<(u32, Timestamp)>, Failed> {
        let (Some(rules), Some(memory)) = (&self.rules, &self.memory) else { return Ok(None) };
        if memory.memory.pause.is_some() || rules.availability != Availability::Ready {
            return Ok(None);
        }
        let ended = reader.unsettled_at(self.name, &slot.due_at)?;
        Ok(ended.and_then(|ended| match follow(rules, ended.chain, &ended.end) {
            Follow::Again(at) => Some((ended.chain.attempt + 1, at)),
            Follow::Succeeded | Follow::Over | Follow::Failed | Follow::Hold => None,
        }))
    }

    /// An instant that no row covers.
    fn of_instant(&self, at: Timestamp) -> Answer {
        let plain = |verdict, words: &str| self.plain(Some(at), verdict, words.to_owned());
        if self.rules.is_none() {
            return plain(Verdict::Gone, "Its file is gone, and no row of it reaches this time");
        }
        let Some(schedule) = self.schedule() else { return self.by_hand(Some(at)) };
        if standing_at(schedule, at).is_none() {
            return plain(Verdict::NotDue, "It is not due at this time");
        }
        if at > self.now {
            return self.expected(at, schedule.start_of(at), Verdict::Future);
        }
        let first_seen = self.standing.as_ref().map(|it| it.first_seen_at.parse::<Timestamp>());
        let Some(Ok(first_seen)) = first_seen else {
            let words = "It is due then by its file, which no `serve` has ever read";
            return plain(Verdict::BeforeFirstSight, words);
        };
        if at <= first_seen {
            let words = "By its schedule it was due, but the job was first seen after that";
            return plain(Verdict::BeforeFirstSight, words);
        }
        if self.memory.as_ref().is_some_and(|it| at > it.memory.decided_until) {
            return self.expected(at, self.now, Verdict::Undecided);
        }
        let words = "By its present schedule it was due, but there is no row: it had another \
                     schedule then, its file was not there, or `[retention]` has removed it";
        plain(Verdict::Unrecorded, words)
    }

    /// What would be decided about `at` by a look at `look`.
    fn expected(&self, at: Timestamp, look: Timestamp, verdict: Verdict) -> Answer {
        let mut memory =
            self.memory.as_ref().map_or_else(|| Memory::since(at), |it| it.memory.clone());
        if verdict == Verdict::Future {
            (memory.decided_until, memory.ahead) = (before(at), Vec::new());
        }
        let (Some(rules), Some(schedule)) = (&self.rules, self.schedule()) else {
            return self.by_hand(Some(at));
        };
        let (living, unseen_because) = (Living::default(), Reason::Down);
        let obstacle = self.used_up_until.filter(|until| look < *until).map(|_| Reason::Budget);
        let view = JobView { schedule, rules, memory: &memory, living, unseen_because, obstacle };
        let rows = plan::decide(view, look).slots;
        let row = rows.into_iter().find(|row| row.due_at <= at && at <= row.due_until);
        let when = match verdict {
            Verdict::Future => "It has not come yet; if nothing of the job goes on then",
            _ => "It has come, and no `serve` has looked since; if one looked now",
        };
        let Some(row) = row else { return self.plain(Some(at), verdict, when.to_owned()) };
        let because = row.reason.map(|it| format!(", since {}", of_reason(it).because));
        let words = format!("{when}, it would be {}{}", row.decision, because.unwrap_or_default());
        Answer {
            decision: Some(row.decision.to_string()),
            reason: row.reason.map(|reason| reason.to_string()),
            advice: self.advice(row.decision, row.reason),
            ..self.plain(Some(at), verdict, words)
        }
    }

    fn advice(&self, decision: SlotDecision, reason: Option<Reason>) -> Option<String> {
        let reason = reason.filter(|_| decision != SlotDecision::Started)?;
        Some(of_reason(reason).advice.replace("JOB", self.name))
    }
}

/// The schedule of the last definition that could be used.
fn stored_schedule(
    name: &str,
    reader: &Reader,
    config: &Config,
    memory: &JobMemory,
) -> Result<Option<ScheduleSpec>, Failed> {
    let (Some(hash), Ok(id)) = (&memory.definition_hash, name.parse()) else { return Ok(None) };
    let definition = reader.definition(hash)?;
    let spec = definition.and_then(|definition| config.stored_spec(&id, &definition));
    let anchored = |schedule: &Schedule| schedule.anchored(memory.anchor);
    Ok(spec.map(|spec| ScheduleSpec { schedule: anchored(&spec.schedule), ..spec }))
}
