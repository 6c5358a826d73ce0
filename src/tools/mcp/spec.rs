//! A server of the configuration with everything read that it needs.

use std::time::Duration;

use globset::{Glob, GlobMatcher};
use secrecy::SecretString;

use crate::config::{McpServer, McpWay};
use crate::job::{EnvSpec, Environment, MCP_MARK, with_sources};

/// How a server is reached and how far it is trusted with time.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    pub(super) name: String,
    pub(super) way: Way,
    /// Its own patterns; `None`: all of its tools.
    pub(super) allowed: Option<Vec<GlobMatcher>>,
    /// Patterns of names as they are offered; `None`: there is no ceiling.
    pub(super) ceiling: Option<Vec<GlobMatcher>>,
    pub(super) timeout: Option<Duration>,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) start_timeout: Duration,
}

#[derive(Debug, Clone)]
pub(super) enum Way {
    Command { argv: Vec<String>, env: Vec<(String, String)> },
    Http { url: SecretString, token: Option<SecretString>, headers: Vec<(String, SecretString)> },
}

impl ServerSpec {
    /// Reads what `server` needs; the words of an error hold no secret.
    pub fn read(
        name: &str,
        server: &McpServer,
        ceiling: Option<&[String]>,
        environment: &Environment,
    ) -> Result<Self, String> {
        let way = match &server.way {
            McpWay::Command { argv, env } => {
                Way::Command { argv: argv.clone(), env: variables(env, environment)? }
            }
            McpWay::Http { url, token, headers } => {
                let read = |text: &crate::job::SecretText| {
                    text.read(environment).map_err(|error| with_sources(&error))
                };
                let headers = headers.iter().map(|(name, text)| Ok((name.clone(), read(text)?)));
                Way::Http {
                    url: read(url)?,
                    token: token.as_ref().map(read).transpose()?,
                    headers: headers.collect::<Result<_, String>>()?,
                }
            }
        };
        let ceiling = ceiling.map(|patterns| {
            let mine = format!("{name}{MCP_MARK}");
            patterns.iter().filter(|it| it.starts_with(&mine)).cloned().collect::<Vec<_>>()
        });
        Ok(Self {
            name: name.to_owned(),
            way,
            allowed: server.tools.as_deref().map(matchers),
            ceiling: ceiling.as_deref().map(matchers),
            timeout: server.timeout,
            idle_timeout: server.idle_timeout,
            start_timeout: server.start_timeout,
        })
    }

    /// The same for a start that may not take longer than `limit`.
    #[must_use]
    pub fn starting_within(self, limit: Duration) -> Self {
        Self { start_timeout: self.start_timeout.min(limit), ..self }
    }

    /// What is said about it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The configuration has looked at the patterns; one that is none matches nothing.
fn matchers(patterns: &[String]) -> Vec<GlobMatcher> {
    let matcher = |pattern: &String| Some(Glob::new(pattern).ok()?.compile_matcher());
    patterns.iter().filter_map(matcher).collect()
}

fn variables(env: &EnvSpec, ours: &Environment) -> Result<Vec<(String, String)>, String> {
    use secrecy::ExposeSecret as _;
    let passed = env.pass.iter().filter_map(|name| Some((name.clone(), ours.get(name)?)));
    let set = env.set.iter().map(|(name, value)| (name.clone(), value.clone()));
    let mut all: Vec<_> = passed.chain(set).collect();
    for (name, source) in &env.secret {
        let value = source.read(ours).map_err(|error| format!("`{name}`: {error}"))?;
        all.push((name.clone(), value.expose_secret().to_owned()));
    }
    Ok(all)
}
