//! Where a skill comes from, as a person writes it.

use std::path::{Path, PathBuf};

/// Where a skill comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A folder on this machine.
    Folder(PathBuf),
    /// A file that holds one: `.tar`, `.tar.gz` or `.tgz`.
    Archive(PathBuf),
    /// A git repository.
    Git(String),
}

/// What an archive is called.
const ARCHIVES: &[&str] = &[".tar", ".tar.gz", ".tgz"];

impl Source {
    /// Reads what a person wrote; paths are relative to `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let is_address = text.contains("://") || is_of_ssh(text);
        if let Some(address) = text.strip_prefix("git+") {
            return Ok(Self::Git(address.to_owned()));
        }
        if text.starts_with('-') || text.trim().is_empty() {
            return Err(format!("`{text}` is no place where a skill could be"));
        }
        if is_address {
            return Ok(Self::Git(text.to_owned()));
        }
        let path = folder.join(text);
        if path.is_dir() {
            let is_bare = path.join("HEAD").is_file() && path.join("objects").is_dir();
            let path = path.canonicalize().map_err(|error| format!("{text}: {error}"))?;
            return Ok(if is_bare {
                Self::Git(path.display().to_string())
            } else {
                Self::Folder(path)
            });
        }
        if !path.is_file() {
            return Err(format!("there is no {}", path.display()));
        }
        if ARCHIVES.iter().any(|end| text.to_ascii_lowercase().ends_with(end)) {
            let path = path.canonicalize().map_err(|error| format!("{text}: {error}"))?;
            return Ok(Self::Archive(path));
        }
        Err(format!("`{text}` is neither a folder nor an archive ({})", ARCHIVES.join(", ")))
    }

    /// What [`Source::parse`] reads again.
    pub fn in_words(&self) -> String {
        match self {
            Self::Folder(path) | Self::Archive(path) => path.display().to_string(),
            Self::Git(address) => format!("git+{address}"),
        }
    }
}

/// `user@host:path`.
fn is_of_ssh(text: &str) -> bool {
    let Some((before, after)) = text.split_once(':') else { return false };
    before.contains('@') && !before.contains('/') && !after.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_what_is_there_or_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("bare/objects")).unwrap();
        std::fs::write(root.join("bare/HEAD"), "ref").unwrap();
        std::fs::create_dir(root.join("plain")).unwrap();
        for name in ["a.tgz", "b.tar", "c.txt"] {
            std::fs::write(root.join(name), "x").unwrap();
        }
        let parse = |text: &str| Source::parse(text, &root);
        assert_eq!(parse("plain"), Ok(Source::Folder(root.join("plain"))));
        assert_eq!(parse("a.tgz"), Ok(Source::Archive(root.join("a.tgz"))));
        assert_eq!(parse("b.tar"), Ok(Source::Archive(root.join("b.tar"))));
        for git in ["bare", "https://example.com/x.git", "git@example.com:x/y", "git+/srv/x"] {
            assert!(matches!(parse(git), Ok(Source::Git(_))), "{git}");
        }
        for wrong in ["c.txt", "none", "--upload-pack=x", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for text in ["plain", "a.tgz", "bare", "https://example.com/x.git"] {
            let source = parse(text).unwrap();
            assert_eq!(parse(&source.in_words()), Ok(source));
        }
    }
}
