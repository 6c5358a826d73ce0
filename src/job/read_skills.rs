//! `skills` of `[agent]`: each has to be there, and what it needs should be.

use super::parse::{Part, Reader, Surroundings};
use super::problem::Problem;
use super::spec::{AgentSpec, EnvSpec, Workdir};
use super::tree::Node;

/// The skills that a job can name.
pub trait Skills: Sync {
    /// How the skill `name` stands for a job that works in `workdir` with this environment.
    fn look(&self, name: &str, workdir: &Workdir, env: &EnvSpec) -> SkillState;
}

/// How a skill stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillState {
    /// It can be offered.
    Ready,
    /// It needs something that is not there: it will be left out.
    LeftOut(String),
    /// There is none, or something is wrong with it.
    Unusable(String),
}

/// The names, each once.
pub(super) fn names(reader: &mut Reader<'_>) -> Vec<String> {
    let key = "agent.skills";
    let mut names: Vec<String> = Vec::new();
    for (name, place) in reader.node.texts(key).unwrap_or_default() {
        if names.iter().any(|known| known == name) {
            let message = format!("the skill `{name}` is named twice");
            reader.problems.push(place.error(key, message));
        } else {
            names.push(name.to_owned());
        }
    }
    names
}

/// Looks at each skill that a job names.
pub(super) fn check(reader: &mut Reader<'_>, agent: &AgentSpec, workdir: &Workdir, env: &EnvSpec) {
    let key = "agent.skills";
    // Of defaults it is not known yet where their jobs work.
    if reader.part == Part::Defaults || agent.skills.is_empty() {
        return;
    }
    for (name, place) in reader.node.texts(key).unwrap_or_default() {
        match reader.around.skills.look(name, workdir, env) {
            SkillState::Ready => {}
            SkillState::LeftOut(why) => {
                let message = format!("the skill `{name}` will be left out: {why}");
                reader.problems.push(place.error(key, message).as_warning());
            }
            SkillState::Unusable(why) => reader.problems.push(place.error(key, why)),
        }
    }
    if !agent.tools.iter().any(|tool| tool == "read") {
        reader.warn(key, "`read` is not among `tools`: the model cannot read its skills");
    }
}

/// The table `env` of `node`, which stands at `path`, with what is wrong with it.
pub(crate) fn env_of(
    node: &Node,
    path: &str,
    around: &Surroundings<'_>,
    problems: &mut Vec<Problem>,
) -> EnvSpec {
    let (matrix, part) = (&std::collections::BTreeMap::new(), Part::Defaults);
    let (found, mentions) = (Vec::new(), Vec::new());
    let mut reader = Reader { node, around, part, seed: "", matrix, problems: found, mentions };
    let env = reader.env();
    problems.extend(reader.problems.into_iter().map(|problem| Problem {
        key: problem.key.as_ref().map(|key| format!("{path}.{key}")),
        ..problem
    }));
    env
}
