//! Watches a part of the work that goes on inside of a call: limits of its own, inside those of its
//! run.
//!
//! For the run a part is a tool at work, whose signs of life are the run's own. Its requests have
//! the windows that the run's requests have, kept by a watchdog of its own: a silent model ends the
//! part, not the run.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::progress::Progress;
use super::watchdog::{RunLimits, Tripped, Watchdog};
use crate::run::Phase;
use crate::turn::{Model, Observer, PartEnd, Turn, TurnEnd};

/// Which call a part goes on in, and who watches the run around it.
#[derive(Clone, Copy)]
pub(super) struct Inside<'a> {
    pub(super) n: u32,
    pub(super) around: &'a Watchdog,
}

impl Progress<'_> {
    /// Drives `turn`, the part that the `n`th call has opened.
    pub(super) fn watch_part<'a>(
        &'a self,
        n: u32,
        turn: &'a mut Turn,
        model: &'a Model,
        within: Duration,
    ) -> BoxFuture<'a, Result<String, PartEnd>> {
        async move {
            let watchdog = self.watchdog.of_part();
            watchdog.start(RunLimits { deadline: Some(within), ..self.watchdog.request_limits() });
            let inside = Inside { n, around: self.watchdog };
            let progress = self.inside(inside, &watchdog);
            let driven = turn.drive(model, &progress as &dyn Observer);
            match watchdog.guard(driven).await {
                Ok(Ok(reply)) => Ok(reply),
                Ok(Err(TurnEnd::HookBlocked(blocked))) => Err(PartEnd::Blocked(blocked)),
                Ok(Err(end)) => Err(PartEnd::Failed(self.masker.mask(&end.to_string()).into())),
                Err(Tripped::Deadline(limit)) => {
                    Err(PartEnd::Cut(format!("it took longer than {limit:?}")))
                }
                Err(tripped) => Err(PartEnd::Cut(tripped.failure(Some(Phase::ModelCall)).message)),
            }
        }
        .boxed()
    }
}
