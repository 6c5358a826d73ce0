//! All processes of one run.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::process::Command;
use tokio::time::timeout;

use super::adopted;
use super::asking;
use super::confine::Confinement;
use super::ends::Ends;
use super::environment::RUN_MARKER;
use super::identity::ProcessId;
use super::protocol::{Failure, Input, Order};
use super::stray::{self, Mark};
use super::supervisor::SUPERVISE;
use super::tree::{Child, SupervisorEnd, Talk, Tree, TreeEnd};
use crate::clock::{Clock as _, SystemClock};

/// How long a supervisor may take to start a command. It takes a few milliseconds; a machine that
/// swaps takes longer.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A command and what it may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The working folder.
    pub cwd: PathBuf,
    /// The whole environment but for the run's marker; see [`super::base_environment`].
    pub env: Vec<(String, String)>,
    /// How much of the output to keep, half of it from its start and half from its end.
    pub output_bytes_max: usize,
    /// Where standard error goes.
    pub errors: Errors,
    /// What it may do.
    pub confinement: Confinement,
}

/// Where a command's standard error goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errors {
    /// Among its output, as on a terminal.
    WithOutput,
    /// Apart.
    Apart,
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such program.
    #[error("start `{program}`: no such command")]
    NotFound {
        /// The program.
        program: String,
    },
    /// There is no such folder.
    #[error("start `{program}` in {}: {message}", cwd.display())]
    Folder {
        /// The program.
        program: String,
        /// The working folder.
        cwd: PathBuf,
        /// The system's words.
        message: String,
    },
    /// The system would not run it.
    #[error("start `{program}`: {message}")]
    NotRun {
        /// The program.
        program: String,
        /// The system's words.
        message: String,
    },
    /// It could not be confined as it was demanded.
    #[error("start `{program}` confined: {message}")]
    Confinement {
        /// The program.
        program: String,
        /// What is in the way.
        message: String,
    },
    /// The supervisor itself did not start.
    #[error("start the supervisor of `{program}`")]
    Supervisor {
        /// The program.
        program: String,
        /// The system's words.
        #[source]
        source: io::Error,
    },
    /// The run's processes were ended; nothing starts after that.
    #[error("start `{program}`: the processes of this run were ended")]
    Ended {
        /// The program.
        program: String,
    },
}

/// The binary to run as a supervisor: one whose `main` begins with
/// [`super::become_supervisor_if_asked`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorPath(PathBuf);

impl SupervisorPath {
    /// This very binary, even if its file was replaced since.
    pub fn current_exe() -> Self {
        Self("/proc/self/exe".into())
    }

    /// The binary at `path`.
    pub fn at(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        Self(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }
}

/// All processes of one run: where they start, and where all of them end together.
///
/// Cheap to clone. When the last clone and the last [`Child`] are dropped, what still runs is
/// ended by its supervisors, after a short grace.
#[derive(Debug, Clone)]
pub struct Household(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    supervisor: SupervisorPath,
    run_id: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_ended: bool,
    trees: Vec<Arc<Tree>>,
    /// What ends with it, and may end before.
    parts: Vec<Household>,
    /// What was found outside of any tree.
    strays: TreeEnd,
}

impl Household {
    /// An empty one. Its processes carry `run_id` in the variable [`RUN_MARKER`].
    pub fn new(supervisor: SupervisorPath, run_id: impl Into<String>) -> Self {
        let run_id = run_id.into();
        Self(Arc::new(Inner { supervisor, run_id, state: Mutex::default() }))
    }

    /// An empty one that ends with this one, and can be ended before.
    #[must_use]
    pub fn part(&self) -> Self {
        let part = Self::new(self.0.supervisor.clone(), self.0.run_id.clone());
        let mut state = self.lock();
        part.lock().is_ended = state.is_ended;
        state.parts.push(part.clone());
        part
    }

    /// Starts a command under a supervisor of its own.
    pub async fn start(&self, spec: Spec) -> Result<Child, StartError> {
        Ok(self.start_with(spec, Input::Nothing).await?.0)
    }

    /// The same for a command that reads the file `stdin`.
    pub async fn start_reading(&self, spec: Spec, stdin: &Path) -> Result<Child, StartError> {
        Ok(self.start_with(spec, Input::File(stdin.to_owned())).await?.0)
    }

    /// The same for a command that is talked with. Its standard input and output are one socket,
    /// as where node starts a command; [`Spec::output_bytes_max`] is for its standard error alone.
    pub async fn start_talking(&self, spec: Spec) -> Result<Talk, StartError> {
        let program = spec.argv.first().cloned().unwrap_or_default();
        let spec = Spec { errors: Errors::Apart, ..spec };
        let (child, line) = self.start_with(spec, Input::Talk).await?;
        let line = line.ok_or_else(|| io::Error::other("there is no line to it"));
        let line = line.map_err(|source| StartError::Supervisor { program, source })?;
        let (from, to) = line.into_split();
        Ok(Talk { child, from, to })
    }

    /// Also returns the line to a command that is talked with.
    async fn start_with(
        &self,
        spec: Spec,
        input: Input,
    ) -> Result<(Child, Option<tokio::net::UnixStream>), StartError> {
        let program = spec.argv.first().cloned().unwrap_or_default();
        let failed = |source| StartError::Supervisor { program: program.clone(), source };
        let Ends { pipes, line, stdout, stderr } = match input {
            Input::Nothing | Input::File(_) => Ends::of_pipes(spec.output_bytes_max, spec.errors),
            Input::Talk => Ends::of_talk(spec.output_bytes_max),
        }
        .map_err(failed)?;
        let tree = self.start_supervisor(&program, stdout, stderr)?;
        let mut env = spec.env;
        env.push((RUN_MARKER.to_owned(), self.0.run_id.clone()));
        let Spec { argv, cwd, confinement, .. } = spec;
        if confinement != Confinement::Off {
            asking::confined(tree.supervisor());
        }
        let order = Order { argv, cwd, env, input, confinement };
        let answer = async {
            tree.send(&order).await?;
            Ok(tree.until(|story| story.started.clone()).await)
        };
        match timeout(START_LIMIT, answer).await {
            Ok(Ok(Some(Ok(main)))) => Ok((Child::new(tree, pipes, main), line)),
            Ok(Ok(Some(Err((what, message))))) => {
                Err(start_error(what, program, order.cwd, message))
            }
            Ok(Ok(None)) => Err(failed(io::Error::other("it ended without a word"))),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => {
                tree.give_up().await;
                Err(failed(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// Ends every tree of this run, all at once, and tells what that took. From now on nothing can
    /// be started. May be called again, and gives the same account.
    ///
    /// It takes `grace` and a moment; where the kernel will not let a process go, a few seconds.
    pub async fn end_all(&self, grace: Duration) -> TreeEnd {
        let give_up_at = SystemClock.monotonic() + grace;
        let (trees, parts) = {
            let mut state = self.lock();
            state.is_ended = true;
            (state.trees.clone(), state.parts.clone())
        };
        let mut all = TreeEnd::default();
        // A part has none of its own.
        let parts = parts.iter().map(|part| Box::pin(part.end_all(grace)));
        let parts = join_all(parts);
        let trees_end = join_all(trees.iter().map(|tree| tree.end(grace)));
        let (trees_end, parts_end) = tokio::join!(trees_end, parts);
        for end in trees_end.into_iter().chain(parts_end) {
            all.add(end);
        }
        let is_lost = |tree: &Arc<Tree>| !matches!(tree.ended(), Some(SupervisorEnd::Told(_)));
        if trees.iter().any(is_lost) {
            let left = give_up_at.saturating_duration_since(SystemClock.monotonic());
            let found = stray::end(&Mark::Run(self.0.run_id.clone()), left).await;
            self.lock().strays.add(found);
        }
        all.add(self.lock().strays.clone());
        all.left.retain(|left| left.id.is_alive());
        all
    }

    /// Kills what carries this run's mark, and all supervisors, at once: for whoever has no time
    /// left. What is still there afterwards is counted.
    pub async fn kill_all(&self) -> TreeEnd {
        let (trees, parts) = {
            let mut state = self.lock();
            state.is_ended = true;
            (state.trees.clone(), state.parts.clone())
        };
        for tree in &trees {
            tree.kill_supervisor();
        }
        for part in parts {
            Box::pin(part.kill_all()).await;
        }
        stray::end(&Mark::Run(self.0.run_id.clone()), Duration::ZERO).await
    }

    /// Whether a supervisor was killed: what had hidden from it may live on.
    pub fn has_lost_one(&self) -> bool {
        let state = self.lock();
        state.trees.iter().any(|tree| tree.ended() == Some(SupervisorEnd::Lost))
            || state.parts.iter().any(Self::has_lost_one)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the room that starts processes")]
    fn start_supervisor(
        &self,
        program: &str,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> Result<Arc<Tree>, StartError> {
        let failed = |source| StartError::Supervisor { program: program.to_owned(), source };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let ours = tokio::net::UnixStream::from_std(ours).map_err(failed)?;
        // Nothing may run between the check and the entry in the list.
        let mut state = self.lock();
        if state.is_ended {
            return Err(StartError::Ended { program: program.to_owned() });
        }
        let mut command = Command::new(&self.0.supervisor.0);
        command
            .arg0("punctual")
            .arg(SUPERVISE)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(stdout)
            .stderr(stderr);
        let (process, id) = adopted::start(|| {
            let process = command.spawn()?;
            let pid = process.id().and_then(|pid| i32::try_from(pid).ok());
            let id = pid.and_then(ProcessId::of);
            Ok((process, id.expect("a child is in the table until it is reaped")))
        })
        .map_err(failed)?;
        let tree = Arc::new(Tree::new(id, process, ours));
        state.trees.retain(|tree| !tree.is_forgettable());
        state.trees.push(Arc::clone(&tree));
        Ok(tree)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no holder of this lock can panic")
    }
}

fn start_error(what: Failure, program: String, cwd: PathBuf, message: String) -> StartError {
    match what {
        Failure::Folder => StartError::Folder { program, cwd, message },
        Failure::NotFound => StartError::NotFound { program },
        Failure::Command => StartError::NotRun { program, message },
        Failure::Confinement | Failure::Mounts => StartError::Confinement { program, message },
        Failure::Supervisor => {
            StartError::Supervisor { program, source: io::Error::other(message) }
        }
    }
}
