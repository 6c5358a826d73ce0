//! A definition as it holds: defaults applied, names resolved, secrets by name only.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::id::JobId;
use super::keys::{Key, Kind, Support, json};
use super::parse::Read;
use super::read_ping;
use super::spec::{Does, JobSpec, Prompt, Workdir};
use super::table::JOB;
use super::tree::Node;

/// What `show --effective` prints of a job.
pub(super) fn definition(node: &Node, matrix: &BTreeMap<String, String>, read: &Read) -> Value {
    let mut definition = with_defaults(Some(node), JOB);
    let mut put = |table: &str, key: &str, value: Value| {
        if let Some(Value::Object(table)) = definition.get_mut(table) {
            table.insert(key.to_owned(), value);
        }
    };
    if let Some(spec) = &read.schedule {
        put("schedule", "timezone", spec.zone.name().into());
        // The dates themselves: another content of a calendar is another definition.
        let excluded = spec.schedule.excluded().map(|range| range.to_string());
        put("schedule", "exclude", excluded.collect());
    }
    // A ceiling bounds what nobody wrote.
    put("limits", "max_tokens", read.limits.max_tokens.into());
    if let Some(usd) = read.limits.max_usd {
        put("limits", "max_usd", usd.dollars().into());
    }
    let workdir = match &read.workdir {
        Workdir::Fresh => None,
        Workdir::Existing(path) => Some(path.display().to_string()),
    };
    match &read.does {
        Does::Agent(agent) => {
            put("agent", "tools", agent.tools.clone().into());
            put("agent", "sandbox", agent.sandbox.mode.as_str().into());
            put("agent", "sandbox_read", shown(&agent.sandbox.read));
            put("agent", "sandbox_write", shown(&agent.sandbox.write));
            put("agent", "network", agent.sandbox.network.as_str().into());
            put("agent", "model", agent.model.to_string().into());
            put("agent", "fallbacks", agent.fallbacks.iter().map(ToString::to_string).collect());
            for (key, value) in agent.manner.entries() {
                put("agent", key, value);
            }
            if let Prompt::File(path) = &agent.prompt {
                put("agent", "prompt_file", path.display().to_string().into());
            }
            if let Some(workdir) = workdir {
                put("agent", "workdir", workdir.into());
            }
        }
        Does::Command(command) => {
            put("command", "argv", command.argv.clone().into());
            if let Some(workdir) = workdir {
                put("command", "workdir", workdir.into());
            }
        }
    }
    if let Some(gate) = &read.gate {
        put("gate", "command", gate.argv.clone().into());
    }
    if let Some((key, value)) = read.ping.as_ref().and_then(read_ping::by_name) {
        put("ping", key, value);
    }
    let secrets: Map<_, _> =
        read.env.secret.iter().map(|(name, source)| (name.clone(), source.to_json())).collect();
    put("env", "secret", secrets.into());
    if !matrix.is_empty() {
        let of = matrix.iter().map(|(key, value)| (key.clone(), value.clone().into()));
        definition.insert("matrix".to_owned(), Value::Object(of.collect()));
    }
    if matches!(read.does, Does::Command(_)) {
        // What the configuration says of model turns is nothing to a command.
        definition.remove("agent");
    }
    Value::Object(definition)
}

fn shown(paths: &[std::path::PathBuf]) -> Value {
    paths.iter().map(|path| path.display().to_string()).collect()
}

/// SHA-256 of a job's definition, in hex. Two jobs that say the same are two definitions: each has
/// its own history.
pub(super) fn hash(id: &JobId, definition: &Value) -> String {
    // Whether a value was written or is a default must not matter, nor where it was inserted.
    let mut sorted = definition.clone();
    sorted.sort_all_objects();
    hex(&Sha256::digest(format!("{id}\n{sorted}")))
}

/// SHA-256 over all definitions, in hex: two sets of files with the same one mean the same.
pub fn digest<'a>(jobs: impl IntoIterator<Item = &'a JobSpec>) -> String {
    let mut all = Sha256::new();
    for job in jobs {
        all.update(job.id.as_str());
        all.update(&job.definition_hash);
    }
    hex(&all.finalize())
}

/// The keys that say when a job is due; the others say what to do about it.
const TIMING: [&str; 10] = [
    "cron",
    "every",
    "at",
    "timezone",
    "jitter",
    "start_at",
    "end_at",
    "exclude",
    "dst_gap",
    "dst_overlap",
];

/// What of a definition says when the job is due, as JSON: another text is another schedule.
pub(super) fn timing(definition: &Value) -> String {
    let schedule = definition.get("schedule");
    let value = |key: &&str| Some(((*key).to_owned(), schedule?.get(key)?.clone()));
    let mut timing: Map<_, _> = TIMING.iter().filter_map(value).collect();
    // What comes after others is due when they are.
    timing.extend(definition.get("after").map(|after| ("after".to_owned(), after.clone())));
    Value::Object(timing).to_string()
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(64), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("writing to a string cannot fail");
        hex
    })
}

fn with_defaults(node: Option<&Node>, keys: &'static [Key]) -> Map<String, Value> {
    let mut out = Map::new();
    for key in keys.iter().filter(|key| key.support != Support::Later) {
        let own = node.and_then(|node| node.get(key.name));
        let value = match (&key.kind, own) {
            (Kind::Table(_), None) if key.default.is_empty() => continue,
            (Kind::Table(inner), own) => Value::Object(with_defaults(own, inner)),
            (kind, Some(own)) => json(own, kind),
            (_, None) if key.default.is_empty() => continue,
            (_, None) => serde_json::from_str(key.default).expect("the key table holds JSON"),
        };
        out.insert(key.name.to_owned(), value);
    }
    out
}
