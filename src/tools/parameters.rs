//! From a parameter struct to a compact JSON Schema, and from a model's arguments to the struct.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::tool::{Arguments, Refusal};
use crate::provider::ToolDefinition;

/// The offer of a tool whose parameters are a `P`.
pub(super) fn definition<P: JsonSchema>(name: &str, description: &str) -> ToolDefinition {
    let mut parameters = schemars::schema_for!(P).to_value();
    compact(&mut parameters);
    ToolDefinition { name: name.to_owned(), description: description.to_owned(), parameters }
}

/// Leaves out what no model needs; each token of it would be paid for in each request.
fn compact(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for noise in ["$schema", "title", "format", "default"] {
        object.remove(noise);
    }
    if object.get("properties").is_some() {
        // The doc comment of the struct; the tool has a description already.
        object.remove("description");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(compact);
    }
}

/// The arguments as a `P`, or words from which a model can tell what to do better.
pub(super) fn parse<P: DeserializeOwned + JsonSchema>(
    tool: &str,
    arguments: Arguments,
) -> Result<P, Refusal> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let wanted = definition::<P>(tool, "").parameters;
        let properties = wanted.get("properties").unwrap_or(&Value::Null);
        Refusal::Failed(format!(
            "the arguments of `{tool}` are wrong: {error}; it takes {properties}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// Noise.
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Parameters {
        /// Where.
        path: String,
        limit: Option<u32>,
    }

    #[test]
    fn a_schema_holds_what_a_model_needs() {
        let want = json!({
            "type": "object",
            "properties": {
                "path": {"description": "Where.", "type": "string"},
                "limit": {"type": "integer", "minimum": 0},
            },
            "additionalProperties": false,
            "required": ["path"],
        });
        assert_eq!(definition::<Parameters>("x", "").parameters, want);
    }

    #[test]
    fn wrong_arguments_are_explained() {
        let parsed = |value: Value| {
            let Value::Object(arguments) = value else { panic!("an object") };
            parse::<Parameters>("x", arguments)
        };
        let want = Parameters { path: "a".into(), limit: None };
        assert_eq!(parsed(json!({"path": "a"})), Ok(want));
        for (arguments, words) in [
            (json!({}), "missing field `path`"),
            (json!({"path": "a", "pth": 1}), "unknown field `pth`"),
            (json!({"path": 5}), "expected a string"),
            (json!({"path": "a", "limit": "many"}), "expected u32"),
            (json!({"path": "a", "limit": -1}), "expected u32"),
        ] {
            let Err(Refusal::Failed(text)) = parsed(arguments) else { panic!("{words}") };
            assert!(text.contains(words) && text.contains("\"path\":"), "{text}");
        }
    }
}
