//! A run's progress while one waits: a moving line on a terminal, plain lines elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use super::output::{self, Voice, first_line, length};
use crate::run::{EventPhase, RunEvent, Stream};
use crate::store::RunRecord;

/// How often the line moves.
const TICK: Duration = Duration::from_millis(120);

/// How a run is shown.
#[derive(Debug, Clone)]
pub(super) enum Show {
    /// Not at all: standard output has it for programs.
    Nothing,
    /// The only run: a moving line on a terminal.
    Alone,
    /// One of several: lines that name their job.
    Among(Voice),
}

/// Shows the events of one run.
pub(super) struct Live {
    bar: ProgressBar,
    show: Show,
    job: String,
    model: String,
    doing: String,
    tools: u64,
    tokens: Option<u64>,
    characters: usize,
}

impl Live {
    /// Begins.
    pub(super) fn start(show: Show) -> Self {
        let draws = matches!(show, Show::Alone) && output::on_terminal();
        let target =
            if draws { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}")
            .expect("the template is a constant");
        bar.set_style(style);
        if draws {
            bar.enable_steady_tick(TICK);
        }
        Self {
            bar,
            show,
            job: String::new(),
            model: String::new(),
            doing: "waits for its lane".into(),
            tools: 0,
            tokens: None,
            characters: 0,
        }
    }

    /// Takes in what happened.
    pub(super) fn show(&mut self, event: &RunEvent) {
        let text = |key: &str| event.data.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| event.data.get(key).and_then(Value::as_u64);
        match (event.stream, event.phase) {
            (Stream::Lifecycle, EventPhase::Start) => {
                text("model").clone_into(&mut self.model);
                text("job").clone_into(&mut self.job);
                let with = match self.model.as_str() {
                    "" => String::new(),
                    model => format!(" with {model}"),
                };
                let what = format!("started by {}{with}", text("trigger"));
                match self.show {
                    Show::Alone => self.say(&format!("{} {what}", self.job)),
                    Show::Nothing | Show::Among(_) => self.say(&what),
                }
            }
            (Stream::Assistant, EventPhase::Start) => self.doing = "waits for the model".into(),
            (Stream::Assistant, EventPhase::Update) => {
                self.characters += text("text").len() + text("reasoning").len();
                let what = if event.data.contains_key("reasoning") { "thinks" } else { "writes" };
                self.doing = what.into();
            }
            (Stream::Assistant, EventPhase::End) => {
                self.tokens = number("input_tokens")
                    .zip(number("output_tokens"))
                    .map(|(input, output)| input + output);
            }
            (Stream::Tool, EventPhase::Start) => {
                self.tools += 1;
                self.doing = format!("runs {}", text("tool"));
                self.say(&format!("{} {}", text("tool"), first_line(text("arguments"), 100)));
            }
            (Stream::Tool, EventPhase::End | EventPhase::Error) => {
                let took = Duration::from_millis(number("duration_ms").unwrap_or(0));
                let bytes = number("output_bytes").unwrap_or(0);
                self.say(&format!("  {} · {} · {bytes} bytes", text("outcome"), length(took)));
            }
            (Stream::Lifecycle | Stream::Compaction, _)
            | (Stream::Assistant, EventPhase::Error)
            | (Stream::Tool, EventPhase::Update) => {}
        }
        self.draw();
    }

    /// A line that stays.
    pub(super) fn say(&self, words: &str) {
        let words = output::safe(words, output::on_terminal());
        match &self.show {
            Show::Nothing => {}
            Show::Alone if self.bar.is_hidden() => output::note(&words),
            Show::Alone => self.bar.println(words),
            Show::Among(voice) => {
                for line in words.lines() {
                    voice.say(&format!("  {:<20} {line}", self.job));
                }
            }
        }
    }

    /// Takes the moving line away.
    pub(super) fn end(self) {
        self.bar.finish_and_clear();
    }

    fn draw(&self) {
        let tokens = match self.tokens {
            Some(tokens) => format!("{tokens} tokens"),
            None => format!("{} characters", self.characters),
        };
        let message = format!("{} {} · {} tools · {tokens}", self.model, self.doing, self.tools);
        self.bar.set_message(message);
    }
}

/// One line about how a run ended.
pub(super) fn summary(record: &RunRecord) -> String {
    let took = record.duration_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    let took = length(Duration::from_millis(took));
    let cleanup = record.cleanup.as_ref().map_or("none", |cleanup| cleanup.outcome.as_str());
    let tokens = |count: Option<i64>| count.map_or("?".to_owned(), |count| count.to_string());
    let words = format!(
        "run {} {} after {took} · {} tools · {} + {} tokens · clean-up {cleanup}",
        record.run_id,
        record.state,
        record.tools.calls,
        tokens(record.usage.input_tokens),
        tokens(record.usage.output_tokens),
    );
    match &record.error {
        Some(error) => format!(
            "{words}
{}: {}",
            error.kind, error.message
        ),
        None => words,
    }
}
