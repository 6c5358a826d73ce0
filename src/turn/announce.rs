//! A reply that only says what will be done: a model that stopped before it began.

use std::sync::LazyLock;

use regex::Regex;

/// A report may end with a plan; what is longer than this is a report.
const CHARS_MAX: usize = 600;

/// How a sentence begins that announces work.
static BEGINS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^(?:(?:sure|okay|ok|certainly|of\ course|great|alright|got\ it|understood|right)[,!.]?\s*)?
          (?:(?:first(?:ly)?|now|next|then|to\ begin|to\ start)[,]?\s+)?
          (?:i(?:\ will|'ll|’ll|\ am\ going\ to|'m\ going\ to|’m\ going\ to|\ need\ to|\ can\ now)|let\ me|let's|let’s
             |starting\ by|ich\ werde|ich\ beginne|lass\ mich|zuerst\ werde)\b",
    )
    .expect("the pattern is sound")
});

/// What stands alone before an announcement.
static OPENER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^(?:sure|okay|ok|certainly|of course|great|alright|got it|understood|right)\W*$",
    )
    .expect("the pattern is sound")
});

/// Whether every sentence of `reply` announces work, and nothing in it is a result.
pub(crate) fn only_announces(reply: &str) -> bool {
    let reply = reply.trim();
    if reply.is_empty() || reply.chars().count() > CHARS_MAX {
        return false;
    }
    let sentences = reply.split_inclusive(['.', '!', '?', ':', '…', '\n']).map(str::trim);
    let mut sentences = sentences.filter(|it| it.chars().any(char::is_alphanumeric)).peekable();
    let mut announced = false;
    while let Some(sentence) = sentences.next() {
        if BEGINS.is_match(sentence) {
            announced = true;
        } else if !(OPENER.is_match(sentence) && sentences.peek().is_some()) {
            return false;
        }
    }
    announced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_no_reports_and_reports_are_no_announcements() {
        for announces in [
            "I'll start by looking at the logs.",
            "Let me check the disk usage first.",
            "Okay, I will now read the file.",
            "Sure! I'm going to look at the commits. Then I'll write the report.",
            "First, I'll list the folder:",
            "Now let me run the tests…",
            "I’ll begin with the database.\n\nLet me connect to it.",
            "Ich werde zuerst die Protokolle lesen.",
        ] {
            assert!(only_announces(announces), "{announces}");
        }
        for reports in [
            "",
            "fine",
            "NO_REPLY",
            "I'll keep it short: disk usage is at 81 %, up from 79 %.",
            "Let me summarise. Three jobs failed, all with `rate_limit`.",
            "The backup is complete. I will check again tomorrow.",
            "I found nothing new.",
            "I cannot read the file: permission denied.",
            "Illinois reported 3 cases.",
            "{\"plan\": \"I will wait\"}",
            "- I'll need more disk\n- Total: 5",
        ] {
            assert!(!only_announces(reports), "{reports}");
        }
        let long = "Let me see. ".repeat(60);
        assert!(!only_announces(&long));
    }
}
