//! The files of a workspace that every turn in it begins with.
//!
//! Only these are opened, by their names, at the root: nothing is listed and nothing searched. What
//! cannot be read is no reason not to run: it is left out, and the report says why.

use serde::{Deserialize, Serialize};

use super::part::{Part, PartKind};
use crate::tools::Workspace;

/// In the order in which they are told (semantics §7).
pub const BOOTSTRAP_FILES: &[&str] =
    &["AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "MEMORY.md"];

/// As much of one file enters a prompt.
const FILE_CHARS_MAX: usize = 20_000;

/// As much of all of them together.
const ALL_CHARS_MAX: usize = 60_000;

/// As much of a file is looked at: far more than enters a prompt.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Kept free for each file that is still to come, so that it can be said that it was cut.
const CUT_WORDS_CHARS: usize = 100;

/// A file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootstrapFile {
    /// Its name.
    pub name: String,
    /// Its text; empty if it cannot be used.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Why it cannot be used, or not all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The files that are there.
pub fn read_bootstrap(workspace: &Workspace) -> Vec<BootstrapFile> {
    BOOTSTRAP_FILES.iter().filter_map(|name| read(workspace, name)).collect()
}

fn read(workspace: &Workspace, name: &str) -> Option<BootstrapFile> {
    let (text, note) = match workspace.read_beginning(name, FILE_BYTES_MAX).transpose()? {
        Err(why) => (String::new(), Some(format!("left out: {why}"))),
        Ok((bytes, size)) => match text_of(bytes, size) {
            None => (String::new(), Some("left out: it is not UTF-8 text".to_owned())),
            Some(text) if size > FILE_BYTES_MAX => {
                (text, Some(format!("only its first {FILE_BYTES_MAX} bytes of {size} were read")))
            }
            Some(text) => (text, None),
        },
    };
    Some(BootstrapFile { name: name.to_owned(), text, note })
}

fn text_of(mut bytes: Vec<u8>, size: u64) -> Option<String> {
    if size > bytes.len() as u64 {
        // A character may have been cut in two.
        let whole = match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => bytes.len(),
        };
        bytes.truncate(whole);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// A part for each file, within the limits.
pub(super) fn parts(files: &[BootstrapFile]) -> Vec<Part> {
    let told = |file: &&BootstrapFile| !file.text.trim().is_empty();
    let mut still_to_come = files.iter().filter(told).count();
    let mut room = ALL_CHARS_MAX;
    let mut parts = Vec::new();
    for file in files {
        let mut part = Part::new(PartKind::Bootstrap, "").named(&file.name);
        part.note.clone_from(&file.note);
        if told(&file) {
            still_to_come -= 1;
            let free = room.saturating_sub(CUT_WORDS_CHARS * still_to_come);
            let (text, cut) = within(file.text.trim_end(), free.min(FILE_CHARS_MAX), &file.name);
            room = room.saturating_sub(text.chars().count());
            part.text = format!("\n\n## {}\n\n{text}", file.name);
            part.cut = cut;
            if cut > 0 && part.note.is_none() {
                part.note = Some(if free < FILE_CHARS_MAX {
                    format!("all files together have at most {ALL_CHARS_MAX} characters")
                } else {
                    format!("a file has at most {FILE_CHARS_MAX} characters")
                });
            }
        }
        parts.push(part);
    }
    if let Some(first) = parts.iter_mut().find(|part| !part.text.is_empty()) {
        first.text.insert_str(0, "\n\n# Files of the workspace");
    }
    parts
}

/// `text` in at most `chars_max` characters, with the cut said between its head and its tail, and how
/// many were cut.
fn within(text: &str, chars_max: usize, name: &str) -> (String, usize) {
    let length = text.chars().count();
    if length <= chars_max {
        return (text.to_owned(), 0);
    }
    // The words are as long as those for the whole length, or shorter.
    let words = |cut: usize| format!("\n[… {cut} characters of {name} cut …]\n");
    let kept = chars_max.saturating_sub(words(length).chars().count());
    // What such a file begins with matters more than what has been added to it.
    let (head, tail) = (kept - kept / 4, kept / 4);
    let cut = length - head - tail;
    let text = text
        .chars()
        .take(head)
        .chain(words(cut).chars())
        .chain(text.chars().skip(length - tail))
        .collect();
    (text, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: String) -> BootstrapFile {
        BootstrapFile { name: name.to_owned(), text, note: None }
    }

    /// A part's text without its heading.
    fn body(part: &Part) -> &str {
        part.text.rsplit_once(".md\n\n").map_or("", |(_, body)| body)
    }

    // semantics §7: 20 000 characters each, a visible cut marker beyond.
    #[test]
    fn a_long_file_keeps_head_and_tail_and_says_what_is_missing() {
        let text = format!("{}{}", "é".repeat(19_000), "z".repeat(5_000));
        let parts = parts(&[file("AGENTS.md", text), file("SOUL.md", "x".repeat(20_000))]);
        let text = body(&parts[0]);
        assert_eq!(text.chars().count(), 19_999);
        assert!(text.starts_with('é') && text.ends_with('z'), "{text}");
        assert!(text.contains("\n[… 4041 characters of AGENTS.md cut …]\n"), "{}", parts[0].cut);
        assert_eq!(parts[0].cut, 4041);
        assert_eq!((parts[1].cut, body(&parts[1]).len()), (0, 20_000));
    }

    // semantics §7: 60 000 characters together.
    #[test]
    fn all_files_together_have_a_limit_and_each_that_is_cut_says_so() {
        let all: Vec<_> =
            BOOTSTRAP_FILES.iter().map(|name| file(name, "x".repeat(25_000))).collect();
        let parts = parts(&all);
        let lengths: Vec<_> = parts.iter().map(|part| body(part).chars().count()).collect();
        assert!(lengths.iter().sum::<usize>() <= ALL_CHARS_MAX, "{lengths:?}");
        assert_eq!(lengths[..2], [19_999, 19_999]);
        for part in &parts {
            assert!(part.text.contains(" cut …]"), "{}", part.text);
            assert!(part.note.is_some());
        }
        let words = |at: usize| parts[at].note.clone().unwrap();
        assert!(words(0).starts_with("a file has") && words(5).starts_with("all files"));
    }

    #[test]
    fn a_character_at_the_end_of_what_is_read_may_be_cut_in_two() {
        let whole = "aé".as_bytes().to_vec();
        assert_eq!(text_of(whole[..2].to_vec(), 3).as_deref(), Some("a"));
        assert_eq!(text_of(whole[..2].to_vec(), 2), None);
        assert_eq!(text_of(vec![b'a', 0xff, b'b'], 99), None);
        assert_eq!(text_of(vec![b'a', 0], 2), None);
    }
}
