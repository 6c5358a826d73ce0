//! Which commands may run unattended.
//!
//! A pattern is about words: `git log *` allows `git log` with any further words, and nothing else.
//! Anything that a shell would expand, redirect or nest is refused, whatever the patterns say: see
//! the reader of command lines beside this file.
//!
//! A pattern trusts the program that it names: `git *` allows `git -c alias.x=!sh x` too, and
//! `find *` allows `-exec`. To allow less, name the sub-command: in `git log *` the second word
//! must be `log`.

use super::command_line::commands;

/// What `exec` may run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ExecPolicy {
    /// Nothing.
    #[default]
    Deny,
    /// What one of the patterns matches.
    AllowList(Vec<Pattern>),
    /// Anything.
    Full,
}

/// A pattern of words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// One word each; a `*` in it stands for any characters.
    words: Vec<String>,
    rest: FurtherWords,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FurtherWords {
    None,
    Any,
}

/// A pattern that can match nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern `{0}` of `exec_allow` is empty")]
pub struct BadPattern(String);

/// Why a command may not run, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecRefusal {
    /// No `exec_allow`.
    #[error("commands are not allowed here")]
    NotAllowed,
    /// No pattern matches.
    #[error("`{command}` is not allowed here; allowed are: {allowed}")]
    NoPattern {
        /// The command, of a chain the one that is meant.
        command: String,
        /// The patterns.
        allowed: String,
    },
    /// Something that would have to be guessed at.
    #[error("{0} cannot be allowed by a pattern; use plain or quoted words, `|`, `&&`, `||`, `;`")]
    Unclear(&'static str),
    /// No command at all.
    #[error("there is no command in it")]
    Empty,
}

impl ExecPolicy {
    /// The policy that `exec_allow` spells: none is [`Self::Deny`], `["*"]` is [`Self::Full`].
    pub fn from_patterns<S: AsRef<str>>(patterns: &[S]) -> Result<Self, BadPattern> {
        match patterns {
            [] => Ok(Self::Deny),
            [only] if only.as_ref().trim() == "*" => Ok(Self::Full),
            several => several
                .iter()
                .map(|one| Pattern::parse(one.as_ref()))
                .collect::<Result<_, _>>()
                .map(Self::AllowList),
        }
    }

    /// Whether `command` may run.
    pub fn check(&self, command: &str) -> Result<(), ExecRefusal> {
        let patterns = match self {
            Self::Deny => return Err(ExecRefusal::NotAllowed),
            Self::Full => return Ok(()),
            Self::AllowList(patterns) => patterns,
        };
        let commands = commands(command)?;
        for words in &commands {
            if !patterns.iter().any(|pattern| pattern.matches(words)) {
                let shown: Vec<_> = patterns.iter().map(Pattern::to_string).collect();
                return Err(ExecRefusal::NoPattern {
                    command: words.join(" "),
                    allowed: shown.join(", "),
                });
            }
        }
        if commands.is_empty() { Err(ExecRefusal::Empty) } else { Ok(()) }
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, BadPattern> {
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let rest = match words.last().map(String::as_str) {
            None => return Err(BadPattern(text.to_owned())),
            Some("*") => FurtherWords::Any,
            Some(_) => FurtherWords::None,
        };
        if rest == FurtherWords::Any {
            words.pop();
        }
        Ok(Self { words, rest })
    }

    fn matches(&self, words: &[String]) -> bool {
        let enough = match self.rest {
            FurtherWords::None => words.len() == self.words.len(),
            FurtherWords::Any => words.len() >= self.words.len(),
        };
        enough && self.words.iter().zip(words).all(|(pattern, word)| word_matches(pattern, word))
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rest = (self.rest == FurtherWords::Any).then_some("*");
        let words: Vec<&str> = self.words.iter().map(String::as_str).chain(rest).collect();
        write!(f, "`{}`", words.join(" "))
    }
}

/// Whether `word` is `pattern`, in which each `*` stands for any characters.
fn word_matches(pattern: &str, word: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == word };
    let Some(mut word) = word.strip_prefix(start) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = word.find(piece) else { return false };
        word = &word[at + piece.len()..];
    }
    word.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(patterns: &[&str]) -> ExecPolicy {
        ExecPolicy::from_patterns(patterns).unwrap()
    }

    #[test]
    fn patterns_spell_three_policies() {
        assert_eq!(policy(&[]), ExecPolicy::Deny);
        assert_eq!(policy(&["*"]), ExecPolicy::Full);
        assert!(matches!(policy(&["*", "df"]), ExecPolicy::AllowList(_)));
        assert_eq!(ExecPolicy::from_patterns(&["df", " "]), Err(BadPattern(" ".into())));
        assert_eq!(policy(&[]).check("true"), Err(ExecRefusal::NotAllowed));
        assert_eq!(policy(&["*"]).check("rm -rf $HOME > /dev/null &"), Ok(()));
    }

    #[test]
    fn what_a_pattern_allows() {
        let table: &[(&[&str], &str)] = &[
            (&["df *"], "df"),
            (&["df *"], "df -h /"),
            (&["df *"], "  df\t-h  "),
            (&["df *"], "df -h\n\ndf -i\n"),
            (&["git *", "wc *"], "git log --oneline | wc -l"),
            (&["git *", "wc *"], "git fetch && git log || git status; wc -l a"),
            (&["git *"], "git log 'a; rm -rf /' \"b | c\" d\\;e"),
            (&["git *"], "g'i't log;"),
            (&["git *"], "git log |\n\n git status &&\ngit log"),
            (&["git *"], "git show HEAD~1 a#b"),
            (&["git *"], "git grep '$HOME' '*.rs' \"\\$x\" \"it's\""),
            (&["git log *"], "git log -p"),
            (&["git log"], "git log"),
            (&["echo *"], "echo ! wow!"),
            (&["echo *"], "echo 'line\nline'"),
            (&["./report-*.sh"], "./report-daily.sh"),
            (&["make test-* *"], "make test-unit -j 2"),
            (&["*", "df"], "anything at all"),
            (&["find *"], r"find . -name '*.rs' -exec wc -l '{}' \;"),
        ];
        for (patterns, command) in table {
            assert_eq!(policy(patterns).check(command), Ok(()), "{patterns:?} {command}");
        }
    }

    #[test]
    fn what_no_pattern_of_words_allows() {
        let table: &[(&[&str], &str)] = &[
            (&["df *"], "dfx"),
            (&["df *"], "rm x"),
            (&["df"], "df -h"),
            (&["git *"], "git log; rm -rf x"),
            (&["git *"], "git log\nrm -rf x"),
            (&["git *"], "git log && rm x"),
            (&["git *"], "git log || rm x"),
            (&["git *"], "git log | sh"),
            (&["git *"], "git log |\nsh"),
            (&["git *"], "'git log' x"),
            (&["git *"], "git\\ log"),
            (&["git *"], "/tmp/git log"),
            (&["git *"], "./git log"),
            (&["git *"], "\"\" git log"),
            (&["git *"], "git' 'log"),
            (&["git *"], "env git log"),
            (&["git log *"], "git -c core.pager=sh log"),
            (&["git log *"], "git --exec-path=/tmp log"),
            (&["git log *"], "git 'log x'"),
            (&["git log *"], "git"),
            (&["./report-*.sh"], "./report-x.sh y.sh"),
            (&["make test-* *"], "make all test-unit"),
        ];
        for (patterns, command) in table {
            let result = policy(patterns).check(command);
            assert!(
                matches!(result, Err(ExecRefusal::NoPattern { .. })),
                "{command:?}: {result:?}"
            );
        }
    }

    #[test]
    fn what_would_have_to_be_guessed_is_refused_whatever_the_patterns() {
        let table = [
            "a > x",
            "a >> x",
            "a 2>&1",
            "a < x",
            "a <<E\nrm x\nE",
            "a <<<x",
            "a <(rm x)",
            "a >| x",
            "a $(rm x)",
            "a `rm x`",
            "a $X",
            "a ${X}",
            "a \"$(rm x)\"",
            "a \"`rm x`\"",
            "a \"$X\"",
            "a $'\\n'",
            "a $((1))",
            "a &",
            "a & rm x",
            "a &; rm x",
            "a |& rm x",
            "a &&& b",
            "a && & b",
            "(rm x)",
            "{ rm x; }",
            "a {b,c}",
            "a() { rm x; }",
            "if true; then rm x; fi",
            "while true; do rm x; done",
            "for i in a; do rm x; done",
            "! rm x",
            "time rm x",
            "case a in a) rm x;; esac",
            "X=1 rm x",
            "PATH=. git",
            "X+=1 a",
            "a # b",
            "# a\nrm x",
            "a ~",
            "a ~root",
            "a --x=~",
            "a *",
            "a x?",
            "a [b]c",
            "[ -f x ]",
            "[[ -f x ]]",
            "a \\\nrm x",
            "a \"b\\\nc\"",
            "a \\",
            "a 'b",
            "a \"b",
            "a \"b\\",
            "a\rb",
            "a \0b",
            "a \u{A0}b",
            "a \u{2028}b",
            "a '\u{1B}'",
            "-x",
            "+x",
            "a; -x",
            "function f",
            "a \u{7F}",
            ";",
            "a;;b",
            "a |",
            "a &&\n",
            "| a",
            "a | | b",
            "a && ; b",
            "a; && b",
            "a | ; b",
        ];
        for command in table {
            let result = policy(&["*", "a *"]).check(command);
            assert!(matches!(result, Err(ExecRefusal::Unclear(_))), "{command:?}: {result:?}");
        }
        for command in ["", " ", "\n", "\t\n\n"] {
            assert_eq!(policy(&["*", "a"]).check(command), Err(ExecRefusal::Empty), "{command:?}");
        }
    }

    #[test]
    fn a_star_in_a_word_stands_for_any_characters_of_that_word() {
        for (pattern, word, want) in [
            ("a", "a", true),
            ("a*", "a", true),
            ("a*", "a/b\nc", true),
            ("*a", "ba", true),
            ("a*a", "a", false),
            ("a*b*c", "axxbxbxc", true),
            ("a*b*c", "acb", false),
            ("*", "", true),
            ("a?", "ab", false),
            ("a*bb", "abbb", true),
        ] {
            assert_eq!(word_matches(pattern, word), want, "{pattern} {word}");
        }
    }
}
