//! What was commanded in a session, for those who look in: `command:new`, `command:reset`,
//! `command:stop`.

use jiff::Timestamp;

use super::run::Executor;
use crate::job::SessionKey;
use crate::run::SessionId;
use crate::session::Word;
use crate::store::{Actor, AuditKind, SessionAudit};

/// A command that a message was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commanded {
    /// Which.
    pub word: Word,
    /// In which session.
    pub key: SessionKey,
    /// That session's id, after the command.
    pub session_id: SessionId,
    /// What came after it.
    pub arguments: String,
    /// When.
    pub at: Timestamp,
}

impl Executor {
    /// Says in the log and in the audit ledger that something was commanded.
    pub fn tell_command(&self, commanded: &Commanded) {
        let Commanded { word, key, session_id, at, .. } = commanded;
        tracing::info!(event = %format!("command:{word}"), session = %key, %session_id, "commanded");
        self.store.offer_session_audit(SessionAudit {
            at: *at,
            actor: Actor::Person,
            kind: AuditKind::Command,
            session_id: session_id.clone(),
            name: format!("command:{word}"),
        });
    }
}
