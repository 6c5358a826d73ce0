//! Every key of a job file.

use super::keys::{Key, Kind, Support, Zero};
use Kind::{Amount, Any, Bool, Cron, Integer, Table, Tables, Text, TextMap, Texts, Words};
use Support::{Now, Only};

/// The largest count that a file may name.
pub(crate) const COUNT_MAX: i64 = 1_000_000_000_000;
pub(crate) const TIME: Kind = Kind::Duration(Zero::Refused);

pub(crate) const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    support: Support,
    about: &'static str,
) -> Key {
    Key { name, kind, default, support, about }
}

/// The keys of a job file.
pub(crate) static JOB: &[Key] = &[
    key("description", Text, "", Now, "One line for people."),
    key("owner", Text, "", Now, "Who answers for it."),
    key("labels", TextMap, "{}", Now, "Free words for queries."),
    key("enabled", Bool, "true", Now, "Whether its slots start runs."),
    key("lane", Text, "", Now, "A named lane of the configuration to wait in."),
    key("schedule", Table(SCHEDULE), "", Now, "When it is due; absent: only by hand."),
    key("gate", Table(GATE), "", Now, "A command that decides whether the model is called."),
    key("agent", Table(AGENT), "{}", Now, "The model turn."),
    key("command", Table(COMMAND), "", Now, "A command instead of a model turn."),
    key("env", Table(ENV), "{}", Now, "The environment of the job's commands."),
    key("limits", Table(LIMITS), "{}", Now, "The bounds of a run."),
    key("retry", Table(RETRY), "{}", Now, "What follows a failed run."),
    key("after", Table(AFTER), "", Now, "Jobs whose end starts this one."),
    key("matrix", Kind::Map(&Texts), "", Now, "One job per combination of these values."),
    key("output", Table(OUTPUT), "", Now, "What a reply and a run's files must look like."),
    key("check", Tables(CHECK), "", Now, "What the host checks before it calls a run a success."),
    key("deliver", Tables(DELIVER), "", Now, "Where the reply is sent."),
    key("alert", Table(ALERT), "", Now, "Who is told of failures."),
    key("ping", Table(PING), "", Now, "A dead-man switch."),
    key("retention", Table(RETENTION), "", Now, "How much of its history is kept."),
];

static SCHEDULE: &[Key] = &[
    key(
        "cron",
        Cron,
        "",
        Now,
        "Five fields, six with leading seconds, or an @name; or a list of these.",
    ),
    key("every", TIME, "", Now, "An interval, kept across restarts."),
    key("at", Text, "", Now, "One instant, in `timezone` unless it carries an offset."),
    key("timezone", Text, "", Now, "IANA name; default: `timezone` of the configuration."),
    key("jitter", TIME, "", Now, "A stable delay per job and slot, less than the period."),
    key("start_at", Text, "", Now, "Not due before this date or time; the anchor of `every`."),
    key("end_at", Text, "", Now, "Not due after this date or time."),
    key("exclude", Texts, "[]", Now, "Dates, ranges or calendars on which nothing is due."),
    key(
        "dst_gap",
        Words(&["shift", "skip"]),
        r#""shift""#,
        Now,
        "What happens to a local time that a clock change leaves out.",
    ),
    key(
        "dst_overlap",
        Words(&["once", "twice"]),
        r#""once""#,
        Now,
        "What happens to a local time that a clock change repeats.",
    ),
    key(
        "catchup",
        Words(&["none", "latest", "all"]),
        r#""latest""#,
        Now,
        "What happens to missed slots.",
    ),
    key(
        "catchup_window",
        TIME,
        "",
        Now,
        "How late a missed slot may start; default: half the distance to the next due instant, \
         at least 2m, at most 2h; 2h for `at`.",
    ),
    key(
        "overlap",
        Words(&["skip", "buffer_one", "buffer_all", "cancel_other", "allow_all"]),
        r#""skip""#,
        Now,
        "What happens when it is due while its last run lives.",
    ),
];

static GATE: &[Key] = &[
    key("command", Texts, "", Now, "Program and arguments."),
    key(
        "run_if",
        Words(&["exit_zero", "output", "changed"]),
        r#""exit_zero""#,
        Now,
        "When it says yes.",
    ),
    key("pass_output", Bool, "true", Now, "Its standard output becomes context."),
    key("timeout", TIME, r#""30s""#, Now, "How long it may take."),
];

static AGENT: &[Key] = &[
    key("harness", Text, r#""native""#, Only(r#"["native"]"#), "Who drives the turn."),
    key("prompt", Text, "", Now, "What to say; a template."),
    key("prompt_file", Text, "", Now, "A file with what to say, relative to this one."),
    key("vars", TextMap, "{}", Now, "`{{ vars.x }}` of the prompt."),
    key("model", Text, "", Now, "provider/model or an alias; default: `agents.defaults.model`."),
    key(
        "fallbacks",
        Texts,
        "",
        Now,
        "Models to go on with when one fails, [] = none; default: `agents.defaults.fallbacks`.",
    ),
    key("thinking", Words(THINKING), "", Now, "How much it thinks; default: `agents.defaults`."),
    key("verbose", Bool, "", Now, "Tool summaries in the result; default: `agents.defaults`."),
    key("trace", Bool, "", Now, "Whether every request and answer is kept; likewise."),
    key("reasoning", Words(REASONING), "", Now, "Whether thoughts are shown; likewise."),
    key("block_streaming", Words(BLOCKS), "", Now, "When partial replies are told; likewise."),
    key("tools", Texts, r#"["read", "list", "grep"]"#, Now, "The tools on offer; [] = none."),
    key("exec_allow", Texts, "[]", Now, "Patterns of commands that `exec` may run."),
    key("mcp", Texts, "[]", Now, "MCP servers of the configuration."),
    key("skills", Texts, "[]", Now, "Names of the skills on offer."),
    key(
        "session",
        Words(&["isolated", "job", "session:<key>"]),
        r#""isolated""#,
        Now,
        "Which conversation it belongs to.",
    ),
    key("workdir", Text, "", Now, "Where it works; absent: a fresh folder per run."),
    key(
        "sandbox",
        Words(&["strict", "workspace", "off"]),
        r#""workspace""#,
        Now,
        "How the processes of its tools are confined.",
    ),
    key("sandbox_read", Texts, "[]", Now, "What else those may read."),
    key("sandbox_write", Texts, "[]", Now, "What else those may change."),
    key(
        "network",
        Words(&["on", "off"]),
        "",
        Now,
        "Whether those may talk to others; default: off if `sandbox` is \"strict\", else on.",
    ),
    key("light_context", Bool, "false", Now, "Leaves the workspace's bootstrap files out."),
    key(
        "escalate_on",
        Words(&["check_failed"]),
        "",
        Now,
        "The failure after which the next model goes on.",
    ),
];

pub(crate) static THINKING: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh"];

pub(crate) static BLOCKS: &[&str] = &["off", "text_end", "message_end"];

pub(crate) static REASONING: &[&str] = &["off", "stream", "blocks"];

static COMMAND: &[Key] = &[
    key("argv", Texts, "", Now, "Program and arguments."),
    key("workdir", Text, "", Now, "Where it works; absent: a fresh folder per run."),
    key("ok_exit", Any, "[0]", Now, "Exit codes that are a success."),
];

pub(crate) static ENV: &[Key] = &[
    key("set", TextMap, "{}", Now, "Fixed values."),
    key("pass", Texts, "[]", Now, "Names taken over from the environment of `serve`."),
    key("secret", Kind::Map(&Table(SECRET)), "{}", Now, "Secrets; masked everywhere."),
];

static SECRET: &[Key] = &[
    key("env", Text, "", Now, "The environment variable that holds it."),
    key("file", Text, "", Now, "The file that holds it."),
];

static LIMITS: &[Key] = &[
    key(
        "timeout",
        Kind::Duration(Zero::Unlimited),
        "",
        Now,
        "The run's own limit, \"0s\" = unlimited; absent: 60m, or `agents.defaults.timeout` when \
         that is configured and shorter.",
    ),
    key("lane_timeout", TIME, "", Now, "How long it may wait for its lanes."),
    key("stop_grace", TIME, r#""5s""#, Now, "From TERM to KILL."),
    key("tool_timeout", TIME, r#""10m""#, Now, "One tool call."),
    key("max_turns", Integer(1, 10_000), "30", Now, "Model requests per turn."),
    key("max_tokens", Integer(1, COUNT_MAX), "200000", Now, "Input and output tokens together."),
    key("max_usd", Amount, "", Now, "The cost of a run in USD."),
    key("max_usd_per_day", Amount, "", Now, "The cost of a day in the job's zone, in USD."),
];

static RETRY: &[Key] = &[
    key("max_attempts", Integer(1, 1000), "4", Now, "Attempts, the first counted."),
    key("backoff", Texts, r#"["30s", "60s", "5m"]"#, Now, "Waits; the last repeats."),
    key(
        "pause_after",
        Integer(1, 1_000_000),
        "10",
        Now,
        "Failed slots in a row that pause the job.",
    ),
    key("interrupted", Bool, "false", Now, "Whether an interrupted run is repeated once."),
    key("on", Texts, "[]", Now, "Permanent kinds to retry as well."),
];

static AFTER: &[Key] = &[
    key("jobs", Texts, "", Now, "The upstream jobs."),
    key(
        "when",
        Words(&["succeeded", "failed", "finished"]),
        r#""succeeded""#,
        Now,
        "Which end counts.",
    ),
];

static OUTPUT: &[Key] = &[
    key("schema", Text, "", Now, "A JSON Schema that the reply must meet."),
    key("silent_token", Text, "", Now, "The reply that means silence; absent: NO_REPLY."),
    key("artifacts", Texts, "", Now, "Files that a run must make, and that are kept."),
];

static CHECK: &[Key] = &[
    key("name", Text, "", Now, "What it is called."),
    key("file", Text, "", Now, "A file that must be there."),
    key("fresh", Bool, "true", Now, "Written since the run started."),
    key("min_bytes", Integer(0, COUNT_MAX), "", Now, "Its least size."),
    key("command", Texts, "", Now, "A command that must exit with zero."),
    key("regex", Text, "", Now, "What the reply must match."),
    key("not_regex", Text, "", Now, "What the reply must not match."),
    key("sql", Text, "", Now, "A query whose first column must be true."),
    key("schema", Text, "", Now, "A JSON Schema."),
    key("tools", Words(&["none_denied"]), "", Now, "What must be true of the tool calls."),
];

static DELIVER: &[Key] = &[
    key("to", Text, "", Now, "A target of the configuration."),
    key(
        "when",
        Words(&["succeeded", "failed", "always"]),
        r#""succeeded""#,
        Now,
        "After which end.",
    ),
    key("best_effort", Bool, "false", Now, "A delivery that fails is no incident."),
    key("subject", Text, "", Now, "Of an e-mail; a template."),
    key("attach", Bool, "", Now, "Sends the artifacts along."),
];

static ALERT: &[Key] = &[
    key(
        "on",
        Texts,
        r#"["failed", "missed", "over_budget", "delivery_failed"]"#,
        Now,
        "What is told; also \"stale\".",
    ),
    key("after", Integer(1, 1_000_000), "1", Now, "Slots in a row."),
    key("stale_after", Integer(1, 1000), "", Now, "Periods without a success."),
    key("cooldown", TIME, "", Now, "The least distance between two alerts."),
    key("to", Text, "", Now, "A target of the configuration."),
];

static PING: &[Key] = &[
    key("url", Text, "", Now, "Where to ping."),
    key("url_env", Text, "", Now, "The environment variable that holds it."),
    key("url_file", Text, "", Now, "The file that holds it."),
];

pub(crate) static RETENTION: &[Key] = &[
    key(
        "runs",
        Integer(1, 1_000_000_000),
        "",
        Now,
        "The newest runs of a job that are kept; absent: all.",
    ),
    key("days", Integer(1, 100_000), "", Now, "For how many days; absent: for ever."),
];
