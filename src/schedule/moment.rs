//! Named instants and what becomes of them.

use jiff::Timestamp;

words! {
    /// What becomes of an instant that a schedule names.
    Standing {
        /// It may start something.
        Due = "due",
        /// Its date is excluded.
        Excluded = "excluded",
        /// A clock change jumps over the local time that was written; this is the first instant
        /// after the gap.
        DstGap = "dst_gap",
    }
}

/// An instant that a schedule names: due, or left out for a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The instant.
    pub at: Timestamp,
    /// What becomes of it.
    pub standing: Standing,
}

/// Moments of one standing with no other between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The earliest one.
    pub first: Timestamp,
    /// The latest one.
    pub last: Timestamp,
    /// How many there are.
    pub slots: u64,
    /// What becomes of them.
    pub standing: Standing,
}

/// Adds to the last span if it has the same standing, else begins another.
pub(super) fn append(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.standing == span.standing => {
            last.last = span.last;
            last.slots += span.slots;
        }
        _ => spans.push(span),
    }
}
