//! How a provider knows us: no key, one key, or several with names.

use crate::job::tree::{Item, Node};
use crate::job::{Environment, Problem, SecretText, secret_text, with_sources};

/// The keys of a provider.
#[derive(Debug, Clone)]
pub enum Auth {
    /// It wants none.
    Open,
    /// One, without a name.
    Key(ApiKey),
    /// Several, tried in this order (semantics §4). Never empty.
    Profiles(Vec<AuthProfile>),
}

/// A key with a name. The name is stored with each attempt, the key never.
#[derive(Debug, Clone)]
pub struct AuthProfile {
    /// What it is called.
    pub name: String,
    /// The key.
    pub key: ApiKey,
}

/// A provider's key.
pub type ApiKey = SecretText;

impl Auth {
    /// All keys in their order, each with its name if it has one.
    pub fn keys(&self) -> Vec<(Option<&str>, &ApiKey)> {
        match self {
            Self::Open => Vec::new(),
            Self::Key(key) => vec![(None, key)],
            Self::Profiles(profiles) => {
                profiles.iter().map(|profile| (Some(profile.name.as_str()), &profile.key)).collect()
            }
        }
    }

    /// Why one of the keys cannot be read, without the key.
    pub(super) fn problem(&self, environment: &Environment) -> Option<String> {
        self.keys().into_iter().find_map(|(name, key)| {
            let words = with_sources(&key.read(environment).err()?);
            Some(match name {
                Some(name) => format!("the profile `{name}`: {words}"),
                None => words,
            })
        })
    }
}

/// The keys that are written in the table of the provider `id`.
pub(super) fn read(id: &str, node: &Node, problems: &mut Vec<Problem>) -> Auth {
    let key = format!("models.providers.{id}.api_key");
    let alone = api_key(node, &key, &format!("the provider `{id}`"), problems);
    let Some(Item::List(list)) = node.get("auth").map(|auth| &auth.item) else {
        return alone.map_or(Auth::Open, Auth::Key);
    };
    if alone.is_some() {
        let message = format!("the provider `{id}` has a key of its own beside `auth`");
        let help = "keep one of them: move the key into a profile of `auth`".to_owned();
        problems.push(node.error(&key, message).with_help(help));
    }
    let mut profiles: Vec<AuthProfile> = Vec::new();
    for place in list {
        let Some(profile) = profile(id, place, problems) else { continue };
        if profiles.iter().any(|known| known.name == profile.name) {
            let key = format!("models.providers.{id}.auth.name");
            let message = format!("two profiles are called `{}`", profile.name);
            problems.push(place.get("name").unwrap_or(place).error(&key, message));
        }
        profiles.push(profile);
    }
    if profiles.is_empty() { Auth::Open } else { Auth::Profiles(profiles) }
}

fn profile(id: &str, place: &Node, problems: &mut Vec<Problem>) -> Option<AuthProfile> {
    let key = |name: &str| format!("models.providers.{id}.auth.{name}");
    place.table()?;
    let name = place.text("name").map(str::trim).unwrap_or_default();
    if name.is_empty() && place.get("name").is_none_or(|name| name.as_text().is_some()) {
        problems.push(place.error(&key("name"), "a profile of `auth` needs a `name`"));
    }
    let whose = format!("the profile `{name}` of the provider `{id}`");
    let problems_before = problems.len();
    let found = api_key(place, &key("api_key"), &whose, problems);
    let is_refused = KEYS.iter().any(|key| place.get(key).is_some());
    if found.is_none() && !is_refused && problems.len() == problems_before {
        let help = "write `api_key_env` or `api_key_file`".to_owned();
        problems.push(place.error(&key("api_key"), format!("{whose} has no key")).with_help(help));
    }
    Some(AuthProfile { name: name.to_owned(), key: found? })
}

/// The keys of which a table may have one.
const KEYS: [&str; 3] = ["api_key", "api_key_env", "api_key_file"];

fn api_key(node: &Node, key: &str, whose: &str, problems: &mut Vec<Problem>) -> Option<ApiKey> {
    secret_text(node, "api_key", key, whose, problems)
}
