//! What changes under a job: its file, and the clock.

use jiff::Timestamp;

use super::{Common, Track};
use crate::plan::Reason;
use crate::plan::act::{Act, PauseChange};
use crate::plan::due::{JobView, Living, decide};
use crate::plan::retry::BACKOFF_MAX;
use crate::plan::rules::{Availability, Memory, PauseCause, Rules};
use crate::schedule::Schedule;

impl Track {
    /// The job is back, as the ledger remembers it.
    pub(in crate::plan) fn adopt_again(&mut self, rules: Rules, memory: Memory) {
        self.rules = rules;
        let decided_until = self.begin(memory.decided_until);
        self.memory = Memory { decided_until, ..memory };
        self.recorded_until = Timestamp::MIN;
        self.look_ahead();
    }

    /// Where decisions begin when the ledger says `begins`: what was decided since it was asked
    /// stays decided; but a single instant in the past is still to be decided.
    fn begin(&self, begins: Timestamp) -> Timestamp {
        let once = self.rules.schedule.as_ref().is_some_and(Schedule::is_one_shot);
        if once { begins } else { begins.max(self.memory.decided_until) }
    }

    /// Its schedule holds no more: what was due by it is decided, also what its jitter keeps from
    /// starting.
    pub(in crate::plan) fn close(
        &mut self,
        common: &mut Common,
        now: Timestamp,
        because: Reason,
    ) -> Vec<Act> {
        let Some(schedule) = &self.rules.schedule else { return Vec::new() };
        let view = JobView {
            schedule,
            rules: &Rules::idle(None, Availability::Retired),
            memory: &self.memory,
            living: Living::default(),
            unseen_because: because,
            obstacle: None,
        };
        let plan = decide(view, now);
        self.memory.decided_until = plan.decided_until;
        self.memory.ahead.retain(|(_, last)| *last > plan.decided_until);
        self.expect(plan.next);
        let mut acts = self.give_up_held(because);
        acts.extend(self.apply(common, plan.slots, now));
        acts
    }

    /// The job's file has changed. A schedule of another timing begins its decisions anew, from
    /// `decided_until` on.
    pub(in crate::plan) fn replace(
        &mut self,
        rules: Rules,
        decided_until: Option<Timestamp>,
    ) -> Vec<Act> {
        self.rules = rules;
        if let Some(begins) = decided_until {
            self.memory.decided_until = self.begin(begins);
            self.recorded_until = Timestamp::MIN;
        }
        self.look_ahead();
        self.hold_anew();
        let mut record = self.record();
        if decided_until.is_some() && self.is_held_by_its_only_slot() {
            self.memory.pause = None;
            record.pause = Some(PauseChange::Lifted);
        }
        match self.rules.availability {
            Availability::Ready | Availability::Invalid => {}
            Availability::Disabled | Availability::Retired => {
                self.backfill.clear();
                self.skip_waiting(&mut record, Reason::Disabled);
                self.drop_retries(&mut record);
            }
        }
        let is_nothing =
            record.turned.is_empty() && record.settled.is_empty() && record.pause.is_none();
        if is_nothing { Vec::new() } else { vec![record.into()] }
    }

    /// A slot that has failed holds nothing that is due at another time.
    fn is_held_by_its_only_slot(&self) -> bool {
        self.memory.pause.as_ref().is_some_and(|it| it.cause == PauseCause::OneShotFailed)
    }

    /// The clock was set back: decisions begin again, but for what is `ahead`.
    pub(in crate::plan) fn rewind(
        &mut self,
        decided_until: Timestamp,
        ahead: Vec<(Timestamp, Timestamp)>,
        now: Timestamp,
    ) {
        self.memory.decided_until = decided_until;
        self.memory.ahead = ahead;
        self.recorded_until = Timestamp::MIN;
        self.look_ahead();
        self.blocked = None;
        // Whatever is held and due later is not due yet, and has no row any more.
        self.waiting.retain(|waiting| !waiting.is_held_after(now));
        let longest = self.rules.retry.backoff.iter().copied().max().unwrap_or(BACKOFF_MAX);
        for retry in &mut self.retrying {
            retry.at = retry.at.min(now + longest);
        }
    }
}
