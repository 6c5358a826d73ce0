//! Skills: folders with instructions for one kind of work.
//!
//! A skill is a folder with a file `SKILL.md` that begins with YAML: a `name`, which is the
//! folder's too, and a `description`. Both formats in use are read, Agent Skills and `OpenClaw`'s
//! `metadata`, which says what a skill needs of the machine. Only name, description and place are
//! told to a model; it reads the rest when it has work for it.
//!
//! ```text
//! workspace/skills/ ─┐
//! [skills] dirs ─────┼─ find ─▶ Skill ─ what it needs ─▶ Snapshot: offered, or left out and why
//! state/skills/ ─────┘
//! ```
//!
//! A file may say anything: what is read is bounded, what is wrong is one reason, and nothing else
//! breaks for it.

mod front_matter;
pub mod install;
mod needs;
mod shelves;
mod snapshot;

pub use front_matter::{DESCRIPTION_CHARS_MAX, name_problem};
pub use needs::{Needs, World};
pub use shelves::{Shelf, Shelves, Skill, SkillError};
pub use snapshot::{LeftOut, Offered, Snapshot, snapshot};
