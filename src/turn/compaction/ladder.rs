//! What was tried to get a conversation into its window, and what is next.

use super::super::window::Window;

/// So many summaries are made for one overflow (semantics §7).
const PER_OVERFLOW: u32 = 3;

/// After a try that came to nothing, the conversation has to grow by this part of what is left of the
/// window before the next one: otherwise there would be one at every step.
const GROWN_BY: u64 = 2;

/// What is left of a window that a provider has refused, in per cent: the estimate was above it.
const REFUSED_PER_CENT: u64 = 90;

/// What is next after a provider has said that the conversation is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Rung {
    /// A summary, keeping at most so many tokens.
    Summary {
        /// Of what is recent.
        kept: u64,
    },
    /// The results of tools are cut.
    CutResults,
    /// Nothing.
    GiveUp,
}

/// Where a turn is.
#[derive(Debug, Default)]
pub(in super::super) struct Ladder {
    /// Summaries since the last whole answer that an overflow asked for.
    summaries: u32,
    /// Whether they have been cut since then.
    results: Results,
    /// How long the conversation was when a try before a request came to nothing.
    in_vain_at: Option<u64>,
    /// What is known of a model's window since it refused a conversation.
    refused: Option<(String, u64)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Results {
    #[default]
    Whole,
    Cut,
}

impl Ladder {
    /// The window of `model` as far as is known by now.
    pub(in super::super) fn window(&self, model: &str, configured: Window) -> Window {
        match &self.refused {
            Some((name, tokens)) if name == model => configured.min(Window::of(Some(*tokens))),
            _ => configured,
        }
    }

    /// Whether a conversation of `tokens` is to be shortened before the next request. One that was
    /// refused is on its way down already.
    pub(in super::super) fn is_due(&self, tokens: u64, window: Window) -> bool {
        let is_climbing = self.summaries > 0 || self.results == Results::Cut;
        let left = window.tokens() - window.full_at();
        let has_grown = |at: u64| tokens >= at.saturating_add((left / GROWN_BY).max(1));
        !is_climbing && tokens > window.full_at() && self.in_vain_at.is_none_or(has_grown)
    }

    /// A try before a request came to nothing, or to too little, at `tokens`.
    pub(in super::super) fn was_in_vain(&mut self, tokens: u64) {
        self.in_vain_at = Some(tokens);
    }

    /// A whole answer: what was too long is not any more.
    pub(in super::super) fn answered(&mut self) {
        self.summaries = 0;
        self.results = Results::Whole;
    }

    /// `model` has refused a conversation of `tokens`.
    pub(in super::super) fn refused(&mut self, model: &str, tokens: u64) {
        self.refused = Some((model.to_owned(), tokens.saturating_mul(REFUSED_PER_CENT) / 100));
    }

    /// What is next. Each rung is taken once, whatever comes of it; each summary keeps less than the
    /// one before it, since less is known to be too much.
    pub(in super::super) fn next(&mut self, window: Window) -> Rung {
        if self.results == Results::Cut {
            return Rung::GiveUp;
        }
        if self.summaries >= PER_OVERFLOW {
            return self.cut_results();
        }
        self.summaries += 1;
        Rung::Summary { kept: window.kept() }
    }

    /// No summary can be made: on to the next rung.
    pub(in super::super) fn cut_results(&mut self) -> Rung {
        match std::mem::replace(&mut self.results, Results::Cut) {
            Results::Whole => Rung::CutResults,
            Results::Cut => Rung::GiveUp,
        }
    }

    /// What was tried, in words.
    pub(in super::super) fn words(&self) -> String {
        let summaries = match self.summaries {
            1 => "a summary".to_owned(),
            count => format!("{count} summaries"),
        };
        match self.results {
            Results::Whole => format!("after {summaries}"),
            Results::Cut => format!("after {summaries} and with the results of tools cut"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // semantics §7: at most 3 per overflow, then results are cut, then a clear error.
    #[test]
    fn there_are_three_summaries_then_results_are_cut_then_it_is_over() {
        let window = Window::of(Some(128_000));
        let mut ladder = Ladder::default();
        for _ in 0..3 {
            assert_eq!(ladder.next(window), Rung::Summary { kept: 20_000 });
        }
        assert_eq!(ladder.next(window), Rung::CutResults);
        assert_eq!(ladder.words(), "after 3 summaries and with the results of tools cut");
        assert_eq!(ladder.next(window), Rung::GiveUp);
        ladder.answered();
        assert_eq!(ladder.next(window), Rung::Summary { kept: 20_000 });
        // A summary that fails is followed by the next rung.
        assert_eq!(ladder.cut_results(), Rung::CutResults);
        assert_eq!(ladder.next(window), Rung::GiveUp);
        assert_eq!(ladder.cut_results(), Rung::GiveUp);
    }

    #[test]
    fn what_was_in_vain_is_tried_again_when_there_is_more() {
        let window = Window::of(Some(32_000));
        let mut ladder = Ladder::default();
        assert!(!ladder.is_due(16_000, window));
        assert!(ladder.is_due(16_001, window));
        ladder.was_in_vain(17_000);
        assert!(!ladder.is_due(24_999, window));
        assert!(ladder.is_due(25_000, window));
        ladder.next(window);
        assert!(!ladder.is_due(31_000, window));
        ladder.answered();
        assert!(ladder.is_due(31_000, window));
    }

    #[test]
    fn a_model_that_refuses_has_a_smaller_window_than_was_thought() {
        let window = Window::of(None);
        let mut ladder = Ladder::default();
        ladder.refused("m", 10_000);
        assert_eq!(ladder.window("m", window).tokens(), 9_000);
        assert_eq!(ladder.window("other", window), window);
        ladder.refused("m", 900_000);
        assert_eq!(ladder.window("m", window), window);
    }
}
