//! The loop: ask, stream, call tools, ask again.

mod calls;
mod nested;

use std::sync::Arc;

use futures_util::StreamExt as _;

use super::budget::{AttemptBill, Bill, Bounds, OverLimit};
use super::compaction::Ladder;
use super::observe::{Observer, TurnEvent};
use super::shape::Left;
use super::shown::Shown;
use super::talk::Talk;
use super::window::Window;
use crate::clock::Clock;
use crate::config::Price;
use crate::hooks::{Blocked, HookSite};
use crate::job::{Manner, Masker, Thinking, Usd};
use crate::process::Household;
use crate::provider::{
    Completion, Fault, FaultClass, Finish, Message, Provider, Request, StreamEvent, ToolCall,
    Usage, explained,
};
use crate::run::{Payload, Phase};
use crate::session::{Inbox, Remembered, Trace, Transcript, TranscriptError};
use crate::tools::{ToolContext, ToolSet};

/// The model that answers now.
#[derive(Clone)]
pub struct Model {
    /// Its id as the provider knows it.
    pub name: String,
    /// `provider/model`: whose words they are, in the transcript.
    pub known_as: String,
    /// Upper bound of one answer in tokens.
    pub max_output_tokens: Option<u32>,
    /// How much it can take in at once, in tokens.
    pub context_window: Option<u64>,
    /// What it costs; `None` is unknown.
    pub price: Option<Price>,
    /// Where it answers.
    pub provider: Arc<dyn Provider>,
}

/// Counts of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Model requests, those that failed included.
    pub requests: u32,
    /// Complete answers: texts and tool calls.
    pub answers: u32,
    /// Tokens over all requests.
    pub usage: Usage,
    /// What is known of their cost.
    pub usd: Usd,
    /// Tool calls.
    pub tool_calls: u32,
    /// Of these, failed.
    pub tool_errors: u32,
    /// Of these, refused.
    pub denied_calls: u32,
}

/// Why a turn ended without an answer.
#[derive(Debug, thiserror::Error)]
pub enum TurnEnd {
    /// The request failed.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The answer was cut by the output limit.
    #[error("the answer was cut off by the output limit")]
    TruncatedReply,
    /// The provider refused the content.
    #[error("the provider refused to answer")]
    ContentFilter,
    /// The same call over and over.
    #[error("`{tool}` was called {times} times in a row with the same arguments and result")]
    ToolLoop {
        /// Which tool.
        tool: String,
        /// How often.
        times: u32,
    },
    /// Too many requests without an answer.
    #[error("no answer after {0} model requests (limits.max_turns)")]
    TurnLimit(u32),
    /// A hook has ended the run.
    #[error("{0}")]
    HookBlocked(Blocked),
    /// Too many tokens, or too much money.
    #[error(transparent)]
    Budget(#[from] OverLimit),
}

/// What a turn begins with.
pub struct Opening {
    /// The system prompt.
    pub system: String,
    /// What it is asked.
    pub prompt: String,
    /// How the model thinks, and what of it is shown.
    pub manner: Manner,
    /// Where requests and answers are written down, if they are.
    pub trace: Option<Trace>,
    /// What it may call.
    pub tools: ToolSet,
    /// The world of its tools.
    pub context: ToolContext,
    /// How far it may go.
    pub bounds: Bounds,
    /// Where it is written down.
    pub transcript: Transcript,
    /// What was said in it before.
    pub history: Vec<Remembered>,
    /// Where people tell it more while it goes on, if they can.
    pub inbox: Option<Inbox>,
    /// What is never shown.
    pub masker: Arc<Masker>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Where hooks are asked.
    pub hooks: HookSite,
}

/// A conversation with tools, kept outside the future that drives it.
pub struct Turn {
    pub(super) talk: Talk,
    pub(super) ladder: Ladder,
    thinking: Thinking,
    shown: Shown,
    trace: Option<Trace>,
    pub(super) tools: ToolSet,
    pub(super) context: ToolContext,
    pub(super) bounds: Bounds,
    pub(super) transcript: Transcript,
    inbox: Option<Inbox>,
    masker: Arc<Masker>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hooks: HookSite,
    tally: Tally,
    pub(super) bill: Bill,
    /// Answer text of the response that is streaming now.
    pub(super) streaming: String,
    last_call: Option<(ToolCall, String)>,
    repeats: u32,
    /// The part of the work that goes on inside of a call.
    inner: Option<Box<Turn>>,
    /// How many there were.
    parts: u32,
}

impl Turn {
    /// Begins, with the prompt in its transcript.
    pub async fn begin(opening: Opening) -> Self {
        let Opening { system, prompt, manner, trace, tools, context, bounds, transcript, .. } =
            opening;
        let Opening { history, inbox, masker, clock, hooks, .. } = opening;
        let mut turn = Self {
            talk: Talk::begin(system, tools.definitions(), history),
            ladder: Ladder::default(),
            thinking: manner.thinking,
            shown: Shown::new(manner),
            trace,
            tools,
            context,
            bounds,
            transcript,
            inbox,
            masker,
            clock,
            hooks,
            tally: Tally::default(),
            bill: Bill::default(),
            streaming: String::new(),
            last_call: None,
            repeats: 0,
            inner: None,
            parts: 0,
        };
        turn.note_hooks().await;
        turn.add(Message::User { text: prompt }, None).await;
        turn
    }

    /// Asks `model` until it answers, from where the conversation has come to: after an end it may
    /// go on with the same model or another one. Dropping the future cuts the turn:
    /// [`Turn::close`] then completes the transcript.
    pub async fn drive(
        &mut self,
        model: &Model,
        observer: &dyn Observer,
    ) -> Result<String, TurnEnd> {
        loop {
            self.check_turns()?;
            self.listen(observer).await;
            self.talk.is_for(&model.known_as);
            self.make_room(model, observer).await?;
            self.bounds.allow_request(&self.bill, model.price)?;
            let completion = match self.ask(model, observer).await {
                Err(TurnEnd::Fault(fault)) if fault.class == FaultClass::ContextOverflow => {
                    self.after_overflow(fault, model, observer).await?;
                    self.shown.forget();
                    continue;
                }
                other => other?,
            };
            self.ladder.answered();
            let said = Message::Assistant(completion.turn.clone());
            self.add(said, Some(&model.known_as)).await;
            self.talk.counted(completion.usage);
            match completion.finish {
                Finish::ToolCalls => {
                    self.call_tools(completion.turn, model, observer).await?;
                }
                Finish::Stop if self.has_more_to_hear() => {}
                Finish::Stop => {
                    observer.entered(Phase::Output);
                    return Ok(std::mem::take(&mut self.streaming));
                }
                Finish::Length => return Err(TurnEnd::TruncatedReply),
                Finish::ContentFilter => return Err(TurnEnd::ContentFilter),
            }
        }
    }

    /// Goes on after a reply with more to say to the model, and with tools whose processes belong to
    /// `household`.
    pub async fn is_told(&mut self, text: String, household: Household) {
        self.hooks = self.hooks.clone().in_household(household.clone());
        self.add(Message::User { text }, None).await;
        self.context.household = household;
    }

    /// Completes the transcript: a call without a result gets one that says `why`. Returns how
    /// many had none.
    pub async fn close(&mut self, why: &str) -> Result<usize, TranscriptError> {
        if let Some(trace) = &mut self.trace {
            trace.is_cut();
        }
        let of_part = self.take_part_back(why).await;
        let own = self.transcript.close(why).await;
        Ok(of_part? + own?)
    }

    /// The counts so far.
    pub fn tally(&self) -> Tally {
        let part = self.part_bill();
        let usage = self.bill.usage().plus(part.map(Bill::usage).unwrap_or_default());
        let usd = self.bill.usd() + part.map(Bill::usd).unwrap_or_default();
        Tally { usage, usd, ..self.inner.as_ref().map_or(self.tally, |part| part.tally) }
    }

    /// From here on [`Turn::spent`] counts anew.
    pub fn begin_attempt(&mut self) {
        self.bill.begin_attempt();
    }

    /// What the attempt has used so far.
    pub fn spent(&self) -> AttemptBill {
        let own = self.bill.of_attempt();
        let part = self.part_bill().map(Bill::usage).unwrap_or_default();
        AttemptBill { usage: own.usage.plus(part), ..own }
    }

    /// Answer text of the response that was cut, or of the last one.
    pub fn partial_text(&self) -> Option<String> {
        (!self.streaming.is_empty()).then(|| self.masker.mask(&self.streaming).into_owned())
    }

    /// Adds to the conversation what was said, in the transcript first.
    pub(super) async fn add(&mut self, message: Message, by: Option<&str>) {
        let id = self.transcript.append_by(&message, by).await;
        self.talk.push(Remembered { id, message, by: by.map(str::to_owned) });
    }

    /// What people are shown of it if it ends with this reply, or this error, and goes to `targets`.
    pub fn payloads(&self, end: Left<'_>, targets: &[&str]) -> Vec<Payload> {
        let sent = self.context.sent.in_all(targets);
        let sent: Vec<_> = sent.iter().map(|it| self.masker.mask(it).into_owned()).collect();
        let messages = self.context.sent.count();
        self.shown.payloads(Left { sent: &sent, messages, ..end }, &self.masker)
    }

    /// Takes in what people have said since: between an answer and the next request, or between
    /// the results of tools and the next request.
    async fn listen(&mut self, observer: &dyn Observer) {
        if let Some(told) = self.inbox.as_ref().and_then(Inbox::take) {
            self.add(Message::User { text: told.text }, None).await;
            observer.tell(TurnEvent::Heard { ids: &told.ids });
        }
    }

    /// Whether somebody has said something before the turn could end. If not, it is over for all
    /// who come later; nor can it hear more than its requests allow.
    fn has_more_to_hear(&self) -> bool {
        let may_ask = self.tally.answers < self.bounds.max_turns;
        may_ask && self.inbox.as_ref().is_some_and(|inbox| !inbox.close_if_empty())
    }

    fn check_turns(&self) -> Result<(), TurnEnd> {
        if self.tally.answers >= self.bounds.max_turns {
            return Err(TurnEnd::TurnLimit(self.bounds.max_turns));
        }
        Ok(())
    }

    async fn ask(&mut self, model: &Model, observer: &dyn Observer) -> Result<Completion, TurnEnd> {
        self.streaming.clear();
        self.tally.requests += 1;
        observer.entered(Phase::ModelCall);
        observer.tell(TurnEvent::AssistantStart { request: self.tally.requests });
        let request = Request {
            max_output_tokens: model.max_output_tokens,
            thinking: self.thinking,
            context_window: Some(Window::of(model.context_window).tokens()),
            ..self.talk.request(&model.name)
        };
        if let Some(trace) = &mut self.trace {
            trace.asks(&model.known_as, &request);
        }
        let answer = self.hear(model, &request, observer).await;
        if let Some(trace) = &mut self.trace {
            match &answer {
                Ok(completion) => trace.answers(Ok(completion)),
                Err(TurnEnd::Fault(fault)) => trace.answers(Err(fault)),
                Err(_) => trace.is_cut(),
            }
        }
        answer
    }

    /// Sends a request and takes in what comes.
    async fn hear(
        &mut self,
        model: &Model,
        request: &Request,
        observer: &dyn Observer,
    ) -> Result<Completion, TurnEnd> {
        self.bill.begin_request(model.price);
        let opening = model.provider.stream(request).await;
        let level = self.thinking;
        let explained = |fault| explained(fault, &model.name, level);
        let mut stream = opening.inspect_err(|_| self.bill.was_refused()).map_err(explained)?;
        observer.opened();
        let mut is_in_text = false;
        while let Some(event) = stream.next().await {
            let event =
                event.inspect_err(|fault| self.bill.charge(fault.usage)).map_err(explained)?;
            if event.is_progress() {
                observer.pulse();
            }
            let is_text = matches!(event, StreamEvent::Text(_));
            if is_in_text && !is_text && event.is_progress() {
                observer.tell(TurnEvent::TextEnd);
            }
            is_in_text = is_text || (is_in_text && !event.is_progress());
            match event {
                StreamEvent::Opened | StreamEvent::KeepAlive | StreamEvent::ToolFragment => {}
                StreamEvent::Text(piece) => {
                    observer.tell(TurnEvent::Text(&piece));
                    self.streaming.push_str(&piece);
                }
                StreamEvent::Reasoning(piece) => observer.tell(TurnEvent::Reasoning(&piece)),
                StreamEvent::Usage(usage) => {
                    self.bill.charge(usage);
                    self.bounds.allow_spending(&self.bill)?;
                }
                StreamEvent::Done(completion) => {
                    let completion = self.take_in(*completion, observer);
                    self.bounds.allow_spending(&self.bill)?;
                    return Ok(completion);
                }
            }
        }
        Err(Fault::new(FaultClass::IncompleteStream, "the stream ended without an answer").into())
    }

    fn take_in(&mut self, completion: Completion, observer: &dyn Observer) -> Completion {
        self.streaming.clone_from(&completion.turn.text);
        self.tally.answers += 1;
        self.shown.answered(&completion.turn);
        self.bill.charge(completion.usage);
        let usage = self.bill.usage();
        observer.tell(TurnEvent::AssistantEnd {
            text: &completion.turn.text,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
        });
        completion
    }
}
