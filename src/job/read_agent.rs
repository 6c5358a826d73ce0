//! `[agent]`: what to say to which model with which tools, and where.

use std::time::Duration;

use super::ceilings::{Only, refusal_of_pattern, refusal_of_tool, usual_tools};
use super::file::read_text;
use super::keys::did_you_mean;
use super::parse::{Part, Reader};
use super::prompt;
use super::read_mcp::mcp;
use super::read_sandbox;
use super::read_skills;
use super::session::SessionChoice;
use super::source::Source;
use super::spec::{AgentSpec, ContextFiles, Escalate, Limits, ModelRef, Prompt, RunTimeout};
use super::tree::Item;

/// The tools that a job may name.
pub(crate) const TOOLS: &[&str] =
    &["read", "write", "edit", "list", "grep", "exec", "http_get", "message", "history", "subturn"];
/// Those of a job that names none: they change nothing.
pub(crate) const DEFAULT_TOOLS: &[&str] = &["read", "list", "grep"];
/// A longer prompt file is not a prompt.
const PROMPT_BYTES_MAX: u64 = 1024 * 1024;

pub(super) fn agent(reader: &mut Reader<'_>, limits: &Limits) -> Option<AgentSpec> {
    if reader.node.get("agent").is_some_and(|agent| matches!(agent.item, Item::Refused)) {
        return None;
    }
    let prompt = prompt(reader);
    let model = model(reader, limits);
    let fallbacks = fallbacks(reader, model.as_ref(), limits);
    prices(reader, model.iter().chain(&fallbacks), limits);
    let tools = tools(reader);
    let exec_allow = exec_allow(reader, &tools);
    let mcp = mcp(reader);
    let sandbox = Box::new(read_sandbox::sandbox(reader));
    let vars = reader.node.text_map("agent.vars");
    let session = session(reader);
    let escalate = escalate(reader, &fallbacks);
    let skills = read_skills::names(reader);
    let context = match reader.node.bool("agent.light_context") {
        Some(true) => ContextFiles::LeftOut,
        Some(false) | None => ContextFiles::Told,
    };
    let manner = reader.around.manner.read(reader.node, "agent");
    let (prompt, model) = (prompt?, model?);
    Some(AgentSpec {
        prompt,
        vars,
        model,
        fallbacks,
        manner,
        tools,
        exec_allow,
        mcp,
        sandbox,
        session,
        escalate,
        skills,
        context,
    })
}

fn prompt(reader: &mut Reader<'_>) -> Option<Prompt> {
    let node = reader.node;
    match (node.get("agent.prompt"), node.get("agent.prompt_file")) {
        (Some(_), Some(_)) => {
            let help = "keep one of them".to_owned();
            reader.refuse("agent.prompt_file", "both `prompt` and `prompt_file` are given", help);
            None
        }
        (None, None) => {
            if reader.part == Part::Job {
                let help = "write `prompt` or `prompt_file` in [agent]".to_owned();
                reader.refuse("agent.prompt", "there is no prompt", help);
            }
            None
        }
        (Some(place), None) => {
            let text = place.as_text()?;
            if text.trim().is_empty() {
                reader.refuse("agent.prompt", "the prompt is empty", None);
            }
            let start = place.source.content_start(&place.span, text);
            let written =
                prompt::Written { source: &place.source, span: place.span.clone(), start };
            check_prompt(reader, "agent.prompt", text, &written);
            Some(Prompt::Inline(text.to_owned()))
        }
        (None, Some(_)) => {
            let path = node.path("agent.prompt_file")?;
            prompt_file(reader, &path);
            Some(Prompt::File(path))
        }
    }
}

fn check_prompt(reader: &mut Reader<'_>, key: &str, text: &str, written: &prompt::Written<'_>) {
    let vars = reader.node.text_map("agent.vars");
    let has_gate = reader.node.get("gate").is_some();
    let of = prompt::Of { key, vars: &vars, has_gate, matrix: reader.matrix };
    let mentions = prompt::check(text, written, of, &mut reader.problems);
    reader.mentions.extend(mentions);
}

fn prompt_file(reader: &mut Reader<'_>, path: &std::path::Path) {
    let key = "agent.prompt_file";
    let text =
        read_text(path, PROMPT_BYTES_MAX).map_err(|error| format!("cannot be read: {error}"));
    match text {
        Ok(text) if text.trim().is_empty() => {
            reader.refuse(key, format!("the prompt file `{}` is empty", path.display()), None);
        }
        Ok(text) => {
            let source = Source::new(path, &text);
            let written = prompt::Written { source: &source, span: 0..text.len(), start: Some(0) };
            check_prompt(reader, key, &text, &written);
        }
        Err(why) => {
            reader.refuse(key, format!("the prompt file `{}` {why}", path.display()), None);
        }
    }
}

fn model(reader: &mut Reader<'_>, limits: &Limits) -> Option<ModelRef> {
    let key = "agent.model";
    let model = match reader.node.get(key) {
        Some(node) => match reader.around.models.resolve(node.as_text()?) {
            Ok(model) => model,
            Err(unresolved) => {
                reader.refuse(key, unresolved.message, unresolved.help);
                return None;
            }
        },
        None if reader.part == Part::Defaults => return None,
        None => {
            let Some(model) = reader.around.models.default_model() else {
                let help = "write `model` in [agent], or [agents.defaults] in config.toml";
                reader.refuse(key, "there is no model", help.to_owned());
                return None;
            };
            model
        }
    };
    model_needs(reader, &model, key, limits);
    Some(model)
}

/// The job's own list, or the configuration's; a model does not fall back on itself.
fn fallbacks(reader: &mut Reader<'_>, model: Option<&ModelRef>, limits: &Limits) -> Vec<ModelRef> {
    let key = "agent.fallbacks";
    let Some(written) = reader.node.texts(key) else {
        if reader.part == Part::Defaults || reader.node.get(key).is_some() {
            return Vec::new();
        }
        let inherited = reader.around.models.default_fallbacks().to_vec();
        return checked(reader, inherited, model, limits);
    };
    let mut fallbacks = Vec::new();
    for (name, node) in written {
        match reader.around.models.resolve(name) {
            Ok(fallback) if fallbacks.contains(&fallback) => {
                let message = format!("the model `{name}` is named twice");
                reader.problems.push(node.error(key, message));
            }
            Ok(fallback) => fallbacks.push(fallback),
            Err(unresolved) => {
                let problem = node.error(key, unresolved.message).with_help(unresolved.help);
                reader.problems.push(problem);
            }
        }
    }
    let is_own = reader.node.get(key).is_some_and(|node| node.source == reader.node.source);
    if is_own && model.is_some_and(|model| fallbacks.contains(model)) {
        reader.warn(key, "the model itself is among its fallbacks: that one is left out");
    }
    checked(reader, fallbacks, model, limits)
}

/// `fallbacks` without `model`, their providers' needs looked at once each.
fn checked(
    reader: &mut Reader<'_>,
    mut fallbacks: Vec<ModelRef>,
    model: Option<&ModelRef>,
    limits: &Limits,
) -> Vec<ModelRef> {
    fallbacks.retain(|fallback| Some(fallback) != model);
    let mut seen: Vec<&str> = model.map(|model| model.provider.as_str()).into_iter().collect();
    for fallback in &fallbacks {
        if !seen.contains(&fallback.provider.as_str()) {
            seen.push(&fallback.provider);
            model_needs(reader, fallback, "agent.fallbacks", limits);
        }
    }
    fallbacks
}

/// What the provider of `model`, which stands at `key`, asks of a run.
fn model_needs(reader: &mut Reader<'_>, model: &ModelRef, key: &str, limits: &Limits) {
    let needs = reader.around.models.needs(model);
    // Which keys are missing is each job's own affair, not the configuration's.
    if let Some(problem) = needs.key_problem.filter(|_| reader.part == Part::Job) {
        reader.refuse(key, format!("the key of `{}`: {problem}", model.provider), None);
    }
    let (limit, name) = match limits.timeout {
        RunTimeout::Unlimited => return,
        RunTimeout::After(limit) => (limit, "the run's own limit"),
        RunTimeout::Unset if reader.part == Part::Defaults => return,
        RunTimeout::Unset => (reader.around.run_ceiling, "the limit of a run without `timeout`"),
    };
    for (timeout_key, timeout) in needs.timeouts.into_iter().filter(|(_, it)| *it > limit) {
        let message = format!(
            "`{timeout_key}` of the provider `{}` is {}, above {name}, {}: it can never be reached",
            model.provider,
            shown(timeout),
            shown(limit)
        );
        let is_written = reader.node.get("limits.timeout").is_some();
        reader.warn(if is_written { "limits.timeout" } else { key }, message);
    }
}

/// What costs an unknown amount cannot be bounded.
fn prices<'a>(
    reader: &mut Reader<'_>,
    models: impl Iterator<Item = &'a ModelRef>,
    limits: &Limits,
) {
    if reader.part == Part::Defaults {
        return;
    }
    let is_written = |key: &&&str| reader.node.get(key).is_some();
    let bounds = ["limits.max_usd", "limits.max_usd_per_day"];
    let written: Vec<_> = bounds.iter().filter(is_written).copied().collect();
    for model in models.filter(|model| !reader.around.models.has_price(model)) {
        let ModelRef { provider, model: name } = model;
        let help = format!(
            "say what it costs in config.toml: [models.providers.{provider}.models.\"{name}\"] \
             price = {{ input = …, output = … }}, 0.0 for what is free"
        );
        let why = format!("`{model}` has no price: what it costs cannot be bounded");
        for key in &written {
            reader.refuse(key, why.clone(), help.clone());
        }
        if written.is_empty() && limits.max_usd.is_some() {
            reader.refuse("agent.model", format!("{why} ([ceilings] max_usd)"), help);
        } else if written.is_empty() && reader.around.max_usd_per_day.is_some() {
            let why = "what it costs does not count against [budget] max_usd_per_day";
            reader.warn("agent.model", format!("`{model}` has no price: {why}"));
        }
    }
}

fn shown(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

fn tools(reader: &mut Reader<'_>) -> Vec<String> {
    let Some(written) = reader.node.texts("agent.tools") else {
        return usual_tools(reader, DEFAULT_TOOLS);
    };
    let mut tools: Vec<String> = Vec::new();
    for (tool, node) in written {
        let refusal = if !TOOLS.contains(&tool) {
            let help = did_you_mean(tool, TOOLS.iter().copied())
                .unwrap_or_else(|| format!("there are {}", TOOLS.join(", ")));
            Some((format!("there is no tool `{tool}`"), Some(help)))
        } else if tools.iter().any(|known| known == tool) {
            Some((format!("the tool `{tool}` is named twice"), None))
        } else if let Some((message, help)) = refusal_of_tool(reader, tool) {
            Some((message, Some(help)))
        } else {
            None
        };
        match refusal {
            Some((message, help)) => {
                reader.problems.push(node.error("agent.tools", message).with_help(help));
            }
            None => tools.push(tool.to_owned()),
        }
    }
    tools
}

fn session(reader: &mut Reader<'_>) -> SessionChoice {
    let key = "agent.session";
    match reader.node.text(key) {
        None | Some("isolated") => SessionChoice::Isolated,
        Some("job") => SessionChoice::Job,
        Some(text) => match text.strip_prefix("session:").unwrap_or(text).parse() {
            Ok(named) => SessionChoice::Named(named),
            Err(why) => {
                reader.refuse(key, why, None);
                SessionChoice::Isolated
            }
        },
    }
}

fn escalate(reader: &mut Reader<'_>, fallbacks: &[ModelRef]) -> Escalate {
    let key = "agent.escalate_on";
    if reader.node.text(key).is_none() {
        return Escalate::Never;
    }
    if fallbacks.is_empty() && reader.part == Part::Job {
        reader.warn(key, "there are no `fallbacks`, so there is no model to go on with");
    }
    Escalate::OnCheckFailed
}

fn exec_allow(reader: &mut Reader<'_>, tools: &[String]) -> Vec<String> {
    let offered = tools.iter().any(|tool| tool == "exec");
    let written = reader.node.texts("agent.exec_allow").unwrap_or_default();
    for (pattern, node) in &written {
        if pattern.trim().is_empty() {
            reader.problems.push(node.error("agent.exec_allow", "a pattern cannot be empty"));
            continue;
        }
        let is_only = if written.len() == 1 { Only::Yes } else { Only::No };
        if let Some((message, help)) = refusal_of_pattern(reader, pattern, is_only) {
            let problem = node.error("agent.exec_allow", message).with_help(help);
            reader.problems.push(problem);
        }
    }
    let of_this_file = |path: &str| {
        let place = reader.node.get(path).map(|node| &node.source);
        place.is_some_and(|source| *source == reader.node.source)
    };
    if offered && written.is_empty() && of_this_file("agent.tools") {
        reader.warn("agent.tools", "`exec` without `exec_allow`: every command will be denied");
    } else if !offered && !written.is_empty() && of_this_file("agent.exec_allow") {
        reader.warn("agent.exec_allow", "`exec` is not among `tools`: this allows nothing");
    }
    written.into_iter().map(|(pattern, _)| pattern.to_owned()).collect()
}
