//! What the kernel offers for a fence.

use std::sync::OnceLock;

use landlock::{ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset};
use landlock::{RulesetAttr as _, RulesetError, Scope};

use super::{Fence, Network, View};

/// The first version of Landlock that holds a whole fence: earlier ones let a file be cut short
/// (2), devices be spoken to (4), and other processes be signalled (5).
const WHOLE: i32 = 6;

/// What the kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The version of Landlock, as far as we know it; none at all without it.
    pub landlock: Option<i32>,
    /// Whether system calls can be filtered.
    pub filters: Filters,
}

/// Whether system calls can be filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filters {
    /// They can.
    Some,
    /// The kernel was built without.
    None,
}

/// What this kernel offers; it is asked once.
pub fn offered() -> Offer {
    static OFFER: OnceLock<Offer> = OnceLock::new();
    *OFFER.get_or_init(|| Offer { landlock: landlock(), filters: filters() })
}

impl Offer {
    /// Why `fence` cannot be held here, if it cannot.
    pub fn lacks(self, fence: &Fence) -> Option<String> {
        self.lacks_of(fence.view == View::System || fence.network == Network::Off)
    }

    /// Why a strict job cannot run here, if it cannot.
    pub fn lacks_for_strict(self) -> Option<String> {
        self.lacks_of(true)
    }

    fn lacks_of(self, needs_filters: bool) -> Option<String> {
        match (self.landlock, self.filters) {
            (None, _) => Some("this kernel has no Landlock".to_owned()),
            (Some(version), _) if version < WHOLE => Some(format!(
                "Landlock of this kernel has version {version}; {WHOLE} is needed (Linux 6.12)"
            )),
            (Some(_), Filters::None) if needs_filters => {
                Some("this kernel has no filters of system calls".to_owned())
            }
            (Some(_), _) => None,
        }
    }

    /// What is missing of a whole fence where less will do, for people.
    pub fn gaps(self) -> Vec<&'static str> {
        let Some(version) = self.landlock else {
            return vec!["there is no Landlock: commands may write wherever their user may"];
        };
        let gaps = [
            (3, "files outside can be cut short"),
            (5, "devices can be spoken to"),
            (6, "other processes of the same user can be signalled"),
        ];
        gaps.into_iter().filter(|(since, _)| version < *since).map(|(_, gap)| gap).collect()
    }
}

/// Asks for what each version brought, the newest first, without putting it to use.
fn landlock() -> Option<i32> {
    let hard = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let has = |version: i32| -> Result<(), RulesetError> {
        let abi = ABI::from(version);
        hard().handle_access(AccessFs::from_all(abi))?;
        if version >= 4 {
            hard().handle_access(AccessNet::from_all(abi))?;
        }
        if version >= 6 {
            hard().scope(Scope::from_all(abi))?;
        }
        Ok(())
    };
    // What 7 and 8 brought is about logs and threads, and cannot be asked for like this.
    [10, 9, 6, 5, 4, 3, 2, 1].into_iter().find(|version| has(*version).is_ok())
}

fn filters() -> Filters {
    let known = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    match known {
        Ok(known) if known.split_ascii_whitespace().any(|action| action == "errno") => {
            Filters::Some
        }
        Ok(_) | Err(_) => Filters::None,
    }
}
