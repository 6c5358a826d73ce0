//! One due instant, and what a clock change did to it.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;

/// An instant at which a schedule is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The instant.
    pub at: Timestamp,
    /// Why it is not simply the local time that was written.
    pub note: Option<DstNote>,
}

impl Due {
    pub(super) const fn plain(at: Timestamp) -> Self {
        Self { at, note: None }
    }
}

/// What a clock change did to a due instant. Shown to people in this wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DstNote {
    /// The local time does not exist on this day; this is the first instant after the gap.
    ShiftedFromGap {
        /// The (first) local time that was jumped over.
        local: DateTime,
    },
    /// The local time comes twice on this day; this is its first pass.
    FirstOfFold,
    /// The local time comes twice on this day; this is its second pass.
    SecondOfFold,
}

impl fmt::Display for DstNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShiftedFromGap { local } => {
                let (time, date) = (local.time(), local.date());
                write!(f, "{time} does not exist on {date}; first instant after the gap")
            }
            Self::FirstOfFold => f.write_str("comes twice on this day; first pass"),
            Self::SecondOfFold => f.write_str("comes twice on this day; second pass"),
        }
    }
}
