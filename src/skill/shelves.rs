//! Where skills are looked for, and in which order.
//!
//! Only `<shelf>/<name>/SKILL.md` is opened: no shelf is listed or searched for a run. What is wrong
//! with a skill hides one of the same name on a later shelf: better a reason than another skill
//! than the one that is meant.

use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use nix::fcntl::OFlag;

use super::front_matter::{self, Front};
use super::needs::Needs;
use crate::job::read_text;

/// The file that makes a folder a skill.
const FILE: &str = "SKILL.md";

/// A longer one is none that a model could read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

words!(
    /// Where a skill is.
    Shelf {
        /// In the folder `skills` of the workspace.
        Workspace = "workspace",
        /// In a folder that the configuration names.
        Configured = "configured",
        /// Among those that were installed.
        Installed = "installed",
    }
);

/// The places where skills are looked for, the first first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shelves {
    /// The workspace, if it is there before a run.
    pub workspace: Option<PathBuf>,
    /// The folders of the configuration.
    pub dirs: Vec<PathBuf>,
    /// What was installed.
    pub installed: PathBuf,
}

/// A skill that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for, in one line.
    pub description: String,
    /// What it needs.
    pub needs: Needs,
    /// Its folder, without links.
    pub folder: PathBuf,
    /// Where that is.
    pub shelf: Shelf,
}

/// A skill that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillError {
    /// There is none of that name.
    #[error("there is no skill `{name}`: looked in {}", .looked.join(", "))]
    Missing {
        /// The name.
        name: String,
        /// Where it was looked for.
        looked: Vec<String>,
    },
    /// There is one, and something is wrong with it.
    #[error("the skill `{name}` ({}) cannot be used: {why}", file.display())]
    Broken {
        /// The name.
        name: String,
        /// Its file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl Skill {
    /// The file to read.
    pub fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// The skill in `folder`, whatever that is called.
    pub fn in_folder(folder: &Path, shelf: Shelf) -> Result<Self, String> {
        let text = read_text(&folder.join(FILE), FILE_BYTES_MAX).map_err(|it| it.to_string())?;
        Self::of(front_matter::parse(&text)?, folder, shelf)
    }

    fn of(front: Front, folder: &Path, shelf: Shelf) -> Result<Self, String> {
        let folder = folder.canonicalize().map_err(|error| error.to_string())?;
        if folder.to_str().is_none_or(|path| path.contains(char::is_control)) {
            return Err("the path of its folder cannot be told to a model".to_owned());
        }
        let Front { name, description, needs } = front;
        Ok(Self { name, description, needs, folder, shelf })
    }
}

impl Shelves {
    /// The skill of that name.
    pub fn find(&self, name: &str) -> Result<Skill, SkillError> {
        let missing = || SkillError::Missing { name: name.to_owned(), looked: self.in_words() };
        if front_matter::name_problem(name).is_some() {
            return Err(missing());
        }
        for (shelf, place) in self.places() {
            let folder = place.join(name);
            let text = match (shelf, &self.workspace) {
                (Shelf::Workspace, Some(workspace)) => read_inside(workspace, name),
                _ => read_text(&folder.join(FILE), FILE_BYTES_MAX),
            };
            let read = match text {
                Err(error) if is_not_there(&error) => continue,
                Err(error) => Err(error.to_string()),
                Ok(text) => front_matter::parse(&text).and_then(|front| {
                    if front.name == name {
                        return Skill::of(front, &folder, shelf);
                    }
                    Err(format!("its `name` is `{}`, and its folder is `{name}`", front.name))
                }),
            };
            let file = folder.join(FILE);
            return read.map_err(|why| SkillError::Broken { name: name.to_owned(), file, why });
        }
        Err(missing())
    }

    /// The folders, the first first.
    pub fn places(&self) -> Vec<(Shelf, PathBuf)> {
        let workspace = self.workspace.iter().map(|path| (Shelf::Workspace, path.join("skills")));
        let dirs = self.dirs.iter().map(|path| (Shelf::Configured, path.clone()));
        let installed = std::iter::once((Shelf::Installed, self.installed.clone()));
        workspace.chain(dirs).chain(installed).collect()
    }

    /// The names of the skills on the shelf at `place`, in alphabetical order, whether they can be
    /// used or not.
    pub fn names_at(place: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_one = |name: &String| {
            front_matter::name_problem(name).is_none() && place.join(name).join(FILE).exists()
        };
        let mut names: Vec<_> = names.filter(is_one).collect();
        names.sort();
        names
    }

    fn in_words(&self) -> Vec<String> {
        self.places().into_iter().map(|(_, path)| path.display().to_string()).collect()
    }
}

fn is_not_there(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The file of a skill in a workspace, which a run may have written: no link leads out of it.
fn read_inside(workspace: &Path, name: &str) -> io::Result<String> {
    let dir = Dir::open_ambient_dir(workspace, ambient_authority())?;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let path = Path::new("skills").join(name).join(FILE);
    let file = dir.open_with(&path, &options).map_err(|error| {
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::PermissionDenied, None) => {
                io::Error::other("it leads out of the workspace")
            }
            _ => error,
        }
    })?;
    let refused = |words: &str| Err(io::Error::new(ErrorKind::InvalidData, words.to_owned()));
    if !file.metadata()?.is_file() {
        return refused("this is not a file");
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return refused(&format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).or_else(|_| refused("this is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn put(shelf: &Path, name: &str, description: &str) {
        let folder = shelf.join(name);
        fs::create_dir_all(&folder).unwrap();
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n");
        fs::write(folder.join(FILE), text).unwrap();
    }

    fn house() -> (tempfile::TempDir, Shelves) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let shelves = Shelves {
            workspace: Some(root.join("work")),
            dirs: vec![root.join("a"), root.join("b")],
            installed: root.join("state/skills"),
        };
        fs::create_dir_all(root.join("work")).unwrap();
        (dir, shelves)
    }

    // semantics §7: the nearest one is meant.
    #[test]
    fn the_workspace_comes_before_the_folders_in_their_order_and_before_what_was_installed() {
        let (_dir, shelves) = house();
        let places: Vec<_> = shelves.places().into_iter().map(|(_, place)| place).collect();
        for (place, words) in places.iter().zip(["in work", "in a", "in b", "installed"]).rev() {
            put(place, "style", words);
            let found = shelves.find("style").unwrap();
            assert_eq!(found.description, words);
            assert_eq!(found.folder, place.join("style"));
        }
        assert_eq!(shelves.find("style").unwrap().shelf, Shelf::Workspace);
        assert_eq!(Shelves::names_at(&places[1]), ["style"]);
    }

    #[test]
    fn a_missing_one_says_where_it_was_looked_for_and_a_broken_one_why() {
        let (_dir, shelves) = house();
        let words = |name: &str| shelves.find(name).unwrap_err().to_string();
        assert!(words("none").contains("work/skills, ") && words("none").contains("state/skills"));
        for name in ["../a/style", "", ".", "a/b", "A"] {
            assert!(words(name).starts_with("there is no skill"), "{name}");
        }
        put(&shelves.dirs[0], "other", "x");
        fs::rename(shelves.dirs[0].join("other"), shelves.dirs[0].join("style")).unwrap();
        put(&shelves.dirs[1], "style", "the right one");
        assert!(words("style").contains("its `name` is `other`, and its folder is `style`"));
        let file = shelves.dirs[0].join("style").join(FILE);
        fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(words("style").contains("this is not a file"));
        fs::remove_file(&file).unwrap();
        fs::write(&file, [b'-', 0xff]).unwrap();
        assert!(words("style").contains("not UTF-8"));
        fs::write(&file, vec![b' '; 2 << 20]).unwrap();
        assert!(words("style").contains("at most 1048576 are read"));
    }

    #[test]
    fn a_workspace_cannot_lend_what_is_outside_of_it() {
        let (dir, shelves) = house();
        let (outside, work) = (dir.path().join("secrets"), dir.path().join("work/skills"));
        put(&outside, "style", "stolen");
        fs::create_dir_all(&work).unwrap();
        symlink(outside.join("style"), work.join("style")).unwrap();
        let why = shelves.find("style").unwrap_err().to_string();
        assert!(why.contains("leads out of the workspace"), "{why}");
        fs::remove_file(work.join("style")).unwrap();
        fs::create_dir(work.join("style")).unwrap();
        symlink(outside.join("style").join(FILE), work.join("style").join(FILE)).unwrap();
        assert!(shelves.find("style").is_err());
        // A link of the operator's is meant.
        fs::remove_dir_all(&work).unwrap();
        fs::create_dir_all(&shelves.dirs[0]).unwrap();
        symlink(outside.join("style"), shelves.dirs[0].join("style")).unwrap();
        assert_eq!(shelves.find("style").unwrap().description, "stolen");
    }
}
