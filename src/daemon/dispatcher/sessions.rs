//! The conversations that are kept: which one has a key now, and which run sits in which.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{ActiveRun, Dispatcher};
use crate::config::QueueRules;
use crate::job::{JobSpec, SessionChoice, SessionKey};
use crate::run::{RunId, SessionId};
use crate::session::{Clearings, Conversation, Inbox};
use crate::store::{Kept, Seat, SessionRow};

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    current: BTreeMap<SessionKey, SessionRow>,
    pub(super) rules: QueueRules,
    /// Days after which a session that nobody used is not gone on with.
    pub(super) rest_after: Option<u32>,
}

/// Where a run sits.
pub(super) struct Seated {
    pub(super) session_id: SessionId,
    /// None for a command.
    pub(super) seat: Option<Seat>,
    pub(super) conversation: Conversation,
}

impl Sessions {
    pub(super) fn new(rows: Vec<SessionRow>) -> Self {
        let current = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
        Self { current, ..Self::default() }
    }

    /// The session that has the key now; a new one if none has, or if that rests for good.
    pub(super) fn enter(&mut self, key: &SessionKey, now: Timestamp) -> &SessionRow {
        let rests = |row: &SessionRow| {
            let usual = crate::config::Retention { runs: None, days: self.rest_after };
            crate::daemon::retention::sessions_rest_before(usual, now)
                .is_some_and(|before| row.last_used < before)
        };
        if self.current.get(key).is_none_or(rests) {
            self.begin(key, now);
        }
        let row = self.current.get_mut(key).expect("it has just begun");
        row.last_used = row.last_used.max(now);
        row
    }

    /// Begins another session under the key.
    pub(super) fn begin(&mut self, key: &SessionKey, now: Timestamp) -> SessionRow {
        let id = SessionId::new(now);
        let row = SessionRow { key: key.clone(), id, clearings: 0, last_used: now };
        self.current.insert(key.clone(), row.clone());
        row
    }

    /// From the next run on nothing of it is remembered.
    pub(super) fn clear(&mut self, key: &SessionKey, now: Timestamp) -> SessionRow {
        self.enter(key, now);
        let row = self.current.get_mut(key).expect("it has just been entered");
        row.clearings += 1;
        row.clone()
    }

    /// The key of the session that is named by its key or its id.
    pub(super) fn named(&self, name: &str) -> Result<SessionKey, String> {
        let by_id = self.current.values().find(|row| row.id.as_str() == name);
        let by_key = self.current.keys().find(|key| key.as_str() == name);
        if let Some(key) = by_id.map(|row| &row.key).or(by_key) {
            return Ok(key.clone());
        }
        name.parse().map_err(|why| format!("there is no session `{name}`, and {why}"))
    }

    fn clearings_of(&self, key: &SessionKey, id: &SessionId) -> Clearings {
        let row = self.current.get(key).filter(|row| row.id == *id);
        Clearings(row.map_or(0, |row| row.clearings))
    }
}

impl Dispatcher {
    /// The conversations that are kept, as the ledger has them.
    pub(in crate::daemon) fn knows_sessions(&mut self, rows: Vec<SessionRow>) {
        let Sessions { rules, rest_after, .. } = self.sessions;
        self.sessions = Sessions { rules, rest_after, ..Sessions::new(rows) };
    }

    /// A seat for a run of `spec`.
    pub(super) fn seat(&mut self, spec: &JobSpec, now: Timestamp) -> Seated {
        let Some(agent) = spec.agent() else {
            let session_id = SessionId::new(now);
            return Seated { session_id, seat: None, conversation: Conversation::Own };
        };
        let key = agent.session.key_for(&spec.id);
        match agent.session {
            SessionChoice::Isolated => Seated {
                session_id: SessionId::new(now),
                seat: Some(Seat { key, kept: Kept::ForTheRun }),
                conversation: Conversation::Own,
            },
            SessionChoice::Job | SessionChoice::Named(_) => {
                self.seat_in(&key, Inbox::default(), now)
            }
        }
    }

    /// A seat in the session that has the key now.
    pub(super) fn seat_in(&mut self, key: &SessionKey, inbox: Inbox, now: Timestamp) -> Seated {
        let row = self.sessions.enter(key, now);
        Seated {
            session_id: row.id.clone(),
            seat: Some(Seat { key: key.clone(), kept: Kept::FromRunToRun }),
            conversation: Conversation::Kept { clearings: Clearings(row.clearings), inbox },
        }
    }

    /// The seat that a run has had since before this process.
    pub(super) fn seat_again(&self, spec: &JobSpec, session_id: SessionId) -> Seated {
        let seat = spec.agent().map(|agent| Seat {
            key: agent.session.key_for(&spec.id),
            kept: match agent.session {
                SessionChoice::Isolated => Kept::ForTheRun,
                SessionChoice::Job | SessionChoice::Named(_) => Kept::FromRunToRun,
            },
        });
        let conversation = match &seat {
            Some(Seat { key, kept: Kept::FromRunToRun }) => Conversation::Kept {
                clearings: self.sessions.clearings_of(key, &session_id),
                inbox: Inbox::default(),
            },
            Some(Seat { kept: Kept::ForTheRun, .. }) | None => Conversation::Own,
        };
        Seated { session_id, seat, conversation }
    }

    /// The runs that go on or wait in the session which has the key now, the first one first.
    pub(super) fn seated(&self, key: &SessionKey) -> Vec<(&RunId, &ActiveRun)> {
        let Some(row) = self.sessions.current.get(key) else { return Vec::new() };
        let is_in = |run: &ActiveRun| {
            run.ticket.session_id == row.id && run.ticket.conversation.inbox().is_some()
        };
        let mut runs: Vec<_> = self.active.iter().filter(|(_, run)| is_in(run)).collect();
        runs.sort_by_key(|(run_id, _)| *run_id);
        runs
    }
}
