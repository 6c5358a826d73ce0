//! Files → checked [`Config`], or every problem in them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::calendars::{calendar_files, calendars};
use super::diagnostics::{diagnostics, session_lock_timeout, warn_of_long_windows};
use super::heartbeat::heartbeat;
use super::hooks::hooks;
use super::mcp::{McpServer, mcp_servers};
use super::providers::{Directory, directory};
use super::queue::queue;
use super::skills::{skills, skills_env};
use super::sources::Sources;
use super::table::CONFIG;
use super::targets::targets;
use super::{AgentDefaults, AgentTimeout, Config, Retention, Scheduler};
use crate::job::source::Source;
use crate::job::tree::{self, Node};
use crate::job::{
    Ceilings, Defaults, FILE_BYTES_MAX, MCP_MARK, Manner, ModelRef, Problem, TOOLS, Usd, keys,
    read_bytes, sort_problems, with_sources,
};
use crate::schedule::{Zone, ZoneChoice, Zones};

/// Reads the configuration. The warnings come with it.
pub fn load(sources: &Sources) -> Result<(Config, Vec<Problem>), Vec<Problem>> {
    let mut problems = Vec::new();
    let files = sources.files();
    let root = merged(&files, sources, &mut problems);
    let config = root.and_then(|root| read(&root, files, sources, &mut problems));
    sort_problems(&mut problems);
    match config {
        Some(config) if !problems.iter().any(Problem::is_error) => Ok((config, problems)),
        _ => Err(problems),
    }
}

/// The state folder, as far as it can be known when the configuration cannot be used: a process
/// that runs there has to be reached all the same.
pub fn state_dir(sources: &Sources) -> PathBuf {
    let of_file = |file: &PathBuf| {
        let source = Source::new(file, &read_text(file).ok()?);
        let mut broken = Vec::new();
        let mut node = tree::parse(&source, &mut broken);
        keys::check(&mut node, CONFIG, &mut Vec::new());
        broken.is_empty().then(|| node.path("state_dir")).flatten()
    };
    let configured = sources.files().iter().rev().find_map(of_file);
    sources.state_dir(configured)
}

/// All files laid upon each other; `None` when one of them has no sound text.
fn merged(files: &[PathBuf], sources: &Sources, problems: &mut Vec<Problem>) -> Option<Node> {
    let built_in = Source::new(&sources.absolute(Path::new("config.toml")), "");
    let mut root = Some(Node::empty(&built_in));
    for file in files {
        match read_text(file) {
            Ok(text) => {
                let source = Source::new(file, &text);
                let own = one_file(&source, problems);
                root = root.zip(own).map(|(root, own)| root.merged(own));
            }
            Err(problem) => {
                problems.push(*problem);
                root = None;
            }
        }
    }
    root
}

fn one_file(source: &Arc<Source>, problems: &mut Vec<Problem>) -> Option<Node> {
    let mut broken = Vec::new();
    let mut node = tree::parse(source, &mut broken);
    let mut found = Vec::new();
    keys::check(&mut node, CONFIG, &mut found);
    found.retain(|problem| !broken.iter().any(|syntax: &Problem| syntax.line == problem.line));
    let is_sound = broken.is_empty();
    problems.append(&mut broken);
    problems.append(&mut found);
    is_sound.then_some(node)
}

/// The text of a file, or why there is none.
pub(super) fn read_text(file: &Path) -> Result<String, Box<Problem>> {
    let refused = |why: String| Box::new(Problem::of_file(file, why));
    let unreadable = |error| refused(format!("cannot read this file: {error}"));
    let bytes = read_bytes(file, FILE_BYTES_MAX).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|error| {
        let sound = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        let message = "this is not UTF-8 text";
        let source = Source::new(file, &text);
        Box::new(source.error(sound..sound + 1, None, message))
    })
}

fn read(
    root: &Node,
    files: Vec<PathBuf>,
    sources: &Sources,
    problems: &mut Vec<Problem>,
) -> Option<Config> {
    let zones = zones(root, problems);
    let timezone = zones.as_ref().and_then(|zones| timezone(root, zones, problems));
    let directory = directory(root, problems);
    let targets = targets(root, problems);
    let heartbeat = heartbeat(root, &sources.environment, problems);
    let hooks = hooks(root, problems);
    let agent = agent_defaults(root, &directory, problems);
    let diagnostics = diagnostics(root, problems);
    warn_of_long_windows(root, directory.providers.keys(), diagnostics, problems);
    let defaults = root.get("defaults").cloned().map(Defaults::new).unwrap_or_default();
    let mcp = mcp_servers(root, problems);
    let ceilings = ceilings(root, &mcp, problems);
    let jobs_dir = root.path("jobs_dir").unwrap_or_else(|| root.source.folder().join("jobs"));
    let state_dir = sources.state_dir(root.path("state_dir"));
    let mut config = Config {
        files,
        jobs_dir,
        skills: skills(root, &state_dir),
        state_dir,
        zones: zones?,
        timezone: timezone?,
        scheduler: scheduler(root),
        lanes: lanes(root),
        calendars: calendars(root, problems),
        calendar_files: calendar_files(root).into_iter().map(|(_, path, _)| path).collect(),
        agent,
        queue: queue(root),
        session_lock_timeout: session_lock_timeout(root, &sources.environment, problems),
        diagnostics,
        ceilings,
        max_usd_per_day: root.float("budget.max_usd_per_day").map(Usd::from_dollars),
        retention: Retention {
            runs: root.integer("retention.runs"),
            days: root.integer("retention.days"),
        },
        targets,
        mcp,
        heartbeat,
        hooks,
        allow_hosts: allow_hosts(root),
        directory,
        defaults,
        environment: sources.environment.clone(),
        sources: sources.clone(),
    };
    let of_defaults = config.with_surroundings(|around| config.defaults.problems(around));
    problems.extend(of_defaults);
    config.skills.env = config.with_surroundings(|around| skills_env(root, around, problems));
    Some(config)
}

fn ceilings(
    root: &Node,
    mcp: &BTreeMap<String, McpServer>,
    problems: &mut Vec<Problem>,
) -> Ceilings {
    let key = "ceilings.tools";
    for (tool, place) in root.texts(key).unwrap_or_default() {
        let is_of_a_server =
            tool.split_once(MCP_MARK).is_some_and(|(server, _)| mcp.contains_key(server));
        if !TOOLS.contains(&tool) && !is_of_a_server {
            let help = keys::did_you_mean(tool, TOOLS.iter().copied())
                .unwrap_or_else(|| format!("there are {}", TOOLS.join(", ")));
            let problem = place.error(key, format!("there is no tool `{tool}`"));
            problems.push(problem.with_help(help));
        }
    }
    Ceilings::read(root)
}

fn zones(root: &Node, problems: &mut Vec<Problem>) -> Option<Zones> {
    let key = "timezone_database";
    let choice = root.text(key).and_then(|word| word.parse().ok()).unwrap_or(ZoneChoice::Newest);
    let error = match Zones::open(choice) {
        Ok(zones) => return Some(zones),
        Err(error) => error,
    };
    let place = root.get(key).unwrap_or(root);
    problems.push(place.error(key, with_sources(&error)).with_help(error.help()));
    None
}

fn timezone(root: &Node, zones: &Zones, problems: &mut Vec<Problem>) -> Option<Zone> {
    let Some(place) = root.get("timezone") else { return Some(Zone::utc()) };
    match zones.get(place.as_text()?) {
        Ok(zone) => Some(zone),
        Err(error) => {
            let problem = place.error("timezone", with_sources(&error));
            problems.push(problem.with_help(error.help()));
            None
        }
    }
}

fn scheduler(root: &Node) -> Scheduler {
    let usual = Scheduler::default();
    let duration =
        |key: &str, usual: Duration| root.duration(&format!("scheduler.{key}")).unwrap_or(usual);
    let lane = root.integer::<usize>("scheduler.max_concurrent_runs");
    Scheduler {
        max_concurrent_runs: lane.map_or(usual.max_concurrent_runs, NonZeroUsize::new),
        shutdown_grace: duration("shutdown_grace", usual.shutdown_grace),
        cleanup_timeout: duration("cleanup_timeout", usual.cleanup_timeout),
        setup_timeout: duration("setup_timeout", usual.setup_timeout),
        reload: root
            .text("scheduler.reload")
            .and_then(|word| word.parse().ok())
            .unwrap_or(usual.reload),
    }
}

fn lanes(root: &Node) -> BTreeMap<String, NonZeroUsize> {
    let Some(lanes) = root.get("lanes") else { return BTreeMap::new() };
    let names = lanes.table().into_iter().flatten().map(|(name, _)| name);
    let width = |name: &String| {
        let node = lanes.table()?.get(name)?;
        let crate::job::tree::Item::Integer(width) = node.node.item else { return None };
        NonZeroUsize::new(usize::try_from(width).ok()?)
    };
    names.filter_map(|name| Some((name.clone(), width(name)?))).collect()
}

fn allow_hosts(root: &Node) -> Vec<String> {
    let hosts = root.texts("security.allow_hosts").unwrap_or_default();
    hosts.into_iter().map(|(host, _)| host.trim().to_ascii_lowercase()).collect()
}

fn agent_defaults(root: &Node, models: &Directory, problems: &mut Vec<Problem>) -> AgentDefaults {
    let key = "agents.defaults.model";
    let model = root.get(key).and_then(|place| models.resolve_at(place, key, problems));
    let fallbacks = fallbacks(root, models, problems);
    let timeout = match root.duration("agents.defaults.timeout") {
        None => AgentTimeout::Default48h,
        Some(Duration::ZERO) => AgentTimeout::Unlimited,
        Some(limit) => AgentTimeout::Configured(limit),
    };
    let manner = Manner::default().read(root, "agents.defaults");
    AgentDefaults { model, fallbacks, timeout, manner }
}

fn fallbacks(root: &Node, models: &Directory, problems: &mut Vec<Problem>) -> Vec<ModelRef> {
    let key = "agents.defaults.fallbacks";
    let mut fallbacks = Vec::new();
    for (name, place) in root.texts(key).unwrap_or_default() {
        match models.resolve_at(place, key, problems) {
            Some(model) if fallbacks.contains(&model) => {
                problems.push(place.error(key, format!("the model `{name}` is named twice")));
            }
            Some(model) => fallbacks.push(model),
            None => {}
        }
    }
    fallbacks
}
