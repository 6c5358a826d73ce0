//! `[skills]`: where skills are and what is set for them; and what may be installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::job::tree::Node;
use crate::job::{
    EnvSpec, Environment, Problem, SkillState, Skills as Known, Surroundings, Workdir, env_of,
    with_sources,
};
use crate::process::base_environment;
use crate::skill::{Shelves, World};

words!(
    /// What `skills install` and `skills update` may do (`security.install_policy`).
    InstallPolicy {
        /// Install, silently.
        Allow = "allow",
        /// Install, and say what is doubtful.
        Warn = "warn",
        /// Nothing.
        Block = "block",
    }
);

/// Where skills are, and what is set for them.
#[derive(Debug, Clone)]
pub struct Skills {
    /// The folders, the first first.
    pub dirs: Vec<PathBuf>,
    /// Where they are installed: in the state folder.
    pub installed: PathBuf,
    /// What may be installed.
    pub policy: InstallPolicy,
    /// What runs that have a skill get into their environment, by its name.
    pub env: BTreeMap<String, EnvSpec>,
}

impl Skills {
    /// Where a job that works in `workdir` looks for skills.
    pub fn shelves(&self, workdir: &Workdir) -> Shelves {
        let workspace = match workdir {
            Workdir::Fresh => None,
            Workdir::Existing(path) => Some(path.clone()),
        };
        Shelves { workspace, dirs: self.dirs.clone(), installed: self.installed.clone() }
    }

    /// The environment of a job that says `own` and names these skills: its own words win.
    pub fn env_with(&self, own: &EnvSpec, names: &[String]) -> EnvSpec {
        let mut env = own.clone();
        for of in names.iter().filter_map(|name| self.env.get(name)) {
            let is_said = |name: &String| {
                own.set.contains_key(name)
                    || own.secret.contains_key(name)
                    || own.pass.contains(name)
            };
            let mut add = |from: &EnvSpec| {
                let set = from.set.iter().filter(|(name, _)| !is_said(name));
                env.set.extend(set.map(|(name, value)| (name.clone(), value.clone())));
                env.pass.extend(from.pass.iter().filter(|name| !is_said(name)).cloned());
                let secret = from.secret.iter().filter(|(name, _)| !is_said(name));
                env.secret.extend(secret.map(|(name, of)| (name.clone(), of.clone())));
            };
            add(of);
        }
        env
    }

    /// What a run with this environment will find; of secrets only that they are there.
    pub fn world(&self, env: &EnvSpec, environment: &Environment) -> World {
        let mut all = base_environment();
        let passed = env.pass.iter();
        all.extend(passed.filter_map(|name| Some((name.clone(), environment.get(name)?))));
        all.extend(env.set.iter().map(|(name, value)| (name.clone(), value.clone())));
        all.extend(env.secret.keys().map(|name| (name.clone(), "…".to_owned())));
        World::of(&all)
    }
}

/// `[skills]`, but for what is set for them.
pub(super) fn skills(root: &Node, state_dir: &Path) -> Skills {
    let dirs = root.texts("skills.dirs").unwrap_or_default();
    let dirs = dirs.into_iter().map(|(dir, place)| place.source.folder().join(dir)).collect();
    let policy = root.text("security.install_policy").and_then(|word| word.parse().ok());
    Skills {
        dirs,
        installed: state_dir.join("skills"),
        policy: policy.unwrap_or(InstallPolicy::Warn),
        env: BTreeMap::new(),
    }
}

/// `[skills.entries.<name>.env]`, by name.
pub(super) fn skills_env(
    root: &Node,
    around: &Surroundings<'_>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, EnvSpec> {
    let entries = root.get("skills.entries").and_then(Node::table).into_iter().flatten();
    let env = entries.map(|(name, entry)| {
        let path = format!("skills.entries.{name}");
        (name.clone(), env_of(&entry.node, &path, around, problems))
    });
    env.filter(|(_, env)| *env != EnvSpec::default()).collect()
}

/// The skills, as a job's words are checked against them.
pub(super) struct JobSkills<'a> {
    skills: &'a Skills,
    environment: &'a Environment,
}

impl<'a> JobSkills<'a> {
    pub(super) fn new(skills: &'a Skills, environment: &'a Environment) -> Self {
        Self { skills, environment }
    }
}

impl Known for JobSkills<'_> {
    fn look(&self, name: &str, workdir: &Workdir, env: &EnvSpec) -> SkillState {
        let skill = match self.skills.shelves(workdir).find(name) {
            Ok(skill) => skill,
            Err(error) => return SkillState::Unusable(error.to_string()),
        };
        let secrets = self.skills.env.get(name).into_iter().flat_map(|env| env.secret.values());
        for secret in secrets {
            if let Err(error) = secret.read(self.environment) {
                let why = with_sources(&error);
                return SkillState::Unusable(format!("a secret of the skill `{name}`: {why}"));
            }
        }
        let env = self.skills.env_with(env, &[name.to_owned()]);
        let world = self.skills.world(&env, self.environment);
        skill.needs.unmet(&world).map_or(SkillState::Ready, SkillState::LeftOut)
    }
}
