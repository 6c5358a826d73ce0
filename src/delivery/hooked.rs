//! Where the outbox asks hooks: before something is sent, and when it has been.

use std::sync::Arc;
use std::time::Duration;

use super::letter::{Content, Letter};
use super::sender::Try;
use super::sent::Sent;
use crate::config::HookPoint;
use crate::hooks::{HookSite, MessageSending, MessageSent, Place, Refusal, RunFacts};
use crate::job::Masker;
use crate::process::Household;
use crate::store::{About, DeliveryEnd, Outgoing};

/// What a message that goes out is called where it is a row of the outbox.
const VIA: &str = "delivery";

/// From TERM to KILL, of what a hook has left.
const STOP_GRACE: Duration = Duration::from_secs(1);

impl Try {
    /// What becomes of it if hooks do not let it out. A hook that cancels has the last word; where
    /// one gives no answer nothing is sent, and it is asked again as a receiver would be.
    pub(super) async fn kept_back(&self, outgoing: &Outgoing, letter: &Letter) -> Option<Sent> {
        if !self.outlet.hooks.has(HookPoint::MessageSending) {
            return None;
        }
        let subject = letter.subject().ok();
        let sending = MessageSending {
            target: outgoing.target.clone(),
            text: letter.text(),
            subject,
            via: VIA,
            delivery_id: Some(outgoing.delivery_id.clone()),
        };
        let household = self.household(letter.id());
        let mut site = self.site(&household);
        if let Some(run) = facts(letter) {
            site = site.of_run(run, None);
        }
        let gate = site.ask(sending).await;
        household.end_all(STOP_GRACE).await;
        let blocked = gate.blocked?;
        Some(match blocked.refusal {
            Refusal::Said => Sent::Cancelled(blocked.to_string()),
            Refusal::NoAnswer => Sent::not_yet(blocked.to_string()),
        })
    }

    /// Tells that it has been sent, or will not be.
    pub(super) async fn tell_sent(&self, outgoing: &Outgoing, end: &DeliveryEnd) {
        let (state, error) = match end {
            DeliveryEnd::Sent => ("sent", None),
            DeliveryEnd::Failed(why) => ("failed", Some(why.clone())),
            DeliveryEnd::Unknown(why) => ("unknown", Some(why.clone())),
            DeliveryEnd::Again(..) | DeliveryEnd::Suppressed(_) => return,
        };
        if !self.outlet.hooks.has(HookPoint::MessageSent) {
            return;
        }
        let (About::Run(about) | About::Message(about, _) | About::Incident(about, _)) =
            &outgoing.about;
        let household = self.household(about);
        let sent = MessageSent {
            target: outgoing.target.clone(),
            state,
            error,
            via: VIA,
            delivery_id: Some(outgoing.delivery_id.clone()),
        };
        self.site(&household).tell(sent).await;
        household.end_all(STOP_GRACE).await;
    }

    fn household(&self, about: &str) -> Household {
        Household::new(self.outlet.supervisor.clone(), about)
    }

    fn site(&self, household: &Household) -> HookSite {
        let config = &self.outlet.config;
        let place = Place {
            household: household.clone(),
            inbox: config.state_dir.join("hooks"),
            masker: Arc::new(Masker::new(config.target_secrets())),
            clock: Arc::clone(&self.outlet.clock),
        };
        let hooks = Arc::clone(&self.outlet.hooks);
        HookSite::new(hooks, place, Arc::new(self.outlet.store.clone()))
    }
}

/// The run that a letter tells of.
fn facts(letter: &Letter) -> Option<RunFacts> {
    let run = match &letter.content {
        Content::Run(run) | Content::Message(run, _) => Some(run),
        Content::Incident(_, _, run) => run.as_ref(),
    }?;
    Some(RunFacts {
        run_id: run.run_id.clone(),
        job: run.job.clone(),
        session_id: run.session_id.clone(),
        trigger: run.trigger.clone(),
        due_at: run.due_at.clone(),
    })
}
