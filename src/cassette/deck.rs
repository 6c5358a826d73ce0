//! What stands between a run and the world while it is recorded or replayed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::file::Cassette;
use super::seen::{SeenCommand, SeenFile};
use super::wording::TakenRequest;
use crate::job::Masker;
use crate::provider::{Provider, Recording, Replaying, Tape, ToolDefinition, Traffic};
use crate::tools::{CallTape, TakenCall, Verdict};
use crate::turn::{Known, Material};

/// Where a run's answers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plays {
    /// From the world.
    World,
    /// From a cassette.
    Cassette,
}

/// One run's. Cheap to clone: all clones are one deck.
#[derive(Debug, Clone)]
pub struct Deck(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    models: Tape,
    calls: Arc<CallTape>,
    seen: Mutex<Seen>,
}

/// What answers.
#[derive(Debug)]
enum Source {
    World { history: PathBuf },
    Cassette(Box<Recorded>),
}

#[derive(Debug)]
struct Recorded {
    answers: Arc<[Traffic]>,
    offered: Vec<ToolDefinition>,
    /// The window of each model, by its name.
    windows: HashMap<String, u64>,
    known: Known,
    material: Material,
    files: Vec<SeenFile>,
    commands: Vec<SeenCommand>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) known: Known,
    pub(super) material: Material,
    pub(super) files: Vec<SeenFile>,
    pub(super) commands: Vec<SeenCommand>,
    pub(super) masker: Arc<Masker>,
}

impl Deck {
    /// Takes down a run in the world, which may look back on the history in the database at
    /// `history`, if it is there.
    pub fn recording(history: PathBuf) -> Self {
        Self::new(Source::World { history }, CallTape::recording())
    }

    /// Plays `cassette` to a run.
    pub fn replaying(cassette: &Cassette) -> Self {
        let answers = cassette.requests.iter().filter_map(|it| it.answer.clone()).collect();
        let offered = cassette.requests.first().map(TakenRequest::offered).unwrap_or_default();
        let window = |it: &TakenRequest| Some((it.model.clone(), it.context_window?));
        let recorded = Recorded {
            answers,
            offered,
            windows: cassette.requests.iter().filter_map(window).collect(),
            known: cassette.known.clone(),
            material: cassette.material.clone(),
            files: cassette.files.clone(),
            commands: cassette.commands.clone(),
        };
        Self::new(Source::Cassette(Box::new(recorded)), CallTape::replaying(cassette.calls.clone()))
    }

    fn new(source: Source, calls: Arc<CallTape>) -> Self {
        let (models, seen) = (Tape::default(), Mutex::default());
        Self(Arc::new(Inner { source, models, calls, seen }))
    }

    fn recorded(&self) -> Option<&Recorded> {
        match &self.0.source {
            Source::Cassette(recorded) => Some(recorded),
            Source::World { .. } => None,
        }
    }

    /// Where answers come from.
    pub fn plays(&self) -> Plays {
        match self.0.source {
            Source::Cassette(_) => Plays::Cassette,
            Source::World { .. } => Plays::World,
        }
    }

    /// What takes down requests, and what comes over a wire for them.
    pub fn models(&self) -> &Tape {
        &self.0.models
    }

    /// What takes down tool calls, and answers them on replay.
    pub fn calls(&self) -> Arc<CallTape> {
        Arc::clone(&self.0.calls)
    }

    /// What the prompt could name of what was said before, if the cassette has to tell that.
    pub fn known(&self) -> Option<Known> {
        let known = self.recorded()?.known.clone();
        self.knew(known.clone());
        Some(known)
    }

    /// Takes down what the prompt can name of what was said before.
    pub fn knew(&self, known: Known) {
        self.seen().known = known;
    }

    /// Whether the cassette has to tell what was read for the prompt.
    pub fn tells_material(&self) -> bool {
        self.recorded().is_some()
    }

    /// What was read for the prompt, if the cassette has to tell that.
    pub fn material(&self) -> Option<Material> {
        let material = self.recorded()?.material.clone();
        self.read(material.clone());
        Some(material)
    }

    /// Takes down what was read for the prompt.
    pub fn read(&self, material: Material) {
        self.seen().material = material;
    }

    /// The tools that the model was offered first, if the cassette has to tell that.
    pub fn offered(&self) -> Option<&[ToolDefinition]> {
        self.recorded().map(|recorded| &*recorded.offered)
    }

    /// The database that a run in the world may look back on.
    pub fn history(&self) -> Option<PathBuf> {
        match &self.0.source {
            Source::World { history } => Some(history.clone()),
            Source::Cassette(_) => None,
        }
    }

    /// What must not be kept.
    pub fn hide(&self, secrets: Arc<Masker>) {
        self.seen().masker = secrets;
    }

    /// The model `name` as the run is to see it; `real` is asked for only where the world plays.
    pub fn provider<E>(
        &self,
        name: String,
        real: impl FnOnce(Tape) -> Result<Arc<dyn Provider>, E>,
    ) -> Result<Arc<dyn Provider>, E> {
        let tape = self.0.models.clone();
        Ok(match self.recorded() {
            Some(recorded) => Arc::new(Replaying::new(name, Arc::clone(&recorded.answers), tape)),
            None => Arc::new(Recording::new(name, real(tape.clone())?, tape)),
        })
    }

    /// The window that the model `name` had when the run was recorded.
    pub fn window(&self, name: &str) -> Option<u64> {
        self.recorded()?.windows.get(name).copied()
    }

    /// What the cassette knows of the file at `path`.
    pub fn file(&self, path: &Path) -> Option<SeenFile> {
        let wanted = SeenFile::new(path, None, false).path;
        self.recorded()?.files.iter().find(|it| it.path == wanted).cloned()
    }

    /// Takes down what there is of a file.
    pub fn saw_file(&self, seen: SeenFile) {
        let files = &mut self.seen().files;
        if files.iter().all(|it| it.path != seen.path) {
            files.push(seen);
        }
    }

    /// The files that tools have written, as they named them.
    pub fn written(&self) -> Vec<String> {
        let path = |call: &TakenCall| match (call.tool.as_str(), call.verdict) {
            ("write" | "edit", Verdict::Ok) => Some(call.arguments.get("path")?.as_str()?.into()),
            _ => None,
        };
        self.taken_calls().iter().filter_map(path).collect()
    }

    /// What the cassette knows of the end of a check's command.
    pub fn command(&self, argv: &[String]) -> Option<SeenCommand> {
        self.recorded()?.commands.iter().find(|it| it.argv == argv).cloned()
    }

    /// Takes down how the command of a check ended.
    pub fn saw_command(&self, seen: SeenCommand) {
        let commands = &mut self.seen().commands;
        if commands.iter().all(|it| it.argv != seen.argv) {
            commands.push(seen);
        }
    }

    pub(super) fn taken_calls(&self) -> Vec<TakenCall> {
        self.0.calls.calls()
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().expect("nobody panics while holding it")
    }
}
