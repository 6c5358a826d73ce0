//! `[matrix]`: one job per combination of its values.

use std::collections::BTreeMap;

use super::id::JobId;
use super::problem::Problem;
use super::tree::{Item, Node, Table};

/// More jobs than that in one file are a mistake.
const COMBINATIONS_MAX: usize = 1000;

/// One combination: the value of each key.
pub(super) type Combination = BTreeMap<String, String>;

/// The jobs of a file by their ids; without a matrix it is one, of the file's own name. What is
/// wrong with the matrix goes to `problems`, and nothing comes back.
pub(super) fn combinations(
    stem: &JobId,
    node: &Node,
    problems: &mut Vec<Problem>,
) -> Vec<(JobId, Combination)> {
    let Some(table) = node.get("matrix").and_then(Node::table) else {
        return vec![(stem.clone(), Combination::new())];
    };
    let known = problems.len();
    let lists = lists(table, problems);
    let count = lists.iter().map(|(_, values)| values.len()).product::<usize>();
    if lists.is_empty() || count > COMBINATIONS_MAX {
        let place = node.get("matrix").map_or(node, |node| node);
        let message = match count {
            _ if lists.is_empty() => "[matrix] names no values".to_owned(),
            count => format!("[matrix] means {count} jobs, at most {COMBINATIONS_MAX} are allowed"),
        };
        problems.push(place.error("matrix", message));
    }
    if problems.len() > known {
        return Vec::new();
    }
    let mut all = vec![Combination::new()];
    for (key, values) in &lists {
        let with = |value: &&str, before: &Combination| {
            let mut more = before.clone();
            more.insert((*key).to_owned(), (*value).to_owned());
            more
        };
        all = all.iter().flat_map(|it| values.iter().map(move |value| with(value, it))).collect();
    }
    let named = |it: Combination| Some((stem.combined(it.values().map(String::as_str))?, it));
    all.into_iter().filter_map(named).collect()
}

/// The keys of a matrix that cannot be used, for whoever looks at the rest of the file.
pub(super) fn sample(node: &Node) -> Combination {
    let keys = node.get("matrix").and_then(Node::table).into_iter().flat_map(|it| it.keys());
    keys.map(|key| (key.clone(), String::new())).collect()
}

/// The values of each key, each good for a part of an id.
fn lists<'a>(table: &'a Table, problems: &mut Vec<Problem>) -> Vec<(&'a str, Vec<&'a str>)> {
    let stem: JobId = "x".parse().expect("this is an id");
    let mut lists = Vec::new();
    for (key, entry) in table {
        let path = format!("matrix.{key}");
        let Item::List(items) = &entry.node.item else { continue };
        let mut values = Vec::new();
        for node in items {
            let Some(value) = node.as_text() else { continue };
            if value.contains('.') || stem.combined([value]).is_none() {
                let message = format!(
                    "`{value}` cannot be part of a job's id: a-z, 0-9, `_` and `-`, beginning with \
                     a letter or digit"
                );
                problems.push(node.error(&path, message));
            } else if values.contains(&value) {
                problems.push(node.error(&path, format!("`{value}` is named twice")));
            } else {
                values.push(value);
            }
        }
        if items.is_empty() {
            problems.push(entry.node.error(&path, format!("`{key}` has no values")));
        }
        lists.push((key.as_str(), values));
    }
    lists
}
