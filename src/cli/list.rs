//! What the verbs that list the history have in common: which rows, how many, how shown.

use jiff::Timestamp;

use super::format::Format;
use super::output::{Failed, local};
use crate::schedule::Zone;

/// Switches of a verb that lists.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Of this job only
    #[arg(long)]
    pub(super) job: Option<String>,
    /// Not older than this (`24h`, `7days`)
    #[arg(long, value_name = "LENGTH")]
    since: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    pub(super) limit: u32,
    /// How the rows are printed
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// The same as --format json
    #[arg(long)]
    json: bool,
}

impl List {
    /// The instant that `--since` names, so long before `end`.
    pub(super) fn since(&self, end: Timestamp) -> Result<Option<Timestamp>, Failed> {
        let Some(length) = &self.since else { return Ok(None) };
        let parsed = humantime::parse_duration(length).map_err(|error| {
            Failed::usage(format!("--since `{length}`: {error}; write `24h` or `7days`"))
        })?;
        let too_long = |_| Failed::usage(format!("--since `{length}` is too long"));
        end.checked_sub(parsed).map(Some).map_err(too_long)
    }

    /// How it is printed.
    pub(super) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// A stored instant, in a zone.
pub(super) fn shown(text: &str, zone: &Zone) -> String {
    text.parse().map_or_else(|_| text.to_owned(), |at| local(at, zone.rules()))
}
