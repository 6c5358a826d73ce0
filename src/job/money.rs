//! Money, exactly: sums of many small amounts must come to what a cap says.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

/// US dollars, in whole billionths: a thousandth of a token of the cheapest models. The largest
/// amount is beyond any bill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(u64);

const BILLIONTHS: f64 = 1e9;

impl Usd {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// The nearest amount; what is no number or negative is nothing.
    pub fn from_dollars(dollars: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the conversion saturates, and no number becomes nothing"
        )]
        Self((dollars * BILLIONTHS).round() as u64)
    }

    /// As a column of the ledger has it.
    pub fn dollars(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "exact up to nine million dollars")]
        let billionths = self.0 as f64;
        billionths / BILLIONTHS
    }

    /// What is left of it; nothing once more is taken.
    #[must_use]
    pub fn less(self, taken: Self) -> Self {
        Self(self.0.saturating_sub(taken.0))
    }
}

impl Add for Usd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Usd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::add)
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} USD", self.dollars())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_dimes_are_a_dollar() {
        let dimes: Usd = std::iter::repeat_n(Usd::from_dollars(0.1), 10).sum();
        assert_eq!(dimes, Usd::from_dollars(1.0));
        assert_eq!(dimes.dollars().to_string(), "1");
        assert_eq!(Usd::from_dollars(0.0123).to_string(), "0.0123 USD");
    }

    #[test]
    fn no_amount_is_negative_or_overflows() {
        for nothing in [-1.0, f64::NAN, f64::NEG_INFINITY, 0.0] {
            assert_eq!(Usd::from_dollars(nothing), Usd::ZERO);
        }
        let most = Usd::from_dollars(f64::INFINITY);
        assert_eq!(most + most, most);
        assert_eq!(Usd::ZERO.less(most), Usd::ZERO);
    }
}
