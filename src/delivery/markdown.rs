//! Markdown as Slack writes it.
//!
//! Slack knows no headings, tables or `**`: headings become bold lines, tables code blocks in which
//! the columns line up, and what it would take for its own signs is escaped.

/// `text` in Slack's own marks.
pub(super) fn to_mrkdwn(text: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if let Some(fence) = fence_of(trimmed) {
            // The language behind the fence would be shown as a line of code.
            out.push("```".into());
            for inside in lines.by_ref() {
                if inside.trim_start().starts_with(fence) {
                    break;
                }
                out.push(escaped(inside));
            }
            out.push("```".into());
        } else if is_row(line) && lines.peek().is_some_and(|next| is_rule(next)) {
            lines.next();
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|next| is_row(next)) {
                rows.push(cells(row));
            }
            out.extend(table(&rows));
        } else {
            out.push(line_of(line, trimmed));
        }
    }
    out.join("\n")
}

fn fence_of(line: &str) -> Option<&'static str> {
    ["```", "~~~"].into_iter().find(|fence| line.starts_with(fence))
}

fn line_of(line: &str, trimmed: &str) -> String {
    let indent = &line[..line.len() - trimmed.len()];
    let level = trimmed.chars().take_while(|c| *c == '#').count();
    if (1..=6).contains(&level)
        && let Some(title) = trimmed[level..].strip_prefix(' ')
    {
        let title = inline(title.trim().trim_end_matches('#').trim_end()).replace('*', "");
        return format!("*{title}*");
    }
    for mark in ["- ", "* ", "+ "] {
        if let Some(rest) = trimmed.strip_prefix(mark) {
            return format!("{indent}• {}", inline(rest));
        }
    }
    if let Some(rest) = trimmed.strip_prefix("> ") {
        return format!("> {}", inline(rest));
    }
    format!("{indent}{}", inline(trimmed))
}

/// What stands within a line. Code is left as it is.
fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (piece, after) = marked(rest).unwrap_or_else(|| {
            let (plain, after) = rest.split_at(first.len_utf8());
            (escaped(plain), after)
        });
        out.push_str(&piece);
        rest = after;
    }
    out
}

/// What `text` begins with in marks, in Slack's, and what comes after.
fn marked(text: &str) -> Option<(String, &str)> {
    if let Some((code, after)) = between(text, "`", "`") {
        return Some((format!("`{}`", escaped(code)), after));
    }
    let strong = between(text, "**", "**").or_else(|| between(text, "__", "__"));
    if let Some((inner, after)) = strong {
        return Some((format!("*{}*", inline(inner)), after));
    }
    if let Some((inner, after)) = between(text, "~~", "~~") {
        return Some((format!("~{}~", inline(inner)), after));
    }
    if let Some((inner, after)) = emphasis(text) {
        return Some((format!("_{}_", inline(inner)), after));
    }
    link(text)
}

/// What stands between two marks at the beginning of `text`, and what comes after. Blanks beside
/// the marks mean that they are none.
fn between<'t>(text: &'t str, open: &str, close: &str) -> Option<(&'t str, &'t str)> {
    let inside = text.strip_prefix(open)?;
    let end = inside.find(close)?;
    let (inner, after) = (&inside[..end], &inside[end + close.len()..]);
    let is_one = !inner.is_empty() && inner.trim() == inner;
    is_one.then_some((inner, after))
}

fn emphasis(text: &str) -> Option<(&str, &str)> {
    if text.starts_with("**") {
        return None;
    }
    between(text, "*", "*")
}

/// `[words](address)`, and the same with `!` for a picture.
fn link(text: &str) -> Option<(String, &str)> {
    let (words, rest) = between(text.strip_prefix('!').unwrap_or(text), "[", "]")?;
    let (address, after) = between(rest, "(", ")")?;
    let address = address.split_whitespace().next()?;
    let is_address = ["http://", "https://", "mailto:"].iter().any(|it| address.starts_with(it));
    is_address
        .then(|| (format!("<{}|{}>", escaped(address), escaped(words).replace('|', "/")), after))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn is_row(line: &str) -> bool {
    let line = line.trim();
    line.len() > 1 && line.starts_with('|') && line.ends_with('|')
}

/// The line below a table's head.
fn is_rule(line: &str) -> bool {
    is_row(line)
        && line.contains('-')
        && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' ' | '\t'))
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    // Marks mean nothing inside of a code block.
    inner.split('|').map(|cell| cell.trim().replace("**", "").replace('`', "")).collect()
}

fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        escaped(padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let rule = widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("  ");
    let mut lines = vec!["```".to_owned(), line(&rows[0]), rule];
    lines.extend(rows[1..].iter().map(line));
    lines.push("```".into());
    lines
}

/// `text` in parts of at most `bytes_max`, cut between lines where that is possible. A code block
/// that is cut is closed and opened again.
pub(super) fn split(text: &str, bytes_max: usize) -> Vec<String> {
    const FENCE: &str = "```";
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut in_code = false;
    // Room for closing a code block, and for opening it again.
    let room = bytes_max.saturating_sub(2 * (FENCE.len() + 1)).max(4);
    for line in text.lines().flat_map(|line| pieces(line, room)) {
        if !part.is_empty() && part.len() + 1 + line.len() > room {
            if in_code {
                part.push('\n');
                part.push_str(FENCE);
            }
            parts.push(std::mem::take(&mut part));
            if in_code {
                part.push_str(FENCE);
            }
        }
        if !part.is_empty() {
            part.push('\n');
        }
        part.push_str(line);
        if line == FENCE {
            in_code = !in_code;
        }
    }
    if !part.trim().is_empty() {
        parts.push(part);
    }
    parts
}

/// A line in pieces that each fit.
fn pieces(line: &str, bytes_max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while rest.len() > bytes_max {
        let mut end = bytes_max;
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let blank = rest[..end].rfind(' ').filter(|at| *at > end / 2);
        let (piece, after) = rest.split_at(blank.map_or(end, |at| at + 1));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_slacks_own() {
        for (markdown, mrkdwn) in [
            ("plain", "plain"),
            ("# Head", "*Head*"),
            ("### A **bold** head ##", "*A bold head*"),
            ("#hash", "#hash"),
            ("**bold** and *slanted* and ~~gone~~", "*bold* and _slanted_ and ~gone~"),
            ("2 * 3 * 4", "2 * 3 * 4"),
            ("snake_case_name", "snake_case_name"),
            ("`a ** b` stays", "`a ** b` stays"),
            ("- one\n  - two\n* three", "• one\n  • two\n• three"),
            ("[here](https://x.example/a?b=1&c=2)", "<https://x.example/a?b=1&amp;c=2|here>"),
            ("![a picture](https://x.example/p.png)", "<https://x.example/p.png|a picture>"),
            ("[x](javascript:alert)", "[x](javascript:alert)"),
            ("1 < 2 & <!channel>", "1 &lt; 2 &amp; &lt;!channel&gt;"),
            ("> said **so**", "> said *so*"),
            ("```rust\nlet a = **b;\n```", "```\nlet a = **b;\n```"),
            ("```\nnever closed", "```\nnever closed\n```"),
            ("é **ü** 日本", "é *ü* 日本"),
        ] {
            assert_eq!(to_mrkdwn(markdown), mrkdwn, "{markdown}");
        }
    }

    #[test]
    fn tables_line_up_in_a_code_block() {
        let markdown = "Before\n\n| Name | Count |\n|:-----|------:|\n| **a** | 1 |\n| längste | 22 |\n\nAfter";
        let expected =
            "Before\n\n```\nName     Count\n-------  -----\na        1\nlängste  22\n```\n\nAfter";
        assert_eq!(to_mrkdwn(markdown), expected);
        assert_eq!(to_mrkdwn("| no table |"), "| no table |");
    }

    #[test]
    fn long_texts_are_cut_between_lines_and_code_stays_code() {
        assert_eq!(split("short", 100), ["short"]);
        assert_eq!(split("", 100), Vec::<String>::new());
        let lines: Vec<_> = (0..40).map(|n| format!("line {n}")).collect();
        let parts = split(&lines.join("\n"), 100);
        assert!(parts.len() > 3 && parts.iter().all(|part| part.len() <= 100), "{parts:?}");
        assert_eq!(parts.join("\n"), lines.join("\n"));

        let code = format!("```\n{}\n```", lines.join("\n"));
        for part in split(&code, 100) {
            assert!(part.len() <= 100, "{part}");
            assert!(part.starts_with("```\n") && part.ends_with("\n```"), "{part}");
        }
        let long = "é".repeat(300);
        let parts = split(&long, 100);
        assert!(parts.iter().all(|part| part.len() <= 100));
        assert_eq!(parts.join("").replace('\n', ""), long);
    }
}
