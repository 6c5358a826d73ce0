//! What to do about due instants: pure decisions with their reasons.
//!
//! [`decide`] is a function of a job's schedule and policies, of what the ledger already holds,
//! of whether the job runs, and of the time. No clock, no store, no file: `serve`, `next` and the
//! tests call the same code.

mod due;

pub use due::{JobView, MISFIRE_AFTER, Plan, PlannedSlot, catchup_window, decide};

words!(
    /// What was decided about a slot.
    SlotDecision {
        /// A run was started for it.
        Started = "started",
        /// It waits for the job's current run.
        Buffered = "buffered",
        /// It came in time and was passed over.
        Skipped = "skipped",
        /// It was not seen in time.
        Missed = "missed",
        /// It waits for something outside.
        Held = "held",
    }
);

words!(
    /// Why.
    Reason {
        /// The job still ran.
        Overlap = "overlap",
        /// The instant is excluded.
        Excluded = "excluded",
        /// The local time does not exist that day.
        DstGap = "dst_gap",
        /// The gate said no.
        Gate = "gate",
        /// The job was paused.
        Paused = "paused",
        /// The job was disabled.
        Disabled = "disabled",
        /// The job's file could not be used.
        Invalid = "invalid",
        /// A budget was used up.
        Budget = "budget",
        /// Seen after its catch-up window.
        TooLate = "too_late",
        /// The daemon was not running.
        Down = "down",
        /// The clock was set forward over it.
        ClockStep = "clock_step",
        /// No model could be reached.
        ModelUnreachable = "model_unreachable",
        /// The job it waits for did not do its part.
        Upstream = "upstream",
        /// A newer slot of the job stands for it.
        Superseded = "superseded",
        /// Its run was interrupted twice.
        InterruptedTwice = "interrupted_twice",
        /// The job pauses after failures.
        Backoff = "backoff",
    }
);
