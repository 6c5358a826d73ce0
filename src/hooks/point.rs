//! What a point, a hook and a rule are.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::site::Place;
use crate::config::HookPoint;

/// What the hooks of a point are given. The type is the point.
pub trait Point: Serialize + Send + Sync + Sized + 'static {
    /// Its name.
    const POINT: HookPoint;

    /// What a hook may answer. The default is no answer.
    type Answer: DeserializeOwned + Default + Send;

    /// What a command has printed, which was not nothing. An error is a failure of the hook.
    fn read(printed: &str) -> Result<Self::Answer, String> {
        serde_json::from_str(printed).map_err(|error| error.to_string())
    }

    /// Of a point with several events: which one this is.
    fn event(&self) -> Option<&str> {
        None
    }
}

/// Something that is asked at a point.
///
/// A function of what it is given is one: `|call: &BeforeToolCall| ToolCallAnswer::default()`.
pub trait Hook<P: Point>: Send + Sync {
    /// Looks, and answers. Dropping the future gives it up. A panic is a failure of the hook.
    fn call<'a>(
        &'a self,
        input: &'a P,
        context: &'a HookContext,
    ) -> BoxFuture<'a, Result<P::Answer, HookFault>>;

    /// When to give it up from outside. Whoever keeps the limit itself and then tidies needs a
    /// little longer.
    fn limit(&self, context: &HookContext) -> Duration {
        context.limit
    }
}

impl<P, F> Hook<P> for F
where
    P: Point,
    F: Fn(&P) -> P::Answer + Send + Sync,
{
    fn call<'a>(
        &'a self,
        input: &'a P,
        _context: &'a HookContext,
    ) -> BoxFuture<'a, Result<P::Answer, HookFault>> {
        async move { Ok(self(input)) }.boxed()
    }
}

/// Which run a hook is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunFacts {
    /// The run.
    pub run_id: String,
    /// Its job.
    pub job: String,
    /// Its session.
    pub session_id: String,
    /// What made it start.
    pub trigger: String,
    /// Its slot, RFC 3339.
    pub due_at: Option<String>,
}

/// What a hook may know beside what it is given.
#[derive(Debug, Clone)]
pub struct HookContext {
    /// The run that it is asked for, if there is one.
    pub run: Option<RunFacts>,
    /// The folder that the run's tools see.
    pub workspace: Option<PathBuf>,
    /// How long it may take.
    pub limit: Duration,
    /// Where a command runs.
    pub(super) place: Option<Place>,
}

/// Why a hook gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookFault {
    /// It took too long.
    #[error("it took longer than {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    /// It was not asked: what came before has used up the time there is for hooks.
    #[error("no time was left for it")]
    NoTime,
    /// It could not be started.
    #[error("it could not be started: {0}")]
    NotStarted(String),
    /// It ended otherwise than with exit code 0.
    #[error("{how}")]
    Ended {
        /// How, in words.
        how: String,
        /// What it said on standard error.
        said: String,
    },
    /// It printed more than is read.
    #[error("it printed {0} bytes")]
    TooMuch(u64),
    /// What it printed is no answer at this point.
    #[error("what it printed is no answer: {0}")]
    NoAnswer(String),
    /// It panicked.
    #[error("it panicked")]
    Panicked,
    /// It says itself that it failed.
    #[error("{0}")]
    Failed(String),
}

/// What came of one hook's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// Nothing.
    Nothing,
    /// These were changed, by name.
    Changed(Vec<&'static str>),
    /// It does it in our place; nobody else is asked.
    Claimed,
    /// It refuses; nobody else is asked.
    Blocked,
}

/// How the answers at a point come to one verdict.
pub trait Rule: Point {
    /// What they come to. The default is what holds without hooks.
    type Verdict: Default + Send;

    /// Takes the next answer in, from the hook `by`. What it changes of `self` is what those of
    /// lower priority are given.
    fn take(&mut self, verdict: &mut Self::Verdict, answer: Self::Answer, by: &str) -> Taken;

    /// What it means that `by` gave none: nothing, but for gates.
    fn missed(_verdict: &mut Self::Verdict, _by: &str, _fault: &HookFault) -> Taken {
        Taken::Nothing
    }

    /// Whether what it changes is seen by the model.
    fn is_seen_by_the_model() -> bool {
        true
    }
}

/// A point whose hooks only look.
pub trait Observed: Point {
    /// What an observer has to say for the record.
    fn note(_answer: Self::Answer) -> Option<String> {
        None
    }
}

/// What an observer of a compaction may answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotation {
    /// A line for the transcript.
    pub note: Option<String>,
}
