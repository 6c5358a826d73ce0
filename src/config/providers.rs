//! `[models]`: the places that answer, their models, and other names for these.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::AgentDefaults;
use super::auth::{self, Auth};
use crate::job::keys::did_you_mean;
use crate::job::tree::{Item, Node};
use crate::job::{
    Environment, FILE_BYTES_MAX, ModelNeeds, ModelRef, Models, Problem, Unresolved, read_text,
};
use crate::provider::{Api as Wire, Script, Usage};

/// A place that answers model requests.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Where its answers come from.
    pub api: Api,
    /// How it knows us.
    pub auth: Auth,
    /// P of semantics §2.
    pub timeout: Option<Duration>,
    /// The limit of the wait for the first token.
    pub first_token_timeout: Option<Duration>,
    /// Its models; with none listed, any name is taken.
    pub models: BTreeMap<String, ModelConfig>,
}

/// Where a provider's answers come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Api {
    /// A server.
    Http {
        /// Its language.
        speaks: Wire,
        /// Where it is, without a slash at the end of its path.
        base_url: Url,
    },
    /// A file of answers.
    Script(PathBuf),
    /// The program that embeds the library.
    Embedded,
}

impl Api {
    /// Where it is, as text; nothing for a file.
    pub fn base_url(&self) -> &str {
        match self {
            Self::Http { base_url, .. } => base_url.as_str(),
            Self::Script(_) | Self::Embedded => "",
        }
    }
}

/// What is known of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelConfig {
    /// In tokens.
    pub context_window: Option<u64>,
    /// Of one answer, in tokens.
    pub max_output_tokens: Option<u64>,
    /// What it costs; `None` is unknown, not free.
    pub price: Option<Price>,
}

/// USD per million tokens. What is not written costs nothing, once a price is written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Price {
    /// Input tokens.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Tokens read from a cache.
    pub cache_read: f64,
    /// Tokens written to a cache.
    pub cache_write: f64,
}

impl Price {
    /// What `usage` costs in USD; `None` while the provider has not said how much it was.
    pub fn of(self, usage: Usage) -> Option<f64> {
        (usage.input_tokens.is_some() && usage.output_tokens.is_some())
            .then(|| self.of_known(usage))
    }

    /// What is known of `usage` costs that in USD.
    pub fn of_known(self, usage: Usage) -> f64 {
        let (input, output) = (usage.input_tokens.unwrap_or(0), usage.output_tokens.unwrap_or(0));
        let (read, written) =
            (usage.cache_read_tokens.unwrap_or(0), usage.cache_write_tokens.unwrap_or(0));
        let part = |tokens: u64, per_million: f64| {
            #[expect(clippy::cast_precision_loss, reason = "2^53 tokens are beyond any bill")]
            let tokens = tokens as f64;
            tokens * per_million / 1e6
        };
        // Cached tokens are among the input tokens and have a price of their own.
        part(input.saturating_sub(read).saturating_sub(written), self.input)
            + part(output, self.output)
            + part(read, self.cache_read)
            + part(written, self.cache_write)
    }

    /// The least that so many input tokens can cost in USD, however many of them a cache has.
    pub fn least_of_input(self, tokens: u64) -> f64 {
        let cheapest = self.input.min(self.cache_read).min(self.cache_write);
        let input_tokens = Some(tokens);
        Self { input: cheapest, ..Self::default() }
            .of_known(Usage { input_tokens, ..Usage::default() })
    }

    /// Whether nothing of it costs anything.
    pub fn is_free(self) -> bool {
        self == Self::default()
    }
}

/// All providers and aliases, as far as they are right.
#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    pub(super) providers: BTreeMap<String, ProviderConfig>,
    pub(super) aliases: BTreeMap<String, ModelRef>,
    /// Providers and aliases that are written and have been reported.
    reported: BTreeSet<String>,
}

pub(super) fn directory(root: &Node, problems: &mut Vec<Problem>) -> Directory {
    let mut directory = Directory::default();
    for (id, entry) in root.get("models.providers").and_then(Node::table).into_iter().flatten() {
        match provider(id, &entry.node, problems) {
            Some(provider) => {
                directory.providers.insert(id.clone(), provider);
            }
            None => {
                directory.reported.insert(id.clone());
            }
        }
    }
    for (name, entry) in root.get("models.aliases").and_then(Node::table).into_iter().flatten() {
        match alias(name, &entry.node, &directory, problems) {
            Some(model) => {
                directory.aliases.insert(name.clone(), model);
            }
            None => {
                directory.reported.insert(name.clone());
            }
        }
    }
    directory
}

fn alias(
    name: &str,
    node: &Node,
    directory: &Directory,
    problems: &mut Vec<Problem>,
) -> Option<ModelRef> {
    let target = node.as_text()?;
    let key = format!("models.aliases.{name}");
    if name.is_empty() || name.contains('/') {
        problems.push(node.error(&key, "an alias has a name without `/`"));
        return None;
    }
    if !target.contains('/') {
        problems.push(node.error(&key, format!("`{target}` is not provider/model")));
        return None;
    }
    directory.resolve_at(node, &key, problems)
}

fn provider(id: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<ProviderConfig> {
    let key = |name: &str| format!("models.providers.{id}.{name}");
    node.table()?;
    if id.is_empty() || id.contains('/') {
        let path = format!("models.providers.{id}");
        problems.push(node.error(&path, "a provider has a name without `/`"));
    }
    let Some(api) = node.get("api") else {
        let problem =
            node.error(&key("api"), format!("the provider `{id}` does not say its `api`"));
        problems.push(problem.with_help("openai, anthropic, ollama or script".to_owned()));
        return None;
    };
    let (speaks, usual_url) = match api.as_text()? {
        "openai" => (Some(Wire::OpenAi), "https://api.openai.com/v1"),
        "anthropic" => (Some(Wire::Anthropic), "https://api.anthropic.com"),
        "ollama" => (Some(Wire::Ollama), "http://127.0.0.1:11434"),
        _ => (None, ""),
    };
    let (misplaced, why) = match speaks {
        None => ("base_url", "`api = \"script\"` has no `base_url`"),
        Some(_) => ("script", "`script` is only for `api = \"script\"`"),
    };
    let is_embedded = api.as_text() == Some("embedded");
    if let Some(place) = node.get(misplaced).filter(|_| !is_embedded) {
        problems.push(place.error(&key(misplaced), why));
    }
    let auth = auth::read(id, node, problems);
    let api = match (speaks, node.get("base_url")) {
        (None, _) if is_embedded => Api::Embedded,
        (None, _) => Api::Script(script(node, &key("script"), problems)?),
        (Some(speaks), None) => {
            let base_url = Url::parse(usual_url).expect("the usual addresses are addresses");
            Api::Http { speaks, base_url }
        }
        (Some(speaks), Some(place)) => {
            Api::Http { speaks, base_url: base_url(place, &key("base_url"), problems)? }
        }
    };
    Some(ProviderConfig {
        api,
        auth,
        timeout: node.duration("timeout"),
        first_token_timeout: node.duration("first_token_timeout"),
        models: models(node),
    })
}

fn script(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    let Some(place) = node.get("script") else {
        problems.push(node.error(key, "`api = \"script\"` needs `script`, a file of answers"));
        return None;
    };
    place.as_text()?;
    let path = node.path("script")?;
    match read_text(&path, FILE_BYTES_MAX) {
        Err(error) => {
            problems.push(place.error(key, format!("the script `{}`: {error}", path.display())));
        }
        // It is read anew by each run: what is wrong in it now stops only the runs that need it.
        Ok(text) => {
            if let Err(error) = Script::parse(&text) {
                let words = format!("the script `{}`: {error}", path.display());
                problems.push(place.error(key, words).as_warning());
            }
        }
    }
    Some(path)
}

fn base_url(place: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Url> {
    let text = place.as_text()?.trim().trim_end_matches('/');
    let checked = Url::parse(text).map_err(|error| format!("this is not a URL: {error}"));
    let message = match checked {
        Err(message) => message,
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            "a provider is reached by http or https".to_owned()
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "a URL cannot carry a password here: use `api_key_env`".to_owned()
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            "paths are added to this URL: it cannot have `?` or `#`".to_owned()
        }
        Ok(url) => return Some(url),
    };
    let help = "such as http://127.0.0.1:8080/v1".to_owned();
    problems.push(place.error(key, message).with_help(help));
    None
}

fn models(node: &Node) -> BTreeMap<String, ModelConfig> {
    let table = node.get("models").and_then(Node::table);
    let usable = table.into_iter().flatten().filter(|(_, entry)| {
        // A refused model is still a name: jobs that use it are not told that it is unknown.
        matches!(entry.node.item, Item::Table(_) | Item::Refused)
    });
    usable
        .map(|(name, entry)| {
            let node = &entry.node;
            let config = ModelConfig {
                context_window: node.integer("context_window"),
                max_output_tokens: node.integer("max_output_tokens"),
                price: node.get("price").map(price),
            };
            (name.clone(), config)
        })
        .collect()
}

fn price(node: &Node) -> Price {
    let of = |key| node.float(key).unwrap_or(0.0);
    Price {
        input: of("input"),
        output: of("output"),
        cache_read: of("cache_read"),
        cache_write: of("cache_write"),
    }
}

impl Directory {
    /// What a model costs; `None` is unknown.
    pub(super) fn price_of(&self, model: &ModelRef) -> Option<Price> {
        self.providers.get(&model.provider)?.models.get(&model.model)?.price
    }

    /// What the text at `place` stands for; a problem, unless what it names has been reported.
    pub(super) fn resolve_at(
        &self,
        place: &Node,
        key: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<ModelRef> {
        let text = place.as_text()?;
        let named = text.split('/').next().unwrap_or(text);
        match self.resolve(text) {
            Ok(model) => return Some(model),
            Err(_) if self.reported.contains(named) => {}
            Err(unresolved) => {
                let problem = place.error(key, unresolved.message);
                problems.push(problem.with_help(unresolved.help));
            }
        }
        None
    }

    /// What `provider/model` or an alias stands for.
    pub(super) fn resolve(&self, text: &str) -> Result<ModelRef, Unresolved> {
        match self.aliases.get(text) {
            Some(model) => Ok(model.clone()),
            None if text.contains('/') => self.model(text),
            None => Err(Unresolved {
                message: format!("`{text}` is neither provider/model nor an alias"),
                help: nearest_or_all(text, self.aliases.keys().map(String::as_str)),
            }),
        }
    }

    fn model(&self, text: &str) -> Result<ModelRef, Unresolved> {
        let (id, model) = text.split_once('/').unwrap_or((text, ""));
        let Some(provider) = self.providers.get(id) else {
            return Err(Unresolved {
                message: format!("there is no provider `{id}`"),
                help: nearest_or_all(id, self.providers.keys().map(String::as_str)),
            });
        };
        if model.is_empty() {
            let message = format!("`{text}` names no model");
            return Err(Unresolved { message, help: None });
        }
        if !provider.models.is_empty() && !provider.models.contains_key(model) {
            return Err(Unresolved {
                message: format!("the provider `{id}` has no model `{model}`"),
                help: nearest_or_all(model, provider.models.keys().map(String::as_str)),
            });
        }
        Ok(ModelRef { provider: id.to_owned(), model: model.to_owned() })
    }
}

fn nearest_or_all<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    let all: Vec<_> = known.clone().take(10).collect();
    did_you_mean(word, known)
        .or_else(|| (!all.is_empty()).then(|| format!("there are {}", all.join(", "))))
}

/// The models as jobs see them, with each provider's key looked at once.
pub(super) struct JobModels<'a> {
    pub(super) directory: &'a Directory,
    pub(super) defaults: &'a AgentDefaults,
    needs: BTreeMap<&'a str, ModelNeeds>,
}

impl<'a> JobModels<'a> {
    pub(super) fn new(
        directory: &'a Directory,
        defaults: &'a AgentDefaults,
        environment: &Environment,
    ) -> Self {
        let needs = directory.providers.iter().map(|(id, provider)| {
            let timeouts = [
                ("timeout", provider.timeout),
                ("first_token_timeout", provider.first_token_timeout),
            ];
            let timeouts =
                timeouts.into_iter().filter_map(|(key, limit)| Some((key, limit?))).collect();
            let key_problem = provider.auth.problem(environment);
            (id.as_str(), ModelNeeds { timeouts, key_problem })
        });
        Self { directory, defaults, needs: needs.collect() }
    }
}

impl Models for JobModels<'_> {
    fn default_model(&self) -> Option<ModelRef> {
        self.defaults.model.clone()
    }

    fn default_fallbacks(&self) -> &[ModelRef] {
        &self.defaults.fallbacks
    }

    fn resolve(&self, text: &str) -> Result<ModelRef, Unresolved> {
        self.directory.resolve(text)
    }

    fn has_price(&self, model: &ModelRef) -> bool {
        self.directory.price_of(model).is_some()
    }

    fn needs(&self, model: &ModelRef) -> ModelNeeds {
        self.needs.get(model.provider.as_str()).cloned().unwrap_or_default()
    }
}
