//! Which files the configuration comes from.

use std::path::{Path, PathBuf};

use crate::job::Environment;

/// Where to look: the command line, the environment, the current folder.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Each `--config`, in order; a later one wins by key.
    pub config_paths: Vec<PathBuf>,
    /// `--state-dir`.
    pub state_dir: Option<PathBuf>,
    /// Environment variables, also for the secrets that the files name.
    pub environment: Environment,
    /// What relative paths of the command line and the environment start from.
    pub current_dir: PathBuf,
}

impl Sources {
    /// Those of this process, with what its command line says.
    pub fn of_process(
        config_paths: Vec<PathBuf>,
        state_dir: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        let current_dir = std::env::current_dir()?;
        Ok(Self { config_paths, state_dir, environment: Environment::of_process(), current_dir })
    }

    /// The files to read. Those that somebody named must be there; of the usual places the first
    /// that exists is taken; none at all means built-in defaults.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        if !self.config_paths.is_empty() {
            return self.config_paths.iter().map(|path| self.absolute(path)).collect();
        }
        if let Some(path) = self.variable("PUNCTUAL_CONFIG") {
            return vec![self.absolute(Path::new(&path))];
        }
        let home = self.variable("HOME").map(PathBuf::from);
        let usual = [
            Some(PathBuf::from("config.toml")),
            home.map(|home| home.join(".config/punctual/config.toml")),
            Some(PathBuf::from("/etc/punctual/config.toml")),
        ];
        let mut usual = usual.into_iter().flatten().map(|path| self.absolute(&path));
        // Whatever stands there counts, readable or not: an unreadable file is an error, not a
        // reason to go on with another one.
        usual.find(|path| path.symlink_metadata().is_ok()).into_iter().collect()
    }

    /// The state folder; `configured` is `state_dir` of the files.
    pub(super) fn state_dir(&self, configured: Option<PathBuf>) -> PathBuf {
        let variable = |name| self.variable(name).map(PathBuf::from);
        let chosen = self
            .state_dir
            .clone()
            .or_else(|| variable("PUNCTUAL_STATE_DIR"))
            .or(configured)
            .or_else(|| variable("STATE_DIRECTORY"))
            .unwrap_or_else(|| PathBuf::from("state"));
        self.absolute(&chosen)
    }

    pub(super) fn absolute(&self, path: &Path) -> PathBuf {
        // Collecting the components drops `./`.
        self.current_dir.join(path).components().collect()
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.environment.get(name).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(environment: Environment, current_dir: &Path) -> Sources {
        let current_dir = current_dir.to_owned();
        Sources { config_paths: Vec::new(), state_dir: None, environment, current_dir }
    }

    #[test]
    fn config_files_are_found_in_the_order_of_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let home = here.join("home");
        let in_home = home.join(".config/punctual/config.toml");
        std::fs::create_dir_all(in_home.parent().unwrap()).unwrap();
        let home = home.to_str().unwrap();
        let env = Environment::fixed([("HOME", home), ("PUNCTUAL_CONFIG", "")]);
        let mut found = sources(env, here);
        std::fs::write(&in_home, "").unwrap();
        assert_eq!(found.files(), [in_home]);
        std::fs::write(here.join("config.toml"), "").unwrap();
        assert_eq!(found.files(), [here.join("config.toml")]);
        found.environment = Environment::fixed([("HOME", home), ("PUNCTUAL_CONFIG", "other.toml")]);
        assert_eq!(found.files(), [here.join("other.toml")]);
        found.config_paths = vec!["./a.toml".into(), "/b.toml".into()];
        assert_eq!(found.files(), [here.join("a.toml"), "/b.toml".into()]);
    }

    #[test]
    fn the_state_folder_is_found_in_the_order_of_the_contract() {
        let here = Path::new("/here");
        let none = sources(Environment::fixed([]), here);
        let systemd = sources(Environment::fixed([("STATE_DIRECTORY", "/s")]), here);
        let both = [("STATE_DIRECTORY", "/s"), ("PUNCTUAL_STATE_DIR", "p")];
        let both = sources(Environment::fixed(both), here);
        let flag = Sources { state_dir: Some("f".into()), ..both.clone() };
        let configured = Some(PathBuf::from("/c"));
        assert_eq!(none.state_dir(None), Path::new("/here/state"));
        assert_eq!(systemd.state_dir(None), Path::new("/s"));
        assert_eq!(systemd.state_dir(configured.clone()), Path::new("/c"));
        assert_eq!(both.state_dir(configured.clone()), Path::new("/here/p"));
        assert_eq!(flag.state_dir(configured), Path::new("/here/f"));
    }
}
