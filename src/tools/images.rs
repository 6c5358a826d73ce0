//! Pictures in the result of a tool, reduced to what there is to say of them.
//!
//! A result is text for a model, a transcript and those who watch. A picture in base64 is none of
//! that: it fills the window and the disk with letters that nobody reads.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Fewer letters are no picture, whatever they begin with.
const LETTERS_MIN: usize = 64;

/// `data:image/png;base64,…`, and what begins like a picture and goes on long enough.
static PICTURE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(
        r"(?x)
        data:(?P<kind>(?:image|audio|video)/[a-zA-Z0-9.+-]{{1,64}})(?:;[a-zA-Z0-9=._-]{{1,64}})*;base64,
        (?P<letters>[A-Za-z0-9+/_=-]*)
        | (?P<bare>(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR)[A-Za-z0-9+/]{{{LETTERS_MIN},}}={{0,2}})"
    ))
    .expect("the pattern is sound")
});

/// `text` with each picture in it replaced by its kind and its size.
pub fn without_images(text: &str) -> Cow<'_, str> {
    PICTURE.replace_all(text, |found: &Captures<'_>| {
        let letters = found.name("letters").or(found.name("bare")).map_or("", |it| it.as_str());
        let kind = found.name("kind").map_or_else(|| kind_of(letters), |it| it.as_str());
        format!("[{kind}, {} bytes, left out]", bytes(letters))
    })
}

fn kind_of(letters: &str) -> &'static str {
    match letters.as_bytes().first() {
        Some(b'i') => "image/png",
        Some(b'/') => "image/jpeg",
        Some(b'R') => "image/gif",
        _ => "image/webp",
    }
}

/// What base64 stands for: four letters are three bytes.
fn bytes(letters: &str) -> usize {
    letters.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    // semantics §7: images reduced to metadata in logs and events; §9: stripped of image payloads.
    #[test]
    fn pictures_are_told_by_kind_and_size() {
        let letters = "A".repeat(400);
        let table = [
            ("no picture".to_owned(), "no picture".to_owned()),
            (
                format!("<img src=\"data:image/png;base64,{letters}\">"),
                "<img src=\"[image/png, 300 bytes, left out]\">".to_owned(),
            ),
            ("data:image/gif;base64,R0lG".into(), "[image/gif, 3 bytes, left out]".into()),
            (
                "data:image/svg+xml;charset=utf-8;base64,PHN2Zz4=".into(),
                "[image/svg+xml, 5 bytes, left out]".into(),
            ),
            (
                format!("{{\"type\":\"image\",\"data\":\"iVBORw0KGgo{letters}==\",\"n\":1}}"),
                "{\"type\":\"image\",\"data\":\"[image/png, 308 bytes, left out]\",\"n\":1}".into(),
            ),
            (format!("a /9j/{letters} b"), "a [image/jpeg, 303 bytes, left out] b".into()),
            // Not long enough, no picture, not base64.
            ("iVBORw0KGgoAAAA".into(), "iVBORw0KGgoAAAA".into()),
            (letters.clone(), letters.clone()),
            ("data:image/png,raw".into(), "data:image/png,raw".into()),
            ("data:text/plain;base64,aGk=".into(), "data:text/plain;base64,aGk=".into()),
        ];
        for (text, expected) in table {
            assert_eq!(without_images(&text), expected, "{text}");
        }
    }
}
