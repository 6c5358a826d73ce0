//! Where secrets come from.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Value, json};

/// The largest file that is taken for a secret.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// A secret by name, never by value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SecretSource {
    /// An environment variable.
    Env(String),
    /// A file; its content, trimmed at the end.
    File(PathBuf),
}

/// Why a secret is not there. Names the variable or file, never the value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set, or not text.
    #[error("the environment variable `{0}` is not set")]
    Unset(String),
    /// It is set to nothing.
    #[error("{0} is empty")]
    Empty(SecretSource),
    /// The file cannot be read.
    #[error("cannot read the secret file `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl SecretSource {
    /// Fetches the value.
    pub fn read(&self, environment: &Environment) -> Result<SecretString, SecretError> {
        match (self.value(environment), environment.missing) {
            (Err(_), Missing::StandIn) => Ok(STAND_IN.into()),
            (value, _) => value,
        }
    }

    fn value(&self, environment: &Environment) -> Result<SecretString, SecretError> {
        let value = match self {
            Self::Env(name) => {
                environment.get(name).ok_or_else(|| SecretError::Unset(name.clone()))?
            }
            Self::File(path) => read_file(path)
                .map_err(|source| SecretError::Read { path: path.clone(), source })?,
        };
        if value.is_empty() {
            return Err(SecretError::Empty(self.clone()));
        }
        Ok(value.into())
    }

    /// Its form in an effective definition.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Env(name) => json!({ "env": name }),
            Self::File(path) => json!({ "file": path.display().to_string() }),
        }
    }
}

fn read_file(path: &std::path::Path) -> io::Result<String> {
    let mut text = super::file::read_text(path, SECRET_BYTES_MAX)?;
    text.truncate(text.trim_end().len());
    Ok(text)
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the environment variable `{name}`"),
            Self::File(path) => write!(f, "the file `{}`", path.display()),
        }
    }
}

/// Environment variables, of this process or made up for a test.
#[derive(Clone)]
pub struct Environment {
    lookup: Arc<Lookup>,
    missing: Missing,
}

/// What becomes of a secret that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// An error of whoever needs it.
    IsAnError,
    /// Something that is none takes its place.
    StandIn,
}

/// Too short for anything to be masked for it.
const STAND_IN: &str = "-";

/// Whether it only takes the place of a secret.
pub(super) fn is_stand_in(text: &str) -> bool {
    text == STAND_IN
}

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Environment {
    /// The process's own.
    pub fn of_process() -> Self {
        Self::new(|name| std::env::var(name).ok())
    }

    /// These and no others.
    pub fn fixed<const N: usize>(variables: [(&str, &str); N]) -> Self {
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self::new(move |wanted| {
            variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        })
    }

    /// The same for whoever never uses a secret: one that is missing is no error.
    #[must_use]
    pub fn without_need_of_secrets(self) -> Self {
        Self { missing: Missing::StandIn, ..self }
    }

    fn new(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { lookup: Arc::new(lookup), missing: Missing::IsAnError }
    }

    /// The value of a variable, if it is set and is text.
    pub fn get(&self, name: &str) -> Option<String> {
        // The process's lookup panics on a name that cannot be one.
        let possible = !name.is_empty() && !name.contains(['=', '\0']);
        possible.then(|| (self.lookup)(name)).flatten()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment(..)")
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn a_secret_is_read_from_where_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, " s3cret \n\n").unwrap();
        let environment = Environment::fixed([("KEY", "from env"), ("EMPTY", "")]);
        let read = |source: SecretSource| {
            source
                .read(&environment)
                .map(|secret| secret.expose_secret().to_owned())
                .map_err(|error| error.to_string())
        };
        assert_eq!(read(SecretSource::Env("KEY".into())), Ok("from env".into()));
        assert_eq!(read(SecretSource::File(file)), Ok(" s3cret".into()));
        assert_eq!(
            read(SecretSource::Env("EMPTY".into())),
            Err("the environment variable `EMPTY` is empty".into())
        );
        assert_eq!(
            read(SecretSource::Env("NONE".into())),
            Err("the environment variable `NONE` is not set".into())
        );
        let missing = folder.path().join("missing");
        assert_eq!(
            read(SecretSource::File(missing.clone())),
            Err(format!("cannot read the secret file `{}`", missing.display()))
        );
    }
}
