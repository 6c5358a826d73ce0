//! Messages that are commands: a word with a slash at the beginning.

words!(
    /// What a message can ask of its session (semantics §1).
    Word {
        /// Another conversation under the same key.
        New = "new",
        /// The same conversation, and nothing of it remembered.
        Reset = "reset",
        /// The end of what goes on, and of what waits.
        Stop = "stop",
    }
);

impl Word {
    /// The command that `text` begins with, and what is said after it.
    pub fn of(text: &str) -> Option<(Self, &str)> {
        let said = text.trim().strip_prefix('/')?;
        let (word, rest) = said.split_once(char::is_whitespace).unwrap_or((said, ""));
        Some((word.parse().ok()?, rest.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Semantics §1: a message that begins with `/new`, `/reset` or `/stop` is a command.
    #[test]
    fn only_whole_words_at_the_beginning_are_commands() {
        let table = [
            ("/new", Some((Word::New, ""))),
            ("  /reset  \n", Some((Word::Reset, ""))),
            (
                "/new look at the disk\nand report",
                Some((Word::New, "look at the disk\nand report")),
            ),
            ("/stop\nnow", Some((Word::Stop, "now"))),
            ("/newer", None),
            ("/etc/hosts is odd", None),
            ("please /stop", None),
            ("/", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(Word::of(text), expected, "{text}");
        }
    }
}
