//! `[[check]]` and `[output]`: what the host looks at before it calls a run a success.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use boon::{Compiler, SchemaIndex, Schemas, UrlLoader};
use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;
use serde_json::Value;

use super::file::{FILE_BYTES_MAX, read_text};
use super::parse::Reader;
use super::read_command::argv_of;
use super::tree::{Item, Node};

/// One check.
#[derive(Debug, Clone)]
pub struct CheckSpec {
    /// What it is called.
    pub name: String,
    /// What has to be so.
    pub what: Check,
}

/// What has to be so.
#[derive(Debug, Clone)]
pub enum Check {
    /// There is such a file below the working directory.
    File {
        /// Relative to the working directory.
        path: PathBuf,
        /// It was written since the run started.
        fresh: bool,
        /// Its least size.
        min_bytes: u64,
    },
    /// This exits with zero.
    Command(Vec<String>),
    /// The reply matches this.
    Regex(Regex),
    /// The reply does not match this.
    NotRegex(Regex),
    /// The first column of its first row is true.
    Sql(String),
    /// The reply is JSON that meets this.
    Schema(ReplySchema),
    /// No tool call was refused.
    NoneDenied,
}

/// Files by their names, relative to the working directory.
#[derive(Debug, Clone)]
pub struct ArtifactPattern {
    text: String,
    matcher: GlobMatcher,
}

impl ArtifactPattern {
    fn parse(text: &str) -> Result<Self, String> {
        let leaves = Path::new(text).components().any(|it| !matches!(it, Component::Normal(_)));
        if text.is_empty() || leaves {
            return Err("a file to keep is named below the working directory".to_owned());
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let glob = glob.map_err(|error| format!("no pattern of files: {}", error.kind()))?;
        Ok(Self { text: text.to_owned(), matcher: glob.compile_matcher() })
    }

    /// Whether it names the file at `path`.
    pub fn matches(&self, path: &Path) -> bool {
        self.matcher.is_match(path)
    }
}

impl fmt::Display for ArtifactPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A JSON Schema that a reply must meet.
#[derive(Clone)]
pub struct ReplySchema {
    /// Where it came from.
    pub path: PathBuf,
    compiled: Arc<(Schemas, SchemaIndex)>,
}

impl fmt::Debug for ReplySchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplySchema").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A schema is in its file: what it refers to elsewhere is not fetched.
struct Nowhere;

impl UrlLoader for Nowhere {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("{url} is outside of the file").into())
    }
}

impl ReplySchema {
    fn read(path: &Path) -> Result<Self, String> {
        const NAME: &str = "schema:reply";
        let text = read_text(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
        let schema = serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}"))?;
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.use_loader(Box::new(Nowhere));
        let words = |error: &dyn fmt::Display| format!("no usable JSON Schema: {error:#}");
        compiler.add_resource(NAME, schema).map_err(|error| words(&error))?;
        let index = compiler.compile(NAME, &mut schemas).map_err(|error| words(&error))?;
        Ok(Self { path: path.to_owned(), compiled: Arc::new((schemas, index)) })
    }

    /// What is wrong with `reply`, if anything is.
    pub fn complaint(&self, reply: &str) -> Option<String> {
        let value: Value = match serde_json::from_str(reply.trim()) {
            Ok(value) => value,
            Err(error) => return Some(format!("the reply is not JSON: {error}")),
        };
        let (schemas, index) = &*self.compiled;
        let error = schemas.validate(&value, *index).err()?;
        // The first lines name the places; all of them together can be long.
        let words: Vec<_> = error.causes.iter().take(3).map(ToString::to_string).collect();
        Some(if words.is_empty() { error.to_string() } else { words.join("; ") })
    }
}

const KINDS: [&str; 7] = ["file", "command", "regex", "not_regex", "sql", "schema", "tools"];

pub(super) fn checks(reader: &mut Reader<'_>) -> Vec<CheckSpec> {
    let Some(Item::List(list)) = reader.node.get("check").map(|node| &node.item) else {
        return Vec::new();
    };
    list.iter().filter_map(|node| check(reader, node)).collect()
}

/// `output.artifacts`.
pub(super) fn artifacts(reader: &mut Reader<'_>) -> Vec<ArtifactPattern> {
    let key = "output.artifacts";
    let mut patterns = Vec::new();
    for (text, node) in reader.node.texts(key).unwrap_or_default() {
        match ArtifactPattern::parse(text) {
            Ok(pattern) => patterns.push(pattern),
            Err(message) => reader.problems.push(node.error(key, message)),
        }
    }
    patterns
}

/// `output.schema`.
pub(super) fn reply_schema(reader: &mut Reader<'_>) -> Option<ReplySchema> {
    let path = reader.node.path("output.schema")?;
    match ReplySchema::read(&path) {
        Ok(schema) => Some(schema),
        Err(why) => {
            reader.refuse("output.schema", format!("{}: {why}", path.display()), None);
            None
        }
    }
}

fn check(reader: &mut Reader<'_>, node: &Node) -> Option<CheckSpec> {
    let table = node.table()?;
    if table.values().any(|entry| matches!(entry.node.item, Item::Refused)) {
        return None;
    }
    let mut refuse = |node: &Node, message: String| {
        reader.problems.push(node.error("check", message));
        None
    };
    let kinds: Vec<_> = KINDS.into_iter().filter(|kind| table.contains_key(*kind)).collect();
    let [kind] = kinds[..] else {
        let found = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
        return refuse(node, format!("a check has one of {}: here {found}", KINDS.join(", ")));
    };
    let alone = ["fresh", "min_bytes"].into_iter().find(|key| table.contains_key(*key));
    if let Some(key) = alone.filter(|_| kind != "file") {
        return refuse(node, format!("`{key}` belongs to a check of a `file`"));
    }
    let value = node.get(kind)?;
    let text = value.as_text().unwrap_or_default();
    if text.is_empty() && kind != "command" {
        return refuse(value, format!("`{kind}` is empty"));
    }
    let pattern = || Regex::new(text).map_err(|error| format!("no regular expression: {error}"));
    let what = match kind {
        "file" => Ok(Check::File {
            path: PathBuf::from(text),
            fresh: node.bool("fresh").unwrap_or(true),
            min_bytes: node.integer("min_bytes").unwrap_or(0),
        }),
        "command" => argv_of(value)?.map(Check::Command),
        "regex" => pattern().map(Check::Regex),
        "not_regex" => pattern().map(Check::NotRegex),
        "sql" => Ok(Check::Sql(text.to_owned())),
        "schema" => {
            let path = value.source.folder().join(text);
            let read = ReplySchema::read(&path).map(Check::Schema);
            read.map_err(|why| format!("{}: {why}", path.display()))
        }
        _ => Ok(Check::NoneDenied),
    };
    match what {
        Ok(what) => {
            let name = node.text("name").filter(|name| !name.trim().is_empty());
            let name = name.map_or_else(|| named(kind, value), str::to_owned);
            Some(CheckSpec { name, what })
        }
        Err(message) => refuse(value, message),
    }
}

fn named(kind: &str, value: &Node) -> String {
    match &value.item {
        Item::Text(text) => format!("{kind} {text}"),
        _ => kind.to_owned(),
    }
}
