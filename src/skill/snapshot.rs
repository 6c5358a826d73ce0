//! The skills of a session, as they were when it began.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::needs::World;
use super::shelves::{Shelf, Shelves, SkillError};

/// What a model is told of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its file.
    pub file: String,
}

/// A skill that its job names and that is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// The skills of a session: what happens to their folders later changes nothing of what was said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Snapshot {
    /// Those on offer, in the order in which the job names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<Offered>,
    /// Those that need something that is not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

impl Snapshot {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.offered.is_empty() && self.left_out.is_empty()
    }
}

/// Looks at the skills with these names, and says which folders outside of the workspace may be
/// read for them. One that is missing or broken is an error; one that needs what `world` does not
/// have is left out.
pub fn snapshot(
    names: &[String],
    shelves: &Shelves,
    world: &World,
) -> Result<(Snapshot, Vec<PathBuf>), SkillError> {
    let (mut snapshot, mut folders) = (Snapshot::default(), Vec::new());
    for name in names {
        let skill = shelves.find(name)?;
        if let Some(why) = skill.needs.unmet(world) {
            snapshot.left_out.push(LeftOut { name: name.clone(), why });
            continue;
        }
        let file = skill.file().display().to_string();
        let name = name.clone();
        snapshot.offered.push(Offered { name, description: skill.description, file });
        match skill.shelf {
            // It can be read there already.
            Shelf::Workspace => {}
            Shelf::Configured | Shelf::Installed => folders.push(skill.folder),
        }
    }
    Ok((snapshot, folders))
}
