//! What a command may see of our environment: an allow list, so that no provider key can leak.

/// The variable that marks every process of a run: `PUNCTUAL_RUN_ID=<id>`.
pub const RUN_MARKER: &str = "PUNCTUAL_RUN_ID";

const PASSED_ON: &[&str] = &["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME"];

/// The variables of our own environment that every command gets; a job's own come on top.
pub fn base_environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_passed_on(name))
        .collect()
}

fn is_passed_on(name: &str) -> bool {
    PASSED_ON.contains(&name) || name.starts_with("LC_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sockets_and_shell_hooks_stay_here() {
        for name in ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME"] {
            assert!(is_passed_on(name), "{name}");
        }
        for name in ["OPENAI_API_KEY", "SSH_AUTH_SOCK", "LD_PRELOAD", "BASH_ENV", "ENV", "path"] {
            assert!(!is_passed_on(name), "{name}");
        }
    }
}
