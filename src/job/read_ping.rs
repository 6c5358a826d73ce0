//! `[ping]`: a dead-man switch, which is told when a run begins and ends.

use secrecy::ExposeSecret as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::effective::hex;
use super::parse::{Part, Reader};
use super::read_secret::{SecretText, secret_text};
use super::secret::SecretSource;
use super::tree::Item;

/// How much of the digest of an address stands for it: enough to see that it has changed.
const DIGEST_CHARS: usize = 8;

pub(super) fn ping(reader: &mut Reader<'_>) -> Option<SecretText> {
    let node = reader.node.get("ping")?;
    if node.table()?.values().any(|entry| matches!(entry.node.item, Item::Refused)) {
        return None;
    }
    let Some(url) = secret_text(node, "url", "ping.url", "the ping", &mut reader.problems) else {
        if reader.part == Part::Job {
            let help = "write `url_env` or `url_file`: an address like this is a key".to_owned();
            reader.refuse("ping", "a ping needs `url`", help);
        }
        return None;
    };
    // Of defaults nothing is judged that may be unset here: it is the affair of the jobs.
    let is_judged = reader.part == Part::Job || matches!(url, SecretText::Literal(_));
    if is_judged && let Some(problem) = url.url_problem(reader.around.environment) {
        let keys = ["ping.url", "ping.url_env", "ping.url_file"];
        let key = keys.into_iter().find(|key| reader.node.get(key).is_some());
        reader.refuse(key.unwrap_or("ping"), problem, None);
    }
    Some(url)
}

/// What stands for the address in an effective definition, which everybody may read.
pub(super) fn by_name(url: &SecretText) -> Option<(&'static str, Value)> {
    match url {
        SecretText::Named(SecretSource::Env(_)) => None,
        SecretText::Named(SecretSource::File(path)) => {
            Some(("url_file", path.display().to_string().into()))
        }
        SecretText::Literal(text) => {
            let digest = hex(&Sha256::digest(text.expose_secret()));
            Some(("url", format!("[secret {}]", &digest[..DIGEST_CHARS]).into()))
        }
    }
}
