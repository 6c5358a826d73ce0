//! Where secrets come from, and how they are kept out of everything that is written.

use std::path::PathBuf;

/// A secret by name, never by value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// An environment variable.
    Env(String),
    /// A file; its content, trimmed at the end.
    File(PathBuf),
}

/// Replaces every known secret in what is about to be stored, logged or shown.
#[derive(Debug, Clone, Default)]
pub struct Masker {
    // helper: fill
}
