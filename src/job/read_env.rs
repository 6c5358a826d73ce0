//! `env`: what commands see beside the base that every command gets.

use std::collections::BTreeMap;

use super::parse::has_refused;
use super::problem::Problem;
use super::secret::SecretSource;
use super::spec::EnvSpec;
use super::tree::{Item, Node};

/// The table `env` of `node`, whose own keys begin with `prefix`: empty, or with a dot at its end.
pub(crate) fn env(node: &Node, prefix: &str, problems: &mut Vec<Problem>) -> EnvSpec {
    Reader { node, prefix, problems }.env()
}

struct Reader<'a> {
    node: &'a Node,
    prefix: &'a str,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn env(&mut self) -> EnvSpec {
        let set = self.node.text_map("env.set");
        let pass = self.node.texts("env.pass").unwrap_or_default();
        let pass: Vec<_> = pass.into_iter().map(|(name, _)| name.to_owned()).collect();
        let secret = self.secrets();
        for (name, path) in set
            .keys()
            .map(|name| (name, "env.set"))
            .chain(pass.iter().map(|name| (name, "env.pass")))
            .chain(secret.keys().map(|name| (name, "env.secret")))
        {
            if name.is_empty() || name.contains(['=', '\0']) {
                self.refuse(path, format!("`{name}` cannot name an environment variable"), None);
            }
        }
        for name in set.iter().filter(|(_, value)| value.contains('\0')).map(|(name, _)| name) {
            let path = format!("env.set.{name}");
            self.refuse(&path, "an environment variable cannot hold a NUL byte", None);
        }
        for name in secret.keys().filter(|name| set.contains_key(*name) || pass.contains(name)) {
            let path = format!("env.secret.{name}");
            self.refuse(&path, format!("`{name}` is a secret and also in `set` or `pass`"), None);
        }
        EnvSpec { set, pass, secret }
    }

    fn secrets(&mut self) -> BTreeMap<String, SecretSource> {
        let mut secrets = BTreeMap::new();
        let Some(table) = self.node.get("env.secret").and_then(Node::table) else { return secrets };
        for (name, entry) in table {
            let node = &entry.node;
            if matches!(node.item, Item::Refused) {
                continue;
            }
            let source = match (node.text("env"), node.path("file")) {
                (Some(variable), None) => SecretSource::Env(variable.to_owned()),
                (None, Some(file)) => SecretSource::File(file),
                // A refused value inside has been reported.
                _ if node.table().is_some_and(has_refused) => continue,
                _ => {
                    let path = format!("env.secret.{name}");
                    let help = "write { env = \"NAME\" } or { file = \"…\" }".to_owned();
                    self.refuse(&path, "a secret has either `env` or `file`", Some(help));
                    continue;
                }
            };
            secrets.insert(name.clone(), source);
        }
        secrets
    }

    /// At the value at `path`, or at the nearest table above it.
    fn refuse(&mut self, path: &str, message: impl Into<String>, help: Option<String>) {
        let mut place = self.node.get(path);
        let mut above = path;
        while let (None, Some((shorter, _))) = (place, above.rsplit_once('.')) {
            above = shorter;
            place = self.node.get(above);
        }
        let key = format!("{}{path}", self.prefix);
        let problem = place.unwrap_or(self.node).error(&key, message);
        self.problems.push(problem.with_help(help));
    }
}
