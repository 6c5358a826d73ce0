//! The next due times of a job, as `next`, `show` and `validate` print them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::output::local;
use crate::clock::rfc3339;
use crate::schedule::{Due, Schedule, Standing, Zone};

/// How many `show` and `validate` print.
pub(super) const USUAL: usize = 5;

/// The due times of a schedule after an instant, in the words of a zone.
pub(super) struct Dues<'a> {
    schedule: &'a Schedule,
    zone: &'a Zone,
    from: Timestamp,
    upcoming: Vec<Due>,
}

impl<'a> Dues<'a> {
    pub(super) fn new(
        schedule: &'a Schedule,
        zone: &'a Zone,
        from: Timestamp,
        many: usize,
    ) -> Self {
        Self { schedule, zone, from, upcoming: schedule.upcoming(from).take(many).collect() }
    }

    /// One line each: the local time with its offset, the zone, the start if a jitter delays it,
    /// and what a clock change does to it. A local time that one leaves out has a line too.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.upcoming.iter().map(|due| (due.at, self.line(due))).collect();
        if let Some(last) = self.upcoming.last() {
            let spans = self.schedule.spans(self.from, last.at).into_iter();
            let gaps = spans.filter(|span| span.standing == Standing::DstGap);
            lines.extend(gaps.map(|gap| (gap.first, self.left_out(gap.first))));
            lines.sort();
        }
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// The same for programs; here only what is due.
    pub(super) fn json(&self) -> Vec<Value> {
        let one = |due: &Due| {
            let note = due.note.map(|note| note.to_string());
            let mut one = json!({
                "due_at": rfc3339(due.at), "local": self.local(due.at), "note": note,
            });
            if self.schedule.has_jitter() {
                one["start_at"] = rfc3339(self.schedule.start_of(due.at)).into();
            }
            one
        };
        self.upcoming.iter().map(one).collect()
    }

    fn line(&self, due: &Due) -> String {
        let start = self.schedule.start_of(due.at);
        let start = self.schedule.has_jitter().then(|| format!("  starts {}", self.local(start)));
        let note = due.note.map(|note| format!("  ({note})")).unwrap_or_default();
        let (local, zone) = (self.local(due.at), self.zone.name());
        format!("{local}  {zone}{}{note}", start.unwrap_or_default())
    }

    fn left_out(&self, gap: Timestamp) -> String {
        let (local, zone) = (self.local(gap), self.zone.name());
        format!("{local}  {zone}  (not due: the time before it does not exist on this day)")
    }

    fn local(&self, at: Timestamp) -> String {
        local(at, self.zone.rules())
    }
}
