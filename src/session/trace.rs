//! Every request and every answer of a run, word for word but for secrets: `trace = true`.
//!
//! For whoever has to know what a model was really told. One file per run beside the transcripts,
//! which goes when the run does. It is bounded, and no run waits or fails for it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::transcript::masked;
use crate::clock::{Clock, rfc3339};
use crate::job::Masker;
use crate::provider::{Completion, Fault, Request};

/// What one run may write: far more than an honest one does, and no disk is full of it.
const BYTES_MAX: usize = 16 << 20;

/// The trace of one run.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    /// `None` once it is full, or could not be written.
    file: Option<fs::File>,
    left: usize,
    requests: u32,
    /// The last request has no answer yet.
    is_open: bool,
    masker: Arc<Masker>,
    clock: Arc<dyn Clock>,
}

/// Where the trace of a run is.
pub fn trace_path(state_dir: &Path, run_id: &str) -> PathBuf {
    state_dir.join("traces").join(format!("{run_id}.jsonl"))
}

impl Trace {
    /// Begins the trace of a run.
    pub fn create(
        state_dir: &Path,
        run_id: &str,
        masker: Arc<Masker>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let path = trace_path(state_dir, run_id);
        let opened = open(&path);
        if let Err(error) = &opened {
            tracing::warn!(path = %path.display(), %error, "there will be no trace");
        }
        let file = opened.ok();
        Self { path, file, left: BYTES_MAX, requests: 0, is_open: false, masker, clock }
    }

    /// What `model` (`provider/model`) is asked.
    pub fn asks(&mut self, model: &str, request: &Request) {
        self.is_cut();
        self.requests += 1;
        self.is_open = true;
        let tools = request.tools.iter().map(|tool| {
            json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters})
        });
        self.write(
            "request",
            json!({
                "model": model,
                "thinking": request.thinking,
                "max_output_tokens": request.max_output_tokens,
                "system": request.system,
                "messages": request.messages,
                "tools": tools.collect::<Value>(),
            }),
        );
    }

    /// What it answers.
    pub fn answers(&mut self, answer: Result<&Completion, &Fault>) {
        self.is_open = false;
        match answer {
            Ok(completion) => {
                let usage = completion.usage;
                self.write(
                    "answer",
                    json!({
                        "finish": format!("{:?}", completion.finish),
                        "message": completion.turn,
                        "input_tokens": usage.input_tokens,
                        "output_tokens": usage.output_tokens,
                    }),
                );
            }
            Err(fault) => self.write(
                "fault",
                json!({
                    "class": fault.class,
                    "status": fault.status,
                    "code": fault.code,
                    "message": fault.message,
                    "partial_text": fault.partial_text,
                }),
            ),
        }
    }

    /// The request that goes on, if one does, will have no answer.
    pub fn is_cut(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.write("cut", json!({}));
        }
    }

    fn write(&mut self, what: &str, body: Value) {
        let Some(file) = &mut self.file else { return };
        let mut line = json!({
            "at": rfc3339(self.clock.wall()), "request": self.requests, "type": what,
        });
        if let (Some(line), Value::Object(body)) = (line.as_object_mut(), body) {
            line.extend(body);
        }
        let mut text = masked(&line, &self.masker).to_string();
        let is_full = text.len() >= self.left;
        if is_full {
            text = json!({"type": "full", "bytes_max": BYTES_MAX}).to_string();
        }
        text.push('\n');
        self.left = self.left.saturating_sub(text.len());
        let written = file.write_all(text.as_bytes());
        if let Err(error) = &written {
            tracing::warn!(path = %self.path.display(), %error, "the trace ends here");
        }
        if is_full || written.is_err() {
            self.file = None;
        }
    }
}

fn open(path: &Path) -> io::Result<fs::File> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::clock::ManualClock;

    fn trace(dir: &Path) -> Trace {
        let at = "2026-11-30T09:00:00Z".parse().unwrap();
        let secret = ("PW".to_owned(), "hunter22-hunter22".to_owned().into());
        let masker = Arc::new(Masker::new([secret]));
        Trace::create(dir, "r", masker, Arc::new(ManualClock::new(at)))
    }

    fn lines(dir: &Path) -> Vec<Value> {
        let text = fs::read_to_string(trace_path(dir, "r")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn every_request_has_its_answer_or_says_that_it_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let mut trace = trace(dir.path());
        trace.asks("p/m", &Request::of_prompt("m", "it is hunter22-hunter22"));
        trace.answers(Err(&Fault::new(crate::provider::FaultClass::Network, "gone")));
        trace.asks("p/m", &Request::of_prompt("m", "again"));
        trace.asks("q/m", &Request::of_prompt("m", "and again"));
        trace.is_cut();
        trace.is_cut();
        let lines = lines(dir.path());
        let told: Vec<_> = lines
            .iter()
            .map(|it| (it["request"].as_u64().unwrap(), it["type"].as_str().unwrap()))
            .collect();
        let expected =
            [(1, "request"), (1, "fault"), (2, "request"), (2, "cut"), (3, "request"), (3, "cut")];
        assert_eq!(told, expected);
        assert_eq!(lines[0]["messages"][0]["text"], "it is [secret PW]");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = trace_path(dir.path(), "r");
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_trace_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut trace = trace(dir.path());
        trace.left = 2_000;
        let long = "x".repeat(900);
        for _ in 0..4 {
            trace.asks("p/m", &Request::of_prompt("m", long.clone()));
        }
        let lines = lines(dir.path());
        assert_eq!(lines.last().unwrap()["type"], "full");
        assert!(lines.len() < 6);
    }
}
