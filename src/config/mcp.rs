//! `[mcp.servers.<name>]`: programs whose tools a model may be offered.
//!
//! A server that is written wrongly is an error of the configuration. One whose secret is not set
//! is an error of the jobs that name it: the others go on.

use std::collections::BTreeMap;
use std::time::Duration;

use globset::Glob;
use reqwest::header::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use crate::job::keys::did_you_mean;
use crate::job::tree::{Entry, Item, Node};
use crate::job::{
    EnvSpec, Environment, MCP_MARK, McpServers, Problem, SecretSource, SecretText, Unresolved,
    argv_of, env, secret_text, url_problem, with_sources,
};

/// `start_timeout`, unless it is written: package runners download first.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A longer name would leave little of a tool's own in the 64 characters that providers allow.
const NAME_CHARS_MAX: usize = 32;

/// A program whose tools a model may be offered.
#[derive(Debug, Clone)]
pub struct McpServer {
    /// How it is reached.
    pub way: McpWay,
    /// Patterns of the tools that are offered; `None`: all are.
    pub tools: Option<Vec<String>>,
    /// How long one call may take; `None`: as long as the job's tools may.
    pub timeout: Option<Duration>,
    /// How long a call may be without an answer or a sign of progress; `None`: that is not watched.
    pub idle_timeout: Option<Duration>,
    /// From its start to the list of its tools.
    pub start_timeout: Duration,
}

/// How an MCP server is reached.
#[derive(Debug, Clone)]
pub enum McpWay {
    /// It is started for each run, and talked with on its standard input and output.
    Command {
        /// It, with its arguments.
        argv: Vec<String>,
        /// What it sees beside what the job's commands see.
        env: EnvSpec,
    },
    /// It runs already, and is talked with by streamable HTTP.
    Http {
        /// Its address.
        url: SecretText,
        /// Who we are to it.
        token: Option<SecretText>,
        /// More headers.
        headers: BTreeMap<String, SecretText>,
    },
}

impl McpServer {
    /// Everything secret of it, each with the name that stands for it; or why one cannot be read.
    pub fn secrets(
        &self,
        name: &str,
        environment: &Environment,
    ) -> Result<Vec<(String, SecretString)>, String> {
        let words = |key: &str, error| format!("`{key}`: {}", with_sources(&error));
        match &self.way {
            McpWay::Command { env, .. } => {
                let read = |(key, source): (&String, &SecretSource)| {
                    let text = source.read(environment);
                    Ok((key.clone(), text.map_err(|error| words(key, error))?))
                };
                env.secret.iter().map(read).collect()
            }
            McpWay::Http { url, token, headers } => {
                let of_url = std::iter::once(("url", url));
                let of_token = token.iter().map(|token| ("token", token));
                let of_headers = headers.iter().map(|(name, text)| (name.as_str(), text));
                let read = |(key, text): (&str, &SecretText)| {
                    let read = text.read(environment).map_err(|error| words(key, error))?;
                    Ok((format!("{key} of {name}"), read))
                };
                let all = of_url.filter(|(_, url)| is_secret(url)).chain(of_token);
                all.chain(of_headers).map(read).collect()
            }
        }
    }

    /// Why it cannot be used now, without its secrets.
    fn problem(&self, environment: &Environment) -> Option<String> {
        if let Err(why) = self.secrets("", environment) {
            return Some(why);
        }
        let McpWay::Http { url, token, headers } = &self.way else { return None };
        if let Some(why) = url.url_problem(environment) {
            return Some(format!("`url`: {why}"));
        }
        let texts = token.iter().map(|token| ("token", token));
        let mut texts = texts.chain(headers.iter().map(|(name, text)| (name.as_str(), text)));
        let is_bad = |(_, text): &(&str, &SecretText)| {
            let text = text.read(environment);
            text.is_ok_and(|text| HeaderValue::try_from(text.expose_secret()).is_err())
        };
        texts.find(is_bad).map(|(key, _)| format!("`{key}` cannot be the value of a header"))
    }
}

/// An address that stands in the file and holds no more than a place may be shown.
fn is_secret(url: &SecretText) -> bool {
    match url {
        SecretText::Named(_) => true,
        SecretText::Literal(text) => text.expose_secret().contains(['?', '@']),
    }
}

/// The servers as jobs see them.
pub(super) struct JobServers<'a> {
    /// Each with why it cannot be used, if it cannot.
    known: BTreeMap<&'a str, Option<String>>,
}

impl<'a> JobServers<'a> {
    pub(super) fn new(servers: &'a BTreeMap<String, McpServer>, environment: &Environment) -> Self {
        let known = servers.iter().map(|(name, it)| (name.as_str(), it.problem(environment)));
        Self { known: known.collect() }
    }
}

impl McpServers for JobServers<'_> {
    fn resolve(&self, name: &str) -> Result<(), Unresolved> {
        match self.known.get(name) {
            Some(None) => Ok(()),
            Some(Some(why)) => {
                let message = format!("the MCP server `{name}` cannot be used: {why}");
                Err(Unresolved { message, help: None })
            }
            None => {
                let help = did_you_mean(name, self.known.keys().copied());
                let help = help.unwrap_or_else(|| {
                    format!("name it under [mcp.servers.{name}] in config.toml")
                });
                let message = format!("there is no MCP server `{name}`");
                Err(Unresolved { message, help: Some(help) })
            }
        }
    }
}

/// The servers by their names.
pub(super) fn mcp_servers(root: &Node, problems: &mut Vec<Problem>) -> BTreeMap<String, McpServer> {
    let table = root.get("mcp.servers").and_then(Node::table);
    let read = |(name, entry): (&String, &Entry)| {
        let mut reader = Reader { name, entry, problems };
        Some((name.clone(), reader.server()?))
    };
    table.into_iter().flatten().filter_map(read).collect()
}

/// The keys that only one kind of server may have.
const OF_COMMAND: &[&str] = &["command", "env"];
const OF_URL: &[&str] = &[
    "url",
    "url_env",
    "url_file",
    "token",
    "token_env",
    "token_file",
    "headers",
    "headers_env",
    "headers_file",
];

struct Reader<'a> {
    name: &'a str,
    entry: &'a Entry,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn server(&mut self) -> Option<McpServer> {
        let node = &self.entry.node;
        let table = node.table()?;
        let before = self.problems.len();
        self.check_name();
        let way = match node.get("command") {
            Some(command) => {
                self.refuse_all(OF_URL, "a server with a `command` is started, and has no");
                self.command(command)
            }
            None if OF_URL.iter().any(|key| key.starts_with("url") && node.get(key).is_some()) => {
                self.refuse_all(OF_COMMAND, "a server with a `url` runs already, and has no");
                self.http()
            }
            None => {
                let help = "write `command = [\"program\", …]`, or `url` where one runs already";
                self.refuse("command", "neither `command` nor `url` is given", Some(help.into()));
                None
            }
        };
        let tools = self.tools();
        let is_refused = table.values().any(|entry| matches!(entry.node.item, Item::Refused));
        let is_sound = !is_refused && self.problems.len() == before;
        let server = McpServer {
            way: way?,
            tools,
            timeout: node.duration("timeout"),
            idle_timeout: node.duration("idle_timeout"),
            start_timeout: node.duration("start_timeout").unwrap_or(START_TIMEOUT),
        };
        is_sound.then_some(server)
    }

    fn path(&self, key: &str) -> String {
        format!("mcp.servers.{}.{key}", self.name)
    }

    fn refuse(&mut self, key: &str, words: &str, help: Option<String>) {
        let words = format!("the MCP server `{}`: {words}", self.name);
        let place = self.entry.node.get(key).unwrap_or(&self.entry.node);
        self.problems.push(place.error(&self.path(key), words).with_help(help));
    }

    fn refuse_all(&mut self, keys: &[&str], why: &str) {
        for key in keys {
            if self.entry.node.get(key).is_some() {
                self.refuse(key, &format!("{why} `{key}`"), None);
            }
        }
    }

    /// The name stands before that of each of its tools.
    fn check_name(&mut self) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = self.name;
        let is_good = !name.is_empty()
            && name.len() <= NAME_CHARS_MAX
            && name.chars().all(is_plain)
            && !name.contains(MCP_MARK)
            && !name.ends_with('_');
        if is_good {
            return;
        }
        let words = format!("`{name}` cannot name an MCP server");
        let help = format!(
            "letters, digits, `-` and single `_` inside, {NAME_CHARS_MAX} characters at most"
        );
        let (source, span) = (&self.entry.key_source, self.entry.key_span.clone());
        let problem = source.error(span, format!("mcp.servers.{name}"), words);
        self.problems.push(problem.with_help(help));
    }

    fn command(&mut self, command: &Node) -> Option<McpWay> {
        match argv_of(command)? {
            Err(words) => {
                self.refuse("command", &words, None);
                None
            }
            Ok(argv) => {
                let env = env(&self.entry.node, &self.path(""), self.problems);
                Some(McpWay::Command { argv, env })
            }
        }
    }

    fn http(&mut self) -> Option<McpWay> {
        let url = self.secret("url");
        if let Some(problem) = self.entry.node.text("url").and_then(url_problem) {
            self.refuse("url", &problem, None);
        }
        let token = self.secret("token");
        let headers = self.headers();
        if token.is_some() && headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
        {
            self.refuse("token", "both `token` and a header `authorization` are given", None);
        }
        Some(McpWay::Http { url: url?, token, headers })
    }

    fn secret(&mut self, key: &str) -> Option<SecretText> {
        let (path, whose) = (self.path(key), format!("the MCP server `{}`", self.name));
        secret_text(&self.entry.node, key, &path, &whose, self.problems)
    }

    fn headers(&mut self) -> BTreeMap<String, SecretText> {
        let node = &self.entry.node;
        let literal = node.text_map("headers").into_iter();
        let literal = literal.map(|(name, text)| (name, SecretText::Literal(text.into())));
        let by_variable = node.text_map("headers_env").into_iter();
        let by_variable =
            by_variable.map(|(name, it)| (name, SecretText::Named(SecretSource::Env(it))));
        let folder = |key| node.get(key).map(|table| table.source.folder().to_owned());
        let folder = folder("headers_file").unwrap_or_default();
        let by_file = node.text_map("headers_file").into_iter();
        let by_file = by_file
            .map(|(name, path)| (name, SecretText::Named(SecretSource::File(folder.join(path)))));
        let mut headers: BTreeMap<String, SecretText> = BTreeMap::new();
        for (name, text) in literal.chain(by_variable).chain(by_file) {
            if HeaderName::try_from(name.as_str()).is_err() {
                self.refuse("headers", &format!("`{name}` is no header"), None);
            } else if headers.keys().any(|known| known.eq_ignore_ascii_case(&name)) {
                self.refuse("headers", &format!("the header `{name}` is given twice"), None);
            } else {
                headers.insert(name, text);
            }
        }
        headers
    }

    fn tools(&mut self) -> Option<Vec<String>> {
        let written = self.entry.node.texts("tools")?;
        for (pattern, place) in &written {
            if let Err(error) = Glob::new(pattern) {
                let words = format!("`{pattern}` is no pattern: {}", error.kind());
                self.problems.push(place.error(&self.path("tools"), words));
            }
        }
        Some(written.into_iter().map(|(pattern, _)| pattern.to_owned()).collect())
    }
}
