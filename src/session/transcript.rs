//! The transcript: written entry by entry, complete when the turn is.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use crate::clock::{Clock, rfc3339};
use crate::job::Masker;
use crate::provider::{AssistantTurn, Message};
use crate::run::SessionId;

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
    /// Id and tool of each call that has no result yet.
    open_calls: Vec<(String, String)>,
    masker: Arc<Masker>,
    clock: Arc<dyn Clock>,
}

/// Where the transcript of a session is.
pub fn transcript_path(state_dir: &Path, session: &str) -> PathBuf {
    state_dir.join("sessions").join(format!("{session}.jsonl"))
}

impl Transcript {
    /// Begins the transcript of a new session with its header. `about` is added to the header.
    pub async fn create(
        state_dir: &Path,
        session: &SessionId,
        about: Value,
        masker: Arc<Masker>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TranscriptError> {
        let path = transcript_path(state_dir, session.as_str());
        let opening = path.clone();
        let opened = tokio::task::spawn_blocking(move || open(&opening)).await;
        let opened = opened.unwrap_or_else(|error| Err(io::Error::other(error)));
        let (file, unwritten) =
            opened.map_err(|source| TranscriptError::Open { path: path.clone(), source })?;
        let file = File::from_std(file);
        let open_calls = Vec::new();
        let mut transcript = Self { path, file, unwritten, last_id: 0, open_calls, masker, clock };
        let mut header = json!({
            "type": "session", "version": 1, "sessionId": session.as_str(),
            "at": rfc3339(transcript.clock.wall()),
        });
        if let (Some(header), Value::Object(about)) = (header.as_object_mut(), about) {
            header.extend(about);
        }
        // It goes to the disk with the first entry.
        transcript.add_line(&header);
        Ok(transcript)
    }

    /// Appends a message of the conversation.
    pub async fn append(&mut self, message: &Message) {
        match message {
            Message::Assistant(AssistantTurn { tool_calls, .. }) => {
                self.open_calls
                    .extend(tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())));
            }
            Message::ToolResult { call_id, .. } => self.open_calls.retain(|(id, _)| id != call_id),
            Message::User { .. } => {}
        }
        let body = serde_json::to_value(message).unwrap_or(Value::Null);
        self.entry("message", json!({ "message": body })).await;
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

    async fn entry(&mut self, kind: &str, body: Value) {
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

/// Opens it for appending, with what has to come before anything else: a process may have died in
/// the middle of a line, and what comes now is not to be glued to it.
fn open(path: &Path) -> io::Result<(fs::File, Vec<u8>)> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.append(true).read(true).create(true).mode(0o600).open(path)?;
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok((file, if last == *b"\n" { Vec::new() } else { b"\n".to_vec() }))
}

/// `value` with the secrets in its texts replaced. Before it becomes JSON text, since escapes
/// would hide a secret that has quotes or line ends in it.
fn masked(value: &Value, masker: &Masker) -> Value {
    match value {
        Value::String(text) => masker.mask(text).into(),
        Value::Array(items) => items.iter().map(|item| masked(item, masker)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), masked(value, masker))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The entries of a transcript's text, header and half-written lines left out.
pub fn read_entries(text: &str) -> Vec<Entry> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::provider::ToolCall;

    async fn transcript(dir: &Path) -> Transcript {
        std::fs::create_dir_all(dir.join("sessions")).unwrap();
        let at = "2026-11-30T09:00:00Z".parse().unwrap();
        let session = SessionId::from_stored("s1");
        let clock = Arc::new(ManualClock::new(at));
        Transcript::create(dir, &session, json!({"job": "j"}), Arc::default(), clock).await.unwrap()
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

        let text = std::fs::read_to_string(transcript_path(dir.path(), "s1")).unwrap();
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
        assert_eq!(read_entries(&text).len(), 1);
        assert_eq!(text.lines().count(), 3);
    }
}
