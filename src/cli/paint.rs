//! Colour, for terminals that want it.
//!
//! What is painted goes through `anstream`: elsewhere, and with `NO_COLOR`, the colours are taken
//! out again.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use super::output::{Done, safe, table};

/// Prints a table in which the words of these columns have the colour of what they mean.
pub(super) fn say_table(head: &[&str], rows: Vec<Vec<String>>, painted: &[&str]) -> Done {
    let plain = table(head, rows);
    let mut lines = plain.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let columns: Vec<_> = painted.iter().filter_map(|name| span_of(&first, name)).collect();
    let lines = lines.map(|line| {
        let mut line = harmless(line);
        // From the right, so that what stands before keeps its place.
        for (start, end) in columns.iter().rev() {
            paint(&mut line, *start, *end);
        }
        line
    });
    say_painted(&std::iter::once(first.clone()).chain(lines).collect::<Vec<_>>().join("\n"))
}

/// Prints what has been painted. A reader that has gone away is no failure.
pub(super) fn say_painted(text: &str) -> Done {
    let mut stdout = anstream::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// `text` as it may come before what is painted.
fn harmless(text: &str) -> String {
    let stdout = std::io::stdout();
    let keeps = AutoStream::choice(&stdout) != ColorChoice::Never || stdout.is_terminal();
    safe(text, keeps).into_owned()
}

/// `word` in the colour of `style`.
pub(super) fn painted(word: &str, style: Style) -> String {
    format!("{style}{word}{style:#}")
}

/// From where a column goes to where. What stands before it is ASCII.
fn span_of(head: &str, name: &str) -> Option<(usize, usize)> {
    let name = name.to_uppercase();
    let start = head.split("  ").scan(0, |at, part| {
        let here = *at;
        *at += part.len() + 2;
        Some((here, part))
    });
    let mut columns = start.filter(|(_, part)| !part.trim().is_empty());
    let (at, part) = columns.find(|(_, part)| part.trim() == name)?;
    let start = at + (part.len() - part.trim_start().len());
    let end =
        columns.next().map_or(usize::MAX, |(at, part)| at + (part.len() - part.trim_start().len()));
    Some((start, end))
}

fn paint(line: &mut String, start: usize, end: usize) {
    let end = end.min(line.len());
    let Some(cell) = line.get(start..end) else { return };
    let word = cell.split([' ', ',']).next().unwrap_or_default().to_owned();
    if let Some(style) = style_of(&word) {
        line.replace_range(start..start + word.len(), &painted(&word, style));
    }
}

/// The colour of a word for a state or a decision.
fn style_of(word: &str) -> Option<Style> {
    let colour = match word {
        "succeeded" => AnsiColor::Green,
        "failed" | "timed_out" | "interrupted" | "missed" | "invalid" => AnsiColor::Red,
        "cancelled" | "skipped" | "held" | "paused" | "disabled" => AnsiColor::Yellow,
        "running" | "queued" | "buffered" => AnsiColor::Cyan,
        _ => return None,
    };
    Some(colour.on_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_painted_where_its_column_is() {
        let head = "RUN   STATE      LAST RUN  SAID";
        let (start, end) = span_of(head, "state").unwrap();
        let mut line = "r1    failed     failed    failed: x".to_owned();
        paint(&mut line, start, end);
        assert_eq!(line, "r1    \u{1b}[31mfailed\u{1b}[0m     failed    failed: x");
        assert_eq!(span_of(head, "last run"), Some((17, 27)));
        assert_eq!(span_of(head, "said"), Some((27, usize::MAX)));
        assert_eq!(span_of(head, "job"), None);
    }
}
