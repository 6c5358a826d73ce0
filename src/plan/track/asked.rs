//! What people ask of a job: a run now, a pause and its end, runs of past slots.

use jiff::Timestamp;

use super::{ByHand, Common, Track, Waiting};
use crate::job::Overlap;
use crate::plan::Reason;
use crate::plan::act::{Act, PauseChange};
use crate::plan::due::BUFFERED_MAX;
use crate::plan::retry::Chain;
use crate::plan::rules::{Account, Pause};
use crate::run::Trigger;

impl Track {
    /// Somebody asks for a run.
    pub(in crate::plan) fn by_hand(&mut self, common: &mut Common) -> (ByHand, Vec<Act>) {
        let id = common.next_id();
        if self.live.is_empty() || self.rules.overlap == Overlap::AllowAll {
            self.live.insert(id, None);
            return (ByHand::Starts(id), Vec::new());
        }
        let mut acts = Vec::new();
        let may_wait = match self.rules.overlap {
            Overlap::Skip | Overlap::AllowAll => false,
            Overlap::BufferOne => self.waiting.is_empty(),
            Overlap::BufferAll => self.waiting.len() < BUFFERED_MAX,
            Overlap::CancelOther => {
                let mut record = self.record();
                self.give_way(&mut record);
                if !record.turned.is_empty() || !record.settled.is_empty() {
                    acts.push(record.into());
                }
                acts.push(Act::Replace(self.id.clone()));
                true
            }
        };
        if may_wait {
            self.waiting.push_back(Waiting::ByHand(id));
            (ByHand::Waits(id), acts)
        } else {
            (ByHand::Overlaps, acts)
        }
    }

    /// Holds the job. What is due from now on is held, what waited is skipped.
    pub(in crate::plan) fn pause(&mut self, pause: Pause) -> Vec<Act> {
        let mut record = self.record();
        self.skip_waiting(&mut record, pause.reason());
        self.drop_retries(&mut record);
        record.pause = Some(self.hold(pause));
        vec![record.into()]
    }

    /// Frees the job. What was due before is held, also if nobody has looked until now.
    pub(in crate::plan) fn resume(&mut self, common: &mut Common, now: Timestamp) -> Vec<Act> {
        let held_until = self.memory.pause.as_ref().map(|pause| pause.until.unwrap_or(now));
        let mut acts = match held_until {
            // Nothing of it starts: all of it lies within the pause.
            Some(until) => self.decide(common, until.min(now), Reason::Down),
            None => Vec::new(),
        };
        let mut record = self.record();
        self.memory.pause = None;
        self.memory.account = Account::default();
        record.account = Some(Account::default());
        record.pause = Some(PauseChange::Lifted);
        acts.push(record.into());
        acts
    }

    /// Runs past slots, one after the other, whenever nothing else of the job lives. Returns how
    /// many of them did not wait already.
    pub(in crate::plan) fn run_past(
        &mut self,
        common: &mut Common,
        slots: impl IntoIterator<Item = (Timestamp, u32)>,
        now: Timestamp,
    ) -> (usize, Vec<Act>) {
        let live = self.live.values().flatten().chain(&self.backfill);
        let retrying = self.retrying.iter().map(|it| &it.chain);
        let known: Vec<_> = live.chain(retrying).map(|chain| chain.due_at).collect();
        let new = slots.into_iter().filter(|(due, _)| !known.contains(due));
        let chains: Vec<_> = new.map(|(due, n)| Chain::new(Trigger::Backfill, due, n)).collect();
        let count = chains.len();
        self.backfill.extend(chains);
        (count, self.go_on(common, now))
    }
}
