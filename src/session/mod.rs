//! The conversation a run belongs to, on disk.
//!
//! One file of JSON Lines per session, append-only: a header, then entries that name their parent.
//! Readers tolerate a half-written last line, and a later run goes on from what is there: `history`
//! makes a sound conversation of it. One writer at a time: a lock beside the file guards
//! it. Whether the work of a session still goes on is judged in `liveness`, which only decides.

mod history;
mod inbox;
mod liveness;
mod lock;
mod queue;
mod trace;
mod transcript;
mod word;

pub use history::{Compaction, Remembered};
pub use inbox::{Conversation, Inbox, Letter, Told};
pub use liveness::{
    Act, Beat, Current, Doing, Gate, Generation, Liveness, Recovering, Reports, Snapshot, Verdict,
    Work, classify, pass,
};
pub use lock::{LockError, LockOwner, OLD_AFTER, Released, SessionLock, Taken, sweep_locks};
pub use queue::{Busy, Fate, Overflow, fate};
pub use trace::{Trace, trace_path};
pub(crate) use transcript::masked;
pub use transcript::{
    Clearings, Entry, Transcript, TranscriptError, read_entries, transcript_path,
};
pub use word::Word;
