//! What a model is told at the beginning of a run: what is read for it, and what is kept of it.
//!
//! [`preview`] reads the same and puts it together with the same code, for whoever wants to see it
//! without a run.

use std::path::PathBuf;
use std::sync::Arc;

use super::holdings::Holdings;
use super::known::{self, with_gate};
use super::models::Models;
use super::prepare::{Words, read_prompt, rendered};
use super::run::{Executor, Ticket};
use super::stop::{Stop, invalid};
use crate::cassette::Deck;
use crate::config::Config;
use crate::job::{AgentSpec, AskedFor, ContextFiles, JobSpec, Masker, Prompt, Workdir};
use crate::provider::ToolDefinition;
use crate::run::{ErrorKind, Failure, RunId};
use crate::skill::{Snapshot, snapshot};
use crate::store::Reader;
use crate::tools::{ToolContext, ToolSet, Workspace};
use crate::turn::{
    Assembled, Material, Overrides, Part, PartKind, PartReport, Tools, Variables, assemble, base,
    base_of_message, read_bootstrap,
};

/// The skills of a run, and the folders that are read for them.
#[derive(Debug, Default)]
pub(super) struct Skills {
    snapshot: Snapshot,
    pub(super) folders: Vec<PathBuf>,
}

impl Executor {
    /// Looks at the skills of the job, once.
    pub(super) async fn look_at_skills(
        &self,
        ticket: &Ticket,
        agent: &AgentSpec,
    ) -> Result<Skills, Stop> {
        // What a run was told when it was recorded is on the cassette.
        if agent.skills.is_empty() || self.deck.as_ref().is_some_and(Deck::tells_material) {
            return Ok(Skills::default());
        }
        let (config, spec) = (Arc::clone(&self.config), Arc::clone(&ticket.spec));
        let names = agent.skills.clone();
        let look = tokio::task::spawn_blocking(move || skills(&config, &spec, &names)).await;
        Ok(look.unwrap_or_else(|error| Err(internal(&error.to_string())))?)
    }

    /// What was read for the prompt: the skills, and the files that are read now.
    pub(super) async fn material(
        &self,
        ticket: &Ticket,
        agent: &AgentSpec,
        skills: Skills,
        context: &ToolContext,
        holdings: &Holdings,
    ) -> Result<Material, Stop> {
        if let Some(material) = self.deck.as_ref().and_then(Deck::material) {
            return Ok(material);
        }
        let workspace = Arc::clone(&context.workspace);
        let files = agent.context;
        let read = tokio::task::spawn_blocking(move || bootstrap(&workspace, files)).await;
        let bootstrap = read.map_err(|error| internal(&error.to_string()))?;
        let bootstrap = match files {
            ContextFiles::Told => self.bootstrap_of_hooks(ticket, bootstrap, holdings).await,
            ContextFiles::LeftOut => bootstrap,
        };
        let material = masked(Material { skills: skills.snapshot, bootstrap }, &holdings.masker);
        if let Some(deck) = &self.deck {
            deck.read(material.clone());
        }
        Ok(material)
    }

    /// Notes the parts of the prompt and its tools; nothing waits for the disk.
    pub(super) async fn note_prompt(
        &self,
        run_id: &RunId,
        assembled: &Assembled,
        tools: &[ToolDefinition],
    ) -> Result<(), Stop> {
        Ok(self.store.note_prompt(run_id, report(assembled, tools)).await?)
    }
}

fn internal(words: &str) -> Failure {
    Failure::new(ErrorKind::Internal, words)
}

fn skills(config: &Config, spec: &JobSpec, names: &[String]) -> Result<Skills, Failure> {
    let env = config.skills.env_with(&spec.env, names);
    let world = config.skills.world(&env, &config.environment);
    let shelves = config.skills.shelves(&spec.workdir);
    let found = snapshot(names, &shelves, &world);
    let (snapshot, folders) = found.map_err(|error| invalid(error.to_string()))?;
    Ok(Skills { snapshot, folders })
}

fn bootstrap(workspace: &Workspace, files: ContextFiles) -> Vec<crate::turn::BootstrapFile> {
    match files {
        ContextFiles::Told => read_bootstrap(workspace),
        ContextFiles::LeftOut => Vec::new(),
    }
}

/// It goes to a model, as what a tool says does.
fn masked(mut material: Material, masker: &Masker) -> Material {
    let hide = |text: &mut String| *text = masker.mask(text).into_owned();
    material.bootstrap.iter_mut().map(|file| &mut file.text).for_each(hide);
    material.skills.offered.iter_mut().map(|skill| &mut skill.description).for_each(hide);
    material
}

/// What is kept of a prompt: of each part how long it is, never its text.
fn report(assembled: &Assembled, tools: &[ToolDefinition]) -> Vec<PartReport> {
    let mut report: Vec<_> = assembled.parts().map(Part::report).collect();
    if !tools.is_empty() {
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let mut text = String::new();
        for tool in tools {
            text += &tool.name;
            text += &tool.description;
            text += &tool.parameters.to_string();
        }
        report.push(Part::new(PartKind::Tools, text).named(names.join(", ")).report());
    }
    report
}

/// The base of a job's prompt.
pub(super) fn base_of(spec: &JobSpec, agent: &AgentSpec) -> String {
    let has_tools = if agent.has_tools() { Tools::Some } else { Tools::None };
    if spec.id.is_ad_hoc() { base_of_message(has_tools) } else { base(spec.id.as_str(), has_tools) }
}

/// What the model of a job would be told.
#[derive(Debug, Clone)]
pub struct Preview {
    /// `provider/model`.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The first message.
    pub prompt: String,
    /// What it could call.
    pub tools: Vec<ToolDefinition>,
    /// What would be kept of it.
    pub report: Vec<PartReport>,
}

/// Stands for what only the gate can say.
const GATE_OUTPUT: &str = "[what the gate prints]";

/// What the model of `spec` would be told in a run with these variables. Nothing is started, asked
/// or written: what the gate prints is not known, a fresh workspace is empty, and hooks say nothing.
pub fn preview(
    config: &Config,
    spec: &JobSpec,
    agent: &AgentSpec,
    history: Option<&Reader>,
    variables: &Variables,
) -> Result<Preview, Failure> {
    let template = match &agent.prompt {
        Prompt::Inline(text) => text.clone(),
        Prompt::File(path) => read_prompt(path)?,
    };
    let gate_output = spec.gate.as_ref().map(|_| GATE_OUTPUT.to_owned());
    let asked = AskedFor::of(&template);
    let known = known::read(history, spec.id.as_str(), &asked, |_| None, gate_output)
        .map_err(|error| internal(&error.to_string()))?;
    let gate = spec.gate.as_ref().map(|gate| gate.output);
    let prompt = rendered(Words { template: &template, variables, known: &known })?;
    let prompt = with_gate(prompt, &template, gate, &known);
    let tools = ToolSet::native(&agent.tools).map_err(|error| invalid(error.to_string()))?;
    let skills = skills(config, spec, &agent.skills)?;
    let bootstrap = match &spec.workdir {
        Workdir::Fresh => Vec::new(),
        Workdir::Existing(folder) => {
            let workspace = Workspace::open(folder, &[])
                .map_err(|error| invalid(format!("the workspace {}: {error}", folder.display())))?;
            self::bootstrap(&workspace, agent.context)
        }
    };
    let material = masked(Material { skills: skills.snapshot, bootstrap }, &masker(config, spec));
    let assembled = assemble(base_of(spec, agent), &material, Overrides::default(), prompt);
    let tools = tools.definitions();
    Ok(Preview {
        model: agent.model.to_string(),
        system: assembled.system(),
        prompt: assembled.prompt(),
        report: report(&assembled, &tools),
        tools,
    })
}

/// What a run would hide, as far as it can be read.
fn masker(config: &Config, spec: &JobSpec) -> Masker {
    let names = spec.agent().map(|agent| agent.skills.as_slice()).unwrap_or_default();
    let env = config.skills.env_with(&spec.env, names);
    let own = env
        .secret
        .iter()
        .filter_map(|(name, source)| Some((name.clone(), source.read(&config.environment).ok()?)));
    Masker::new(Models::new(config).secrets().chain(own))
}
