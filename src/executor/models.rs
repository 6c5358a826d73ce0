//! The models of the configuration, ready to be asked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::embedding::Embedding;
use super::windows::Windows;
use crate::cassette::Deck;
use crate::config::{Api, ApiKey, Config, ProviderConfig};
use crate::job::{Environment, FILE_BYTES_MAX, ModelRef, SecretError, read_text};
use crate::plan::Server;
use crate::provider::{
    Anthropic, Api as Wire, Endpoint, Locality, Ollama, OpenAi, Provider, Proxies, Script,
    Scripted, Tape, http_client,
};
use crate::turn::Model;

/// A model that cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No such provider. (Job files are checked for this when they are loaded.)
    #[error("no provider `{0}` is configured")]
    UnknownProvider(String),
    /// It is answered for by another program.
    #[error("this program does not answer for the provider `{0}`")]
    NotEmbedded(String),
    /// Its key cannot be read.
    #[error("the {key} cannot be read: {source}")]
    Key {
        /// Which one.
        key: String,
        /// Why.
        #[source]
        source: SecretError,
    },
    /// The HTTP client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
    /// Its script cannot be read.
    #[error("the script {path} cannot be used: {reason}")]
    Script {
        /// Which one.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// All models of a configuration.
#[derive(Debug)]
pub struct Models {
    /// Made when the first request needs it: reading the root certificates takes a while.
    client: OnceLock<reqwest::Client>,
    /// The same without proxies, for models on this machine or network.
    near: OnceLock<reqwest::Client>,
    providers: HashMap<String, ProviderConfig>,
    environment: Environment,
    /// What servers have said of their models.
    pub(super) windows: Windows,
    embedding: Embedding,
}

/// A model and a key, with what the limits of its requests depend on.
pub(super) struct Resolved {
    pub(super) name: ModelRef,
    /// Its key's name, if that has one.
    pub(super) profile: Option<String>,
    /// The key's place among those of its provider.
    pub(super) profile_at: usize,
    /// Keys after it.
    pub(super) profiles_left: usize,
    pub(super) model: Model,
    pub(super) timeout: Option<Duration>,
    pub(super) first_token_timeout: Option<Duration>,
    pub(super) locality: Locality,
}

impl Models {
    /// The models of `config`. No connection is made.
    pub fn new(config: &Config) -> Self {
        let providers =
            config.providers().iter().map(|(id, it)| (id.clone(), it.clone())).collect();
        let environment = config.environment.clone();
        Self {
            client: OnceLock::new(),
            near: OnceLock::new(),
            providers,
            environment,
            windows: Windows::default(),
            embedding: Embedding::default(),
        }
    }

    /// The same with the providers of a program.
    #[must_use]
    pub fn with(self, embedding: &Embedding) -> Self {
        Self { embedding: embedding.clone(), ..self }
    }

    /// The keys of all providers, by name, as far as they can be read now: what must never be
    /// stored or shown.
    pub fn secrets(&self) -> impl Iterator<Item = (String, SecretString)> + '_ {
        self.providers.iter().flat_map(|(id, provider)| {
            let read = |(name, key): (Option<&str>, &ApiKey)| {
                Some((key_name(id, name), key.read(&self.environment).ok()?))
            };
            provider.auth.keys().into_iter().filter_map(read).collect::<Vec<_>>()
        })
    }

    /// `wanted`, ready to be asked with the key at `profile_at` of its provider's, if it has any;
    /// through `deck`, if there is one.
    pub(super) fn resolve(
        &self,
        wanted: &ModelRef,
        profile_at: usize,
        deck: Option<&Deck>,
    ) -> Result<Resolved, ModelError> {
        let config = self
            .providers
            .get(&wanted.provider)
            .ok_or_else(|| ModelError::UnknownProvider(wanted.provider.clone()))?;
        let of_model = config.models.get(&wanted.model);
        let keys = config.auth.keys();
        let key = keys.get(profile_at).copied();
        Ok(Resolved {
            name: wanted.clone(),
            profile: key.and_then(|(name, _)| name).map(str::to_owned),
            profile_at,
            profiles_left: keys.len().saturating_sub(profile_at + 1),
            model: Model {
                name: wanted.model.clone(),
                known_as: wanted.to_string(),
                max_output_tokens: of_model
                    .and_then(|model| u32::try_from(model.max_output_tokens?).ok()),
                context_window: of_model.and_then(|model| model.context_window),
                price: of_model.and_then(|model| model.price),
                provider: match deck {
                    None => self.provider(&wanted.provider, config, key, None)?,
                    Some(deck) => deck.provider(wanted.to_string(), |tape| {
                        self.provider(&wanted.provider, config, key, Some(tape))
                    })?,
                },
            },
            timeout: config.timeout,
            first_token_timeout: config.first_token_timeout,
            locality: Locality::of(config.api.base_url(), &wanted.provider, &wanted.model),
        })
    }

    /// Where `model` is asked with the key at `profile_at`, if it is at a server.
    pub(super) fn endpoint_of(
        &self,
        model: &ModelRef,
        profile_at: usize,
    ) -> Option<(Wire, Endpoint)> {
        let config = self.providers.get(&model.provider)?;
        let Api::Http { speaks, base_url } = &config.api else { return None };
        let key = config.auth.keys().get(profile_at).copied();
        Some((*speaks, self.endpoint(&model.provider, base_url, key).ok()?))
    }

    /// The server that is asked at that URL.
    pub(super) fn place_of(&self, server: &Server) -> Option<(Wire, &Url)> {
        self.providers.values().find_map(|provider| match &provider.api {
            Api::Http { speaks, base_url } if base_url.as_str() == server.0 => {
                Some((*speaks, base_url))
            }
            Api::Http { .. } | Api::Script(_) | Api::Embedded => None,
        })
    }

    fn provider(
        &self,
        id: &str,
        config: &ProviderConfig,
        key: Option<(Option<&str>, &ApiKey)>,
        tape: Option<Tape>,
    ) -> Result<Arc<dyn Provider>, ModelError> {
        match &config.api {
            Api::Script(path) => scripted(path),
            Api::Embedded => self
                .embedding
                .own_provider(id)
                .ok_or_else(|| ModelError::NotEmbedded(id.to_owned())),
            Api::Http { speaks, base_url } => {
                let endpoint = Endpoint { tape, ..self.endpoint(id, base_url, key)? };
                let client = self.client(Locality::of(base_url.as_str(), id, ""))?;
                Ok(match speaks {
                    Wire::OpenAi => Arc::new(OpenAi::new(client, endpoint)),
                    Wire::Anthropic => Arc::new(Anthropic::new(client, endpoint)),
                    Wire::Ollama => Arc::new(Ollama::new(client, endpoint)),
                })
            }
        }
    }

    /// A proxy of the environment is for the way out, not for `127.0.0.1`.
    pub(super) fn client(&self, locality: Locality) -> Result<reqwest::Client, ModelError> {
        let (made, proxies) = match locality {
            Locality::Local => (&self.near, Proxies::None),
            Locality::SelfHosted | Locality::Cloud => (&self.client, Proxies::OfEnvironment),
        };
        if let Some(client) = made.get() {
            return Ok(client.clone());
        }
        let client = http_client(proxies).map_err(ModelError::Client)?;
        Ok(made.get_or_init(|| client).clone())
    }

    fn endpoint(
        &self,
        id: &str,
        base_url: &Url,
        key: Option<(Option<&str>, &ApiKey)>,
    ) -> Result<Endpoint, ModelError> {
        let endpoint = Endpoint::new(base_url.clone());
        let Some((name, key)) = key else { return Ok(endpoint) };
        let key = key
            .read(&self.environment)
            .map_err(|source| ModelError::Key { key: key_name(id, name), source })?;
        Ok(endpoint.with_key(key))
    }
}

/// What a key is called where it cannot be shown.
fn key_name(provider: &str, profile: Option<&str>) -> String {
    match profile {
        Some(profile) => format!("key `{profile}` of {provider}"),
        None => format!("key of {provider}"),
    }
}

fn scripted(path: &Path) -> Result<Arc<dyn Provider>, ModelError> {
    let failed = |reason: String| ModelError::Script { path: path.to_owned(), reason };
    let text = read_text(path, FILE_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
    let script = Script::parse(&text).map_err(|error| failed(error.to_string()))?;
    Ok(Arc::new(Scripted::new(script)))
}
