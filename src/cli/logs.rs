//! `logs JOB|RUN`: what a run said and did.

use std::time::Duration;

use serde_json::{Value, json};

use super::context::{Context, Named, Place};
use super::list::shown;
use super::output::{self, Done, Failed};
use crate::executor::RUN_BEGINS;
use crate::run::{EventPhase, RunEvent, RunId, Stream};
use crate::session::{Entry, read_entries, transcript_path};
use crate::store::{Reader, RunFilter, RunRecord};

/// How often a transcript that still grows is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A job's id (its latest run), or the beginning of a run's
    what: String,
    /// Go on until the run has ended
    #[arg(short, long)]
    follow: bool,
    /// Print events, a line each
    #[arg(long)]
    json: bool,
}

pub(super) fn logs(context: &Context, args: &Args) -> Done {
    let place = context.place()?;
    let history = place.history()?;
    let jobs = place.jobs().unwrap_or_default();
    let named = Context::named(&args.what, &jobs, history.as_ref())?;
    let Some(reader) = history else { return Err(Failed::usage("nothing has run yet")) };
    let run = match named {
        Named::Run(run_id) => reader.run(&run_id)?,
        Named::Job(job) => {
            let filter = RunFilter { job: Some(job), limit: 1, ..RunFilter::default() };
            reader.runs(&filter)?.into_iter().next()
        }
    };
    let run = run.ok_or_else(|| Failed::usage(format!("`{}` has not run yet", args.what)))?;
    Teller { place: &place, reader: &reader, json: args.json, told: 0, seq: 0 }
        .tell_all(run, args.follow)
}

struct Teller<'a> {
    place: &'a Place,
    reader: &'a Reader,
    json: bool,
    told: usize,
    seq: u64,
}

/// The entries of the run, in a transcript in which others may have written before and after it.
fn of_run(entries: Vec<Entry>, run_id: &str) -> Vec<Entry> {
    let begins = |entry: &Entry| {
        let is_mark = entry.kind == "custom" && entry.body.get("name")? == RUN_BEGINS;
        entry.body.get("data").filter(|_| is_mark)?.get("runId")?.as_str().map(str::to_owned)
    };
    if !entries.iter().any(|entry| begins(entry).is_some()) {
        return entries;
    }
    let mut is_own = false;
    let own = entries.into_iter().filter(|entry| {
        is_own = begins(entry).map_or(is_own, |begun| begun == run_id);
        is_own
    });
    own.collect()
}

impl Teller<'_> {
    fn tell_all(&mut self, mut run: RunRecord, follow: bool) -> Done {
        self.event(
            &run,
            &run.queued_at,
            Stream::Lifecycle,
            EventPhase::Start,
            json!({ "job": run.job }),
        )?;
        loop {
            // The state first: what is written after it was read comes in the next round.
            let over = run.finished_at.is_some();
            let path = transcript_path(&self.place.state_dir, &run.session_id);
            let text = match std::fs::read(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                result => result?,
            };
            let entries = of_run(read_entries(&text), &run.run_id);
            for entry in entries.iter().skip(self.told) {
                self.tell(&run, entry)?;
            }
            self.told = entries.len();
            if over || !follow {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
            let Some(again) = self.reader.run(&run.run_id)? else { break };
            run = again;
        }
        self.tell_end(&run)
    }

    fn tell_end(&mut self, run: &RunRecord) -> Done {
        let Some(finished_at) = &run.finished_at else {
            return Ok(std::process::ExitCode::SUCCESS);
        };
        let phase = if run.error.is_none() { EventPhase::End } else { EventPhase::Error };
        let data = json!({ "state": run.state, "error": run.error });
        self.event(run, finished_at, Stream::Lifecycle, phase, data)
    }

    fn tell(&mut self, run: &RunRecord, entry: &Entry) -> Done {
        let message = entry.body.get("message").unwrap_or(&Value::Null);
        let text = |key: &str| message[key].as_str().unwrap_or_default();
        match text("role") {
            "assistant" => {
                if !text("text").is_empty() {
                    let data = json!({ "text": text("text") });
                    self.event(run, &entry.at, Stream::Assistant, EventPhase::End, data)?;
                }
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let data = json!({
                        "call": call["id"], "tool": call["name"], "arguments": call["arguments"].to_string(),
                    });
                    self.event(run, &entry.at, Stream::Tool, EventPhase::Start, data)?;
                }
                Ok(std::process::ExitCode::SUCCESS)
            }
            "tool_result" => {
                let failed = message["is_error"].as_bool().unwrap_or(false);
                let phase = if failed { EventPhase::Error } else { EventPhase::End };
                let data = json!({
                    "call": message["call_id"], "tool": text("name"), "content": text("content"),
                });
                self.event(run, &entry.at, Stream::Tool, phase, data)
            }
            "user" if self.json => Ok(std::process::ExitCode::SUCCESS),
            "user" => {
                let at = shown(&entry.at, &self.place.zone);
                output::say(&format!("{at} prompt\n{}", indented(text("text"))))
            }
            _ => Ok(std::process::ExitCode::SUCCESS),
        }
    }

    fn event(
        &mut self,
        run: &RunRecord,
        at: &str,
        stream: Stream,
        phase: EventPhase,
        data: Value,
    ) -> Done {
        self.seq += 1;
        let Value::Object(data) = data else { unreachable!("every event here is an object") };
        if !self.json {
            return output::say(&words(&shown(at, &self.place.zone), stream, phase, &data));
        }
        let event = RunEvent {
            run_id: RunId::from_stored(run.run_id.clone()),
            seq: self.seq,
            at: at.parse()?,
            stream,
            phase,
            data,
        };
        output::say(&serde_json::to_string(&event)?)
    }
}

fn words(
    at: &str,
    stream: Stream,
    phase: EventPhase,
    data: &serde_json::Map<String, Value>,
) -> String {
    let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
    match (stream, phase) {
        (Stream::Lifecycle, EventPhase::Start) => format!("{at} queued {}", text("job")),
        (Stream::Lifecycle, _) => {
            let error = data.get("error").filter(|error| !error.is_null());
            let why = error.map(|error| {
                format!(
                    ": {} ({})",
                    error["message"].as_str().unwrap_or(""),
                    error["kind"].as_str().unwrap_or("")
                )
            });
            format!("{at} {}{}", text("state"), why.unwrap_or_default())
        }
        (Stream::Tool, EventPhase::Start) => format!("{at} {} {}", text("tool"), text("arguments")),
        (Stream::Tool, _) => {
            format!("{at} {} returned\n{}", text("tool"), indented(text("content")))
        }
        (Stream::Assistant | Stream::Compaction, _) => {
            format!("{at} said\n{}", indented(text("text")))
        }
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
