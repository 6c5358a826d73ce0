//! The key tables as JSON Schema, for editors.

use serde_json::{Map, Value, json};

use super::keys::{ANY_KEY, Key, Kind, Support, Zero};

/// The JSON Schema (2020-12) of a file with these keys.
pub(crate) fn document(title: &str, keys: &'static [Key]) -> Value {
    let mut schema = object(keys);
    schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".into(), title.into());
    Value::Object(schema)
}

fn object(keys: &'static [Key]) -> Map<String, Value> {
    let properties: Map<_, _> =
        keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let mut object = Map::new();
    object.insert("type".into(), "object".into());
    object.insert("additionalProperties".into(), false.into());
    object.insert("properties".into(), properties.into());
    object
}

fn property(key: &'static Key) -> Value {
    let mut schema = of_kind(&key.kind);
    let about = match key.support {
        Support::Later => format!("{} Not supported yet.", key.about),
        Support::Only(values) => {
            let values = values.trim_start_matches('[').trim_end_matches(']');
            match values {
                "" => format!("{} Only the default is supported yet.", key.about),
                _ => format!("{} Supported yet: {values}.", key.about),
            }
        }
        Support::Now => key.about.to_owned(),
    };
    schema.insert("description".into(), about.into());
    if !key.default.is_empty() {
        let default = serde_json::from_str(key.default).expect("the key table holds JSON");
        schema.insert("default".into(), default);
    }
    Value::Object(schema)
}

fn of_kind(kind: &'static Kind) -> Map<String, Value> {
    let schema = match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Integer(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Amount => json!({ "type": "number", "minimum": 0 }),
        Kind::Duration(zero) => json!({ "type": "string", "examples": examples(*zero) }),
        Kind::Words(words) if words.iter().any(|word| word.ends_with(ANY_KEY)) => {
            json!({ "type": "string", "pattern": pattern(words) })
        }
        Kind::Words(words) => json!({ "type": "string", "enum": words }),
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::TextMap => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        Kind::Cron => json!({ "anyOf": [
            { "type": "string" }, { "type": "array", "items": { "type": "string" } }
        ] }),
        Kind::Table(keys) => Value::Object(object(keys)),
        Kind::Map(kind) => {
            json!({ "type": "object", "additionalProperties": Value::Object(of_kind(kind)) })
        }
        Kind::Tables(keys) => json!({ "type": "array", "items": Value::Object(object(keys)) }),
        Kind::Any => json!({}),
    };
    match schema {
        Value::Object(schema) => schema,
        _ => unreachable!("each arm makes an object"),
    }
}

fn examples(zero: Zero) -> Value {
    match zero {
        Zero::Refused => json!(["90s", "2h 30m"]),
        Zero::Unlimited => json!(["20m", "0s"]),
    }
}

fn pattern(words: &[&str]) -> String {
    let alternatives: Vec<_> = words.iter().map(|word| word.replace(ANY_KEY, ".+")).collect();
    format!("^({})$", alternatives.join("|"))
}
