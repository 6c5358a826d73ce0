//! How verbs speak: exit codes, errors, tables, times.

use std::borrow::Cow;
use std::error::Error;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use super::LogFormat;

use crate::daemon::ControlError;
use crate::run::{ErrorKind, State};
use crate::store::RunRecord;

/// Exit codes of the contract, beside 0.
pub(super) mod code {
    /// The run failed.
    pub(crate) const FAILED: u8 = 1;
    /// Usage, invalid configuration or job file, unknown job.
    pub(crate) const USAGE: u8 = 2;
    /// Refused: already running, paused, disabled, held.
    pub(crate) const REFUSED: u8 = 3;
    /// The run timed out.
    pub(crate) const TIMED_OUT: u8 = 124;
    /// The run was cancelled, or `serve` was stopped by a second signal.
    pub(crate) const CANCELLED: u8 = 130;
}

/// A verb that did not do what was asked: its words and its exit code.
#[derive(Debug)]
pub(super) struct Failed {
    words: String,
    code: u8,
}

/// What a verb returns.
pub(super) type Done = Result<ExitCode, Failed>;

impl Failed {
    /// The command line, the configuration or a job file is wrong.
    pub(super) fn usage(words: impl Into<String>) -> Self {
        Self { words: words.into(), code: code::USAGE }
    }

    /// It was understood and not done.
    pub(super) fn refused(words: impl Into<String>) -> Self {
        Self { words: words.into(), code: code::REFUSED }
    }

    /// The process that may hold the state folder could not be asked.
    pub(super) fn unasked(error: &ControlError) -> Self {
        match error {
            // The folder is not one, or not ours to look into: the configuration is wrong.
            ControlError::Connect { .. } => Self::usage(chain(error)),
            ControlError::NotRunning | ControlError::Io(_) | ControlError::Unknown(_) => {
                Self::broken(error)
            }
        }
    }

    /// Something did not work.
    pub(super) fn broken(error: &dyn Error) -> Self {
        Self { words: chain(error), code: code::FAILED }
    }

    /// What it says.
    pub(super) fn words(&self) -> &str {
        &self.words
    }

    /// Its exit code.
    pub(super) fn code(&self) -> u8 {
        self.code
    }

    /// Says so on standard error.
    pub(super) fn report(self) -> ExitCode {
        // A closed standard error leaves nobody to tell.
        drop(writeln!(anstream::stderr(), "{}", self.words));
        ExitCode::from(self.code)
    }
}

impl<E: Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::broken(&error)
    }
}

/// An error with everything behind it.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut words = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}

/// The exit code that a run's end means.
pub(super) fn exit_code(run: &RunRecord) -> ExitCode {
    let gated = run.error.as_ref().is_some_and(|error| error.kind == ErrorKind::Gate);
    match run.state.parse() {
        Ok(State::Succeeded) => ExitCode::SUCCESS,
        Ok(State::Cancelled) if gated => ExitCode::SUCCESS,
        Ok(State::TimedOut) => code::TIMED_OUT.into(),
        Ok(State::Cancelled) => code::CANCELLED.into(),
        Ok(State::Failed | State::Interrupted | State::Queued | State::Running) | Err(_) => {
            code::FAILED.into()
        }
    }
}

/// Prints `value` for programs.
pub(super) fn json(value: &impl Serialize) -> Done {
    let text = serde_json::to_string_pretty(value)?;
    say(&text)
}

/// Prints to standard output. A reader that has gone away is no failure.
pub(super) fn say(text: &str) -> Done {
    say_exactly(&format!("{text}\n"))
}

/// The same without a line end of ours.
pub(super) fn say_exactly(text: &str) -> Done {
    let mut stdout = std::io::stdout().lock();
    let for_terminal = stdout.is_terminal();
    // A terminal has no need of the ends that RFC 4180 wants.
    let text = if for_terminal { text.replace("\r\n", "\n") } else { text.to_owned() };
    let text = safe(&text, for_terminal);
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Prints to standard error.
pub(super) fn note(text: &str) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// Lines `rows` up under `head`; only as wide as the terminal, or as needed elsewhere.
pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head.iter().map(|name| name.to_uppercase()));
    table.set_content_arrangement(ContentArrangement::Disabled);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2)).set_cell_alignment(CellAlignment::Left);
    }
    let lines: Vec<_> = table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// An instant as people in `zone` read it, with the offset.
pub(super) fn local(instant: Timestamp, zone: &TimeZone) -> String {
    instant.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// A length of time in at most two units.
pub(super) fn length(length: Duration) -> String {
    let rounded = match length.as_secs() {
        0 => Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)),
        1..=9 => {
            Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX) / 100 * 100)
        }
        seconds => Duration::from_secs(seconds),
    };
    let text = humantime::format_duration(rounded).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// So many of them, in words.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The first line of `text`, cut to `characters`.
pub(super) fn first_line(text: &str, characters: usize) -> String {
    let line = text.trim().lines().next().unwrap_or("");
    if line.chars().count() <= characters {
        return line.to_owned();
    }
    let head: String = line.chars().take(characters.saturating_sub(1)).collect();
    format!("{head}…")
}

/// Whether progress can be drawn.
pub(super) fn on_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Lines that a slow reader of standard error may be behind before it loses some.
const LINES_BEHIND_MAX: usize = 4096;

/// Standard error that nobody has to wait for: lines go through a bounded queue to a thread of
/// their own, and where the reader does not keep up, or is gone, they are lost. A run must not
/// wait for whoever watches it.
#[derive(Debug, Clone)]
pub(super) struct Voice(NonBlocking);

impl Voice {
    /// The voice, and what flushes it when it is dropped.
    pub(super) fn of_stderr() -> (Self, WorkerGuard) {
        let (writer, guard) = NonBlockingBuilder::default()
            .buffered_lines_limit(LINES_BEHIND_MAX)
            .thread_name("voice")
            .finish(std::io::stderr());
        (Self(writer), guard)
    }

    /// Says a line.
    pub(super) fn say(&self, words: &str) {
        let mut writer = self.0.clone();
        drop(writer.write_all(format!("{words}\n").as_bytes()));
    }
}

/// Log lines go to `voice`; `PUNCTUAL_LOG` says which (as `RUST_LOG` does elsewhere).
pub(super) fn start_logging(voice: &Voice, format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_env("PUNCTUAL_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("{level},tokio_cron_scheduler=warn")));
    // A line that cannot be written is no reason to write another one about it, or to panic.
    let base = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(voice.0.clone())
        .log_internal_errors(false);
    // A second start (in tests that embed the library) keeps the first one's.
    match format {
        LogFormat::Json => drop(
            base.json()
                .flatten_event(true)
                .with_current_span(true)
                .with_span_list(false)
                .try_init(),
        ),
        LogFormat::Text => {
            let colour = on_terminal() && std::env::var_os("NO_COLOR").is_none();
            drop(base.with_ansi(colour).with_target(false).try_init());
        }
    }
}

/// `text` as it may be shown: on a terminal, what a model or a file said must not move the cursor,
/// change colours or turn the direction of writing.
pub(super) fn safe(text: &str, for_terminal: bool) -> Cow<'_, str> {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let moves = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !for_terminal || !text.contains(|c| turns(c) || moves(c)) {
        return text.into();
    }
    text.chars()
        .map(|c| if turns(c) || moves(c) { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_moved_by_what_a_model_says() {
        let hostile = "\u{1b}[2Jok\r\u{202e}evil\u{7}\n\tfine é";
        assert_eq!(safe(hostile, true), "\u{fffd}[2Jok\u{fffd}\u{fffd}evil\u{fffd}\n\tfine é");
        assert_eq!(safe(hostile, false), hostile);
    }

    #[test]
    fn lengths_have_at_most_two_units() {
        let shown = |millis| length(Duration::from_millis(millis));
        assert_eq!(
            [shown(0), shown(489), shown(1489), shown(90_061_001)],
            ["0s", "489ms", "1s 400ms", "1day 1h"]
        );
    }
}
