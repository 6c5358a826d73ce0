//! What to do about due instants: pure decisions with their reasons.
//!
//! The [`Planner`] holds what is known of every job and is told what happens: time passes, a run
//! ends, somebody asks. It answers with [`Act`]s. [`decide`] is the heart of it, a function of a
//! job's schedule and policies, of what the ledger holds, of what lives, and of the time;
//! [`follow`] says what comes after a run. No clock, no store, no file: `serve`, `simulate`,
//! `backfill` and the tests run the same code under different clocks.

mod act;
mod due;
mod join;
mod planner;
mod reach;
mod retry;
mod rules;
mod simulate;
mod spend;
mod track;

pub use act::{Act, Claim, LiveId, PauseChange, Record, Settled, Start, Then, Turned};
pub use due::{
    BUFFERED_MAX, JobView, Living, MISFIRE_AFTER, Plan, PlannedSlot, SlotStart, catchup_window,
    decide,
};
pub use join::{How, REMEMBERED, SlotEnd};
pub use planner::{Ahead, Decided, Planner};
pub use reach::{ANSWERED_WITHIN, Server};
pub use retry::{Chain, Follow, RunEnd, follow, is_provider_side};
pub use rules::{Account, Availability, Memory, Pause, PauseCause, Rules};
pub use simulate::{Behaviour, GLOBAL, Simulated, SimulatedLanes, Simulation, What, simulate};
pub use spend::{Cap, Caps, Spent, Standing, UsedUp, day_after, day_in};
pub use track::{ByHand, WaitingSlot, Waits};

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
