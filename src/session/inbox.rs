//! What is said to a turn before it begins and while it goes on.
//!
//! Both ends look at it under one lock, so that no message falls between a turn that ends and the
//! one after it: whoever closes it has what is left.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::transcript::Clearings;
use crate::clock::{Clock, Deadline};
use crate::run::MessageId;

/// A dropped message is remembered by its first words.
const DROPPED_CHARS: usize = 80;

/// So many dropped ones are remembered by their words, the others by their number.
const DROPPED_SHOWN: usize = 5;

/// A turn that collects begins at the latest after this many times its quiet.
const QUIET_TIMES_MAX: u32 = 20;

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Its id.
    pub id: MessageId,
    /// What it says.
    pub text: String,
}

/// Whose conversation a run goes on.
#[derive(Debug, Clone)]
pub enum Conversation {
    /// One of its own, in which nobody else says anything.
    Own,
    /// One that is kept.
    Kept {
        /// How often it has been cleared.
        clearings: Clearings,
        /// What is said to this run in it.
        inbox: Inbox,
    },
}

impl Conversation {
    /// What is said to the run, if anybody can.
    pub fn inbox(&self) -> Option<&Inbox> {
        match self {
            Self::Own => None,
            Self::Kept { inbox, .. } => Some(inbox),
        }
    }
}

/// What is said to one run.
#[derive(Debug, Clone, Default)]
pub struct Inbox(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    letters: VecDeque<Letter>,
    dropped: Vec<String>,
    /// The quiet that it waits for, with when the first and the last one came.
    collects: Option<(Duration, Instant, Instant)>,
}

/// How far the turn has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Waits,
    Listens,
    Over,
}

/// What a turn is told at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// All of it.
    pub text: String,
    /// Which messages that was.
    pub ids: Vec<MessageId>,
}

impl Inbox {
    /// With the message that its turn begins with.
    pub fn with(letter: Letter) -> Self {
        let inbox = Self::default();
        inbox.state().letters.push_back(letter);
        inbox
    }

    /// Its turn waits until nothing has come for so long.
    pub fn collect(&self, debounce: Duration, now: Instant) {
        self.state().collects = Some((debounce, now, now));
    }

    /// Adds a message; of more than `cap`, the oldest is dropped and returned. Where it is too late
    /// for that, the message comes back.
    pub fn put(&self, letter: Letter, cap: usize, now: Instant) -> Result<Option<Letter>, Letter> {
        let mut state = self.state();
        if state.stage == Stage::Over {
            return Err(letter);
        }
        state.letters.push_back(letter);
        if let Some((_, _, last)) = &mut state.collects {
            *last = now;
        }
        if state.letters.len() <= cap {
            return Ok(None);
        }
        let dropped = state.letters.pop_front();
        state.dropped.extend(dropped.as_ref().map(|it| first_words(&it.text)));
        Ok(dropped)
    }

    /// Messages that were dropped before, by others, in favour of this turn.
    pub fn remember_dropped(&self, words: Vec<String>) {
        let mut state = self.state();
        state.dropped.splice(0..0, words);
    }

    /// What is said before the turn begins; from here on it listens.
    pub fn begin(&self) -> Option<Told> {
        let mut state = self.state();
        if state.stage == Stage::Waits {
            state.stage = Stage::Listens;
        }
        state.take()
    }

    /// What has been said since.
    pub fn take(&self) -> Option<Told> {
        let mut state = self.state();
        (state.stage == Stage::Listens).then(|| state.take())?
    }

    /// Closes it, unless there is something in it.
    pub fn close_if_empty(&self) -> bool {
        let mut state = self.state();
        if state.letters.is_empty() {
            state.stage = Stage::Over;
        }
        state.letters.is_empty()
    }

    /// Closes it; returns what was said to a turn that went on and that it has not heard. What a
    /// turn was to begin with has shared its fate.
    pub fn close(&self) -> Vec<Letter> {
        let mut state = self.state();
        let was = std::mem::replace(&mut state.stage, Stage::Over);
        let letters = std::mem::take(&mut state.letters);
        match was {
            Stage::Waits => Vec::new(),
            Stage::Listens | Stage::Over => letters.into(),
        }
    }

    /// Gives up a turn that has not begun; returns what it was to begin with, in its first words,
    /// with those of what was dropped for it.
    pub fn give_up(&self) -> (Vec<MessageId>, Vec<String>) {
        let mut state = self.state();
        state.stage = Stage::Over;
        let letters = std::mem::take(&mut state.letters);
        let mut words = std::mem::take(&mut state.dropped);
        words.extend(letters.iter().map(|it| first_words(&it.text)));
        (letters.into_iter().map(|it| it.id).collect(), words)
    }

    /// Whether a turn goes on that hears what is said.
    pub fn listens(&self) -> bool {
        self.state().stage == Stage::Listens
    }

    /// Whether its turn has not begun.
    pub fn waits(&self) -> bool {
        self.state().stage == Stage::Waits
    }

    /// Whether its turn waits for more.
    pub fn collects(&self) -> bool {
        let state = self.state();
        state.stage == Stage::Waits && state.collects.is_some()
    }

    /// When it will have been quiet for long enough, if nothing more comes.
    pub fn quiet_at(&self) -> Option<Instant> {
        let (debounce, first, last) = self.state().collects?;
        Some((last + debounce).min(first + debounce * QUIET_TIMES_MAX))
    }

    /// Waits until it has been quiet for long enough.
    pub async fn quiet(&self, clock: &Arc<dyn Clock>) {
        while let Some(at) = self.quiet_at().filter(|at| *at > clock.monotonic()) {
            Deadline::after(at, Duration::ZERO).wait().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder of this lock can panic")
    }
}

impl State {
    fn take(&mut self) -> Option<Told> {
        if self.letters.is_empty() {
            return None;
        }
        let dropped = std::mem::take(&mut self.dropped);
        let letters = std::mem::take(&mut self.letters);
        let ids = letters.iter().map(|it| it.id.clone()).collect();
        let texts = letters.into_iter().map(|it| it.text);
        let texts: Vec<_> = summary(&dropped).into_iter().chain(texts).collect();
        Some(Told { text: texts.join("\n\n"), ids })
    }
}

fn first_words(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(DROPPED_CHARS) {
        None => line,
        Some((at, _)) => format!("{}…", &line[..at]),
    }
}

/// The few words that stand for messages that were dropped.
fn summary(dropped: &[String]) -> Option<String> {
    let count = dropped.len();
    let shown = &dropped[count.saturating_sub(DROPPED_SHOWN)..];
    let words: Vec<_> = shown.iter().map(|it| format!("- {it}")).collect();
    let which = if shown.len() < count { ", the last of them" } else { "" };
    (count > 0).then(|| {
        let head = format!("[{count} earlier messages were dropped, too many waited{which}:");
        format!("{head}\n{}]", words.join("\n"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn now() -> Instant {
        ManualClock::new("2026-11-30T09:00:00Z".parse().unwrap()).monotonic()
    }

    fn letter(text: &str) -> Letter {
        Letter { id: MessageId::from_stored(text), text: text.into() }
    }

    fn told(inbox: &Inbox) -> Option<(String, usize)> {
        inbox.take().map(|told| (told.text, told.ids.len()))
    }

    // Semantics §6: queue cap 20; overflow drops the oldest into a short summary.
    #[test]
    fn of_too_many_the_oldest_are_dropped_into_a_few_words() {
        let (inbox, now) = (Inbox::default(), now());
        assert_eq!(inbox.begin(), None);
        for n in 1..=3 {
            let dropped = inbox.put(letter(&format!("m{n}")), 2, now).unwrap();
            assert_eq!(dropped, (n == 3).then(|| letter("m1")));
        }
        let text = "[1 earlier messages were dropped, too many waited:\n- m1]\n\nm2\n\nm3";
        assert_eq!(told(&inbox), Some((text.into(), 2)));
        assert_eq!(told(&inbox), None);
    }

    #[test]
    fn no_message_falls_between_two_turns() {
        let now = now();
        let inbox = Inbox::with(letter("first"));
        assert!(inbox.waits() && !inbox.listens() && told(&inbox).is_none());
        assert_eq!(inbox.begin().unwrap().text, "first");
        inbox.put(letter("second"), 20, now).unwrap();
        assert!(!inbox.close_if_empty() && inbox.listens());
        assert_eq!(told(&inbox), Some(("second".into(), 1)));
        assert!(inbox.close_if_empty());
        assert_eq!(inbox.put(letter("third"), 20, now), Err(letter("third")));
        // Cut with something unheard: that is not lost.
        let cut = Inbox::default();
        cut.begin();
        cut.put(letter("unheard"), 20, now).unwrap();
        assert_eq!(cut.close(), [letter("unheard")]);
        assert_eq!(Inbox::with(letter("never begun")).close(), []);
    }

    // Semantics §6: `collect`: coalesced into one turn after 500ms of quiet.
    #[test]
    fn every_message_begins_the_quiet_anew_but_not_for_ever() {
        let start = now();
        let after = |millis| start + Duration::from_millis(millis);
        let inbox = Inbox::with(letter("a"));
        assert_eq!(inbox.quiet_at(), None);
        inbox.collect(Duration::from_millis(500), start);
        assert_eq!(inbox.quiet_at(), Some(after(500)));
        inbox.put(letter("b"), 20, after(400)).unwrap();
        assert_eq!(inbox.quiet_at(), Some(after(900)));
        inbox.put(letter("c"), 20, after(9_900)).unwrap();
        assert_eq!(inbox.quiet_at(), Some(after(10_000)));
        assert_eq!(inbox.begin().unwrap().text, "a\n\nb\n\nc");
        assert!(!inbox.collects());
    }

    #[test]
    fn what_was_dropped_is_told_in_its_first_words() {
        let inbox = Inbox::with(letter("kept"));
        let (ids, words) = Inbox::with(letter(&"long ".repeat(40))).give_up();
        assert_eq!(ids.len(), 1);
        inbox.remember_dropped(words);
        let text = inbox.begin().unwrap().text;
        assert!(text.contains("- long long") && text.contains("…]\n\nkept"), "{text}");
    }
}
