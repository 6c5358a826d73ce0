//! A command line as words, read only where every shell reads it alike.
//!
//! The words that a pattern is matched with must be the words that `sh` runs. So this is a shell
//! grammar with everything taken out that would need a guess: no expansion of any kind, no
//! redirection, no background, no compound command. What is left, plain and quoted words joined by
//! `|`, `&&`, `||`, `;` and line ends, leaves a shell no choice.

use std::iter::Peekable;
use std::str::Chars;

use super::exec_policy::ExecRefusal;

/// Words that begin a compound command or negate one; none of them is a program.
const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while",
    "until", "for", "in", "function", "select", "coproc", "time",
];

/// The simple commands of a command line, each as the words that `sh` would run.
pub(super) fn commands(text: &str) -> Result<Vec<Vec<String>>, ExecRefusal> {
    let mut reader = Reader {
        chars: text.chars().peekable(),
        word: None,
        words: vec![],
        commands: vec![],
        is_open: false,
    };
    while let Some(c) = reader.chars.next() {
        reader.take(c)?;
    }
    reader.end_command()?;
    if reader.is_open {
        return Err(ExecRefusal::Unclear("an operator without a command"));
    }
    Ok(reader.commands)
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    /// The word being read; `Some("")` after an empty pair of quotes.
    word: Option<String>,
    words: Vec<String>,
    commands: Vec<Vec<String>>,
    /// An operator was read last, so that another command must follow.
    is_open: bool,
}

impl Reader<'_> {
    fn take(&mut self, c: char) -> Result<(), ExecRefusal> {
        let at_start = self.word.is_none();
        match c {
            ' ' | '\t' => self.end_word(),
            '\n' => self.end_command()?,
            ';' => self.separate()?,
            '|' | '&' => self.operator(c)?,
            '\'' => self.single_quoted()?,
            '"' => self.double_quoted()?,
            '\\' => match self.chars.next() {
                None | Some('\n') => return Err(ExecRefusal::Unclear("a line that goes on")),
                Some(escaped) => self.push(literal(escaped)?),
            },
            '<' | '>' => return Err(ExecRefusal::Unclear("a redirection")),
            '$' | '`' => return Err(ExecRefusal::Unclear("an expansion")),
            '(' | ')' | '{' | '}' => return Err(ExecRefusal::Unclear("an unquoted bracket")),
            '*' | '?' | '[' => {
                return Err(ExecRefusal::Unclear("an unquoted pattern of file names"));
            }
            '#' if at_start => return Err(ExecRefusal::Unclear("a comment")),
            '~' if at_start
                || self.word.as_ref().is_some_and(|word| word.ends_with(['=', ':'])) =>
            {
                return Err(ExecRefusal::Unclear("an unquoted `~`"));
            }
            c if c.is_whitespace() => return Err(ExecRefusal::Unclear("an unusual space")),
            c => self.push(literal(c)?),
        }
        Ok(())
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) -> Result<(), ExecRefusal> {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        let Some(first) = words.first() else { return Ok(()) };
        if RESERVED.contains(&first.as_str()) {
            return Err(ExecRefusal::Unclear("a compound command"));
        }
        if first.contains('=') {
            return Err(ExecRefusal::Unclear("a variable before a command"));
        }
        if first.starts_with(['-', '+']) {
            // `sh -c` would take it for an option of its own.
            return Err(ExecRefusal::Unclear("a command that looks like an option"));
        }
        self.commands.push(words);
        self.is_open = false;
        Ok(())
    }

    fn operator(&mut self, c: char) -> Result<(), ExecRefusal> {
        let is_double = self.chars.next_if_eq(&c).is_some();
        if c == '&' && !is_double {
            return Err(ExecRefusal::Unclear("a background command"));
        }
        if self.chars.peek() == Some(&'&') {
            return Err(ExecRefusal::Unclear("an unknown operator"));
        }
        self.separate()?;
        self.is_open = true;
        Ok(())
    }

    /// Ends a command that must be there.
    fn separate(&mut self) -> Result<(), ExecRefusal> {
        self.end_word();
        if self.words.is_empty() {
            return Err(ExecRefusal::Unclear("an operator without a command"));
        }
        self.end_command()
    }

    fn single_quoted(&mut self) -> Result<(), ExecRefusal> {
        self.word.get_or_insert_default();
        loop {
            match self.chars.next() {
                None => return Err(ExecRefusal::Unclear("an open quote")),
                Some('\'') => return Ok(()),
                Some(c) => self.push(quoted(c)?),
            }
        }
    }

    fn double_quoted(&mut self) -> Result<(), ExecRefusal> {
        self.word.get_or_insert_default();
        loop {
            match self.chars.next() {
                None => return Err(ExecRefusal::Unclear("an open quote")),
                Some('"') => return Ok(()),
                Some('$' | '`') => return Err(ExecRefusal::Unclear("an expansion")),
                Some('\\') => match self.chars.next() {
                    None | Some('\n') => return Err(ExecRefusal::Unclear("a line that goes on")),
                    Some(c @ ('$' | '`' | '"' | '\\')) => self.push(c),
                    Some(c) => {
                        self.push('\\');
                        self.push(quoted(c)?);
                    }
                },
                Some(c) => self.push(quoted(c)?),
            }
        }
    }
}

fn literal(c: char) -> Result<char, ExecRefusal> {
    if c.is_control() { Err(ExecRefusal::Unclear("a control character")) } else { Ok(c) }
}

/// Quotes may hold line ends and tabs, which are text there.
fn quoted(c: char) -> Result<char, ExecRefusal> {
    if matches!(c, '\n' | '\t') { Ok(c) } else { literal(c) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What each shell here makes of a line of arguments.
    #[expect(clippy::disallowed_methods, reason = "the shell is the judge of this test")]
    fn shells_read(arguments: &str) -> Vec<String> {
        let shells = ["/bin/sh", "/bin/dash", "/bin/bash"];
        let present = shells.iter().filter(|shell| std::path::Path::new(shell).exists());
        let outputs = present.map(|shell| {
            let script = format!("printf '<%s>' {arguments}");
            let output = std::process::Command::new(shell).args(["-c", &script]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        });
        outputs.collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn the_words_that_are_matched_are_the_words_that_sh_runs(
            arguments in r#"x[ab'"\\ $`#!~=*?{}\[\]()<>;|&^%:,.@\t\n-]{0,12}"#
        ) {
            let read = commands(&format!("printf '<%s>' {arguments}"));
            if let Ok([words]) = read.as_deref() {
                let want = format!("<{}>", words[2..].join("><"));
                for got in shells_read(&arguments) {
                    prop_assert_eq!(&got, &want);
                }
            }
        }
    }
}
