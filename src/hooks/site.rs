//! Where hooks are asked: for which run, below which household, within which time.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::point::{Hook, HookContext, HookFault, Observed, Point, Rule, RunFacts, Taken};
use super::record::{HookOutcome, HookRecord, HookRecorder, Nobody};
use super::registry::{Entry, Hooks};
use crate::clock::{Clock, Deadline, to_millis};
use crate::config::HookPoint;
use crate::job::Masker;
use crate::process::Household;

/// Where the commands among hooks run.
#[derive(Debug, Clone)]
pub struct Place {
    /// Whose processes they are.
    pub household: Household,
    /// The folder where what they read is put down, for a moment.
    pub inbox: PathBuf,
    /// What they must never read.
    pub masker: Arc<Masker>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

/// Where hooks are asked. Cheap to clone; clones share what there is to note.
#[derive(Debug, Clone)]
pub struct HookSite {
    hooks: Arc<Hooks>,
    run: Option<RunFacts>,
    workspace: Option<PathBuf>,
    place: Option<Place>,
    recorder: Arc<dyn HookRecorder>,
    until: Deadline,
    notes: Arc<Mutex<Vec<Value>>>,
}

impl HookSite {
    /// Where there are no hooks.
    pub fn without_hooks() -> Self {
        Self {
            hooks: Arc::default(),
            run: None,
            workspace: None,
            place: None,
            recorder: Arc::new(Nobody),
            until: Deadline::NEVER,
            notes: Arc::default(),
        }
    }

    /// A site at `place`, for no run. Every time that a hook is asked is told to `recorder`.
    pub fn new(hooks: Arc<Hooks>, place: Place, recorder: Arc<dyn HookRecorder>) -> Self {
        Self { hooks, place: Some(place), recorder, ..Self::without_hooks() }
    }

    /// The same for this run, whose tools see `workspace`.
    #[must_use]
    pub fn of_run(self, run: RunFacts, workspace: Option<PathBuf>) -> Self {
        Self { run: Some(run), workspace, ..self }
    }

    /// The same below another household.
    #[must_use]
    pub fn in_household(mut self, household: Household) -> Self {
        if let Some(place) = &mut self.place {
            place.household = household;
        }
        self
    }

    /// The same for as long as `until`: a hook that is asked later is not, and one that is asked
    /// before is given up then.
    #[must_use]
    pub fn until(self, until: Deadline) -> Self {
        Self { until, ..self }
    }

    /// The same with the time and the notes of another site.
    #[must_use]
    pub fn going_on_from(self, other: &Self) -> Self {
        Self { until: other.until, notes: Arc::clone(&other.notes), ..self }
    }

    /// Whether anybody is asked there: nothing has to be put together for nobody.
    pub fn has(&self, point: HookPoint) -> bool {
        self.hooks.has(point)
    }

    /// Asks one after the other, until one has the last word.
    pub async fn ask<P: Rule>(&self, mut input: P) -> P::Verdict {
        let mut verdict = P::Verdict::default();
        for (entry, hook) in self.hooks.at(&input) {
            let asked = self.call(entry, &*hook, &input).await;
            let taken = match asked.answer {
                Ok(answer) => {
                    let taken = input.take(&mut verdict, answer, &entry.name);
                    self.record::<P>(entry, asked.when, &taken, None);
                    taken
                }
                Err(fault) => {
                    let taken = P::missed(&mut verdict, &entry.name, &fault);
                    self.record::<P>(entry, asked.when, &taken, Some(&fault));
                    taken
                }
            };
            if P::is_seen_by_the_model() {
                self.note(P::POINT, &entry.name, &taken);
            }
            match taken {
                Taken::Nothing | Taken::Changed(_) => {}
                Taken::Claimed | Taken::Blocked => break,
            }
        }
        verdict
    }

    /// Tells all observers, side by side, and waits for them. Returns what they have to say for the
    /// record.
    pub async fn tell<P: Observed>(&self, input: P) -> Vec<String> {
        let tell = |(entry, hook): (_, Arc<dyn Hook<P>>)| {
            let input = &input;
            async move {
                let entry: &Entry = entry;
                let asked = self.call(entry, &*hook, input).await;
                self.record::<P>(entry, asked.when, &Taken::Nothing, asked.answer.as_ref().err());
                let said = P::note(asked.answer.ok()?)?;
                let note = json!({ "hook": P::POINT, "by": entry.name, "note": said });
                self.notes().push(note);
                Some(said)
            }
        };
        let said = join_all(self.hooks.at(&input).into_iter().map(tell)).await;
        said.into_iter().flatten().collect()
    }

    /// What there is to note in a transcript since the last time.
    pub fn take_notes(&self) -> Vec<Value> {
        std::mem::take(&mut *self.notes())
    }

    async fn call<P: Point>(&self, entry: &Entry, hook: &dyn Hook<P>, input: &P) -> Asked<P> {
        let Some(place) = &self.place else {
            let answer = Err(HookFault::NotStarted("there is no place for hooks here".into()));
            return Asked { answer, when: None };
        };
        let (started_at, start) = (place.clock.wall(), place.clock.monotonic());
        let left = self.until.remaining(start).unwrap_or(Duration::MAX);
        let context = HookContext {
            run: self.run.clone(),
            workspace: self.workspace.clone(),
            limit: entry.limit.min(left),
            place: Some(place.clone()),
        };
        let answer = if context.limit.is_zero() {
            Err(HookFault::NoTime)
        } else {
            let work = AssertUnwindSafe(async { hook.call(input, &context).await }).catch_unwind();
            match timeout(hook.limit(&context), work).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(HookFault::Panicked),
                Err(_) => Err(HookFault::TimedOut(context.limit)),
            }
        };
        let duration = place.clock.monotonic() - start;
        Asked { answer, when: Some((to_millis(started_at), duration)) }
    }

    fn record<P: Point>(
        &self,
        entry: &Entry,
        when: Option<(jiff::Timestamp, Duration)>,
        taken: &Taken,
        fault: Option<&HookFault>,
    ) {
        let Some((started_at, duration)) = when else { return };
        let (outcome, changed) = match (fault, taken) {
            (Some(HookFault::TimedOut(_) | HookFault::NoTime), _) => {
                (HookOutcome::TimedOut, vec![])
            }
            (Some(_), _) => (HookOutcome::Failed, vec![]),
            (None, Taken::Nothing) => (HookOutcome::Ok, vec![]),
            (None, Taken::Changed(changed)) => (HookOutcome::Changed, changed.clone()),
            (None, Taken::Claimed) => (HookOutcome::Claimed, vec![]),
            (None, Taken::Blocked) => (HookOutcome::Blocked, vec![]),
        };
        let error = fault.map(|fault| self.masked(&fault.to_string()));
        let (hook, name) = (P::POINT, &entry.name);
        match fault {
            None => tracing::debug!(%hook, name, %outcome, ?changed, ?duration, "hook"),
            Some(fault) => {
                let said = match fault {
                    HookFault::Ended { said, .. } => self.masked(said),
                    _ => String::new(),
                };
                tracing::warn!(%hook, name, error, said, "a hook gave no answer");
            }
        }
        self.recorder.note(HookRecord {
            run_id: self.run.as_ref().map(|run| run.run_id.clone()),
            hook,
            name: name.clone(),
            outcome,
            changed,
            error,
            started_at,
            duration,
        });
    }

    /// What the model sees otherwise than without this hook.
    fn note(&self, hook: HookPoint, by: &str, taken: &Taken) {
        let did = match taken {
            Taken::Nothing => return,
            Taken::Changed(changed) => json!({ "hook": hook, "by": by, "changed": changed }),
            Taken::Claimed => json!({ "hook": hook, "by": by, "claimed": true }),
            Taken::Blocked => json!({ "hook": hook, "by": by, "blocked": true }),
        };
        self.notes().push(did);
    }

    fn masked(&self, text: &str) -> String {
        self.place.as_ref().map_or_else(|| text.to_owned(), |it| it.masker.mask(text).into_owned())
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Vec<Value>> {
        self.notes.lock().expect("no holder of this lock can panic")
    }
}

/// What one hook said, and when it was asked.
struct Asked<P: Point> {
    answer: Result<P::Answer, HookFault>,
    when: Option<(jiff::Timestamp, Duration)>,
}
