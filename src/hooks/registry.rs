//! Who is asked where, and in which order.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::command::{self, CommandHook};
use super::point::{Hook, Point};
use crate::config::{HookOn, HookPoint, HookSpec};

/// All hooks, in the order in which they were registered.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    entries: Vec<Entry>,
}

/// A hook and where it is asked.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) on: HookOn,
    pub(super) name: String,
    priority: i64,
    pub(super) limit: Duration,
    origin: Origin,
    /// An `Arc<dyn Hook<P>>`, with the `P` of its point.
    hook: Arc<dyn Any + Send + Sync>,
}

/// Where a hook comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Whoever embeds the library.
    Code,
    /// `[[hooks]]`: replaced when the file is read again.
    Config,
}

/// A hook as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Where it is asked.
    pub on: String,
    /// What it is called.
    pub name: String,
}

impl Hooks {
    /// The commands of `[[hooks]]`.
    pub fn of_config(specs: &[HookSpec]) -> Self {
        Self { entries: specs.iter().map(command_entry).collect() }
    }

    /// The same hooks of code, with the commands of another configuration.
    #[must_use]
    pub fn with_config(&self, specs: &[HookSpec]) -> Self {
        let of_code = self.entries.iter().filter(|it| it.origin == Origin::Code).cloned();
        Self { entries: of_code.chain(specs.iter().map(command_entry)).collect() }
    }

    /// The same with one more at the point `P`: `name` is what it is called in the history, hooks
    /// of high `priority` are asked first, and it has the whole budget of its kind.
    #[must_use]
    pub fn on<P: Point>(self, name: &str, priority: i64, hook: impl Hook<P> + 'static) -> Self {
        self.on_for::<P>(name, priority, P::POINT.kind().budget(), hook)
    }

    /// The same with a limit of its own; a longer one than the budget of its kind has no effect.
    #[must_use]
    pub fn on_for<P: Point>(
        mut self,
        name: &str,
        priority: i64,
        limit: Duration,
        hook: impl Hook<P> + 'static,
    ) -> Self {
        let limit = limit.min(P::POINT.kind().budget());
        let hook = erased::<P>(Arc::new(hook));
        let (on, origin) = (HookOn::all(P::POINT), Origin::Code);
        self.entries.push(Entry { on, name: name.to_owned(), priority, limit, origin, hook });
        self
    }

    /// Whether anybody is asked there.
    pub fn has(&self, point: HookPoint) -> bool {
        self.entries.iter().any(|entry| entry.on.point == point)
    }

    /// All of them, those of a point in the order in which they are asked.
    pub fn listed(&self) -> Vec<Listed> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        let place = |point: HookPoint| HookPoint::ALL.iter().position(|it| *it == point);
        entries.sort_by_key(|it| (place(it.on.point), std::cmp::Reverse(it.priority)));
        let listed = |it: &&Entry| Listed { on: it.on.to_string(), name: it.name.clone() };
        entries.iter().map(listed).collect()
    }

    /// Those that are asked about `input`: high priority first, registration order breaks ties.
    pub(super) fn at<P: Point>(&self, input: &P) -> Vec<(&Entry, Arc<dyn Hook<P>>)> {
        let is_meant = |entry: &&Entry| {
            entry.on.point == P::POINT
                && (entry.on.command.is_none() || entry.on.command.as_deref() == input.event())
        };
        let mut entries: Vec<_> = self.entries.iter().filter(is_meant).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.priority));
        entries.into_iter().map(|entry| (entry, entry.hook::<P>())).collect()
    }
}

impl Entry {
    fn hook<P: Point>(&self) -> Arc<dyn Hook<P>> {
        let hook = self.hook.downcast_ref::<Arc<dyn Hook<P>>>();
        Arc::clone(hook.expect("a hook is registered under the point that it is for"))
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("on", &self.on)
            .field("name", &self.name)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

fn command_entry(spec: &HookSpec) -> Entry {
    Entry {
        on: spec.on.clone(),
        name: spec.name.clone(),
        priority: spec.priority,
        limit: spec.timeout,
        origin: Origin::Config,
        hook: command::at(spec.on.point, CommandHook::new(spec)),
    }
}

pub(super) fn erased<P: Point>(hook: Arc<dyn Hook<P>>) -> Arc<dyn Any + Send + Sync> {
    Arc::new(hook)
}
