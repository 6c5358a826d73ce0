//! Keeps known secrets out of everything that is stored, logged or shown.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use secrecy::{ExposeSecret, SecretString};

/// Shorter secrets are not masked: they would take ordinary words out of every text.
pub const SECRET_CHARS_MIN: usize = 4;
/// A secret of this length is recognised by its beginning too.
const FRAGMENT_FROM_CHARS: usize = 12;
/// How much of it is enough.
const FRAGMENT_CHARS: usize = 8;

/// Shorter lines of a secret of several lines are too common in other texts.
const LINE_CHARS_MIN: usize = 8;

/// Replaces every known secret, and the cut-off beginnings of long ones, by `[secret NAME]`.
#[derive(Clone, Default)]
pub struct Masker(Option<Arc<Known>>);

struct Known {
    finder: AhoCorasick,
    secrets: Vec<Secret>,
}

struct Secret {
    text: SecretString,
    replacement: String,
    /// Bytes that must match at least.
    enough: usize,
}

impl Masker {
    /// A masker of these secrets, each by its name.
    pub fn new(secrets: impl IntoIterator<Item = (String, SecretString)>) -> Self {
        let secrets: Vec<_> =
            secrets.into_iter().flat_map(|(name, text)| forms(&name, &text)).collect();
        if secrets.is_empty() {
            return Self(None);
        }
        let starts = secrets.iter().map(|secret| &secret.text.expose_secret()[..secret.enough]);
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(starts)
            .expect("secrets are far fewer than a pattern set can hold");
        Self(Some(Arc::new(Known { finder, secrets })))
    }

    /// `text` without its secrets.
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.0 {
            Some(known) if known.finder.is_match(text) => {
                let mut out = String::with_capacity(text.len());
                known.scan(text, Rest::Nothing, &mut out);
                Cow::Owned(out)
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// The same for a text that comes in pieces.
    pub fn stream(&self) -> StreamMasker {
        StreamMasker { masker: self.clone(), held: String::new() }
    }
}

/// A secret as it is, and as it looks inside a JSON string.
fn forms(name: &str, text: &SecretString) -> Vec<Secret> {
    let plain = text.expose_secret();
    let quoted = serde_json::Value::from(plain).to_string();
    let escaped = quoted[1..quoted.len() - 1].to_owned();
    let mut forms = vec![plain.to_owned()];
    if escaped != plain {
        forms.push(escaped);
    }
    // A key of several lines is shown indented, or line by line.
    if plain.contains('\n') {
        let lines = plain.lines().map(str::trim);
        forms.extend(lines.filter(|line| line.chars().count() >= LINE_CHARS_MIN).map(Into::into));
    }
    let secret = |form: String| {
        let chars = form.chars().count();
        let enough = match chars {
            FRAGMENT_FROM_CHARS.. => Some(fragment_bytes(&form)),
            SECRET_CHARS_MIN.. => Some(form.len()),
            _ => None,
        };
        Some(Secret { enough: enough?, text: form.into(), replacement: format!("[secret {name}]") })
    };
    forms.into_iter().filter_map(secret).collect()
}

/// How much of the beginning of a long secret gives it away. The scheme of an address
/// (`https://`, `postgres://`) is in every other text and gives nothing away.
fn fragment_bytes(form: &str) -> usize {
    let scheme = form.find("://").map_or(0, |at| at + "://".len());
    let beyond = form[scheme..].char_indices().nth(FRAGMENT_CHARS);
    beyond.map_or(form.len(), |(byte, _)| scheme + byte)
}

/// What may follow a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Nothing,
    Unknown,
}

impl Known {
    /// Writes the masked text to `out` and returns how many bytes are decided; the others may be
    /// the beginning of a secret.
    fn scan(&self, text: &str, rest: Rest, out: &mut String) -> usize {
        let mut done = 0;
        loop {
            let undecided = match rest {
                Rest::Nothing => text.len(),
                Rest::Unknown => self.undecided_from(text, done),
            };
            let found = self.finder.find(aho_corasick::Input::new(text).range(done..));
            let start = found.map(|found| found.start()).filter(|start| *start < undecided);
            let Some(start) = start else {
                out.push_str(&text[done..undecided]);
                return undecided;
            };
            let (length, secret) = self.longest_at(&text[start..]);
            out.push_str(&text[done..start]);
            out.push_str(&secret.replacement);
            done = start + length;
        }
    }

    /// The first byte from which the text, as far as it goes, is the beginning of a secret.
    fn undecided_from(&self, text: &str, from: usize) -> usize {
        let longest = self.secrets.iter().map(|secret| secret.text.expose_secret().len()).max();
        let reach = text.len().saturating_sub(longest.unwrap_or(0));
        (from.max(reach)..text.len())
            .filter(|start| text.is_char_boundary(*start))
            .find(|start| {
                let tail = &text[*start..];
                self.secrets.iter().any(|secret| {
                    let whole = secret.text.expose_secret();
                    tail.len() < whole.len() && whole.starts_with(tail)
                })
            })
            .unwrap_or(text.len())
    }

    /// The secret that matches most of the beginning of `text`, and how much that is.
    fn longest_at(&self, text: &str) -> (usize, &Secret) {
        self.secrets
            .iter()
            .map(|secret| (common_bytes(text, secret.text.expose_secret()), secret))
            .filter(|(length, secret)| *length >= secret.enough)
            .max_by_key(|(length, _)| *length)
            .expect("the finder found the start of one here")
    }
}

/// How many bytes of whole characters the two begin with in common.
fn common_bytes(a: &str, b: &str) -> usize {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    same.map(|(char, _)| char.len_utf8()).sum()
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.as_ref().map_or(0, |known| known.secrets.len());
        write!(f, "Masker({count} forms)")
    }
}

/// Masks a text that comes in pieces. What may be the beginning of a secret is held back, never
/// more than the longest secret.
#[derive(Debug)]
pub struct StreamMasker {
    masker: Masker,
    held: String,
}

impl StreamMasker {
    /// Takes the next piece and returns what is decided.
    pub fn push(&mut self, piece: &str) -> String {
        let Some(known) = &self.masker.0 else { return piece.to_owned() };
        self.held.push_str(piece);
        let mut out = String::with_capacity(self.held.len());
        let decided = known.scan(&self.held, Rest::Unknown, &mut out);
        self.held.drain(..decided);
        out
    }

    /// No more comes: returns what was held back.
    pub fn finish(self) -> String {
        self.masker.mask(&self.held).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masker() -> Masker {
        let secrets = [
            ("PIN", "4711"),
            ("LONG", "sk-abcdefghijklmnop"),
            ("TWIN", "sk-abcdeXYZ1234567"),
            ("TINY", "abc"),
            ("UML", "schlüsselwörter-sind-schön"),
            ("PEM", "line one\nline \"two\""),
            ("URL", "postgres://u:pw@host/database"),
        ];
        Masker::new(secrets.map(|(name, text)| (name.to_owned(), text.to_owned().into())))
    }

    const CASES: &[(&str, &str)] = &[
        ("", ""),
        ("nothing here, abc", "nothing here, abc"),
        ("4711", "[secret PIN]"),
        ("a471147112b", "a[secret PIN][secret PIN]2b"),
        ("471", "471"),
        ("x sk-abcdefghijklmnop y", "x [secret LONG] y"),
        ("cut sk-abcdefghij", "cut [secret LONG]"),
        ("cut sk-abcde", "cut [secret LONG]"),
        ("sk-abcd", "sk-abcd"),
        ("sk-abcdefZZ", "[secret LONG]ZZ"),
        ("sk-abcdeXYZ1 and sk-abcdeX.", "[secret TWIN] and [secret TWIN]."),
        ("sk-abcsk-abcdefghijklmnop", "sk-abc[secret LONG]"),
        ("schlüsselwört ä", "[secret UML] ä"),
        ("line one\nline \"two\"", "[secret PEM]"),
        ("  line one,\n  line \"two\"\n", "  [secret PEM],\n  [secret PEM]\n"),
        ("the postgres server and postgres://x", "the postgres server and postgres://x"),
        ("to postgres://u:pw@host/data", "to [secret URL]"),
        ("{\"a\":\"line one\\nline \\\"two\\\"\"}", "{\"a\":\"[secret PEM]\"}"),
    ];

    #[test]
    fn whole_secrets_and_the_beginnings_of_long_ones_are_replaced() {
        for (text, expected) in CASES {
            let masked = masker().mask(text).into_owned();
            // Two secrets share these eight characters; either name is true.
            let masked = masked.replace("cut [secret TWIN]", "cut [secret LONG]");
            assert_eq!(masked, *expected, "{text}");
        }
        assert_eq!(Masker::default().mask("4711"), "4711");
    }

    #[test]
    fn pieces_are_masked_like_the_whole() {
        for (text, _) in CASES {
            let whole = masker().mask(text).into_owned();
            let chars: Vec<String> = text.chars().map(String::from).collect();
            for size in 1..=chars.len().max(1) {
                let mut stream = masker().stream();
                let mut out: String =
                    chars.chunks(size).map(|piece| stream.push(&piece.concat())).collect();
                out.push_str(&stream.finish());
                assert_eq!(out, whole, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_stream_gives_out_what_no_secret_can_begin_with() {
        let mut stream = masker().stream();
        assert_eq!(stream.push("plain 47"), "plain ");
        assert_eq!(stream.push("12"), "4712");
        assert_eq!(stream.push("sk-abcdefg"), "");
        assert_eq!(stream.push("h!"), "[secret LONG]!");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn a_masker_does_not_show_what_it_knows() {
        assert_eq!(format!("{:?}", masker()), "Masker(9 forms)");
    }
}
