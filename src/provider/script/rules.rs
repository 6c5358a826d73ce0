//! The file of a script, read and checked.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};
use serde_spanned::Spanned;

use super::template;

/// The largest script that is read.
const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// A checked script.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    pub(super) rules: Vec<Rule>,
}

/// Why a script was refused. Lines and columns begin at 1.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It is too long to be one.
    #[error("a script may have {SCRIPT_BYTES_MAX} bytes, this has {bytes}")]
    TooLong {
        /// Its size.
        bytes: usize,
    },
    /// It is no TOML, or has keys or values that mean nothing.
    #[error("line {line}, column {column}: {}", source.message())]
    Toml {
        /// Where.
        line: usize,
        /// Where in the line, in characters.
        column: usize,
        /// What is wrong.
        source: Box<toml::de::Error>,
    },
    /// A step is not exactly one thing.
    #[error("line {line}, column {column}: {reason}")]
    Step {
        /// Where.
        line: usize,
        /// Where in the line, in characters.
        column: usize,
        /// What is wrong.
        reason: String,
    },
    /// A text is no template.
    #[error("line {line}, column {column}: the text is no template")]
    Template {
        /// Where its step begins.
        line: usize,
        /// Where in the line, in characters.
        column: usize,
        /// What is wrong.
        source: Box<minijinja::Error>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub when: When,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct When {
    pub contains: Option<String>,
    pub model: Option<String>,
    pub turn: Option<u32>,
    pub times: Option<u32>,
}

/// One thing that the model does.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Text { template: String, chunk_chars: usize, pace: Duration },
    Reasoning(String),
    Tool(ToolStep),
    Delay(Duration),
    Error(ErrorStep),
    Hang,
    Usage(UsageStep),
    End(EndStep),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolStep {
    pub name: String,
    #[serde(default, deserialize_with = "json_object")]
    pub arguments: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorStep {
    pub status: u16,
    #[serde(default)]
    pub message: String,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    pub retry_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageStep {
    pub input: u64,
    pub output: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EndStep {
    Length,
    ContentFilter,
    Incomplete,
}

impl Script {
    /// Reads a script.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        if text.len() > SCRIPT_BYTES_MAX {
            return Err(ScriptError::TooLong { bytes: text.len() });
        }
        let file: RawFile = toml::from_str(text).map_err(|source| {
            let (line, column) = place(text, source.span().unwrap_or_default());
            ScriptError::Toml { line, column, source: Box::new(source) }
        })?;
        let rule = |raw: RawRule| {
            let steps = raw.step.into_iter().map(|step| read_step(text, step));
            Ok(Rule { when: raw.when, steps: steps.collect::<Result<_, _>>()? })
        };
        Ok(Self { rules: file.rule.into_iter().map(rule).collect::<Result<_, _>>()? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    rule: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    #[serde(default)]
    when: When,
    step: Vec<Spanned<RawStep>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    text: Option<String>,
    chunk: Option<usize>,
    #[serde(default, deserialize_with = "duration")]
    pace: Option<Duration>,
    reasoning: Option<String>,
    tool: Option<ToolStep>,
    #[serde(default, deserialize_with = "duration")]
    delay: Option<Duration>,
    error: Option<ErrorStep>,
    hang: Option<bool>,
    usage: Option<UsageStep>,
    end: Option<EndStep>,
}

fn read_step(file: &str, raw: Spanned<RawStep>) -> Result<Step, ScriptError> {
    let (line, column) = place(file, raw.span());
    let wrong = |reason: &str| ScriptError::Step { line, column, reason: reason.to_owned() };
    let raw = raw.into_inner();
    if raw.text.is_none() && (raw.chunk.is_some() || raw.pace.is_some()) {
        return Err(wrong("`chunk` and `pace` belong to a `text`"));
    }
    if raw.chunk == Some(0) {
        return Err(wrong("`chunk` must be at least 1"));
    }
    if raw.hang == Some(false) {
        return Err(wrong("`hang` can only be true"));
    }
    if raw.error.as_ref().is_some_and(|error| error.status != 200 && error.status < 400) {
        return Err(wrong("`status` of an error is 200 (inside the stream) or at least 400"));
    }
    let (chunk_chars, pace) = (raw.chunk.unwrap_or(usize::MAX), raw.pace.unwrap_or_default());
    let steps = [
        raw.text.map(|template| Step::Text { template, chunk_chars, pace }),
        raw.reasoning.map(Step::Reasoning),
        raw.tool.map(Step::Tool),
        raw.delay.map(Step::Delay),
        raw.error.map(Step::Error),
        raw.hang.map(|_| Step::Hang),
        raw.usage.map(Step::Usage),
        raw.end.map(Step::End),
    ];
    let mut steps = steps.into_iter().flatten();
    let (Some(step), None) = (steps.next(), steps.next()) else {
        return Err(wrong(
            "a step is exactly one of `text`, `reasoning`, `tool`, `delay`, `error`, `hang`, \
             `usage`, `end`",
        ));
    };
    check_templates(&step).map_err(|source| ScriptError::Template {
        line,
        column,
        source: Box::new(source),
    })?;
    Ok(step)
}

fn check_templates(step: &Step) -> Result<(), minijinja::Error> {
    match step {
        Step::Text { template, .. } | Step::Reasoning(template) => template::check(template),
        Step::Tool(tool) => tool.arguments.values().try_for_each(check_value),
        Step::Delay(_) | Step::Error(_) | Step::Hang | Step::Usage(_) | Step::End(_) => Ok(()),
    }
}

fn check_value(value: &Value) -> Result<(), minijinja::Error> {
    match value {
        Value::String(text) => template::check(text),
        Value::Array(list) => list.iter().try_for_each(check_value),
        Value::Object(object) => object.values().try_for_each(check_value),
        _ => Ok(()),
    }
}

/// Line and column of the start of `span`, from 1.
fn place(text: &str, span: Range<usize>) -> (usize, usize) {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn duration<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(value)?;
    humantime::parse_duration(&text).map(Some).map_err(de::Error::custom)
}

/// A TOML table as JSON. Dates become text: JSON has none.
fn json_object<'de, D: Deserializer<'de>>(value: D) -> Result<Map<String, Value>, D::Error> {
    fn json(value: toml::Value) -> Value {
        match value {
            toml::Value::String(text) => text.into(),
            toml::Value::Integer(number) => number.into(),
            toml::Value::Float(number) => number.into(),
            toml::Value::Boolean(yes) => yes.into(),
            toml::Value::Datetime(at) => at.to_string().into(),
            toml::Value::Array(list) => list.into_iter().map(json).collect(),
            toml::Value::Table(table) => object(table).into(),
        }
    }
    fn object(table: toml::Table) -> Map<String, Value> {
        table.into_iter().map(|(key, value)| (key, json(value))).collect()
    }
    toml::Table::deserialize(value).map(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read() {
        let script = Script::parse(
            r#"
            [[rule]]
            when = { contains = "x", times = 1 }
            [[rule.step]]
            text = "hi"
            chunk = 2
            pace = "50ms"
            [[rule.step]]
            tool = { name = "t", arguments = { a = [1, "b"], at = 2026-11-30 } }

            [[rule]]
            step = [{ delay = "2s" }, { hang = true }]
            "#,
        );
        let arguments = serde_json::json!({"a": [1, "b"], "at": "2026-11-30"});
        let arguments = arguments.as_object().unwrap().clone();
        let expected = Script {
            rules: vec![
                Rule {
                    when: When {
                        contains: Some("x".to_owned()),
                        times: Some(1),
                        ..When::default()
                    },
                    steps: vec![
                        Step::Text {
                            template: "hi".to_owned(),
                            chunk_chars: 2,
                            pace: Duration::from_millis(50),
                        },
                        Step::Tool(ToolStep { name: "t".to_owned(), arguments }),
                    ],
                },
                Rule {
                    when: When::default(),
                    steps: vec![Step::Delay(Duration::from_secs(2)), Step::Hang],
                },
            ],
        };
        assert_eq!(script.unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let table = [
            ("rule = 1", "line 1, column 8: invalid type"),
            ("[[rule]]\nwen = {}\nstep = []", "line 2, column 1: unknown field `wen`"),
            ("[[rule]]\nstep = [{ text = 1 }]", "line 2, column 18: invalid type"),
            ("[[rule]]\nstep = [{ delay = \"2\" }]", "line 2, column 19: time unit needed"),
            ("[[rule]]\nstep = [{ }]", "line 2, column 9: a step is exactly one of"),
            ("[[rule]]\nstep = [{ hang = true, delay = \"2s\" }]", "line 2, column 9: a step is"),
            ("[[rule]]\nstep = [{ hang = false }]", "line 2, column 9: `hang` can only"),
            ("[[rule]]\nstep = [{ text = \"a\", chunk = 0 }]", "line 2, column 9: `chunk` must"),
            ("[[rule]]\nstep = [{ hang = true, pace = \"1s\" }]", "line 2, column 9: `chunk` and"),
            ("[[rule]]\nstep = [{ error = { status = 301 } }]", "line 2, column 9: `status` of"),
            ("[[rule]]\nstep = [{ text = \"{{ \" }]", "line 2, column 9: the text is no template"),
            ("", "line 1, column 1: missing field `rule`"),
        ];
        for (text, expected) in table {
            let error = Script::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }
}
