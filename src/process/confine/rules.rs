//! The rules for files, in Landlock's terms.
//!
//! A rule opens a folder and all below it; there is none that closes. A folder with something in it
//! that has to stay closed gets no rule itself, only what lies in it does, one by one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, RestrictionStatus, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use nix::libc;

use super::system::{DEVICE_FOLDER, DEVICES, READABLE};
use super::{Closing, ConfineError, Demand, Fence, Network, View};

/// What is asked for; an older kernel takes what it knows of it.
const NEWEST: ABI = ABI::V10;

/// How many entries of one folder are opened one by one: as many take some ten milliseconds. What
/// comes after them stays closed.
const ENTRIES_MAX: usize = 4_096;

/// The rules of `fence`, not in force yet.
pub(super) fn rules(fence: &Fence, closing: Closing) -> Result<RulesetCreated, RulesetError> {
    let mut asked = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?;
    asked = asked.scope(Scope::from_all(NEWEST))?;
    if fence.network == Network::Off {
        asked = asked.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let mut open = Open { rules: asked.create()? };
    let hidden: Vec<&Path> = fence.hidden.iter().map(PathBuf::as_path).collect();
    match fence.view {
        View::Everything => {
            // Names are no secrets, and `ls /` should not surprise.
            open.one(Path::new("/"), AccessFs::ReadDir.into())?;
            let mut holes = hidden.clone();
            holes.push(Path::new(DEVICE_FOLDER));
            open.around(Path::new("/"), look() | AccessFs::ResolveUnix, &holes)?;
        }
        View::System => {
            for path in READABLE {
                open.one(Path::new(path), look())?;
            }
        }
    }
    for device in DEVICES {
        open.one(Path::new(device), use_device())?;
    }
    let mut closed: Vec<&Path> = fence.closed.iter().map(PathBuf::as_path).collect();
    if closing == Closing::ByMounts {
        closed.retain(|path| !fence.inside(&fence.closed).any(|inside| inside == path));
    }
    for path in fence.readable.iter().chain(&fence.writable) {
        open.around(path, look(), &hidden)?;
    }
    for path in &fence.writable {
        open.around(path, change(path), &closed)?;
    }
    for path in &fence.own {
        open.one(path, change(path))?;
    }
    Ok(open.rules)
}

/// Puts them in force.
pub(super) fn hold(rules: RulesetCreated, demand: Demand) -> Result<(), ConfineError> {
    let RestrictionStatus { ruleset, .. } = rules.restrict_self()?;
    match (ruleset, demand) {
        (RulesetStatus::NotEnforced, Demand::All) => {
            Err(ConfineError::Lacks("the kernel does not hold rules for files".to_owned()))
        }
        // What an older kernel does not know was judged before: see `Offer::lacks`.
        (RulesetStatus::NotEnforced, Demand::AsOffered)
        | (RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced, _) => Ok(()),
    }
}

/// Read, list and start programs.
fn look() -> BitFlags<AccessFs> {
    AccessFs::from_read(NEWEST)
}

/// Everything but to make device files.
fn change(path: &Path) -> BitFlags<AccessFs> {
    let all = AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    // Whoever declares a device wants to speak to it.
    if path.starts_with(DEVICE_FOLDER) { all } else { all & !BitFlags::from(AccessFs::IoctlDev) }
}

fn use_device() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
}

/// The rules so far.
struct Open {
    rules: RulesetCreated,
}

impl Open {
    /// Opens `path` and all below it. What is not there needs no rule.
    fn one(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), RulesetError> {
        let Ok((file, is_folder)) = held(path) else { return Ok(()) };
        let access = if is_folder { access } else { access & AccessFs::from_file(NEWEST) };
        if !access.is_empty() {
            (&mut self.rules).add_rule(PathBeneath::new(file, access))?;
        }
        Ok(())
    }

    /// Opens `path` and all below it but what is at or below one of `holes`.
    fn around(
        &mut self,
        path: &Path,
        access: BitFlags<AccessFs>,
        holes: &[&Path],
    ) -> Result<(), RulesetError> {
        if holes.iter().any(|hole| path.starts_with(hole)) {
            return Ok(());
        }
        if !holes.iter().any(|hole| hole.starts_with(path)) {
            return self.one(path, access);
        }
        // A folder that cannot be listed has nothing that could be opened by name either.
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(ENTRIES_MAX) {
            // A link is no place of its own: where it leads is open or closed by itself.
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                self.around(&entry.path(), access, holes)?;
            }
        }
        Ok(())
    }
}

/// The file at `path` without opening it, and whether it is a folder.
fn held(path: &Path) -> io::Result<(File, bool)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    let is_folder = file.metadata()?.is_dir();
    Ok((file, is_folder))
}
