//! A text that nobody may see: written as it is, or by the name of what holds it.

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::parse::with_sources;
use super::problem::Problem;
use super::secret::{Environment, SecretError, SecretSource, is_stand_in};
use super::tree::Node;

/// A secret in one of its three forms.
#[derive(Debug, Clone)]
pub enum SecretText {
    /// By name: `<key>_env` or `<key>_file`.
    Named(SecretSource),
    /// Written into the file itself.
    Literal(SecretString),
}

impl SecretText {
    /// The text itself.
    pub fn read(&self, environment: &Environment) -> Result<SecretString, SecretError> {
        match self {
            Self::Named(source) => source.read(environment),
            Self::Literal(text) => Ok(text.clone()),
        }
    }

    /// Why it cannot be used as an address now, without the address.
    pub(crate) fn url_problem(&self, environment: &Environment) -> Option<String> {
        match self.read(environment) {
            Err(error) => Some(with_sources(&error)),
            Ok(text) if is_stand_in(text.expose_secret()) => None,
            Ok(text) => url_problem(text.expose_secret()),
        }
    }
}

/// What is wrong with an address, without the address.
pub(crate) fn url_problem(text: &str) -> Option<String> {
    match Url::parse(text.trim()) {
        Err(error) => Some(format!("this is not a URL: {error}")),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            Some("it is reached by http or https".to_owned())
        }
        Ok(_) => None,
    }
}

/// The secret `name` of a table; `key` is its whole path and `whose` what it belongs to.
pub(crate) fn secret_text(
    node: &Node,
    name: &str,
    key: &str,
    whose: &str,
    problems: &mut Vec<Problem>,
) -> Option<SecretText> {
    let (variable, file) = (format!("{name}_env"), format!("{name}_file"));
    let literal = node.text(name).map(|text| SecretText::Literal(text.to_owned().into()));
    let named = |source| SecretText::Named(source);
    let by_variable = node.text(&variable).map(|it| named(SecretSource::Env(it.to_owned())));
    let by_file = node.path(&file).map(|path| named(SecretSource::File(path)));
    let mut given: Vec<_> = [literal, by_variable, by_file].into_iter().flatten().collect();
    if given.len() > 1 {
        let what = name.rsplit('_').next().unwrap_or(name);
        let message = format!("{whose} has more than one {what}");
        let help = format!("keep one of `{name}`, `{variable}` and `{file}`");
        problems.push(node.error(key, message).with_help(help));
    }
    given.pop()
}
