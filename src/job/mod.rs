//! What a person wrote and what it means.
//!
//! A job file becomes a [`JobSpec`], which is always valid once it exists, or a list of
//! [`Problem`]s with the place of each. Nothing in here reads the clock or starts anything.

mod id;
mod problem;
mod secret;
mod spec;

pub use id::JobId;
pub use problem::{Problem, Severity};
pub use secret::{Masker, SecretSource};
pub use spec::{
    AgentSpec, Catchup, EnvSpec, JobSpec, Limits, ModelRef, Overlap, Prompt, RunTimeout,
    ScheduleSpec, Workdir,
};
