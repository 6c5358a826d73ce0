//! Which keys there are, what their values look like, and what is wrong with those in a file.
//!
//! One table of [`Key`]s is the only list: it drives the check, the JSON Schema and the effective
//! definition, so that they cannot drift apart. A key of the contract that is not built yet is in
//! the table too, and is refused by its name.

use std::time::Duration;

use serde_json::Value;

use super::duration::parse_duration;
use super::problem::Problem;
use super::tree::{Entry, Item, Node};

/// A key that a table may have.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// As JSON; `""` is no default.
    pub(crate) default: &'static str,
    pub(crate) support: Support,
    pub(crate) about: &'static str,
}

/// How much of a key works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    Now,
    /// Known, refused by name.
    Later,
    /// These values work, as a JSON list; the others are refused by name.
    Only(&'static str),
}

/// What a value looks like.
#[derive(Debug)]
pub(crate) enum Kind {
    Text,
    Bool,
    Integer(i64, i64),
    /// A number that is not negative.
    Amount,
    Duration(Zero),
    /// One of these; `x:<key>` stands for every longer text that begins with `x:`.
    Words(&'static [&'static str]),
    Texts,
    TextMap,
    /// One cron text, or a list of them.
    Cron,
    Table(&'static [Key]),
    /// Names of the writer's own choice, each with such a value.
    Map(&'static Kind),
    Tables(&'static [Key]),
    /// Described only by words.
    Any,
}

/// The end of a word that a person may go on with.
pub(crate) const ANY_KEY: &str = "<key>";

/// What `"0s"` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zero {
    Refused,
    Unlimited,
}

/// Reports every unknown key, wrong type, value out of range and unsupported key below `node`, and
/// leaves [`Item::Refused`] in their places.
pub(crate) fn check(node: &mut Node, keys: &'static [Key], problems: &mut Vec<Problem>) {
    Check { root: keys, problems }.table(node, keys, "");
}

struct Check<'a> {
    root: &'static [Key],
    problems: &'a mut Vec<Problem>,
}

impl Check<'_> {
    fn table(&mut self, node: &mut Node, keys: &'static [Key], path: &str) {
        let Item::Table(table) = &mut node.item else { return };
        for (name, entry) in table.iter_mut() {
            let path = joined(path, name);
            match keys.iter().find(|key| key.name == name) {
                Some(key) => self.key(entry, key, &path),
                None => self.unknown(entry, name, keys, &path),
            }
        }
    }

    fn key(&mut self, entry: &mut Entry, key: &'static Key, path: &str) {
        if key.support == Support::Later {
            let problem = not_yet(entry, path, &written(key, path));
            self.refuse(&mut entry.node, problem);
            return;
        }
        self.value(&mut entry.node, &key.kind, path);
        let Support::Only(values) = key.support else { return };
        if matches!(entry.node.item, Item::Refused) {
            return;
        }
        let working: Vec<Value> = serde_json::from_str(values).expect("the key table holds JSON");
        let value = json(&entry.node, &key.kind);
        if !working.contains(&value) {
            let name = last(path);
            let shown: Vec<_> = working.iter().map(toml_text).collect();
            let problem = entry
                .node
                .error(path, format!("`{name} = {}` is not supported yet", toml_text(&value)))
                .with_help(format!("supported: {}", shown.join(", ")));
            self.refuse(&mut entry.node, problem);
        }
    }

    fn value(&mut self, node: &mut Node, kind: &'static Kind, path: &str) {
        match (kind, &mut node.item) {
            (Kind::Table(keys), Item::Table(_)) => self.table(node, keys, path),
            (Kind::Map(kind), Item::Table(table)) => {
                for (name, entry) in table.iter_mut() {
                    self.value(&mut entry.node, kind, &joined(path, name));
                }
            }
            (Kind::TextMap, Item::Table(table)) => {
                for (name, entry) in table.iter_mut() {
                    self.value(&mut entry.node, &Kind::Text, &joined(path, name));
                }
            }
            (Kind::Tables(keys), Item::List(list)) => {
                for item in list {
                    self.value_of_list(item, keys, path);
                }
            }
            (Kind::Texts | Kind::Cron, Item::List(list)) => {
                for item in list {
                    self.value(item, &Kind::Text, path);
                }
            }
            (_, Item::Refused) => {}
            _ => {
                if let Some(problem) = refusal(node, kind, path) {
                    self.refuse(node, problem);
                }
            }
        }
    }

    fn value_of_list(&mut self, item: &mut Node, keys: &'static [Key], path: &str) {
        if let Item::Table(_) = item.item {
            self.table(item, keys, path);
        } else {
            let problem = item.error(path, format!("expected a table, found {}", item.kind()));
            self.refuse(item, problem);
        }
    }

    fn unknown(&mut self, entry: &mut Entry, name: &str, keys: &'static [Key], path: &str) {
        let elsewhere = places_of(self.root, name);
        let help = if elsewhere.is_empty() {
            let nearest = nearest(name, keys.iter().map(|key| key.name));
            nearest.map(|near| format!("did you mean `{near}`?")).or_else(|| {
                let near = nearest_path(name, paths(self.root))?;
                Some(format!("did you mean `{}` {}?", last(&near), table_name(&near)))
            })
        } else {
            let places: Vec<_> = elsewhere.iter().map(|place| table_name(place)).collect();
            Some(format!("`{name}` belongs {}", places.join(" or ")))
        };
        let help = help.unwrap_or_else(|| format!("known here: {}", listed(keys)));
        let problem = entry
            .key_source
            .error(entry.key_span.clone(), path.to_owned(), format!("unknown key `{name}`"))
            .with_help(help);
        self.refuse(&mut entry.node, problem);
    }

    fn refuse(&mut self, node: &mut Node, problem: Problem) {
        self.problems.push(problem);
        node.item = Item::Refused;
    }
}

/// What is wrong with a value that is neither a table nor a list of what was asked for.
fn refusal(node: &Node, kind: &Kind, path: &str) -> Option<Problem> {
    match (kind, &node.item) {
        (Kind::Text | Kind::Cron, Item::Text(_)) | (Kind::Bool, Item::Bool(_)) | (Kind::Any, _) => {
            None
        }
        (Kind::Amount, Item::Integer(0..)) => None,
        (Kind::Amount, Item::Float(number)) if *number >= 0.0 && number.is_finite() => None,
        (Kind::Amount, Item::Integer(_) | Item::Float(_)) => {
            Some(node.error(path, "must be a number that is not negative"))
        }
        (Kind::Integer(min, max), Item::Integer(number)) => {
            let fits = (i128::from(*min)..=i128::from(*max)).contains(number);
            (!fits).then(|| node.error(path, format!("must be from {min} to {max}")))
        }
        (Kind::Duration(zero), Item::Text(text)) => {
            duration_refusal(text, *zero).map(|message| node.error(path, message))
        }
        (Kind::Words(words), Item::Text(text)) => word_refusal(node, words, text, path),
        _ => Some(
            node.error(path, format!("expected {}, found {}", expected(kind), node.kind()))
                .with_help(type_help(kind, node)),
        ),
    }
}

fn duration_refusal(text: &str, zero: Zero) -> Option<String> {
    match parse_duration(text) {
        Err(message) => Some(message),
        Ok(Duration::ZERO) if zero == Zero::Refused => {
            Some("must be longer than zero: only `timeout` of a run can be unlimited".to_owned())
        }
        Ok(_) => None,
    }
}

fn word_refusal(node: &Node, words: &[&str], text: &str, path: &str) -> Option<Problem> {
    let fits = words.iter().any(|word| match word.strip_suffix(ANY_KEY) {
        Some(start) => text.len() > start.len() && text.starts_with(start),
        None => *word == text,
    });
    (!fits).then(|| {
        node.error(path, format!("`{text}` is not one of {}", words.join(", ")))
            .with_help(did_you_mean(text, words.iter().copied()))
    })
}

fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Bool => "true or false".to_owned(),
        Kind::Integer(min, _) => format!("an integer from {min}"),
        Kind::Amount => "a number".to_owned(),
        Kind::Duration(_) => "a duration as text, such as \"5m\"".to_owned(),
        Kind::Words(words) => format!("one of {}", words.join(", ")),
        Kind::Texts => "a list of texts".to_owned(),
        Kind::TextMap => "a table of texts".to_owned(),
        Kind::Cron => "a cron text or a list of them".to_owned(),
        Kind::Table(_) | Kind::Map(_) => "a table".to_owned(),
        Kind::Tables(_) => "tables in [[double brackets]]".to_owned(),
        Kind::Any => "a value".to_owned(),
    }
}

fn type_help(kind: &Kind, node: &Node) -> Option<String> {
    match (kind, &node.item) {
        (Kind::Duration(_), Item::Integer(number)) if *number > 0 => {
            Some(format!("a duration needs a unit: \"{number}s\" or \"{number}m\""))
        }
        (Kind::Text, Item::Date | Item::Integer(_) | Item::Float(_) | Item::Bool(_)) => {
            Some("write it in quotes".to_owned())
        }
        (Kind::Texts, Item::Text(text)) => {
            Some(format!("write [{}]", toml_text(&text.as_str().into())))
        }
        _ => None,
    }
}

/// A value of a checked tree as JSON, durations in their shortest form.
pub(crate) fn json(node: &Node, kind: &Kind) -> Value {
    match &node.item {
        Item::Text(text) => match (kind, parse_duration(text)) {
            (Kind::Duration(_), Ok(duration)) => {
                humantime::format_duration(duration).to_string().into()
            }
            _ => text.as_str().into(),
        },
        Item::Bool(bool) => (*bool).into(),
        Item::Integer(number) => i64::try_from(*number).map_or(Value::Null, Value::from),
        Item::Float(number) => (*number).into(),
        Item::List(list) => list.iter().map(|item| json(item, &Kind::Any)).collect(),
        Item::Table(table) => {
            let inner = |name: &str| match kind {
                Kind::Map(kind) => kind,
                Kind::Table(keys) => {
                    keys.iter().find(|key| key.name == name).map_or(&Kind::Any, |key| &key.kind)
                }
                _ => &Kind::Any,
            };
            let entries =
                table.iter().map(|(name, entry)| (name.clone(), json(&entry.node, inner(name))));
            Value::Object(entries.collect())
        }
        Item::Date | Item::Refused => Value::Null,
    }
}

/// `did you mean …`, when one of `known` is close.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(word, known).map(|near| format!("did you mean `{near}`?"))
}

/// The one of `known` that `word` most likely stands for; `None` if nothing is close.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let closeness =
        |candidate: &str| strsim::jaro_winkler(&word.to_lowercase(), &candidate.to_lowercase());
    known
        .into_iter()
        .map(|candidate| (closeness(candidate), candidate))
        .filter(|(closeness, _)| *closeness >= 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

fn nearest_path(word: &str, paths: Vec<(String, Support)>) -> Option<String> {
    let near = nearest(word, paths.iter().map(|(path, _)| last(path)))?.to_owned();
    paths.into_iter().map(|(path, _)| path).find(|path| last(path) == near)
}

/// Dotted paths of every key and how much of it works; `<name>` stands for a name of the writer's
/// choice. What stands in a table for later is for later too.
fn paths(keys: &'static [Key]) -> Vec<(String, Support)> {
    let mut all = Vec::new();
    for key in keys {
        all.push((key.name.to_owned(), key.support));
        let (inner, between) = match &key.kind {
            Kind::Table(keys) | Kind::Tables(keys) => (paths(keys), ""),
            Kind::Map(Kind::Table(keys)) => (paths(keys), "<name>."),
            _ => continue,
        };
        all.extend(inner.into_iter().map(|(path, support)| {
            let support = if key.support == Support::Later { Support::Later } else { support };
            (format!("{}.{between}{path}", key.name), support)
        }));
    }
    all
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Where a key of this name can stand: three places at most, and only if there is none that works,
/// those that are for later.
fn places_of(root: &'static [Key], name: &str) -> Vec<String> {
    let mut places = paths(root);
    places.retain(|(path, _)| last(path) == name);
    if places.iter().any(|(_, support)| *support != Support::Later) {
        places.retain(|(_, support)| *support != Support::Later);
    }
    places.into_iter().map(|(path, _)| path).take(3).collect()
}

fn table_name(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((table, _)) => format!("in [{table}]"),
        None => "at the top of the file, before the first [table]".to_owned(),
    }
}

fn listed(keys: &'static [Key]) -> String {
    keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn written(key: &Key, path: &str) -> String {
    match key.kind {
        Kind::Table(_) | Kind::Map(_) | Kind::TextMap => format!("[{path}]"),
        Kind::Tables(_) => format!("[[{path}]]"),
        _ => key.name.to_owned(),
    }
}

fn not_yet(entry: &Entry, path: &str, name: &str) -> Problem {
    let message = format!("`{name}` is not supported yet");
    entry.key_source.error(entry.key_span.clone(), path.to_owned(), message)
}

fn toml_text(value: &Value) -> String {
    value.to_string()
}
