//! `[targets.<name>]`: where replies and alerts can be sent.
//!
//! A target that is written wrongly is an error of the configuration. One whose secret is not set
//! is an error of the jobs that name it: the others go on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::job::keys::did_you_mean;
use crate::job::tree::{Item, Node};
use crate::job::{
    Environment, Problem, SecretText, Targets, Unresolved, secret_text, template_problem,
    url_problem, with_sources,
};

/// How long one try to send may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where something can be sent.
#[derive(Debug, Clone)]
pub struct Target {
    /// What it is, with what that needs.
    pub kind: TargetKind,
    /// How long one try may take.
    pub timeout: Duration,
}

/// What a target is.
#[derive(Debug, Clone)]
pub enum TargetKind {
    /// A server that takes the run as JSON.
    Webhook(Webhook),
    /// An incoming webhook of Slack.
    Slack {
        /// Its address, which is its key.
        url: SecretText,
    },
    /// A mailbox, through a mail server.
    Email(Email),
    /// A file.
    File {
        /// A template of its path.
        path: String,
        /// What that is relative to.
        folder: PathBuf,
    },
    /// A program that gets the run as JSON on its standard input.
    Command {
        /// It, with its arguments.
        argv: Vec<String>,
        /// Where it starts.
        folder: PathBuf,
    },
}

/// A server that takes the run as JSON.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Its address.
    pub url: SecretText,
    /// What signs the body.
    pub secret: Option<SecretText>,
    /// More headers.
    pub headers: BTreeMap<String, SecretString>,
}

/// A mailbox, through a mail server.
#[derive(Debug, Clone)]
pub struct Email {
    /// The mail server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the way there is kept private.
    pub tls: Tls,
    /// A certificate to trust besides the usual ones.
    pub ca_file: Option<PathBuf>,
    /// Whom it knows us as.
    pub user: Option<String>,
    /// And by what.
    pub password: Option<SecretText>,
    /// The sender.
    pub from: String,
    /// The receivers.
    pub to: Vec<String>,
}

words!(
    /// How the way to a mail server is kept private.
    Tls {
        /// It begins in the open and turns private before anything is said.
        Starttls = "starttls",
        /// It is private from the first byte on.
        Tls = "tls",
        /// It is not.
        None = "none",
    }
);

impl Target {
    /// The secrets of it that can be read, each with the name that stands for it.
    pub fn secrets(&self, name: &str, environment: &Environment) -> Vec<(String, SecretString)> {
        let read = |(key, text): &(&'static str, &SecretText)| {
            Some((format!("{key} of {name}"), text.read(environment).ok()?))
        };
        let mut secrets: Vec<_> = self.texts().iter().filter_map(read).collect();
        if let TargetKind::Webhook(webhook) = &self.kind {
            let headers = webhook.headers.iter();
            secrets.extend(headers.map(|(key, text)| (format!("{key} of {name}"), text.clone())));
        }
        secrets
    }

    fn texts(&self) -> Vec<(&'static str, &SecretText)> {
        match &self.kind {
            TargetKind::Webhook(webhook) => {
                let secret = webhook.secret.as_ref().map(|secret| ("secret", secret));
                [("url", &webhook.url)].into_iter().chain(secret).collect()
            }
            TargetKind::Slack { url } => vec![("url", url)],
            TargetKind::Email(email) => {
                email.password.iter().map(|password| ("password", password)).collect()
            }
            TargetKind::File { .. } | TargetKind::Command { .. } => Vec::new(),
        }
    }

    /// Why it cannot be used now, without its secrets.
    fn problem(&self, environment: &Environment) -> Option<String> {
        let unread = |(key, text): (&str, &SecretText)| {
            let words = match text.read(environment) {
                Err(error) => with_sources(&error),
                Ok(text) if key == "url" => {
                    url_problem(secrecy::ExposeSecret::expose_secret(&text))?
                }
                Ok(_) => return None,
            };
            Some(format!("`{key}`: {words}"))
        };
        self.texts().into_iter().find_map(unread)
    }
}

/// The targets as jobs see them.
pub(super) struct JobTargets<'a> {
    /// Each with why it cannot be used, if it cannot.
    known: BTreeMap<&'a str, Option<String>>,
}

impl<'a> JobTargets<'a> {
    pub(super) fn new(targets: &'a BTreeMap<String, Target>, environment: &Environment) -> Self {
        let known = targets.iter().map(|(name, it)| (name.as_str(), it.problem(environment)));
        Self { known: known.collect() }
    }
}

impl Targets for JobTargets<'_> {
    fn resolve(&self, name: &str) -> Result<(), Unresolved> {
        match self.known.get(name) {
            Some(None) => Ok(()),
            Some(Some(why)) => {
                let message = format!("the target `{name}` cannot be used: {why}");
                Err(Unresolved { message, help: None })
            }
            None => {
                let help = did_you_mean(name, self.known.keys().copied());
                let help = help.unwrap_or_else(|| format!("name it under [targets.{name}]"));
                let message = format!("there is no target `{name}`");
                Err(Unresolved { message, help: Some(help) })
            }
        }
    }
}

/// The targets by their names.
pub(super) fn targets(root: &Node, problems: &mut Vec<Problem>) -> BTreeMap<String, Target> {
    let table = root.get("targets").and_then(Node::table);
    let read = |(name, entry): (&String, &crate::job::tree::Entry)| {
        let mut reader = Reader { name, node: &entry.node, problems };
        Some((name.clone(), reader.target()?))
    };
    table.into_iter().flatten().filter_map(read).collect()
}

/// The keys that a target of each kind may have, beside `kind` and `timeout`.
const KEYS: [(&str, &[&str]); 5] = [
    ("webhook", &["url", "url_env", "url_file", "secret", "secret_env", "secret_file", "headers"]),
    ("slack", &["url", "url_env", "url_file"]),
    (
        "email",
        &[
            "host",
            "port",
            "tls",
            "ca_file",
            "user",
            "password",
            "password_env",
            "password_file",
            "from",
            "to",
        ],
    ),
    ("file", &["path"]),
    ("command", &["argv"]),
];

struct Reader<'a> {
    name: &'a str,
    node: &'a Node,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn target(&mut self) -> Option<Target> {
        let table = self.node.table()?;
        let before = self.problems.len();
        let Some(kind) = self.node.get("kind") else {
            let kinds = KEYS.map(|(kind, _)| kind).join(", ");
            self.refuse("kind", "it does not say its `kind`", Some(kinds));
            return None;
        };
        let kind = kind.as_text()?;
        let (_, keys) = KEYS.into_iter().find(|(name, _)| *name == kind)?;
        for (key, entry) in table {
            if !keys.contains(&key.as_str()) && !["kind", "timeout"].contains(&key.as_str()) {
                let path = self.path(key);
                let words = format!("`{key}` does not belong to a target of kind `{kind}`");
                self.problems.push(entry.node.error(&path, words));
            }
        }
        let is_refused = table.values().any(|entry| matches!(entry.node.item, Item::Refused));
        let kind = match kind {
            "webhook" => TargetKind::Webhook(Webhook {
                url: self.url()?,
                secret: self.secret("secret"),
                headers: self.headers(),
            }),
            "slack" => TargetKind::Slack { url: self.url()? },
            "email" => TargetKind::Email(self.email()?),
            "file" => self.file()?,
            _ => self.command()?,
        };
        let timeout = self.node.duration("timeout").unwrap_or(TIMEOUT);
        let is_sound = !is_refused && self.problems.len() == before;
        is_sound.then_some(Target { kind, timeout })
    }

    fn path(&self, key: &str) -> String {
        format!("targets.{}.{key}", self.name)
    }

    fn refuse(&mut self, key: &str, words: &str, help: Option<String>) {
        let words = format!("the target `{}`: {words}", self.name);
        let place = self.node.get(key).unwrap_or(self.node);
        self.problems.push(place.error(&self.path(key), words).with_help(help));
    }

    /// A text that has to be there; one that was refused is no reason for more words.
    fn needed(&mut self, key: &str, what: &str) -> Option<String> {
        let Some(place) = self.node.get(key) else {
            self.refuse(key, &format!("it needs `{key}`, {what}"), None);
            return None;
        };
        let text = place.as_text()?.to_owned();
        if text.trim().is_empty() {
            self.refuse(key, &format!("`{key}` is empty"), None);
            return None;
        }
        Some(text)
    }

    fn secret(&mut self, key: &str) -> Option<SecretText> {
        let (path, whose) = (self.path(key), format!("the target `{}`", self.name));
        secret_text(self.node, key, &path, &whose, self.problems)
    }

    fn url(&mut self) -> Option<SecretText> {
        let keys = ["url", "url_env", "url_file"];
        let Some(url) = self.secret("url") else {
            if keys.iter().all(|key| self.node.get(key).is_none()) {
                let help = "write `url_env` or `url_file`: an address like this is a key";
                self.refuse("url", "it has no `url`", Some(help.to_owned()));
            }
            return None;
        };
        if let Some(problem) = self.node.text("url").and_then(url_problem) {
            self.refuse("url", &problem, None);
        }
        Some(url)
    }

    fn headers(&mut self) -> BTreeMap<String, SecretString> {
        let headers = self.node.text_map("headers");
        for (name, value) in &headers {
            let is_header = reqwest::header::HeaderName::try_from(name.as_str()).is_ok()
                && reqwest::header::HeaderValue::try_from(value.as_str()).is_ok();
            if !is_header {
                self.refuse("headers", &format!("`{name}` is no header"), None);
            }
        }
        headers.into_iter().map(|(name, value)| (name, value.into())).collect()
    }

    fn email(&mut self) -> Option<Email> {
        let host = self.needed("host", "a mail server");
        let from = self.needed("from", "the sender");
        let tls = self.node.text("tls").and_then(|word| word.parse().ok());
        let tls = tls.unwrap_or(Tls::Starttls);
        let to: Vec<_> = self.node.texts("to").unwrap_or_default();
        let to: Vec<_> = to.into_iter().map(|(address, _)| address.to_owned()).collect();
        if to.is_empty() {
            self.refuse("to", "it needs `to`, a list of addresses", None);
        }
        let (user, password) = (self.node.text("user"), self.secret("password"));
        if user.is_some() != password.is_some() {
            self.refuse("user", "`user` and `password` go together", None);
        }
        for address in from.iter().chain(&to) {
            if address.parse::<lettre::message::Mailbox>().is_err() {
                let key = if Some(address) == from.as_ref() { "from" } else { "to" };
                self.refuse(key, &format!("`{address}` is no address"), None);
            }
        }
        let usual_port = match tls {
            Tls::Starttls => 587,
            Tls::Tls => 465,
            Tls::None => 25,
        };
        Some(Email {
            host: host?,
            port: self.node.integer("port").unwrap_or(usual_port),
            tls,
            ca_file: self.node.path("ca_file"),
            user: user.map(str::to_owned),
            password,
            from: from?,
            to,
        })
    }

    fn file(&mut self) -> Option<TargetKind> {
        let path = self.needed("path", "a template such as \"out/{{ job }}-{{ date }}.md\"")?;
        if let Some(problem) = template_problem(&path) {
            self.refuse("path", &problem, None);
        }
        let folder = self.node.get("path")?.source.folder().to_owned();
        Some(TargetKind::File { path, folder })
    }

    fn command(&mut self) -> Option<TargetKind> {
        let words = self.node.texts("argv").unwrap_or_default();
        let mut argv: Vec<_> = words.into_iter().map(|(word, _)| word.to_owned()).collect();
        let Some(program) = argv.first_mut().filter(|program| !program.is_empty()) else {
            self.refuse("argv", "it needs `argv`, a program and its arguments", None);
            return None;
        };
        let folder = self.node.source.folder().to_owned();
        if program.contains('/') {
            *program = folder.join(&*program).display().to_string();
        }
        if argv.iter().any(|word| word.contains('\0')) {
            self.refuse("argv", "a command cannot hold a NUL byte", None);
        }
        Some(TargetKind::Command { argv, folder })
    }
}
