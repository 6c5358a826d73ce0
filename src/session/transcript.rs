//! The transcript: written entry by entry, complete when the turn is, and read again by the next.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use super::history::{self, Compaction, History, Remembered};
use crate::clock::{Clock, rfc3339};
use crate::job::Masker;
use crate::provider::{AssistantTurn, Message};
use crate::run::SessionId;

/// The longest transcript that is read whole: a hundred times what a large model takes in.
const BYTES_MAX: u64 = 256 << 20;

/// An entry after the header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// 1, 2, 3 … within the file.
    pub id: u64,
    /// The entry before it in the conversation.
    pub parent_id: Option<u64>,
    /// When it was written.
    pub at: String,
    /// `message`, `compaction` or `custom`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it says.
    #[serde(flatten)]
    pub body: serde_json::Map<String, Value>,
}

/// A failed call on a transcript.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// It cannot be opened.
    #[error("failed to open the transcript {path}")]
    Open {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is longer than any conversation should be.
    #[error(
        "the transcript {path} is too long to go on with: {bytes} bytes of {BYTES_MAX}; `/new` begins another one"
    )]
    TooLong {
        /// Which one.
        path: PathBuf,
        /// How long.
        bytes: u64,
    },
    /// It cannot be written.
    #[error("failed to write the transcript {path}")]
    Write {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A transcript open for appending. What the disk does not take is kept and written with what comes
/// later: no answer is lost over its record. It remembers the calls that have no result yet, so
/// that every call gets exactly one, real or synthetic (semantics §6).
#[derive(Debug)]
pub struct Transcript {
    path: PathBuf,
    file: File,
    unwritten: Vec<u8>,
    last_id: u64,
    /// The call that it is a part of, if it is one of a part.
    part: Option<u32>,
    /// Id and tool of each call that has no result yet.
    open_calls: Vec<(String, String)>,
    masker: Arc<Masker>,
    clock: Arc<dyn Clock>,
}

/// Where the transcript of a session is.
pub fn transcript_path(state_dir: &Path, session: &str) -> PathBuf {
    state_dir.join("sessions").join(format!("{session}.jsonl"))
}

/// How often a session has been cleared: what was said before the last time is not sent any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clearings(pub u64);

impl Transcript {
    /// Opens the transcript of a session, and begins it with its header if it is a new one; returns
    /// what is remembered of it. `about` is added to the header. Whoever calls holds its lock.
    pub async fn open(
        state_dir: &Path,
        session: &SessionId,
        about: Value,
        clearings: Clearings,
        masker: Arc<Masker>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Vec<Remembered>), TranscriptError> {
        let path = transcript_path(state_dir, session.as_str());
        let opening = path.clone();
        let opened = tokio::task::spawn_blocking(move || open(&opening)).await;
        let Opened { file, unwritten, entries, is_new } = match opened {
            Ok(opened) => opened?,
            Err(error) => {
                return Err(TranscriptError::Open { path, source: io::Error::other(error) });
            }
        };
        let mut transcript = Self {
            path,
            file: File::from_std(file),
            unwritten,
            last_id: entries.iter().map(|entry| entry.id).max().unwrap_or(0),
            part: None,
            open_calls: Vec::new(),
            masker,
            clock,
        };
        if is_new {
            let mut header = json!({
                "type": "session", "version": 1, "sessionId": session.as_str(),
                "at": rfc3339(transcript.clock.wall()),
            });
            if let (Some(header), Value::Object(about)) = (header.as_object_mut(), about) {
                header.extend(about);
            }
            // It goes to the disk with the first entry.
            transcript.add_line(&header);
        }
        let known = entries.iter().filter_map(history::cleared).max().map_or(0, |n| n);
        if clearings.0 > known {
            transcript.note(history::CLEARED, json!({ "n": clearings.0 })).await;
            return Ok((transcript, Vec::new()));
        }
        let History { mut said, owed } = history::history(&entries);
        // The last calls of a process that died have their results from here on.
        let owed = said.len() - owed;
        for it in &mut said[owed..] {
            it.id = transcript.append(&it.message).await;
        }
        Ok((transcript, said))
    }

    /// Appends a message of the conversation. Returns the id of its entry.
    pub async fn append(&mut self, message: &Message) -> u64 {
        self.append_by(message, None).await
    }

    /// The same for a message of a model, named as `provider/model`.
    pub async fn append_by(&mut self, message: &Message, by: Option<&str>) -> u64 {
        match message {
            Message::Assistant(AssistantTurn { tool_calls, .. }) => {
                self.open_calls
                    .extend(tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())));
            }
            Message::ToolResult { call_id, .. } => self.open_calls.retain(|(id, _)| id != call_id),
            Message::User { .. } => {}
        }
        let mut body = json!({ "message": self.storable(message) });
        if let Some(by) = by {
            body["by"] = by.into();
        }
        self.entry("message", body).await
    }

    /// Appends that what was said before is summed up. Returns the id of the entry.
    pub async fn compacted(&mut self, compaction: &Compaction) -> u64 {
        let body = serde_json::to_value(compaction).unwrap_or(Value::Null);
        self.entry("compaction", body).await
    }

    /// Thinking that has a secret in it would not be what its provider has signed once that is
    /// masked: it is not kept.
    fn storable(&self, message: &Message) -> Value {
        let mut body = serde_json::to_value(message).unwrap_or(Value::Null);
        if let (Message::Assistant(said), Some(fields)) = (message, body.as_object_mut()) {
            let is_changed = |block: &Value| masked(block, &self.masker) != *block;
            if said.thinking.iter().any(is_changed) {
                fields.remove("thinking");
            }
        }
        body
    }

    /// The transcript of a part of the work inside of the `n`th call: notes in the same file, so
    /// that whoever reads the conversation passes them over. Nothing is appended here until
    /// [`Transcript::goes_on_after`] it.
    pub async fn part(&mut self, n: u32) -> io::Result<Self> {
        Ok(Self {
            path: self.path.clone(),
            file: self.file.try_clone().await?,
            unwritten: std::mem::take(&mut self.unwritten),
            last_id: self.last_id,
            part: Some(n),
            open_calls: Vec::new(),
            masker: Arc::clone(&self.masker),
            clock: Arc::clone(&self.clock),
        })
    }

    /// Goes on where that of its part has come to.
    pub fn goes_on_after(&mut self, part: Self) {
        self.last_id = part.last_id;
        self.unwritten.splice(..0, part.unwritten);
    }

    /// Appends an entry of another type.
    pub async fn note(&mut self, what: &str, body: Value) {
        self.entry("custom", json!({ "name": what, "data": body })).await;
    }

    /// Gives every call that has no result a synthetic one, and puts everything on the disk.
    /// Returns how many results had to be made up.
    pub async fn close(&mut self, why: &str) -> Result<usize, TranscriptError> {
        let open = std::mem::take(&mut self.open_calls);
        for (call_id, name) in &open {
            let message = Message::ToolResult {
                call_id: call_id.clone(),
                name: name.clone(),
                content: why.to_owned(),
                is_error: true,
            };
            self.append(&message).await;
        }
        self.write_out().await?;
        Ok(open.len())
    }

    async fn entry(&mut self, kind: &str, body: Value) -> u64 {
        let (kind, body) = match self.part {
            None => (kind, body),
            Some(n) => {
                let data = json!({ "n": n, "type": kind, "entry": body });
                ("custom", json!({ "name": "subturn", "data": data }))
            }
        };
        let parent = (self.last_id > 0).then_some(self.last_id);
        self.last_id += 1;
        let mut line = json!({
            "id": self.last_id, "parentId": parent, "at": rfc3339(self.clock.wall()), "type": kind,
        });
        if let (Some(line), Value::Object(body)) = (line.as_object_mut(), body) {
            line.extend(body);
        }
        self.add_line(&line);
        if let Err(error) = self.write_out().await {
            tracing::warn!(%error, "kept for later");
        }
        self.last_id
    }

    fn add_line(&mut self, line: &Value) {
        self.unwritten.extend(masked(line, &self.masker).to_string().bytes());
        self.unwritten.push(b'\n');
    }

    async fn write_out(&mut self) -> Result<(), TranscriptError> {
        // Taken first: a future that is dropped here has handed it over.
        let text = std::mem::take(&mut self.unwritten);
        let written = match self.file.write_all(&text).await {
            Ok(()) => self.file.flush().await,
            error => error,
        };
        written.map_err(|source| {
            // Some of it may be there: then what comes begins on a fresh line.
            self.unwritten = [b"\n", text.trim_ascii_start()].concat();
            TranscriptError::Write { path: self.path.clone(), source }
        })
    }
}

/// A transcript that has just been opened.
struct Opened {
    file: fs::File,
    /// What has to come before anything else: a process may have died in the middle of a line, and
    /// what comes now is not to be glued to it.
    unwritten: Vec<u8>,
    entries: Vec<Entry>,
    /// Nobody has come further than a part of its header.
    is_new: bool,
}

fn open(path: &Path) -> Result<Opened, TranscriptError> {
    let failed = |source| TranscriptError::Open { path: path.to_owned(), source };
    let mut options = fs::OpenOptions::new();
    let options = options.append(true).read(true).create(true).mode(0o600);
    let mut file = options.open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length > BYTES_MAX {
        return Err(TranscriptError::TooLong { path: path.to_owned(), bytes: length });
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    let unwritten =
        if text.last().is_none_or(|last| *last == b'\n') { vec![] } else { vec![b'\n'] };
    let is_whole = |line: &[u8]| serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let is_new = !text.split(|byte| *byte == b'\n').any(is_whole);
    Ok(Opened { file, unwritten, entries: read_entries(&text), is_new })
}

/// `value` with the secrets in its texts replaced. Before it becomes JSON text, since escapes
/// would hide a secret that has quotes or line ends in it.
pub(crate) fn masked(value: &Value, masker: &Masker) -> Value {
    match value {
        Value::String(text) => masker.mask(text).into(),
        Value::Array(items) => items.iter().map(|item| masked(item, masker)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), masked(value, masker))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The entries of a transcript's text; its header and half-written lines are left out.
pub fn read_entries(text: &[u8]) -> Vec<Entry> {
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::provider::ToolCall;

    async fn opened(
        dir: &Path,
        clearings: Clearings,
        masker: Arc<Masker>,
    ) -> (Transcript, Vec<Remembered>) {
        std::fs::create_dir_all(dir.join("sessions")).unwrap();
        let at = "2026-11-30T09:00:00Z".parse().unwrap();
        let session = SessionId::from_stored("s1");
        let clock = Arc::new(ManualClock::new(at));
        let about = json!({"job": "j"});
        Transcript::open(dir, &session, about, clearings, masker, clock).await.unwrap()
    }

    async fn transcript(dir: &Path) -> Transcript {
        opened(dir, Clearings::default(), Arc::default()).await.0
    }

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "exec".into(), arguments: serde_json::Map::new() }
    }

    #[tokio::test]
    async fn a_call_without_a_result_gets_one_when_the_turn_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let mut transcript = transcript(dir.path()).await;
        transcript.append(&Message::User { text: "go".into() }).await;
        let calls =
            AssistantTurn { tool_calls: vec![call("a"), call("b")], ..AssistantTurn::default() };
        transcript.append(&Message::Assistant(calls)).await;
        let done = Message::ToolResult {
            call_id: "a".into(),
            name: "exec".into(),
            content: "fine".into(),
            is_error: false,
        };
        transcript.append(&done).await;
        assert_eq!(transcript.close("the run was cut").await.unwrap(), 1);
        assert_eq!(transcript.close("the run was cut").await.unwrap(), 0);

        let text = std::fs::read(transcript_path(dir.path(), "s1")).unwrap();
        let entries = read_entries(&text);
        let chain: Vec<_> = entries.iter().map(|entry| (entry.id, entry.parent_id)).collect();
        assert_eq!(chain, [(1, None), (2, Some(1)), (3, Some(2)), (4, Some(3))]);
        assert_eq!(entries[3].body["message"]["call_id"], "b");
        assert_eq!(entries[3].body["message"]["content"], "the run was cut");
    }

    #[tokio::test]
    async fn what_comes_after_half_a_line_starts_on_a_fresh_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sessions")).unwrap();
        std::fs::write(transcript_path(dir.path(), "s1"), "{\"id\":1,\"ty").unwrap();
        let mut transcript = transcript(dir.path()).await;
        transcript.append(&Message::User { text: "again".into() }).await;
        let text = std::fs::read_to_string(transcript_path(dir.path(), "s1")).unwrap();
        assert_eq!(read_entries(text.as_bytes()).len(), 1);
        assert_eq!(text.lines().count(), 3);
    }

    // B111: the process died in mid-tool; what it owed is written before anything else.
    #[tokio::test]
    async fn a_reopened_transcript_goes_on_where_it_was_and_owes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = transcript(dir.path()).await;
        first.append(&Message::User { text: "go".into() }).await;
        let said = AssistantTurn { tool_calls: vec![call("a")], ..AssistantTurn::default() };
        first.append_by(&Message::Assistant(said), Some("p/m")).await;
        drop(first);
        let (mut again, said) = opened(dir.path(), Clearings::default(), Arc::default()).await;
        let ids: Vec<_> = said.iter().map(|it| (it.id, it.by.as_deref())).collect();
        assert_eq!(ids, [(1, None), (2, Some("p/m")), (3, None)]);
        assert_eq!(again.append(&Message::User { text: "on".into() }).await, 4);
        assert_eq!(again.close("cut").await.unwrap(), 0);
        let (_, said) = opened(dir.path(), Clearings::default(), Arc::default()).await;
        assert_eq!(said.len(), 4);

        // Cleared once, and the next time it is known to have been.
        let (mut cleared, said) = opened(dir.path(), Clearings(1), Arc::default()).await;
        assert_eq!(said, []);
        cleared.append(&Message::User { text: "anew".into() }).await;
        let (_, said) = opened(dir.path(), Clearings(1), Arc::default()).await;
        assert_eq!(said.len(), 1);
        let text = std::fs::read_to_string(transcript_path(dir.path(), "s1")).unwrap();
        assert_eq!(text.matches("\"sessionId\"").count(), 1, "one header");
    }

    // Semantics §6: a half-written last line is tolerated, also in the middle of a character.
    #[tokio::test]
    async fn half_a_character_at_the_end_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        transcript(dir.path()).await.append(&Message::User { text: "go".into() }).await;
        let path = transcript_path(dir.path(), "s1");
        let mut text = std::fs::read(&path).unwrap();
        text.extend(b"{\"id\":2,\"message\":\"\xc3");
        std::fs::write(&path, text).unwrap();
        let (mut again, said) = opened(dir.path(), Clearings::default(), Arc::default()).await;
        assert_eq!(said.len(), 1);
        again.append(&Message::User { text: "on".into() }).await;
        let (_, said) = opened(dir.path(), Clearings::default(), Arc::default()).await;
        assert_eq!(said.len(), 2);
    }

    #[tokio::test]
    async fn thinking_with_a_secret_in_it_is_not_kept_since_its_signature_would_not_hold() {
        let dir = tempfile::tempdir().unwrap();
        let masker = Arc::new(Masker::new([("key".to_owned(), "s3cret-value".to_owned().into())]));
        let (mut transcript, _) = opened(dir.path(), Clearings::default(), masker).await;
        for thought in ["about s3cret-value", "about nothing"] {
            let thinking = vec![json!({"type": "thinking", "thinking": thought, "signature": "s"})];
            let said = AssistantTurn { text: "ok".into(), thinking, ..AssistantTurn::default() };
            transcript.append(&Message::Assistant(said)).await;
        }
        let (_, said) = opened(dir.path(), Clearings::default(), Arc::default()).await;
        let blocks = said.iter().map(|it| match &it.message {
            Message::Assistant(said) => said.thinking.len(),
            Message::User { .. } | Message::ToolResult { .. } => unreachable!(),
        });
        assert_eq!(blocks.collect::<Vec<_>>(), [0, 1]);
    }
}
