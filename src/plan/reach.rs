//! Whether the models of a job can be reached, as far as that is asked before a slot starts
//! (semantics §4).
//!
//! A job waits for *any* of its servers. A good answer holds for all jobs of that server for a
//! while; a bad one is not kept, since a server can be there again at any moment.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

/// How long a good answer holds.
const GOOD_FOR: Duration = Duration::from_mins(5);

/// Whoever asks has an answer within this, or takes it as a bad one.
pub const ANSWERED_WITHIN: Duration = Duration::from_millis(2500);

/// When the servers are asked, counted from the first time: then, twice more, and steadily.
const ASKED_AFTER: [Duration; 3] =
    [Duration::ZERO, Duration::from_secs(30), Duration::from_mins(1)];

/// The steady distance.
const ASKED_EACH: Duration = Duration::from_mins(5);

/// A server of models that is asked before a slot starts, by its base URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Server(pub String);

/// What is known of the servers.
#[derive(Debug, Clone, Default)]
pub(super) struct Reach {
    good_until: HashMap<Server, Timestamp>,
    asked_at: HashMap<Server, Timestamp>,
}

impl Reach {
    /// Whether one of these can be reached; no servers are no obstacle.
    pub(super) fn reaches(&self, servers: &[Server], now: Timestamp) -> bool {
        // A clock that was set back leaves no answer that holds for longer than it may.
        let holds = |until: &Timestamp| now <= *until && *until <= now + GOOD_FOR;
        servers.is_empty() || servers.iter().any(|it| self.good_until.get(it).is_some_and(holds))
    }

    /// Those among the servers that are to be asked now; the others have been, a moment ago.
    pub(super) fn ask(&mut self, servers: &[Server], now: Timestamp) -> Vec<Server> {
        let is_open = |at: &Timestamp| now.duration_since(*at).unsigned_abs() <= ANSWERED_WITHIN;
        let silent = servers.iter().filter(|it| !self.asked_at.get(*it).is_some_and(is_open));
        let silent: Vec<_> = silent.cloned().collect();
        self.asked_at.extend(silent.iter().map(|server| (server.clone(), now)));
        silent
    }

    /// An answer.
    pub(super) fn answered(&mut self, server: &Server, reachable: bool, now: Timestamp) {
        self.asked_at.remove(server);
        if reachable {
            self.good_until.insert(server.clone(), now + GOOD_FOR);
        } else {
            self.good_until.remove(server);
        }
    }

    /// A run could not reach its models: no answer from before that holds any more.
    pub(super) fn forget(&mut self, servers: &[Server]) {
        for server in servers {
            self.good_until.remove(server);
        }
    }
}

/// A job that waits for its models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asks {
    /// Since when.
    pub(super) since: Timestamp,
    /// When its servers are asked the next time.
    pub(super) next: Timestamp,
    count: u32,
}

impl Asks {
    pub(super) fn from(now: Timestamp) -> Self {
        Self { since: now, next: now, count: 0 }
    }

    /// They are being asked; that is the next time.
    pub(super) fn asked(&mut self, now: Timestamp) {
        while self.next <= now {
            self.count += 1;
            let steady = ASKED_AFTER.len() - 1;
            let count = usize::try_from(self.count).unwrap_or(usize::MAX);
            let after = ASKED_AFTER.get(count).copied().unwrap_or_else(|| {
                let more = u32::try_from(count - steady).unwrap_or(u32::MAX);
                ASKED_AFTER[steady] + ASKED_EACH.saturating_mul(more)
            });
            self.next = self.since + after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_asks_at_once_after_half_a_minute_a_minute_and_then_each_five() {
        let start: Timestamp = "2026-11-30T08:00:00Z".parse().unwrap();
        let mut asks = Asks::from(start);
        let mut seconds = Vec::new();
        for _ in 0..5 {
            seconds.push(asks.next.duration_since(start).as_secs());
            asks.asked(asks.next);
        }
        assert_eq!(seconds, [0, 30, 60, 360, 660]);
        // Whoever slept asks once, not once for each time that has passed.
        asks.asked(start + Duration::from_hours(1));
        assert_eq!(asks.next.duration_since(start).as_secs(), 3660);
    }

    #[test]
    fn a_good_answer_holds_for_five_minutes_and_for_every_job_of_that_server() {
        let start: Timestamp = "2026-11-30T08:00:00Z".parse().unwrap();
        let after = |seconds| start + Duration::from_secs(seconds);
        let [a, b] = ["http://a", "http://b"].map(|it| Server(it.into()));
        let both = [a.clone(), b.clone()];
        let mut reach = Reach::default();
        assert!(reach.reaches(&[], start));
        assert!(!reach.reaches(&both, start));
        assert_eq!(reach.ask(&both, start), both);
        assert_eq!(reach.ask(&both, after(2)), []);
        reach.answered(&a, false, after(2));
        assert_eq!(reach.ask(&both, after(2)), std::slice::from_ref(&a));
        // An answer that never comes does not keep it from asking again.
        assert_eq!(reach.ask(&both, after(4)), std::slice::from_ref(&b));
        reach.answered(&b, true, after(4));
        assert!(reach.reaches(&both, after(304)) && !reach.reaches(&both, after(305)));
        assert!(!reach.reaches(std::slice::from_ref(&a), after(5)));
        // Neither does the answer last because the clock was set back, nor does the question.
        assert!(!reach.reaches(&both, start - Duration::from_mins(10)));
        assert_eq!(reach.ask(&[a], start - Duration::from_mins(10)).len(), 1);
        reach.forget(&both);
        assert!(!reach.reaches(&both, after(5)));
    }
}
