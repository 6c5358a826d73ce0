//! What people say: a turn of no job, something for the turn that goes on, or a command.

use std::sync::Arc;

use jiff::Timestamp;

use super::{ActiveRun, Dispatcher, Phase, answered};
use crate::config::Config;
use crate::daemon::event::{Answer, Command, Post};
use crate::daemon::protocol::{Heard, Obeyed, Reply};
use crate::executor::{Commanded, caps_of};
use crate::job::{JobId, JobSpec, SessionKey};
use crate::plan::{Caps, Record, Standing};
use crate::run::{CancelReason, ErrorKind, MessageId, RunId, Trigger};
use crate::session::{Busy, Fate, Inbox, Letter, Overflow, Word, fate};
use crate::store::{LetterEnd, LetterMode, LetterRow, NewRun, Sending};

/// What a turn of no job is made of.
#[derive(Debug)]
pub(super) struct AdHoc {
    /// Its definition, or why there is none.
    spec: Result<Arc<JobSpec>, String>,
    pub(super) caps: Caps,
}

impl Default for AdHoc {
    fn default() -> Self {
        Self { spec: Err("no configuration has been read".into()), caps: Caps::default() }
    }
}

impl AdHoc {
    pub(super) fn of(config: &Config) -> Self {
        let spec = config.ad_hoc().map(Arc::new).map_err(|problems| super::all_words(&problems));
        let caps = spec.as_ref().map(|spec| caps_of(spec, config)).unwrap_or_default();
        Self { spec, caps }
    }
}

/// A message, and who waits for what becomes of it.
struct Said {
    letter: Letter,
    key: SessionKey,
    spec: Arc<JobSpec>,
    answer: Option<Answer>,
}

impl Dispatcher {
    pub(super) fn message_wanted(
        &mut self,
        text: &str,
        session: Option<&str>,
        answer: Answer,
        now: Timestamp,
    ) -> Vec<Command> {
        self.is_asked();
        let said = match self.may_say(text, session, now) {
            Ok(said) => Said { answer: Some(answer), ..said },
            Err(refusal) => return vec![answered(answer, refusal)],
        };
        let mut commands = vec![Command::Received(said.key.clone(), text.to_owned())];
        commands.extend(match Word::of(text) {
            Some((word, rest)) => self.obey(word, rest, said, now),
            None => self.say(said, now),
        });
        commands
    }

    fn may_say(&self, text: &str, session: Option<&str>, now: Timestamp) -> Result<Said, Reply> {
        if self.phase == Phase::Stopping {
            return Err(Reply::refused("stopping", "the daemon is stopping".into()));
        }
        let invalid = |words: String| Reply::refused("invalid", words);
        if text.trim().is_empty() {
            return Err(invalid("the message is empty".into()));
        }
        let key = session.map_or_else(|| Ok(SessionKey::main()), |name| self.sessions.named(name));
        let key = key.map_err(invalid)?;
        let spec = self.ad_hoc.spec.clone();
        let spec = spec.map_err(|why| invalid(format!("no turn can be made of it: {why}")))?;
        if let Some(used_up) = self.planner.outside_used_up(&spec.id, &self.ad_hoc.caps, now) {
            let Standing { cap, spent, allowed } = used_up.standing;
            let words = format!("{spent} of {allowed} are spent today ({cap})");
            return Err(Reply::refused("budget", words));
        }
        let letter = Letter { id: MessageId::new(now), text: text.to_owned() };
        Ok(Said { letter, key, spec, answer: None })
    }

    /// Decides what becomes of a message.
    fn say(&mut self, said: Said, now: Timestamp) -> Vec<Command> {
        let seated = self.seated(&said.key);
        let inbox = |run: &ActiveRun| run.ticket.conversation.inbox().cloned();
        let collecting = seated.iter().filter_map(|(id, run)| Some((*id, inbox(run)?)));
        let collecting = collecting.clone().find(|(_, inbox)| inbox.collects());
        let waiting: Vec<_> = seated.iter().filter(|(_, run)| run.waits_with_message()).collect();
        let listening = seated.iter().filter_map(|(id, run)| Some((*id, inbox(run)?)));
        let listening = listening.clone().find(|(_, inbox)| inbox.listens());
        let busy = Busy {
            listens: listening.is_some(),
            works: !seated.is_empty(),
            collects: collecting.is_some(),
            waiting: waiting.len(),
        };
        let rules = self.sessions.rules;
        match fate(rules, busy) {
            Fate::Starts => self.turn_of(said, LetterMode::Start, Vec::new(), now),
            Fate::Waits(Overflow::None) => {
                self.turn_of(said, LetterMode::Followup, Vec::new(), now)
            }
            Fate::Waits(Overflow::DropsOldest) => {
                let oldest = waiting.first().map(|(run_id, _)| (*run_id).clone());
                let (mut commands, words) = self.give_up(oldest.as_slice(), LetterEnd::Dropped);
                commands.extend(self.turn_of(said, LetterMode::Followup, words, now));
                commands
            }
            Fate::Collects => self.turn_of(said, LetterMode::Collect, Vec::new(), now),
            Fate::Steers => self.post(said, listening, LetterMode::Steer, now),
            Fate::Joins => self.post(said, collecting, LetterMode::Collect, now),
            Fate::Replaces => {
                let waiting: Vec<_> = waiting.iter().map(|(id, _)| (*id).clone()).collect();
                let runs = seated.iter().filter(|(_, run)| !run.watchdog.is_waiting());
                let runs = runs.map(|(_, run)| Arc::clone(&run.watchdog)).collect::<Vec<_>>();
                let (mut commands, _) = self.give_up(&waiting, LetterEnd::Dropped);
                let cut = |watchdog| Command::Cancel(watchdog, CancelReason::Replaced);
                commands.extend(runs.into_iter().map(cut));
                commands.extend(self.turn_of(said, LetterMode::Interrupt, Vec::new(), now));
                commands
            }
        }
    }

    /// Puts the message where a turn that goes on or waits finds it.
    fn post(
        &self,
        said: Said,
        to: Option<(&RunId, Inbox)>,
        mode: LetterMode,
        now: Timestamp,
    ) -> Vec<Command> {
        let Some((run_id, inbox)) = to else { return Vec::new() };
        let Said { letter, key, answer, .. } = said;
        let session_id = self.active[run_id].ticket.session_id.clone();
        let heard = Heard::new(run_id, &letter, &key, &session_id, mode, now);
        vec![Command::Post(Box::new(Post {
            inbox,
            cap: self.sessions.rules.cap,
            run_id: run_id.clone(),
            session_id,
            row: row_of(&letter, mode),
            letter,
            key,
            answer,
            heard,
        }))]
    }

    /// The turn that a message was for was over before it came: it gets one of its own.
    pub(super) fn came_too_late(&mut self, post: Post, now: Timestamp) -> Vec<Command> {
        let Post { letter, key, answer, .. } = post;
        match self.ad_hoc.spec.clone() {
            Ok(spec) => self.say(Said { letter, key, spec, answer }, now),
            Err(why) => {
                let refuse = |answer| answered(answer, Reply::refused("invalid", why));
                answer.map(refuse).into_iter().collect()
            }
        }
    }

    /// A run that begins with the message, in its session.
    fn turn_of(
        &mut self,
        said: Said,
        mode: LetterMode,
        dropped: Vec<String>,
        now: Timestamp,
    ) -> Vec<Command> {
        let Said { letter, key, spec, answer } = said;
        let (row, inbox) = (row_of(&letter, mode), Inbox::with(letter.clone()));
        inbox.remember_dropped(dropped);
        if mode == LetterMode::Collect {
            inbox.collect(self.sessions.rules.debounce, self.clock.monotonic());
        }
        let seated = self.seat_in(&key, inbox, now);
        let run = NewRun {
            run_id: RunId::new(now),
            trigger: Trigger::Manual,
            slot: None,
            attempt: 1,
            session_id: seated.session_id.clone(),
            definition_hash: spec.definition_hash.clone(),
            sending: Sending::Suppressed,
            session: seated.seat.clone(),
            letters: vec![row],
            ad_hoc: Some(spec.effective.to_string()),
        };
        let heard = Heard::new(&run.run_id, &letter, &key, &run.session_id, mode, now);
        let mut launch = self.launch(spec, run, seated.conversation, None, (now, now), None, now);
        (launch.answer, launch.heard) = (answer, Some(Box::new(heard)));
        let record = Box::new(Record::new(&JobId::ad_hoc(), None));
        vec![Command::Record { record, launch: Some(launch), then: None }]
    }

    /// Takes turns that wait with a message out of the line, with the first words of what they were
    /// to begin with.
    fn give_up(&self, runs: &[RunId], end: LetterEnd) -> (Vec<Command>, Vec<String>) {
        let (mut commands, mut said) = (Vec::new(), Vec::new());
        for run in runs.iter().filter_map(|run_id| self.active.get(run_id)) {
            let Some(inbox) = run.ticket.conversation.inbox() else { continue };
            let (ids, words) = inbox.give_up();
            said.extend(words);
            commands.push(Command::SettleLetters(ids, end));
            commands.push(Command::Cancel(Arc::clone(&run.watchdog), CancelReason::Replaced));
        }
        (commands, said)
    }

    fn obey(&mut self, word: Word, rest: &str, said: Said, now: Timestamp) -> Vec<Command> {
        let Said { letter, key, spec, answer } = said;
        let (mut commands, run_ids) = match word {
            // What goes on in the one before comes to its own end.
            Word::New => (Vec::new(), Vec::new()),
            Word::Reset | Word::Stop => self.end_all(&key),
        };
        let row = match word {
            Word::New => self.sessions.begin(&key, now),
            Word::Reset => self.sessions.clear(&key, now),
            Word::Stop => self.sessions.enter(&key, now).clone(),
        };
        let session_id = row.id.clone();
        let arguments = rest.to_owned();
        let commanded = Commanded { word, key: key.clone(), session_id, arguments, at: now };
        commands.push(Command::Commanded(commanded.clone()));
        if rest.is_empty() || word == Word::Stop {
            let reply = Reply::Obeyed(Box::new(Obeyed::of(&commanded, run_ids)));
            commands.push(Command::KeepSession(row, answer.map(|answer| (answer, reply))));
            return commands;
        }
        commands.push(Command::KeepSession(row, None));
        let letter = Letter { text: rest.to_owned(), ..letter };
        let said = Said { letter, key, spec, answer };
        commands.extend(self.turn_of(said, LetterMode::Start, Vec::new(), now));
        commands
    }

    /// Ends what waits in the session, then what goes on.
    pub(super) fn end_all(&self, key: &SessionKey) -> (Vec<Command>, Vec<String>) {
        let mut runs = self.seated(key);
        runs.sort_by_key(|(run_id, run)| (!run.watchdog.is_waiting(), *run_id));
        let cancel =
            |run: &ActiveRun| Command::Cancel(Arc::clone(&run.watchdog), CancelReason::Person);
        let commands = runs.iter().map(|(_, run)| cancel(run)).collect();
        (commands, runs.iter().map(|(run_id, _)| run_id.to_string()).collect())
    }

    /// What was said to a run that is over, and that it has not heard.
    pub(super) fn left_unheard(
        &mut self,
        run: &ActiveRun,
        kind: Option<ErrorKind>,
        now: Timestamp,
    ) -> Vec<Command> {
        let Some(inbox) = run.ticket.conversation.inbox() else { return Vec::new() };
        let left = inbox.close();
        let (Some(key), false) = (&run.ticket.session_key, left.is_empty()) else {
            return Vec::new();
        };
        let is_over =
            matches!(kind, Some(ErrorKind::Cancelled | ErrorKind::Replaced | ErrorKind::Shutdown));
        let spec = self.ad_hoc.spec.clone().ok().filter(|_| !is_over);
        let Some(spec) = spec.filter(|_| self.phase != Phase::Stopping) else {
            let ids = left.into_iter().map(|it| it.id).collect();
            return vec![Command::SettleLetters(ids, LetterEnd::Cancelled)];
        };
        let again =
            |letter| Said { letter, key: key.clone(), spec: Arc::clone(&spec), answer: None };
        let said: Vec<_> = left.into_iter().map(again).collect();
        said.into_iter().flat_map(|said| self.say(said, now)).collect()
    }
}

impl ActiveRun {
    /// Whether it was made for a message and has not begun.
    fn waits_with_message(&self) -> bool {
        let inbox = self.ticket.conversation.inbox();
        self.ticket.spec.id.is_ad_hoc() && inbox.is_some_and(Inbox::waits)
    }
}

fn row_of(letter: &Letter, mode: LetterMode) -> LetterRow {
    LetterRow { id: letter.id.clone(), mode, characters: letter.text.chars().count() }
}
