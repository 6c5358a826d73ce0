//! `[diagnostics]` and `[session.write_lock]`: when a session counts as stuck, and how long a
//! writer waits for one.

use std::time::Duration;

use crate::job::tree::Node;
use crate::job::{Environment, Problem};

/// Wins over `acquire_timeout`, in milliseconds.
const ACQUIRE_TIMEOUT_ENV: &str = "PUNCTUAL_SESSION_WRITE_LOCK_ACQUIRE_TIMEOUT_MS";

/// The least that `stuck_session_abort` is when it is not written.
const ABORT_MIN: Duration = Duration::from_mins(5);

/// The look-out for stuck sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Diagnostics {
    /// Nobody looks.
    Off,
    /// A tick looks.
    On(Thresholds),
}

/// From which silence on something is said or done about a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// It is reported.
    pub warn: Duration,
    /// Its work is ended.
    pub abort: Duration,
}

impl Thresholds {
    /// `warn`, and the abort threshold that follows from it: max(5m, 3 × warn).
    pub fn of_warn(warn: Duration) -> Self {
        Self { warn, abort: warn.saturating_mul(3).max(ABORT_MIN) }
    }
}

impl Default for Thresholds {
    /// The contract's defaults.
    fn default() -> Self {
        Self::of_warn(Duration::from_mins(2))
    }
}

pub(super) fn diagnostics(root: &Node, problems: &mut Vec<Problem>) -> Diagnostics {
    let warn = root.duration("diagnostics.stuck_session_warn");
    let mut thresholds = warn.map_or_else(Thresholds::default, Thresholds::of_warn);
    let key = "diagnostics.stuck_session_abort";
    if let (Some(place), Some(abort)) = (root.get(key), root.duration(key)) {
        if warn.is_some_and(|warn| abort < warn) {
            let words = "it cannot be shorter than `stuck_session_warn`";
            problems.push(place.error(key, words));
        }
        // What is ended is reported before, or at least at the same time.
        thresholds = Thresholds { warn: thresholds.warn.min(abort), abort };
    }
    match root.bool("diagnostics.enabled") {
        Some(false) => Diagnostics::Off,
        Some(true) | None => Diagnostics::On(thresholds),
    }
}

/// Windows of `providers` that a silent model call never comes to the end of.
pub(super) fn warn_of_long_windows<'a>(
    root: &Node,
    providers: impl Iterator<Item = &'a String>,
    diagnostics: Diagnostics,
    problems: &mut Vec<Problem>,
) {
    let Diagnostics::On(Thresholds { abort, .. }) = diagnostics else { return };
    for id in providers {
        for name in ["timeout", "first_token_timeout"] {
            let key = format!("models.providers.{id}.{name}");
            if let Some(place) = root.get(&key)
                && root.duration(&key).is_some_and(|window| window > abort)
            {
                let abort = humantime::format_duration(abort);
                let words = format!(
                    "`{name}` is longer than `diagnostics.stuck_session_abort` ({abort}): a model \
                     call that is silent for that long is ended as stuck"
                );
                problems.push(place.error(&key, words).as_warning());
            }
        }
    }
}

/// How long a writer waits for a session's lock.
pub(super) fn session_lock_timeout(
    root: &Node,
    environment: &Environment,
    problems: &mut Vec<Problem>,
) -> Duration {
    let key = "session.write_lock.acquire_timeout";
    let written = root.duration(key).unwrap_or(Duration::from_mins(1));
    let Some(text) = environment.get(ACQUIRE_TIMEOUT_ENV).filter(|text| !text.is_empty()) else {
        return written;
    };
    match text.trim().parse() {
        Ok(millis) if millis > 0 => Duration::from_millis(millis),
        Ok(_) | Err(_) => {
            let words = format!("${ACQUIRE_TIMEOUT_ENV} is `{text}`: not a number of milliseconds");
            problems.push(root.get(key).unwrap_or(root).error(key, words));
            written
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::job::source::Source;
    use crate::job::tree;

    fn root(text: &str) -> Node {
        let mut problems = Vec::new();
        let root = tree::parse(&Source::new(Path::new("config.toml"), text), &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        root
    }

    fn on(warn_s: u64, abort_s: u64) -> Diagnostics {
        let (warn, abort) = (Duration::from_secs(warn_s), Duration::from_secs(abort_s));
        Diagnostics::On(Thresholds { warn, abort })
    }

    #[test]
    fn thresholds_follow_from_what_is_written() {
        let table = [
            ("", on(120, 360)),
            ("stuck_session_warn = \"3s\"", on(3, 300)),
            ("stuck_session_warn = \"10m\"", on(600, 1800)),
            ("stuck_session_warn = \"3s\"\nstuck_session_abort = \"4s\"", on(3, 4)),
            ("stuck_session_abort = \"20m\"", on(120, 1200)),
            ("stuck_session_abort = \"90s\"", on(90, 90)),
            ("enabled = false\nstuck_session_warn = \"3s\"", Diagnostics::Off),
        ];
        for (text, expected) in table {
            let mut problems = Vec::new();
            let read = diagnostics(&root(&format!("[diagnostics]\n{text}\n")), &mut problems);
            assert_eq!((read, problems.len()), (expected, 0), "{text}");
        }
        let mut problems = Vec::new();
        let backwards = "stuck_session_warn = \"2m\"\nstuck_session_abort = \"1m\"\n";
        diagnostics(&root(&format!("[diagnostics]\n{backwards}")), &mut problems);
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn a_window_beyond_the_abort_threshold_is_a_warning() {
        let text = "[models.providers.a]\ntimeout = \"10m\"\n\
                    [models.providers.b]\ntimeout = \"6m\"\nfirst_token_timeout = \"7m\"\n";
        let keys = |diagnostics| {
            let (ids, mut problems) = (["a".to_owned(), "b".to_owned()], Vec::new());
            warn_of_long_windows(&root(text), ids.iter(), diagnostics, &mut problems);
            assert!(problems.iter().all(|problem| !problem.is_error()), "{problems:?}");
            problems.into_iter().map(|problem| problem.key.unwrap()).collect::<Vec<_>>()
        };
        let both = ["models.providers.a.timeout", "models.providers.b.first_token_timeout"];
        assert_eq!(keys(on(120, 360)), both);
        assert_eq!(keys(on(120, 600)), [""; 0]);
        assert_eq!(keys(Diagnostics::Off), [""; 0]);
    }

    #[test]
    fn the_environment_wins_over_the_file_and_has_to_be_a_number() {
        let text = "[session.write_lock]\nacquire_timeout = \"5s\"\n";
        let table = [
            ("", Duration::from_secs(5), 0),
            ("250", Duration::from_millis(250), 0),
            ("0", Duration::from_secs(5), 1),
            ("5s", Duration::from_secs(5), 1),
        ];
        for (value, expected, complaints) in table {
            let environment = Environment::fixed([(ACQUIRE_TIMEOUT_ENV, value)]);
            let mut problems = Vec::new();
            let limit = session_lock_timeout(&root(text), &environment, &mut problems);
            assert_eq!((limit, problems.len()), (expected, complaints), "{value}");
        }
        let unset = session_lock_timeout(&root(""), &Environment::fixed([]), &mut Vec::new());
        assert_eq!(unset, Duration::from_mins(1));
    }
}
