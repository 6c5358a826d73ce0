//! The attempts of a run: one model is asked after the other until one has answered.
//!
//! All attempts are one conversation. A request that failed leaves nothing in it: what had arrived
//! of an answer is dropped, what tools have said stays. The stream of an attempt is gone before the
//! next one begins, so that a run never has two.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::course::Course;
use super::events::RunEvents;
use super::holdings::Holdings;
use super::models::Resolved;
use super::next_attempt::Step;
use super::progress::Progress;
use super::run::{Executor, Ticket};
use super::stop::{Stop, failure};
use super::watchdog::Watchdog;
use crate::cassette::Plays;
use crate::clock::Deadline;
use crate::run::{ErrorKind, EventPhase, Failure, Outcome, Stream};

impl Executor {
    /// Drives the turn with the model of the job, then with its fallbacks, as far as the rules of
    /// semantics §4 allow.
    pub(super) async fn converse(
        &self,
        ticket: &Ticket,
        watchdog: &Watchdog,
        events: &RunEvents,
        course: &mut Course,
        holdings: &mut Holdings,
    ) -> Result<String, Stop> {
        let masker = Arc::clone(&holdings.masker);
        let progress =
            Progress::new(&ticket.run_id, watchdog, events, &masker, &self.store, &ticket.spec);
        loop {
            let window = self.begin_attempt(ticket, watchdog, &course.present, holdings).await?;
            tracing::debug!(rule = %window.rule, window = ?window.window, "idle window");
            let turn = holdings.turn.as_mut().expect("the preparation began it");
            let answers = turn.tally().answers;
            let end = watchdog.guard(turn.drive(&course.present.model, &progress)).await;
            if turn.tally().answers > answers {
                course.progressed();
            }
            let stop = match end {
                Ok(Ok(reply)) => return Ok(masker.mask(&reply).into_owned()),
                Ok(Err(end)) => Stop::Turn(end),
                Err(tripped) => Stop::Tripped(tripped),
            };
            let next = course.after(&stop, window.window, watchdog.time_left());
            if next == Step::GiveUp {
                return Err(stop);
            }
            let failed = failure(&stop, watchdog, &masker);
            let kind = failed.kind;
            self.go_on(ticket, watchdog, failed, next, course, holdings).await?;
            let told = next_attempt_begins(holdings.attempts + 1, &course.present, kind);
            events.tell(Stream::Lifecycle, EventPhase::Update, told);
        }
    }

    /// Closes the attempt that has failed and brings the course to the next one.
    async fn go_on(
        &self,
        ticket: &Ticket,
        watchdog: &Watchdog,
        failed: Failure,
        next: Step,
        course: &mut Course,
        holdings: &mut Holdings,
    ) -> Result<(), Stop> {
        watchdog.rest();
        tracing::warn!(
            attempt = holdings.attempts, model = %course.present.name, kind = %failed.kind,
            next = %words(next), "model attempt failed"
        );
        if let Some(end) = self.attempt_end(&Outcome::ended(failed, None), holdings) {
            watchdog.guard(self.store.end_attempt(&ticket.run_id, end)).await??;
        }
        // Also where there is nothing to wait for: a run that was cancelled asks no more.
        let wait = match self.plays() {
            Plays::World => next.wait(),
            // Nobody is there who could have asked for it.
            Plays::Cassette => Duration::ZERO,
        };
        let wait = Deadline::after(self.clock.monotonic(), wait);
        watchdog.guard(wait.wait()).await?;
        course.go_on(next, &self.models, self.deck.as_ref())?;
        Ok(watchdog.guard(self.learn_window(&mut course.present, watchdog)).await?)
    }
}

fn words(next: Step) -> String {
    match next {
        Step::Again { after } => format!("again in {}", humantime::format_duration(after)),
        Step::NextProfile => "the next key".into(),
        Step::NextModel => "the next model".into(),
        Step::GiveUp => "nothing".into(),
    }
}

pub(super) fn next_attempt_begins(
    n: u32,
    present: &Resolved,
    after: ErrorKind,
) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("attempt".into(), n.into());
    data.insert("model".into(), present.name.to_string().into());
    data.insert("auth_profile".into(), present.profile.clone().into());
    data.insert("after".into(), after.as_str().into());
    data
}
