//! Texts of a script, filled in with what the request said.

use std::io;

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use serde_json::{Map, Value};

/// Steps of the template machine: loops end, however they are written.
const FUEL: u64 = 100_000;

/// The most that one text may become.
const RENDERED_BYTES_MAX: usize = 1 << 20;

/// What a template can speak of.
#[derive(Debug, Default, Serialize)]
pub(super) struct Scene {
    /// The last user text.
    pub prompt: String,
    /// The tool results of the conversation, oldest first.
    pub results: Vec<ToolOutput>,
    /// How many turns the model had before this one.
    pub turn: u32,
    /// The model's id.
    pub model: String,
    /// Size of the request, for the usage.
    #[serde(skip)]
    pub input_chars: u64,
}

/// A tool's result, as templates see it.
#[derive(Debug, Serialize)]
pub(super) struct ToolOutput {
    pub name: String,
    pub content: String,
    pub is_error: bool,
}

/// Checks that `source` is a template at all.
pub(super) fn check(source: &str) -> Result<(), minijinja::Error> {
    environment().template_from_str(source).map(drop)
}

/// Fills `source` in.
pub(super) fn render(source: &str, scene: &Scene) -> Result<String, minijinja::Error> {
    let environment = environment();
    let mut text = Bounded(Vec::new());
    let scene = minijinja::Value::from(Serde(scene));
    environment.template_from_str(source)?.render_captured_to(scene, &mut text)?;
    Ok(String::from_utf8_lossy(&text.0).into_owned())
}

/// Fills every text inside `arguments` in.
pub(super) fn render_arguments(
    arguments: &Map<String, Value>,
    scene: &Scene,
) -> Result<Map<String, Value>, minijinja::Error> {
    let rendered = arguments.iter().map(|(key, value)| Ok((key.clone(), fill(value, scene)?)));
    rendered.collect()
}

fn fill(value: &Value, scene: &Scene) -> Result<Value, minijinja::Error> {
    Ok(match value {
        Value::String(text) => Value::String(render(text, scene)?),
        Value::Array(list) => {
            Value::Array(list.iter().map(|value| fill(value, scene)).collect::<Result<_, _>>()?)
        }
        Value::Object(object) => Value::Object(render_arguments(object, scene)?),
        other => other.clone(),
    })
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment
}

struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > RENDERED_BYTES_MAX {
            let reason = format!("the text grew beyond {RENDERED_BYTES_MAX} bytes");
            return Err(io::Error::other(reason));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
