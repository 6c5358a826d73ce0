//! What a model can take in at once, and what follows from it (semantics §7).

/// The window of a model of which nothing is known, in tokens.
const WINDOW_DEFAULT: u64 = 32_768;

/// What stays free for an answer, in tokens.
const RESERVE: u64 = 16_384;

/// And never less than this, since what comes next is only known once it is there.
const RESERVE_FLOOR: u64 = 20_000;

/// What is kept word for word when a conversation is shortened, in tokens.
const KEPT: u64 = 20_000;

/// Characters that a token stands for, on the average of prose.
const CHARS_PER_TOKEN: u64 = 4;

/// How much of the window one result of a tool may take, in per cent.
const RESULT_PER_CENT: u64 = 30;

/// What a model can take in at once, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window(u64);

impl Window {
    /// Of `tokens`; of the usual size where nothing is known.
    pub const fn of(tokens: Option<u64>) -> Self {
        match tokens {
            Some(tokens) => Self(tokens),
            None => Self(WINDOW_DEFAULT),
        }
    }

    /// In tokens.
    pub const fn tokens(self) -> u64 {
        self.0
    }

    /// What stays free: at most half of it, so that a small window is of use too.
    const fn reserve(self) -> u64 {
        let reserve = if RESERVE > RESERVE_FLOOR { RESERVE } else { RESERVE_FLOOR };
        if reserve < self.0 / 2 { reserve } else { self.0 / 2 }
    }

    /// A conversation of more tokens than this is shortened before the next request.
    pub const fn full_at(self) -> u64 {
        self.0 - self.reserve()
    }

    /// How many tokens of a conversation that is shortened are kept word for word: in a small
    /// window half of what may be used, so that there is room to go on.
    pub const fn kept(self) -> u64 {
        let half = self.full_at() / 2;
        if half < KEPT { half } else { KEPT }
    }

    /// How many tokens of a tool's result enter the context. It matters for what has more of them
    /// than prose: digits, encoded bytes, most scripts.
    pub fn tool_result_tokens(self) -> u64 {
        self.0.saturating_mul(RESULT_PER_CENT) / 100
    }

    /// How many characters of a tool's result enter the context: at most 30 % of the window, and
    /// never more than a bound that grows with it.
    pub fn tool_result_chars(self) -> usize {
        let bound = match self.0 {
            ..100_000 => 16_000,
            100_000..200_000 => 32_000,
            200_000.. => 64_000,
        };
        let share = self.tool_result_tokens().saturating_mul(CHARS_PER_TOKEN);
        usize::try_from(share).unwrap_or(usize::MAX).min(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // semantics §7: context tokens > window − reserve; at least half of a small window is usable.
    #[test]
    fn a_window_is_full_before_its_end_and_at_least_half_of_it_is_usable() {
        let table = [
            (None, 16_384, 8_192),
            (Some(0), 0, 0),
            (Some(4_096), 2_048, 1_024),
            (Some(32_768), 16_384, 8_192),
            (Some(40_000), 20_000, 10_000),
            (Some(60_000), 40_000, 20_000),
            (Some(128_000), 108_000, 20_000),
            (Some(1_000_000), 980_000, 20_000),
        ];
        for (tokens, full_at, kept) in table {
            let window = Window::of(tokens);
            assert_eq!((window.full_at(), window.kept()), (full_at, kept), "{tokens:?}");
        }
    }

    // semantics §7: min(30 % of the window, 16 000 characters; 32 000 from 100k, 64 000 from 200k).
    #[test]
    fn the_share_of_a_result_follows_the_window() {
        let table = [
            (None, 16_000),
            (Some(4_096), 4_912),
            (Some(13_333), 15_996),
            (Some(32_768), 16_000),
            (Some(99_999), 16_000),
            (Some(100_000), 32_000),
            (Some(128_000), 32_000),
            (Some(199_999), 32_000),
            (Some(200_000), 64_000),
            (Some(1_000_000), 64_000),
        ];
        for (tokens, chars) in table {
            assert_eq!(Window::of(tokens).tool_result_chars(), chars, "{tokens:?}");
        }
    }
}
