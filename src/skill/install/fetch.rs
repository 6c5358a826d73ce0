//! Getting what a source has into a folder, and finding the skill in it.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::unpack::unpack;
use super::{NotInstalled, Source};
use crate::process::{
    Confinement, Errors, Exit, Household, Spec, SupervisorPath, base_environment,
};

/// How long git may take to fetch a repository.
const GIT_TIMEOUT: Duration = Duration::from_mins(5);

/// From TERM to KILL.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How much of what git says is kept.
const OUTPUT_BYTES_MAX: usize = 4096;

/// How deep below a source a skill is looked for: `skills/<name>` of an archive's only folder.
const DEPTH_MAX: usize = 3;

/// Folders that are looked into for one.
const FOLDERS_MAX: usize = 1_000;

/// Brings what `source` has into the folder `into`, and returns the folder of the skill in it: at
/// `path`, or the only one.
pub async fn fetch(
    source: &Source,
    reference: Option<&str>,
    path: Option<&str>,
    into: &Path,
) -> Result<PathBuf, NotInstalled> {
    let root = match source {
        Source::Folder(folder) => folder.clone(),
        Source::Archive(file) => {
            unpack(file, into)?;
            into.to_owned()
        }
        Source::Git(address) => {
            clone(address, reference, into).await?;
            into.to_owned()
        }
    };
    if reference.is_some() && !matches!(source, Source::Git(_)) {
        return Err(NotInstalled("`--ref` is for git repositories".to_owned()));
    }
    match path {
        Some(path) => named(&root, path),
        None => only_one(&root),
    }
}

/// Nothing of the repository is run: no hooks, no submodules, no helpers that its address names.
async fn clone(address: &str, reference: Option<&str>, into: &Path) -> Result<(), NotInstalled> {
    let mut argv: Vec<String> = [
        "git",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "protocol.ext.allow=never",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "advice.detachedHead=false",
        "clone",
        "--quiet",
        "--depth",
        "1",
        "--no-tags",
        "--template=",
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(reference) = reference {
        argv.push(format!("--branch={reference}"));
    }
    argv.extend(["--".to_owned(), address.to_owned(), into.display().to_string()]);
    let mut env = base_environment();
    // It may need a key of the person who asks for it; nobody can be asked for a password.
    let ssh = std::env::var("SSH_AUTH_SOCK").ok();
    env.extend(ssh.map(|socket| ("SSH_AUTH_SOCK".to_owned(), socket)));
    env.push(("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned()));
    let spec = Spec {
        argv,
        cwd: into.parent().unwrap_or(into).to_owned(),
        env,
        output_bytes_max: OUTPUT_BYTES_MAX,
        errors: Errors::WithOutput,
        confinement: Confinement::Off,
    };
    let failed = |why: String| NotInstalled(format!("failed to fetch {address}: {why}"));
    let household = Household::new(SupervisorPath::current_exe(), "skills");
    let child = household.start(spec).await.map_err(|error| failed(error.to_string()))?;
    let ended = child.wait_output(GIT_TIMEOUT).await;
    household.end_all(STOP_GRACE).await;
    match ended.exit {
        Exit::Code(0) => Ok(()),
        Exit::TimedOut => Err(failed(format!("git took over {GIT_TIMEOUT:?}"))),
        _ => Err(failed(last_line(&ended.output.text))),
    }
}

fn last_line(text: &str) -> String {
    let line = text.trim().lines().last().unwrap_or("git said nothing");
    line.replace(char::is_control, " ")
}

/// The folder at `path`, which does not leave `root`.
fn named(root: &Path, path: &str) -> Result<PathBuf, NotInstalled> {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let folder = root.join(path);
    let is_inside = Path::new(path).components().all(inside)
        && folder
            .canonicalize()
            .is_ok_and(|real| root.canonicalize().is_ok_and(|root| real.starts_with(root)));
    if is_inside && folder.join("SKILL.md").is_file() {
        return Ok(folder);
    }
    Err(NotInstalled(format!("there is no skill at `{path}`: no folder with a SKILL.md in it")))
}

fn only_one(root: &Path) -> Result<PathBuf, NotInstalled> {
    let mut found = Vec::new();
    let mut folders = vec![(root.to_owned(), 0)];
    let mut at = 0;
    while at < folders.len() && at < FOLDERS_MAX {
        let (folder, depth) = folders[at].clone();
        at += 1;
        if folder.join("SKILL.md").symlink_metadata().is_ok() {
            found.push(folder);
            continue;
        }
        if depth < DEPTH_MAX {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let inner = entries.filter(|entry| {
                entry.file_type().is_ok_and(|kind| kind.is_dir())
                    && !entry.file_name().to_string_lossy().starts_with('.')
            });
            folders.extend(inner.map(|entry| (entry.path(), depth + 1)));
        }
    }
    found.sort();
    match found.as_slice() {
        [] => Err(NotInstalled("there is no skill in it: no folder with a SKILL.md".to_owned())),
        [one] => Ok(one.clone()),
        several => {
            let shown =
                |path: &PathBuf| path.strip_prefix(root).unwrap_or(path).display().to_string();
            let names: Vec<_> = several.iter().take(20).map(shown).collect();
            Err(NotInstalled(format!(
                "there are several skills in it, say which by --path: {}",
                names.join(", ")
            )))
        }
    }
}
