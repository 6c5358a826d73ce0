//! `[schedule]`: when a job is due.

use std::sync::Arc;

use jiff::Timestamp;

use super::keys::did_you_mean;
use super::parse::{Part, Reader, with_sources};
use super::problem::Problem;
use super::spec::{Catchup, Overlap, ScheduleSpec};
use super::tree::{Item, Node};
use crate::schedule::{
    AtError, CRON_TEXTS_MAX, CronError, CronExpr, DateRange, Fold, Gap, Schedule, Zone, is_in_gap,
    parse_at, parse_end, parse_start,
};

const FORMS: [&str; 3] = ["cron", "every", "at"];

/// The schedule; `None` when there is none or it is refused.
pub(super) fn schedule(reader: &mut Reader<'_>) -> Option<ScheduleSpec> {
    let table = reader.node.get("schedule")?;
    if matches!(table.item, Item::Refused) {
        return None;
    }
    let zone = zone(reader, table);
    // An unknown zone hides no mistake in the text: that is judged in UTC and then given up.
    let judged_in = zone.clone().unwrap_or_else(Zone::utc);
    let bounds = bounds(reader, table, &judged_in);
    let exclude = exclude(reader, table);
    let form = form(reader, table)?;
    let start_at = bounds.and_then(|bounds| bounds.0);
    let (schedule, text) = rule(reader, table, form, &judged_in, start_at)?;
    let schedule = schedule.excluding(judged_in, exclude?);
    let schedule = bounded(reader, table, form, schedule, bounds?)?;
    let schedule = jittered(reader, table, schedule)?;
    Some(ScheduleSpec {
        schedule,
        zone: zone?,
        text,
        catchup: word(table, "catchup").unwrap_or(Catchup::Latest),
        catchup_window: table.duration("catchup_window"),
        overlap: word(table, "overlap").unwrap_or(Overlap::Skip),
    })
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

/// When it is due, and the text of that.
fn rule(
    reader: &mut Reader<'_>,
    table: &Node,
    form: &str,
    zone: &Zone,
    start_at: Option<Timestamp>,
) -> Option<(Schedule, String)> {
    let place = table.get(form)?;
    if form == "cron" {
        return cron(reader, table, place, zone);
    }
    let text = place.as_text()?;
    without_effect(reader, table, form);
    if form == "every" {
        let schedule = Schedule::every(table.duration("every")?, start_at);
        return Some((kept(reader, place, form, schedule)?, format!("every {}", text.trim())));
    }
    let at = kept(reader, place, form, parse_at(text, zone))?;
    if is_in_gap(text, zone) {
        let due = at.to_zoned_datetime(zone.rules().clone());
        let due = due.strftime("%Y-%m-%dT%H:%M:%S%:z");
        let zone = zone.name();
        let message = format!(
            "`{text}` does not exist in {zone}: the clock jumps over it; it is due at {due}"
        );
        reader.problems.push(place.error("schedule.at", message).as_warning());
    }
    Some((Schedule::at(at), format!("at {}", text.trim())))
}

/// What is said about local times beside a form that follows none. A default may say it for all.
fn without_effect(reader: &mut Reader<'_>, table: &Node, form: &str) {
    let Some(own) = table.entry(form) else { return };
    for key in ["dst_gap", "dst_overlap"] {
        let beside = table.entry(key).filter(|it| Arc::ptr_eq(&it.key_source, &own.key_source));
        if beside.is_some() {
            let message =
                format!("`{key}` has no effect beside `{form}`: only `cron` names local times");
            reader.warn(&format!("schedule.{key}"), message);
        }
    }
}

/// One text or several. Each is checked, whatever is wrong with the others.
fn cron(
    reader: &mut Reader<'_>,
    table: &Node,
    place: &Node,
    zone: &Zone,
) -> Option<(Schedule, String)> {
    let places = match &place.item {
        Item::List(list) => list.as_slice(),
        _ => std::slice::from_ref(place),
    };
    if places.is_empty() || places.len() > CRON_TEXTS_MAX {
        let message =
            format!("a list of cron texts has 1 to {CRON_TEXTS_MAX}, not {}", places.len());
        reader.problems.push(place.error("schedule.cron", message));
        return None;
    }
    let read = places.iter().map(|place| cron_text(reader, place)).collect::<Vec<_>>();
    let exprs = read.into_iter().collect::<Option<Vec<_>>>()?;
    let texts: Vec<_> = exprs.iter().map(CronExpr::as_str).collect();
    for (n, place) in places.iter().enumerate().filter(|(n, _)| texts[..*n].contains(&texts[*n])) {
        let message = format!("`{}` is in the list twice", texts[n]);
        reader.problems.push(place.error("schedule.cron", message).as_warning());
    }
    let text = texts.join(" | ");
    let gap = word(table, "dst_gap").unwrap_or(Gap::Shift);
    let fold = word(table, "dst_overlap").unwrap_or(Fold::Once);
    Some((Schedule::crons(exprs, zone.clone(), gap, fold), text))
}

fn cron_text(reader: &mut Reader<'_>, place: &Node) -> Option<CronExpr> {
    let text = place.as_text()?;
    match CronExpr::parse(text) {
        Ok(expr) => {
            let warnings = expr.warnings().iter();
            let warnings = warnings.map(|it| place.error("schedule.cron", it).as_warning());
            reader.problems.extend(warnings);
            Some(expr)
        }
        Err(error) => {
            reader.problems.push(cron_problem(place, text, error));
            None
        }
    }
}

type Bounds = (Option<Timestamp>, Option<Timestamp>);

/// `start_at` and `end_at`; `None` if one of them is refused.
fn bounds(reader: &mut Reader<'_>, table: &Node, zone: &Zone) -> Option<Bounds> {
    let start = bound(reader, table, "start_at", |text| parse_start(text, zone));
    let end = bound(reader, table, "end_at", |text| parse_end(text, zone));
    let (start, end) = (start.ok()?, end.ok()?);
    if start.zip(end).is_some_and(|(start, end)| end < start) {
        reader.refuse("schedule.end_at", "`end_at` lies before `start_at`", None);
        return None;
    }
    Some((start, end))
}

/// What has been reported already.
struct Reported;

fn bound(
    reader: &mut Reader<'_>,
    table: &Node,
    key: &str,
    parse: impl FnOnce(&str) -> Result<Timestamp, AtError>,
) -> Result<Option<Timestamp>, Reported> {
    let Some(place) = table.get(key) else { return Ok(None) };
    let text = place.as_text().ok_or(Reported)?;
    parse(text).map(Some).map_err(|error| {
        let message = format!("`{key}`: {error}");
        reader.problems.push(place.error(&format!("schedule.{key}"), message));
        Reported
    })
}

/// The dates of `exclude`, calendars resolved; `None` if one of its items is refused.
fn exclude(reader: &mut Reader<'_>, table: &Node) -> Option<Vec<DateRange>> {
    let mut dates = Vec::new();
    let Some(list) = table.get("exclude") else { return Some(dates) };
    let Item::List(items) = &list.item else { return None };
    let mut refused = false;
    for item in items {
        let text = item.as_text()?;
        let looks_like_date = text.trim_start().starts_with(|first: char| first.is_ascii_digit());
        match reader.around.calendars.get(text) {
            Some(calendar) => dates.extend(calendar),
            None if looks_like_date => match kept(reader, item, "exclude", text.parse()) {
                Some(range) => dates.push(range),
                None => refused = true,
            },
            None => {
                reader.problems.push(unknown_calendar(reader, item, text));
                refused = true;
            }
        }
    }
    (!refused).then_some(dates)
}

fn unknown_calendar(reader: &Reader<'_>, item: &Node, text: &str) -> Problem {
    let known = reader.around.calendars.keys().map(String::as_str);
    let help = did_you_mean(text, known).unwrap_or_else(|| {
        "write a date, a range such as 2026-12-24..2027-01-02, or a name of [calendars]".to_owned()
    });
    item.error("schedule.exclude", format!("there is no calendar `{text}`")).with_help(help)
}

/// Cuts the schedule to its bounds. Bounds and exclusions that leave nothing are refused.
fn bounded(
    reader: &mut Reader<'_>,
    table: &Node,
    form: &str,
    schedule: Schedule,
    (start, end): Bounds,
) -> Option<Schedule> {
    let schedule = match start {
        Some(start) => schedule.starting(start),
        None => schedule,
    };
    let schedule = match end {
        Some(end) => schedule.ending(end),
        None => schedule,
    };
    if schedule.is_ever_due() {
        return Some(schedule);
    }
    let written =
        ["exclude", "end_at", "start_at"].into_iter().filter(|key| table.get(key).is_some());
    let written: Vec<_> = written.collect();
    let key = written.first().copied().unwrap_or(form);
    let message =
        format!("`{form}` can never fire: nothing of it is left by {}", written.join(", "));
    reader.refuse(&format!("schedule.{key}"), message, None);
    None
}

fn jittered(reader: &mut Reader<'_>, table: &Node, schedule: Schedule) -> Option<Schedule> {
    let Some(max) = table.duration("jitter") else { return Some(schedule) };
    let place = table.get("jitter")?;
    kept(reader, place, "jitter", schedule.with_jitter(max, reader.seed))
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
    key: &str,
    result: Result<T, E>,
) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let key = format!("schedule.{key}");
            reader.problems.push(place.error(&key, with_sources(&error)));
            None
        }
    }
}

fn word<T: std::str::FromStr>(table: &Node, key: &str) -> Option<T> {
    table.text(key)?.parse().ok()
}
