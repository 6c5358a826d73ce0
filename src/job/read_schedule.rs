//! `[schedule]`: when a job is due.

use super::parse::{Part, Reader, with_sources};
use super::problem::Problem;
use super::spec::{Catchup, Overlap, ScheduleSpec};
use super::tree::{Item, Node};
use crate::schedule::{CronError, CronExpr, Fold, Gap, Schedule, Zone, parse_at};

const FORMS: [&str; 3] = ["cron", "every", "at"];

/// The schedule and the zone it is in; `None` when there is none or it is refused.
pub(super) fn schedule(reader: &mut Reader<'_>) -> Option<(ScheduleSpec, Zone)> {
    let table = reader.node.get("schedule")?;
    if matches!(table.item, Item::Refused) {
        return None;
    }
    let zone = zone(reader, table);
    let form = form(reader, table)?;
    let place = table.get(form)?;
    let text = place.as_text()?;
    // An unknown zone hides no mistake in the text: that is judged in UTC and then given up.
    let judged_in = zone.clone().unwrap_or_else(Zone::utc);
    let (schedule, text) = match form {
        "cron" => (cron(reader, table, place, text, &judged_in)?, text.trim().to_owned()),
        "every" => {
            let schedule = Schedule::every(table.duration("every")?, None);
            (kept(reader, place, form, schedule)?, format!("every {}", text.trim()))
        }
        _ => {
            let at = kept(reader, place, form, parse_at(text, &judged_in))?;
            (Schedule::at(at), format!("at {}", text.trim()))
        }
    };
    for warning in schedule.warnings() {
        reader.warn(&format!("schedule.{form}"), warning);
    }
    let spec = ScheduleSpec {
        schedule,
        text,
        catchup: word(table, "catchup").unwrap_or(Catchup::Latest),
        catchup_window: table.duration("catchup_window"),
        overlap: word(table, "overlap").unwrap_or(Overlap::Skip),
    };
    Some((spec, zone?))
}

fn zone(reader: &mut Reader<'_>, table: &Node) -> Option<Zone> {
    let Some(place) = table.get("timezone") else { return Some(reader.around.timezone.clone()) };
    match reader.around.zones.get(place.as_text()?) {
        Ok(zone) => Some(zone),
        Err(error) => {
            let help = error.help();
            reader.refuse("schedule.timezone", with_sources(&error), help);
            None
        }
    }
}

/// Which one of the three is written.
fn form(reader: &mut Reader<'_>, table: &Node) -> Option<&'static str> {
    let mut written: Vec<_> = FORMS
        .into_iter()
        .filter_map(|form| Some((table.entry(form)?.key_span.start, form)))
        .collect();
    written.sort_unstable();
    match written.as_slice() {
        [(_, form)] => Some(form),
        [] => {
            if reader.part == Part::Job {
                let help = "write `cron`, `every` or `at`, or leave [schedule] out".to_owned();
                reader.refuse("schedule.cron", "[schedule] does not say when", help);
            }
            None
        }
        [(_, first), others @ ..] => {
            for (_, other) in others {
                let entry = table.entry(other).expect("it was found above");
                let problem = entry
                    .key_source
                    .error(
                        entry.key_span.clone(),
                        format!("schedule.{other}"),
                        format!("`{other}` beside `{first}`: a schedule has one of them"),
                    )
                    .with_help("two schedules are two jobs".to_owned());
                reader.problems.push(problem);
            }
            None
        }
    }
}

fn cron(
    reader: &mut Reader<'_>,
    table: &Node,
    place: &Node,
    text: &str,
    zone: &Zone,
) -> Option<Schedule> {
    match CronExpr::parse(text) {
        Ok(expr) => {
            let gap = word(table, "dst_gap").unwrap_or(Gap::Shift);
            Some(Schedule::cron(expr, zone.clone(), gap, Fold::Once))
        }
        Err(error) => {
            reader.problems.push(cron_problem(place, text, error));
            None
        }
    }
}

/// Points into the text, at the column that the expression complains about.
fn cron_problem(place: &Node, text: &str, error: CronError) -> Problem {
    let within = text.char_indices().nth(error.column.saturating_sub(1));
    let start = place.source.content_start(&place.span, text);
    let span = match (start, within) {
        (Some(start), Some((byte, _))) => {
            let word = text[byte..].find(char::is_whitespace).unwrap_or(text.len() - byte);
            start + byte..start + byte + word.max(1)
        }
        _ => place.span.clone(),
    };
    let message = match error.field {
        Some(field) if !error.message.contains(field) => format!("{field}: {}", error.message),
        _ => error.message,
    };
    place.source.error(span, "schedule.cron".to_owned(), message).with_help(error.help)
}

fn kept<T, E: std::error::Error>(
    reader: &mut Reader<'_>,
    place: &Node,
    form: &str,
    result: Result<T, E>,
) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let key = format!("schedule.{form}");
            reader.problems.push(place.error(&key, with_sources(&error)));
            None
        }
    }
}

fn word<T: std::str::FromStr>(table: &Node, key: &str) -> Option<T> {
    table.text(key)?.parse().ok()
}
