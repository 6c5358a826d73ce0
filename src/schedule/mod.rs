//! Expression and zone → next and previous due instant.
//!
//! Pure arithmetic: no clock is read here, nothing waits, and the only files are those of the
//! zone database ([`Zones`]), which is opened once and handed in. Next, previous and the number
//! of due instants in between are found directly; nothing is enumerated that can be computed.
//!
//! The rules where clocks change: a fixed local time in a gap is due once, at the first instant
//! after it ([`Gap`]); in a fold at its first pass ([`Fold`]); an expression whose minute or hour
//! starts with `*` follows elapsed time. They live in `local.rs`; the cron dialect in `expr.rs`,
//! `field.rs`, `day_rule.rs` and `unit.rs`; the `cron` crate behind `calendar.rs` never hears of a
//! zone.
//!
//! Not every instant that a rule names is due: a [`Moment`] says what becomes of it ([`Standing`]),
//! and a [`Span`] says it of many at once.

mod at;
mod calendar;
mod dates;
mod day_rule;
mod due;
mod every;
mod exclusions;
mod expr;
mod field;
mod jitter;
mod local;
mod moment;
mod rule;
mod stretch;
mod times;
mod union;
mod unit;
mod zone;
mod zones;

pub use at::{AtError, is_in_gap, parse_at, parse_end, parse_start};
pub use dates::{DateRange, DateRangeError};
pub use due::{DstNote, Due};
pub use every::EveryError;
pub use expr::{CronError, CronExpr};
pub use jitter::JitterError;
pub use local::{Fold, Gap};
pub use moment::{Moment, Span, Standing};
pub use rule::{CRON_TEXTS_MAX, Schedule};
pub use zone::{Zone, ZoneError};
pub use zones::{ZoneChoice, Zones};
