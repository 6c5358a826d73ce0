//! What differs between two definitions of a job, key by key.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::output::first_line;

/// A key that has another value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct KeyChange {
    /// As a dotted path: `agent.model`.
    pub(super) key: String,
    /// `null`: it was not there.
    pub(super) old: Option<Value>,
    /// `null`: it is gone.
    pub(super) new: Option<Value>,
}

/// The keys that differ, in the order of their paths. A list is one value.
pub(super) fn differences(old: &Value, new: &Value) -> Vec<KeyChange> {
    let mut both: BTreeMap<String, (Option<Value>, Option<Value>)> = BTreeMap::new();
    leaves("", old, &mut |key, value| both.entry(key).or_default().0 = Some(value.clone()));
    leaves("", new, &mut |key, value| both.entry(key).or_default().1 = Some(value.clone()));
    both.retain(|_, (old, new)| old != new);
    both.into_iter().map(|(key, (old, new))| KeyChange { key, old, new }).collect()
}

fn leaves(path: &str, value: &Value, tell: &mut impl FnMut(String, &Value)) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves(&path, value, tell);
            }
        }
        _ => tell(path.to_owned(), value),
    }
}

/// The keys whose values are paths below or beside the folder of the job files.
const PATHS: [&str; 2] = ["/agent/prompt_file", "/agent/workdir"];

/// `definition` of a job in the folder `from` as it would be in the folder `to`.
pub(super) fn moved(mut definition: Value, from: &Path, to: &Path) -> Value {
    for pointer in PATHS {
        let Some(Value::String(path)) = definition.pointer_mut(pointer) else { continue };
        if let Ok(rest) = Path::new(path.as_str()).strip_prefix(from) {
            *path = to.join(rest).display().to_string();
        }
    }
    definition
}

/// Characters of a value that fit on a line.
const VALUE_CHARS: usize = 60;

impl KeyChange {
    /// On one line, for people.
    pub(super) fn words(&self) -> String {
        if let (Some(Value::String(old)), Some(Value::String(new))) = (&self.old, &self.new)
            && (old.trim().contains('\n') || new.trim().contains('\n'))
        {
            return self.words_of_text(old, new);
        }
        format!("{}: {} → {}", self.key, shown(self.old.as_ref()), shown(self.new.as_ref()))
    }

    /// Of a text with several lines, the first one that differs.
    fn words_of_text(&self, old: &str, new: &str) -> String {
        let number = old.lines().zip(new.lines()).take_while(|(old, new)| old == new).count();
        let line = |text: &str| text.lines().nth(number).map(|line| Value::from(line.trim()));
        let (old, new) = (line(old), line(new));
        let place = number + 1;
        format!("{} line {place}: {} → {}", self.key, shown(old.as_ref()), shown(new.as_ref()))
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".into(), |value| first_line(&value.to_string(), VALUE_CHARS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(old: &Value, new: &Value) -> Vec<String> {
        differences(old, new).iter().map(KeyChange::words).collect()
    }

    #[test]
    fn each_key_that_differs_is_named_with_both_values() {
        let old = json!({"a": 1, "agent": {"model": "x", "tools": ["read"], "vars": {"gone": 1}}});
        let new = json!({"agent": {"tools": ["read", "exec"], "model": "y", "vars": {}}, "a": 1});
        assert_eq!(
            words(&old, &new),
            [
                r#"agent.model: "x" → "y""#,
                r#"agent.tools: ["read"] → ["read","exec"]"#,
                "agent.vars.gone: 1 → nothing",
            ]
        );
        assert_eq!(words(&old, &old), Vec::<String>::new());
    }

    #[test]
    fn of_a_long_text_the_line_that_differs_is_shown() {
        let old = json!({"prompt": "one\ntwo\nthree\n"});
        let new = json!({"prompt": "one\n2\nthree\n"});
        assert_eq!(words(&old, &new), [r#"prompt line 2: "two" → "2""#]);
        let longer = json!({"prompt": "one\ntwo\nthree\nfour\n"});
        assert_eq!(words(&old, &longer), [r#"prompt line 4: nothing → "four""#]);
    }

    #[test]
    fn a_folder_that_moves_with_the_files_is_no_change() {
        let of = |folder: &str| json!({"agent": {"workdir": format!("{folder}/.."), "prompt_file": "/elsewhere/p.md"}});
        let moved = moved(of("/new/jobs"), Path::new("/new/jobs"), Path::new("/old/jobs"));
        assert_eq!(moved, of("/old/jobs"));
    }
}
