//! The conversation a run belongs to, on disk.
//!
//! One file of JSON Lines per session, append-only: a header, then entries that name their parent.
//! Readers tolerate a half-written last line.

mod transcript;

pub use transcript::{Entry, Transcript, TranscriptError, read_entries, transcript_path};
