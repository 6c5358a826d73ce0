//! What a skill needs of the machine and of its job, as its `metadata` says.
//!
//! `OpenClaw` writes it as `metadata: {"openclaw": {"os": […], "requires": {"bins": […], "anyBins":
//! […], "env": […]}}}`, or as text that holds that JSON. Ours may stand under `punctual`, or without
//! any such name.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

/// The names under which `metadata` speaks to programs like this one; the first that is there.
const OURS: &[&str] = &["punctual", "openclaw", "clawdbot", "clawdis"];

/// What a skill needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    os: Vec<String>,
    bins: Vec<String>,
    any_bins: Vec<String>,
    env: Vec<String>,
    /// Settings of another program.
    config: Vec<String>,
    /// It says itself that the rest does not matter.
    always: bool,
    for_people_only: bool,
}

/// What there is to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    /// Where programs are, as in `PATH`.
    pub path: String,
    /// The environment variables that are set, for the run and its commands.
    pub variables: BTreeSet<String>,
}

impl World {
    /// As a command with this environment finds it.
    pub fn of(environment: &[(String, String)]) -> Self {
        let set = environment.iter().filter(|(_, value)| !value.is_empty());
        let path = environment.iter().rev().find(|(name, _)| name == "PATH");
        Self {
            path: path.map(|(_, path)| path.clone()).unwrap_or_default(),
            variables: set.map(|(name, _)| name.clone()).collect(),
        }
    }

    fn has_program(&self, name: &str) -> bool {
        let is_program = |path: &Path| {
            let found = std::fs::metadata(path);
            found.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        };
        let folders = self.path.split(':').filter(|folder| folder.starts_with('/'));
        folders.map(Path::new).any(|folder| is_program(&folder.join(name)))
    }
}

impl Needs {
    /// Reads `metadata`; what it says to others is not looked at.
    pub(super) fn read(metadata: &Value) -> Result<Self, String> {
        let Some(all) = metadata.as_object() else {
            return match metadata {
                Value::Null => Ok(Self::default()),
                _ => Err("its `metadata` is not a table".to_owned()),
            };
        };
        let named = OURS.iter().find_map(|name| Some((*name, all.get(*name)?)));
        let (place, ours) = match named {
            Some((name, ours)) => (format!("metadata.{name}"), unpacked(ours, name)?),
            None => ("metadata".to_owned(), metadata.clone()),
        };
        let requires = match &ours["requires"] {
            Value::Null => &Value::Null,
            requires @ Value::Object(_) => requires,
            // Without a name it may be anybody's.
            _ if named.is_none() => &Value::Null,
            _ => return Err(format!("its `{place}.requires` is not a table")),
        };
        let of = |key: &str| names(&requires[key], &format!("{place}.requires.{key}"));
        Ok(Self {
            os: if named.is_none() && !ours["os"].is_array() {
                Vec::new()
            } else {
                names(&ours["os"], &format!("{place}.os"))?
            },
            bins: of("bins")?,
            any_bins: of("anyBins")?,
            env: of("env")?,
            config: of("config")?,
            always: ours["always"] == Value::Bool(true),
            for_people_only: false,
        })
    }

    pub(super) fn is_for_people_only(&mut self) {
        self.for_people_only = true;
    }

    /// What is missing in `world`, in words; `None`: nothing.
    pub fn unmet(&self, world: &World) -> Option<String> {
        if self.for_people_only {
            return Some("it says that no model may use it by itself".to_owned());
        }
        if !self.os.is_empty() && !self.os.iter().any(|os| is_here(os)) {
            return Some(format!("it is for {}, not for {}", self.os.join(", "), here()));
        }
        if self.always {
            return None;
        }
        if let Some(bin) = self.bins.iter().find(|bin| !world.has_program(bin)) {
            return Some(format!("it needs the program `{bin}`, which is not in PATH"));
        }
        if !self.any_bins.is_empty() && !self.any_bins.iter().any(|bin| world.has_program(bin)) {
            let all = self.any_bins.join("`, `");
            return Some(format!("it needs one of the programs `{all}`, and none is in PATH"));
        }
        if let Some(name) = self.env.iter().find(|name| !world.variables.contains(*name)) {
            return Some(format!(
                "it needs the variable `{name}`, which the job's environment does not have"
            ));
        }
        let setting = self.config.first()?;
        Some(format!("it needs the setting `{setting}` of another program"))
    }

    /// What it asks for, in words for whoever installs it.
    pub fn in_words(&self) -> Vec<String> {
        let programs = self.bins.iter().chain(&self.any_bins);
        let mut words: Vec<_> = programs.map(|bin| format!("needs the program `{bin}`")).collect();
        words.extend(self.env.iter().map(|name| format!("needs the variable `{name}`")));
        words
    }
}

/// A table, also as text that holds JSON: Agent Skills has texts only.
fn unpacked(value: &Value, name: &str) -> Result<Value, String> {
    let wrong = || format!("its `metadata.{name}` is not a table");
    let table = match value {
        Value::String(text) => serde_json::from_str(text).map_err(|_| wrong())?,
        other => other.clone(),
    };
    if table.is_object() { Ok(table) } else { Err(wrong()) }
}

/// A list of names, or one.
fn names(value: &Value, place: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("its `{place}` is not a list of names");
    let all = match value {
        Value::Null => return Ok(Vec::new()),
        one @ Value::String(_) => std::slice::from_ref(one),
        Value::Array(all) => all,
        _ => return Err(wrong()),
    };
    let name = |value: &Value| {
        let name = value.as_str()?.trim();
        let is_one = !name.is_empty() && !name.contains(['/', '=']) && name.len() <= 128;
        (is_one && !name.contains(char::is_control)).then(|| name.to_owned())
    };
    all.iter().map(|value| name(value).ok_or_else(wrong)).collect()
}

/// This system, as skills call it.
fn here() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

fn is_here(os: &str) -> bool {
    os == here() || os == std::env::consts::OS
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn world() -> World {
        World::of(&[
            ("PATH".into(), "/nowhere:relative:/bin:/usr/bin".into()),
            ("TOKEN".into(), "x".into()),
            ("EMPTY".into(), String::new()),
        ])
    }

    fn unmet(metadata: &Value) -> Option<String> {
        Needs::read(metadata).unwrap().unmet(&world())
    }

    #[test]
    fn what_is_missing_is_said_by_name() {
        let of = |ours: Value| unmet(&json!({ "openclaw": ours }));
        assert_eq!(of(json!({"requires": {"bins": ["sh"], "env": ["TOKEN"]}})), None);
        assert_eq!(of(json!({"os": ["darwin", "linux"], "emoji": "x", "install": [1]})), None);
        let table = [
            (json!({"os": ["win32"]}), "it is for win32, not for linux"),
            (json!({"os": "darwin"}), "it is for darwin, not for linux"),
            (json!({"requires": {"bins": ["sh", "no-such"]}}), "the program `no-such`"),
            (
                json!({"requires": {"anyBins": ["no-a", "no-b"]}}),
                "one of the programs `no-a`, `no-b`",
            ),
            (json!({"requires": {"env": ["EMPTY"]}}), "the variable `EMPTY`"),
            (json!({"requires": {"config": ["browser.enabled"]}}), "the setting `browser.enabled`"),
            (json!({"always": true, "os": ["win32"]}), "it is for win32"),
        ];
        for (ours, words) in table {
            let why = of(ours.clone()).unwrap_or_default();
            assert!(why.contains(words), "{why} of {ours}");
        }
        assert_eq!(of(json!({"always": true, "requires": {"bins": ["no-such"]}})), None);
        assert_eq!(of(json!({"requires": {"anyBins": ["no-a", "sh"]}})), None);
    }

    #[test]
    fn it_may_stand_under_several_names_or_none_or_as_text() {
        let requires = json!({"requires": {"bins": ["no-such"]}});
        for name in OURS {
            assert!(unmet(&json!({ *name: requires })).is_some(), "{name}");
        }
        assert!(unmet(&json!({"openclaw": requires.to_string()})).is_some());
        assert!(unmet(&requires).is_some());
        // The first speaks to us.
        assert_eq!(unmet(&json!({"punctual": {}, "openclaw": requires})), None);
        // What nobody said to us may be anything.
        assert_eq!(unmet(&json!({"requires": "python 3", "os": "any", "author": "x"})), None);
    }

    #[test]
    fn wrong_types_are_a_reason() {
        for metadata in [
            json!([1]),
            json!({"openclaw": "not json"}),
            json!({"openclaw": ["x"]}),
            json!({"openclaw": {"os": 3}}),
            json!({"openclaw": {"requires": ["x"]}}),
            json!({"openclaw": {"requires": {"bins": {"a": 1}}}}),
            json!({"openclaw": {"requires": {"bins": ["../x"]}}}),
            json!({"openclaw": {"requires": {"env": ["A=B"]}}}),
        ] {
            assert!(Needs::read(&metadata).is_err(), "{metadata}");
        }
    }
}
