//! Long texts, made short enough for whoever gets them.

/// `text`, or its head and tail with the cut stated.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    let length = text.chars().count();
    if length <= chars_max {
        return text.to_owned();
    }
    let half = chars_max / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(length - half).collect();
    format!("{head}\n[… {} characters cut …]\n{tail}", length - 2 * half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_results_keep_head_and_tail_and_say_what_is_missing() {
        let text = format!("{}{}", "a".repeat(20_000), "é".repeat(20_000));
        let short = cut(&text, 16_000);
        assert!(short.starts_with("aaa") && short.ends_with("ééé"));
        assert!(short.contains("[… 24000 characters cut …]"));
        assert_eq!(cut("short", 16_000), "short");
    }
}
