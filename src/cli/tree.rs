//! `ls --tree`: which job comes after which.

use std::collections::BTreeMap;

use super::ls::when_words;
use crate::config::JobSet;
use crate::job::{JobId, JobSpec};

/// Every job once under each of those that it comes after; the others at the top.
pub(super) fn tree(set: &JobSet) -> String {
    let mut below: BTreeMap<&JobId, Vec<&JobSpec>> = BTreeMap::new();
    for spec in set.jobs.values() {
        for upstream in spec.after.iter().flat_map(|after| &after.jobs) {
            below.entry(upstream).or_default().push(spec);
        }
    }
    let is_top = |spec: &&JobSpec| {
        let mut upstream = spec.after.iter().flat_map(|after| &after.jobs);
        // What comes after a broken file alone would be nowhere.
        !upstream.any(|job| set.jobs.contains_key(job))
    };
    let mut lines = Vec::new();
    for spec in set.jobs.values().filter(is_top) {
        lines.push((spec.id.to_string(), when_words(spec)));
        branches(&spec.id, "", &below, &mut lines);
    }
    let broken = set.invalid.keys().map(|name| (name.clone(), "invalid".to_owned()));
    lines.extend(broken);
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let line = |(name, words): (String, String)| format!("{name:<width$}  {words}");
    lines.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn branches(
    of: &JobId,
    indent: &str,
    below: &BTreeMap<&JobId, Vec<&JobSpec>>,
    lines: &mut Vec<(String, String)>,
) {
    let Some(specs) = below.get(of) else { return };
    for (spec, left) in specs.iter().zip((0..specs.len()).rev()) {
        let (branch, more) = if left == 0 { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push((format!("{indent}{branch}{}", spec.id), when_words(spec)));
        branches(&spec.id, &format!("{indent}{more}"), below, lines);
    }
}
