//! A run's progress while one waits: a moving line on a terminal, plain lines elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use super::output::{self, first_line, length};
use crate::run::{EventPhase, RunEvent, Stream};

/// How often the line moves.
const TICK: Duration = Duration::from_millis(120);

/// Shows the events of one run.
pub(super) struct Live {
    bar: ProgressBar,
    lines: bool,
    model: String,
    doing: String,
    tools: u64,
    tokens: Option<u64>,
    characters: usize,
}

impl Live {
    /// Begins; with `quiet`, nothing is shown.
    pub(super) fn start(quiet: bool) -> Self {
        let draws = !quiet && output::on_terminal();
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
            lines: !quiet,
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
                self.say(&format!(
                    "{} started by {} with {}",
                    text("job"),
                    text("trigger"),
                    self.model
                ));
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
        if !self.lines {
        } else if self.bar.is_hidden() {
            output::note(words);
        } else {
            self.bar.println(words);
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
