//! Problems as people read them: the line, a caret under the place, what would be right.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use regex::Regex;

use super::file::{FILE_BYTES_MAX, read_text};
use super::problem::{Problem, Severity};

/// Whether the text may carry colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// For a terminal.
    Ansi,
    /// For files and pipes.
    Plain,
}

/// One report of all problems, in the order given.
///
/// The files are read again for the lines to show; one that is gone, or has changed so that the
/// place is no longer in it, is named without its line.
pub fn render(problems: &[Problem], color: Color) -> String {
    let renderer = match color {
        Color::Ansi => Renderer::styled(),
        Color::Plain => Renderer::plain(),
    };
    let mut texts: BTreeMap<PathBuf, Option<String>> = BTreeMap::new();
    let mut out = String::new();
    for problem in problems {
        let text = texts
            .entry(problem.file.clone())
            .or_insert_with(|| read_text(&problem.file, FILE_BYTES_MAX).ok());
        out.push_str(&one(problem, text.as_deref(), &renderer));
        out.push_str("\n\n");
    }
    // One newline at the end.
    out.truncate(out.trim_end().len());
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

fn one(problem: &Problem, text: Option<&str>, renderer: &Renderer) -> String {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(problem.message.as_str());
    let path = problem.file.display().to_string();
    let lines = text.and_then(|text| lines_around(text, problem));
    let mut group = match &lines {
        Some((lines, span)) => title.element(
            Snippet::source(lines.as_str())
                .line_start(problem.line)
                .path(path)
                .annotation(AnnotationKind::Primary.span(span.clone())),
        ),
        None => title.element(
            annotate_snippets::Origin::path(path).line(problem.line).char_column(problem.column),
        ),
    };
    if let Some(help) = &problem.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    renderer.render(&[group])
}

/// The line of the problem, and the span within it; nothing when there is no such place.
fn lines_around(text: &str, problem: &Problem) -> Option<(String, std::ops::Range<usize>)> {
    if problem.span == (0..0) {
        return None;
    }
    let before = text.get(..problem.span.start)?;
    if before.matches('\n').count() + 1 != problem.line {
        return None;
    }
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next().unwrap_or("");
    let from = problem.span.start - start;
    let to = (problem.span.end.max(problem.span.start) - start).min(line.len()).max(from);
    let covered = without_secrets(line);
    covered.is_char_boundary(from).then_some(())?;
    let to = (to..=covered.len()).find(|to| covered.is_char_boundary(*to))?;
    Some((covered, from..to))
}

/// The line with every quoted value behind a secret's key covered, misspelt keys included; each
/// byte is replaced by one `*`, so that places stay.
fn without_secrets(line: &str) -> String {
    static SECRET: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r#"(?i)(?:key|kye|kee|token|tokne|secret|passw|pwd|url|auth)[\w"']*\s*=\s*("(?:[^"\\]|\\.)*"?|'[^']*'?)"#,
        )
        .expect("a fixed pattern")
    });
    let mut covered = line.to_owned();
    for found in SECRET.captures_iter(line) {
        let (whole, value) =
            (found.get_match().as_str(), found.get(1).expect("group 1 always takes part"));
        let name = whole.split('=').next().unwrap_or("").trim_end_matches([' ', '"', '\'']);
        if !name.ends_with("_env")
            && !name.ends_with("_file")
            && !name.eq_ignore_ascii_case("base_url")
        {
            covered.replace_range(value.range(), &"*".repeat(value.len()));
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_places_and_lose_their_secrets() {
        for (line, expected) in [
            ("api_key = \"sk-12\" # x", "api_key = ******* # x"),
            ("api_kye = 'sk-12'", "api_kye = *******"),
            ("api_key_env = \"NAME\"", "api_key_env = \"NAME\""),
            ("x = { token=\"ab\", b = \"c\" }", "x = { token=****, b = \"c\" }"),
            ("prompt = \"no secret\"", "prompt = \"no secret\""),
        ] {
            assert_eq!(without_secrets(line), expected);
        }
    }
}
