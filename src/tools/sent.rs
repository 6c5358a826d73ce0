//! What a run's messages have told already, so that its reply does not tell it again.

use std::sync::{Arc, Mutex, MutexGuard};

/// The messages that went out, each with its target. All clones are one list.
#[derive(Debug, Clone, Default)]
pub struct SentTexts(Arc<Mutex<Vec<(String, String)>>>);

impl SentTexts {
    /// A message with this text is on its way to `target`.
    pub fn note(&self, target: impl Into<String>, text: impl Into<String>) {
        self.list().push((target.into(), text.into()));
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list().len()
    }

    /// The texts that each of `targets` has, oldest first; none if there are no targets.
    pub fn in_all(&self, targets: &[&str]) -> Vec<String> {
        let list = self.list();
        let Some(first) = targets.first() else { return Vec::new() };
        let has = |target: &str, text: &str| list.iter().any(|it| it.0 == target && it.1 == text);
        let of_first = list.iter().filter(|(target, _)| target == first);
        let texts = of_first.filter(|(_, text)| targets.iter().all(|target| has(target, text)));
        texts.map(|(_, text)| text.clone()).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.0.lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // semantics §9: what a messaging tool already sent is not sent again; to whom it was not sent,
    // it is.
    #[test]
    fn a_text_is_told_where_all_have_it() {
        let sent = SentTexts::default();
        sent.note("ops", "all well");
        sent.note("ops", "more");
        sent.note("team", "all well");
        assert_eq!(sent.count(), 3);
        assert_eq!(sent.in_all(&["ops", "team"]), ["all well"]);
        assert_eq!(sent.in_all(&["ops"]), ["all well", "more"]);
        assert_eq!(sent.in_all(&["ops", "others"]), Vec::<String>::new());
        assert_eq!(sent.in_all(&[]), Vec::<String>::new());
    }
}
