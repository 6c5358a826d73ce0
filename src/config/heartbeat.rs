//! `[heartbeat]`: whom `serve` tells that it lives.

use std::time::Duration;

use crate::job::tree::{Item, Node};
use crate::job::{Environment, Problem, SecretText, secret_text};

/// A switch that is told more often learns nothing more.
const EVERY_MIN: Duration = Duration::from_secs(10);

/// How often it is told when nobody says.
const EVERY: Duration = Duration::from_mins(1);

/// Whom `serve` tells that it lives.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// Where that is.
    pub url: SecretText,
    /// How often.
    pub every: Duration,
}

pub(super) fn heartbeat(
    root: &Node,
    environment: &Environment,
    problems: &mut Vec<Problem>,
) -> Option<Heartbeat> {
    let node = root.get("heartbeat")?;
    if node.table()?.values().any(|entry| matches!(entry.node.item, Item::Refused)) {
        return None;
    }
    let every = node.duration("every").unwrap_or(EVERY);
    if let Some(place) = node.get("every").filter(|_| every < EVERY_MIN) {
        problems.push(place.error("heartbeat.every", "it is at least 10s"));
    }
    let Some(url) = secret_text(node, "url", "heartbeat.url", "the heartbeat", problems) else {
        let help = "write `url_env` or `url_file`: an address like this is a key".to_owned();
        let problem = node.error("heartbeat", "a heartbeat needs `url`");
        problems.push(problem.with_help(help));
        return None;
    };
    if let Some(words) = url.url_problem(environment) {
        let keys = ["url", "url_env", "url_file"];
        let place = keys.into_iter().find_map(|key| Some((key, node.get(key)?)));
        let (key, place) = place.unwrap_or(("url", node));
        let problem = place.error(&format!("heartbeat.{key}"), words);
        // What is not set here is no reason to refuse everything else that the file says.
        problems.push(match &url {
            SecretText::Literal(_) => problem,
            SecretText::Named(_) => problem.as_warning(),
        });
    }
    Some(Heartbeat { url, every })
}
