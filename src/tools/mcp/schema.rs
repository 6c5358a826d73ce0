//! A server's schema of arguments as the APIs of all providers take one.
//!
//! JSON Schema allows more than they do: references, alternatives at the top, no properties at all.
//! Whatever is taken out makes the schema allow more, never less; the server itself judges the
//! arguments in the end.

use serde_json::{Map, Value, json};

/// A schema with more text than this is no help to a model, and is paid for in each request.
pub(super) const SCHEMA_BYTES_MAX: usize = 32 * 1024;

/// References that stand in what they refer to are followed no deeper.
const DEPTH_MAX: usize = 32;

/// What is said of a schema and is nothing to a model, or no API takes it.
const NOISE: &[&str] = &["$schema", "$id", "$anchor", "$comment", "$defs", "definitions"];

/// The schema with its references filled in; `None` if it is too large then.
pub(super) fn fitted(schema: &Map<String, Value>) -> Option<Value> {
    let root = Value::Object(schema.clone());
    let mut budget = SCHEMA_BYTES_MAX;
    let mut fitted = match filled(&root, &root, &mut Vec::new(), &mut budget)? {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    flatten_top(&mut fitted);
    fitted.insert("type".to_owned(), "object".into());
    if !fitted.get("properties").is_some_and(Value::is_object) {
        fitted.insert("properties".to_owned(), json!({}));
    }
    let fitted = Value::Object(fitted);
    (fitted.to_string().len() <= SCHEMA_BYTES_MAX).then_some(fitted)
}

/// A copy of `value` in which no reference is left. One that leads back to itself, elsewhere or
/// nowhere stands for anything. `None` once `budget`, in bytes, is used up.
fn filled<'v>(
    value: &'v Value,
    root: &'v Value,
    path: &mut Vec<&'v str>,
    budget: &mut usize,
) -> Option<Value> {
    *budget = budget.checked_sub(2)?;
    match value {
        Value::Object(object) => {
            let Some(reference) = object.get("$ref").and_then(Value::as_str) else {
                let mut out = Map::new();
                for (key, value) in object.iter().filter(|(key, value)| !is_noise(key, value)) {
                    *budget = budget.checked_sub(key.len())?;
                    out.insert(key.clone(), filled(value, root, path, budget)?);
                }
                return Some(Value::Object(out));
            };
            let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
            let mut out = match target {
                Some(target) if !path.contains(&reference) && path.len() < DEPTH_MAX => {
                    path.push(reference);
                    let target = filled(target, root, path, budget)?;
                    path.pop();
                    target
                }
                _ => json!({}),
            };
            // What stands beside the reference holds for this place.
            if let Some(out) = out.as_object_mut() {
                for (key, value) in object.iter().filter(|(key, _)| *key != "$ref") {
                    if !is_noise(key, value) {
                        out.insert(key.clone(), filled(value, root, path, budget)?);
                    }
                }
            }
            Some(out)
        }
        Value::Array(list) => {
            let all = list.iter().map(|value| filled(value, root, path, budget));
            Some(Value::Array(all.collect::<Option<_>>()?))
        }
        Value::String(text) => {
            *budget = budget.checked_sub(text.len())?;
            Some(value.clone())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.clone()),
    }
}

/// A property may be called `definitions`: then it is a schema of its own, with a type.
fn is_noise(key: &str, value: &Value) -> bool {
    let is_keyword = NOISE.contains(&key);
    is_keyword && (key.starts_with('$') || value.get("type").is_none_or(Value::is_object))
}

/// No API takes alternatives at the top: all their properties may be given, and none has to be.
fn flatten_top(schema: &mut Map<String, Value>) {
    for key in ["allOf", "anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = schema.shift_remove(key) else { continue };
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        let Some(properties) = properties.as_object_mut() else { continue };
        for branch in branches {
            let Some(Value::Object(more)) = branch.get("properties") else { continue };
            for (name, property) in more {
                properties.entry(name.clone()).or_insert_with(|| property.clone());
            }
        }
        schema.shift_remove("additionalProperties");
    }
    for key in ["not", "if", "then", "else", "enum"] {
        schema.shift_remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(schema: &Value) -> Option<Value> {
        fitted(schema.as_object().unwrap())
    }

    #[test]
    fn references_are_filled_in_and_circles_are_cut() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "at": {"$ref": "#/$defs/Place", "description": "Where."},
                "tree": {"$ref": "#/$defs/Node"},
                "far": {"$ref": "https://example.org/schema"},
                "none": {"$ref": "#/$defs/None"},
                "definitions": {"type": "string"},
            },
            "required": ["at"],
            "$defs": {
                "Place": {"type": "object", "properties": {"x": {"type": "number"}},
                          "description": "A place."},
                "Node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/Node"}}},
            },
        });
        let want = json!({
            "type": "object",
            "properties": {
                "at": {"type": "object", "properties": {"x": {"type": "number"}},
                       "description": "Where."},
                "tree": {"type": "object", "properties": {"child": {}}},
                "far": {},
                "none": {},
                "definitions": {"type": "string"},
            },
            "required": ["at"],
        });
        assert_eq!(fit(&schema), Some(want));
    }

    #[test]
    fn the_top_is_an_object_with_properties() {
        assert_eq!(fit(&json!({})), Some(json!({"type": "object", "properties": {}})));
        let either = json!({"anyOf": [
            {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
            {"properties": {"name": {"type": "string"}}, "required": ["name"]},
        ]});
        let want = json!({
            "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
            "type": "object",
        });
        assert_eq!(fit(&either), Some(want));
    }

    #[test]
    fn a_schema_that_grows_without_end_is_given_up_at_once() {
        // Each of thirty names stands twice in the next.
        let mut defs = Map::new();
        for n in 0..30 {
            let next = json!({"$ref": format!("#/$defs/n{}", n + 1)});
            defs.insert(format!("n{n}"), json!({"properties": {"a": next, "b": next}}));
        }
        let bomb = json!({"properties": {"a": {"$ref": "#/$defs/n0"}}, "$defs": defs});
        assert_eq!(fit(&bomb), None);
        let large = json!({"properties": {"a": {"enum": vec!["word"; 10_000]}}});
        assert_eq!(fit(&large), None);
    }
}
