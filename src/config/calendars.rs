//! `[calendars]`: files of dates, one date or range a line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::load::read_text;
use crate::job::Problem;
use crate::job::source::Source;
use crate::job::tree::Node;
use crate::schedule::DateRange;

/// A date a line for more than ten years.
const RANGES_MAX: usize = 4096;

/// The calendars by their names. One with a problem has none of its dates, so that nothing is
/// planned by half of it.
pub(super) fn calendars(
    root: &Node,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, Vec<DateRange>> {
    let mut calendars = BTreeMap::new();
    for (name, path, place) in calendar_files(root) {
        match read_text(&path) {
            Ok(text) => {
                let dates = dates(&Source::new(&path, &text), problems);
                calendars.insert(name.to_owned(), dates.unwrap_or_default());
            }
            Err(problem) => {
                let key = format!("calendars.{name}");
                let message = format!("{}: {}", path.display(), problem.message);
                problems.push(place.error(&key, message));
                calendars.insert(name.to_owned(), Vec::new());
            }
        }
    }
    calendars
}

/// Where the calendars are, each with its name and the place that names it.
pub(super) fn calendar_files(root: &Node) -> Vec<(&str, PathBuf, &Node)> {
    let entries = root.get("calendars").and_then(Node::table).into_iter().flatten();
    entries
        .filter_map(|(name, entry)| {
            let path = entry.node.source.folder().join(entry.node.as_text()?);
            Some((name.as_str(), path, &entry.node))
        })
        .collect()
}

fn dates(source: &Source, problems: &mut Vec<Problem>) -> Option<Vec<DateRange>> {
    let mut dates = Vec::new();
    let mut is_sound = true;
    let mut start = 0;
    for line in source.text.split_inclusive('\n') {
        let written = line.split('#').next().unwrap_or("");
        let text = written.trim();
        let first = start + (written.len() - written.trim_start().len());
        start += line.len();
        if text.is_empty() {
            continue;
        }
        let refused = |message: String| source.error(first..first + text.len(), None, message);
        if dates.len() == RANGES_MAX {
            problems.push(refused(format!("a calendar has at most {RANGES_MAX} dates or ranges")));
            return None;
        }
        match text.parse::<DateRange>() {
            Ok(range) => dates.push(range),
            Err(error) => {
                problems.push(refused(error.to_string()));
                is_sound = false;
            }
        }
    }
    is_sound.then_some(dates)
}
