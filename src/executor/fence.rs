//! The fence around what a run's tools start: what its job declares, and what no run may touch.
//!
//! Paths are resolved once, when the run begins. One that lies inside of what the run may change is
//! not resolved at all: the run, or the one before it, could have put a link there.

use std::path::{Path, PathBuf};

use super::holdings::Holdings;
use super::run::{Executor, Ticket};
use super::stop::Stop;
use crate::cassette::Plays;
use crate::job::{AgentSpec, Sandbox, SandboxNetwork};
use crate::process::{Confinement, Demand, Fence, Network, View, offered};
use crate::run::{ErrorKind, Failure};
use crate::tools::{Workspace, without_links};

/// The variable that names the folder for temporary files.
const TMPDIR: &str = "TMPDIR";

impl Executor {
    /// How the processes of the run's tools are confined in `workdir`. Fails where the job demands
    /// what the kernel does not have.
    pub(super) async fn confinement(
        &self,
        ticket: &Ticket,
        agent: &AgentSpec,
        workdir: &Path,
        holdings: &mut Holdings,
    ) -> Result<Confinement, Stop> {
        let sandbox = &agent.sandbox;
        let (view, demand) = match sandbox.mode {
            Sandbox::Off => return Ok(Confinement::Humble),
            Sandbox::Workspace => (View::Everything, Demand::AsOffered),
            Sandbox::Strict => (View::System, Demand::All),
        };
        let place = |path: &PathBuf| without_links(path).map_err(|error| internal(path, &error));
        let mut own = Vec::new();
        if starts_processes(agent) {
            own.push(place(&self.temporary(ticket, holdings).await?)?);
        }
        let mut writable = Vec::new();
        let workdir = workdir.to_owned();
        match &holdings.made_workspace {
            Some(_) => own.push(place(&workdir)?),
            None => writable.push(place(&workdir)?),
        }
        let roots = [vec![workdir], own.clone(), writable.clone()].concat();
        for path in outside(&sandbox.write, &roots) {
            writable.push(place(&path)?);
        }
        let roots = [roots, writable.clone(), sandbox.write.clone()].concat();
        let readable =
            outside(&sandbox.read, &roots).iter().map(place).collect::<Result<_, _>>()?;
        let state_dir = place(&self.config.state_dir)?;
        let mut closed = vec![place(&self.config.jobs_dir)?, state_dir.clone()];
        closed.extend(self.config.files.iter().map(place).collect::<Result<Vec<_>, _>>()?);
        // What a run writes there would be told to every later one.
        closed.extend(self.config.skills.dirs.iter().map(place).collect::<Result<Vec<_>, _>>()?);
        let network = match sandbox.network {
            SandboxNetwork::On => Network::On,
            SandboxNetwork::Off => Network::Off,
        };
        let hidden = vec![state_dir];
        let fence = Fence { view, readable, own, writable, closed, hidden, network, demand };
        self.look_at_the_kernel(&fence)?;
        Ok(Confinement::Fenced(Box::new(fence)))
    }

    /// What the kernel cannot hold of `fence` is an end or a word, before any model is called.
    fn look_at_the_kernel(&self, fence: &Fence) -> Result<(), Stop> {
        let Some(lack) = offered().lacks(fence) else { return Ok(()) };
        match (fence.demand, self.plays()) {
            (Demand::All, Plays::World) => {
                let words = format!("this job is to be strictly confined, but {lack}");
                Err(Failure::new(ErrorKind::SandboxUnavailable, words).into())
            }
            (Demand::AsOffered, Plays::World) => {
                tracing::warn!(why = lack, "the tools of this run are confined in part only");
                Ok(())
            }
            // Nothing is started.
            (_, Plays::Cassette) => Ok(()),
        }
    }

    /// The run's own folder for temporary files.
    async fn temporary(&self, ticket: &Ticket, holdings: &mut Holdings) -> Result<PathBuf, Stop> {
        if let Some(path) = &holdings.made_temporary {
            return Ok(path.clone());
        }
        let name = format!("{}{TEMPORARY_SUFFIX}", ticket.run_id);
        let path = self.config.state_dir.join("workspaces").join(name);
        // Noted first: a run that is cut here tidies what it may have made.
        holdings.made_temporary = Some(path.clone());
        let mut folder = tokio::fs::DirBuilder::new();
        folder.recursive(true).mode(0o700);
        folder.create(&path).await.map_err(|error| internal(&path, &error))?;
        Ok(path)
    }
}

fn starts_processes(agent: &AgentSpec) -> bool {
    agent.tools.iter().any(|tool| tool == "exec") || !agent.mcp.is_empty()
}

/// What the name of a run's folder for temporary files ends with.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// The same confinement, in which what the file tools may read elsewhere can be read too.
pub(super) fn reading(confinement: Confinement, workspace: &Workspace) -> Confinement {
    match confinement {
        Confinement::Fenced(mut fence) => {
            fence.readable.extend(workspace.readable().map(Path::to_owned));
            Confinement::Fenced(fence)
        }
        free @ (Confinement::Off | Confinement::Humble) => free,
    }
}

/// `env` with the run's own folder for temporary files, unless the job has named another.
pub(super) fn with_temporary(
    mut env: Vec<(String, String)>,
    ticket: &Ticket,
    holdings: &Holdings,
) -> Vec<(String, String)> {
    let job = &ticket.spec.env;
    let is_named = job.set.contains_key(TMPDIR) || job.pass.iter().any(|name| name == TMPDIR);
    if let (Some(path), false) = (&holdings.made_temporary, is_named) {
        env.retain(|(name, _)| name != TMPDIR);
        env.push((TMPDIR.to_owned(), path.display().to_string()));
    }
    env
}

/// Those of `paths` that do not lie in one of `roots` by their names.
fn outside(paths: &[PathBuf], roots: &[PathBuf]) -> Vec<PathBuf> {
    let roots: Vec<_> = roots.iter().map(|root| plain(root)).collect();
    let is_inside = |path: &&PathBuf| {
        let path = plain(path);
        roots.iter().any(|root| path.starts_with(root) && path != *root)
    };
    paths.iter().filter(|path| !is_inside(path)).cloned().collect()
}

/// `path` without `.` and `..`, by its name alone.
fn plain(path: &Path) -> PathBuf {
    use std::path::Component::{CurDir, ParentDir};
    let mut plain = PathBuf::new();
    for part in std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).components() {
        match part {
            CurDir => {}
            ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

fn internal(path: &Path, error: &std::io::Error) -> Failure {
    let words = format!("failed to prepare the sandbox: {}: {error}", path.display());
    Failure::new(ErrorKind::Internal, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_could_have_moved_is_not_resolved() {
        let paths = ["/w/out", "/w/../x", "/w/./a/../b", "/y", "/w"].map(PathBuf::from);
        let found = outside(&paths, &["/w".into()]);
        assert_eq!(found, ["/w/../x", "/y", "/w"].map(PathBuf::from));
    }
}
