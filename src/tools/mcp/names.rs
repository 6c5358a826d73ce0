//! Under which names tools are offered.
//!
//! `<server>__<tool>`, as other agents do it. The APIs of all providers take letters, digits, `_`
//! and `-`, 64 characters at most: anything else in a tool's name becomes `_`, and a name that is
//! too long, or taken by then, ends with a piece of the hash of what it stands for. So a name
//! depends on nothing but the tools of its own server, in their order.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use crate::job::{MCP_MARK, hex};

/// The most that the APIs of all providers take.
const NAME_CHARS_MAX: usize = 64;

/// So much of a hash tells the tools of a server apart.
const HASH_CHARS: usize = 8;

/// Hands out names.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// The name under which `tool` of `server` is offered.
    pub fn give(&mut self, server: &str, tool: &str) -> String {
        let plain: String = tool
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' })
            .collect();
        let wanted = format!("{server}{MCP_MARK}{plain}");
        let is_good = !plain.is_empty() && wanted.len() <= NAME_CHARS_MAX;
        if is_good && self.0.insert(wanted.clone()) {
            return wanted;
        }
        let hash = hex(&Sha256::digest(tool));
        let mut kept = wanted;
        kept.truncate(NAME_CHARS_MAX - HASH_CHARS - 1);
        let name = format!("{kept}_{}", &hash[..HASH_CHARS]);
        self.0.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_that_all_providers_take_and_no_two_are_the_same() {
        let long = "a".repeat(100);
        let tools = ["query", "a.b", "a_b", "a b", "", "größe", &long, &long[..99], "query"];
        let mut names = Names::default();
        let given: Vec<_> = tools.iter().map(|tool| names.give("wh", tool)).collect();
        assert_eq!(given[..4], ["wh__query", "wh__a_b", "wh__a_b_648fa9b3", "wh__a_b_c8687a08"]);
        assert_eq!(given[5], "wh__gr__e");
        assert!(given[6].starts_with("wh__aaaa") && given[6].len() == 64, "{}", given[6]);
        let different: BTreeSet<_> = given[..8].iter().collect();
        assert_eq!(different.len(), 8, "{given:?}");
        let is_taken =
            |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        assert!(given.iter().all(|name| is_taken(name) && name.len() <= 64), "{given:?}");
    }
}
