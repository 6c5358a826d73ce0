//! A part of the work in a conversation of its own, inside of one call (`subturn`).
//!
//! A part shares everything of its turn that has an end: its tokens and money, its model requests,
//! the time of the call, the count of tool calls, the transcript. It runs where its turn runs, under
//! the permit already held (semantics §1), and waits for no lane. It is kept in the turn while it
//! goes on, so that a turn that is cut still knows what its part has used.

use super::{Model, Opening, Turn};
use crate::hooks::Blocked;
use crate::job::Manner;
use crate::provider::ToolCall;
use crate::tools::{Part, SUBTURN, ToolContext, ToolOutcome, Updates, Verdict, part_of};
use crate::turn::budget::{Bill, Bounds};
use crate::turn::observe::{Observer, PartEnd};

/// Parts of one run. Whoever needs more has a loop.
const PARTS_MAX: u32 = 8;

/// What a part is told before its prompt. Nothing in it changes from run to run.
const SYSTEM: &str = "You do one part of a larger job, unattended: nobody answers questions or \
    confirms anything. Do what you are asked with the tools you have; a call that is refused stays \
    refused. Your last message is what the job gets of you: complete, in itself, and only what you \
    found.";

impl Turn {
    /// Whether `call` opens a part here.
    pub(in crate::turn) fn opens_part(&self, call: &ToolCall) -> bool {
        call.name == SUBTURN && self.tools.names().contains(&SUBTURN)
    }

    /// Has the part done that the `n`th call asks for; `asked` is the call before a hook changed it. It always comes back with words for the
    /// model: a part that fails is an answer, never the failure of its turn.
    pub(in crate::turn) async fn nest(
        &mut self,
        asked: &ToolCall,
        call: &ToolCall,
        n: u32,
        model: &Model,
        observer: &dyn Observer,
    ) -> (ToolOutcome, Option<Blocked>) {
        let (outcome, blocked) =
            match part_of(call.arguments.clone(), &self.tools.names(), &self.context) {
                Ok(_) if self.parts >= PARTS_MAX => {
                    let words = format!("a run has at most {PARTS_MAX} parts");
                    (ToolOutcome::new(Verdict::Denied, words), None)
                }
                Ok(part) => self.do_part(part, n, model, observer).await,
                Err(outcome) => (outcome, None),
            };
        self.tools.note(asked, &outcome);
        (outcome, blocked)
    }

    async fn do_part(
        &mut self,
        part: Part,
        n: u32,
        model: &Model,
        observer: &dyn Observer,
    ) -> (ToolOutcome, Option<Blocked>) {
        self.parts += 1;
        let within = part.within;
        let inner = match self.open_part(part, n).await {
            Ok(inner) => self.inner.insert(Box::new(inner)),
            Err(error) => return (ToolOutcome::new(Verdict::Error, error.to_string()), None),
        };
        let end = observer.drive_part(n, inner, model, within).await;
        let partial = inner.partial_text();
        if let Err(PartEnd::Cut(_)) = &end {
            inner.context.household.end_all(inner.context.stop_grace).await;
        }
        if let Err(error) = self.take_part_back("the part has ended").await {
            tracing::warn!(%error, "kept for later");
        }
        let (verdict, why, blocked) = match end {
            Ok(reply) => return (ToolOutcome::new(Verdict::Ok, reply), None),
            Err(PartEnd::Failed(why)) => (Verdict::Error, why, None),
            Err(PartEnd::Cut(why)) => (Verdict::TimedOut, why, None),
            // The hook has ended the run, not only this part of it.
            Err(PartEnd::Blocked(blocked)) => (Verdict::Error, blocked.to_string(), Some(blocked)),
        };
        let said = partial.map(|text| format!(" It had said so far:\n{text}")).unwrap_or_default();
        let words = format!("the part ended without an answer: {why}.{said}");
        (ToolOutcome::new(verdict, words), blocked)
    }

    async fn open_part(&mut self, part: Part, n: u32) -> std::io::Result<Self> {
        let transcript = self.transcript.part(n).await?;
        let context = ToolContext {
            household: self.context.household.part(),
            tool_timeout: self.context.tool_timeout.min(part.within),
            // How far its tools have come is told by its own calls.
            updates: Updates::default(),
            ..self.context.clone()
        };
        let opening = Opening {
            system: SYSTEM.to_owned(),
            prompt: part.prompt,
            history: Vec::new(),
            // People speak with the turn around it.
            inbox: None,
            tools: self.tools.only(&part.tools),
            context,
            manner: Manner { thinking: self.thinking, ..Manner::default() },
            // What it asks is in the transcript.
            trace: None,
            bounds: self.bounds.inside(&self.bill, part.max_tokens),
            transcript,
            masker: self.masker.clone(),
            clock: self.clock.clone(),
            // Nothing gets past a gate by being part of a call.
            hooks: self.hooks.clone(),
        };
        let mut inner = Self::begin(opening).await;
        // It counts on from where its turn is.
        inner.tally = self.tally;
        Ok(inner)
    }

    /// What the part has used and counted is the turn's from here on.
    pub(super) async fn take_part_back(
        &mut self,
        why: &str,
    ) -> Result<usize, crate::session::TranscriptError> {
        let Some(mut inner) = self.inner.take() else { return Ok(0) };
        self.tally = inner.tally;
        self.bill.absorb(&inner.bill);
        let made_up = inner.transcript.close(why).await;
        self.transcript.goes_on_after(inner.transcript);
        made_up
    }

    /// The part that goes on, if one does.
    pub(super) fn part_bill(&self) -> Option<&Bill> {
        self.inner.as_ref().map(|inner| &inner.bill)
    }
}

impl Bounds {
    /// What is left of them for a part, of which it may use so many tokens.
    fn inside(&self, bill: &Bill, max_tokens: Option<u64>) -> Self {
        let left = self.max_tokens.saturating_sub(bill.usage().tokens());
        Self {
            max_turns: self.max_turns,
            max_tokens: max_tokens.map_or(left, |asked| asked.min(left)),
            max_usd: self.max_usd.map(|allowed| allowed.less(bill.usd())),
            purse: self.purse_of_part(bill),
        }
    }
}
