//! What a turn uses, and what it may.
//!
//! A request may not begin once a limit is reached, and is cut as soon as what the provider has
//! said of it exceeds one. What a failed attempt has used was used all the same.

use std::sync::Arc;

use crate::config::Price;
use crate::job::Usd;
use crate::plan::{Cap, Standing};
use crate::provider::Usage;

/// The money that a turn shares with others.
pub trait Purse: std::fmt::Debug + Send + Sync {
    /// The turn has spent so much in all. How the caps stand that it shares.
    fn after(&self, usd: Usd) -> Vec<Standing>;
}

/// How far a turn may go.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Model requests, those that failed not counted.
    pub max_turns: u32,
    /// Prompt and answer tokens together, as the provider counts them, those of caches among them.
    pub max_tokens: u64,
    /// What all requests together may cost.
    pub max_usd: Option<Usd>,
    /// What it shares with other runs of the day.
    pub purse: Arc<dyn Purse>,
}

/// More than a limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OverLimit {
    /// Too many tokens.
    #[error("{used} tokens used of {allowed} (limits.max_tokens)")]
    Tokens {
        /// What was used.
        used: u64,
        /// What was allowed.
        allowed: u64,
    },
    /// Too much money.
    #[error("{} spent of {} ({})", .0.spent, .0.allowed, .0.cap)]
    Money(Standing),
    /// What is left does not pay for what has to be sent.
    #[error(
        "{} spent of {}: the next request costs more than is left ({})",
        .0.spent, .0.allowed, .0.cap
    )]
    TooDear(Standing),
}

impl Bounds {
    /// Whether another request to a model of this price may begin.
    pub(super) fn allow_request(&self, bill: &Bill, price: Option<Price>) -> Result<(), OverLimit> {
        let used = bill.usage().tokens();
        if used >= self.max_tokens {
            return Err(OverLimit::Tokens { used, allowed: self.max_tokens });
        }
        let is_free = price.is_some_and(Price::is_free);
        for standing in self.standings(bill) {
            let Standing { spent, allowed, .. } = standing;
            if spent > allowed || (standing.is_used_up() && !is_free) {
                return Err(OverLimit::Money(standing));
            }
            if spent + bill.least_of_next(price) > allowed {
                return Err(OverLimit::TooDear(standing));
            }
        }
        Ok(())
    }

    /// Whether what has been used so far is allowed.
    pub(super) fn allow_spending(&self, bill: &Bill) -> Result<(), OverLimit> {
        let used = bill.usage().tokens();
        if used > self.max_tokens {
            return Err(OverLimit::Tokens { used, allowed: self.max_tokens });
        }
        match self.standings(bill).into_iter().find(|it| it.spent > it.allowed) {
            Some(over) => Err(OverLimit::Money(over)),
            None => Ok(()),
        }
    }

    /// The purse as a part of the turn sees it: what the turn has spent itself is gone.
    pub(super) fn purse_of_part(&self, bill: &Bill) -> Arc<dyn Purse> {
        Arc::new(PurseOfPart { around: Arc::clone(&self.purse), before: bill.usd() })
    }

    /// How every limit on money stands.
    fn standings(&self, bill: &Bill) -> Vec<Standing> {
        let spent = bill.usd();
        let own = self.max_usd.map(|allowed| Standing { cap: Cap::Run, spent, allowed });
        own.into_iter().chain(self.purse.after(spent)).collect()
    }
}

#[derive(Debug)]
struct PurseOfPart {
    around: Arc<dyn Purse>,
    before: Usd,
}

impl Purse for PurseOfPart {
    fn after(&self, usd: Usd) -> Vec<Standing> {
        self.around.after(self.before + usd)
    }
}

/// What a turn has used.
#[derive(Debug, Default)]
pub(super) struct Bill {
    /// Of requests that are over.
    usage: Usage,
    usd: Usd,
    attempt: AttemptBill,
    /// The request that goes on, or the last one.
    request: Request,
}

/// What an attempt has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttemptBill {
    /// Tokens of its requests.
    pub usage: Usage,
    /// Its last request was refused before any answer began: that one cost nothing.
    pub was_refused: bool,
}

/// One request, with what its provider has said of it so far.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    usage: Usage,
    price: Option<Price>,
}

impl Bill {
    /// Tokens of all requests.
    pub(super) fn usage(&self) -> Usage {
        self.usage.plus(self.request.usage)
    }

    /// What is known of their cost.
    pub(super) fn usd(&self) -> Usd {
        self.usd + self.request.usd()
    }

    /// What the attempt has used.
    pub(super) fn of_attempt(&self) -> AttemptBill {
        AttemptBill { usage: self.attempt.usage.plus(self.request.usage), ..self.attempt }
    }

    /// What a part has used was used here.
    pub(super) fn absorb(&mut self, part: &Self) {
        self.usage = self.usage.plus(part.usage());
        self.usd = self.usd + part.usd();
        self.attempt.usage = self.attempt.usage.plus(part.usage());
    }

    pub(super) fn begin_attempt(&mut self) {
        self.settle();
        self.attempt = AttemptBill::default();
    }

    pub(super) fn begin_request(&mut self, price: Option<Price>) {
        self.settle();
        self.attempt.was_refused = false;
        self.request.price = price;
    }

    pub(super) fn was_refused(&mut self) {
        self.attempt.was_refused = true;
    }

    /// What the request has used so far: what was said before stands where nothing new is said.
    pub(super) fn charge(&mut self, usage: Usage) {
        let known = self.request.usage;
        self.request.usage = Usage {
            input_tokens: usage.input_tokens.or(known.input_tokens),
            output_tokens: usage.output_tokens.or(known.output_tokens),
            cache_read_tokens: usage.cache_read_tokens.or(known.cache_read_tokens),
            cache_write_tokens: usage.cache_write_tokens.or(known.cache_write_tokens),
        };
    }

    /// The least that the next request of the attempt costs: a conversation only grows.
    fn least_of_next(&self, price: Option<Price>) -> Usd {
        let tokens = self.request.usage.input_tokens.unwrap_or(0);
        price.map_or(Usd::ZERO, |price| Usd::from_dollars(price.least_of_input(tokens)))
    }

    /// The request is over.
    fn settle(&mut self) {
        let Request { usage, .. } = self.request;
        self.usd = self.usd + self.request.usd();
        self.usage = self.usage.plus(usage);
        self.attempt.usage = self.attempt.usage.plus(usage);
        self.request = Request::default();
    }
}

impl Request {
    fn usd(&self) -> Usd {
        self.price.map_or(Usd::ZERO, |price| Usd::from_dollars(price.of_known(self.usage)))
    }
}

impl AttemptBill {
    /// What it cost in USD; `None` is unknown.
    pub fn usd(&self, price: Option<Price>) -> Option<f64> {
        let price = price?;
        if self.was_refused && self.usage == Usage::default() {
            return Some(0.0);
        }
        price.of(self.usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price { input: 10.0, output: 100.0, cache_read: 1.0, cache_write: 20.0 };

    fn usage(input: u64, output: u64, read: u64, written: u64) -> Usage {
        Usage {
            input_tokens: Some(input),
            output_tokens: Some(output),
            cache_read_tokens: Some(read),
            cache_write_tokens: Some(written),
        }
    }

    fn bounds(max_tokens: u64, max_usd: f64) -> Bounds {
        let max_usd = Some(Usd::from_dollars(max_usd));
        Bounds { max_turns: 30, max_tokens, max_usd, purse: Arc::new(Others(Vec::new())) }
    }

    /// What others have spent, and what may be.
    #[derive(Debug)]
    struct Others(Vec<(Cap, f64, f64)>);

    impl Purse for Others {
        fn after(&self, usd: Usd) -> Vec<Standing> {
            let standing = |&(cap, spent, allowed): &(Cap, f64, f64)| Standing {
                cap,
                spent: Usd::from_dollars(spent) + usd,
                allowed: Usd::from_dollars(allowed),
            };
            self.0.iter().map(standing).collect()
        }
    }

    fn asked(requests: &[Usage]) -> Bill {
        let mut bill = Bill::default();
        for &usage in requests {
            bill.begin_request(Some(PRICE));
            bill.charge(usage);
        }
        bill
    }

    #[test]
    fn what_failed_attempts_and_cut_requests_have_used_counts() {
        let mut bill = asked(&[usage(1000, 10, 500, 100)]);
        // 400 of input, 500 from the cache, 100 into it, 10 of output.
        let first = Usd::from_dollars(0.004 + 0.0005 + 0.002 + 0.001);
        assert_eq!((bill.usd(), bill.usage().tokens()), (first, 1010));
        bill.begin_attempt();
        assert_eq!(bill.of_attempt(), AttemptBill::default());
        bill.begin_request(Some(PRICE));
        bill.charge(Usage { input_tokens: Some(2000), ..Usage::default() });
        bill.charge(Usage { output_tokens: Some(5), ..Usage::default() });
        // Cut here: nobody has said that it is over.
        assert_eq!(bill.of_attempt().usage.tokens(), 2005);
        assert_eq!(bill.usd(), first + Usd::from_dollars(0.0205));
        bill.begin_attempt();
        bill.begin_request(None);
        bill.charge(usage(7, 7, 0, 0));
        assert_eq!((bill.usd(), bill.usage().tokens()), (first + Usd::from_dollars(0.0205), 3029));
        assert_eq!(bill.of_attempt().usd(None), None);
        assert_eq!(AttemptBill::default().usd(Some(PRICE)), None);
        let refused = AttemptBill { was_refused: true, ..AttemptBill::default() };
        assert_eq!((refused.usd(Some(PRICE)), refused.usd(None)), (Some(0.0), None));
    }

    #[test]
    fn a_request_begins_only_where_something_is_left_and_its_input_is_paid_for() {
        let bill = asked(&[usage(1000, 0, 0, 0)]);
        let price = Some(PRICE);
        let money = |allowed: f64| {
            let (spent, allowed) = (Usd::from_dollars(0.01), Usd::from_dollars(allowed));
            let standing = Standing { cap: Cap::Run, spent, allowed };
            (OverLimit::Money(standing), OverLimit::TooDear(standing))
        };
        let table = [
            (bounds(1000, 1.0), Err(OverLimit::Tokens { used: 1000, allowed: 1000 })),
            (bounds(1001, 1.0), Ok(())),
            (bounds(1001, 0.01), Err(money(0.01).0)),
            // The input of the next request may come from the cache: a thousandth of a dollar.
            (bounds(1001, 0.010_999), Err(money(0.010_999).1)),
            (bounds(1001, 0.011), Ok(())),
        ];
        for (bounds, expected) in table {
            assert_eq!(bounds.allow_request(&bill, price), expected, "{bounds:?}");
        }
        // What is free may follow when all is spent, but not when more than all is.
        assert_eq!(bounds(1001, 0.01).allow_request(&bill, Some(Price::default())), Ok(()));
        let over = bounds(1001, 0.009);
        assert_eq!(over.allow_request(&bill, Some(Price::default())), Err(money(0.009).0));
    }

    #[test]
    fn what_is_used_may_reach_a_limit_and_not_exceed_it() {
        let bill = asked(&[usage(1000, 0, 0, 0)]);
        assert_eq!(bounds(1000, 0.01).allow_spending(&bill), Ok(()));
        let tokens = OverLimit::Tokens { used: 1000, allowed: 999 };
        assert_eq!(bounds(999, 0.01).allow_spending(&bill), Err(tokens));
        let (spent, allowed) = (Usd::from_dollars(0.01), Usd::from_dollars(0.009_999_999));
        let money = OverLimit::Money(Standing { cap: Cap::Run, spent, allowed });
        assert_eq!(bounds(1000, 0.009_999_999).allow_spending(&bill), Err(money));
    }
    #[test]
    fn what_others_have_spent_is_gone_for_all() {
        let bill = asked(&[usage(1000, 0, 0, 0)]);
        let shared = |spent, allowed| {
            let others = Others(vec![(Cap::Job, spent, 5.0), (Cap::All, 4.0, allowed)]);
            Bounds { purse: Arc::new(others), ..bounds(5000, 1.0) }
        };
        let price = Some(PRICE);
        let over = |cap, spent, allowed| {
            let (spent, allowed) = (Usd::from_dollars(spent), Usd::from_dollars(allowed));
            Err(OverLimit::Money(Standing { cap, spent, allowed }))
        };
        assert_eq!(shared(1.0, 9.0).allow_request(&bill, price), Ok(()));
        let own = over(Cap::Job, 5.0, 5.0);
        assert_eq!(shared(4.99, 9.0).allow_request(&bill, price), own);
        assert_eq!(shared(4.99, 9.0).allow_spending(&bill), Ok(()));
        let all = over(Cap::All, 4.01, 4.005);
        assert_eq!(shared(1.0, 4.005).allow_spending(&bill), all);
    }
}
