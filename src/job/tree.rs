//! TOML as owned nodes that know their place, and how two of them merge.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duration::parse_duration;
use super::problem::Problem;
use super::source::Source;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) source: Arc<Source>,
    pub(crate) span: Range<usize>,
    pub(crate) item: Item,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Text(String),
    Bool(bool),
    Integer(i128),
    Float(f64),
    Date,
    List(Vec<Node>),
    Table(Table),
    /// Something was here that has been reported; nothing more is said about it.
    Refused,
}

pub(crate) type Table = BTreeMap<String, Entry>;

/// A key and its value.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key_source: Arc<Source>,
    pub(crate) key_span: Range<usize>,
    pub(crate) node: Node,
}

/// Parses as much as can be parsed; each syntax error becomes a problem.
pub(crate) fn parse(source: &Arc<Source>, problems: &mut Vec<Problem>) -> Node {
    let (document, errors) = DeTable::parse_recoverable(&source.text);
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        // `owner = me` is read as the beginning of a boolean.
        let help = error.message().starts_with("invalid boolean");
        let help = help.then(|| "text is written in quotes".to_owned());
        problems.push(source.error(span, None, error.message()).with_help(help));
    }
    let span = document.span();
    Node { source: source.clone(), span, item: table(document.into_inner(), source) }
}

fn table(table: DeTable<'_>, source: &Arc<Source>) -> Item {
    let entries = table.into_iter().map(|(key, value)| {
        let entry =
            Entry { key_source: source.clone(), key_span: key.span(), node: node(value, source) };
        (key.into_inner().into_owned(), entry)
    });
    Item::Table(entries.collect())
}

fn node(value: Spanned<DeValue<'_>>, source: &Arc<Source>) -> Node {
    let span = value.span();
    let item = match value.into_inner() {
        DeValue::String(text) => Item::Text(text.into_owned()),
        DeValue::Boolean(bool) => Item::Bool(bool),
        // Beyond 128 bits it is out of every range there is.
        DeValue::Integer(number) => Item::Integer(
            i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX),
        ),
        DeValue::Float(number) => Item::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Datetime(_) => Item::Date,
        DeValue::Array(list) => {
            Item::List(list.into_iter().map(|item| node(item, source)).collect())
        }
        DeValue::Table(inner) => table(inner, source),
    };
    Node { source: source.clone(), span, item }
}

impl Node {
    /// A table with nothing in it.
    pub(crate) fn empty(source: &Arc<Source>) -> Self {
        Self { source: source.clone(), span: 0..0, item: Item::Table(Table::new()) }
    }

    /// An error at this value.
    pub(crate) fn error(&self, key: &str, message: impl Into<String>) -> Problem {
        self.source.error(self.span.clone(), key.to_owned(), message)
    }

    /// What a person calls this kind of value.
    pub(crate) fn kind(&self) -> &'static str {
        match self.item {
            Item::Text(_) => "text",
            Item::Bool(_) => "a boolean",
            Item::Integer(_) => "an integer",
            Item::Float(_) => "a number with a fraction",
            Item::Date => "a date without quotes",
            Item::List(_) => "a list",
            Item::Table(_) => "a table",
            Item::Refused => "nothing usable",
        }
    }

    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.item {
            Item::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The entry at a dotted path.
    pub(crate) fn entry(&self, path: &str) -> Option<&Entry> {
        match path.split_once('.') {
            Some((first, rest)) => self.table()?.get(first)?.node.entry(rest),
            None => self.table()?.get(path),
        }
    }

    /// The value at a dotted path.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.entry(path).map(|entry| &entry.node)
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.get(path)?.as_text()
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.item {
            Item::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn bool(&self, path: &str) -> Option<bool> {
        match self.get(path)?.item {
            Item::Bool(bool) => Some(bool),
            _ => None,
        }
    }

    pub(crate) fn integer<T: TryFrom<i128>>(&self, path: &str) -> Option<T> {
        match self.get(path)?.item {
            Item::Integer(number) => T::try_from(number).ok(),
            _ => None,
        }
    }

    pub(crate) fn float(&self, path: &str) -> Option<f64> {
        match self.get(path)?.item {
            Item::Float(number) => Some(number),
            #[expect(clippy::cast_precision_loss, reason = "a price, not a count")]
            Item::Integer(number) => Some(number as f64),
            _ => None,
        }
    }

    pub(crate) fn duration(&self, path: &str) -> Option<Duration> {
        parse_duration(self.text(path)?).ok()
    }

    /// A path, relative to the folder of the file that names it.
    pub(crate) fn path(&self, path: &str) -> Option<PathBuf> {
        let node = self.get(path)?;
        Some(node.source.folder().join(node.as_text()?))
    }

    /// The texts of a list and their nodes.
    pub(crate) fn texts(&self, path: &str) -> Option<Vec<(&str, &Node)>> {
        match &self.get(path)?.item {
            Item::List(list) => {
                Some(list.iter().filter_map(|node| Some((node.as_text()?, node))).collect())
            }
            _ => None,
        }
    }

    /// The texts of a table of texts.
    pub(crate) fn text_map(&self, path: &str) -> BTreeMap<String, String> {
        let table = self.get(path).and_then(Node::table);
        table
            .into_iter()
            .flatten()
            .filter_map(|(name, entry)| Some((name.clone(), entry.node.as_text()?.to_owned())))
            .collect()
    }

    /// `over` laid upon this: tables merge by key, everything else is replaced.
    pub(crate) fn merged(&self, over: Node) -> Node {
        let (Item::Table(below), Item::Table(mut above)) = (&self.item, over.item.clone()) else {
            return over;
        };
        for (name, entry) in below {
            let merged = match above.remove(name) {
                Some(mine) => Entry { node: entry.node.merged(mine.node), ..mine },
                None => entry.clone(),
            };
            above.insert(name.clone(), merged);
        }
        Node { item: Item::Table(above), ..over }
    }

    /// Takes the entry at a dotted path away.
    pub(crate) fn remove(&mut self, path: &str) {
        let Item::Table(table) = &mut self.item else { return };
        match path.split_once('.') {
            Some((first, rest)) => {
                if let Some(entry) = table.get_mut(first) {
                    entry.node.remove(rest);
                }
            }
            None => {
                table.remove(path);
            }
        }
    }
}
