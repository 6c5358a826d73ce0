//! Where a run works: its folder, and what the commands of its job see.

use std::path::PathBuf;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::{Stop, invalid};
use crate::cassette::Plays;
use crate::clock::rfc3339;
use crate::job::{EnvSpec, Environment, JobSpec, Masker, SecretSource, Workdir};
use crate::process::base_environment;
use crate::run::{ErrorKind, Failure};

/// Where a run works, for those who start something there or look at what it has left.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) workdir: PathBuf,
    /// What the job's own commands see: what its tools see, and which run it is for.
    pub(super) env: Vec<(String, String)>,
    /// When its clock started.
    pub(super) started: Timestamp,
}

impl Holdings {
    /// Where the run works, once it has a folder and its secrets have been read.
    pub(super) fn site(&self, ticket: &Ticket) -> Option<Site> {
        let mut env = self.env.clone()?;
        env.extend(facts(ticket));
        let started = self.started.unwrap_or(Timestamp::MIN);
        Some(Site { workdir: self.workdir.clone()?, env, started })
    }
}

impl Executor {
    /// Finds or makes the folder, unless that has been done.
    pub(super) async fn settle_in(
        &self,
        ticket: &Ticket,
        holdings: &mut Holdings,
    ) -> Result<PathBuf, Stop> {
        if let Some(path) = &holdings.workdir {
            return Ok(path.clone());
        }
        let path = match (&ticket.spec.workdir, self.plays()) {
            (Workdir::Existing(path), Plays::World) => path.clone(),
            // A run that is played again has no business in anybody's folder.
            (Workdir::Fresh, _) | (Workdir::Existing(_), Plays::Cassette) => {
                let path = self.config.state_dir.join("workspaces").join(ticket.run_id.as_str());
                // Noted first: a run that is cut here tidies what it may have made.
                holdings.made_workspace = Some(path.clone());
                let mut folder = tokio::fs::DirBuilder::new();
                folder.recursive(true).mode(0o700);
                folder.create(&path).await.map_err(|error| {
                    let words = format!("failed to make the workspace {}: {error}", path.display());
                    Failure::new(ErrorKind::Internal, words)
                })?;
                path
            }
        };
        holdings.workdir = Some(path.clone());
        Ok(path)
    }

    /// Reads the secrets of the job, unless that has been done. From here on they are masked.
    pub(super) fn learn_secrets(
        &self,
        spec: &JobSpec,
        holdings: &mut Holdings,
    ) -> Result<Vec<(String, String)>, Stop> {
        if let Some(env) = &holdings.env {
            return Ok(env.clone());
        }
        let names = spec.agent().map(|agent| agent.skills.as_slice()).unwrap_or_default();
        let own = self.config.skills.env_with(&spec.env, names);
        let secrets = match self.plays() {
            Plays::World => read_secrets(&own, &self.config.environment)?,
            // Nothing runs that could use one.
            Plays::Cassette => Vec::new(),
        };
        let of_servers = self.mcp_secrets(spec)?;
        let known = self.models.secrets().chain(secrets.iter().cloned()).chain(of_servers);
        holdings.masker = std::sync::Arc::new(Masker::new(known));
        if let Some(deck) = &self.deck {
            deck.hide(std::sync::Arc::clone(&holdings.masker));
        }
        let env = command_environment(&own, &secrets, &self.config.environment);
        holdings.env = Some(env.clone());
        Ok(env)
    }
}

/// Which run it is for, in words that a script can read.
fn facts(ticket: &Ticket) -> Vec<(String, String)> {
    let of = &ticket.variables;
    let fact = |name: &str, value: String| (format!("PUNCTUAL_{name}"), value);
    let mut facts = vec![
        fact("JOB", ticket.spec.id.to_string()),
        fact("DUE_AT", rfc3339(of.due_at)),
        fact("SLOT_START", rfc3339(of.slot_start)),
        fact("SLOT_END", rfc3339(of.slot_end)),
    ];
    let matrix = of.matrix.iter();
    facts.extend(matrix.map(|(key, value)| {
        fact(&format!("MATRIX_{}", key.to_uppercase().replace('-', "_")), value.clone())
    }));
    facts
}

fn read_secrets(
    env: &EnvSpec,
    environment: &Environment,
) -> Result<Vec<(String, SecretString)>, Failure> {
    let read = |(name, source): (&String, &SecretSource)| {
        let value = source
            .read(environment)
            .map_err(|error| invalid(format!("secret `{name}`: {error}")))?;
        Ok((name.clone(), value))
    };
    env.secret.iter().map(read).collect()
}

/// What the job's commands see: the base, what the job passes on and sets, its secrets.
fn command_environment(
    of: &EnvSpec,
    secrets: &[(String, SecretString)],
    ours: &Environment,
) -> Vec<(String, String)> {
    let mut environment = base_environment();
    let passed = of.pass.iter().filter_map(|name| Some((name.clone(), ours.get(name)?)));
    environment.extend(passed);
    environment.extend(of.set.iter().map(|(name, value)| (name.clone(), value.clone())));
    environment.extend(
        secrets.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())),
    );
    environment
}
