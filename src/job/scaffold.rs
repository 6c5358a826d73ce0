//! What `new JOB` writes.

use super::id::JobId;

/// A job file with comments that is valid as it stands and starts nothing.
pub fn scaffold(id: &JobId) -> String {
    format!(
        r#"# The job `{id}`. Its id is the name of this file.
description = "What this job is for, in one line"
# owner = "who answers for it"
enabled = false                   # until this is true, only `run {id} --force` starts it

[schedule]                        # without this table it is started by hand only
cron = "0 9 * * MON-FRI"          # minute hour day month weekday; or: every = "6h", at = "2027-01-01T09:00"
timezone = "UTC"
# jitter = "5m"                   # starts up to so much later, each time by another share
# exclude = ["2027-01-01"]        # dates, ranges (2026-12-24..2027-01-02) or names of [calendars]
# catchup = "latest"              # missed slots start late: the newest (latest), each (all), none
# overlap = "skip"                # due while the last run lives: skip | buffer_one | buffer_all |
                                  # cancel_other | allow_all

[agent]
prompt = """
Say in one line what is new since {{{{ slot.start }}}}.
"""
# model = "provider/model"        # or an alias; without it: agents.defaults.model of config.toml
# tools = ["read", "list", "grep"]
# workdir = ".."                  # without it: a fresh folder per run

[limits]
timeout = "20m"
# max_turns = 30
# max_tokens = 200_000

# [retry]                         # what follows a run that failed
# max_attempts = 4                # the first counted
# backoff = ["30s", "60s", "5m"]  # waits between them; the last one repeats
# pause_after = 10                # so many failed slots in a row pause it
"#
    )
}
